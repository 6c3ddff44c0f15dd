//! From the content of a prompt to words.

use agent_client_protocol::v1::schema as acp;
use brigade_core::Hop;
use serde_json::Value;

use super::refusal;

/// The words of a prompt: text as it is, links by their address, embedded files between fences.
pub(super) fn words(blocks: &[acp::ContentBlock]) -> Result<String, acp::Error> {
    let mut words = String::new();
    let (mut follows_text, mut follows_plain) = (false, true);
    for block in blocks {
        let (part, is_text) = match block {
            acp::ContentBlock::Text(text) => (text.text.clone(), true),
            acp::ContentBlock::ResourceLink(link) => (linked(link), false),
            acp::ContentBlock::Resource(embedded) => (resource(&embedded.resource)?, false),
            acp::ContentBlock::Image(_) => return Err(refusal::params("images are not understood")),
            acp::ContentBlock::Audio(_) => return Err(refusal::params("sound is not understood")),
            _ => return Err(refusal::params("this kind of content is not understood")),
        };
        // A link in the middle of a sentence stays in it; a file stands by itself.
        let is_in_line = (is_text || !part.contains('\n')) && (follows_text || words.is_empty());
        if !words.is_empty() && !is_in_line && !words.ends_with('\n') {
            words.push('\n');
        }
        // Not every client leaves room around a link.
        let is_tight = words.ends_with(char::is_alphanumeric)
            && part.starts_with(|c: char| c.is_alphanumeric() || c == '/');
        if is_tight && !(is_text && follows_plain) {
            words.push(' ');
        }
        follows_plain = is_text;
        words.push_str(&part);
        follows_text = !part.contains("```");
    }
    if words.trim().is_empty() {
        return Err(refusal::params("the prompt is empty; say what is to be done"));
    }
    Ok(words)
}

fn linked(link: &acp::ResourceLink) -> String {
    let place = link.uri.strip_prefix("file://").unwrap_or(&link.uri);
    if place.ends_with(&link.name) { place.to_owned() } else { format!("{} ({place})", link.name) }
}

fn resource(resource: &acp::EmbeddedResourceResource) -> Result<String, acp::Error> {
    match resource {
        acp::EmbeddedResourceResource::TextResourceContents(file) => {
            let place = file.uri.strip_prefix("file://").unwrap_or(&file.uri);
            let fence = fence(&file.text);
            let text = file.text.trim_end_matches('\n');
            Ok(format!("\n{place}:\n{fence}\n{text}\n{fence}\n"))
        }
        acp::EmbeddedResourceResource::BlobResourceContents(file) => {
            Err(refusal::params(format!("{} is no text, and only text is understood", file.uri)))
        }
        _ => Err(refusal::params("this kind of resource is not understood")),
    }
}

/// A fence that the text cannot close.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

/// Where the words come from, if another Brigade hands them on. What cannot be read is no licence.
pub(super) fn hop(params: &Value) -> Result<Option<Hop>, acp::Error> {
    match params.get("_meta") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(meta)) => Hop::in_meta(meta).map_err(refusal::params),
        Some(_) => Err(refusal::params("`_meta` is no object")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(blocks: Value) -> Result<String, acp::Error> {
        words(&serde_json::from_value::<Vec<acp::ContentBlock>>(blocks).unwrap())
    }

    #[test]
    fn text_links_and_files_become_words() {
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
    fn what_is_not_understood_is_refused() {
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
    fn a_broken_hop_is_an_error() {
        assert!(hop(&json!({"_meta": {"brigade/hop": {"depth": "deep"}}})).is_err());
        assert!(hop(&json!({"_meta": 7})).is_err());
        assert_eq!(hop(&json!({})).unwrap(), None);
        assert_eq!(hop(&json!({"_meta": {"brigade/hop": {"depth": 2}}})).unwrap().unwrap().depth, 2);
    }
}
