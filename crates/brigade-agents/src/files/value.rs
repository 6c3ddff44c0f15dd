//! Values as the various formats write them.

use serde_json::Value;

use super::problem::KeyError;

/// Maximum number of names in a list. There are far fewer tools.
const MAX_NAMES: usize = 1_000;

/// Reads text. Numbers and booleans count as text, and null is `None`.
pub(super) fn text(value: &Value) -> Result<Option<String>, KeyError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.trim().to_owned())),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(flag) => Ok(Some(flag.to_string())),
        Value::Array(_) | Value::Object(_) => Err("must be text".into()),
    }
}

/// Reads a boolean.
pub(super) fn flag(value: &Value) -> Result<bool, KeyError> {
    let word = match value {
        Value::Bool(flag) => return Ok(*flag),
        Value::String(word) => word.trim().to_lowercase(),
        _ => String::new(),
    };
    match word.as_str() {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

/// Reads a positive integer.
pub(super) fn count(value: &Value) -> Result<u64, KeyError> {
    let number = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().replace('_', "").parse().ok(),
        _ => None,
    };
    number.filter(|number| *number > 0).ok_or_else(|| "must be a whole number greater than 0".into())
}

/// Reads a positive integer that fits into 32 bits.
pub(super) fn small_count(value: &Value) -> Result<u32, KeyError> {
    u32::try_from(count(value)?).map_err(|_| "is larger than 4294967295".into())
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Reads a number from 0 to 2.
pub(super) fn temperature(value: &Value) -> Result<f64, KeyError> {
    number(value)
        .filter(|number| (0.0..=2.0).contains(number))
        .ok_or_else(|| "must be a number from 0 to 2".into())
}

/// Reads a duration in milliseconds: `90`, `90s`, `10m`, `2h`, `500ms`.
pub(super) fn duration(value: &Value) -> Result<u64, KeyError> {
    let wrong = || KeyError::from("must be a duration such as \"10m\"");
    let duration_text = text(value)?.ok_or_else(wrong)?;
    let digits = duration_text.len() - duration_text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = duration_text.split_at(digits);
    let unit = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|millis| *millis > 0).ok_or_else(wrong)
}

/// Reads a possibly fractional number of minutes, in milliseconds.
pub(super) fn minutes(value: &Value) -> Result<u64, KeyError> {
    // A year is longer than any round, and every smaller number of milliseconds is exact.
    number(value)
        .filter(|number| *number > 0.0 && *number <= 525_600.0)
        .map(|number| (number * 60_000.0).ceil() as u64)
        .ok_or_else(|| "must be a number of minutes greater than 0, at most 525600".into())
}

/// Reads names: a list of strings, or one string with commas. Commas within parentheses belong to a name.
pub(super) fn names(value: &Value) -> Result<Vec<String>, KeyError> {
    let wrong = || KeyError::from("must be a list of names, or names separated by commas");
    let mut names = Vec::new();
    match value {
        Value::String(text) => names = split(text).ok_or_else(wrong)?,
        Value::Array(items) => {
            for item in items {
                names.extend(split(item.as_str().ok_or_else(wrong)?).ok_or_else(wrong)?);
            }
        }
        _ => return Err(wrong()),
    }
    if names.len() > MAX_NAMES { Err(format!("has more than {MAX_NAMES} names").into()) } else { Ok(names) }
}

/// Splits at commas and line ends outside of parentheses; `None` if the parentheses do not match.
fn split(text: &str) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        match (c, names.last_mut()) {
            (',' | '\n', _) if depth == 0 => names.push(String::new()),
            (_, Some(name)) => name.push(c),
            (_, None) => {}
        }
    }
    let bare = |name: String| {
        let name = name.trim();
        let name = name.strip_prefix("- ").unwrap_or(name).trim();
        name.trim_matches(['"', '\'', '`']).trim().to_owned()
    };
    (depth == 0).then(|| names.into_iter().map(bare).filter(|name| !name.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_split_at_commas_outside_of_parentheses() {
        assert_eq!(names(&json!("Read, Agent(a, b) ,Bash")).unwrap(), ["Read", "Agent(a, b)", "Bash"]);
        assert_eq!(names(&json!(["Read", "Grep, Glob"])).unwrap(), ["Read", "Grep", "Glob"]);
        assert_eq!(names(&json!("- Read\n- Grep")).unwrap(), ["Read", "Grep"]);
        for broken in [json!("Agent(a"), json!("a)"), json!(3), json!([1]), json!({"a": 1}), json!(null)] {
            assert!(names(&broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn duration_parses_units() {
        assert_eq!(duration(&json!("10m")), Ok(600_000));
        assert_eq!(duration(&json!(90)), Ok(90_000));
        assert_eq!(minutes(&json!(1.5)), Ok(90_000));
        for broken in [json!("soon"), json!(0), json!(-1), json!("99999999999999999999h"), json!([1])] {
            assert!(duration(&broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(temperature(&json!(2)), Ok(2.0));
        for broken in [json!(2.1), json!(-0.1), json!("NaN"), json!("hot"), json!(null)] {
            assert!(temperature(&broken).is_err(), "{broken}");
        }
        assert!(
            count(&json!(0)).is_err()
                && count(&json!(1.5)).is_err()
                && small_count(&json!(1_u64 << 32)).is_err()
        );
    }
}
