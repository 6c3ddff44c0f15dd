//! Messages requests with cache breakpoints. They are byte-for-byte reproducible for the same conversation.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use brigade_core::{Message, Reply, ToolSpec};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::super::Request;
use super::super::http::{arguments_object, call_ids};
use super::super::quirks::accepts_temperature;
use super::super::tool_cache::{ToolCache, write};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Arc<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    messages: Vec<ApiMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    stream: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    r#type: &'static str,
}

const CACHE: CacheControl = CacheControl { r#type: "ephemeral" };

#[derive(Serialize)]
struct ApiMessage<'a> {
    role: Role,
    content: Vec<Block<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Block<'a> {
    Opaque(&'a RawValue),
    Typed(TypedBlock<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TypedBlock<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: &'a str,
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

/// Serializes the body of a request.
pub(super) fn body(request: &Request, provider: &str, tool_cache: &ToolCache) -> serde_json::Result<Vec<u8>> {
    let mut messages = api_messages(&request.messages, provider)?;
    // If tools are offered, another turn is likely, and it will read the whole conversation again.
    if !request.tools.is_empty()
        && let Some(Block::Typed(last)) = messages.last_mut().and_then(|line| line.content.last_mut())
    {
        last.mark_cached();
    }
    let (tools, tool_choice) = match request.tools.is_empty() {
        true => stubs(request)?,
        false => (Some(tool_cache.tools(&request.tools, tools)?), None),
    };
    let offered = tools.clone();
    let body = Body {
        model: &request.model,
        max_tokens: request.max_tokens,
        system: text(&request.system, Some(CACHE)).into_iter().collect(),
        tools,
        tool_choice,
        messages,
        // This API rejects values above 1.
        temperature: request
            .temperature
            .filter(|_| accepts_temperature(&request.model))
            .map(|temperature| temperature.min(1.0)),
        stream: true,
    };
    write(&body, request, offered.as_deref())
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    let ToolSpec { name, description, schema, .. } = spec;
    Tool { name, description, input_schema: Cow::Borrowed(schema), cache_control: None }
}

fn tools(specs: &[ToolSpec]) -> serde_json::Result<Box<RawValue>> {
    let mut tools: Vec<Tool<'_>> = specs.iter().map(tool).collect();
    if let Some(last) = tools.last_mut() {
        last.cache_control = Some(CACHE);
    }
    to_raw_value(&tools)
}

/// The API rejects a conversation with tool calls but no tools. The tools that were called are declared, and
/// their use is disabled.
fn stubs(request: &Request) -> serde_json::Result<(Option<Arc<RawValue>>, Option<Value>)> {
    let calls = request.messages.iter().flat_map(|message| match message {
        Message::Assistant(reply) => reply.calls.as_slice(),
        Message::User(_) | Message::Results(_) => &[],
    });
    let names: BTreeSet<&str> = calls.map(|call| call.name.as_str()).collect();
    let stub = |name| Tool {
        name,
        description: "No longer available.",
        input_schema: Cow::Owned(json!({ "type": "object" })),
        cache_control: None,
    };
    let stubs: Vec<Tool<'_>> = names.into_iter().map(stub).collect();
    if stubs.is_empty() {
        return Ok((None, None));
    }
    Ok((Some(to_raw_value(&stubs)?.into()), Some(json!({ "type": "none" }))))
}

/// Converts messages to alternating roles. Consecutive messages of the same role are merged.
fn api_messages<'a>(messages: &'a [Message], provider: &str) -> serde_json::Result<Vec<ApiMessage<'a>>> {
    let mut api_messages: Vec<ApiMessage<'_>> = Vec::with_capacity(messages.len());
    let mut ids = Vec::new();
    for (position, message) in messages.iter().enumerate() {
        let (role, content) = match message {
            Message::User(words) => (Role::User, text(words.as_str(), None).into_iter().collect()),
            Message::Assistant(reply) => {
                ids = call_ids(position, reply);
                (Role::Assistant, assistant(reply, &ids, provider)?)
            }
            Message::Results(results) => {
                let ids = std::mem::take(&mut ids).into_iter();
                let blocks = ids.zip(results).map(|(tool_use_id, result)| {
                    Block::Typed(TypedBlock::ToolResult {
                        tool_use_id,
                        content: result.output.text.as_str(),
                        is_error: result.output.is_error(),
                        cache_control: None,
                    })
                });
                (Role::User, blocks.collect())
            }
        };
        match api_messages.last_mut() {
            Some(last) if last.role == role => last.content.extend(content),
            Some(_) | None if content.is_empty() => {}
            Some(_) | None => api_messages.push(ApiMessage { role, content }),
        }
    }
    Ok(api_messages)
}

/// Empty text blocks are rejected by the API.
fn text(text: &str, cache_control: Option<CacheControl>) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Typed(TypedBlock::Text { text, cache_control }))
}

fn assistant<'a>(
    reply: &'a Reply,
    ids: &[Cow<'a, str>],
    provider: &str,
) -> serde_json::Result<Vec<Block<'a>>> {
    let mut blocks: Vec<Block<'a>> =
        reply.opaque.iter().filter_map(|block| opaque(block.as_str(), provider)).map(Block::Opaque).collect();
    blocks.extend(text(reply.text.as_str(), None));
    for (call, id) in reply.calls.iter().zip(ids) {
        let input = RawValue::from_string(arguments_object(call.arguments.as_str()).into_owned())?;
        blocks.push(Block::Typed(TypedBlock::ToolUse { id: id.clone(), name: &call.name, input }));
    }
    Ok(blocks)
}

/// Returns a block that this provider sent. Blocks of other providers are omitted.
fn opaque<'a>(text: &'a str, provider: &str) -> Option<&'a RawValue> {
    #[derive(serde::Deserialize)]
    struct OpaqueBlock<'a> {
        #[serde(borrow)]
        provider: Cow<'a, str>,
        #[serde(borrow)]
        messages: &'a RawValue,
    }
    let block: OpaqueBlock<'a> = serde_json::from_str(text).ok()?;
    (block.provider == provider).then_some(block.messages)
}

impl TypedBlock<'_> {
    /// Marks the end of the prefix that the provider should cache.
    fn mark_cached(&mut self) {
        match self {
            TypedBlock::Text { cache_control, .. } | TypedBlock::ToolResult { cache_control, .. } => {
                *cache_control = Some(CACHE);
            }
            TypedBlock::ToolUse { .. } => {}
        }
    }
}
