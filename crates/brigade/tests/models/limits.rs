//! Timeouts, wait notices, and resources that are released afterwards.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use brigade::core::money::Resources;
use brigade::core::{Message, Status};
use brigade::model::openai::OpenAi;
use brigade::model::{Chunk, Endpoint, Model, ModelError, RateLimits, Timeouts};
use brigade::{Models, RunEvent, Runtime, Settings, Task, Workspace};
use brigade_testing::{AfterResponse, HttpResponse, HttpServer};
use futures::StreamExt;

use super::recorded::OPENAI_TEXT;
use super::server::{ask, limited_openai, question, request};
use super::streams::{delta, openai_without_end};

const SHORT_TIMEOUT: Option<Duration> = Some(Duration::from_millis(200));
/// Longer than any wait in a test, and shorter than any limit that is not under test.
const TEST_TIMEOUT: Duration = Duration::from_secs(15);

fn text() -> HttpResponse {
    HttpResponse::events(OPENAI_TEXT)
}

/// Comments that are sent forever, at this interval.
fn ping(pause: Duration) -> AfterResponse {
    AfterResponse::Repeat { bytes: b": still there\n\n".to_vec(), pause }
}

fn partial_stream(then: AfterResponse) -> HttpResponse {
    HttpResponse::beginning(&openai_without_end(&[&delta(r#"{"content":"So"}"#, "")])).then(then)
}

async fn transient_error(
    timeouts: Timeouts,
    answer: impl Fn() -> HttpResponse + Send + Sync + 'static,
) -> String {
    let server = HttpServer::start(move |_| answer());
    match ask(&limited_openai(&server, RateLimits::default(), timeouts), question()).await {
        Err(ModelError::Transient(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn assert_message(error: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[tokio::test]
async fn timeout_errors_name_their_setting() {
    let first = Timeouts { first_byte: SHORT_TIMEOUT, ..Timeouts::default() };
    assert_message(
        &transient_error(first, || HttpResponse::nothing().then(AfterResponse::Stall)).await,
        &["within 0.2 s", "first_byte_timeout"],
    );
    assert_message(
        &transient_error(first, || HttpResponse::beginning("").then(AfterResponse::Stall)).await,
        &["0.2 s", "first_byte_timeout"],
    );
    let idle = Timeouts { idle: SHORT_TIMEOUT, ..Timeouts::default() };
    assert_message(
        &transient_error(idle, || partial_stream(AfterResponse::Stall)).await,
        &["sent nothing for 0.2 s", "idle_timeout"],
    );
    let total = Timeouts { total: SHORT_TIMEOUT, ..Timeouts::default() };
    let pings = || partial_stream(ping(Duration::from_millis(20)));
    assert_message(&transient_error(total, pings).await, &["took longer than 0.2 s", "total_timeout"]);
}

/// The listener accepts connections but never starts the TLS handshake.
#[tokio::test]
async fn connect_timeout_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let timeouts = Timeouts { connect: SHORT_TIMEOUT, ..Timeouts::default() };
    let endpoint = Endpoint::with_limits("mock", &url, None, RateLimits::default(), timeouts).unwrap();
    let error = ask(&OpenAi::compatible(endpoint), question()).await.unwrap_err();
    assert_message(&error.to_string(), &["cannot reach", "within 0.2 s", "connect_timeout"]);
}

#[tokio::test]
async fn pings_reset_the_idle_timeout() {
    let timeouts = Timeouts {
        idle: Some(Duration::from_millis(400)),
        total: Some(Duration::from_secs(2)),
        ..Timeouts::default()
    };
    let error = transient_error(timeouts, || partial_stream(ping(Duration::from_millis(50)))).await;
    assert_message(&error, &["took longer than 2 s"]);
}

#[tokio::test]
async fn refused_request_is_retried_and_the_wait_is_reported() {
    let server = HttpServer::start(|request| match request.number {
        0 => HttpResponse::with_headers("429 Too Many Requests", "Retry-After: 2\r\n", ""),
        1 => HttpResponse::with_headers("503 Service Unavailable", "retry-after-ms: 100\r\n", ""),
        _ => text(),
    });
    let start = Instant::now();
    let mut stream = limited_openai(&server, RateLimits::default(), Timeouts::default()).stream(question());
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk.unwrap());
    }
    let wait = Chunk::Waiting("mock requested a wait of 2 s (rate limit)".to_owned());
    let begins = [
        Chunk::Queued,
        Chunk::Sent,
        Chunk::Status(429),
        Chunk::Queued,
        wait,
        Chunk::Sent,
        Chunk::Status(503),
        Chunk::Queued,
        Chunk::Sent,
        Chunk::Status(200),
    ];
    assert_eq!(chunks[..begins.len()], begins, "{chunks:?}");
    assert!(!chunks[begins.len()..].iter().any(|chunk| matches!(chunk, Chunk::Waiting(_))), "{chunks:?}");
    assert!(matches!(chunks.last(), Some(Chunk::Done(_))));
    assert!(start.elapsed() >= Duration::from_millis(2100), "{:?}", start.elapsed());
    assert_eq!(server.request_count(), 3);
}

#[tokio::test]
async fn wait_beyond_the_limit_fails_at_once() {
    for status in ["429 Too Many Requests", "529 Overloaded"] {
        let server = HttpServer::always(HttpResponse::with_headers(status, "Retry-After: 86400\r\n", "{}"));
        let model = limited_openai(&server, RateLimits::default(), Timeouts::default());
        let start = Instant::now();
        let error = ask(&model, question()).await.unwrap_err().to_string();
        assert_message(&error, &[&status[..3], "requested a wait of", "the limit is 120 s (`longest_wait`)"]);
        assert_message(&ask(&model, question()).await.unwrap_err().to_string(), &["requested a wait of"]);
        assert!(start.elapsed() < TEST_TIMEOUT);
        assert_eq!(server.request_count(), 1, "it was asked again");
    }
}

/// Other requests are answered in between, so the waits stay short and only the count ends it.
#[tokio::test]
async fn request_fails_after_eight_refusals() {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    let server = HttpServer::start(move |request| {
        if request.json()["messages"].as_array().unwrap().last().unwrap()["content"] != "What is in it?" {
            return text();
        }
        count.fetch_add(1, Ordering::SeqCst);
        HttpResponse::with_headers(
            "429 Too Many Requests",
            "retry-after-ms: 1\r\n",
            r#"{"error":{"message":"No"}}"#,
        )
    });
    let model = limited_openai(&server, RateLimits::default(), Timeouts::default());
    let served = async {
        loop {
            ask(&model, request(vec![Message::User("And now?".into())])).await.unwrap();
        }
    };
    let error = tokio::select! {
        error = ask(&model, question()) => error.unwrap_err(),
        () = served => unreachable!("it has no end"),
    };
    assert_message(&error.to_string(), &["429: No", "refused 8 times"]);
    assert_eq!(refused.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn dropped_stream_frees_its_slot() {
    let server =
        HttpServer::start(
            |request| if request.number == 0 { partial_stream(AfterResponse::Stall) } else { text() },
        );
    let model = limited_openai(
        &server,
        RateLimits { concurrency: Some(1), ..RateLimits::default() },
        Timeouts::default(),
    );
    let mut first = model.stream(question());
    for expected in [Chunk::Queued, Chunk::Sent] {
        assert_eq!(first.next().await.unwrap().unwrap(), expected);
    }
    let mut second = model.stream(question());
    assert_eq!(second.next().await.unwrap().unwrap(), Chunk::Queued);
    let waits = tokio::time::timeout(Duration::from_millis(300), second.next()).await;
    assert!(waits.is_err(), "two are under way");
    drop(first);
    let next = tokio::time::timeout(TEST_TIMEOUT, second.next()).await.expect("it still waits");
    assert_eq!(next.unwrap().unwrap(), Chunk::Sent);
}

#[tokio::test]
async fn unpolled_stream_does_not_block_others() {
    let server = HttpServer::always(text());
    let model = limited_openai(
        &server,
        RateLimits { concurrency: Some(1), ..RateLimits::default() },
        Timeouts::default(),
    );
    let _idle = model.stream(question());
    ask(&model, question()).await.unwrap();
}

#[tokio::test]
async fn run_waiting_for_its_provider_reports_it_and_can_be_cancelled() {
    let server =
        HttpServer::always(HttpResponse::with_headers("429 Too Many Requests", "Retry-After: 90\r\n", ""));
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new("mock/small", Workspace::open(folder.path()).unwrap());
    let models =
        Models::default().with("mock", limited_openai(&server, RateLimits::default(), Timeouts::default()));
    let runtime = Runtime::in_memory(settings, models);
    let run = runtime.start(Task::new("Cook.")).await.unwrap();
    let (session, mut watch) = (run.session().clone(), run.subscribe());
    let why = loop {
        if let RunEvent::Waiting { why, .. } = watch.next().await.unwrap() {
            break why;
        }
    };
    assert!(why.starts_with("mock requested a wait of 9") && why.ends_with("s (rate limit)"), "{why}");
    runtime.cancel(&session, "the test").await.unwrap();
    let ending = tokio::time::timeout(TEST_TIMEOUT, run.result()).await.expect("it still waits").unwrap();
    assert!(matches!(ending.outcome.status, Status::Cancelled { .. }), "{:?}", ending.outcome.status);
    assert_eq!(server.request_count(), 1);
    assert_eq!(ending.spent.amount(), Resources::default(), "what stood in line costs nothing");
}
