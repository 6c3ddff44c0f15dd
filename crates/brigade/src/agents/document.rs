//! Splits the text of a definition into keys and a body, for every syntax.

use std::collections::HashMap;

use brigade_core::json;
use serde_json::{Map, Value};

use super::format::Syntax;
use super::problem::DefinitionError;
use super::{lines, yaml};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) line: Option<u32>,
    pub(super) value: Value,
}

/// Parsed file.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) fields: Vec<Field>,
    /// Text below the frontmatter, trimmed.
    pub(super) body: String,
    /// Reason why the keys were split line by line, if they were.
    pub(super) repaired: Option<String>,
}

/// Part of a file that contains the keys.
pub(super) struct Header<'a> {
    pub(super) text: std::borrow::Cow<'a, str>,
    /// Line number in the file of the header's first line.
    pub(super) first_line: u32,
    pub(super) body: String,
}

impl Document {
    pub(super) fn parse(head: Header<'_>, text: Syntax) -> Result<Document, DefinitionError> {
        let value: Value = match text {
            Syntax::Markdown => return markdown(head),
            Syntax::Yaml => yaml::parse(&head.text)?,
            Syntax::Toml => toml::from_str(&head.text).map_err(|error| {
                let at = error.span().map(|span| line_at(&head.text, span.start));
                DefinitionError { line: at, cause: format!("is not valid TOML: {}", error.message()) }
            })?,
            Syntax::Json => json::parse(&head.text).map_err(|error| {
                let line = u32::try_from(error.line()).ok().filter(|line| *line > 0);
                DefinitionError { line, cause: format!("is not valid JSON: {error}") }
            })?,
        };
        Ok(Document { fields: fields(value, &head)?, ..Document::default() })
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.fields.iter().find(|field| field.key == key).map(|field| &field.value)
    }
}

impl Header<'_> {
    /// Finds the header: the whole file, or the frontmatter of Markdown.
    pub(super) fn of(text: &str, syntax: Syntax) -> Result<Header<'_>, DefinitionError> {
        match syntax {
            Syntax::Markdown => frontmatter(text),
            Syntax::Toml | Syntax::Yaml | Syntax::Json => {
                Ok(Header { text: text.into(), first_line: 1, body: String::new() })
            }
        }
    }
}

/// Reads the keys as YAML, or line by line if they are not valid YAML.
fn markdown(mut head: Header<'_>) -> Result<Document, DefinitionError> {
    let below = head.first_line.saturating_sub(1);
    let shift = |fault: DefinitionError| DefinitionError {
        line: fault.line.map(|line| line.saturating_add(below)),
        ..fault
    };
    let body = std::mem::take(&mut head.body);
    match yaml::read(&head.text) {
        Ok(value) => Ok(Document { fields: fields(value, &head)?, body, repaired: None }),
        Err(yaml::Error::Bomb(fault)) => Err(shift(fault)),
        Err(yaml::Error::Invalid(fault)) => {
            let fault = shift(fault);
            let fields =
                lines::split(&head.text, head.first_line).map_err(|cause| cause.unwrap_or(fault.clone()))?;
            let place = fault.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            Ok(Document { fields, body, repaired: Some(format!("{place}{}", fault.cause)) })
        }
    }
}

fn fields(value: Value, head: &Header<'_>) -> Result<Vec<Field>, DefinitionError> {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        Value::Array(_) => {
            return Err(DefinitionError::at(
                head.first_line,
                "is a list of remote agents, which is not supported. Define one agent with keys such as `name: …`.",
            ));
        }
        _ => return Err(DefinitionError::at(head.first_line, "has no keys. Write them as `name: …`.")),
    };
    let at = key_lines(head);
    let field = |(key, value): (String, Value)| Field { line: at.get(key.as_str()).copied(), key, value };
    let mut fields: Vec<Field> = map.into_iter().map(field).collect();
    fields.sort_by_key(|field| field.line);
    Ok(fields)
}

/// Maps each key to the first line that contains it.
fn key_lines<'a>(head: &'a Header<'_>) -> HashMap<&'a str, u32> {
    let mut found = HashMap::new();
    for (number, line) in (head.first_line..).zip(head.text.lines()) {
        let line = line.trim_start_matches([' ', '\t', '[', '{', ',']);
        let key = match line.chars().next() {
            Some(quote @ ('"' | '\'')) => line[1..].split(quote).next(),
            _ => line.split([':', '=', ']', '.']).next().map(str::trim_end),
        };
        if let Some(key) = key.filter(|key| !key.is_empty()) {
            found.entry(key).or_insert(number);
        }
    }
    found
}

fn line_at(text: &str, offset: usize) -> u32 {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    u32::try_from(before.iter().filter(|byte| **byte == b'\n').count() + 1).unwrap_or(u32::MAX)
}

/// Splits Markdown at its frontmatter, which may be indented as a whole.
fn frontmatter(text: &str) -> Result<Header<'_>, DefinitionError> {
    let none = || {
        DefinitionError::at(
            1,
            "has no frontmatter. Begin the file with a `---` line, the keys and another `---` line.",
        )
    };
    let all: Vec<&str> = text.lines().collect();
    let opening = all.iter().position(|line| !line.trim().is_empty()).ok_or_else(none)?;
    if all[opening].trim() != "---" {
        return Err(none());
    }
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let outer = indent(all[opening]);
    let inside = &all[opening + 1..];
    let is_closing = |line: &&str| matches!(line.trim(), "---" | "...") && indent(line) <= outer;
    let opened = u32::try_from(opening).unwrap_or(u32::MAX - 2).saturating_add(1);
    let Some(closing) = inside.iter().position(is_closing) else {
        return Err(DefinitionError::at(opened, "the frontmatter is not closed. End it with a `---` line."));
    };
    let keys = &inside[..closing];
    let common =
        keys.iter().filter(|line| !line.trim().is_empty()).map(|line| indent(line)).min().unwrap_or(0);
    let text = dedent(keys, common);
    let body = dedent(&inside[closing + 1..], outer);
    Ok(Header { text: text.into(), first_line: opened.saturating_add(1), body: body.trim().to_owned() })
}

/// Removes up to this many columns of indentation from each line.
fn dedent(lines: &[&str], columns: usize) -> String {
    let mut text = String::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
    for line in lines {
        let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
        text.push_str(&line[columns.min(blanks)..]);
        text.push('\n');
    }
    text
}
