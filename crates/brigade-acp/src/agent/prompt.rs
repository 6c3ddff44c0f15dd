//! Conversion of prompt content to text.

use agent_client_protocol_schema::v1 as acp;
use brigade_core::RemoteContext;
use serde_json::Value;

use super::errors;

/// Converts content blocks to text: links become their address, embedded files a fenced block.
pub(super) fn to_text(blocks: &[acp::ContentBlock]) -> Result<String, acp::Error> {
    let mut output = String::new();
    let (mut follows_text, mut follows_plain) = (false, true);
    for block in blocks {
        let (block_text, is_text) = match block {
            acp::ContentBlock::Text(text) => (text.text.clone(), true),
            acp::ContentBlock::ResourceLink(link) => (link_text(link), false),
            acp::ContentBlock::Resource(embedded) => (resource_text(&embedded.resource)?, false),
            acp::ContentBlock::Image(_) => return Err(errors::params("images are not supported")),
            acp::ContentBlock::Audio(_) => return Err(errors::params("audio is not supported")),
            _ => return Err(errors::params("this content type is not supported")),
        };
        // A link in the middle of a sentence stays inline. A file gets lines of its own.
        let is_in_line = (is_text || !block_text.contains('\n')) && (follows_text || output.is_empty());
        if !output.is_empty() && !is_in_line && !output.ends_with('\n') {
            output.push('\n');
        }
        // Some clients leave no space around a link.
        let is_tight = output.ends_with(char::is_alphanumeric)
            && block_text.starts_with(|c: char| c.is_alphanumeric() || c == '/');
        if is_tight && !(is_text && follows_plain) {
            output.push(' ');
        }
        follows_plain = is_text;
        output.push_str(&block_text);
        follows_text = !block_text.contains("```");
    }
    if output.trim().is_empty() {
        return Err(errors::params("the prompt is empty"));
    }
    Ok(output)
}

fn link_text(link: &acp::ResourceLink) -> String {
    let path = link.uri.strip_prefix("file://").unwrap_or(&link.uri);
    if path.ends_with(&link.name) { path.to_owned() } else { format!("{} ({path})", link.name) }
}

fn resource_text(resource: &acp::EmbeddedResourceResource) -> Result<String, acp::Error> {
    match resource {
        acp::EmbeddedResourceResource::TextResourceContents(file) => {
            let path = file.uri.strip_prefix("file://").unwrap_or(&file.uri);
            let fence = fence(&file.text);
            let text = file.text.trim_end_matches('\n');
            Ok(format!("\n{path}:\n{fence}\n{text}\n{fence}\n"))
        }
        acp::EmbeddedResourceResource::BlobResourceContents(file) => {
            Err(errors::params(format!("cannot read {}: only text resources are supported", file.uri)))
        }
        _ => Err(errors::params("this resource type is not supported")),
    }
}

/// A fence that is longer than any fence in the text.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

/// Parses the remote context that a calling Brigade sends. Invalid metadata is an error, not a missing limit.
pub(super) fn remote_context(params: &Value) -> Result<Option<RemoteContext>, acp::Error> {
    match params.get("_meta") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(meta)) => {
            RemoteContext::from_meta(meta).map_err(|error| errors::params(error.to_string()))
        }
        Some(_) => Err(errors::params("`_meta` must be an object")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(blocks: Value) -> Result<String, acp::Error> {
        to_text(&serde_json::from_value::<Vec<acp::ContentBlock>>(blocks).unwrap())
    }

    #[test]
    fn to_text_joins_text_links_and_files() {
        let prompt = read(json!([
            {"type": "text", "text": "Look at "},
            {"type": "resource_link", "name": "a.rs", "uri": "file:///project/a.rs"},
            {"type": "text", "text": " and fix it."},
            {"type": "resource", "resource": {"uri": "file:///project/b.md", "text": "```x```\n"}},
        ]));
        assert_eq!(
            prompt.unwrap(),
            "Look at /project/a.rs and fix it.\n\n/project/b.md:\n````\n```x```\n````\n"
        );
        let tight = read(json!([
            {"type": "text", "text": "lo"},
            {"type": "text", "text": "ok at"},
            {"type": "resource_link", "name": "a.rs", "uri": "file:///project/a.rs"},
            {"type": "text", "text": "and, well"},
        ]));
        assert_eq!(tight.unwrap(), "look at /project/a.rs and, well");
    }

    #[test]
    fn to_text_refuses_unsupported_content() {
        for block in [
            json!({"type": "image", "data": "", "mimeType": "image/png"}),
            json!({"type": "audio", "data": "", "mimeType": "audio/wav"}),
            json!({"type": "resource", "resource": {"uri": "x", "blob": ""}}),
            json!({"type": "text", "text": "  "}),
        ] {
            assert_eq!(read(json!([block])).unwrap_err().code, acp::ErrorCode::InvalidParams);
        }
        assert!(read(json!([])).is_err());
    }

    #[test]
    fn malformed_remote_context_is_an_error() {
        assert!(remote_context(&json!({"_meta": {"brigade/hop": {"depth": "deep"}}})).is_err());
        assert!(remote_context(&json!({"_meta": 7})).is_err());
        assert_eq!(remote_context(&json!({})).unwrap(), None);
        assert_eq!(
            remote_context(&json!({"_meta": {"brigade/hop": {"depth": 2}}})).unwrap().unwrap().depth,
            2
        );
    }
}
