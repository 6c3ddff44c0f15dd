//! Chat Completions requests. They are byte-for-byte reproducible for the same conversation.

use std::borrow::Cow;

use brigade_core::{Message, Reply, ToolSpec};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::super::Request;
use super::super::http::{arguments_object, call_ids};
use super::super::quirks::{Dialect, accepts_temperature};
use super::super::tool_cache::{ToolCache, write};
use super::thought::{OpaqueBlock, Thought};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<ApiMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
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
enum ApiMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(flatten)]
        thought: Thought,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Value>,
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

/// Serializes the body of a request.
pub(super) fn body(
    request: &Request,
    dialect: Dialect,
    provider: &str,
    tool_cache: &ToolCache,
) -> serde_json::Result<Vec<u8>> {
    let tools = tool_cache
        .tools(&request.tools, |tools| to_raw_value(&tools.iter().map(tool).collect::<Vec<Tool<'_>>>()))?;
    let (max_tokens, max_completion_tokens) = match dialect {
        Dialect::OpenAi => (None, Some(request.max_tokens)),
        Dialect::Compatible => (Some(request.max_tokens), None),
    };
    let tools = (!request.tools.is_empty()).then_some(&*tools);
    let body = Body {
        model: &request.model,
        messages: api_messages(request, provider),
        tools,
        max_tokens,
        max_completion_tokens,
        temperature: request.temperature.filter(|_| accepts_temperature(&request.model)),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
    };
    write(&body, request, tools)
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    let function = Description { name: &spec.name, description: &spec.description, parameters: &spec.schema };
    Tool { r#type: "function", function }
}

fn api_messages<'a>(request: &'a Request, provider: &str) -> Vec<ApiMessage<'a>> {
    let mut api_messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        api_messages.push(ApiMessage::System { content: &request.system });
    }
    let (mut ids, mut is_called) = (Vec::new(), false);
    for (position, message) in request.messages.iter().enumerate() {
        match message {
            Message::User(text) => api_messages.push(ApiMessage::User { content: text.as_str() }),
            Message::Assistant(reply) => {
                ids = call_ids(position, reply);
                is_called |= !reply.calls.is_empty();
                // Some servers reject an empty reply.
                if !reply.text.is_empty() || !reply.calls.is_empty() {
                    let block =
                        if is_called { opaque_block(reply, provider) } else { OpaqueBlock::default() };
                    api_messages.push(assistant(reply, &ids, block));
                }
            }
            Message::Results(results) => {
                let ids = std::mem::take(&mut ids).into_iter();
                api_messages.extend(ids.zip(results).map(|(tool_call_id, result)| ApiMessage::Tool {
                    tool_call_id,
                    content: result.output.text.as_str(),
                }));
            }
        }
    }
    api_messages
}

/// Whether the model has called tools in this conversation. From then on DeepSeek needs all of its reasoning
/// back. Before that no server needs it, and some reject it.
pub(super) fn has_calls(request: &Request) -> bool {
    let mut replies = request.messages.iter();
    replies.any(|message| matches!(message, Message::Assistant(reply) if !reply.calls.is_empty()))
}

fn opaque_block(reply: &Reply, provider: &str) -> OpaqueBlock {
    let mut blocks =
        reply.opaque.iter().filter_map(|block| serde_json::from_str::<OpaqueBlock>(block.as_str()).ok());
    blocks.find(|block| block.provider == provider).unwrap_or_default()
}

fn assistant<'a>(reply: &'a Reply, ids: &[Cow<'a, str>], mut block: OpaqueBlock) -> ApiMessage<'a> {
    let calls = reply.calls.iter().zip(ids).enumerate();
    let call = |(number, (call, id)): (usize, (&'a brigade_core::ToolCall, &Cow<'a, str>))| Call {
        id: id.clone(),
        r#type: "function",
        function: Function { name: &call.name, arguments: arguments_object(call.arguments.as_str()) },
        extra_content: block.extra_content.remove(&number),
    };
    ApiMessage::Assistant {
        content: Some(reply.text.as_str()).filter(|text| !text.is_empty()),
        tool_calls: calls.map(call).collect(),
        thought: block.thought,
    }
}
