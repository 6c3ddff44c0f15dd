//! Times that are over, waits that are told, and what is free again afterwards.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use brigade::core::money::Amount;
use brigade::core::{Message, Status};
use brigade::model::openai::OpenAi;
use brigade::model::{Chunk, Endpoint, Model, ModelError, Pace, Times};
use brigade::{Live, Models, Runtime, Settings, Task, Workspace};
use futures::StreamExt;

use super::crowd::{Answer, Crowd, Then};
use super::recorded::OPENAI_TEXT;
use super::server::{ask, question, request};
use super::streams::{delta, openai_without_end};

const SHORT: Option<Duration> = Some(Duration::from_millis(200));
/// More than any wait of a test, and less than any limit that is not meant.
const SOON: Duration = Duration::from_secs(15);

fn text() -> Answer {
    Answer::events("", OPENAI_TEXT)
}

fn begun(then: Then) -> Answer {
    Answer::beginning(&openai_without_end(&[&delta(r#"{"content":"So"}"#, "")]), then)
}

async fn fails(times: Times, answer: impl Fn() -> Answer + Send + Sync + 'static) -> String {
    let crowd = Crowd::start(move |_, _| answer());
    match ask(&crowd.openai(Pace::default(), times), question()).await {
        Err(ModelError::Transient(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn says(error: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[tokio::test]
async fn every_limit_of_time_names_itself() {
    let first = Times { first_byte: SHORT, ..Times::default() };
    says(&fails(first, || Answer::nothing(Then::Stall)).await, &["within 0.2 s", "first_byte_timeout"]);
    says(&fails(first, || Answer::beginning("", Then::Stall)).await, &["0.2 s", "first_byte_timeout"]);
    let idle = Times { idle: SHORT, ..Times::default() };
    says(&fails(idle, || begun(Then::Stall)).await, &["sent nothing for 0.2 s", "idle_timeout"]);
    let total = Times { total: SHORT, ..Times::default() };
    let pings = || begun(Then::Ping(Duration::from_millis(20)));
    says(&fails(total, pings).await, &["took longer than 0.2 s", "total_timeout"]);
}

/// A listener that takes connections and never begins to speak TLS.
#[tokio::test]
async fn a_connection_has_a_limit_of_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let times = Times { connect: SHORT, ..Times::default() };
    let endpoint = Endpoint::limited("mock", &url, None, Pace::default(), times).unwrap();
    let error = ask(&OpenAi::compatible(endpoint), question()).await.unwrap_err();
    says(&error.to_string(), &["cannot be reached", "within 0.2 s", "connect_timeout"]);
}

#[tokio::test]
async fn a_provider_that_pings_is_alive() {
    let times = Times {
        idle: Some(Duration::from_millis(400)),
        total: Some(Duration::from_secs(2)),
        ..Times::default()
    };
    let error = fails(times, || begun(Then::Ping(Duration::from_millis(50)))).await;
    says(&error, &["took longer than 2 s"]);
}

#[tokio::test]
async fn a_refused_request_is_sent_again_and_the_wait_is_told() {
    let crowd = Crowd::start(|number, _| match number {
        0 => Answer::whole("429 Too Many Requests", "Retry-After: 2\r\n", ""),
        1 => Answer::whole("503 Service Unavailable", "retry-after-ms: 100\r\n", ""),
        _ => text(),
    });
    let start = Instant::now();
    let mut stream = crowd.openai(Pace::default(), Times::default()).stream(question());
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk.unwrap());
    }
    let wait = Chunk::Waiting("mock asks to wait 2 s (rate limit)".to_owned());
    let begins = [Chunk::Queued, Chunk::Sent, Chunk::Queued, wait, Chunk::Sent, Chunk::Queued, Chunk::Sent];
    assert_eq!(chunks[..begins.len()], begins, "{chunks:?}");
    assert!(!chunks[begins.len()..].iter().any(|chunk| matches!(chunk, Chunk::Waiting(_))), "{chunks:?}");
    assert!(matches!(chunks.last(), Some(Chunk::Done(_))));
    assert!(start.elapsed() >= Duration::from_millis(2100), "{:?}", start.elapsed());
    assert_eq!(crowd.requests(), 3);
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_not_begun() {
    for status in ["429 Too Many Requests", "529 Overloaded"] {
        let crowd = Crowd::start(move |_, _| Answer::whole(status, "Retry-After: 86400\r\n", "{}"));
        let model = crowd.openai(Pace::default(), Times::default());
        let start = Instant::now();
        let error = ask(&model, question()).await.unwrap_err().to_string();
        says(&error, &[&status[..3], "asks to wait", "the longest wait is 120 s (longest_wait)"]);
        says(&ask(&model, question()).await.unwrap_err().to_string(), &["asks to wait"]);
        assert!(start.elapsed() < SOON);
        assert_eq!(crowd.requests(), 1, "it was asked again");
    }
}

/// Others are served meanwhile, so the waits stay short and only the count ends it.
#[tokio::test]
async fn refusals_of_one_request_have_an_end() {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    let crowd = Crowd::start(move |_, body| {
        if body["messages"].as_array().unwrap().last().unwrap()["content"] != "What is in it?" {
            return text();
        }
        count.fetch_add(1, Ordering::SeqCst);
        Answer::whole("429 Too Many Requests", "retry-after-ms: 1\r\n", r#"{"error":{"message":"No"}}"#)
    });
    let model = crowd.openai(Pace::default(), Times::default());
    let served = async {
        loop {
            ask(&model, request(vec![Message::User("And now?".into())])).await.unwrap();
        }
    };
    let error = tokio::select! {
        error = ask(&model, question()) => error.unwrap_err(),
        () = served => unreachable!("it has no end"),
    };
    says(&error.to_string(), &["429: No", "refused the request 8 times"]);
    assert_eq!(refused.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn a_stream_that_is_dropped_makes_room() {
    let crowd = Crowd::start(|number, _| if number == 0 { begun(Then::Stall) } else { text() });
    let model = crowd.openai(Pace { concurrency: Some(1), ..Pace::default() }, Times::default());
    let mut first = model.stream(question());
    for expected in [Chunk::Queued, Chunk::Sent] {
        assert_eq!(first.next().await.unwrap().unwrap(), expected);
    }
    let mut second = model.stream(question());
    assert_eq!(second.next().await.unwrap().unwrap(), Chunk::Queued);
    let waits = tokio::time::timeout(Duration::from_millis(300), second.next()).await;
    assert!(waits.is_err(), "two are under way");
    drop(first);
    let next = tokio::time::timeout(SOON, second.next()).await.expect("it still waits");
    assert_eq!(next.unwrap().unwrap(), Chunk::Sent);
}

#[tokio::test]
async fn a_stream_that_nobody_listens_to_holds_nobody_up() {
    let crowd = Crowd::start(|_, _| text());
    let model = crowd.openai(Pace { concurrency: Some(1), ..Pace::default() }, Times::default());
    let _idle = model.stream(question());
    ask(&model, question()).await.unwrap();
}

#[tokio::test]
async fn a_run_that_waits_for_its_provider_says_so_and_can_be_cancelled() {
    let crowd = Crowd::start(|_, _| Answer::whole("429 Too Many Requests", "Retry-After: 90\r\n", ""));
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new("mock/small", Workspace::open(folder.path()).unwrap());
    let models = Models::default().with("mock", crowd.openai(Pace::default(), Times::default()));
    let runtime = Runtime::in_memory(settings, models);
    let run = runtime.start(Task::new("Cook.")).await.unwrap();
    let (session, mut watch) = (run.session().clone(), run.watch());
    let why = loop {
        if let Live::Waiting { why, .. } = watch.next().await.unwrap() {
            break why;
        }
    };
    assert!(why.starts_with("mock asks to wait 9") && why.ends_with("s (rate limit)"), "{why}");
    runtime.cancel(&session, "the test").await.unwrap();
    let ending = tokio::time::timeout(SOON, run.ending()).await.expect("it still waits").unwrap();
    assert!(matches!(ending.outcome.status, Status::Cancelled { .. }), "{:?}", ending.outcome.status);
    assert_eq!(crowd.requests(), 1);
    assert_eq!(ending.spent.amount(), Amount::default(), "what stood in line costs nothing");
}
