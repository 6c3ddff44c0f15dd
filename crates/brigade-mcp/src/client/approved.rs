//! Approved tool definitions of a server, and the differences to its current ones.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use brigade_core::Hash;
use rmcp::model::Tool;
use serde_json::Value;

use super::McpError;
use super::connect::sanitize;
use brigade_tools::ToolChange;

/// Maximum size of a tool definition.
const MAX_DEFINITION_BYTES: usize = 32 << 10;

/// Approved and current tool definitions.
pub(super) struct ApprovedTools {
    approved: ToolDefinitions,
    /// None until the server reports a change or is restarted.
    current: Option<ToolDefinitions>,
}

/// Tool definitions of a server, or the reason why a tool cannot be used.
pub(super) struct ToolDefinitions(BTreeMap<String, Result<ToolDefinition, McpError>>);

#[derive(Clone)]
struct ToolDefinition {
    hash: Hash,
    text: Arc<str>,
}

/// State of a tool relative to its approved definition.
pub(super) enum ToolState {
    Approved,
    Changed(ToolChange),
    /// The tool can no longer be used, for this reason.
    Gone(McpError),
}

impl ApprovedTools {
    /// Approves these definitions.
    pub(super) fn new(approved: ToolDefinitions) -> ApprovedTools {
        ApprovedTools { approved, current: None }
    }

    /// Sets the current definitions.
    pub(super) fn update_tools(&mut self, current: ToolDefinitions) {
        self.current = Some(current);
    }

    pub(super) fn state(&self, tool: &str) -> ToolState {
        let Some(current) = &self.current else { return ToolState::Approved };
        let current = match current.0.get(tool) {
            Some(Ok(current)) => current,
            Some(Err(why)) => return ToolState::Gone(why.clone()),
            None => {
                let cause = format!("it no longer has a tool '{}'", sanitize(tool));
                return ToolState::Gone(McpError::Tool(cause));
            }
        };
        match self.approved.0.get(tool) {
            Some(Ok(approved)) if approved.hash == current.hash => ToolState::Approved,
            approved => {
                let before = approved
                    .and_then(|definition| definition.as_ref().ok())
                    .map(|definition| definition.text.clone());
                let before = before.unwrap_or_else(|| Arc::from(""));
                ToolState::Changed(ToolChange { id: current.hash, before, current: current.text.clone() })
            }
        }
    }

    /// Approves the current definition, if it is still the one that the user was shown.
    pub(super) fn accept(&mut self, tool: &str, change: &ToolChange) {
        let current = self.current.as_ref().and_then(|current| current.0.get(tool));
        if let Some(Ok(current)) = current
            && current.hash == change.id
        {
            self.approved.0.insert(tool.to_owned(), Ok(current.clone()));
        }
    }
}

impl ToolDefinitions {
    /// Reads a tool list. Tools that share a name cannot be told apart, so they cannot be used.
    pub(super) fn of(tools: &[Tool]) -> ToolDefinitions {
        let mut all = BTreeMap::new();
        for tool in tools {
            let definition = check_definition(tool).map(|()| {
                let text = describe(tool);
                ToolDefinition { hash: Hash::of(text.as_bytes()), text: text.into() }
            });
            let name = tool.name.to_string();
            let again =
                || McpError::Tool(format!("several of its tools are called '{}'", sanitize(&tool.name)));
            all.entry(name).and_modify(|definition| *definition = Err(again())).or_insert(definition);
        }
        ToolDefinitions(all)
    }
}

/// Checks that a tool can be offered to models.
pub(super) fn check_definition(tool: &Tool) -> Result<(), McpError> {
    let out =
        |why: &str| Err(McpError::Tool(format!("cannot offer the tool '{}': {why}", sanitize(&tool.name))));
    let length = |value: serde_json::Result<Vec<u8>>| value.map_or(usize::MAX, |bytes| bytes.len());
    let bytes = [
        length(serde_json::to_vec(&tool.input_schema)),
        tool.description.as_deref().map_or(0, str::len),
        tool.title.as_deref().map_or(0, str::len),
        length(serde_json::to_vec(&tool.annotations)),
    ];
    if bytes.into_iter().fold(0, usize::saturating_add) > MAX_DEFINITION_BYTES {
        return out(&format!("its definition is larger than {} KiB", MAX_DEFINITION_BYTES >> 10));
    }
    match tool.input_schema.get("type") {
        None => Ok(()),
        Some(kind) if kind == "object" => Ok(()),
        Some(_) => out("the type of its input schema is not `object`"),
    }
}

/// Formats everything that agents and users see of a tool, without terminal control characters.
fn describe(tool: &Tool) -> String {
    let mut text = String::new();
    if let Some(title) = &tool.title {
        let _ = writeln!(text, "title: {}", escape_controls(title));
    }
    if let Some(description) = &tool.description {
        let _ = writeln!(text, "description: {}", escape_controls(description));
    }
    let schema = Value::Object(tool.input_schema.as_ref().clone());
    let schema = serde_json::to_string_pretty(&sorted(schema)).unwrap_or_default();
    let _ = writeln!(text, "arguments: {}", escape_controls(&schema));
    if let Some(hints) = &tool.annotations {
        let hints = serde_json::to_string(hints).unwrap_or_default();
        let _ = writeln!(text, "hints: {}", escape_controls(&hints));
    }
    text
}

/// Sorts the keys of all objects, because a server may send them in a different order each time.
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

/// Escapes control characters, except line feeds.
fn escape_controls(text: &str) -> String {
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

    fn change(approved_tools: &ApprovedTools) -> Option<ToolChange> {
        match approved_tools.state("t") {
            ToolState::Changed(change) => Some(change),
            ToolState::Approved | ToolState::Gone(_) => None,
        }
    }

    fn approved(tools: &[Tool]) -> ApprovedTools {
        ApprovedTools::new(ToolDefinitions::of(tools))
    }

    fn update_tools(approved_tools: &mut ApprovedTools, tools: &[Tool]) {
        approved_tools.update_tools(ToolDefinitions::of(tools));
    }

    fn gone(approved_tools: &ApprovedTools) -> String {
        match approved_tools.state("t") {
            ToolState::Gone(why) => why.to_string(),
            ToolState::Approved | ToolState::Changed(_) => "not gone".to_owned(),
        }
    }

    #[test]
    fn changed_tool_is_accepted_only_as_it_was_shown() {
        let mut approved_tools = self::approved(&tools("adds\nnumbers"));
        assert_eq!(change(&approved_tools), None);
        update_tools(&mut approved_tools, &tools("adds\nnumbers\u{1b}[2J, and mails them"));
        let first = change(&approved_tools).unwrap();
        assert!(first.diff().contains("-numbers\n"), "{}", first.diff());
        assert!(first.diff().contains("+numbers\\u{1b}[2J, and mails them\n"), "{}", first.diff());
        update_tools(&mut approved_tools, &tools("something else"));
        approved_tools.accept("t", &first);
        let second = change(&approved_tools).unwrap();
        assert_ne!(first.id, second.id);
        approved_tools.accept("t", &second);
        assert_eq!(change(&approved_tools), None);
        update_tools(&mut approved_tools, &[]);
        assert_eq!(gone(&approved_tools), "it no longer has a tool 't'");
    }

    #[test]
    fn schema_key_order_is_not_a_change() {
        let tool = |schema: &str| {
            let text = format!(r#"[{{"name":"t","inputSchema":{schema}}}]"#);
            serde_json::from_str::<Vec<Tool>>(&text).unwrap()
        };
        let mut approved_tools =
            self::approved(&tool(r#"{"type":"object","properties":{"a":{"x":1,"y":[{"p":1,"q":2}]}}}"#));
        update_tools(
            &mut approved_tools,
            &tool(r#"{"properties":{"a":{"y":[{"q":2,"p":1}],"x":1}},"type":"object"}"#),
        );
        assert_eq!(change(&approved_tools), None);
        update_tools(
            &mut approved_tools,
            &tool(r#"{"properties":{"a":{"y":[{"q":2,"p":2}],"x":1}},"type":"object"}"#),
        );
        assert!(change(&approved_tools).is_some());
    }

    #[test]
    fn duplicate_tool_names_are_unusable() {
        let mut approved_tools = self::approved(&tools("one"));
        update_tools(&mut approved_tools, &[tools("one"), tools("one")].concat());
        assert_eq!(gone(&approved_tools), "several of its tools are called 't'");
    }

    #[test]
    fn oversized_definition_is_refused() {
        let mut approved_tools = self::approved(&tools("short"));
        update_tools(&mut approved_tools, &tools(&"x".repeat(MAX_DEFINITION_BYTES)));
        assert_eq!(gone(&approved_tools), "cannot offer the tool 't': its definition is larger than 32 KiB");
        let mut tools = tools("short");
        tools[0].title = Some("x".repeat(MAX_DEFINITION_BYTES));
        update_tools(&mut approved_tools, &tools);
        assert!(gone(&approved_tools).contains("larger than 32 KiB"), "{}", gone(&approved_tools));
    }

    #[test]
    fn long_diff_is_truncated() {
        let mut approved_tools = self::approved(&tools("short"));
        update_tools(&mut approved_tools, &tools(&"é\n".repeat(10_000)));
        assert!(change(&approved_tools).unwrap().diff().ends_with("bytes omitted …)"));
    }
}
