//! Types of configuration values that users can write in several forms. The title of a type's schema describes its
//! values: it continues the sentence "The value must be".

use std::str::FromStr;
use std::time::Duration;

use brigade_core::Limit;
use brigade_core::permission::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::units;

/// Value for no limit.
const UNLIMITED: &str = "unlimited";

/// Highest price of a million tokens, in dollars. A price above it is a mistake.
const MAX_PRICE_USD: u64 = 1_000_000;
const MAX_TOKENS: u64 = 1_000_000_000;
const NANO_PER_DOLLAR: u64 = 1_000_000_000;

/// Duration: a sequence of numbers with units, or seconds alone.
const DURATION_PATTERN: &str = r"^\s*([0-9]+|([0-9]+(ms|s|m|h|d))+)\s*$";
/// Amount of dollars.
const DOLLARS_PATTERN: &str = r"^\s*\$?([0-9]+\.?[0-9]*|\.[0-9]+)\s*$";
/// Number with an optional suffix.
const COUNT_PATTERN: &str = r"^\s*([0-9_]+\.?[0-9_]*|\.[0-9_]+)[kKmM]?\s*$";
/// Size with an optional unit.
const BYTES_PATTERN: &str = r"^\s*[0-9]+\s*([KMGT]iB|[kMGT]?B)?\s*$";
/// Permission rule: a tool, and optionally its arguments.
const RULE_PATTERN: &str = r"^\s*[a-z0-9_-]+\*?(\([\s\S]+\))?\s*$";

/// Value in a form that its type does not have. The title of the type's schema describes the forms.
#[derive(Debug, thiserror::Error)]
#[error("invalid value")]
pub(super) struct InvalidValue;

/// Duration, or a number of seconds.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "Json", into = "String")]
#[schemars(inline, title = "a duration such as \"10m\"", extend("anyOf" = [
    { "type": "integer", "minimum": 1 },
    // The second pattern rejects a duration of 0.
    { "type": "string", "pattern": DURATION_PATTERN, "allOf": [{ "pattern": "[1-9]" }] },
]))]
pub(super) struct Time(pub(super) Duration);

impl TryFrom<Json> for Time {
    type Error = InvalidValue;

    fn try_from(value: Json) -> Result<Time, InvalidValue> {
        let text = match value {
            Json::String(text) => text,
            Json::Number(seconds) => seconds.to_string(),
            _ => return Err(InvalidValue),
        };
        units::parse_duration(&text).map(Time).map_err(|_| InvalidValue)
    }
}

impl From<Time> for String {
    fn from(Time(time): Time) -> String {
        units::format_duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Maximum number, or `unlimited`.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "Json", into = "Json")]
#[schemars(
    inline,
    title = "a whole number such as 500000 or \"500k\", or \"unlimited\"",
    extend("anyOf" = [
        { "type": "integer", "minimum": 0 },
        { "type": "string", "pattern": COUNT_PATTERN },
        { "const": UNLIMITED },
    ])
)]
pub(super) struct MaxCount(pub(super) Limit);

impl TryFrom<Json> for MaxCount {
    type Error = InvalidValue;

    fn try_from(value: Json) -> Result<MaxCount, InvalidValue> {
        let count = match &value {
            Json::String(word) if word == UNLIMITED => return Ok(MaxCount(Limit::Unlimited)),
            Json::String(text) => units::parse_count(text).ok(),
            value => value.as_u64(),
        };
        count.map(|most| MaxCount(Limit::AtMost(most))).ok_or(InvalidValue)
    }
}

impl From<MaxCount> for Json {
    fn from(MaxCount(limit): MaxCount) -> Json {
        match limit {
            Limit::AtMost(most) => most.into(),
            Limit::Unlimited => UNLIMITED.into(),
        }
    }
}

/// Number of bytes.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "Json", into = "String")]
#[schemars(inline, title = "a size such as \"4 GiB\" or \"512MB\"", extend("anyOf" = [
    { "type": "integer", "minimum": 0 },
    { "type": "string", "pattern": BYTES_PATTERN },
]))]
pub(super) struct ByteSize(pub(super) u64);

/// Units of sizes, largest first.
const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl TryFrom<Json> for ByteSize {
    type Error = InvalidValue;

    fn try_from(value: Json) -> Result<ByteSize, InvalidValue> {
        let text = match &value {
            Json::String(text) => text.trim(),
            value => return value.as_u64().map(ByteSize).ok_or(InvalidValue),
        };
        let unit = BYTE_UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let (number, unit) = unit.unwrap_or((text, 1));
        let number: u64 = number.trim().parse().map_err(|_| InvalidValue)?;
        number.checked_mul(unit).map(ByteSize).ok_or(InvalidValue)
    }
}

impl From<ByteSize> for String {
    fn from(ByteSize(bytes): ByteSize) -> String {
        let fits = |(_, unit): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*unit);
        match BYTE_UNITS.iter().filter(|(unit, _)| unit.len() != 2).find(fits) {
            Some((unit, size)) => format!("{} {unit}", bytes / size),
            None => format!("{bytes} B"),
        }
    }
}

/// Maximum cost in nano-dollars, or `unlimited`.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "Json", into = "Json")]
#[schemars(
    inline,
    title = "an amount in dollars such as 2.50, or \"unlimited\"",
    extend("anyOf" = [
        { "type": "number", "minimum": 0, "maximum": u64::MAX / NANO_PER_DOLLAR },
        { "type": "string", "pattern": DOLLARS_PATTERN },
        { "const": UNLIMITED },
    ])
)]
pub(super) struct MaxDollars(pub(super) Limit);

impl TryFrom<Json> for MaxDollars {
    type Error = InvalidValue;

    fn try_from(value: Json) -> Result<MaxDollars, InvalidValue> {
        match value.as_str() {
            Some(UNLIMITED) => Ok(MaxDollars(Limit::Unlimited)),
            _ => Ok(MaxDollars(Limit::AtMost(dollars(&value).ok_or(InvalidValue)?))),
        }
    }
}

impl From<MaxDollars> for Json {
    fn from(MaxDollars(limit): MaxDollars) -> Json {
        match limit {
            Limit::AtMost(nano) => units::exact_dollars(nano).into(),
            Limit::Unlimited => UNLIMITED.into(),
        }
    }
}

/// Price of a million tokens, in nano-dollars.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "Json")]
#[schemars(
    inline,
    title = "a price in dollars per million tokens such as 2.50, at most 1000000",
    extend("anyOf" = [
        { "type": "number", "minimum": 0, "maximum": MAX_PRICE_USD },
        { "type": "string", "pattern": DOLLARS_PATTERN },
    ])
)]
pub(super) struct Price(pub(super) u64);

impl TryFrom<Json> for Price {
    type Error = InvalidValue;

    fn try_from(value: Json) -> Result<Price, InvalidValue> {
        let nano = dollars(&value).filter(|nano| *nano <= MAX_PRICE_USD * NANO_PER_DOLLAR);
        nano.map(Price).ok_or(InvalidValue)
    }
}

/// Number of tokens.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "u64")]
#[schemars(
    inline,
    title = "a number of tokens from 1 to 1000000000",
    extend("minimum" = 1, "maximum" = MAX_TOKENS)
)]
pub(super) struct Tokens(pub(super) u64);

impl TryFrom<u64> for Tokens {
    type Error = InvalidValue;

    fn try_from(count: u64) -> Result<Tokens, InvalidValue> {
        (1..=MAX_TOKENS).contains(&count).then_some(Tokens(count)).ok_or(InvalidValue)
    }
}

/// Permission rules.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
#[schemars(inline, extend("items" = {
    "type": "string", "pattern": RULE_PATTERN, "title": "rules such as [\"shell(git status)\"]"
}))]
pub(super) struct Rules(pub(super) Vec<Rule>);

/// Problems of all invalid entries of a list.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidList(String);

impl InvalidList {
    /// The value is no list of strings.
    pub(super) fn wrong_type() -> InvalidList {
        InvalidList(InvalidValue.to_string())
    }

    /// Parses all entries.
    pub(super) fn collect<T: FromStr<Err: std::fmt::Display>>(
        texts: &[String],
    ) -> Result<Vec<T>, InvalidList> {
        let parsed: Vec<_> = texts.iter().map(|text| text.parse::<T>()).collect();
        let problems: Vec<String> =
            parsed.iter().filter_map(|entry| Some(entry.as_ref().err()?.to_string())).collect();
        match problems.is_empty() {
            true => Ok(parsed.into_iter().flatten().collect()),
            false => Err(InvalidList(problems.join("; "))),
        }
    }
}

impl TryFrom<Vec<String>> for Rules {
    type Error = InvalidList;

    fn try_from(texts: Vec<String>) -> Result<Rules, InvalidList> {
        InvalidList::collect(&texts).map(Rules)
    }
}

impl From<Rules> for Vec<String> {
    fn from(Rules(rules): Rules) -> Vec<String> {
        rules.into_iter().map(String::from).collect()
    }
}

/// Parses dollars as nano-dollars. A float is read as its shortest decimal form, which is what was written.
fn dollars(value: &Json) -> Option<u64> {
    match value {
        Json::String(text) => units::parse_dollars(text).ok(),
        value => units::parse_dollars(&value.as_f64()?.to_string()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dollars_keep_the_written_decimal() {
        assert_eq!(dollars(&json!(0.1)), Some(100_000_000));
        assert_eq!(dollars(&json!(0.000001)), Some(1_000));
        assert_eq!(dollars(&json!(18_000_000_000_u64)), Some(18_000_000_000_000_000_000));
    }
}
