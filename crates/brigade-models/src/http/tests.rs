//! Tests of every adapter with invalid streams.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::StreamExt;
use proptest::prelude::*;

use super::super::sse::{SseEvent, SseParser};
use super::super::{Chunk, Ingest, RateLimits, anthropic, gemini, openai, responses};
use super::{ChunkBuffer, Decoder, Endpoint, Timeouts};

static ENDPOINT: LazyLock<Endpoint> =
    LazyLock::new(|| Endpoint::new("mock", "http://127.0.0.1:1", None).expect("an address"));

/// Valid events, and fragments that corrupt them.
const EVENTS: [&str; 32] = [
    r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":18446744073709551615,"function":{"name":"g","arguments":[1]}}]}}]}"#,
    r#"{"choices":[{"delta":{"content":[{"text":"b"},7]},"finish_reason":"length"}]}"#,
    r#"{"choices":[{"delta":{"reasoning_content":"r"},"finish_reason":"tool_calls"}]}"#,
    r#"{"choices":null,"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":9,"cache_write_tokens":9}}}"#,
    r#"{"error":{"message":"no","code":418}}"#,
    "[DONE]",
    "[]",
    "null",
    r#"{"type":"message_start","message":{"usage":{"input_tokens":1}}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"f","input":{"a":1}}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking"}}"#,
    r#"{"type":"content_block_start","index":1,"content_block":7}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"s"}}"#,
    r#"{"type":"content_block_stop","index":0}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":3}}"#,
    r#"{"type":"message_stop"}"#,
    r#"{"type":"error"}"#,
    r#"{"type":"new","x":{}}"#,
    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","name":"f","arguments":"{"}}"#,
    r#"{"type":"response.function_call_arguments.delta","delta":"}"}"#,
    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","encrypted_content":"x"}}"#,
    r#"{"type":"response.output_text.delta","item_id":"m","delta":"a"}"#,
    r#"{"type":"response.completed","response":{"output":[{"type":"message","content":[{"text":"b"}]},{"type":"function_call"}]}}"#,
    r#"{"type":"response.incomplete","response":{"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":9}}}}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":"a","thoughtSignature":"s"},{"functionCall":{"name":"f","args":[1]}}]}}]}"#,
    r#"{"candidates":[{"finishReason":"MAX_TOKENS"}],"usageMetadata":{"promptTokenCount":1,"cachedContentTokenCount":9}}"#,
    r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#,
    r#"[{"error":{"code":500}}]"#,
];

/// Feeds the bytes to a decoder and asserts that the terminal chunk is the last one.
fn decode(mut decoder: impl Decoder, bytes: &[u8]) {
    let mut events: Vec<SseEvent> = Vec::new();
    let _ = SseParser::default().feed(bytes, &mut events);
    let mut chunks = ChunkBuffer::default();
    let mut ingest = Ingest::default();
    for event in &events {
        if decoder.take(event, &mut chunks).is_err() || chunks.is_done() {
            break;
        }
    }
    let _ = decoder.end(&mut chunks);
    let chunks: Vec<Chunk> = std::iter::from_fn(|| chunks.next()).collect();
    let ends = chunks.iter().position(|chunk| matches!(chunk, Chunk::Done(_)));
    assert!(ends.is_none_or(|at| at + 1 == chunks.len()), "there is more after the end");
    for chunk in chunks {
        assert!(ingest.take(chunk).is_ok(), "arguments without a call");
    }
    assert_eq!(ingest.finish().is_ok(), ends.is_some());
}

proptest! {
    #[test]
    fn arbitrary_streams_never_panic_a_decoder(
        picks in proptest::collection::vec(0..EVENTS.len(), 0..12),
        spoilt in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let stream: String = picks.iter().map(|pick| format!("data: {}\n\n", EVENTS[*pick])).collect();
        let mut bytes = stream.into_bytes();
        if let Some((at, byte)) = spoilt && !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        decode(openai::reply::Decoder::new(ENDPOINT.clone(), 100, true), &bytes);
        decode(anthropic::reply::Decoder::new(ENDPOINT.clone(), 100), &bytes);
        decode(responses::reply::Decoder::new(ENDPOINT.clone(), "m".to_owned(), 100), &bytes);
        decode(gemini::reply::Decoder::new(ENDPOINT.clone(), "m".to_owned(), 100), &bytes);
    }
}

#[tokio::test]
async fn queued_request_is_not_written_before_it_is_sent() {
    // This server never answers, so the first request keeps its place before the others.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let base = format!("http://{}", silent.local_addr().expect("an address"));
    let rate_limits = RateLimits { concurrency: Some(1), ..RateLimits::default() };
    let endpoint =
        Endpoint::with_limits("mock", &base, None, rate_limits, Timeouts::default()).expect("an address");
    let written = Arc::new(AtomicUsize::new(0));
    let ask = || {
        let (written, endpoint) = (written.clone(), endpoint.clone());
        super::stream_reply(&endpoint.clone(), 9, move || {
            written.fetch_add(1, Ordering::Relaxed);
            let decoder = openai::reply::Decoder::new(endpoint.clone(), 2, false);
            Ok((endpoint.post("/chat/completions", b"{}".to_vec()), decoder))
        })
    };
    let (mut first, mut second) = (ask(), ask());
    assert!(matches!(first.next().await, Some(Ok(Chunk::Queued))));
    assert!(matches!(first.next().await, Some(Ok(Chunk::Sent))));
    assert!(matches!(second.next().await, Some(Ok(Chunk::Queued))));
    let waits = tokio::time::timeout(Duration::from_millis(50), second.next()).await;
    assert!(waits.is_err(), "it is queued");
    assert_eq!(written.load(Ordering::Relaxed), 1);
    drop(first);
    assert!(matches!(second.next().await, Some(Ok(Chunk::Sent))));
    assert_eq!(written.load(Ordering::Relaxed), 2);
}
