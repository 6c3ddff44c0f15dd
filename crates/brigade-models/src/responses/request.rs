//! Responses requests. They are byte-for-byte reproducible for the same conversation.

use std::borrow::Cow;

use brigade_core::{Message, Reply, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::super::Request;
use super::super::http::{arguments_object, call_ids};
use super::super::quirks::{Dialect, accepts_temperature, is_reasoning_model};
use super::super::tool_cache::{ToolCache, write};

/// OpenAI rejects a smaller limit.
const MIN_OUTPUT_TOKENS: u64 = 16;
/// Length of the hash in a prompt cache key.
const CACHE_KEY_CHARS: usize = 32;
/// Requests encrypted reasoning, which only OpenAI can read.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// Opaque data that is sent back to the provider in its original position.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpaqueBlock {
    /// The provider that it came from.
    pub(super) provider: String,
    /// The model that it came from.
    pub(super) model: String,
    /// Bytes of text before it.
    pub(super) text: usize,
    /// Number of calls before it.
    pub(super) calls: usize,
    pub(super) responses: OpaqueItem,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OpaqueItem {
    /// A reasoning item.
    Reasoning(Value),
    /// The start of a message with this phase.
    Phase(String),
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    input: Vec<Item<'a>>,
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    store: bool,
    stream: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// Strict mode is the default and rejects most schemas.
    strict: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Reasoning(Value),
    Typed(TypedItem<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TypedItem<'a> {
    Message {
        role: Role,
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    FunctionCall {
        call_id: Cow<'a, str>,
        name: &'a str,
        arguments: Cow<'a, str>,
    },
    FunctionCallOutput {
        call_id: Cow<'a, str>,
        output: &'a str,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
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
    let is_openai = dialect == Dialect::OpenAi;
    let offered = (!request.tools.is_empty()).then_some(&*tools);
    let body = Body {
        model: &request.model,
        instructions: &request.system,
        input: items(request, provider),
        max_output_tokens: if is_openai {
            request.max_tokens.max(MIN_OUTPUT_TOKENS)
        } else {
            request.max_tokens
        },
        temperature: request.temperature.filter(|_| accepts_temperature(&request.model)),
        include: if is_openai && is_reasoning_model(&request.model) {
            vec![ENCRYPTED_REASONING]
        } else {
            Vec::new()
        },
        prompt_cache_key: is_openai.then(|| cache_key(&request.system, &tools)),
        tools: offered,
        store: false,
        stream: true,
    };
    write(&body, request, offered)
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    let ToolSpec { name, description, schema, .. } = spec;
    Tool { r#type: "function", name, description, parameters: schema, strict: false }
}

/// Agents of the same definition share a prompt prefix, so they should share a cache.
fn cache_key(system: &str, tools: &RawValue) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(system.as_bytes()).update(&[0]).update(tools.get().as_bytes());
    hash.finalize().to_hex().chars().take(CACHE_KEY_CHARS).collect()
}

fn items<'a>(request: &'a Request, provider: &str) -> Vec<Item<'a>> {
    let mut items = Vec::with_capacity(request.messages.len());
    let mut ids = Vec::new();
    for (position, message) in request.messages.iter().enumerate() {
        match message {
            Message::User(text) => items.extend(message_item(Role::User, text.as_str(), None)),
            Message::Assistant(reply) => {
                ids = call_ids(position, reply);
                Assistant::new(reply, &ids).write(opaque_blocks(reply, provider, &request.model), &mut items);
            }
            Message::Results(results) => {
                let ids = std::mem::take(&mut ids).into_iter();
                items.extend(ids.zip(results).map(|(call_id, result)| {
                    Item::Typed(TypedItem::FunctionCallOutput {
                        call_id,
                        output: result.output.text.as_str(),
                    })
                }));
            }
        }
    }
    items
}

fn message_item(role: Role, content: &str, phase: Option<String>) -> Option<Item<'_>> {
    (!content.is_empty()).then_some(Item::Typed(TypedItem::Message { role, content, phase }))
}

/// Returns the opaque data of a reply that belongs to this provider and model, in order.
fn opaque_blocks(reply: &Reply, provider: &str, model: &str) -> Vec<OpaqueBlock> {
    let blocks =
        reply.opaque.iter().filter_map(|block| serde_json::from_str::<OpaqueBlock>(block.as_str()).ok());
    blocks.filter(|block| block.provider == provider && block.model == model).collect()
}

/// A reply that is written in pieces.
struct Assistant<'a> {
    text: &'a str,
    calls: std::vec::IntoIter<TypedItem<'a>>,
    written_calls: usize,
    phase: Option<String>,
    /// Reasoning that waits for the item it led to. The API rejects it without one.
    reasoning: Vec<Value>,
}

impl<'a> Assistant<'a> {
    fn new(reply: &'a Reply, ids: &[Cow<'a, str>]) -> Assistant<'a> {
        let call = |(call, id): (&'a brigade_core::ToolCall, &Cow<'a, str>)| TypedItem::FunctionCall {
            call_id: id.clone(),
            name: &call.name,
            arguments: arguments_object(call.arguments.as_str()),
        };
        let calls: Vec<_> = reply.calls.iter().zip(ids).map(call).collect();
        Assistant {
            text: reply.text.as_str(),
            calls: calls.into_iter(),
            written_calls: 0,
            phase: None,
            reasoning: Vec::new(),
        }
    }

    fn write(mut self, blocks: Vec<OpaqueBlock>, items: &mut Vec<Item<'a>>) {
        let whole = self.text.len();
        for OpaqueBlock { text, calls, responses, .. } in blocks {
            self.write_text_until(whole.saturating_sub(text), items);
            self.write_calls_until(calls, items);
            match responses {
                OpaqueItem::Reasoning(item) => self.reasoning.push(item),
                OpaqueItem::Phase(phase) => self.phase = Some(phase),
            }
        }
        self.write_text_until(0, items);
        self.write_calls_until(usize::MAX, items);
    }

    /// Writes text until `left` bytes of it remain.
    fn write_text_until(&mut self, left: usize, items: &mut Vec<Item<'a>>) {
        let Some((now, later)) = self.text.split_at_checked(self.text.len().saturating_sub(left)) else {
            return;
        };
        self.text = later;
        if let Some(message) = message_item(Role::Assistant, now, self.phase.clone()) {
            items.extend(self.reasoning.drain(..).map(Item::Reasoning));
            items.push(message);
        }
    }

    /// Writes calls until `count` are written.
    fn write_calls_until(&mut self, count: usize, items: &mut Vec<Item<'a>>) {
        while self.written_calls < count {
            let Some(call) = self.calls.next() else { return };
            self.written_calls += 1;
            items.extend(self.reasoning.drain(..).map(Item::Reasoning));
            items.push(Item::Typed(call));
        }
    }
}
