//! Gemini API: requests, replies and errors.

use std::sync::Arc;

use brigade::core::message::{CallResult, Stop};
use brigade::core::{CallId, Message, Reply, ToolOutput, Usage};
use brigade::model::gemini::Gemini;
use brigade::model::{Api, Endpoint, ModelError, Request, list};
use serde_json::{Value, json};

use super::recorded::{GEMINI_CALLS, GEMINI_TEXT, RESPONSES_CALLS};
use super::server::{KEY, Server, ask, body, calls, question, request};

async fn reply_from(stream: &str) -> Result<(Reply, Usage), ModelError> {
    ask(&Server::streaming(stream).gemini(), question()).await
}

fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// A chunk with these parts and this finish reason.
fn piece(parts: &Value, reason: &str) -> Value {
    let reason = Some(reason).filter(|reason| !reason.is_empty());
    json!({ "candidates": [{ "content": { "parts": parts, "role": "model" }, "finishReason": reason }] })
}

#[tokio::test]
async fn text_reply_reports_usage_and_omits_thoughts() {
    let (reply, usage) = reply_from(GEMINI_TEXT).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.stop), ("Grüße, cook.", Stop::End));
    assert_eq!(usage, Usage { input: 18, output: 7, cache_read: 32, cache_write: 0 });
}

#[tokio::test]
async fn calls_are_decoded_with_and_without_ids() {
    let (reply, usage) = reply_from(GEMINI_CALLS).await.unwrap();
    assert_eq!(
        calls(&reply),
        [("read", r#"{"path":"a"}"#, Some("fc1")), ("write", r#"{"path":"ü"}"#, None), ("write", "{}", None)]
    );
    assert_eq!(reply.stop, Stop::Calls);
    assert_eq!((usage.input, usage.output), (80, 30), "the count may come after the reason");
}

#[tokio::test]
async fn finish_reason_on_every_event_does_not_end_the_reply() {
    let text = |word: &str, reason| piece(&json!([{ "text": word }]), reason);
    let (reply, usage) = reply_from(&stream(&[text("a", "STOP"), text("b", "STOP")])).await.unwrap();
    assert_eq!(reply.text.as_str(), "ab");
    assert!(usage.input > 50 && usage.output == 1, "what nobody counts is estimated");
    let open = reply_from(&stream(&[text("a", "")])).await;
    assert!(matches!(open, Err(ModelError::Transient(_))), "nobody said why it stopped: {open:?}");
    let nothing = reply_from("").await;
    assert!(matches!(nothing, Err(ModelError::Transient(_))), "{nothing:?}");
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    let ended = async |reason: &str| reply_from(&stream(&[piece(&json!([{ "text": "So" }]), reason)])).await;
    assert_eq!(ended("STOP").await.unwrap().0.stop, Stop::End);
    assert_eq!(ended("FROM_THE_FUTURE").await.unwrap().0.stop, Stop::End);
    assert_eq!(ended("MAX_TOKENS").await.unwrap().0.stop, Stop::Length);
    for reason in ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"] {
        assert_eq!(ended(reason).await.unwrap().0.stop, Stop::Refusal, "{reason}");
    }
    for reason in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"] {
        let error = ended(reason).await.unwrap_err();
        assert!(matches!(&error, ModelError::Transient(text) if text.contains(reason)), "{error:?}");
    }
    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" }, "usageMetadata": { "promptTokenCount": 9 } });
    let error = reply_from(&stream(&[blocked])).await.unwrap_err();
    let words = |text: &str| text.contains("mock blocked the request") && text.contains("PROHIBITED");
    assert!(matches!(&error, ModelError::Fatal(text) if words(text)), "{error:?}");
    for reason in ["SAFETY", "MAX_TOKENS"] {
        let cut = piece(&json!([{ "functionCall": { "name": "read" } }]), reason);
        let (reply, _) = reply_from(&stream(&[cut])).await.unwrap();
        assert_eq!(calls(&reply), [("read", "{", None)], "a call that was cut is not one without arguments");
    }
    let nameless = reply_from(&stream(&[piece(&json!([{ "functionCall": { "args": {} } }]), "STOP")])).await;
    assert!(matches!(nameless, Err(ModelError::Transient(_))), "{nameless:?}");
}

#[tokio::test]
async fn errors_inside_a_stream_end_it() {
    let begun = stream(&[piece(&json!([{ "text": "So" }]), "")]);
    let with = async |event: Value| reply_from(&format!("{begun}{}", stream(&[event]))).await.unwrap_err();
    let error =
        |code: u64, message: &str| json!({ "error": { "code": code, "message": message, "status": "X" } });
    let busy = with(error(503, &format!("Overloaded {KEY}"))).await;
    assert!(matches!(&busy, ModelError::Transient(text) if text.contains("Overloaded (key)")), "{busy:?}");
    let listed = with(json!([error(503, "Overloaded")])).await;
    assert!(matches!(&listed, ModelError::Transient(text) if text.contains("Overloaded")), "{listed:?}");
    assert!(matches!(with(error(400, "Bad")).await, ModelError::Fatal(text) if text.contains("Bad")));
    let long = "The input token count (9) exceeds the maximum number of tokens allowed (8).";
    assert!(matches!(with(error(400, long)).await, ModelError::Overflow(_)));
    assert!(matches!(with(json!("text")).await, ModelError::Transient(_)));
    let refused =
        Server::failing("400 Bad Request", "", r#"[{"error":{"code":400,"message":"API key not valid"}}]"#);
    let error = ask(&refused.gemini(), question()).await.unwrap_err();
    assert!(matches!(&error, ModelError::Fatal(text) if text.contains("API key not valid")), "{error:?}");
}

fn conversation(reply: Reply) -> Vec<Message> {
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
    let results = results.into_iter().take(reply.calls.len()).collect();
    vec![
        Message::User("Look.".into()),
        Message::Assistant(Arc::new(reply)),
        Message::Results(results),
        Message::User("Go on.".into()),
    ]
}

#[tokio::test]
async fn request_returns_signatures_on_their_parts() {
    let (reply, _) = reply_from(GEMINI_CALLS).await.unwrap();
    let server = Server::streaming(GEMINI_TEXT);
    ask(&server.gemini(), request(conversation(reply))).await.unwrap();
    let body = server.body();
    assert_eq!(body["systemInstruction"], json!({ "parts": [{ "text": "You help." }] }));
    assert_eq!(body["generationConfig"], json!({ "maxOutputTokens": 321, "temperature": 0.5 }));
    let declared = &body["tools"][0]["functionDeclarations"];
    assert_eq!((&declared[0]["name"], &declared[1]["description"]), (&json!("read"), &json!("Does write.")));
    assert_eq!(declared[0]["parametersJsonSchema"]["properties"]["path"]["type"], "string");
    assert_eq!(
        body["contents"],
        json!([
            { "role": "user", "parts": [{ "text": "Look." }] },
            { "role": "model", "parts": [
                { "text": "Ich schaue: ä" },
                { "functionCall": { "id": "fc1", "name": "read", "args": { "path": "a" } }, "thoughtSignature": "c2lnbmVk" },
                { "functionCall": { "name": "write", "args": { "path": "ü" } } },
                { "functionCall": { "name": "write", "args": {} } },
            ] },
            { "role": "user", "parts": [
                { "functionResponse": { "id": "fc1", "name": "read", "response": { "output": "one" } } },
                { "functionResponse": { "name": "write", "response": { "error": "two" } } },
                { "functionResponse": { "name": "write", "response": { "output": "3" } } },
            ] },
            { "role": "user", "parts": [{ "text": "Go on." }] },
        ])
    );
    let request = &server.requests()[0];
    let head = request.to_lowercase();
    assert!(
        request.starts_with("POST /v1beta/models/small:streamGenerateContent?alt=sse HTTP/1.1"),
        "{request}"
    );
    assert!(head.contains(&format!("x-goog-api-key: {KEY}")) && !head.contains("authorization"));
    assert_eq!(request.matches(KEY).count(), 1, "the key is in its header and nowhere else");
}

#[tokio::test]
async fn base_url_without_a_version_gets_v1beta() {
    for (base, before) in [
        ("", "/v1beta"),
        ("/proxy", "/proxy/v1beta"),
        ("/vertex/", "/vertex/v1beta"),
        ("/v1beta/", "/v1beta"),
        ("/v1", "/v1"),
        ("/v1/publishers/google", "/v1/publishers/google"),
    ] {
        let server = Server::streaming(GEMINI_TEXT);
        ask(&Gemini::new(server.endpoint(base)), question()).await.unwrap();
        let _ = list(&server.endpoint(base), Api::Gemini).await;
        let requests = server.requests();
        let asked = format!("POST {before}/models/small:streamGenerateContent?alt=sse ");
        assert!(requests[0].starts_with(&asked), "{base}: {}", requests[0]);
        let listed = format!("GET {before}/models?pageSize=1000 ");
        assert!(requests[1].starts_with(&listed), "{base}: {}", requests[1]);
    }
}

#[tokio::test]
async fn text_signatures_are_returned_only_to_their_model() {
    let (reply, _) = reply_from(GEMINI_TEXT).await.unwrap();
    let server = Server::streaming(GEMINI_TEXT);
    let parts = |at: usize| body(&server.requests()[at])["contents"][1]["parts"].clone();
    let again = |reply: &Reply| request(conversation(reply.clone()));
    ask(&server.gemini(), again(&reply)).await.unwrap();
    assert_eq!(parts(0), json!([{ "text": "Grüße, cook." }, { "text": "", "thoughtSignature": "dGV4dA==" }]));
    let within = stream(&[
        piece(&json!([{ "text": "ä" }, { "text": "ö", "thoughtSignature": "bWlk" }]), ""),
        piece(&json!([{ "text": "ü" }]), "STOP"),
    ]);
    let (reply, _) = reply_from(&within).await.unwrap();
    ask(&server.gemini(), again(&reply)).await.unwrap();
    assert_eq!(
        parts(1),
        json!([{ "text": "ä" }, { "text": "ö", "thoughtSignature": "bWlk" }, { "text": "ü" }])
    );
    ask(&server.gemini(), Request { model: "large".to_owned(), ..again(&reply) }).await.unwrap();
    let other = Gemini::new(Endpoint::new("other", &server.url("/v1beta"), None).unwrap());
    ask(&other, again(&reply)).await.unwrap();
    assert_eq!((parts(2), parts(3)), (json!([{ "text": "äöü" }]), json!([{ "text": "äöü" }])));
}

#[tokio::test]
async fn foreign_calls_get_a_placeholder_signature_if_required() {
    let (reply, _) = ask(&Server::streaming(RESPONSES_CALLS).responses(), question()).await.unwrap();
    let server = Server::streaming(GEMINI_TEXT);
    let to = |model: &str| Request { model: model.to_owned(), ..request(conversation(reply.clone())) };
    ask(&server.gemini(), to("gemini-3-pro")).await.unwrap();
    ask(&server.gemini(), to("models/gemini-2.5-pro")).await.unwrap();
    let sent: Vec<Value> = server.requests().iter().map(|request| body(request)).collect();
    let signature = |at: usize, part: usize| sent[at]["contents"][1]["parts"][part].get("thoughtSignature");
    assert_eq!(signature(0, 1), Some(&json!("skip_thought_signature_validator")));
    assert_eq!((signature(0, 2), signature(1, 1), signature(1, 2)), (None, None, None));
}
