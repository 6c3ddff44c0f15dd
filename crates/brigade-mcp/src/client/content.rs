//! Converts a server's answers to text for a model.

use std::fmt::Write;

use brigade_core::ToolOutput;
use rmcp::model::{CallToolResult, ContentBlock, GetPromptResult, ResourceContents, Role};

/// Maximum size of an answer to a model.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Converts the result of a call.
pub(super) fn output(result: &CallToolResult) -> ToolOutput {
    let mut parts: Vec<String> = result.content.iter().map(block).collect();
    // Servers repeat structured content as text for older clients. If they do not, it is the answer.
    if let Some(structured) = result.structured_content.as_ref().filter(|_| parts.is_empty()) {
        parts.push(structured.to_string());
    }
    let text = if parts.is_empty() { "(no output)".to_owned() } else { truncate(parts.join("\n")) };
    match result.is_error {
        Some(true) => ToolOutput::error(text),
        Some(false) | None => ToolOutput::ok(text),
    }
}

/// Converts one block of an answer. Content that is not text is only named.
fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => binary_note("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => binary_note("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => resource(&embedded.resource),
        ContentBlock::ResourceLink(link) => format!("(resource {}: {})", link.name, link.uri),
        _ => "(content of an unknown type)".to_owned(),
    }
}

/// Converts the contents of a resource.
pub(super) fn resource(contents: &ResourceContents) -> String {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => format!("{uri}:\n{text}"),
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            let kind = mime_type.as_deref().unwrap_or("unknown type");
            format!("{uri}: {}", binary_note("data", kind, blob))
        }
        _ => "(a resource of an unknown type)".to_owned(),
    }
}

/// Converts an expanded prompt.
pub(super) fn prompt(result: &GetPromptResult) -> ToolOutput {
    let messages = result.messages.iter().map(|message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        format!("{role}: {}", block(&message.content))
    });
    let messages: Vec<String> = messages.collect();
    ToolOutput::ok(truncate(messages.join("\n")))
}

/// Formats an entry of a list.
pub(super) fn entry(name: &str, more: &str, description: Option<&str>) -> String {
    let description = description.map(|text| format!(": {}", text.trim())).unwrap_or_default();
    format!("{name} ({more}){description}")
}

/// Formats a list.
pub(super) fn list(entries: impl Iterator<Item = String>) -> ToolOutput {
    let entries: Vec<String> = entries.collect();
    ToolOutput::ok(if entries.is_empty() { "(none)".to_owned() } else { truncate(entries.join("\n")) })
}

/// Placeholder for data that a model cannot read. Four Base64 characters encode three bytes.
fn binary_note(kind: &str, mime_type: &str, encoded: &str) -> String {
    format!("({kind}, {mime_type}, about {} bytes, not shown)", encoded.len() / 4 * 3)
}

/// Truncates a long text and notes what is missing.
pub(super) fn truncate(mut text: String) -> String {
    if text.len() > MAX_OUTPUT_BYTES {
        let all = text.len();
        text.truncate(text.floor_char_boundary(MAX_OUTPUT_BYTES));
        let _ = write!(text, "\n(… {} bytes omitted …)", all - text.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: Value) -> (String, bool) {
        let output = output(&serde_json::from_value(value).unwrap());
        (output.text.to_string(), output.is_error())
    }

    #[test]
    fn content_of_every_kind_becomes_text() {
        let content = json!({ "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "mimeType": "image/png", "data": "AAAAAAAA" },
            { "type": "resource", "resource": { "uri": "a://b", "text": "two" } },
            { "type": "resource_link", "uri": "c://d", "name": "three" },
        ] });
        let text = "one\n(image, image/png, about 6 bytes, not shown)\na://b:\ntwo\n(resource three: c://d)";
        assert_eq!(read(content), (text.to_owned(), false));
        assert_eq!(
            read(json!({ "content": [], "structuredContent": { "a": 1 } })),
            ("{\"a\":1}".into(), false)
        );
        assert_eq!(read(json!({ "content": [] })), ("(no output)".into(), false));
        assert!(read(json!({ "content": [{ "type": "text", "text": "no" }], "isError": true })).1);
    }

    #[test]
    fn long_output_is_cut_at_a_char_boundary() {
        let (text, _) =
            read(json!({ "content": [{ "type": "text", "text": "€".repeat(MAX_OUTPUT_BYTES) }] }));
        assert!(text.len() < MAX_OUTPUT_BYTES + 100, "{}", text.len());
        assert!(text.ends_with(" bytes omitted …)"), "{}", &text[text.len() - 40..]);
    }
}
