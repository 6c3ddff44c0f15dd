//! Decoder of Responses streams.

use brigade_core::Usage;
use brigade_core::message::Stop;
use serde_json::Value;

use super::super::http::{self, ChunkBuffer, Endpoint};
use super::super::usage_estimate::CheckedUsage;
use super::super::{Chunk, ModelError};
use super::items::{ItemContent, Items, text_field};
use super::request::{OpaqueBlock, OpaqueItem};

/// Decodes the events of one reply into chunks.
pub(in super::super) struct Decoder {
    endpoint: Endpoint,
    model: String,
    request_bytes: usize,
    arguments_bytes: usize,
    items: Items,
    refused: bool,
}

impl Decoder {
    /// Creates a decoder for this model's reply to a request of this size.
    pub(in super::super) fn new(endpoint: Endpoint, model: String, request_bytes: usize) -> Decoder {
        Decoder {
            endpoint,
            model,
            request_bytes,
            arguments_bytes: 0,
            items: Items::default(),
            refused: false,
        }
    }

    fn handle_event(
        &mut self,
        kind: &str,
        event: &Value,
        chunks: &mut ChunkBuffer,
    ) -> Result<(), ModelError> {
        match kind {
            "response.output_item.added" => self.items.begin(event),
            "response.output_item.done" => {
                chunks.push_text(&self.items.end(event));
            }
            "response.output_text.delta" => self.text(event, chunks),
            "response.refusal.delta" => {
                self.refused = true;
                self.text(event, chunks);
            }
            "response.function_call_arguments.delta" => {
                let more = text_field(event, "delta").unwrap_or_default();
                self.arguments_bytes += more.len();
                self.items.arguments(event, &more);
            }
            "response.function_call_arguments.done" => self.items.set_arguments(event),
            "response.completed" | "response.incomplete" => {
                let is_cut = kind == "response.incomplete";
                return self.finish(event.get("response").unwrap_or(&Value::Null), is_cut, chunks);
            }
            "response.failed" | "response.cancelled" => {
                let error = event.pointer("/response/error").unwrap_or(&Value::Null);
                return Err(http::stream_error(&self.endpoint, error));
            }
            "error" => return Err(self.error(event)),
            // Some servers send nothing but the error.
            "" if event.get("error").is_some_and(|error| !error.is_null()) => return Err(self.error(event)),
            // Pings, reasoning summaries, server-side tools, and future event types.
            _ => {}
        }
        Ok(())
    }

    fn error(&self, event: &Value) -> ModelError {
        let inner = event.get("error").filter(|error| !error.is_null());
        http::stream_error(&self.endpoint, inner.unwrap_or(event))
    }

    fn text(&mut self, event: &Value, chunks: &mut ChunkBuffer) {
        let more = text_field(event, "delta").unwrap_or_default();
        self.items.text(event, &more);
        chunks.push_text(&more);
    }

    /// Ends the reply and emits what was held back.
    fn finish(&mut self, response: &Value, is_cut: bool, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
            return Err(http::stream_error(&self.endpoint, error));
        }
        let output = response.get("output").and_then(Value::as_array);
        chunks.push_text(&self.items.reconcile(output.map(Vec::as_slice).unwrap_or_default()));
        let stop = match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
            Some("content_filter") => Stop::Refusal,
            Some(_) => Stop::Length,
            None if is_cut => Stop::Length,
            None if self.refused || self.items.is_refused() => Stop::Refusal,
            None if self.items.has_calls() => Stop::Calls,
            None => Stop::End,
        };
        let counted = response.get("usage").and_then(usage).unwrap_or_default();
        let reply_bytes = chunks.text_bytes() + self.arguments_bytes;
        self.emit(stop, chunks)?;
        chunks.finish(CheckedUsage::new(counted, self.request_bytes, reply_bytes), stop);
        Ok(())
    }

    /// Emits the calls, and the opaque data with its position.
    fn emit(&mut self, stop: Stop, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        let (mut before, mut calls) = (0, Vec::new());
        for content in std::mem::take(&mut self.items).emit() {
            match content {
                ItemContent::Message { text, phase, .. } => {
                    let mark =
                        phase.map(|phase| self.opaque_chunk(before, calls.len(), OpaqueItem::Phase(phase)));
                    chunks.extend(mark.flatten());
                    before += text.len();
                }
                ItemContent::Reasoning(item) => {
                    chunks.extend(self.opaque_chunk(before, calls.len(), OpaqueItem::Reasoning(item)));
                }
                ItemContent::Call { name, .. } if name.is_empty() => {
                    return Err(http::invalid_reply(&self.endpoint, "a tool call has no name"));
                }
                ItemContent::Call { id, name, initial_arguments, arguments } => {
                    calls.push((
                        id,
                        name,
                        if arguments.trim().is_empty() { initial_arguments } else { arguments },
                    ));
                }
                ItemContent::Unknown => {}
            }
        }
        for (provider_id, name, arguments) in calls {
            chunks.push_call(stop, name, provider_id, arguments);
        }
        Ok(())
    }

    fn opaque_chunk(&self, text: usize, calls: usize, responses: OpaqueItem) -> Option<Chunk> {
        let (provider, model) = (self.endpoint.name().to_owned(), self.model.clone());
        serde_json::to_string(&OpaqueBlock { provider, model, text, calls, responses })
            .ok()
            .map(Chunk::Opaque)
    }
}

impl http::Decoder for Decoder {
    fn decode(&mut self, name: &str, data: &str, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        let event: Value = http::parse_event(&self.endpoint, data)?;
        let kind = text_field(&event, "type").unwrap_or_else(|| name.to_owned());
        self.handle_event(&kind, &event, chunks)
    }

    fn usage(&self, _text_bytes: usize) -> Usage {
        Usage::default()
    }

    fn end(&mut self, _chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        Err(http::truncated(&self.endpoint))
    }
}

/// Parses the usage. Input tokens include cached ones here, and output tokens include reasoning.
fn usage(value: &Value) -> Option<Usage> {
    let number = |path: &str| value.pointer(path).and_then(Value::as_u64);
    let input = number("/input_tokens")?;
    let cache_read = number("/input_tokens_details/cached_tokens").unwrap_or_default().min(input);
    let output = number("/output_tokens").unwrap_or_default();
    Some(Usage { input: input - cache_read, output, cache_read, cache_write: 0 })
}
