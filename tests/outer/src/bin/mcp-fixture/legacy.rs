//! Tools that send requests to the client while they run, as in the older versions, and tools that need a
//! capability.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::*;
use serde_json::{Value, json};

use crate::fixture::{ToolCallRequest, from_json, text_result};

pub(crate) async fn call(call: ToolCallRequest) -> Result<CallToolResult, ErrorData> {
    match call.request.name.as_ref() {
        "test_tool_with_logging" | "test_logging_tool" => logging(&call).await,
        "test_tool_with_progress" => progress(&call).await,
        "test_sampling" => sampling(&call).await,
        "test_elicitation" => elicitation(&call).await,
        "test_elicitation_sep1034_defaults" => elicit(&call, with_defaults()).await,
        "test_elicitation_sep1330_enums" => elicit(&call, with_enums()).await,
        "test_missing_capability" if call.client().sampling.is_none() => {
            let required = from_json(json!({ "sampling": {} }));
            Err(ErrorData::missing_required_client_capability(required))
        }
        "test_missing_capability" | "test_streaming_elicitation" => Ok(text_result("done")),
        name => Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// Sends log messages to clients that requested them. In the newest version each request sets the level.
async fn logging(call: &ToolCallRequest) -> Result<CallToolResult, ErrorData> {
    let newest = call.context.protocol_version() >= Some(ProtocolVersion::V_2026_07_28);
    for words in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        if !newest || call.context.meta.log_level().is_some() {
            let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(words));
            let _ = call.context.peer.notify_logging_message(message).await;
        }
        pause().await;
    }
    Ok(text_result("Logged three times."))
}

async fn progress(call: &ToolCallRequest) -> Result<CallToolResult, ErrorData> {
    let token = call.context.meta.get_progress_token();
    for progress in [0.0, 50.0, 100.0] {
        if let Some(token) = &token {
            let step = ProgressNotificationParam::new(token.clone(), progress).with_total(100.0);
            let _ = call.context.peer.notify_progress(step).await;
        }
        pause().await;
    }
    Ok(text_result("Moved on three times."))
}

async fn sampling(call: &ToolCallRequest) -> Result<CallToolResult, ErrorData> {
    let content = json!({ "type": "text", "text": call.argument("prompt") });
    let params = json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 100 });
    let asked = call.context.peer.create_message(from_json(params)).await;
    let answer = asked.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let message = serde_json::to_value(&answer.message).unwrap_or_default();
    let text = message["content"]["text"].as_str().unwrap_or_default();
    Ok(text_result(format!("LLM response: {text}")))
}

/// Elicits input from the user. Returns the action and the content.
async fn ask(call: &ToolCallRequest, message: &str, schema: Value) -> Result<(String, Value), ErrorData> {
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(from_json(params)));
    let asked = call.context.peer.send_request(request).await;
    let answer = asked.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer = serde_json::to_value(&answer).unwrap_or_default();
    Ok((answer["action"].as_str().unwrap_or_default().to_owned(), answer["content"].clone()))
}

async fn elicitation(call: &ToolCallRequest) -> Result<CallToolResult, ErrorData> {
    let schema = json!({
        "type": "object",
        "properties": {
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" },
        },
        "required": ["username", "email"],
    });
    let message = call.argument("message");
    let (action, content) = ask(call, message.as_str().unwrap_or_default(), schema).await?;
    Ok(text_result(format!("User response: action: {action}, content: {content}")))
}

async fn elicit(call: &ToolCallRequest, properties: Value) -> Result<CallToolResult, ErrorData> {
    let schema = json!({ "type": "object", "properties": properties });
    let (action, content) = ask(call, "Please fill this in.", schema).await?;
    Ok(text_result(format!("Elicitation completed: action={action}, content={content}")))
}

fn with_defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

fn with_enums() -> Value {
    let options = json!(["option1", "option2", "option3"]);
    let titled = |ordinals: [&str; 3]| -> Vec<Value> {
        let numbered = ordinals.iter().enumerate();
        numbered
            .map(|(index, title)| json!({ "const": format!("value{}", index + 1), "title": title }))
            .collect()
    };
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": {
            "type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"]),
        },
        "legacyEnum": {
            "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": {
            "type": "array", "items": { "anyOf": titled(["First Choice", "Second Choice", "Third Choice"]) },
        },
    })
}
