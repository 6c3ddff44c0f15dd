//! Tools, resources and prompts, and their constant results.

use rmcp::model::*;
use serde_json::{Map, Value, json};

use crate::fixture::{from_json, result};

/// A single red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// An empty sound.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// Tools without declared arguments.
const WITHOUT_ARGUMENTS: [&str; 33] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_reconnection",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
    "test_tool_with_task",
    "failing_job",
    "protocol_error_job",
    "multi_input",
    "test_sampling",
    "test_elicitation",
    "confirm_delete",
    "slow_compute",
    "greet",
];

pub(crate) fn tools() -> Vec<Tool> {
    let tool = |name: &str, schema: Value| {
        from_json::<Tool>(
            json!({ "name": name, "description": format!("The tool {name}"), "inputSchema": schema }),
        )
    };
    let plain = WITHOUT_ARGUMENTS.iter().map(|name| tool(name, json!({ "type": "object" })));
    let with_header = json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        "required": ["region"],
    });
    plain
        .chain([
            tool("test_headers", with_header),
            tool("json_schema_2020_12_tool", schema_with_everything()),
        ])
        .collect()
}

/// A schema with the JSON Schema keywords that have to arrive unchanged.
fn schema_with_everything() -> Value {
    let text = json!({ "type": "string" });
    let address = json!({
        "$anchor": "addressDef", "type": "object", "properties": { "street": text, "city": text },
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": address },
        "properties": {
            "name": text, "address": { "$ref": "#/$defs/address" }, "phone": text, "email": text,
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

/// The result of a tool with a constant result.
pub(crate) fn fixed_result(name: &str) -> Option<CallToolResult> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let resource = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
    let content = match name {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image]),
        "test_audio_content" => json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]),
        "test_embedded_resource" => json!([resource(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content."
        )]),
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image,
            resource(
                "test://mixed-content-resource",
                "application/json",
                "{\"test\":\"data\",\"value\":123}"
            ),
        ]),
        "test_error_handling" => json!([text("This tool intentionally returns an error for testing")]),
        "test_reconnection" | "test_headers" | "json_schema_2020_12_tool" => json!([text("done")]),
        _ => return None,
    };
    Some(result(json!({ "content": content, "isError": name == "test_error_handling" })))
}

pub(crate) fn resources() -> Vec<Resource> {
    let resource = |name: &str, kind: &str| {
        let uri = format!("test://{name}");
        from_json(
            json!({ "uri": uri, "name": name, "description": format!("The resource {name}"), "mimeType": kind }),
        )
    };
    vec![
        resource("static-text", "text/plain"),
        resource("static-binary", "image/png"),
        resource("watched-resource", "text/plain"),
    ]
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = json!({
        "uriTemplate": "test://template/{id}/data", "name": "template", "description": "Data for an id",
        "mimeType": "application/json",
    });
    vec![from_json(template)]
}

/// The content of a resource.
pub(crate) fn content(uri: &str) -> Option<Value> {
    let text = |kind: &str, text: &str| json!({ "uri": uri, "mimeType": kind, "text": text });
    match uri.strip_prefix("test://")? {
        "static-text" => Some(text("text/plain", "This is the content of the static text resource.")),
        "static-binary" => Some(json!({ "uri": uri, "mimeType": "image/png", "blob": PNG })),
        "watched-resource" => Some(text("text/plain", "Watched.")),
        path => {
            let id = path.strip_prefix("template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            Some(text("application/json", &data.to_string()))
        }
    }
}

pub(crate) fn prompts() -> Vec<Prompt> {
    let prompt = |name: &str, arguments: &[&str]| {
        let argument = |name: &&str| json!({ "name": name, "description": format!("The argument {name}"), "required": true });
        let arguments: Vec<Value> = arguments.iter().map(argument).collect();
        from_json(
            json!({ "name": name, "description": format!("The prompt {name}"), "arguments": arguments }),
        )
    };
    vec![
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ]
}

pub(crate) fn messages(name: &str, arguments: &Map<String, Value>) -> Option<Value> {
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let user = |content: Value| json!({ "role": "user", "content": content });
    let text = |text: &str| user(json!({ "type": "text", "text": text }));
    match name {
        "test_simple_prompt" => Some(json!([text("This is a simple prompt for testing.")])),
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            Some(json!([text(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]))
        }
        "test_prompt_with_embedded_resource" => {
            let text_content = "Embedded resource content for testing.";
            let resource =
                json!({ "uri": argument("resourceUri"), "mimeType": "text/plain", "text": text_content });
            let embedded = user(json!({ "type": "resource", "resource": resource }));
            Some(json!([embedded, text("Please process the embedded resource above.")]))
        }
        "test_prompt_with_image" => {
            let image = user(json!({ "type": "image", "data": PNG, "mimeType": "image/png" }));
            Some(json!([image, text("Please analyze the image above.")]))
        }
        _ => None,
    }
}
