//! Request bodies, with a cache of serialized tool definitions shared by all requests that offer the same
//! tools.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_core::{Message, ToolSpec};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Request;

/// Maximum number of cached tool sets.
const MAX_TOOL_SETS: usize = 8;

/// Approximate bytes of JSON around the text of a message, and around the messages of a request.
const MESSAGE_OVERHEAD_BYTES: usize = 64;
const REQUEST_OVERHEAD_BYTES: usize = 256;

/// Serializes a body with these tools as JSON. The buffer is sized up front, because a growing body would be
/// copied repeatedly.
pub(super) fn write(
    body: &impl Serialize,
    request: &Request,
    tools: Option<&RawValue>,
) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(body_bytes(request) + tools.map_or(0, |tools| tools.get().len()));
    serde_json::to_writer(&mut bytes, body)?;
    Ok(bytes)
}

/// Approximate size of a request without its tools.
fn body_bytes(request: &Request) -> usize {
    let messages: usize =
        request.messages.iter().map(|message| text_bytes(message) + MESSAGE_OVERHEAD_BYTES).sum();
    let texts = messages + request.system.len();
    // Line feeds and quotes are escaped, which takes an extra byte.
    REQUEST_OVERHEAD_BYTES + texts + texts / 16
}

fn text_bytes(message: &Message) -> usize {
    match message {
        Message::User(text) => text.as_str().len(),
        Message::Assistant(reply) => {
            let calls = reply
                .calls
                .iter()
                .map(|call| call.name.len() + call.arguments.as_str().len() + MESSAGE_OVERHEAD_BYTES);
            reply.text.as_str().len() + calls.sum::<usize>()
        }
        Message::Results(results) => {
            results.iter().map(|result| result.output.text.as_str().len() + MESSAGE_OVERHEAD_BYTES).sum()
        }
    }
}

/// The most recently serialized tool sets. Clones share the cache.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolCache(Arc<Mutex<Vec<CachedTools>>>);

#[derive(Debug)]
struct CachedTools {
    tools: Arc<[ToolSpec]>,
    text: Arc<RawValue>,
}

impl ToolCache {
    /// Returns the tools in the provider's format. Calls `write` only if they are not cached.
    pub(super) fn tools(
        &self,
        tools: &Arc<[ToolSpec]>,
        write: impl FnOnce(&[ToolSpec]) -> serde_json::Result<Box<RawValue>>,
    ) -> serde_json::Result<Arc<RawValue>> {
        if let Some(text) = cached(&self.sets(), tools) {
            return Ok(text);
        }
        let text: Arc<RawValue> = write(tools)?.into();
        let mut sets = self.sets();
        if cached(&sets, tools).is_none() {
            sets.truncate(MAX_TOOL_SETS - 1);
            sets.insert(0, CachedTools { tools: tools.clone(), text: text.clone() });
        }
        Ok(text)
    }

    /// Approximate size of the request body.
    pub(super) fn bytes(&self, request: &Request) -> usize {
        let tools = match cached(&self.sets(), &request.tools) {
            Some(text) => text.get().len(),
            None => request.tools.iter().map(ToolSpec::bytes).sum(),
        };
        body_bytes(request) + tools
    }

    fn sets(&self) -> MutexGuard<'_, Vec<CachedTools>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Siblings with the same agent definition share their tools, so comparing pointers is enough.
fn cached(sets: &[CachedTools], tools: &Arc<[ToolSpec]>) -> Option<Arc<RawValue>> {
    sets.iter().find(|set| Arc::ptr_eq(&set.tools, tools)).map(|set| set.text.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_tools_are_written_only_once() {
        let cache = ToolCache::default();
        let sets: Vec<Arc<[ToolSpec]>> = (0..MAX_TOOL_SETS + 1).map(|_| Arc::from(Vec::new())).collect();
        let text = |set: usize, say: &str| {
            let raw = || RawValue::from_string(format!("\"{say}\""));
            cache.tools(&sets[set], |_| raw()).unwrap().get().to_owned()
        };
        assert_eq!(text(0, "first"), "\"first\"");
        assert_eq!(text(0, "again"), "\"first\"");
        for set in 1..=MAX_TOOL_SETS {
            assert_eq!(text(set, "other"), "\"other\"");
        }
        assert_eq!(text(0, "forgotten"), "\"forgotten\"");
    }
}
