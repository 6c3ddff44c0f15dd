//! Tools that need input from the client, as in the newest version of the protocol: the call returns the
//! required input, and the client repeats the call with it.

use rmcp::ErrorData;
use rmcp::model::*;
use serde_json::{Value, json};

use crate::fixture::{Fixture, ToolCallRequest, from_json, result, text_result};
use crate::jobs;

pub(crate) fn call(fixture: &Fixture, call: &ToolCallRequest) -> Result<CallToolResponse, ErrorData> {
    let name = call.request.name.trim_start_matches("test_input_required_result_");
    let state = state(call)?;
    let needed = match (name, state) {
        ("elicitation" | "test_tool_with_task", _) => {
            json!({ "user_name": form("What is your name?", "name") })
        }
        ("sampling", _) => json!({ "capital_question": sample("What is the capital of France?") }),
        ("list_roots", _) => json!({ "client_roots": roots() }),
        ("request_state" | "tampered_state", _) => json!({ "confirm": confirmation() }),
        ("multiple_inputs", _) => json!({
            "user_name": form("What is your name?", "name"),
            "greeting": sample("Generate a greeting"),
            "client_roots": roots(),
        }),
        ("multi_round", None) => json!({ "step1": form("Step 1: What is your name?", "name") }),
        ("multi_round", Some(_)) => json!({ "step2": form("Step 2: What is your favorite color?", "color") }),
        ("capabilities", _) => supported_inputs(&call.client()),
        _ => return Err(ErrorData::invalid_params("Unknown tool", None)),
    };
    let given = given(&needed, call.request.input_responses.as_ref());
    let Some(given) = given else { return Ok(input(needed, next_state(name, state)).into()) };
    match name {
        "test_tool_with_task" => {
            jobs::text_task(fixture, format!("Hello, {}!", field_text(&given, "user_name", "name")))
        }
        "elicitation" => {
            Ok(text_result(format!("Hello, {}!", field_text(&given, "user_name", "name"))).into())
        }
        "request_state" => Ok(text_result("state-ok").into()),
        _ => Ok(text_result(format!("Thank you for {given}")).into()),
    }
}

/// A prompt that needs a context.
pub(crate) fn prompt(responses: Option<&InputResponses>) -> GetPromptResponse {
    let needed = json!({ "user_context": form("What context should the prompt use?", "context") });
    let Some(given) = given(&needed, responses) else { return input(needed, None).into() };
    let text = format!("The context is {}.", field_text(&given, "user_context", "context"));
    let messages = json!([{ "role": "user", "content": { "type": "text", "text": text } }]);
    result::<GetPromptResult>(json!({ "messages": messages })).into()
}

fn input(needed: Value, state: Option<&str>) -> InputRequiredResult {
    InputRequiredResult::new(Some(from_json(needed)), state.map(str::to_owned))
}

/// Progress of a call with several rounds. It is one of two constants, so nothing depends on values that a
/// client invents.
#[derive(Clone, Copy)]
struct Round(&'static str);

const FIRST: Round = Round("after-the-first-round");
const SECOND: Round = Round("after-the-second-round");

fn state(call: &ToolCallRequest) -> Result<Option<Round>, ErrorData> {
    let Some(state) = &call.request.request_state else { return Ok(None) };
    let known = [FIRST, SECOND].into_iter().find(|round| round.0 == state);
    known.map(Some).ok_or_else(|| ErrorData::invalid_params("requestState is not what it was", None))
}

fn next_state(name: &str, state: Option<Round>) -> Option<&'static str> {
    match (name, state) {
        ("multi_round", Some(_)) => Some(SECOND.0),
        ("multi_round" | "request_state" | "tampered_state" | "multiple_inputs", _) => Some(FIRST.0),
        _ => None,
    }
}

/// The required input, if all of it was given. Other input is left out.
fn given(needed: &Value, responses: Option<&InputResponses>) -> Option<Value> {
    let keys = needed.as_object()?.keys();
    let pairs = keys.map(|key| {
        let response = responses?.get(key)?;
        response.is_object().then(|| (key.clone(), response.clone()))
    });
    pairs.collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
}

fn field_text<'a>(given: &'a Value, key: &str, field: &str) -> &'a str {
    given[key]["content"][field].as_str().unwrap_or_default()
}

pub(crate) fn form(message: &str, field: &str) -> Value {
    let schema =
        json!({ "type": "object", "properties": { field: { "type": "string" } }, "required": [field] });
    elicit(message, &schema)
}

pub(crate) fn confirmation() -> Value {
    let schema =
        json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"] });
    elicit("Please confirm", &schema)
}

fn elicit(message: &str, schema: &Value) -> Value {
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    json!({ "method": "elicitation/create", "params": params })
}

fn sample(question: &str) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": question } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": 100 } })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

fn supported_inputs(client: &ClientCapabilities) -> Value {
    let mut needed = serde_json::Map::new();
    if client.elicitation.is_some() {
        needed.insert("user_name".to_owned(), form("What is your name?", "name"));
    }
    if client.sampling.is_some() {
        needed.insert("greeting".to_owned(), sample("Generate a greeting"));
    }
    Value::Object(needed)
}
