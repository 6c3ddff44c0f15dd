//! Requests, byte for byte the same for the same conversation.

use std::borrow::Cow;

use brigade_core::{Message, Reply, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::Request;
use super::super::http::{arguments, call_ids};
use super::Dialect;

/// Models of OpenAI that reason. They refuse a temperature.
const REASONING: [&str; 5] = ["o1", "o3", "o4", "gpt-5", "codex"];
/// One of the family that only talks.
const TALKING: &str = "gpt-5-chat";

/// Reasoning that a provider wants back with the calls that it led to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reasoning {
    /// Only this provider gets it back.
    pub(super) provider: String,
    pub(super) reasoning_content: String,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Line<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Line<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: Cow<'a, str>,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Description<'a>,
}

#[derive(Serialize)]
struct Description<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// The body of a request.
pub(super) fn body(request: &Request, dialect: Dialect, provider: &str) -> serde_json::Result<Vec<u8>> {
    let (max_tokens, max_completion_tokens) = match dialect {
        Dialect::Own => (None, Some(request.max_tokens)),
        Dialect::Compatible => (Some(request.max_tokens), None),
    };
    serde_json::to_vec(&Body {
        model: &request.model,
        messages: lines(request, provider),
        tools: request.tools.iter().map(tool).collect(),
        max_tokens,
        max_completion_tokens,
        temperature: request.temperature.filter(|_| !reasons(&request.model)),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
    })
}

/// Whether a model is one of OpenAI's that reason. OpenRouter puts the maker before the name.
pub(in super::super) fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !name.starts_with(TALKING) && REASONING.iter().any(|family| name.starts_with(family))
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    let function = Description { name: &spec.name, description: &spec.description, parameters: &spec.schema };
    Tool { r#type: "function", function }
}

fn lines<'a>(request: &'a Request, provider: &str) -> Vec<Line<'a>> {
    let mut lines = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        lines.push(Line::System { content: &request.system });
    }
    let mut ids = Vec::new();
    for (place, message) in request.messages.iter().enumerate() {
        match message {
            Message::User(text) => lines.push(Line::User { content: text.as_str() }),
            Message::Assistant(reply) => {
                ids = call_ids(place, reply);
                // A reply of nothing is refused by some.
                if !reply.text.is_empty() || !reply.calls.is_empty() {
                    lines.push(assistant(reply, &ids, provider));
                }
            }
            Message::Results(results) => {
                let ids = std::mem::take(&mut ids).into_iter();
                lines.extend(ids.zip(results).map(|(tool_call_id, result)| Line::Tool {
                    tool_call_id,
                    content: result.output.text.as_str(),
                }));
            }
        }
    }
    lines
}

fn assistant<'a>(reply: &'a Reply, ids: &[Cow<'a, str>], provider: &str) -> Line<'a> {
    let call = |(call, id): (&'a brigade_core::ToolCall, &Cow<'a, str>)| Call {
        id: id.clone(),
        r#type: "function",
        function: Function { name: &call.name, arguments: arguments(call.arguments.as_str()) },
    };
    let reasoning = reply.opaque.iter().find_map(|block| {
        let block: Reasoning = serde_json::from_str(block.as_str()).ok()?;
        (block.provider == provider).then_some(block.reasoning_content)
    });
    Line::Assistant {
        content: Some(reply.text.as_str()).filter(|text| !text.is_empty()),
        // Without calls nobody needs it, and some refuse it.
        reasoning_content: reasoning.filter(|_| !reply.calls.is_empty()),
        tool_calls: reply.calls.iter().zip(ids).map(call).collect(),
    }
}
