//! Section `delegation` of the config: the styles to offer and their extra parameters.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::extra_parameters::ExtraParameter;
use super::titles::sanitize_title;
use crate::delegation::DelegationStyle;

/// Section `delegation` of the config.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DelegationConfig {
    /// Styles to offer.
    #[serde(rename = "faces")]
    pub styles: EnabledStyles,
    /// Optional parameters beyond the contracts.
    pub extras: BTreeSet<ExtraParameter>,
}

/// Selection of delegation styles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum EnabledStyles {
    /// `delegate` if it is enabled, `dispatch` if another agent exists, the others if their section is present.
    #[default]
    Auto,
    /// Exactly these styles.
    Only(BTreeSet<DelegationStyle>),
}

impl Serialize for EnabledStyles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            EnabledStyles::Auto => serializer.serialize_str("auto"),
            EnabledStyles::Only(styles) => serializer.collect_seq(styles),
        }
    }
}

impl<'de> Deserialize<'de> for EnabledStyles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EnabledStyles, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RawStyles {
            Name(String),
            List(Vec<String>),
        }
        let names = match RawStyles::deserialize(deserializer)? {
            RawStyles::Name(word) if word == "auto" => return Ok(EnabledStyles::Auto),
            RawStyles::Name(word) => word.split(',').map(|name| name.trim().to_owned()).collect(),
            RawStyles::List(names) => names,
        };
        names.iter().map(|name| parse_style(name)).collect::<Result<_, _>>().map(EnabledStyles::Only)
    }
}

fn parse_style<E: serde::de::Error>(name: &str) -> Result<DelegationStyle, E> {
    let styles = [
        DelegationStyle::Delegate,
        DelegationStyle::Subagent,
        DelegationStyle::Dispatch,
        DelegationStyle::Spawn,
    ];
    styles.into_iter().find(|style| style.name() == name).ok_or_else(|| {
        E::custom(format_args!(
            "unknown delegation style '{}'. Use `auto`, or a list of `delegate`, `subagent`, `dispatch` and `spawn`.",
            sanitize_title(name, 32)
        ))
    })
}
