//! Decoder of Chat Completions streams.

use std::borrow::Cow;
use std::fmt;

use brigade_core::Usage;
use brigade_core::message::Stop;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::http::{self, ChunkBuffer, Endpoint};
use super::super::usage_estimate::CheckedUsage;
use super::super::{Chunk, ModelError};
use super::calls::{CallFragment, Calls};
use super::event_template::EventTemplate;
use super::thought::{self, OpaqueBlock, Thought};

// This runs for every token. It avoids flattening, duplicate structures and a list for a single choice. Rare
// fields are parsed only if present.

#[derive(Debug, Deserialize)]
struct StreamEvent<'a> {
    #[serde(borrow)]
    choices: Option<Choices<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    /// Groq's usage and errors.
    #[serde(borrow)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Groq-specific fields.
#[derive(Debug, Default, Deserialize)]
struct GroqExtra<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    finish_reason: Option<String>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    refusal: Option<String>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    reasoning_details: Option<Vec<Value>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallFragment<'a>>>,
}

impl<'a> StreamEvent<'a> {
    /// Returns the text of an event that contains nothing else, if it needs no unescaping.
    fn only_text(&self) -> Option<&'a str> {
        let StreamEvent { choices: Some(choices), usage: None, x_groq: None, error: None } = self else {
            return None;
        };
        let Choices { first: Some(choice), rest } = choices else { return None };
        let Choice { index: None | Some(0), delta: Some(delta), finish_reason: None, error: None } = choice
        else {
            return None;
        };
        match delta {
            Delta {
                content: Some(Content(Cow::Borrowed(text))),
                refusal: None,
                reasoning_content: None,
                reasoning: None,
                reasoning_details: None,
                tool_calls: None,
            } if rest.is_empty() && !text.is_empty() => Some(text),
            _ => None,
        }
    }
}

/// The choices of an event. Only one was requested.
#[derive(Debug, Default)]
struct Choices<'a> {
    first: Option<Choice<'a>>,
    rest: Vec<Choice<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Choices<'a>, D::Error> {
        deserializer.deserialize_seq(ChoicesVisitor)
    }
}

struct ChoicesVisitor;

impl<'de> Visitor<'de> for ChoicesVisitor {
    type Value = Choices<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of choices")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices<'de>, A::Error> {
        let first = list.next_element()?;
        let mut rest = Vec::new();
        while let Some(choice) = list.next_element()? {
            rest.push(choice);
        }
        Ok(Choices { first, rest })
    }
}

/// Text, or a list of parts that contain text.
#[derive(Debug)]
struct Content<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content<'a>, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text or a list of parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Content<'de>, E> {
        Ok(Content(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Content<'de>, E> {
        Ok(Content(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content<'de>, A::Error> {
        let mut text = String::new();
        while let Some(part) = parts.next_element::<Value>()? {
            text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
        }
        Ok(Content(Cow::Owned(text)))
    }
}

/// Decodes the events of one reply into chunks.
pub(in super::super) struct Decoder {
    endpoint: Endpoint,
    request_bytes: usize,
    calls: Calls,
    thought: Thought,
    template: EventTemplate,
    has_calls: bool,
    usage: Option<Usage>,
    refused: bool,
    finish: Option<String>,
}

impl Decoder {
    /// Creates a decoder for the reply to a request of this size. `has_calls` says whether the conversation
    /// contains tool calls.
    pub(in super::super) fn new(endpoint: Endpoint, request_bytes: usize, has_calls: bool) -> Decoder {
        Decoder {
            endpoint,
            request_bytes,
            calls: Calls::default(),
            thought: Thought::default(),
            template: EventTemplate::default(),
            has_calls,
            usage: None,
            refused: false,
            finish: None,
        }
    }

    fn choice(&mut self, choice: Choice<'_>, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        if let Some(error) = choice.error {
            return Err(http::stream_error(&self.endpoint, &value(error)));
        }
        let delta = choice.delta.unwrap_or_default();
        if let Some(Content(text)) = &delta.content {
            chunks.push_text(text);
        }
        if let Some(text) = delta.refusal.filter(|text| !text.is_empty()) {
            self.refused = true;
            chunks.push_text(&text);
        }
        let (reasoning_content, reasoning) =
            (delta.reasoning_content.and_then(read), delta.reasoning.and_then(read));
        let reasoning_details = delta.reasoning_details;
        self.thought.take(thought::ReasoningFragment { reasoning_content, reasoning, reasoning_details });
        for fragment in delta.tool_calls.unwrap_or_default() {
            self.calls.take(fragment);
        }
        let finish = choice.finish_reason.filter(|reason| !reason.is_empty());
        self.finish = self.finish.take().or(finish);
        Ok(())
    }

    /// Ends the reply and emits what was held back.
    fn finish(&mut self, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        let Some(reason) = self.finish.take() else { return Err(http::truncated(&self.endpoint)) };
        let stop = match reason.as_str() {
            "length" | "max_tokens" | "model_length" => Stop::Length,
            "content_filter" | "refusal" | "safety" => Stop::Refusal,
            "error" | "insufficient_system_resource" | "abort" => {
                return Err(http::invalid_reply(&self.endpoint, &format!("the reply ended with '{reason}'")));
            }
            // The finish reason and the content disagree on some servers. The content counts.
            _ if self.refused => Stop::Refusal,
            _ if self.calls.is_empty() => Stop::End,
            _ => Stop::Calls,
        };
        let reply_bytes = chunks.text_bytes() + self.thought.bytes() + self.calls.bytes();
        let counted = CheckedUsage::new(self.usage.unwrap_or_default(), self.request_bytes, reply_bytes);
        chunks.extend(self.opaque_chunk());
        self.calls.emit(stop, chunks).map_err(|cause| http::invalid_reply(&self.endpoint, cause))?;
        chunks.finish(counted, stop);
        Ok(())
    }

    /// Returns the data that the provider needs back.
    fn opaque_chunk(&mut self) -> Option<Chunk> {
        let thought = std::mem::take(&mut self.thought);
        let thought = if self.has_calls || !self.calls.is_empty() {
            thought.deduplicated()
        } else {
            Thought::default()
        };
        let extra_content = self.calls.extra_content();
        if thought.is_empty() && extra_content.is_empty() {
            return None;
        }
        let block = OpaqueBlock { provider: self.endpoint.name().to_owned(), thought, extra_content };
        serde_json::to_string(&block).ok().map(Chunk::Opaque)
    }
}

impl http::Decoder for Decoder {
    fn decode(&mut self, name: &str, data: &str, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        if let Some(text) = self.template.text(data).filter(|_| name.is_empty()) {
            chunks.push_text(text);
            return Ok(());
        }
        let decoded: StreamEvent<'_> = http::parse_event(&self.endpoint, data)?;
        if let Some(text) = decoded.only_text() {
            self.template.learn(data, text);
        }
        if let Some(error) = decoded.error {
            return Err(http::stream_error(&self.endpoint, &value(error)));
        }
        if name == "error" {
            let error = serde_json::from_str(data).unwrap_or_default();
            return Err(http::stream_error(&self.endpoint, &error));
        }
        let groq: GroqExtra<'_> = decoded.x_groq.and_then(read).unwrap_or_default();
        if let Some(error) = groq.error {
            return Err(http::stream_error(&self.endpoint, &value(error)));
        }
        if let Some(counted) = decoded.usage.and_then(usage).or_else(|| groq.usage.and_then(usage)) {
            self.usage = Some(counted);
        }
        let Choices { first, rest } = decoded.choices.unwrap_or_default();
        for choice in first.into_iter().chain(rest) {
            // Only one choice was requested.
            if choice.index.is_none_or(|index| index == 0) {
                self.choice(choice, chunks)?;
            }
        }
        Ok(())
    }

    fn usage(&self, _text_bytes: usize) -> Usage {
        self.usage.unwrap_or_default()
    }

    fn done(&mut self, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        self.finish(chunks)
    }

    fn end(&mut self, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        // Some servers omit the last event. The finish reason is the last part of a reply, so nothing is
        // missing.
        self.finish(chunks)
    }
}

/// Parses a rare field of an event.
fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn value(raw: &RawValue) -> Value {
    read(raw).unwrap_or_default()
}

/// Reported token counts. A count that is not a number is ignored, and the others remain valid.
#[derive(Debug, Default, Deserialize)]
struct UsageCounts<'a> {
    #[serde(borrow)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    total_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_cache_hit_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_write_tokens: Option<&'a RawValue>,
}

/// Parses the usage. Input tokens include cached ones here.
fn usage(raw: &RawValue) -> Option<Usage> {
    let number = |raw: Option<&RawValue>| raw?.get().parse::<u64>().ok();
    let counts: UsageCounts<'_> = read(raw)?;
    let details: Details<'_> = counts.prompt_tokens_details.and_then(read).unwrap_or_default();
    let input = number(counts.prompt_tokens)?;
    // Gateways in front of Gemini count thoughts only in the total.
    let beside_input = number(counts.total_tokens).unwrap_or_default().saturating_sub(input);
    let output = number(counts.completion_tokens).unwrap_or_default().max(beside_input);
    let cached = number(details.cached_tokens).or_else(|| number(counts.prompt_cache_hit_tokens));
    let cache_read = cached.unwrap_or_default().min(input);
    let written = number(details.cache_write_tokens).unwrap_or_default();
    let cache_write = written.min(input - cache_read);
    Some(Usage { input: input - cache_read - cache_write, output, cache_read, cache_write })
}
