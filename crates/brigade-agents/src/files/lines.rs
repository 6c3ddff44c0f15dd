//! Splits frontmatter line by line when it is almost YAML.
//!
//! A line begins a field only if it starts with a known key; any other line continues the previous field. This
//! reads common mistakes: unquoted colons, and dialogues and tags in a description.

use serde_json::Value;

use super::document::Field;
use super::keys;
use super::problem::DefinitionError;
use super::yaml;

/// Splits the text. The error is the problem of a field, or `None` if no field was found.
pub(super) fn split(text: &str, first_line: u32) -> Result<Vec<Field>, Option<DefinitionError>> {
    let mut found: Vec<(&str, u32, String)> = Vec::new();
    for (number, line) in (first_line..).zip(text.lines()) {
        let key = key_of(line);
        let twice = key.filter(|key| found.iter().any(|(other, ..)| other == key));
        if let Some(key) = twice.filter(|key| keys::is_authority_key(key)) {
            return Err(Some(DefinitionError::at(number, format!("`{key}` is defined twice"))));
        }
        match (key, found.last_mut()) {
            (Some(key), _) if twice.is_none() => found.push((key, number, line.to_owned())),
            (_, Some((_, _, text))) => {
                text.push('\n');
                text.push_str(line);
            }
            (_, None) => {}
        }
    }
    if found.is_empty() {
        return Err(None);
    }
    found.into_iter().map(|(key, line, text)| field(key, line, &text).map_err(Some)).collect()
}

/// Returns the known key that a line begins with.
fn key_of(line: &str) -> Option<&str> {
    let (key, rest) = line.split_once(':')?;
    let is_value = rest.is_empty() || rest.starts_with([' ', '\t']);
    (is_value && keys::is_markdown_key(key)).then_some(key)
}

/// Parses a field as YAML, or keeps it as plain text if that fails.
fn field(key: &str, line: u32, text: &str) -> Result<Field, DefinitionError> {
    let read = yaml::read(text).ok().and_then(|value| match value {
        Value::Object(mut map) if map.len() == 1 => map.remove(key),
        _ => None,
    });
    let value = match read {
        Some(value) => value,
        None => plain_value(key, line, text)?,
    };
    Ok(Field { key: key.to_owned(), line: Some(line), value })
}

fn plain_value(key: &str, line: u32, text: &str) -> Result<Value, DefinitionError> {
    let value = text.split_once(':').map_or("", |(_, value)| value).trim();
    if value.starts_with(['[', '{']) && !keys::is_prose(key) {
        return Err(DefinitionError::at(
            line,
            format!("the value of `{key}` is not a valid YAML list or mapping"),
        ));
    }
    let quoted = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    Ok(Value::String(value.trim().to_owned()))
}
