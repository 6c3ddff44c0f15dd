//! Failures of providers, and their error messages.

use std::time::Duration;

use brigade::Secret;
use brigade::model::openai::OpenAi;
use brigade::model::{Chunk, Endpoint, EndpointError, Model, ModelError, RateLimits, Timeouts};
use brigade_testing::HttpResponse;
use futures::StreamExt;

use super::recorded::OPENAI_TEXT;
use super::server::{KEY, Server, ask, calls, question, reply_from};
use super::streams::{delta, openai, openai_without_end};

async fn failure(status: &'static str, headers: &'static str, body: &'static str) -> ModelError {
    ask(&Server::failing(status, headers, body).openai(), question()).await.unwrap_err()
}

fn assert_fatal(error: &ModelError, parts: &[&str]) {
    assert!(matches!(error, ModelError::Fatal(_)), "{error:?}");
    assert_message(error, parts);
}

fn assert_overflow(error: &ModelError, parts: &[&str]) {
    assert!(matches!(error, ModelError::Overflow(_)), "{error:?}");
    assert_message(error, parts);
}

fn assert_transient(error: &ModelError, parts: &[&str]) {
    assert!(matches!(error, ModelError::Transient(_)), "{error:?}");
    assert_message(error, parts);
}

fn assert_message(error: &ModelError, parts: &[&str]) {
    let text = error.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    assert!(text.len() < 900, "{text}");
    assert!(!format!("{error:?}").contains(KEY), "the key is shown");
}

#[tokio::test]
async fn permanent_errors_are_fatal_and_name_the_fix() {
    let body =
        r#"{"error":{"message":"No such key: sk-planted-0123456789abcdef","type":"invalid_request_error"}}"#;
    assert_fatal(
        &failure("401 Unauthorized", "", body).await,
        &["mock returned 401", "No such key: (key)", "Check the provider's API key"],
    );
    assert_fatal(&failure("403 Forbidden", "", "").await, &["403", "Check the provider's API key"]);
    assert_fatal(
        &failure("404 Not Found", "", r#"{"error":"no model small"}"#).await,
        &["no model small", "base_url"],
    );
    assert_fatal(&failure("400 Bad Request", "", r#"{"detail":"bad tools"}"#).await, &["bad tools"]);
    assert_fatal(&failure("422 Unprocessable", "", r#"{"message":"odd"}"#).await, &["odd"]);
    let quota = r#"{"error":{"message":"Paid up?","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    assert_fatal(&failure("429 Too Many Requests", "", quota).await, &["Paid up?", "credit"]);
}

#[tokio::test]
async fn key_in_a_reply_is_redacted() {
    let text = delta(&format!(r#"{{"content":"it is {KEY}!"}}"#), "stop");
    let (reply, _) = reply_from(&format!("data: {text}\n\ndata: [DONE]\n\n")).await.unwrap();
    assert_eq!(reply.text.as_str(), "it is (key)!");
}

#[tokio::test]
async fn word_like_key_is_redacted_in_errors_but_not_in_replies() {
    for key in ["ollama", "0123456789012345", "correct-horse-battery", "k3y-of-15-chars"] {
        let words = r#"{"content":"Try KEY.","tool_calls":[{"function":{"name":"read","arguments":"{\"path\":\"KEY\"}"}}]}"#;
        let event = delta(&words.replace("KEY", key), "tool_calls");
        let server = Server::streaming(&openai(&[&event]));
        let with_key =
            |server: &Server| Endpoint::new("mock", &server.url("/v1"), Some(Secret::new(key))).unwrap();
        let (reply, _) = ask(&OpenAi::compatible(with_key(&server)), question()).await.unwrap();
        assert_eq!(reply.text.as_str(), format!("Try {key}."));
        assert_eq!(calls(&reply)[0].1, format!(r#"{{"path":"{key}"}}"#));
        let server = Server::streaming(&format!(r#"data: {{"error":{{"message":"Not {key}"}}}}{}"#, "\n\n"));
        let error = ask(&OpenAi::compatible(with_key(&server)), question()).await.unwrap_err();
        assert_transient(&error, &["Not (key)"]);
    }
}

#[tokio::test]
async fn temporary_errors_are_transient() {
    let statuses = [
        "408 Request Timeout",
        "409 Conflict",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "503 Service Unavailable",
        "529 Overloaded",
    ];
    let impatient = Timeouts { longest_wait: Some(Duration::from_secs(1)), ..Timeouts::default() };
    for status in statuses {
        let server = Server::failing(status, "Retry-After: 7\r\n", r#"{"error":{"message":"Busy"}}"#);
        let endpoint =
            Endpoint::with_limits("mock", &server.url("/v1"), None, RateLimits::default(), impatient)
                .unwrap();
        let error = ask(&OpenAi::compatible(endpoint), question()).await.unwrap_err();
        assert_transient(&error, &[&status[..3], "Busy", "Retry-After: 7"]);
    }
    assert_transient(
        &failure("200 OK", "Content-Type: text/html\r\n", "<p>Log in").await,
        &["text/html", "base_url"],
    );
    let json = "Content-Type: application/json\r\n";
    let loading = r#"{"error":{"code":503,"message":"Loading model"}}"#;
    assert_transient(&failure("200 OK", json, loading).await, &["Loading model", "instead of a reply"]);
    assert_transient(&failure("200 OK", json, r#"{"detail":"Not ready"}"#).await, &["Not ready", "base_url"]);
    let closed = Server::start(|_| HttpResponse::nothing());
    assert_transient(&ask(&closed.openai(), question()).await.unwrap_err(), &["mock"]);
    let nobody = Endpoint::new("nobody", "http://127.0.0.1:9/v1", None).unwrap();
    let error = ask(&OpenAi::compatible(nobody), question()).await.unwrap_err();
    assert_transient(&error, &["cannot reach nobody", "base_url"]);
}

#[tokio::test]
async fn conversation_that_is_too_long_is_an_overflow() {
    let openai = r#"{"error":{"message":"Shorten it.","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
    let llama = r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#;
    for body in [openai, llama] {
        assert_overflow(&failure("400 Bad Request", "", body).await, &["exceeds the context window"]);
    }
    for words in [
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
        "Make sure that max_model_len is no smaller than the number of text tokens.",
    ] {
        let body = format!(r#"{{"error":{{"message":"{words}","type":"BadRequestError"}}}}"#);
        let server = Server::failing("400 Bad Request", "", &body);
        assert_overflow(
            &ask(&server.openai(), question()).await.unwrap_err(),
            &["exceeds the context window"],
        );
    }
    let json = "Content-Type: application/json\r\n";
    assert_overflow(&failure("200 OK", json, llama).await, &["exceeds the context window"]);
    let stream = format!("data: {openai}\n\n");
    assert_overflow(&reply_from(&stream).await.unwrap_err(), &["exceeds the context window"]);
}

/// The error for a response that is not a stream, and whether the provider may have charged for it.
async fn non_stream_reply(kind: &str, body: &str) -> (ModelError, bool) {
    let server = Server::failing("200 OK", &format!("Content-Type: {kind}\r\n"), body);
    let mut stream = server.openai().stream(question());
    let mut has_begun = false;
    loop {
        match stream.next().await.expect("it fails") {
            Ok(chunk) => has_begun |= matches!(chunk, Chunk::Usage(_)),
            Err(error) => return (error, has_begun),
        }
    }
}

#[tokio::test]
async fn non_streamed_reply_is_fatal_and_may_be_billed() {
    let long = format!(r#"{{"id":"c1","choices":[{{"message":{{"content":"{}"}}}}]}}"#, "x".repeat(100_000));
    for body in [
        r#"{"id":"c1","choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"error":null}"#,
        r#"{"type":"message","content":[{"type":"text","text":"Hi"}]}"#,
        r#"{"candidates":[{"finishReason":"STOP"}]}"#,
        r#"[{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]},{"candidates":[{"finishReason":"STOP"}]}]"#,
        r#"{"object":"response","output":[]}"#,
        &long,
    ] {
        let (error, has_begun) = non_stream_reply("application/json; charset=utf-8", body).await;
        assert_fatal(
            &error,
            &["complete reply", "application/json", "base_url", "does not support streaming"],
        );
        assert!(has_begun, "{body}");
    }
}

#[tokio::test]
async fn errors_instead_of_a_stream_cost_nothing() {
    for (kind, body, words) in [
        ("application/json", r#"{"error":{"code":503,"message":"Loading"},"choices":[]}"#, "Loading"),
        ("application/json", r#"[{"error":{"code":503,"message":"Loading"}}]"#, "Loading"),
        ("text/html", r#"<meta name="x" "content"="y"> Loading"#, "text/html"),
    ] {
        let (error, has_begun) = non_stream_reply(kind, body).await;
        assert_transient(&error, &[words]);
        assert!(!error.to_string().contains('<'), "{error}");
        assert!(!has_begun, "{body}");
    }
    let (error, has_begun) = non_stream_reply("application/json", r#"{"status":"queued"}"#).await;
    assert_transient(&error, &["application/json"]);
    assert!(has_begun, "nobody knows what this is");
}

#[tokio::test]
async fn errors_inside_a_stream_end_it() {
    let begun = openai_without_end(&[&delta(r#"{"content":"So"}"#, "")]);
    let with = |event: &str| format!("{begun}{event}\n\n");
    let busy = r#"data: {"error":{"message":"Upstream is busy","code":502},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#;
    assert_transient(&reply_from(&with(busy)).await.unwrap_err(), &["in the middle", "Upstream is busy"]);
    let bad = r#"data: {"error":{"message":"Bad","type":"invalid_request_error"}}"#;
    assert_fatal(&reply_from(&with(bad)).await.unwrap_err(), &["Bad"]);
    assert_transient(
        &reply_from(&with("event: error\ndata: {\"message\":\"Odd\"}")).await.unwrap_err(),
        &["Odd"],
    );
    assert_transient(
        &reply_from(&with("data: {\"choices\": [{")).await.unwrap_err(),
        &["invalid reply from mock"],
    );
    let echo = format!(r#"data: {{"error":{{"message":"It was {KEY}"}}}}"#);
    assert_transient(&reply_from(&with(&echo)).await.unwrap_err(), &["It was (key)"]);
    let far = format!(r#"data: {{"error":{{"message":"{}{KEY}"}}}}"#, "x".repeat(390));
    let error = reply_from(&with(&far)).await.unwrap_err();
    assert!(!error.to_string().contains("sk-planted"), "half a key is shown: {error}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Server::streaming(OPENAI_TEXT);
    let location = other.url("/v1/chat/completions");
    let server = Server::failing("307 Temporary Redirect", &format!("Location: {location}\r\n"), "");
    assert_fatal(
        &ask(&server.openai(), question()).await.unwrap_err(),
        &["307", "Redirects are not followed"],
    );
    assert_eq!(other.connections(), 0);
}

#[test]
fn unusable_endpoint_is_refused_without_showing_its_key() {
    let at = |url: &str, key: &str| Endpoint::new("mine", url, Some(Secret::new(key)));
    for url in ["nowhere", "ftp://host/v1", "https://user:hush@host/v1", "https://host/v1?key=1"] {
        let error = at(url, KEY).unwrap_err();
        assert!(matches!(error, EndpointError::Address { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
    }
    for key in ["", "two\nlines"] {
        assert_eq!(at("https://host/v1", key).unwrap_err(), EndpointError::Key("mine".to_owned()));
    }
    assert!(!format!("{:?}", at("https://host/v1", KEY).unwrap()).contains(KEY));
}
