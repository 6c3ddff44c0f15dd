//! Streams that are cut at every byte, or at every 13th without `THOROUGH=1`.

use std::sync::atomic::{AtomicUsize, Ordering};

use brigade::model::{Model, ModelError};
use brigade_testing::HttpResponse;

use super::recorded::{
    ANTHROPIC_CALLS, ANTHROPIC_TEXT, GEMINI_CALLS, GEMINI_TEXT, OPENAI_CALLS, OPENAI_TEXT, RESPONSES_CALLS,
    RESPONSES_TEXT,
};
use super::server::{Server, ask, events, question};
use crate::effort::some_or_all;

const SIZELESS_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

/// Numbers of bytes after which a stream is cut.
fn cuts(stream: &str) -> impl Iterator<Item = usize> {
    (0..stream.len()).step_by(some_or_all(13, 1))
}

/// A server that cuts the stream later with each request, with or without a length, and finally sends all of it.
fn cutting(stream: &'static str, tells_size: bool) -> Server {
    let whole = events(stream);
    let head = whole.bytes().len() - stream.len();
    let sent = AtomicUsize::new(0);
    Server::start(move |_| {
        let cut = cuts(stream).nth(sent.fetch_add(1, Ordering::SeqCst)).unwrap_or(stream.len());
        match tells_size {
            true => whole.clone().truncated(head + cut),
            false => HttpResponse::raw([SIZELESS_HEAD, &stream.as_bytes()[..cut]].concat()),
        }
    })
}

async fn assert_cut_is_no_reply<M: Model>(stream: &'static str, model: impl Fn(&Server) -> M) {
    for tells_size in [true, false] {
        let server = cutting(stream, tells_size);
        let model = model(&server);
        for cut in cuts(stream) {
            let result = ask(&model, question()).await;
            assert!(matches!(result, Err(ModelError::Transient(_))), "cut at {cut}: {result:?}");
        }
        let (reply, _) = ask(&model, question()).await.unwrap();
        assert!(!reply.text.is_empty() || !reply.calls.is_empty());
    }
}

/// Without a terminal event, only the proper end of the body distinguishes a complete reply from a truncated
/// one.
async fn assert_no_reply_without_end_of_body(stream: &'static str) {
    for tells_size in [true, false] {
        let server = cutting(stream, tells_size);
        for cut in cuts(stream) {
            let result = ask(&server.gemini(), question()).await;
            assert!(matches!(result, Err(ModelError::Transient(_))), "cut at {cut}: {result:?}");
        }
        assert_eq!(ask(&server.gemini(), question()).await.is_ok(), tells_size);
    }
}

#[tokio::test]
async fn cut_text_of_openai_is_no_reply() {
    assert_cut_is_no_reply(OPENAI_TEXT, Server::openai).await;
}

#[tokio::test]
async fn cut_calls_of_openai_are_no_reply() {
    assert_cut_is_no_reply(OPENAI_CALLS, Server::openai).await;
}

#[tokio::test]
async fn cut_text_of_anthropic_is_no_reply() {
    assert_cut_is_no_reply(ANTHROPIC_TEXT, Server::anthropic).await;
}

#[tokio::test]
async fn cut_calls_of_anthropic_are_no_reply() {
    assert_cut_is_no_reply(ANTHROPIC_CALLS, Server::anthropic).await;
}

#[tokio::test]
async fn cut_text_of_responses_is_no_reply() {
    assert_cut_is_no_reply(RESPONSES_TEXT, Server::responses).await;
}

#[tokio::test]
async fn cut_calls_of_responses_are_no_reply() {
    assert_cut_is_no_reply(RESPONSES_CALLS, Server::responses).await;
}

#[tokio::test]
async fn cut_text_of_gemini_is_no_reply() {
    assert_no_reply_without_end_of_body(GEMINI_TEXT).await;
}

#[tokio::test]
async fn cut_calls_of_gemini_are_no_reply() {
    assert_no_reply_without_end_of_body(GEMINI_CALLS).await;
}
