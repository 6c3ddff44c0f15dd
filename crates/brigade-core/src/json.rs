//! Unambiguous JSON: an object with a duplicate key is refused.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses JSON and refuses an object with a duplicate key. `serde_json` alone keeps the last of the two, so the
/// checked value and the used value could differ.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Strict)?;
            if map.contains_key(&key) {
                return Err(de::Error::custom(format_args!("duplicate key '{key}'")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parse_reads_every_kind_of_value() {
        let text = r#"{"a": [null, true, false, -1, 18446744073709551615, 0.5, "b", "c\n"], "d": {}}"#;
        let expected = json!({ "a": [null, true, false, -1, u64::MAX, 0.5, "b", "c\n"], "d": {} });
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn parse_refuses_duplicate_keys_and_further_text() {
        for text in [r#"{"a": 1, "a": 1}"#, r#"[{"a": {"b": 1, "b": 2}}]"#] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("duplicate key"), "{error}");
        }
        assert!(parse("{} {}").is_err() && parse("").is_err() && parse("{").is_err());
    }
}
