//! Requests as a provider wants them written; their tools are kept for all that are offered the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_core::{Message, ToolSpec};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Request;

/// How many sets of tools are remembered.
const SETS: usize = 8;

/// About how many bytes a message has around its text, and a request around its messages.
const AROUND_MESSAGE: usize = 64;
const AROUND_REQUEST: usize = 256;

/// A body with these tools, as JSON. There is room for it from the start: a body that grows is moved time and again.
pub(super) fn write(
    body: &impl Serialize,
    request: &Request,
    tools: Option<&RawValue>,
) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(room(request) + tools.map_or(0, |tools| tools.get().len()));
    serde_json::to_writer(&mut bytes, body)?;
    Ok(bytes)
}

/// About how many bytes a request has without its tools.
fn room(request: &Request) -> usize {
    let messages: usize = request.messages.iter().map(|message| texts(message) + AROUND_MESSAGE).sum();
    let texts = messages + request.system.len();
    // Line feeds and quotes are written with a stroke before them.
    AROUND_REQUEST + texts + texts / 16
}

fn texts(message: &Message) -> usize {
    match message {
        Message::User(text) => text.as_str().len(),
        Message::Assistant(reply) => {
            let calls = reply
                .calls
                .iter()
                .map(|call| call.name.len() + call.arguments.as_str().len() + AROUND_MESSAGE);
            reply.text.as_str().len() + calls.sum::<usize>()
        }
        Message::Results(results) => {
            results.iter().map(|result| result.output.text.as_str().len() + AROUND_MESSAGE).sum()
        }
    }
}

/// What was written last. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Written(Arc<Mutex<Vec<Set>>>);

#[derive(Debug)]
struct Set {
    tools: Arc<[ToolSpec]>,
    text: Arc<RawValue>,
}

impl Written {
    /// The tools in the words of the provider; `write` is asked when they are new.
    pub(super) fn tools(
        &self,
        tools: &Arc<[ToolSpec]>,
        write: impl FnOnce(&[ToolSpec]) -> serde_json::Result<Box<RawValue>>,
    ) -> serde_json::Result<Arc<RawValue>> {
        if let Some(text) = known(&self.sets(), tools) {
            return Ok(text);
        }
        let text: Arc<RawValue> = write(tools)?.into();
        let mut sets = self.sets();
        if known(&sets, tools).is_none() {
            sets.truncate(SETS - 1);
            sets.insert(0, Set { tools: tools.clone(), text: text.clone() });
        }
        Ok(text)
    }

    /// About how many bytes a request will have.
    pub(super) fn bytes(&self, request: &Request) -> usize {
        let tools = match known(&self.sets(), &request.tools) {
            Some(text) => text.get().len(),
            None => request.tools.iter().map(ToolSpec::bytes).sum(),
        };
        room(request) + tools
    }

    fn sets(&self) -> MutexGuard<'_, Vec<Set>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Siblings of one definition share their tools, so that the same place in memory is the same set.
fn known(sets: &[Set], tools: &Arc<[ToolSpec]>) -> Option<Arc<RawValue>> {
    sets.iter().find(|set| Arc::ptr_eq(&set.tools, tools)).map(|set| set.text.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_tools_are_written_once_and_others_anew() {
        let written = Written::default();
        let sets: Vec<Arc<[ToolSpec]>> = (0..SETS + 1).map(|_| Arc::from(Vec::new())).collect();
        let text = |set: usize, say: &str| {
            let raw = || RawValue::from_string(format!("\"{say}\""));
            written.tools(&sets[set], |_| raw()).unwrap().get().to_owned()
        };
        assert_eq!(text(0, "first"), "\"first\"");
        assert_eq!(text(0, "again"), "\"first\"");
        for set in 1..=SETS {
            assert_eq!(text(set, "other"), "\"other\"");
        }
        assert_eq!(text(0, "forgotten"), "\"forgotten\"");
    }
}
