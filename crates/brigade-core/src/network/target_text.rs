//! Targets as text: `registry.example:443` or `[2001:db8::1]:443`, also in stored events.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{HostError, Target};

impl FromStr for Target {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Target, HostError> {
        Target::parse(text, None)
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Target, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refuse = |error| de::Error::custom(format_args!("cannot read the host `{text}`: {error}"));
        text.parse().map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_in_json_is_its_text() {
        for (text, spelling) in [
            ("registry.example:443", "registry.example:443"),
            ("Registry.Example.:443", "registry.example:443"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[2001:DB8::1]:8080", "[2001:db8::1]:8080"),
        ] {
            let target: Target = text.parse().unwrap();
            let json = serde_json::to_string(&target).unwrap();
            assert_eq!(json, format!("\"{spelling}\""));
            assert_eq!(serde_json::from_str::<Target>(&json).unwrap(), target);
        }
        for text in ["\"\"", "\"a\"", "\"a:\"", "\"a:0\"", "\"a b:1\"", "\"::1:443\"", "\"*.a:1\"", "null"] {
            assert!(serde_json::from_str::<Target>(text).is_err(), "{text}");
        }
    }
}
