//! Tests of the ACP validation: it accepts valid messages and reports errors in invalid ones.

#![expect(clippy::disallowed_methods, reason = "tests start processes")]

use std::io::Write;
use std::process::{Command, Stdio};

use brigade_outer_tests::{AcpSchema, Side, WireLine, WireLog, methods};
use serde_json::{Value, json};

fn wire(messages: &[(Side, Value)]) -> Vec<WireLine> {
    messages.iter().map(|(from, message)| WireLine { from: *from, text: message.to_string() }).collect()
}

fn request(id: u32, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn response(id: u32, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

fn update(update: Value) -> Value {
    notification("session/update", json!({ "sessionId": "s", "update": update }))
}

/// A complete prompt with a permission request, valid on both sides.
fn valid_conversation() -> Vec<WireLine> {
    let call = json!({ "toolCallId": "c", "title": "write", "kind": "edit", "status": "pending", "rawInput": { "any": 1 } });
    let mut begun = call.clone();
    begun["sessionUpdate"] = json!("tool_call");
    let options = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }]);
    let text = json!([{ "type": "text", "text": "go", "_meta": { "anything": true } }]);
    wire(&[
        (Side::Client, request(0, "initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }))),
        (
            Side::Agent,
            response(0, json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } })),
        ),
        (Side::Client, request(1, "session/new", json!({ "cwd": "/", "mcpServers": [] }))),
        (Side::Agent, response(1, json!({ "sessionId": "s" }))),
        (Side::Client, request(2, "session/prompt", json!({ "sessionId": "s", "prompt": text }))),
        (
            Side::Agent,
            update(
                json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "I" } }),
            ),
        ),
        (Side::Agent, update(begun)),
        (
            Side::Agent,
            request(
                0,
                "session/request_permission",
                json!({ "sessionId": "s", "toolCall": call, "options": options }),
            ),
        ),
        (Side::Client, response(0, json!({ "outcome": { "outcome": "selected", "optionId": "yes" } }))),
        (Side::Agent, request(1, "fs/read_text_file", json!({ "sessionId": "s", "path": "/x" }))),
        (
            Side::Client,
            json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32002, "message": "not there" } }),
        ),
        (Side::Agent, request(2, "_own/thing", json!({ "as": "it likes" }))),
        (
            Side::Client,
            json!({ "jsonrpc": "2.0", "id": 2, "error": { "code": -32601, "message": "no such method" } }),
        ),
        (Side::Client, notification("session/cancel", json!({ "sessionId": "s" }))),
        (Side::Agent, response(2, json!({ "stopReason": "cancelled" }))),
    ])
}

#[test]
fn valid_conversation_has_no_violations() {
    let schema = AcpSchema::load();
    for side in [Side::Client, Side::Agent] {
        assert_eq!(schema.violations(&valid_conversation(), side), Vec::<String>::new());
    }
    let sent = ["initialize", "session/new", "session/prompt", "session/cancel"];
    assert_eq!(methods(&valid_conversation(), Side::Client), sent);
}

#[test]
fn every_invalid_message_is_found() {
    let schema = AcpSchema::load();
    let prompt = |prompt: Value| request(9, "session/prompt", json!({ "sessionId": "s", "prompt": prompt }));
    let bad = [
        (Side::Client, request(9, "session/new", json!({ "cwd": "/" })), "mcpServers"),
        (Side::Client, request(9, "session/new", json!({ "cwd": "/", "mcpServers": [], "hop": 1 })), "hop"),
        (Side::Client, request(9, "session/tell", json!({})), "session/tell"),
        (Side::Client, request(9, "session/update", json!({})), "session/update"),
        (Side::Client, request(2, "session/new", json!({ "cwd": "/", "mcpServers": [] })), "second time"),
        (Side::Client, prompt(json!([{ "type": "text" }])), "text"),
        (Side::Client, prompt(json!([{ "type": "text", "text": "x", "colour": "red" }])), "colour"),
        (Side::Client, prompt(json!("go")), "array"),
        (Side::Client, response(7, json!({})), "answer to nothing"),
        (
            Side::Client,
            response(0, json!({ "outcome": { "outcome": "selected", "optionId": "yes" } })),
            "answer to nothing",
        ),
        (Side::Client, notification("session/cancel", json!({ "sessionId": 4 })), "string"),
        (Side::Client, json!({ "id": 9, "method": "session/list" }), "jsonrpc"),
        (Side::Client, json!({ "jsonrpc": "2.0" }), "neither method nor id"),
        (Side::Client, json!({ "jsonrpc": "2.0", "method": "_x", "session": 1 }), "session"),
        (Side::Client, json!([]), "not an object"),
        (
            Side::Agent,
            update(
                json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "txt", "text": "I" } }),
            ),
            "SessionNotification",
        ),
        (
            Side::Agent,
            update(
                json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "status": "running" }),
            ),
            "SessionNotification",
        ),
        (
            Side::Agent,
            update(json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "parent": "p" })),
            "SessionNotification",
        ),
        (Side::Agent, notification("session/updates", json!({})), "session/updates"),
        (
            Side::Agent,
            request(
                9,
                "session/request_permission",
                json!({ "sessionId": "s", "toolCall": { "toolCallId": "c" } }),
            ),
            "options",
        ),
    ];
    for (side, message, words) in bad {
        let mut lines = valid_conversation();
        lines.extend(wire(&[(side, message.clone())]));
        let violations = schema.violations(&lines, side);
        assert_eq!(violations.len(), 1, "{message}: {violations:?}");
        assert!(violations[0].contains(words), "{words}: {violations:?}");
        assert_eq!(schema.violations(&lines, side.other()), Vec::<String>::new(), "{message}");
    }
}

#[test]
fn responses_are_checked_against_the_request() {
    let schema = AcpSchema::load();
    for (method, params, result, words) in [
        ("fs/read_text_file", json!({ "sessionId": "s", "path": "/x" }), json!({}), "content"),
        ("fs/read_text_file", json!({ "sessionId": "s", "path": "/x" }), json!({ "content": 1 }), "string"),
        ("terminal/create", json!({ "sessionId": "s", "command": "ls" }), json!({ "id": "t" }), "terminalId"),
        (
            "session/request_permission",
            json!({}),
            json!({ "outcome": { "outcome": "yes" } }),
            "RequestPermissionResponse",
        ),
        ("_own/thing", json!({}), Value::Null, ""),
    ] {
        let lines = wire(&[(Side::Agent, request(5, method, params)), (Side::Client, response(5, result))]);
        let violations = schema.violations(&lines, Side::Client);
        assert_eq!(violations.is_empty(), words.is_empty(), "{method}: {violations:?}");
        assert!(violations.iter().all(|violation| violation.contains(words)), "{violations:?}");
    }
    let broken = [WireLine { from: Side::Client, text: "{\"jsonrpc\":".to_owned() }];
    assert_eq!(schema.violations(&broken, Side::Client).len(), 1);
}

#[test]
fn record_wire_logs_and_forwards_lines() {
    let folder = tempfile::tempdir().unwrap();
    let wire = WireLog::new(folder.path());
    let words = wire.wrap_command(&["sed", "-u", "s/ping/pong/"]);
    let mut command = Command::new(&words[0]);
    let mut child = command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a ping\nb\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"a pong\nb\n".as_slice()));
    let lines = wire.recorded();
    let [lines] = lines.as_slice() else { unreachable!("{lines:?}") };
    let by = |side| lines.iter().filter(move |line| line.from == side).map(|line| line.text.as_str());
    assert_eq!(by(Side::Client).collect::<Vec<_>>(), ["a ping", "b"]);
    assert_eq!(by(Side::Agent).collect::<Vec<_>>(), ["a pong", "b"]);
}
