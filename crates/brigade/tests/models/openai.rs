//! Chat Completions API: requests, replies, and the variants of compatible servers.

use std::sync::Arc;

use brigade::core::message::{CallResult, Stop};
use brigade::core::{CallId, Message, Price, Reply, ToolCall, ToolOutput, Usage};
use brigade::model::openai::OpenAi;
use brigade::model::{Endpoint, Model, ModelError, Request};
use serde_json::{Value, json};

use super::recorded::{OPENAI_CALLS, OPENAI_TEXT};
use super::server::{KEY, Server, ask, calls, question, reply_from, request};
use super::streams::{delta, openai, openai_without_end};

#[tokio::test]
async fn text_reply_reports_usage() {
    let (reply, usage) = reply_from(OPENAI_TEXT).await.unwrap();
    assert_eq!(reply.text.as_str(), "Grüße, cook.");
    assert_eq!(reply.stop, Stop::End);
    assert_eq!(usage, Usage { input: 18, output: 7, cache_read: 32, cache_write: 0 });
}

#[tokio::test]
async fn interleaved_call_fragments_are_kept_apart() {
    let (reply, _) = reply_from(OPENAI_CALLS).await.unwrap();
    assert_eq!(
        calls(&reply),
        [("read", r#"{"path":"a"}"#, Some("call_a")), ("write", r#"{"path":"ü"}"#, Some("call_b"))]
    );
    assert_eq!(reply.stop, Stop::Calls);
}

#[tokio::test]
async fn calls_are_decoded_in_all_server_formats() {
    let read = ("read", r#"{"path":"a"}"#);
    let write = ("write", r#"{"path":"b"}"#);
    let one = |index: &str, id: &str, name: &str, path: &str| {
        format!(
            r#"{{"tool_calls":[{{{index}{id}"function":{{"name":"{name}","arguments":"{{\"path\":\"{path}\"}}"}}}}]}}"#
        )
    };
    let cases = [
        ("no index, no id", one("", "", "read", "a"), one("", "", "write", "b")),
        (
            "one index for all",
            one(r#""index":0,"#, r#""id":"x","#, "read", "a"),
            one(r#""index":0,"#, r#""id":"y","#, "write", "b"),
        ),
        (
            "one index for all and no id",
            one(r#""index":0,"#, "", "read", "a"),
            one(r#""index":0,"#, "", "write", "b"),
        ),
        (
            "empty ids",
            one(r#""index":0,"#, r#""id":"","#, "read", "a"),
            one(r#""index":1,"#, r#""id":"","#, "write", "b"),
        ),
    ];
    for (what, first, second) in cases {
        // Ollama sends the finish reason "stop" with calls.
        let stream = openai(&[&delta(&first, ""), &delta(&second, "stop")]);
        let (reply, usage) = reply_from(&stream).await.unwrap();
        let received: Vec<_> = calls(&reply).iter().map(|(name, arguments, _)| (*name, *arguments)).collect();
        assert_eq!(received, [read, write], "{what}");
        assert_eq!(reply.stop, Stop::Calls, "{what}");
        assert!(usage.input > 50 && usage.output > 5, "{what}: what nobody counts is estimated");
    }
}

#[tokio::test]
async fn repeated_names_and_object_arguments_are_accepted() {
    let repeated = [
        delta(
            r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"read","arguments":"{\"path\""}}]}"#,
            "",
        ),
        delta(
            r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"read","arguments":":\"a\"}"}}]}"#,
            "",
        ),
        delta(
            r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"read","arguments":""}}]}"#,
            "tool_calls",
        ),
    ];
    let (reply, _) = reply_from(&openai(&repeated.each_ref().map(String::as_str))).await.unwrap();
    assert_eq!(calls(&reply), [("read", r#"{"path":"a"}"#, Some("x"))]);
    let object = delta(r#"{"tool_calls":[{"function":{"name":"read","arguments":{"path":"a"}}}]}"#, "stop");
    let (reply, _) = reply_from(&openai(&[&object])).await.unwrap();
    assert_eq!(calls(&reply), [("read", r#"{"path":"a"}"#, None)]);
}

#[tokio::test]
async fn last_of_several_usage_reports_wins() {
    let counted = |text: &str, output: u64, finish: &str| {
        let event = delta(&format!(r#"{{"content":"{text}"}}"#), finish);
        format!(
            r#"{},"usage":{{"prompt_tokens":90,"completion_tokens":{output}}}}}"#,
            &event[..event.len() - 1]
        )
    };
    let stream = openai(&[&counted("a", 1, ""), &counted("b", 2, "stop")]);
    let (reply, usage) = reply_from(&stream).await.unwrap();
    assert_eq!((reply.text.as_str(), usage.input, usage.output), ("ab", 90, 2));
}

#[tokio::test]
async fn finish_reason_ends_a_complete_body_without_done_event() {
    let events = openai_without_end(&[&delta(r#"{"content":"Hi"}"#, "stop")]);
    assert_eq!(reply_from(&events).await.unwrap().0.text.as_str(), "Hi");
    let open = openai_without_end(&[&delta(r#"{"content":"Hi"}"#, "")]);
    assert!(matches!(reply_from(&open).await, Err(ModelError::Transient(_))));
    let only_done = openai(&[&delta(r#"{"content":"Hi"}"#, "")]);
    assert!(
        matches!(reply_from(&only_done).await, Err(ModelError::Transient(_))),
        "a gateway ended what was cut"
    );
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    let stop = async |delta_text: &str, finish: &str| {
        reply_from(&openai(&[&delta(delta_text, finish)])).await.unwrap().0.stop
    };
    assert_eq!(stop(r#"{"content":"x"}"#, "length").await, Stop::Length);
    assert_eq!(stop(r#"{"content":"x"}"#, "content_filter").await, Stop::Refusal);
    assert_eq!(stop(r#"{"refusal":"I will not."}"#, "stop").await, Stop::Refusal);
    assert_eq!(stop(r#"{"content":"x"}"#, "eos").await, Stop::End);
    for reason in ["length", "content_filter"] {
        let cut = delta(r#"{"tool_calls":[{"index":0,"function":{"name":"read"}}]}"#, reason);
        let (reply, _) = reply_from(&openai(&[&cut])).await.unwrap();
        assert_eq!(calls(&reply), [("read", "{", None)], "a call that was cut is not one without arguments");
    }
}

#[tokio::test]
async fn tokens_only_in_the_total_count_as_output() {
    let counted = async |usage: &str| {
        let count = format!(r#"{{"choices":[],"usage":{usage}}}"#);
        let usage = reply_from(&openai(&[&delta(r#"{"content":"x"}"#, "stop"), &count])).await.unwrap().1;
        (usage.input, usage.output)
    };
    assert_eq!(
        counted(r#"{"prompt_tokens":100,"completion_tokens":5,"total_tokens":205}"#).await,
        (100, 105)
    );
    assert_eq!(counted(r#"{"prompt_tokens":100,"completion_tokens":5,"total_tokens":105}"#).await, (100, 5));
    assert_eq!(counted(r#"{"prompt_tokens":100,"completion_tokens":5,"total_tokens":3}"#).await, (100, 5));
}

#[tokio::test]
async fn request_contains_the_whole_conversation() {
    let server = Server::streaming(OPENAI_TEXT);
    let call = |id: Option<&str>, arguments: &str| ToolCall {
        name: "read".to_owned(),
        arguments: arguments.into(),
        provider_id: id.map(str::to_owned),
    };
    let reply = Reply {
        text: "I look.".into(),
        calls: vec![
            call(Some("call_a"), r#"{"path":"a"}"#),
            call(None, "{broken"),
            call(Some("call_a"), "{}"),
        ],
        ..Reply::default()
    };
    let result = |index: u32, output: ToolOutput| CallResult {
        call: CallId { turn: 1, index },
        provider_id: None,
        name: "read".to_owned(),
        output,
    };
    let results = vec![
        result(0, ToolOutput::ok("one")),
        result(1, ToolOutput::error("two")),
        result(2, ToolOutput::ok("3")),
    ];
    let messages =
        vec![Message::User("Look.".into()), Message::Assistant(Arc::new(reply)), Message::Results(results)];
    ask(&server.openai(), request(messages)).await.unwrap();
    let body = server.body();
    assert_eq!(body["model"], "small");
    assert_eq!((&body["max_tokens"], &body["temperature"]), (&json!(321), &json!(0.5)));
    assert_eq!((&body["stream"], &body["stream_options"]), (&json!(true), &json!({ "include_usage": true })));
    assert_eq!(body["tools"][1]["function"]["name"], "write");
    assert_eq!(body["tools"][0]["function"]["parameters"]["properties"]["path"]["type"], "string");
    let function = |arguments: &str| json!({ "name": "read", "arguments": arguments });
    let called =
        |id: &str, arguments: &str| json!({ "id": id, "type": "function", "function": function(arguments) });
    assert_eq!(
        body["messages"],
        json!([
            { "role": "system", "content": "You help." },
            { "role": "user", "content": "Look." },
            { "role": "assistant", "content": "I look.", "tool_calls": [
                called("call_a", r#"{"path":"a"}"#),
                called("call_1_1", r#"{"unreadable_arguments":"{broken"}"#),
                called("call_1_2", "{}"),
            ] },
            { "role": "tool", "tool_call_id": "call_a", "content": "one" },
            { "role": "tool", "tool_call_id": "call_1_1", "content": "two" },
            { "role": "tool", "tool_call_id": "call_1_2", "content": "3" },
        ])
    );
    let head = server.requests()[0].to_lowercase();
    assert!(head.starts_with("post /v1/chat/completions http/1.1"));
    assert!(head.contains(&format!("authorization: bearer {KEY}")));
}

#[tokio::test]
async fn openai_requests_use_the_newer_keys() {
    let server = Server::streaming(OPENAI_TEXT);
    let asked = Request { model: "gpt-5-mini".to_owned(), ..question() };
    ask(&OpenAi::new(server.endpoint("/v1/")), asked).await.unwrap();
    let body = server.body();
    assert_eq!(body["max_completion_tokens"], 321);
    assert!(body.get("max_tokens").is_none() && body.get("temperature").is_none());
}

#[tokio::test]
async fn reasoning_is_returned_only_to_its_own_provider() {
    let server = Server::streaming(&openai(&[
        &delta(r#"{"reasoning_content":"Let me "}"#, ""),
        &delta(r#"{"reasoning_content":"look."}"#, ""),
        &delta(
            r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"read","arguments":"{}"}}]}"#,
            "tool_calls",
        ),
    ]));
    let (reply, _) = ask(&server.openai(), question()).await.unwrap();
    let again = || request(vec![Message::Assistant(Arc::new(reply.clone()))]);
    ask(&server.openai(), again()).await.unwrap();
    let other = OpenAi::compatible(Endpoint::new("other", &server.url("/v1"), None).unwrap());
    ask(&other, again()).await.unwrap();
    let sent: Vec<_> = server.requests().iter().map(|request| super::server::body(request)).collect();
    assert_eq!(sent[1]["messages"][1]["reasoning_content"], "Let me look.");
    assert!(sent[2]["messages"][1].get("reasoning_content").is_none());
    assert!(!server.requests()[2].to_lowercase().contains("authorization"));
}

const CALL: &str = r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"read","arguments":"{}"}}]}"#;

/// Returns the second message of the next request after a reply with these deltas and a call.
async fn sent_back(deltas: &[&str]) -> Value {
    let mut events: Vec<String> = deltas.iter().map(|text| delta(text, "")).collect();
    events.push(delta(CALL, "tool_calls"));
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let (reply, _) = reply_from(&openai(&events)).await.unwrap();
    let server = Server::streaming(OPENAI_TEXT);
    ask(&server.openai(), request(vec![Message::Assistant(Arc::new(reply))])).await.unwrap();
    server.body()["messages"][1].clone()
}

#[tokio::test]
async fn reasoning_is_returned_under_its_original_key() {
    let ollama = sent_back(&[r#"{"reasoning":"Let "}"#, r#"{"reasoning":"me."}"#]).await;
    assert_eq!((&ollama["reasoning"], ollama.get("reasoning_content")), (&json!("Let me."), None));
    let both = sent_back(&[r#"{"reasoning":"So.","reasoning_content":"So."}"#]).await;
    assert_eq!((both.get("reasoning"), &both["reasoning_content"]), (None, &json!("So.")));
    let odd = sent_back(&[r#"{"reasoning":{"effort":"low"},"reasoning_content":null}"#]).await;
    assert_eq!((odd.get("reasoning"), odd.get("reasoning_content")), (None, None));
}

#[tokio::test]
async fn reasoning_details_are_merged_and_returned_in_order() {
    let piece = |part: &str| format!(r#"{{"reasoning":"x","reasoning_details":[{part}]}}"#);
    let text =
        |words: &str| format!(r#"{{"type":"reasoning.text","text":"{words}","index":0,"format":"f"}}"#);
    let signed = r#"{"type":"reasoning.text","signature":"c2ln","text":null,"index":0,"format":"f"}"#;
    let last = r#"{"type":"reasoning.text","text":"","signature":"c2ln","index":0,"format":"f"}"#;
    let sealed = |data: &str| format!(r#"{{"type":"reasoning.encrypted","data":"{data}","index":1}}"#);
    let deltas =
        [text("Let "), text("me."), last.to_owned(), sealed("YQ=="), sealed("Yg==")].map(|part| piece(&part));
    let line = sent_back(&deltas.each_ref().map(String::as_str)).await;
    assert!(line.get("reasoning").is_none(), "the parts say it already");
    assert_eq!(
        line["reasoning_details"],
        json!([
            { "type": "reasoning.text", "text": "Let me.", "signature": "c2ln", "index": 0, "format": "f" },
            { "type": "reasoning.encrypted", "data": "YQ==", "index": 1 },
            { "type": "reasoning.encrypted", "data": "Yg==", "index": 1 },
        ])
    );
    let apart = sent_back(&[&piece(signed)]).await;
    assert_eq!(apart["reasoning_details"][0]["signature"], "c2ln");
}

#[tokio::test]
async fn extra_content_of_a_call_is_returned_with_it() {
    let signed = r#"{"tool_calls":[{"index":0,"id":"w","function":{"name":"write","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln"}}}]}"#;
    let (reply, _) = reply_from(&openai(&[
        &delta(signed, ""),
        &delta(&CALL.replace("\"index\":0", "\"index\":1"), "stop"),
    ]))
    .await
    .unwrap();
    assert_eq!(calls(&reply).len(), 2);
    let server = Server::streaming(OPENAI_TEXT);
    ask(&server.openai(), request(vec![Message::Assistant(Arc::new(reply))])).await.unwrap();
    let line = &server.body()["messages"][1]["tool_calls"];
    assert_eq!(line[0]["extra_content"], json!({ "google": { "thought_signature": "c2ln" } }));
    assert!(line[1].get("extra_content").is_none());
}

#[tokio::test]
async fn reasoning_of_a_text_reply_is_returned_after_calls() {
    let answer =
        openai(&[&delta(r#"{"reasoning_content":"Done."}"#, ""), &delta(r#"{"content":"Yes."}"#, "stop")]);
    let (called, _) = reply_from(&openai(&[&delta(CALL, "tool_calls")])).await.unwrap();
    let result = CallResult {
        call: CallId { turn: 1, index: 0 },
        provider_id: None,
        name: "read".to_owned(),
        output: ToolOutput::ok("one"),
    };
    let after = vec![Message::Assistant(Arc::new(called)), Message::Results(vec![result])];
    let server = Server::streaming(&answer);
    let (alone, _) = ask(&server.openai(), question()).await.unwrap();
    assert!(alone.opaque.is_empty(), "without calls nobody needs it");
    let (reply, _) = ask(&server.openai(), request(after.clone())).await.unwrap();
    let next = [after, vec![Message::Assistant(Arc::new(reply)), Message::User("And?".into())]].concat();
    ask(&server.openai(), request(next)).await.unwrap();
    let sent = super::server::body(&server.requests()[2]);
    assert_eq!(
        (&sent["messages"][3]["content"], &sent["messages"][3]["reasoning_content"]),
        (&json!("Yes."), &json!("Done."))
    );
}

#[tokio::test]
async fn other_server_formats_are_accepted() {
    let parts = delta(
        r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"no"}]},{"type":"text","text":"yes"}]}"#,
        "model_length",
    );
    let (reply, _) = reply_from(&format!(": OPENROUTER PROCESSING\n\n{}", openai(&[&parts]))).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.stop), ("yes", Stop::Length));
    let groq = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":70,"completion_tokens":3}},"timings":{"predicted_n":1}}"#;
    let (_, usage) = reply_from(&openai(&[groq])).await.unwrap();
    assert_eq!((usage.input, usage.output), (70, 3));
    let stopped = r#"{"choices":[],"x_groq":{"error":"over capacity"}}"#;
    let error = reply_from(&openai(&[&delta(r#"{"content":"a"}"#, ""), stopped])).await.unwrap_err();
    assert!(matches!(&error, ModelError::Transient(text) if text.contains("over capacity")), "{error:?}");
}

#[test]
fn only_local_models_are_free() {
    let at = |url: &str| OpenAi::compatible(Endpoint::new("x", url, None).unwrap()).model_info("m").price;
    assert_eq!(at("http://127.0.0.1:1/v1"), Some(Price::default()));
    assert_eq!(at("http://localhost:1/v1"), Some(Price::default()));
    assert_eq!(at("http://[::1]:1/v1"), Some(Price::default()));
    assert_eq!(at("http://127.0.0.1.example.org/v1"), None);
    assert_eq!(at("https://api.example.org/v1"), None);
}
