//! Checks and lookups of configuration keys. The serde structs decide what is valid; their schema explains why a layer
//! is not.

use serde_json::Value as Json;
use serde_path_to_error::Segment;
use toml::{Table, Value};

use super::did_you_mean::closest;
use super::layers::quoted;
use super::raw::RawConfig;
use super::schema::KEYS;

/// First words of the messages that serde generates. The schema describes the expected value better.
const SERDE_MESSAGES: [&str; 3] = ["invalid ", "unknown variant ", "data did not match "];

/// Problem of a layer. It names the key, but not its file.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    /// No key has this name.
    #[error("unknown key `{key}`{}", nearest.as_ref().map_or(String::new(), |near| format!(". Did you mean `{near}`?")))]
    Unknown { key: String, nearest: Option<String> },
    /// The value has another type, or is out of range.
    #[error("`{key}` must be {expected}; got `{value}`")]
    WrongValue { key: String, expected: String, value: Value },
    /// The value is not accepted, for this reason.
    #[error("`{key}`: {reason}")]
    Refused { key: String, reason: String },
}

/// Checks a layer.
pub(super) fn check(table: &Table) -> Result<(), KeyError> {
    let Err(error) = serde_path_to_error::deserialize::<_, RawConfig>(table.clone()) else {
        return check_shape(table, &KEYS, &[]);
    };
    let (mut path, mut schema, mut value) = (Vec::new(), &*KEYS, Value::Table(table.clone()));
    for segment in error.path() {
        let Segment::Map { key } = segment else { break };
        path.push(key.as_str());
        schema = match child(schema, key) {
            Some(inner) => inner,
            None => return Err(unknown(&path, schema)),
        };
        value = value.get(key).cloned().unwrap_or(value);
    }
    let (key, reason) = (dotted(&path), error.inner().message().to_owned());
    let is_generated = SERDE_MESSAGES.iter().any(|start| reason.starts_with(start));
    Err(match is_generated || schema.get("title").is_some() {
        true => KeyError::WrongValue { key, expected: expected(schema), value },
        false => KeyError::Refused { key, reason },
    })
}

/// Rejects lists and tables in the place of another kind of value. Serde also reads a struct from a list of its fields,
/// and a word from a table, but layers are merged by their tables: such a value would replace the rules of the user and
/// withstand later layers.
fn check_shape(table: &Table, section: &Json, path: &[&str]) -> Result<(), KeyError> {
    for (key, value) in table {
        // Keys of other programs are not in the schema.
        let Some(schema) = child(section, key) else { continue };
        let path = [path, &[key.as_str()]].concat();
        let accepts = |kind: &str| {
            let mut forms = schema["anyOf"].as_array().into_iter().flatten().chain([schema]);
            forms.any(|form| form["type"] == kind)
        };
        let is_accepted = match value {
            Value::Table(inner) if accepts("object") => {
                check_shape(inner, schema, &path)?;
                true
            }
            Value::Table(_) => false,
            Value::Array(_) => accepts("array"),
            _ => !accepts("object"),
        };
        if !is_accepted {
            return Err(KeyError::WrongValue {
                key: dotted(&path),
                expected: expected(schema),
                value: value.clone(),
            });
        }
    }
    Ok(())
}

fn unknown(path: &[&str], section: &Json) -> KeyError {
    let Some((key, parents)) = path.split_last() else {
        return KeyError::Unknown { key: String::new(), nearest: None };
    };
    let is_slip = |(distance, _): &(usize, &str)| *distance <= 2;
    // A part of a name, such as `url` of `base_url`, is nearer than a short name with other letters.
    let part = names(section).find(|name| name.split('_').any(|part| part == *key)).map(|name| (1, name));
    let nearest = closest(key, names(section));
    let near = nearest.filter(is_slip).or(part).or(nearest);
    let elsewhere = fixed_keys().into_iter().find(|known| known.rsplit('.').next() == Some(key));
    let sibling = |(_, name): (usize, &str)| dotted(&[parents, &[name]].concat());
    let nearest = near.filter(is_slip).map(sibling).or(elsewhere).or_else(|| near.map(sibling));
    KeyError::Unknown { key: dotted(path), nearest }
}

/// Names of the keys of a section.
fn names(section: &Json) -> impl Iterator<Item = &str> {
    section["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str())
}

/// All keys that are not in a named entry.
fn fixed_keys() -> Vec<String> {
    fn collect(section: &Json, path: &[&str], keys: &mut Vec<String>) {
        for name in names(section) {
            let (property, path) = (&section["properties"][name], [path, &[name]].concat());
            match property.get("properties") {
                Some(_) => collect(property, &path, keys),
                None => keys.push(path.join(".")),
            }
        }
    }
    let mut keys = Vec::new();
    collect(&KEYS, &[], &mut keys);
    keys
}

/// Description of the values that a schema accepts, for the sentence "The value must be".
pub(super) fn expected(schema: &Json) -> String {
    let words = words(schema);
    if let Some(title) = schema["title"].as_str() {
        return title.to_owned();
    }
    match schema["type"].as_str() {
        _ if !words.is_empty() => format!("one of {}", words.join(", ")),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => match schema.get("maximum") {
            Some(most) => format!("a whole number from {} to {most}", schema["minimum"]),
            None => format!("a whole number of at least {}", schema["minimum"]),
        },
        Some("array") => match (schema["items"]["title"].as_str(), self::words(&schema["items"])) {
            (Some(title), _) => format!("a list of {title}"),
            (None, words) if !words.is_empty() => format!("a list of {}", words.join(", ")),
            _ => "a list of strings".to_owned(),
        },
        Some("object") if schema.get("properties").is_some() => "a section".to_owned(),
        Some("object") => "a section with named entries".to_owned(),
        Some(_) => "a string".to_owned(),
        None => {
            let forms: Vec<String> = schema["anyOf"].as_array().into_iter().flatten().map(expected).collect();
            forms.join(" or ")
        }
    }
}

/// Words that a schema accepts, if it accepts no other text.
pub(super) fn words(schema: &Json) -> Vec<&str> {
    let plain = schema["enum"].as_array().into_iter().flatten();
    let described = schema["oneOf"].as_array().into_iter().flatten().map(|word| &word["const"]);
    plain.chain(described).filter_map(Json::as_str).collect()
}

/// Dotted form of a path. Names are quoted if TOML requires it.
fn dotted(path: &[&str]) -> String {
    path.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(".")
}

/// Schema of a key in a section, or of a named entry.
fn child<'s>(section: &'s Json, key: &str) -> Option<&'s Json> {
    let entry = section.get("additionalProperties").filter(|entry| entry.is_object());
    section["properties"].get(key).or(entry)
}

/// Schema of the value at a path, if the path is known.
pub(super) fn find(path: &[impl AsRef<str>]) -> Option<&'static Json> {
    path.iter().try_fold(&*KEYS, |section, key| child(section, key.as_ref()))
}

/// Whether the value at a path is plain text or one of several words.
pub(super) fn is_text(path: &[String]) -> bool {
    find(path).is_some_and(|schema| schema["type"] == "string" || !words(schema).is_empty())
}

/// Whether a key differs from a known key of its section by one edit.
pub(super) fn is_typo(section: &[&str], key: &str) -> bool {
    let nearest = find(section).and_then(|section| closest(key, names(section)));
    nearest.is_some_and(|(distance, _)| distance == 1)
}

/// Restores the case of known keys in a path from the environment, which has lost it.
pub(super) fn restore_case(path: &[String]) -> Vec<String> {
    let mut section = Some(&*KEYS);
    let restore = |part: &String| {
        let lower = part.to_lowercase();
        let known = section.and_then(|section| names(section).find(|name| name.to_lowercase() == lower));
        let name = known.map_or(lower.clone(), str::to_owned);
        section = section.and_then(|section| child(section, &name));
        name
    };
    path.iter().map(restore).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        check(&toml::from_str(text).unwrap()).unwrap_err().to_string()
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

    /// Every key with its schema; `a/b` is the name of every named entry.
    fn all_keys(section: &'static Json, path: &[String], keys: &mut Vec<(Vec<String>, &'static Json)>) {
        let entry = section.get("additionalProperties").filter(|entry| entry.is_object());
        let entry = entry.map(|schema| ("a/b", schema));
        let properties = section["properties"].as_object().into_iter().flatten();
        for (name, schema) in properties.map(|(name, schema)| (name.as_str(), schema)).chain(entry) {
            let path = [path, &[name.to_owned()]].concat();
            all_keys(schema, &path, keys);
            keys.push((path, schema));
        }
    }

    #[test]
    fn lists_and_tables_take_the_place_of_no_other_value() {
        let mut keys = Vec::new();
        all_keys(&KEYS, &[], &mut keys);
        let nested = |path: &[String], value: Value| {
            let value = path
                .iter()
                .rev()
                .fold(value, |value, key| Value::Table(Table::from_iter([(key.clone(), value)])));
            check(value.as_table().unwrap())
        };
        let mut sections = 0;
        for (path, schema) in &keys {
            let empty_list = nested(path, Value::Array(Vec::new()));
            let accepts_lists = expected(schema).contains("list");
            assert_eq!(empty_list.is_ok(), accepts_lists, "{path:?} = []: {empty_list:?}");
            if schema["type"] == "object" {
                sections += 1;
                continue;
            }
            let word = words(schema).first().map_or("x", |word| word).to_owned();
            for table in [Table::new(), Table::from_iter([(word, Value::Table(Table::new()))])] {
                assert!(nested(path, Value::Table(table.clone())).is_err(), "{path:?} = {table}");
            }
        }
        assert!(sections > 15 && keys.len() > 80, "{sections} of {}", keys.len());
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
    fn mixed_case_keys_are_found_from_the_environment() {
        let path = |text: &str| text.split("__").map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(restore_case(&path("MCPSERVERS__FILES__COMMAND")), ["mcpServers", "files", "command"]);
        assert_eq!(restore_case(&path("SWARM__MAX_DEPTH")), ["swarm", "max_depth"]);
    }
}
