//! Section `delegation` of the config: the styles to offer and their extra parameters.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize, Serializer};

use super::extra_parameters::ExtraParameter;
use super::titles::sanitize_title;
use crate::delegation::DelegationStyle;

/// Section `delegation` of the config.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DelegationConfig {
    /// Delegation styles: `auto`, or a list of delegate, subagent, dispatch, spawn.
    #[serde(rename = "faces")]
    #[cfg_attr(feature = "schemars", schemars(with = "RawStyles"))]
    pub styles: EnabledStyles,
    /// Additional tool parameters: background, schema, tokens, usd.
    pub extras: BTreeSet<ExtraParameter>,
}

/// Selection of delegation styles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawStyles")]
pub enum EnabledStyles {
    /// `delegate` if it is enabled, `dispatch` if another agent exists, the others if their section is present.
    #[default]
    Auto,
    /// Exactly these styles.
    Only(BTreeSet<DelegationStyle>),
}

impl<const N: usize> From<[DelegationStyle; N]> for EnabledStyles {
    fn from(styles: [DelegationStyle; N]) -> EnabledStyles {
        EnabledStyles::Only(styles.into())
    }
}

impl Serialize for EnabledStyles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            EnabledStyles::Auto => serializer.serialize_str("auto"),
            EnabledStyles::Only(styles) => serializer.collect_seq(styles),
        }
    }
}

/// Selection as users write it.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum RawStyles {
    Name(String),
    List(Vec<String>),
}

impl TryFrom<RawStyles> for EnabledStyles {
    type Error = serde::de::value::Error;

    fn try_from(raw: RawStyles) -> Result<EnabledStyles, Self::Error> {
        let names = match raw {
            RawStyles::Name(word) if word == "auto" => return Ok(EnabledStyles::Auto),
            RawStyles::Name(word) => word.split(',').map(|name| name.trim().to_owned()).collect(),
            RawStyles::List(names) => names,
        };
        names.iter().map(|name| parse_style(name)).collect::<Result<_, _>>().map(EnabledStyles::Only)
    }
}

fn parse_style(name: &str) -> Result<DelegationStyle, serde::de::value::Error> {
    let styles = [
        DelegationStyle::Delegate,
        DelegationStyle::Subagent,
        DelegationStyle::Dispatch,
        DelegationStyle::Spawn,
    ];
    styles.into_iter().find(|style| style.name() == name).ok_or_else(|| {
        serde::de::Error::custom(format_args!(
            "unknown delegation style '{}'. Use `auto`, or a list of `delegate`, `subagent`, `dispatch` and `spawn`.",
            sanitize_title(name, 32)
        ))
    })
}
