//! Replies in the wire formats of the model APIs.

use brigade::core::Usage;
use serde_json::{Value, json};

use crate::http::HttpRequest;

/// A wire format of a model API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFormat {
    /// OpenAI's Chat Completions, which most servers support.
    ChatCompletions,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
    /// Gemini's `streamGenerateContent`.
    Gemini,
}

/// A reply of a model over HTTP.
///
/// ```
/// use brigade_testing::{ModelReply, WireFormat};
/// use serde_json::json;
///
/// let reply = ModelReply::text("I look.").call("read_file", json!({ "path": "notes.txt" }));
/// let stream = WireFormat::ChatCompletions.stream(&reply);
/// assert!(stream.ends_with("data: [DONE]\n\n"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    text: String,
    calls: Vec<(String, Value)>,
    usage: Usage,
}

impl ModelReply {
    /// Creates a reply with a text, which may be empty.
    pub fn text(text: impl Into<String>) -> ModelReply {
        let usage = Usage { input: 50, output: 10, ..Usage::default() };
        ModelReply { text: text.into(), calls: Vec::new(), usage }
    }

    /// Adds a tool call.
    pub fn call(mut self, tool: &str, arguments: Value) -> ModelReply {
        self.calls.push((tool.to_owned(), arguments));
        self
    }

    /// Sets the reported usage. By default it is 50 input and 10 output tokens.
    pub fn usage(mut self, usage: Usage) -> ModelReply {
        self.usage = usage;
        self
    }
}

impl WireFormat {
    /// All formats.
    pub const ALL: [WireFormat; 4] =
        [WireFormat::ChatCompletions, WireFormat::Responses, WireFormat::Messages, WireFormat::Gemini];

    /// Returns the format to which the path of a request belongs.
    pub fn of(request: &HttpRequest) -> Option<WireFormat> {
        let path = request.path().split('?').next().unwrap_or_default();
        let formats = [
            ("/chat/completions", WireFormat::ChatCompletions),
            ("/responses", WireFormat::Responses),
            ("/messages", WireFormat::Messages),
            (":streamGenerateContent", WireFormat::Gemini),
        ];
        formats.into_iter().find(|(end, _)| path.ends_with(end)).map(|(_, format)| format)
    }

    /// Encodes a reply as a complete event stream.
    pub fn stream(self, reply: &ModelReply) -> String {
        match self {
            WireFormat::ChatCompletions => chat_completions(reply),
            WireFormat::Responses => responses(reply),
            WireFormat::Messages => messages(reply),
            WireFormat::Gemini => gemini(reply),
        }
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// An event with its type as its name.
fn event(value: &Value) -> String {
    format!("event: {}\n{}", value["type"].as_str().unwrap_or_default(), data(value))
}

fn chat_completions(reply: &ModelReply) -> String {
    let choice = |delta: Value, finish: Option<&str>| {
        data(&json!({ "id": "c1", "object": "chat.completion.chunk",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }))
    };
    let mut stream = choice(json!({ "role": "assistant", "content": reply.text }), None);
    for (index, (name, arguments)) in reply.calls.iter().enumerate() {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        let call = json!({ "index": index, "id": format!("call_{index}"), "type": "function", "function": function });
        stream += &choice(json!({ "tool_calls": [call] }), None);
    }
    stream += &choice(json!({}), Some(if reply.calls.is_empty() { "stop" } else { "tool_calls" }));
    let Usage { input, output, cache_read, .. } = reply.usage;
    let usage = json!({ "prompt_tokens": input + cache_read, "completion_tokens": output,
        "prompt_tokens_details": { "cached_tokens": cache_read } });
    stream += &data(&json!({ "id": "c1", "choices": [], "usage": usage }));
    stream + "data: [DONE]\n\n"
}

fn responses(reply: &ModelReply) -> String {
    let begun = json!({ "id": "resp_1", "status": "in_progress", "output": [] });
    let mut stream = event(&json!({ "type": "response.created", "response": begun }));
    let mut output = Vec::new();
    let mut item = |begun: Value, delta: Value, done: Value| {
        let index = output.len();
        stream +=
            &event(&json!({ "type": "response.output_item.added", "output_index": index, "item": begun }));
        stream += &event(&delta);
        stream +=
            &event(&json!({ "type": "response.output_item.done", "output_index": index, "item": done }));
        output.push(done);
    };
    if !reply.text.is_empty() {
        let message = |status: &str, content: Value| json!({ "id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": content });
        let delta = json!({ "type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
            "content_index": 0, "delta": reply.text });
        let whole = json!([{ "type": "output_text", "annotations": [], "text": reply.text }]);
        item(message("in_progress", json!([])), delta, message("completed", whole));
    }
    for (index, (name, arguments)) in reply.calls.iter().enumerate() {
        let (id, arguments) = (format!("fc_{index}"), arguments.to_string());
        let call = |status: &str, arguments: &str| {
            json!({ "id": id, "type": "function_call", "status": status, "call_id": format!("call_{index}"),
                "name": name, "arguments": arguments })
        };
        let position = index + usize::from(!reply.text.is_empty());
        let delta = json!({ "type": "response.function_call_arguments.delta", "item_id": id,
            "output_index": position, "delta": arguments });
        item(call("in_progress", ""), delta, call("completed", &arguments));
    }
    let Usage { input, output: written, cache_read, .. } = reply.usage;
    let usage = json!({ "input_tokens": input + cache_read, "output_tokens": written,
        "input_tokens_details": { "cached_tokens": cache_read } });
    let whole = json!({ "id": "resp_1", "status": "completed", "output": output, "usage": usage });
    stream + &event(&json!({ "type": "response.completed", "response": whole }))
}

fn messages(reply: &ModelReply) -> String {
    let Usage { input, output, cache_read, cache_write } = reply.usage;
    let usage = json!({ "input_tokens": input, "cache_read_input_tokens": cache_read,
        "cache_creation_input_tokens": cache_write, "output_tokens": 1 });
    let message =
        json!({ "id": "m1", "type": "message", "role": "assistant", "content": [], "usage": usage });
    let mut stream = event(&json!({ "type": "message_start", "message": message }));
    let mut blocks = 0;
    let mut block = |begun: Value, delta: Value| {
        let index = blocks;
        blocks += 1;
        stream += &event(&json!({ "type": "content_block_start", "index": index, "content_block": begun }));
        stream += &event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        stream += &event(&json!({ "type": "content_block_stop", "index": index }));
    };
    if !reply.text.is_empty() {
        block(json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": reply.text }));
    }
    for (index, (name, arguments)) in reply.calls.iter().enumerate() {
        let begun = json!({ "type": "tool_use", "id": format!("toolu_{index}"), "name": name, "input": {} });
        block(begun, json!({ "type": "input_json_delta", "partial_json": arguments.to_string() }));
    }
    let reason = if reply.calls.is_empty() { "end_turn" } else { "tool_use" };
    let (delta, usage) = (json!({ "stop_reason": reason }), json!({ "output_tokens": output }));
    stream += &event(&json!({ "type": "message_delta", "delta": delta, "usage": usage }));
    stream + &event(&json!({ "type": "message_stop" }))
}

fn gemini(reply: &ModelReply) -> String {
    let mut parts = Vec::new();
    if !reply.text.is_empty() {
        parts.push(json!({ "text": reply.text }));
    }
    for (index, (name, arguments)) in reply.calls.iter().enumerate() {
        parts
            .push(json!({ "functionCall": { "id": format!("fc{index}"), "name": name, "args": arguments } }));
    }
    let Usage { input, output, cache_read, .. } = reply.usage;
    let candidate =
        json!({ "content": { "parts": parts, "role": "model" }, "finishReason": "STOP", "index": 0 });
    let usage = json!({ "promptTokenCount": input + cache_read, "cachedContentTokenCount": cache_read,
        "candidatesTokenCount": output });
    data(&json!({ "candidates": [candidate], "usageMetadata": usage }))
}
