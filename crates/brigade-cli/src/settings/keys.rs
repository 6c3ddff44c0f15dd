//! Configuration keys and the types of their values.

mod table;

use std::time::Duration;

use brigade_core::permission::Rule;
use toml::{Table, Value};

use super::did_you_mean::closest;
use super::layers::quoted;
use crate::units;

use ValueKind::{
    Bool, Count, Dollars, Models, Named, Number, OneOf, Positive, Price, Rules, Section, Text, TextOrTexts,
    Texts, Time, Tokens,
};
pub(super) use table::ROOT;

/// Value for no limit.
pub(super) const UNLIMITED: &str = "unlimited";

/// Highest price of a million tokens, in nano-dollars: a million dollars.
pub(super) const MAX_PRICE_NANO_USD: u64 = 1_000_000_000_000_000;
pub(super) const MAX_TOKENS: i64 = 1_000_000_000;

/// Type of a value.
#[derive(Debug)]
pub(super) enum ValueKind {
    Text,
    /// List of strings.
    Texts,
    /// String, or list of strings.
    TextOrTexts,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    Bool,
    /// Integer that fits into 32 bits.
    Number,
    /// Positive integer that fits into 32 bits.
    Positive,
    /// Integer such as `500000` or `500k`, or `unlimited`.
    Count,
    /// Dollars, or `unlimited`.
    Dollars,
    /// Dollars per million tokens.
    Price,
    /// Number of tokens.
    Tokens,
    Time,
    /// List of permission rules.
    Rules,
    /// Section with these keys.
    Section(&'static [KeySpec]),
    /// Section whose keys are names.
    Named(&'static ValueKind),
    /// Section whose keys are models.
    Models(&'static ValueKind),
}

/// Key: its name, type and description.
pub(super) type KeySpec = (&'static str, ValueKind, &'static str);

const MODES: [&str; 4] = ["plan", "ask", "edit", "auto"];

/// Checks a layer. The error names the key, but not its file.
pub(super) fn check(table: &Table) -> Result<(), String> {
    check_section(table, ROOT, &[])
}

fn check_section(table: &Table, known: &[KeySpec], path: &[&str]) -> Result<(), String> {
    for (key, value) in table {
        let inner = [path, &[key.as_str()]].concat();
        match known.iter().find(|(name, ..)| name == key) {
            Some((_, kind, _)) => check_value(value, kind, &inner)?,
            None => return Err(unknown(&inner, known)),
        }
    }
    Ok(())
}

fn unknown(path: &[&str], siblings: &[KeySpec]) -> String {
    let Some((key, section)) = path.split_last() else { return "unknown key".to_owned() };
    let dotted = dotted(path);
    let names = || siblings.iter().map(|(name, ..)| *name);
    let is_slip = |(distance, _): &(usize, &str)| *distance <= 2;
    // A part of a name, such as `url` of `base_url`, is nearer than a short name with other letters.
    let part = names().find(|name| name.split('_').any(|part| part == *key)).map(|name| (1, name));
    let nearest = closest(key, names());
    let near = nearest.filter(is_slip).or(part).or(nearest);
    let all = all_keys();
    let elsewhere = all.iter().find(|known| known.rsplit('.').next() == Some(key));
    let suggestion = match (near, elsewhere) {
        (Some((distance, name)), None) => (distance, self::dotted(&[section, &[name]].concat())),
        (Some((distance, name)), Some(_)) if distance <= 2 => {
            (distance, self::dotted(&[section, &[name]].concat()))
        }
        (_, Some(known)) => (0, known.clone()),
        (None, None) => return format!("unknown key `{dotted}`"),
    };
    format!("unknown key `{dotted}`. Did you mean `{}`?", suggestion.1)
}

/// All keys with fixed names.
fn all_keys() -> Vec<String> {
    fn collect(known: &[KeySpec], path: &str, keys: &mut Vec<String>) {
        for (name, kind, _) in known {
            let key = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
            match kind {
                Section(inner) => collect(inner, &key, keys),
                _ => keys.push(key),
            }
        }
    }
    let mut keys = Vec::new();
    collect(ROOT, "", &mut keys);
    keys
}

fn check_value(value: &Value, kind: &ValueKind, path: &[&str]) -> Result<(), String> {
    let wrong = |expected: &str| Err(format!("`{}` must be {expected}; got `{value}`", dotted(path)));
    let is_texts = || value.as_array().is_some_and(|items| items.iter().all(Value::is_str));
    match kind {
        Text if value.is_str() => Ok(()),
        Text => wrong("a string"),
        Texts if is_texts() => Ok(()),
        Texts => wrong("a list of strings"),
        TextOrTexts if value.is_str() || is_texts() => Ok(()),
        TextOrTexts => wrong("a string or a list of strings"),
        OneOf(words) if value.as_str().is_some_and(|text| words.contains(&text)) => Ok(()),
        OneOf(words) => wrong(&format!("one of {}", words.join(", "))),
        Bool if value.is_bool() => Ok(()),
        Bool => wrong("true or false"),
        Number if value.as_integer().is_some_and(|number| u32::try_from(number).is_ok()) => Ok(()),
        Number => wrong("a whole number from 0 to 4294967295"),
        Positive if value.as_integer().is_some_and(|number| (1..=u32::MAX.into()).contains(&number)) => {
            Ok(())
        }
        Positive => wrong("a whole number from 1 to 4294967295"),
        Count if count(value).is_ok() || is_unlimited(value) => Ok(()),
        Count => wrong("a whole number such as 500000 or \"500k\", or \"unlimited\""),
        Dollars if is_unlimited(value) || dollars(value).is_ok() => Ok(()),
        Dollars => wrong("an amount in dollars such as 2.50, or \"unlimited\""),
        Price if price(value).is_some() => Ok(()),
        Price => wrong("a price in dollars per million tokens such as 2.50, at most 1000000"),
        Tokens if value.as_integer().is_some_and(|number| (1..=MAX_TOKENS).contains(&number)) => Ok(()),
        Tokens => wrong("a number of tokens from 1 to 1000000000"),
        Time if duration(value).is_ok() => Ok(()),
        Time => wrong("a duration such as \"10m\""),
        Rules if is_texts() => {
            let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
            let errors: Vec<String> =
                texts.filter_map(|text| Some(text.parse::<Rule>().err()?.to_string())).collect();
            match errors.is_empty() {
                true => Ok(()),
                false => Err(format!("`{}`: {}", path.join("."), errors.join("; "))),
            }
        }
        Rules => wrong("a list of rules such as [\"shell(git status)\"]"),
        Section(known) => match value.as_table() {
            Some(table) => check_section(table, known, path),
            None => wrong("a section"),
        },
        Named(inner) => match value.as_table() {
            Some(table) => table.iter().try_for_each(|(name, value)| {
                let place = [path, &[name.as_str()]].concat();
                check_value(value, inner, &place)
            }),
            None => wrong("a section with named entries"),
        },
        Models(inner) => match value.as_table() {
            Some(table) => table.iter().try_for_each(|(name, value)| {
                let place = [path, &[name.as_str()]].concat();
                match name.split_once('/') {
                    Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                        check_value(value, inner, &place)
                    }
                    _ => Err(format!(
                        "`{}` does not name a model. Write PROVIDER/MODEL in quotes, as in `[prices.\"openai/gpt-4.1\"]`",
                        dotted(&place)
                    )),
                }
            }),
            None => wrong("a section with one entry per model, as in `[prices.\"openai/gpt-4.1\"]`"),
        },
    }
}

/// Dotted form of a path. Names are quoted if TOML requires it.
fn dotted(path: &[&str]) -> String {
    path.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(".")
}

fn is_unlimited(value: &Value) -> bool {
    value.as_str() == Some(UNLIMITED)
}

/// Parses a count.
pub(super) fn count(value: &Value) -> Result<u64, String> {
    match value {
        Value::String(text) => units::parse_count(text),
        Value::Integer(number) => {
            u64::try_from(*number).map_err(|_| format!("`{number}` must not be negative"))
        }
        other => Err(format!("`{other}` is not a whole number")),
    }
}

/// Parses dollars as nano-dollars. A float is read as its shortest decimal form, which is what was written.
pub(super) fn dollars(value: &Value) -> Result<u64, String> {
    match value {
        Value::String(text) => units::parse_dollars(text),
        Value::Integer(number) => units::parse_dollars(&number.to_string()),
        Value::Float(number) => units::parse_dollars(&number.to_string()),
        other => Err(format!("`{other}` is not an amount in dollars")),
    }
}

/// Parses the price of a million tokens as nano-dollars. A price above the maximum is a mistake.
pub(super) fn price(value: &Value) -> Option<u64> {
    dollars(value).ok().filter(|nano| *nano <= MAX_PRICE_NANO_USD)
}

/// Parses a duration, or a number of seconds.
pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    match value {
        Value::String(text) => units::parse_duration(text),
        Value::Integer(number) => units::parse_duration(&number.to_string()),
        other => Err(format!("`{other}` is not a duration")),
    }
}

/// Type of the value at a path, if the path is known.
pub(super) fn kind(path: &[String]) -> Option<&'static ValueKind> {
    let (first, rest) = path.split_first()?;
    let mut kind = &ROOT.iter().find(|(name, ..)| name == first)?.1;
    for key in rest {
        kind = match kind {
            Section(known) => &known.iter().find(|(name, ..)| name == key)?.1,
            Named(inner) | Models(inner) => inner,
            _ => return None,
        };
    }
    Some(kind)
}

/// Whether a key differs from a known key of its section by one edit.
pub(super) fn is_typo(path: &[&str]) -> bool {
    let Some((key, section)) = path.split_last() else { return false };
    let section: Vec<String> = section.iter().map(|part| (*part).to_owned()).collect();
    let Some(Section(known)) = kind(&section) else { return false };
    closest(key, known.iter().map(|(name, ..)| *name)).is_some_and(|(distance, _)| distance == 1)
}

/// Restores the case of known keys in a path from the environment, which has lost it.
pub(super) fn restore_case(path: &[String]) -> Vec<String> {
    let mut known: Option<&[KeySpec]> = Some(ROOT);
    let mut names: Option<&ValueKind> = None;
    let mut spelled = Vec::new();
    for part in path {
        let lower = part.to_lowercase();
        let found = known.and_then(|known| known.iter().find(|(name, ..)| name.to_lowercase() == lower));
        let kind = match (found, names) {
            (Some((name, kind, _)), _) => {
                spelled.push((*name).to_owned());
                Some(kind)
            }
            (None, inner) => {
                spelled.push(lower);
                inner
            }
        };
        known = match kind {
            Some(Section(inner)) => Some(inner),
            _ => None,
        };
        names = match kind {
            Some(Named(inner) | Models(inner)) => Some(inner),
            _ => None,
        };
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        check(&toml::from_str(text).unwrap()).unwrap_err()
    }

    /// Every case with the problem that is found in it.
    fn problems(cases: &[&str]) -> String {
        cases.iter().map(|case| format!("{case}\n  {}\n", problem(case))).collect()
    }

    #[test]
    fn unknown_keys_name_the_nearest() {
        insta::assert_snapshot!(problems(&[
            "swarm.max_dept = 2",
            "mdoel = 'x'",
            "max_concurrent = 2",
            "swarm.roles.a.toosl = []",
            "providers.a.url = 'x'",
            "prices.\"a/b.c\".inptu = 1",
        ]));
    }

    #[test]
    fn wrong_types_are_named() {
        insta::assert_snapshot!(problems(&[
            "swarm.enabled = 'yes'",
            "limits.lead_turns = -1",
            "permissions.mode = 'yolo'",
            "permissions.deny = ['shell(']",
            "permissions.allow = ['Bash(npm test:*)', 'shell(ls)', 'Read(a)']",
            "budget.usd = 'much'",
            "swarm.roles = 3",
            "prices = 3",
            "prices.x.input = 1",
            "prices.'/x'.input = 1",
            "prices.'x/'.input = 1",
        ]));
    }

    #[test]
    fn values_out_of_range_are_named() {
        for (key, values) in [
            ("providers.a.concurrency", &["0", "-1", "1.5", "'many'", "4294967296"][..]),
            ("providers.a.idle_timeout", &["0", "-1", "1.5", "'0s'", "'soon'", "true"]),
            ("prices.\"a/b.c\".input", &["-1", "nan", "inf", "'dear'", "1e7", "true", "0.0000000001", "[]"]),
            ("prices.\"a/b.c\".max_output", &["0", "-5", "1.5", "'all'", "9999999999"]),
        ] {
            let cases: Vec<String> = values.iter().map(|value| format!("{key} = {value}")).collect();
            let name = key.rsplit('.').next().unwrap();
            insta::assert_snapshot!(name, problems(&cases.iter().map(String::as_str).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn modes_match_the_library() {
        assert!(MODES.iter().all(|mode| mode.parse::<brigade_core::permission::Mode>().is_ok()));
    }

    #[test]
    fn dollars_keep_the_written_decimal() {
        let table: Table = toml::from_str("usd = 0.1").unwrap();
        assert_eq!(dollars(&table["usd"]), Ok(100_000_000));
    }

    #[test]
    fn mixed_case_keys_are_found_from_the_environment() {
        let path = |text: &str| text.split("__").map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(restore_case(&path("MCPSERVERS__FILES__COMMAND")), ["mcpServers", "files", "command"]);
        assert_eq!(restore_case(&path("SWARM__MAX_DEPTH")), ["swarm", "max_depth"]);
    }
}
