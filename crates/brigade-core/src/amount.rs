//! Amounts of tokens and dollars as users write them: `500k`, `2M`, `$2.50`.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Nano-dollars in a dollar.
pub(crate) const NANO: u64 = 1_000_000_000;

/// Reason why a text or value is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAmount(String);

/// Parses a number of tokens or of other units: `500000`, `500_000`, `500k`, `1.5M`.
pub fn parse_count(text: &str) -> Result<u64, InvalidAmount> {
    let refuse = || InvalidAmount(format!("'{text}' is not a whole number such as 500000, 500k or 2M"));
    let plain = text.trim().replace('_', "");
    let (number, digits) = match plain.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&plain[..at], 3),
        Some((at, 'm' | 'M')) => (&plain[..at], 6),
        _ => (plain.as_str(), 0),
    };
    decimal(number, digits).ok_or_else(refuse)
}

/// Parses an amount of dollars as nano-dollars, exactly: `2`, `2.50`, `$2`.
pub fn parse_dollars(text: &str) -> Result<u64, InvalidAmount> {
    let number = text.trim().strip_prefix('$').unwrap_or(text.trim());
    if number.split_once('.').is_some_and(|(_, fraction)| fraction.trim_end_matches('0').len() > 9) {
        return Err(InvalidAmount(format!("'{text}' has more than nine decimal places")));
    }
    let refuse = || format!("'{text}' is not an amount in dollars. Use a number such as 2 or 0.50");
    decimal(number, 9).ok_or_else(|| InvalidAmount(refuse()))
}

/// Returns a decimal number times ten to the power of `digits`, if the result is an integer.
fn decimal(number: &str, digits: usize) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > digits {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let scale = 10_u64.checked_pow(u32::try_from(digits).ok()?)?;
    let fraction: u64 = if digits == 0 { 0 } else { format!("{fraction:0<digits$}").parse().ok()? };
    whole.checked_mul(scale)?.checked_add(fraction)
}

/// Reads a positive number of tokens from JSON, TOML or YAML: a number, or text with a suffix.
pub fn tokens_from_value(value: &Value) -> Result<u64, InvalidAmount> {
    let tokens = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => Some(parse_count(text)?),
        _ => None,
    };
    tokens
        .filter(|tokens| *tokens > 0)
        .ok_or_else(|| InvalidAmount("expected a number of tokens such as 50000 or \"50k\"".to_owned()))
}

/// Reads a positive amount of dollars from JSON, TOML or YAML as nano-dollars: a number, or text. A float is read
/// as its shortest decimal form, which is the one that was written.
pub fn dollars_from_value(value: &Value) -> Result<u64, InvalidAmount> {
    let nano = match value {
        Value::Number(number) => Some(parse_dollars(&number.to_string())?),
        Value::String(text) => Some(parse_dollars(text)?),
        _ => None,
    };
    nano.filter(|nano| *nano > 0)
        .ok_or_else(|| InvalidAmount("expected an amount in dollars such as 0.50".to_owned()))
}

/// Converts nano-dollars to dollars, as a number for JSON.
pub fn dollars_as_f64(nano: u64) -> f64 {
    nano as f64 / NANO as f64
}

/// Formats nano-dollars the way users write them: exact, without trailing zeros.
pub fn exact_dollars(nano: u64) -> String {
    let fraction = format!("{:09}", nano % NANO);
    match fraction.trim_end_matches('0') {
        "" => (nano / NANO).to_string(),
        digits => format!("{}.{digits}", nano / NANO),
    }
}

pub(crate) fn deserialize_tokens<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    value.map(|value| tokens_from_value(&value)).transpose().map_err(serde::de::Error::custom)
}

pub(crate) fn deserialize_dollars<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    value.map(|value| dollars_from_value(&value)).transpose().map_err(serde::de::Error::custom)
}

/// Schema of a positive number of tokens. Its title continues the sentence "The value must be".
#[cfg(feature = "schemars")]
pub(crate) fn tokens_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "title": "a number of tokens such as 50000 or \"50k\"",
        "anyOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "string", "pattern": r"^\s*([0-9_]+\.?[0-9_]*|\.[0-9_]+)[kKmM]?\s*$" },
        ],
    })
}

/// Schema of a positive amount of dollars. Its title continues the sentence "The value must be".
#[cfg(feature = "schemars")]
pub(crate) fn dollars_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "title": "an amount in dollars such as 2.50",
        "anyOf": [
            { "type": "number", "exclusiveMinimum": 0 },
            { "type": "string", "pattern": r"^\s*\$?([0-9]+\.?[0-9]*|\.[0-9]+)\s*$" },
        ],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parse_count_accepts_suffixes() {
        let read = |text| parse_count(text).ok();
        assert_eq!(
            [read("500k"), read("2M"), read("1.5M"), read(" 500_000 ")].map(Option::unwrap),
            [500_000, 2_000_000, 1_500_000, 500_000]
        );
        for wrong in
            ["", "k", "-1", "1.5", "1.2345k", "2G", "1e6", "99999999999999999999", "18446744073709551615k"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parse_dollars_is_exact() {
        assert_eq!(parse_dollars("$2"), Ok(2_000_000_000));
        assert_eq!(parse_dollars("0.10"), Ok(100_000_000));
        assert_eq!(parse_dollars(".5"), Ok(500_000_000));
        assert_eq!(exact_dollars(2_500_000_000), "2.5");
        for wrong in ["", "$", "-1", "1e3", "2 dollars", "0.0000000001", "99999999999"] {
            assert!(parse_dollars(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parse_dollars_accepts_at_most_nine_decimal_places() {
        assert_eq!(parse_dollars("0.000000001"), Ok(1));
        assert_eq!(parse_dollars("1.0000000010"), Ok(1_000_000_001), "a zero at the end is no decimal place");
        assert_eq!(parse_dollars(" $2.50 "), Ok(2_500_000_000));
        assert_eq!(
            parse_dollars("0.0000000001").unwrap_err().to_string(),
            "'0.0000000001' has more than nine decimal places"
        );
        assert!(parse_dollars("two").unwrap_err().to_string().contains("is not an amount in dollars"));
    }

    #[test]
    fn parse_count_accepts_a_fraction_only_if_the_result_is_whole() {
        assert_eq!((parse_count(".5k"), parse_count("2.k"), parse_count("1.0")), (Ok(500), Ok(2_000), Ok(1)));
        assert_eq!((parse_count("1.001K"), parse_count("0.000001m")), (Ok(1_001), Ok(1)));
        assert_eq!(parse_count("18446744073709551615"), Ok(u64::MAX));
        for wrong in [".", "1.k5", "x.5k", "1.xk", "18446744073709551616"] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dollars_are_written_without_trailing_zeros() {
        let written = [0, 1, 500_000_000, 1_000_000_000, 12_340_000_000].map(exact_dollars);
        assert_eq!(written, ["0", "0.000000001", "0.5", "1", "12.34"]);
        assert_eq!([0, 250_000_000, 3_000_000_000].map(dollars_as_f64), [0.0, 0.25, 3.0]);
    }

    #[test]
    fn amounts_in_a_document_may_be_absent() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Amounts {
            #[serde(default, deserialize_with = "deserialize_tokens")]
            tokens: Option<u64>,
            #[serde(default, deserialize_with = "deserialize_dollars")]
            usd: Option<u64>,
        }
        let read = |value| serde_json::from_value::<Amounts>(value).map_err(|error| error.to_string());
        let none = Amounts { tokens: None, usd: None };
        assert_eq!(read(json!({})), Ok(none));
        assert_eq!(read(json!({ "tokens": null, "usd": null })), Ok(Amounts { tokens: None, usd: None }));
        let both = Amounts { tokens: Some(50_000), usd: Some(250_000_000) };
        assert_eq!(read(json!({ "tokens": "50k", "usd": 0.25 })), Ok(both));
        assert!(read(json!({ "tokens": 0 })).unwrap_err().contains("expected a number of tokens"));
        assert!(read(json!({ "usd": true })).unwrap_err().contains("expected an amount in dollars"));
    }

    #[test]
    fn values_may_be_numbers_or_strings() {
        assert_eq!(
            (tokens_from_value(&json!(50_000)), tokens_from_value(&json!("50k"))),
            (Ok(50_000), Ok(50_000))
        );
        assert_eq!(
            (dollars_from_value(&json!(0.1)), dollars_from_value(&json!("$0.10"))),
            (Ok(100_000_000), Ok(100_000_000))
        );
        for wrong in [json!(0), json!(-1), json!(1.5), json!(true), json!([]), json!("many")] {
            assert!(tokens_from_value(&wrong).is_err(), "{wrong}");
        }
        assert!(dollars_from_value(&json!(0)).is_err() && dollars_from_value(&json!("0.00")).is_err());
        for wrong in [json!(0), json!(-1), json!(true), json!("much"), json!(1e300)] {
            assert!(dollars_from_value(&wrong).is_err(), "{wrong}");
        }
    }

    #[cfg(feature = "schemars")]
    #[test]
    fn schemas_describe_what_is_accepted() {
        let mut generator = schemars::SchemaGenerator::default();
        let tokens = tokens_schema(&mut generator);
        assert_eq!(tokens.get("title"), Some(&json!("a number of tokens such as 50000 or \"50k\"")));
        assert_eq!(tokens.pointer("/anyOf/0"), Some(&json!({ "type": "integer", "minimum": 1 })));
        let dollars = dollars_schema(&mut generator);
        assert_eq!(dollars.get("title"), Some(&json!("an amount in dollars such as 2.50")));
        assert_eq!(dollars.pointer("/anyOf/0"), Some(&json!({ "type": "number", "exclusiveMinimum": 0 })));
    }
}
