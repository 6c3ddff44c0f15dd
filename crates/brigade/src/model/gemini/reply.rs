//! Decoder of Gemini streams.

use brigade_core::Usage;
use brigade_core::message::Stop;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::http::{self, ChunkBuffer, Endpoint};
use super::super::usage_estimate::CheckedUsage;
use super::super::{Chunk, ModelError};
use super::request::{OpaqueBlock, SignedPart};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StreamEvent {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<UsageCounts>,
    error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
    block_reason_message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Candidate {
    index: Option<u64>,
    content: Option<Content>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Content {
    parts: Option<Vec<Part>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Part {
    text: Option<String>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    function_call: Option<Call>,
}

#[derive(Debug, Default, Deserialize)]
struct Call {
    id: Option<String>,
    name: Option<String>,
    args: Option<Box<RawValue>>,
}

/// Token counts. The prompt includes cached tokens; thoughts are counted separately from the answer.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct UsageCounts {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

/// Decodes the events of one reply into chunks.
pub(in super::super) struct Decoder {
    endpoint: Endpoint,
    model: String,
    request_bytes: usize,
    /// Bytes of thoughts and calls.
    other_bytes: usize,
    calls: Vec<(Option<String>, String, String)>,
    signed: Vec<SignedPart>,
    count: UsageCounts,
    finish: Option<(String, String)>,
    blocked: Option<String>,
}

impl Decoder {
    /// Creates a decoder for this model's reply to a request of this size.
    pub(in super::super) fn new(endpoint: Endpoint, model: String, request_bytes: usize) -> Decoder {
        Decoder {
            endpoint,
            model,
            request_bytes,
            other_bytes: 0,
            calls: Vec::new(),
            signed: Vec::new(),
            count: UsageCounts::default(),
            finish: None,
            blocked: None,
        }
    }

    fn candidate(&mut self, candidate: Candidate, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
            self.part(part, chunks)?;
        }
        // Some models send a finish reason with every chunk. It does not end the reply, and the last one
        // counts.
        if let Some(reason) = candidate.finish_reason.filter(|reason| !reason.is_empty()) {
            self.finish = Some((reason, candidate.finish_message.unwrap_or_default()));
        }
        Ok(())
    }

    fn part(&mut self, part: Part, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        let signature = part.thought_signature.filter(|signature| !signature.is_empty());
        if let Some(call) = part.function_call {
            let Some(name) = call.name.filter(|name| !name.is_empty()) else {
                return Err(http::invalid_reply(&self.endpoint, "a tool call has no name"));
            };
            let number = self.calls.len();
            self.signed.extend(signature.map(|signature| SignedPart::Call { number, signature }));
            let arguments = call.args.as_deref().map(RawValue::get).filter(|args| *args != "null");
            let arguments = arguments.unwrap_or_default().to_owned();
            self.other_bytes += name.len() + arguments.len();
            self.calls.push((call.id.filter(|id| !id.is_empty()), name, arguments));
            return Ok(());
        }
        let text = part.text.unwrap_or_default();
        if part.thought == Some(true) {
            self.other_bytes += text.len();
            return Ok(());
        }
        let (from, to) = (chunks.text_bytes(), chunks.text_bytes() + text.len());
        self.signed.extend(signature.map(|signature| SignedPart::Text { from, to, signature }));
        chunks.push_text(&text);
        Ok(())
    }

    /// Ends the reply and emits what was held back.
    fn finish(&mut self, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        let stop = match (self.blocked.take(), self.finish.take()) {
            (Some(why), _) => {
                let name = self.endpoint.name();
                return Err(ModelError::Fatal(format!(
                    "{name} blocked the request before it reached the model: {why}. A retry would not help."
                )));
            }
            (None, Some((reason, message))) => self.stop(&reason, &message)?,
            (None, None) => return Err(http::truncated(&self.endpoint)),
        };
        for gemini in std::mem::take(&mut self.signed) {
            let (provider, model) = (self.endpoint.name().to_owned(), self.model.clone());
            let block = serde_json::to_string(&OpaqueBlock { provider, model, gemini });
            chunks.extend(block.ok().map(Chunk::Opaque));
        }
        for (provider_id, name, arguments) in std::mem::take(&mut self.calls) {
            chunks.push_call(stop, name, provider_id, arguments);
        }
        chunks.finish(self.checked_usage(chunks.text_bytes()), stop);
        Ok(())
    }

    fn stop(&self, reason: &str, message: &str) -> Result<Stop, ModelError> {
        Ok(match reason {
            "MAX_TOKENS" => Stop::Length,
            "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => {
                Stop::Refusal
            }
            "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS"
            | "MALFORMED_RESPONSE"
            | "MISSING_THOUGHT_SIGNATURE"
            | "OTHER" => {
                let separator = if message.is_empty() { "" } else { ": " };
                let message = serde_json::json!({
                    "message": format!("the reply ended with '{reason}'{separator}{message}")
                });
                return Err(http::stream_error(&self.endpoint, &message));
            }
            _ if self.calls.is_empty() => Stop::End,
            _ => Stop::Calls,
        })
    }

    /// Returns the reported usage, with estimates for missing counts.
    fn checked_usage(&self, text_bytes: usize) -> CheckedUsage {
        let UsageCounts { prompt_token_count, tool_use_prompt_token_count, .. } = self.count;
        let prompt = prompt_token_count.unwrap_or_default();
        let input = prompt.saturating_add(tool_use_prompt_token_count.unwrap_or_default());
        let cache_read = self.count.cached_content_token_count.unwrap_or_default().min(input);
        let thoughts = self.count.thoughts_token_count.unwrap_or_default();
        let output = self.count.candidates_token_count.unwrap_or_default().saturating_add(thoughts);
        let counted = Usage { input: input - cache_read, output, cache_read, cache_write: 0 };
        CheckedUsage::new(counted, self.request_bytes, text_bytes + self.other_bytes)
    }
}

impl http::Decoder for Decoder {
    fn decode(&mut self, _name: &str, data: &str, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        // An error may arrive as a list with one element.
        let decoded: StreamEvent = if data.starts_with('[') {
            http::parse_event::<Vec<StreamEvent>>(&self.endpoint, data)?
                .into_iter()
                .next()
                .unwrap_or_default()
        } else {
            http::parse_event(&self.endpoint, data)?
        };
        if let Some(error) = decoded.error.filter(|error| !error.is_null()) {
            return Err(http::stream_error(&self.endpoint, &error));
        }
        self.count.merge(decoded.usage_metadata);
        if let Some(Feedback { block_reason: Some(reason), block_reason_message }) = decoded.prompt_feedback {
            let message = block_reason_message.map(|message| format!(" ({message})")).unwrap_or_default();
            self.blocked = Some(format!("{reason}{message}"));
        }
        for candidate in decoded.candidates.unwrap_or_default() {
            // Only one candidate was requested.
            if candidate.index.is_none_or(|index| index == 0) {
                self.candidate(candidate, chunks)?;
            }
        }
        Ok(())
    }

    fn usage(&self, text_bytes: usize) -> Usage {
        self.checked_usage(text_bytes).usage
    }

    fn end(&mut self, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        // There is no terminal event. A finish reason and a complete body take its place.
        self.finish(chunks)
    }
}

impl UsageCounts {
    fn merge(&mut self, later: Option<UsageCounts>) {
        let later = later.unwrap_or_default();
        self.prompt_token_count = later.prompt_token_count.or(self.prompt_token_count);
        self.tool_use_prompt_token_count =
            later.tool_use_prompt_token_count.or(self.tool_use_prompt_token_count);
        self.cached_content_token_count =
            later.cached_content_token_count.or(self.cached_content_token_count);
        self.candidates_token_count = later.candidates_token_count.or(self.candidates_token_count);
        self.thoughts_token_count = later.thoughts_token_count.or(self.thoughts_token_count);
    }
}
