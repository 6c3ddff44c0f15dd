//! Tool definitions.

use std::sync::Arc;

use brigade_core::{ToolSpec, usage_report};
use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

pub(super) const STATUS: &str = "session_status";
pub(super) const TELL: &str = "tell";
pub(super) const STOP: &str = "stop";
const READ_RESULT: &str = "read_result";

/// The definition of a delegation tool.
pub(super) fn delegation_tool(spec: &ToolSpec) -> Tool {
    let mut loan = MetaObject::new();
    usage_report::declare_loan(&mut loan);
    tool(&spec.name, &spec.description, spec.schema.clone()).with_meta(loan)
}

/// The definitions of the session tools.
pub(super) fn session_tools() -> [Tool; 4] {
    let session = json!({ "type": "string", "description": "Session id of a call, or of an agent below it" });
    let status = tool(
        STATUS,
        "Show the state of a session: its agents, their cost and pending approvals. Omit `session_id` to list the newest \
         sessions started here.",
        json!({ "type": "object", "properties": { "session_id": session } }),
    );
    let tell = tool(
        TELL,
        "Send a message to a running agent. The agent reads it before its next turn.",
        json!({
            "type": "object",
            "properties": {
                "session_id": session,
                "text": { "type": "string", "description": "The message" }
            },
            "required": ["session_id", "text"]
        }),
    );
    let stop = tool(
        STOP,
        "Stop a session and all agents below it. Their work so far is kept.",
        json!({ "type": "object", "properties": { "session_id": session }, "required": ["session_id"] }),
    );
    let read = tool(
        READ_RESULT,
        "Read the result of a session, in parts if it is long. Also works after the call that started it has ended.",
        json!({
            "type": "object",
            "properties": {
                "session_id": session,
                "offset": { "type": "integer", "minimum": 0, "description": "First byte (default 0)" },
                "limit": { "type": "integer", "minimum": 1, "description": "Number of bytes (maximum 16384)" }
            },
            "required": ["session_id"]
        }),
    );
    let read_only = ToolAnnotations::new().read_only(true);
    [status.with_annotations(read_only.clone()), tell, stop, read.with_annotations(read_only)]
}

fn tool(name: &str, description: &str, schema: Value) -> Tool {
    let schema = match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    };
    Tool::new(name.to_owned(), description.to_owned(), Arc::new(schema))
}
