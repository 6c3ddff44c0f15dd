//! Gemini requests. They are byte-for-byte reproducible for the same conversation.

use brigade_core::{Message, Reply, ToolCall, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::super::Request;
use super::super::http::arguments_object;
use super::super::tool_cache::{ToolCache, write};

/// Placeholder signature for calls made by another model, as documented by Google.
const SIGNATURE_PLACEHOLDER: &str = "skip_thought_signature_validator";

/// Opaque data that is sent back to the provider in its original position.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpaqueBlock {
    /// The provider that it came from.
    pub(super) provider: String,
    /// The model that it came from. Other models cannot read it.
    pub(super) model: String,
    pub(super) gemini: SignedPart,
}

/// A part with a signature.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SignedPart {
    /// The call with this number.
    Call { number: usize, signature: String },
    /// The text between these byte offsets, which may be empty.
    Text { from: usize, to: usize, signature: String },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Instruction<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    contents: Vec<Content<'a>>,
    generation_config: Generation,
}

#[derive(Serialize)]
struct Instruction<'a> {
    parts: [Part<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    /// `parameters` supports only a subset of JSON Schema and rejects the rest.
    parameters_json_schema: &'a Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Generation {
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

#[derive(Serialize)]
struct Content<'a> {
    role: Role,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Model,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(flatten)]
    data: PartData<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum PartData<'a> {
    Text(&'a str),
    FunctionCall(Call<'a>),
    FunctionResponse(Response<'a>),
}

#[derive(Serialize)]
struct Call<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    args: Box<RawValue>,
}

#[derive(Serialize)]
struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: ToolResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum ToolResponse<'a> {
    Output(&'a str),
    Error(&'a str),
}

/// Serializes the body of a request.
pub(super) fn body(request: &Request, provider: &str, tool_cache: &ToolCache) -> serde_json::Result<Vec<u8>> {
    let tools = tool_cache.tools(&request.tools, |tools| {
        let function_declarations = tools.iter().map(declaration).collect();
        to_raw_value(&[Tools { function_declarations }])
    })?;
    let tools = (!request.tools.is_empty()).then_some(&*tools);
    let body = Body {
        system_instruction: text(&request.system).map(|part| Instruction { parts: [part] }),
        tools,
        contents: contents(request, provider)?,
        generation_config: Generation {
            max_output_tokens: request.max_tokens,
            temperature: request.temperature,
        },
    };
    write(&body, request, tools)
}

fn declaration(spec: &ToolSpec) -> Declaration<'_> {
    let ToolSpec { name, description, schema, .. } = spec;
    Declaration { name, description, parameters_json_schema: schema }
}

fn contents<'a>(request: &'a Request, provider: &str) -> serde_json::Result<Vec<Content<'a>>> {
    let mut contents = Vec::with_capacity(request.messages.len());
    let mut calls: &[ToolCall] = &[];
    for message in &request.messages {
        let (role, parts) = match message {
            Message::User(message) => (Role::User, text(message.as_str()).into_iter().collect()),
            Message::Assistant(reply) => {
                calls = &reply.calls;
                (Role::Model, reply_parts(reply, provider, &request.model)?)
            }
            Message::Results(results) => {
                let parts = calls.iter().zip(results).map(|(call, result)| {
                    let output = result.output.text.as_str();
                    let response = if result.output.is_error() {
                        ToolResponse::Error(output)
                    } else {
                        ToolResponse::Output(output)
                    };
                    unsigned_part(PartData::FunctionResponse(Response {
                        id: id(call),
                        name: &call.name,
                        response,
                    }))
                });
                (Role::User, parts.collect())
            }
        };
        if !Vec::is_empty(&parts) {
            contents.push(Content { role, parts });
        }
    }
    Ok(contents)
}

fn unsigned_part(data: PartData<'_>) -> Part<'_> {
    Part { data, thought_signature: None }
}

/// Empty text parts are rejected by the API.
fn text(text: &str) -> Option<Part<'_>> {
    (!text.is_empty()).then_some(unsigned_part(PartData::Text(text)))
}

/// Calls without ids are matched to their results by order.
fn id(call: &ToolCall) -> Option<&str> {
    call.provider_id.as_deref().filter(|id| !id.is_empty())
}

/// Returns the parts of a reply, each with its signature.
fn reply_parts<'a>(reply: &'a Reply, provider: &str, name: &str) -> serde_json::Result<Vec<Part<'a>>> {
    let block =
        reply.opaque.iter().filter_map(|block| serde_json::from_str::<OpaqueBlock>(block.as_str()).ok());
    let block = block.filter(|block| block.provider == provider && block.model == name);
    let mut signatures = vec![None; reply.calls.len()];
    let (mut parts, mut written_bytes) = (Vec::new(), 0);
    for OpaqueBlock { gemini, .. } in block {
        match gemini {
            SignedPart::Call { number, signature } => {
                if let Some(place) = signatures.get_mut(number) {
                    *place = Some(signature);
                }
            }
            SignedPart::Text { from, to, signature } => {
                let whole = reply.text.as_str();
                if let (Some(before), Some(signed)) = (whole.get(written_bytes..from), whole.get(from..to)) {
                    parts.extend(text(before));
                    parts.push(Part { data: PartData::Text(signed), thought_signature: Some(signature) });
                    written_bytes = to;
                }
            }
        }
    }
    parts.extend(reply.text.as_str().get(written_bytes..).and_then(text));
    if let Some(first) = signatures.first_mut()
        && needs_signatures(name)
    {
        first.get_or_insert_with(|| SIGNATURE_PLACEHOLDER.to_owned());
    }
    for (call, thought_signature) in reply.calls.iter().zip(signatures) {
        let args = RawValue::from_string(arguments_object(call.arguments.as_str()).into_owned())?;
        let data = PartData::FunctionCall(Call { id: id(call), name: &call.name, args });
        parts.push(Part { data, thought_signature });
    }
    Ok(parts)
}

/// Since Gemini 3, a turn whose first call has no signature is rejected.
fn needs_signatures(model: &str) -> bool {
    let (_, name) = super::split_collection(model);
    name.starts_with("gemini-") && !["gemini-1", "gemini-2"].iter().any(|early| name.starts_with(early))
}
