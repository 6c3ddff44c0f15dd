//! Responses API: requests, replies and errors.

use std::sync::Arc;

use brigade::core::message::{CallResult, Stop};
use brigade::core::{CallId, Message, Reply, ToolOutput, Usage};
use brigade::model::responses::Responses;
use brigade::model::{Endpoint, ModelError, Request};
use serde_json::{Value, json};

use super::recorded::{RESPONSES_CALLS, RESPONSES_TEXT};
use super::server::{KEY, Server, ask, body, calls, question, request};

async fn reply_from(stream: &str) -> Result<(Reply, Usage), ModelError> {
    ask(&Server::streaming(stream).responses(), question()).await
}

fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// A terminal event with this output.
fn completed(output: &Value) -> Value {
    json!({ "type": "response.completed", "response": { "status": "completed", "output": output } })
}

const BOTH: [(&str, &str, Option<&str>); 2] =
    [("read", r#"{"path":"a"}"#, Some("call_a")), ("write", r#"{"path":"ü"}"#, Some("call_b"))];

#[tokio::test]
async fn text_reply_reports_usage() {
    let (reply, usage) = reply_from(RESPONSES_TEXT).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.stop), ("Grüße, cook.", Stop::End));
    assert_eq!(usage, Usage { input: 18, output: 7, cache_read: 32, cache_write: 0 });
    assert!(reply.opaque.is_empty());
}

#[tokio::test]
async fn interleaved_call_fragments_are_kept_apart() {
    let (reply, usage) = reply_from(RESPONSES_CALLS).await.unwrap();
    assert_eq!(calls(&reply), BOTH);
    assert_eq!((reply.text.as_str(), reply.stop), ("Ich schaue: ä", Stop::Calls));
    assert_eq!((usage.input, usage.output), (80, 30));
}

/// The recorded events without those of these types.
fn without(types: &[&str]) -> String {
    let events = RESPONSES_CALLS.split_inclusive("\n\n");
    events.filter(|event| !types.iter().any(|kind| event.contains(&format!("\"type\":\"{kind}\"")))).collect()
}

#[tokio::test]
async fn omitted_events_do_not_change_the_reply() {
    let (added, done) = ("response.output_item.added", "response.output_item.done");
    let (delta, whole) = ("response.function_call_arguments.delta", "response.function_call_arguments.done");
    let text = "response.output_text.delta";
    let left_out: [&[&str]; 6] = [
        &[added],
        &[done],
        &[delta, whole],
        &[added, text],
        &[added, done],
        &[added, done, delta, whole, text],
    ];
    for types in left_out {
        let (reply, _) = reply_from(&without(types)).await.unwrap();
        assert_eq!(calls(&reply), BOTH, "without {types:?}");
        assert_eq!(reply.text.as_str(), "Ich schaue: ä", "without {types:?}");
    }
    let (head, _) = RESPONSES_CALLS.split_once("event: response.completed").unwrap();
    let bare = stream(&[completed(&json!([]))]);
    let (reply, usage) = reply_from(&format!("{head}{bare}")).await.unwrap();
    assert_eq!(calls(&reply), BOTH, "the terminal event says nothing again");
    assert!(usage.input > 50 && usage.output > 5, "what nobody counts is estimated");
    let only_deltas: String = [&without(&[added, done, whole]).replace("\"output_index\"", "\"x\"")]
        .map(|stream| stream.split("event: response.completed").next().unwrap().to_owned())
        .concat();
    let received = reply_from(&format!("{only_deltas}{bare}")).await;
    assert!(matches!(received, Err(ModelError::Transient(_))), "calls without names: {received:?}");
}

#[tokio::test]
async fn calls_with_the_same_index_are_kept_apart() {
    let one = |id: &str, name: &str, path: &str| {
        let item = |arguments: &str| json!({ "type": "function_call", "id": id, "call_id": id, "name": name, "arguments": arguments });
        let all = format!(r#"{{"path":"{path}"}}"#);
        [
            json!({ "type": "response.output_item.added", "output_index": 0, "item": item("") }),
            json!({ "type": "response.function_call_arguments.delta", "output_index": 0, "delta": all }),
            json!({ "type": "response.output_item.done", "output_index": 0, "item": item(&all) }),
        ]
    };
    let events = [one("x", "read", "a"), one("y", "write", "b")].concat();
    let (reply, _) =
        reply_from(&stream(&[events.as_slice(), &[completed(&json!([]))]].concat())).await.unwrap();
    assert_eq!(
        calls(&reply),
        [("read", r#"{"path":"a"}"#, Some("x")), ("write", r#"{"path":"b"}"#, Some("y"))]
    );
}

#[tokio::test]
async fn calls_in_the_terminal_event_win() {
    let item = json!({ "type": "function_call", "call_id": "x", "name": "read", "arguments": "{\"path\":\"right\"}" });
    let wrong = json!({ "type": "response.output_item.done", "output_index": 0, "item":
        { "type": "function_call", "call_id": "x", "name": "read", "arguments": "{\"path\":\"wrong\"}" } });
    let (reply, _) = reply_from(&stream(&[wrong.clone(), completed(&json!([item]))])).await.unwrap();
    assert_eq!(calls(&reply), [("read", r#"{"path":"right"}"#, Some("x"))]);
    let (reply, _) = reply_from(&stream(&[wrong, completed(&json!([{ "type": "message", "content": [] }]))]))
        .await
        .unwrap();
    assert_eq!(calls(&reply).len(), 1, "a list without calls does not take them away");
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    let ended = async |kind: &str, details: Value| {
        let end = json!({ "type": kind, "response": { "incomplete_details": details, "output": [] } });
        let text = json!({ "type": "response.output_text.delta", "delta": "So" });
        reply_from(&stream(&[text, end])).await.unwrap().0.stop
    };
    assert_eq!(ended("response.completed", Value::Null).await, Stop::End);
    assert_eq!(ended("response.incomplete", json!({ "reason": "max_output_tokens" })).await, Stop::Length);
    assert_eq!(ended("response.completed", json!({ "reason": "max_output_tokens" })).await, Stop::Length);
    assert_eq!(ended("response.incomplete", json!({ "reason": "content_filter" })).await, Stop::Refusal);
    assert_eq!(ended("response.incomplete", Value::Null).await, Stop::Length);
    let refusal = json!({ "type": "response.refusal.delta", "delta": "I will not." });
    let (reply, _) = reply_from(&stream(&[refusal, completed(&json!([]))])).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.stop), ("I will not.", Stop::Refusal));
    let whole = json!([{ "type": "message", "content": [{ "type": "refusal", "refusal": "No." }] }]);
    let (reply, _) = reply_from(&stream(&[completed(&whole)])).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.stop), ("No.", Stop::Refusal));
    let begun = json!({ "type": "response.output_item.added", "output_index": 0, "item":
        { "type": "function_call", "call_id": "x", "name": "read", "arguments": "" } });
    for details in [Value::Null, json!({ "reason": "content_filter" })] {
        let cut = json!({ "type": "response.incomplete", "response": { "incomplete_details": details } });
        let (reply, _) = reply_from(&stream(&[begun.clone(), cut])).await.unwrap();
        assert_eq!(
            calls(&reply),
            [("read", "{", Some("x"))],
            "a call that was cut is not one without arguments"
        );
    }
}

#[tokio::test]
async fn errors_inside_a_stream_end_it() {
    let (begun, _) = RESPONSES_TEXT.split_once("event: response.output_text.done").unwrap();
    let with = async |event: Value| reply_from(&format!("{begun}{}", stream(&[event]))).await.unwrap_err();
    let failed = |code: &str| json!({ "type": "response.failed", "response": { "error": { "code": code, "message": format!("Not now {KEY}") } } });
    for code in ["server_error", "rate_limit_exceeded"] {
        let error = with(failed(code)).await;
        assert!(matches!(&error, ModelError::Transient(text) if text.contains("Not now (key)")), "{error:?}");
    }
    assert!(matches!(with(failed("invalid_prompt")).await, ModelError::Fatal(_)));
    assert!(matches!(with(failed("context_length_exceeded")).await, ModelError::Overflow(_)));
    let flat = |code: &str| json!({ "type": "error", "code": code, "message": "Odd", "param": null });
    assert!(matches!(with(flat("server_error")).await, ModelError::Transient(text) if text.contains("Odd")));
    assert!(matches!(with(flat("insufficient_quota")).await, ModelError::Fatal(_)));
    let nested = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "Bad" } });
    assert!(matches!(with(nested).await, ModelError::Fatal(text) if text.contains("Bad")));
    let bare = json!({ "error": { "code": 503, "message": "Loading" } });
    assert!(matches!(with(bare).await, ModelError::Transient(text) if text.contains("Loading")));
    assert!(matches!(with(json!("text")).await, ModelError::Transient(_)), "a stream without its end");
}

fn results() -> Message {
    let result = |index: u32, output: ToolOutput| CallResult {
        call: CallId { turn: 1, index },
        provider_id: None,
        name: "read".to_owned(),
        output,
    };
    Message::Results(vec![result(0, ToolOutput::ok("one")), result(1, ToolOutput::error("two"))])
}

#[tokio::test]
async fn request_returns_reasoning_in_its_position() {
    let (reply, _) = reply_from(RESPONSES_CALLS).await.unwrap();
    let server = Server::streaming(RESPONSES_TEXT);
    let messages = vec![
        Message::User("Look.".into()),
        Message::Assistant(Arc::new(reply)),
        results(),
        Message::User("Go on.".into()),
    ];
    ask(&server.responses(), request(messages)).await.unwrap();
    let body = server.body();
    assert_eq!((&body["model"], &body["instructions"]), (&json!("small"), &json!("You help.")));
    assert_eq!((&body["max_output_tokens"], &body["temperature"]), (&json!(321), &json!(0.5)));
    assert_eq!((&body["store"], &body["stream"]), (&json!(false), &json!(true)));
    assert!(body.get("include").is_none() && body.get("prompt_cache_key").is_none());
    assert_eq!((&body["tools"][1]["name"], &body["tools"][1]["strict"]), (&json!("write"), &json!(false)));
    assert_eq!(body["tools"][0]["parameters"]["properties"]["path"]["type"], "string");
    let call = |id: &str, name: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments });
    let output =
        |id: &str, text: &str| json!({ "type": "function_call_output", "call_id": id, "output": text });
    assert_eq!(
        body["input"],
        json!([
            { "type": "message", "role": "user", "content": "Look." },
            { "type": "reasoning", "id": "rs_1", "encrypted_content": "c2VhbGVk",
              "summary": [{ "type": "summary_text", "text": "Two files." }] },
            { "type": "message", "role": "assistant", "content": "Ich schaue: ä", "phase": "commentary" },
            call("call_a", "read", r#"{"path":"a"}"#),
            { "type": "reasoning", "id": "rs_2", "encrypted_content": "bW9yZQ==", "summary": [] },
            call("call_b", "write", r#"{"path":"ü"}"#),
            output("call_a", "one"),
            output("call_b", "two"),
            { "type": "message", "role": "user", "content": "Go on." },
        ])
    );
    let head = server.requests()[0].to_lowercase();
    assert!(head.starts_with("post /v1/responses http/1.1"));
    assert!(head.contains(&format!("authorization: bearer {KEY}")));
}

#[tokio::test]
async fn reasoning_is_returned_only_to_its_provider_and_model() {
    let (reply, _) = reply_from(RESPONSES_CALLS).await.unwrap();
    let server = Server::streaming(RESPONSES_TEXT);
    let again = || {
        request(vec![Message::User("Look.".into()), Message::Assistant(Arc::new(reply.clone())), results()])
    };
    let other = Responses::compatible(Endpoint::new("other", &server.url("/v1"), None).unwrap());
    ask(&other, again()).await.unwrap();
    ask(&server.responses(), Request { model: "large".to_owned(), ..again() }).await.unwrap();
    // These adapters cannot read the answer. Only the requests matter.
    ask(&server.openai(), again()).await.unwrap_err();
    ask(&server.gemini(), again()).await.unwrap_err();
    for request in server.requests() {
        assert!(request.contains("Ich schaue") && !request.contains("c2VhbGVk"), "{request}");
    }
    let alone = json!([{ "type": "reasoning", "id": "rs_9", "encrypted_content": "YWxvbmU=" }]);
    let (reply, _) = reply_from(&stream(&[completed(&alone)])).await.unwrap();
    assert_eq!(reply.opaque.len(), 1);
    let server = Server::streaming(RESPONSES_TEXT);
    let messages = vec![Message::Assistant(Arc::new(reply)), Message::User("And?".into())];
    ask(&server.responses(), request(messages)).await.unwrap();
    assert_eq!(
        server.body()["input"].as_array().unwrap().len(),
        1,
        "reasoning that led to nothing is refused"
    );
    let unsealed = json!([{ "type": "reasoning", "id": "rs_9", "summary": [] }]);
    let (reply, _) = reply_from(&stream(&[completed(&unsealed)])).await.unwrap();
    assert!(reply.opaque.is_empty(), "an id leads nowhere where nothing is stored");
}

#[tokio::test]
async fn invalid_reasoning_position_is_tolerated() {
    let (reply, _) = reply_from(RESPONSES_CALLS).await.unwrap();
    for text in ["ä", "", "Somethingä, and more"] {
        let server = Server::streaming(RESPONSES_TEXT);
        let other = Reply { text: text.into(), ..reply.clone() };
        let moved = other.opaque.iter().map(|block| block.as_str().replace("\"text\":", "\"text\":1").into());
        let other = Reply { opaque: moved.collect(), ..other.clone() };
        ask(&server.responses(), request(vec![Message::Assistant(Arc::new(other)), results()]))
            .await
            .unwrap();
        let input = server.body()["input"].as_array().unwrap().clone();
        let words: String = input.iter().filter_map(|item| item["content"].as_str()).collect();
        assert_eq!(words, text);
        assert_eq!(input.iter().filter(|item| item["type"] == "function_call").count(), 2);
    }
}

#[tokio::test]
async fn openai_request_asks_for_encrypted_reasoning_and_sets_cache_key() {
    let server = Server::streaming(RESPONSES_TEXT);
    let model = Responses::new(server.endpoint("/v1/"));
    let named = |model: &str| Request { model: model.to_owned(), max_tokens: 5, ..question() };
    ask(&model, named("gpt-5-mini")).await.unwrap();
    ask(&model, Request { messages: vec![Message::User("Else?".into())], ..named("gpt-5-mini") })
        .await
        .unwrap();
    ask(&model, Request { system: "You hinder.".into(), ..named("gpt-4.1") }).await.unwrap();
    ask(&model, Request { tools: [].into(), ..named("gpt-5-chat-latest") }).await.unwrap();
    let sent: Vec<Value> = server.requests().iter().map(|request| body(request)).collect();
    assert_eq!(sent[0]["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!((sent[0].get("temperature"), &sent[0]["max_output_tokens"]), (None, &json!(16)));
    for talking in [&sent[2], &sent[3]] {
        assert_eq!((talking.get("include"), &talking["temperature"]), (None, &json!(0.5)));
    }
    let key = |at: usize| sent[at]["prompt_cache_key"].as_str().unwrap();
    assert_eq!(key(0), key(1), "what begins alike shares a cache");
    assert!(key(0) != key(2) && key(0) != key(3) && key(0).len() == 32);
}
