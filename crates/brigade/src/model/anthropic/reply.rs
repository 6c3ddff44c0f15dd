//! Decoder of Messages streams.

use std::collections::BTreeMap;

use brigade_core::Usage;
use brigade_core::message::Stop;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::http::{self, ChunkBuffer, Endpoint};
use super::super::usage_estimate::CheckedUsage;
use super::super::{Chunk, ModelError};

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum StreamEvent {
    MessageStart {
        #[serde(default)]
        message: StartedMessage,
    },
    ContentBlockStart {
        index: u64,
        content_block: Value,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        #[serde(default)]
        delta: MessageDelta,
        usage: Option<UsageCounts>,
    },
    MessageStop,
    Error {
        #[serde(default)]
        error: Value,
    },
    /// Pings and future event types.
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Default, Deserialize)]
struct StartedMessage {
    usage: Option<UsageCounts>,
}

#[derive(Debug, Default, Deserialize)]
struct MessageDelta {
    stop_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Arguments { partial_json: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(other)]
    Unknown,
}

/// Token counts. Each may be absent, and none decreases: some servers end with zeros.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct UsageCounts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

/// An open content block.
enum Block {
    Text,
    Call { id: Option<String>, name: String, whole: Option<String>, arguments: String },
    Thinking { thinking: String, signature: String },
    Redacted(Value),
    Unknown,
}

/// Decodes the events of one reply into chunks.
pub(in super::super) struct Decoder {
    endpoint: Endpoint,
    request_bytes: usize,
    /// Bytes of thinking and calls.
    other_bytes: usize,
    open: BTreeMap<u64, Block>,
    calls: Vec<(String, Option<String>, String)>,
    count: UsageCounts,
    stop: Option<String>,
}

impl Decoder {
    /// Creates a decoder for the reply to a request of this size.
    pub(in super::super) fn new(endpoint: Endpoint, request_bytes: usize) -> Decoder {
        Decoder {
            endpoint,
            request_bytes,
            other_bytes: 0,
            open: BTreeMap::new(),
            calls: Vec::new(),
            count: UsageCounts::default(),
            stop: None,
        }
    }

    fn start_block(&mut self, index: u64, block: Value, chunks: &mut ChunkBuffer) {
        let word = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let opened = match word("type").as_str() {
            "text" => {
                chunks.push_text(&word("text"));
                Block::Text
            }
            "tool_use" => {
                let full = block
                    .get("input")
                    .filter(|input| input.as_object().is_some_and(|input| !input.is_empty()));
                let id = Some(word("id")).filter(|id| !id.is_empty());
                let whole = full.map(Value::to_string);
                Block::Call { id, name: word("name"), whole, arguments: String::new() }
            }
            "thinking" => Block::Thinking { thinking: word("thinking"), signature: word("signature") },
            "redacted_thinking" => Block::Redacted(block),
            _ => Block::Unknown,
        };
        self.open.insert(index, opened);
    }

    fn extend_block(
        &mut self,
        index: u64,
        delta: Delta,
        chunks: &mut ChunkBuffer,
    ) -> Result<(), &'static str> {
        match (delta, self.open.get_mut(&index)) {
            (_, None) => return Err("a delta refers to an unknown content block"),
            (Delta::Text { text }, Some(_)) => chunks.push_text(&text),
            (Delta::Arguments { partial_json }, Some(Block::Call { arguments, .. })) => {
                arguments.push_str(&partial_json);
                self.other_bytes += partial_json.len();
            }
            (Delta::Thinking { thinking: more }, Some(Block::Thinking { thinking, .. })) => {
                thinking.push_str(&more);
                self.other_bytes += more.len();
            }
            (Delta::Signature { signature: more }, Some(Block::Thinking { signature, .. })) => {
                signature.push_str(&more);
            }
            // Arguments of server-side tools, and future delta types.
            (_, Some(_)) => {}
        }
        Ok(())
    }

    fn end_block(&mut self, index: u64, chunks: &mut ChunkBuffer) -> Result<(), &'static str> {
        match self.open.remove(&index) {
            None => return Err("a content block ended before it started"),
            Some(Block::Call { id, name, whole, arguments }) => {
                if name.is_empty() {
                    return Err("a tool call has no name");
                }
                let arguments = match whole {
                    Some(whole) if arguments.trim().is_empty() => whole,
                    Some(_) | None => arguments,
                };
                self.calls.push((name, id, arguments));
            }
            Some(Block::Thinking { thinking, signature }) => {
                let block = json!({ "type": "thinking", "thinking": thinking, "signature": signature });
                chunks.push(self.opaque_chunk(&block));
            }
            Some(Block::Redacted(block)) => chunks.push(self.opaque_chunk(&block)),
            Some(Block::Text | Block::Unknown) => {}
        }
        Ok(())
    }

    /// Wraps a block that only this provider can read.
    fn opaque_chunk(&self, block: &Value) -> Chunk {
        Chunk::Opaque(json!({ "provider": self.endpoint.name(), "messages": block }).to_string())
    }

    /// Ends the reply and emits what was held back.
    fn finish(&mut self, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        let Some(reason) = self.stop.take() else { return Err(http::truncated(&self.endpoint)) };
        if !self.open.is_empty() {
            return Err(http::truncated(&self.endpoint));
        }
        let stop = match reason.as_str() {
            "max_tokens" | "model_context_window_exceeded" => Stop::Length,
            "refusal" => Stop::Refusal,
            _ if self.calls.is_empty() => Stop::End,
            _ => Stop::Calls,
        };
        for (name, provider_id, arguments) in std::mem::take(&mut self.calls) {
            chunks.push_call(stop, name, provider_id, arguments);
        }
        chunks.finish(self.checked_usage(chunks.text_bytes()), stop);
        Ok(())
    }

    /// Returns the reported usage, with estimates for missing counts.
    fn checked_usage(&self, text_bytes: usize) -> CheckedUsage {
        let counted = Usage {
            input: self.count.input_tokens.unwrap_or_default(),
            output: self.count.output_tokens.unwrap_or_default(),
            cache_read: self.count.cache_read_input_tokens.unwrap_or_default(),
            cache_write: self.count.cache_creation_input_tokens.unwrap_or_default(),
        };
        CheckedUsage::new(counted, self.request_bytes, text_bytes + self.other_bytes)
    }

    fn handle_event(&mut self, decoded: StreamEvent, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        let taken = match decoded {
            StreamEvent::MessageStart { message } => {
                self.count.merge(message.usage);
                Ok(())
            }
            StreamEvent::ContentBlockStart { index, content_block } => {
                self.start_block(index, content_block, chunks);
                Ok(())
            }
            StreamEvent::ContentBlockDelta { index, delta } => self.extend_block(index, delta, chunks),
            StreamEvent::ContentBlockStop { index } => self.end_block(index, chunks),
            StreamEvent::MessageDelta { delta, usage } => {
                self.stop = delta.stop_reason.or(self.stop.take());
                self.count.merge(usage);
                Ok(())
            }
            StreamEvent::MessageStop => return self.finish(chunks),
            StreamEvent::Error { error } => return Err(http::stream_error(&self.endpoint, &error)),
            StreamEvent::Unknown => Ok(()),
        };
        taken.map_err(|cause| http::invalid_reply(&self.endpoint, cause))
    }
}

impl http::Decoder for Decoder {
    fn decode(&mut self, _name: &str, data: &str, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        self.handle_event(http::parse_event(&self.endpoint, data)?, chunks)
    }

    fn usage(&self, text_bytes: usize) -> Usage {
        self.checked_usage(text_bytes).usage
    }

    fn end(&mut self, _chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        Err(http::truncated(&self.endpoint))
    }
}

impl UsageCounts {
    fn merge(&mut self, later: Option<UsageCounts>) {
        let later = later.unwrap_or_default();
        self.input_tokens = self.input_tokens.max(later.input_tokens);
        self.output_tokens = self.output_tokens.max(later.output_tokens);
        self.cache_read_input_tokens = self.cache_read_input_tokens.max(later.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            self.cache_creation_input_tokens.max(later.cache_creation_input_tokens);
    }
}
