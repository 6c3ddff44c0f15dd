//! Messages API: requests, replies and errors.

use std::sync::Arc;

use brigade::core::message::{CallResult, Stop};
use brigade::core::{CallId, Message, Reply, ToolOutput, Usage};
use brigade::model::anthropic::Anthropic;
use brigade::model::{Endpoint, ModelError, Request};
use serde_json::{Value, json};

use super::recorded::{ANTHROPIC_CALLS, ANTHROPIC_TEXT};
use super::server::{KEY, Server, ask, body, calls, question, request};

async fn reply_from(stream: &str) -> Result<(Reply, Usage), ModelError> {
    ask(&Server::streaming(stream).anthropic(), question()).await
}

#[tokio::test]
async fn text_reply_reports_usage() {
    let (reply, usage) = reply_from(ANTHROPIC_TEXT).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.stop), ("Grüße, cook.", Stop::End));
    assert_eq!(usage, Usage { input: 11, output: 9, cache_read: 300, cache_write: 20 });
}

#[tokio::test]
async fn calls_and_thinking_are_decoded() {
    let (reply, usage) = reply_from(ANTHROPIC_CALLS).await.unwrap();
    assert_eq!(
        calls(&reply),
        [("read", r#"{"path":"a"}"#, Some("toolu_1")), ("write", "{}", Some("toolu_2"))]
    );
    assert_eq!((reply.stop, usage.input, usage.output), (Stop::Calls, 41, 25));
    let blocks: Vec<Value> =
        reply.opaque.iter().map(|block| serde_json::from_str(block.as_str()).unwrap()).collect();
    let thinking = json!({ "type": "thinking", "thinking": "Two files.", "signature": "c2ln" });
    assert_eq!((&blocks[0]["messages"], &blocks[0]["provider"]), (&thinking, &json!("mock")));
    assert_eq!(blocks[1]["messages"], json!({ "type": "redacted_thinking", "data": "b3BhcXVl" }));
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    let stop = async |reason: &str| {
        let stream = ANTHROPIC_TEXT.replace("end_turn", reason);
        reply_from(&stream).await.unwrap().0.stop
    };
    assert_eq!(stop("max_tokens").await, Stop::Length);
    assert_eq!(stop("refusal").await, Stop::Refusal);
    assert_eq!(stop("model_context_window_exceeded").await, Stop::Length);
    assert_eq!(stop("stop_sequence").await, Stop::End);
    assert_eq!(stop("pause_turn").await, Stop::End);
    for (reason, stop) in [("max_tokens", Stop::Length), ("refusal", Stop::Refusal)] {
        let cut = ANTHROPIC_CALLS.replace("\"tool_use\"}", &format!("\"{reason}\"}}"));
        let (reply, _) = reply_from(&cut).await.unwrap();
        assert_eq!((reply.stop, calls(&reply)[1].1), (stop, "{"));
    }
}

#[tokio::test]
async fn later_zero_counts_do_not_lower_usage() {
    let zeros = r#""usage":{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":9}"#;
    let stream = ANTHROPIC_TEXT.replace(r#""usage":{"output_tokens":9}"#, zeros);
    assert_ne!(stream, ANTHROPIC_TEXT);
    let (_, usage) = reply_from(&stream).await.unwrap();
    assert_eq!(usage, Usage { input: 11, output: 9, cache_read: 300, cache_write: 20 });
}

#[tokio::test]
async fn thinking_is_returned_only_to_its_own_provider() {
    let (reply, _) = reply_from(ANTHROPIC_CALLS).await.unwrap();
    let server = Server::streaming(ANTHROPIC_TEXT);
    let other = Anthropic::new(Endpoint::new("other", &server.url(""), None).unwrap());
    ask(&other, request(conversation(reply))).await.unwrap();
    let content = &server.body()["messages"][1]["content"];
    assert_eq!((content.as_array().unwrap().len(), &content[0]["type"]), (2, &json!("tool_use")));
}

#[tokio::test]
async fn newer_models_get_no_temperature() {
    let server = Server::streaming(ANTHROPIC_TEXT);
    let asked = Request { model: "claude-opus-4-7".to_owned(), ..question() };
    ask(&server.anthropic(), asked).await.unwrap();
    assert!(server.body().get("temperature").is_none());
}

#[tokio::test]
async fn errors_inside_a_stream_end_it() {
    let (begun, _) = ANTHROPIC_TEXT.split_once("event: message_delta").unwrap();
    let with = |kind: &str| {
        let error = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"Not now {KEY}"}}}}"#);
        format!("{begun}event: error\ndata: {error}\n\n")
    };
    for kind in ["overloaded_error", "api_error", "rate_limit_error", "timeout_error"] {
        let error = reply_from(&with(kind)).await.unwrap_err();
        assert!(matches!(&error, ModelError::Transient(text) if text.contains("Not now (key)")), "{error:?}");
    }
    for kind in ["invalid_request_error", "authentication_error", "permission_error", "not_found_error"] {
        let error = reply_from(&with(kind)).await.unwrap_err();
        assert!(matches!(&error, ModelError::Fatal(text) if !text.contains(KEY)), "{error:?}");
    }
    let early = ANTHROPIC_TEXT.replace(r#"{"stop_reason":"end_turn","stop_sequence":null}"#, "{}");
    assert!(matches!(reply_from(&early).await, Err(ModelError::Transient(_))), "nobody said why it stopped");
    let open = ANTHROPIC_TEXT.replace("content_block_stop", "ping");
    assert!(matches!(reply_from(&open).await, Err(ModelError::Transient(_))), "a block was left open");
    let long =
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#;
    let server = Server::failing("400 Bad Request", "", long);
    let error = ask(&server.anthropic(), question()).await.unwrap_err();
    assert!(matches!(&error, ModelError::Overflow(text) if text.contains("context window")), "{error:?}");
}

/// A conversation with the recorded calls, their results and a message after them.
fn conversation(reply: Reply) -> Vec<Message> {
    let result = |index: u32, output: ToolOutput| CallResult {
        call: CallId { turn: 1, index },
        provider_id: None,
        name: "read".to_owned(),
        output,
    };
    let results = vec![result(0, ToolOutput::ok("one")), result(1, ToolOutput::error("two"))];
    vec![
        Message::User("Look.".into()),
        Message::Assistant(Arc::new(reply)),
        Message::Results(results),
        Message::User("Go on.".into()),
    ]
}

#[tokio::test]
async fn request_contains_the_conversation_and_cache_marks() {
    let (reply, _) = reply_from(ANTHROPIC_CALLS).await.unwrap();
    let server = Server::streaming(ANTHROPIC_TEXT);
    ask(&server.anthropic(), request(conversation(reply))).await.unwrap();
    let body = server.body();
    let mark = json!({ "type": "ephemeral" });
    assert_eq!((&body["model"], &body["max_tokens"]), (&json!("small"), &json!(321)));
    assert_eq!((&body["temperature"], &body["stream"]), (&json!(0.5), &json!(true)));
    assert_eq!(body["system"], json!([{ "type": "text", "text": "You help.", "cache_control": mark }]));
    assert_eq!((body["tools"][0].get("cache_control"), &body["tools"][1]["cache_control"]), (None, &mark));
    assert_eq!(body["tools"][0]["input_schema"]["properties"]["path"]["type"], "string");
    assert_eq!(
        body["messages"],
        json!([
            { "role": "user", "content": [{ "type": "text", "text": "Look." }] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "Two files.", "signature": "c2ln" },
                { "type": "redacted_thinking", "data": "b3BhcXVl" },
                { "type": "tool_use", "id": "toolu_1", "name": "read", "input": { "path": "a" } },
                { "type": "tool_use", "id": "toolu_2", "name": "write", "input": {} },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_1", "content": "one", "is_error": false },
                { "type": "tool_result", "tool_use_id": "toolu_2", "content": "two", "is_error": true },
                { "type": "text", "text": "Go on.", "cache_control": mark },
            ] },
        ])
    );
    let head = server.requests()[0].to_lowercase();
    assert!(head.starts_with("post /v1/messages http/1.1"));
    assert!(head.contains(&format!("x-api-key: {KEY}")) && head.contains("anthropic-version: 2023-06-01"));
}

#[tokio::test]
async fn request_without_tools_still_declares_called_tools() {
    let (reply, _) = reply_from(ANTHROPIC_CALLS).await.unwrap();
    let server = Server::streaming(ANTHROPIC_TEXT);
    let asked =
        || Request { tools: [].into(), temperature: Some(1.5), ..request(conversation(reply.clone())) };
    ask(&Anthropic::new(server.endpoint("/v1/")), asked()).await.unwrap();
    ask(&server.anthropic(), asked()).await.unwrap();
    let sent: Vec<Value> = server.requests().iter().map(|request| body(request)).collect();
    assert_eq!(sent[0], sent[1], "the same conversation gives the same bytes");
    let names: Vec<_> = sent[0]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["read", "write"]);
    assert_eq!((&sent[0]["tool_choice"], &sent[0]["temperature"]), (&json!({ "type": "none" }), &json!(1.0)));
}
