//! What a server said about its tools when they were approved, and how that differs from what it says now.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use brigade_core::Hash;
use rmcp::model::Tool;
use serde_json::Value;

use super::connect::short;
use crate::tool::Change;

/// The most bytes of all that is said about a tool.
const MOST_BYTES: usize = 32 << 10;

/// What was approved, and what the server says now.
pub(super) struct Book {
    approved: Heard,
    /// None until the server said that something changed, or was started again.
    now: Option<Heard>,
}

/// What a server says about its tools, or why one of them cannot be used.
pub(super) struct Heard(BTreeMap<String, Result<Told, String>>);

/// What a server says about a tool.
#[derive(Clone)]
struct Told {
    hash: Hash,
    text: Arc<str>,
}

/// How a tool stands to what was approved.
pub(super) enum Standing {
    AsApproved,
    Changed(Change),
    /// It cannot be used any more; why.
    Gone(String),
}

impl Book {
    /// These are approved.
    pub(super) fn new(approved: Heard) -> Book {
        Book { approved, now: None }
    }

    /// This is what there is now.
    pub(super) fn hear(&mut self, now: Heard) {
        self.now = Some(now);
    }

    pub(super) fn standing(&self, tool: &str) -> Standing {
        let Some(now) = &self.now else { return Standing::AsApproved };
        let now = match now.0.get(tool) {
            Some(Ok(now)) => now,
            Some(Err(why)) => return Standing::Gone(why.clone()),
            None => return Standing::Gone(format!("it has no tool '{}' any more", short(tool))),
        };
        match self.approved.0.get(tool) {
            Some(Ok(approved)) if approved.hash == now.hash => Standing::AsApproved,
            approved => {
                let before = approved.and_then(|told| told.as_ref().ok()).map(|told| told.text.clone());
                let before = before.unwrap_or_else(|| Arc::from(""));
                Standing::Changed(Change { id: now.hash, before, now: now.text.clone() })
            }
        }
    }

    /// A person wants the tool as it is now, if that is still what they were shown.
    pub(super) fn accept(&mut self, tool: &str, change: &Change) {
        let now = self.now.as_ref().and_then(|now| now.0.get(tool));
        if let Some(Ok(now)) = now
            && now.hash == change.id
        {
            self.approved.0.insert(tool.to_owned(), Ok(now.clone()));
        }
    }
}

impl Heard {
    /// Reads a list. Of tools that share a name no one can say which is meant.
    pub(super) fn of(tools: &[Tool]) -> Heard {
        let mut all = BTreeMap::new();
        for tool in tools {
            let told = fits(tool).map(|()| {
                let text = text(tool);
                Told { hash: Hash::of(text.as_bytes()), text: text.into() }
            });
            let name = tool.name.to_string();
            let again = || format!("several of its tools are called '{}'", short(&tool.name));
            all.entry(name).and_modify(|told| *told = Err(again())).or_insert(told);
        }
        Heard(all)
    }
}

/// Whether models can be told about a tool.
pub(super) fn fits(tool: &Tool) -> Result<(), String> {
    let out = |why: &str| Err(format!("its tool '{}' is left out: {why}", short(&tool.name)));
    let length = |value: serde_json::Result<Vec<u8>>| value.map_or(usize::MAX, |bytes| bytes.len());
    let bytes = [
        length(serde_json::to_vec(&tool.input_schema)),
        tool.description.as_deref().map_or(0, str::len),
        tool.title.as_deref().map_or(0, str::len),
        length(serde_json::to_vec(&tool.annotations)),
    ];
    if bytes.into_iter().fold(0, usize::saturating_add) > MOST_BYTES {
        return out(&format!("its definition has more than {} KB", MOST_BYTES >> 10));
    }
    match tool.input_schema.get("type") {
        None => Ok(()),
        Some(kind) if kind == "object" => Ok(()),
        Some(_) => out("its arguments are no object"),
    }
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
            Standing::AsApproved | Standing::Gone(_) => None,
        }
    }

    fn book(tools: &[Tool]) -> Book {
        Book::new(Heard::of(tools))
    }

    fn hear(book: &mut Book, tools: &[Tool]) {
        book.hear(Heard::of(tools));
    }

    fn gone(book: &Book) -> String {
        match book.standing("t") {
            Standing::Gone(why) => why,
            Standing::AsApproved | Standing::Changed(_) => "not gone".to_owned(),
        }
    }

    #[test]
    fn a_change_is_shown_and_accepted_as_it_was_shown() {
        let mut book = self::book(&tools("adds\nnumbers"));
        assert_eq!(change(&book), None);
        hear(&mut book, &tools("adds\nnumbers\u{1b}[2J, and mails them"));
        let first = change(&book).unwrap();
        assert!(first.what().contains("-numbers\n"), "{}", first.what());
        assert!(first.what().contains("+numbers\\u{1b}[2J, and mails them\n"), "{}", first.what());
        hear(&mut book, &tools("something else"));
        book.accept("t", &first);
        let second = change(&book).unwrap();
        assert_ne!(first.id, second.id);
        book.accept("t", &second);
        assert_eq!(change(&book), None);
        hear(&mut book, &[]);
        assert_eq!(gone(&book), "it has no tool 't' any more");
    }

    #[test]
    fn the_order_of_keys_is_no_change() {
        let tool = |schema: &str| {
            let text = format!(r#"[{{"name":"t","inputSchema":{schema}}}]"#);
            serde_json::from_str::<Vec<Tool>>(&text).unwrap()
        };
        let mut book =
            self::book(&tool(r#"{"type":"object","properties":{"a":{"x":1,"y":[{"p":1,"q":2}]}}}"#));
        hear(&mut book, &tool(r#"{"properties":{"a":{"y":[{"q":2,"p":1}],"x":1}},"type":"object"}"#));
        assert_eq!(change(&book), None);
        hear(&mut book, &tool(r#"{"properties":{"a":{"y":[{"q":2,"p":2}],"x":1}},"type":"object"}"#));
        assert!(change(&book).is_some());
    }

    #[test]
    fn a_second_tool_of_the_same_name_makes_both_useless() {
        let mut book = self::book(&tools("one"));
        hear(&mut book, &[tools("one"), tools("one")].concat());
        assert_eq!(gone(&book), "several of its tools are called 't'");
    }

    #[test]
    fn what_became_too_large_is_not_used() {
        let mut book = self::book(&tools("short"));
        hear(&mut book, &tools(&"x".repeat(MOST_BYTES)));
        assert_eq!(gone(&book), "its tool 't' is left out: its definition has more than 32 KB");
        let mut tools = tools("short");
        tools[0].title = Some("x".repeat(MOST_BYTES));
        hear(&mut book, &tools);
        assert!(gone(&book).contains("more than 32 KB"), "{}", gone(&book));
    }

    #[test]
    fn a_long_difference_is_cut() {
        let mut book = self::book(&tools("short"));
        hear(&mut book, &tools(&"é\n".repeat(10_000)));
        assert!(change(&book).unwrap().what().ends_with("bytes left out …)"));
    }
}
