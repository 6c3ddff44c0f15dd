//! What a server said about its tools when they were approved, and how that differs from what it says now.

use std::collections::BTreeMap;
use std::fmt::Write;

use brigade_core::Hash;
use rmcp::model::Tool;
use serde_json::Value;

use crate::tool::Change;

/// How much of a difference a person is shown.
const MOST: usize = 16 << 10;

/// What was approved, and what the server says now.
pub(super) struct Book {
    approved: BTreeMap<String, Told>,
    /// None until the server said that something changed, or was started again.
    now: Option<BTreeMap<String, Told>>,
}

/// What a server says about a tool.
#[derive(Clone)]
struct Told {
    hash: Hash,
    text: String,
}

/// How a tool stands to what was approved.
pub(super) enum Standing {
    AsApproved,
    Changed(Change),
    Gone,
}

impl Book {
    /// These are approved.
    pub(super) fn new(tools: &[Tool]) -> Book {
        Book { approved: told(tools), now: None }
    }

    /// This is what there is now.
    pub(super) fn hear(&mut self, tools: &[Tool]) {
        self.now = Some(told(tools));
    }

    pub(super) fn standing(&self, tool: &str) -> Standing {
        let Some(now) = &self.now else { return Standing::AsApproved };
        let Some(now) = now.get(tool) else { return Standing::Gone };
        match self.approved.get(tool) {
            Some(approved) if approved.hash == now.hash => Standing::AsApproved,
            approved => {
                let before = approved.map_or("", |told| &told.text);
                Standing::Changed(Change { id: now.hash, what: difference(before, &now.text) })
            }
        }
    }

    /// A person wants the tool as it is now, if that is still what they were shown.
    pub(super) fn accept(&mut self, tool: &str, change: &Change) {
        let now = self.now.as_ref().and_then(|now| now.get(tool));
        if let Some(now) = now.filter(|now| now.hash == change.id) {
            self.approved.insert(tool.to_owned(), now.clone());
        }
    }
}

/// What tells definitions apart. Of tools that share a name no one can say which is meant, so that counts as well.
fn told(tools: &[Tool]) -> BTreeMap<String, Told> {
    let mut all: BTreeMap<String, Told> = BTreeMap::new();
    for tool in tools {
        let text = text(tool);
        let told = all
            .entry(tool.name.to_string())
            .or_insert_with(|| Told { hash: Hash::of(b"a tool"), text: String::new() });
        told.hash = told.hash.chain("definition", &[text.as_bytes()]);
        told.text.push_str(&text);
    }
    all
}

/// All that agents and people are told of a tool, and nothing that a terminal would obey.
fn text(tool: &Tool) -> String {
    let mut text = String::new();
    if let Some(title) = &tool.title {
        let _ = writeln!(text, "title: {}", visible(title));
    }
    if let Some(description) = &tool.description {
        let _ = writeln!(text, "description: {}", visible(description));
    }
    let schema = Value::Object(tool.input_schema.as_ref().clone());
    let schema = serde_json::to_string_pretty(&sorted(schema)).unwrap_or_default();
    let _ = writeln!(text, "arguments: {}", visible(&schema));
    if let Some(hints) = &tool.annotations {
        let hints = serde_json::to_string(hints).unwrap_or_default();
        let _ = writeln!(text, "hints: {}", visible(&hints));
    }
    text
}

/// The same with the keys of all objects in order: a server may write them in another one each time.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> =
                fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(sorted).collect()),
        plain => plain,
    }
}

/// Control characters are written out, except the ends of lines.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => shown.push('\n'),
            letter if letter.is_control() => shown.extend(letter.escape_default()),
            letter => shown.push(letter),
        }
    }
    shown
}

/// The lines that went and came, with a few around them.
fn difference(before: &str, now: &str) -> String {
    let mut shown = similar::TextDiff::from_lines(before, now).unified_diff().context_radius(2).to_string();
    if shown.len() > MOST {
        let all = shown.len();
        shown.truncate(shown.floor_char_boundary(MOST));
        let _ = write!(shown, "\n(… {} bytes left out …)", all - shown.len());
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools(description: &str) -> Vec<Tool> {
        vec![
            serde_json::from_value(json!({ "name": "t", "description": description, "inputSchema": {} }))
                .unwrap(),
        ]
    }

    fn change(book: &Book) -> Option<Change> {
        match book.standing("t") {
            Standing::Changed(change) => Some(change),
            Standing::AsApproved | Standing::Gone => None,
        }
    }

    #[test]
    fn a_change_is_shown_and_accepted_as_it_was_shown() {
        let mut book = Book::new(&tools("adds\nnumbers"));
        assert_eq!(change(&book), None);
        book.hear(&tools("adds\nnumbers\u{1b}[2J, and mails them"));
        let first = change(&book).unwrap();
        assert!(first.what.contains("-numbers\n"), "{}", first.what);
        assert!(first.what.contains("+numbers\\u{1b}[2J, and mails them\n"), "{}", first.what);
        book.hear(&tools("something else"));
        book.accept("t", &first);
        let second = change(&book).unwrap();
        assert_ne!(first.id, second.id);
        book.accept("t", &second);
        assert_eq!(change(&book), None);
        book.hear(&[]);
        assert!(matches!(book.standing("t"), Standing::Gone));
    }

    #[test]
    fn the_order_of_keys_is_no_change() {
        let tool = |schema: &str| {
            let text = format!(r#"[{{"name":"t","inputSchema":{schema}}}]"#);
            serde_json::from_str::<Vec<Tool>>(&text).unwrap()
        };
        let mut book =
            Book::new(&tool(r#"{"type":"object","properties":{"a":{"x":1,"y":[{"p":1,"q":2}]}}}"#));
        book.hear(&tool(r#"{"properties":{"a":{"y":[{"q":2,"p":1}],"x":1}},"type":"object"}"#));
        assert_eq!(change(&book), None);
        book.hear(&tool(r#"{"properties":{"a":{"y":[{"q":2,"p":2}],"x":1}},"type":"object"}"#));
        assert!(change(&book).is_some());
    }

    #[test]
    fn a_second_tool_of_the_same_name_is_a_change() {
        let mut book = Book::new(&tools("one"));
        book.hear(&[tools("one"), tools("one")].concat());
        assert!(change(&book).is_some());
    }

    #[test]
    fn a_long_difference_is_cut() {
        let mut book = Book::new(&tools("short"));
        book.hear(&tools(&"é\n".repeat(20_000)));
        assert!(change(&book).unwrap().what.ends_with("bytes left out …)"));
    }
}
