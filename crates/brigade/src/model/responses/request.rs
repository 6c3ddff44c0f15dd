//! Requests, byte for byte the same for the same conversation.

use std::borrow::Cow;

use brigade_core::{Message, Reply, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::super::Request;
use super::super::http::{arguments, call_ids};
use super::super::known::{reasons, takes_temperature};
use super::super::written::{Written, write};
use super::Dialect;

/// OpenAI refuses a smaller limit.
const LEAST_OUTPUT: u64 = 16;
/// How much of a hash names a cache.
const CACHE_KEY: usize = 32;
/// Reasoning that only OpenAI can read.
const SEALED: &str = "reasoning.encrypted_content";

/// Something that goes back to where it came from, at the place where it stood.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Only this provider gets it back.
    pub(super) provider: String,
    /// Only this model gets it back.
    pub(super) model: String,
    /// How many bytes of the text stand before it.
    pub(super) text: usize,
    /// How many calls stand before it.
    pub(super) calls: usize,
    pub(super) responses: Mark,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mark {
    /// An item of reasoning.
    Reasoning(Value),
    /// A message begins here, and this is its phase.
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
    /// Strict is what counts where nothing is said, and it refuses most schemas.
    strict: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Reasoning(Value),
    Own(OwnItem<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OwnItem<'a> {
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

/// The body of a request.
pub(super) fn body(
    request: &Request,
    dialect: Dialect,
    provider: &str,
    written: &Written,
) -> serde_json::Result<Vec<u8>> {
    let tools = written
        .tools(&request.tools, |tools| to_raw_value(&tools.iter().map(tool).collect::<Vec<Tool<'_>>>()))?;
    let own = dialect == Dialect::Own;
    let offered = (!request.tools.is_empty()).then_some(&*tools);
    let body = Body {
        model: &request.model,
        instructions: &request.system,
        input: items(request, provider),
        max_output_tokens: if own { request.max_tokens.max(LEAST_OUTPUT) } else { request.max_tokens },
        temperature: request.temperature.filter(|_| takes_temperature(&request.model)),
        include: if own && reasons(&request.model) { vec![SEALED] } else { Vec::new() },
        prompt_cache_key: own.then(|| cache_key(&request.system, &tools)),
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

/// Agents of one definition begin with the same bytes, so they are to meet in the same cache.
fn cache_key(system: &str, tools: &RawValue) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(system.as_bytes()).update(&[0]).update(tools.get().as_bytes());
    hash.finalize().to_hex().chars().take(CACHE_KEY).collect()
}

fn items<'a>(request: &'a Request, provider: &str) -> Vec<Item<'a>> {
    let mut items = Vec::with_capacity(request.messages.len());
    let mut ids = Vec::new();
    for (place, message) in request.messages.iter().enumerate() {
        match message {
            Message::User(text) => items.extend(words(Role::User, text.as_str(), None)),
            Message::Assistant(reply) => {
                ids = call_ids(place, reply);
                Assistant::new(reply, &ids).write(kept(reply, provider, &request.model), &mut items);
            }
            Message::Results(results) => {
                let ids = std::mem::take(&mut ids).into_iter();
                items.extend(ids.zip(results).map(|(call_id, result)| {
                    Item::Own(OwnItem::FunctionCallOutput { call_id, output: result.output.text.as_str() })
                }));
            }
        }
    }
    items
}

fn words(role: Role, content: &str, phase: Option<String>) -> Option<Item<'_>> {
    (!content.is_empty()).then_some(Item::Own(OwnItem::Message { role, content, phase }))
}

/// What this provider and model wants back of a reply, in order.
fn kept(reply: &Reply, provider: &str, model: &str) -> Vec<Kept> {
    let blocks = reply.opaque.iter().filter_map(|block| serde_json::from_str::<Kept>(block.as_str()).ok());
    blocks.filter(|kept| kept.provider == provider && kept.model == model).collect()
}

/// A reply that is written piece by piece.
struct Assistant<'a> {
    text: &'a str,
    calls: std::vec::IntoIter<OwnItem<'a>>,
    called: usize,
    phase: Option<String>,
    /// Reasoning that waits for what it led to; without that it is refused.
    reasoning: Vec<Value>,
}

impl<'a> Assistant<'a> {
    fn new(reply: &'a Reply, ids: &[Cow<'a, str>]) -> Assistant<'a> {
        let call = |(call, id): (&'a brigade_core::ToolCall, &Cow<'a, str>)| OwnItem::FunctionCall {
            call_id: id.clone(),
            name: &call.name,
            arguments: arguments(call.arguments.as_str()),
        };
        let calls: Vec<_> = reply.calls.iter().zip(ids).map(call).collect();
        Assistant {
            text: reply.text.as_str(),
            calls: calls.into_iter(),
            called: 0,
            phase: None,
            reasoning: Vec::new(),
        }
    }

    fn write(mut self, marks: Vec<Kept>, items: &mut Vec<Item<'a>>) {
        let whole = self.text.len();
        for Kept { text, calls, responses, .. } in marks {
            self.text_to(whole.saturating_sub(text), items);
            self.calls_to(calls, items);
            match responses {
                Mark::Reasoning(item) => self.reasoning.push(item),
                Mark::Phase(phase) => self.phase = Some(phase),
            }
        }
        self.text_to(0, items);
        self.calls_to(usize::MAX, items);
    }

    /// Writes text until so many bytes of it are left.
    fn text_to(&mut self, left: usize, items: &mut Vec<Item<'a>>) {
        let Some((now, later)) = self.text.split_at_checked(self.text.len().saturating_sub(left)) else {
            return;
        };
        self.text = later;
        if let Some(message) = words(Role::Assistant, now, self.phase.clone()) {
            items.extend(self.reasoning.drain(..).map(Item::Reasoning));
            items.push(message);
        }
    }

    /// Writes calls until so many were written.
    fn calls_to(&mut self, count: usize, items: &mut Vec<Item<'a>>) {
        while self.called < count {
            let Some(call) = self.calls.next() else { return };
            self.called += 1;
            items.extend(self.reasoning.drain(..).map(Item::Reasoning));
            items.push(Item::Own(call));
        }
    }
}
