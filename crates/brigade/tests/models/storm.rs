//! Many children, and a provider that cannot serve them all at once, or not at all.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use brigade::core::{Budget, Status};
use brigade::model::{RateLimits, Timeouts};
use brigade::{Models, RunResult, Runtime, Settings, Task, Workspace};
use brigade_testing::{AfterResponse, HttpResponse, HttpServer};
use serde_json::{Value, json};

use super::server::limited_openai;
use super::streams::{delta, openai, openai_without_end};

/// Timeout of a test, on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(240);

fn call(index: usize, tool: &str, arguments: &Value) -> Value {
    json!({ "index": index, "id": format!("call_{index}"), "type": "function",
        "function": { "name": tool, "arguments": arguments.to_string() } })
}

const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":10}}"#;

fn say(text: &str) -> String {
    openai(&[&delta(&json!({ "content": text }).to_string(), "stop"), USAGE])
}

fn calls(calls: &[Value]) -> String {
    openai(&[&delta(&json!({ "tool_calls": calls }).to_string(), "tool_calls"), USAGE])
}

fn last(body: &Value) -> &Value {
    body["messages"].as_array().unwrap().last().unwrap()
}

/// The lead delegates to this many children and reports whether each is done. Every tenth child writes a file
/// first.
fn reply(body: &Value, children: usize) -> String {
    let messages = body["messages"].as_array().unwrap();
    let is_lead = messages[0]["content"].as_str().unwrap().contains("You are the lead agent");
    let results = messages.iter().filter(|message| message["role"] == "tool").count();
    if is_lead && results == 0 {
        let delegate = |n| call(n, "delegate", &json!({ "role": "Cook", "task": format!("part {n}") }));
        return calls(&(0..children).map(delegate).collect::<Vec<_>>());
    }
    if is_lead {
        let done: BTreeSet<&str> = messages
            .iter()
            .filter_map(|message| message["content"].as_str()?.split("did part ").nth(1))
            .collect();
        return say(&format!("{} parts", done.len()));
    }
    let part = messages[1]["content"].as_str().unwrap().trim_start_matches("part ");
    if results == 0 && part.ends_with('0') {
        let arguments = json!({ "path": format!("part-{part}.txt"), "content": part });
        return calls(&[call(0, "write_file", &arguments)]);
    }
    say(&format!("did part {part}"))
}

/// Requests without faults: two of the lead, one of each child, and one more of each child that writes.
fn min_requests(children: usize) -> usize {
    2 + children + children.div_ceil(10)
}

async fn run(
    server: &HttpServer,
    rate_limits: RateLimits,
    timeouts: Timeouts,
    folder: &std::path::Path,
) -> RunResult {
    let mut settings = Settings::new("mock/small", Workspace::open(folder).unwrap());
    settings.delegation_styles.swarm.max_concurrent = u32::MAX;
    settings.limits.concurrency = usize::MAX;
    settings.limits.retry_pause = Duration::from_millis(20);
    settings.budget = Budget::UNLIMITED;
    let models = Models::default().with("mock", limited_openai(server, rate_limits, timeouts));
    let run = Runtime::in_memory(settings, models).start(Task::new("Cook.")).await.unwrap();
    tokio::time::timeout(TEST_TIMEOUT, run.result()).await.expect("it hangs").unwrap()
}

/// A token bucket of requests, as providers have them.
struct Bucket {
    capacity: f64,
    per_second: f64,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    fn new(capacity: f64, per_second: f64) -> Bucket {
        Bucket { capacity, per_second, state: Mutex::new((capacity, Instant::now())) }
    }

    /// Takes one, if available. Returns what is left.
    fn take(&self) -> Result<f64, ()> {
        let (level, at) = &mut *self.state.lock().unwrap();
        *level = (*level + at.elapsed().as_secs_f64() * self.per_second).min(self.capacity);
        *at = Instant::now();
        if *level < 1.0 {
            return Err(());
        }
        *level -= 1.0;
        Ok(*level)
    }
}

/// 200 children share 20 requests per second. `refusal` contains the headers of refusals, and `reply_headers`
/// returns those of replies.
async fn storm(
    latency: u64,
    refusal: &'static str,
    reply_headers: impl Fn(f64) -> String + Send + Sync + 'static,
) {
    const CHILDREN: usize = 200;
    let bucket = Bucket::new(20.0, 20.0);
    let server = HttpServer::start(move |request| {
        let answer = match bucket.take() {
            Ok(left) => {
                let headers = format!("Content-Type: text/event-stream\r\n{}", reply_headers(left));
                HttpResponse::with_headers("200 OK", &headers, reply(&request.json(), CHILDREN))
            }
            Err(()) => HttpResponse::with_headers(
                "429 Too Many Requests",
                refusal,
                r#"{"error":{"message":"Slow down","type":"rate_limit_error"}}"#,
            ),
        };
        answer.delayed(Duration::from_millis(latency))
    });
    let folder = tempfile::tempdir().unwrap();
    let ending = run(&server, RateLimits::default(), Timeouts::default(), folder.path()).await;
    assert_eq!(ending.outcome.status, Status::Done, "{}", ending.outcome.text);
    assert_eq!(ending.outcome.text.as_str(), "200 parts");
    let (requests, min_requests) = (server.request_count(), min_requests(CHILDREN));
    assert!(requests >= min_requests);
    assert!(
        requests * 10 <= min_requests * 12,
        "{refusal:?}: {requests} requests where {min_requests} are needed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_children_share_a_rate_limit_in_every_header_format() {
    let nothing = |_| String::new();
    let reply_headers = |left: f64| {
        let millis = ((20.0 - left) * 50.0).ceil();
        format!(
            "x-ratelimit-limit-requests: 20\r\nx-ratelimit-remaining-requests: {}\r\n\
             x-ratelimit-reset-requests: {millis}ms\r\n",
            left.floor()
        )
    };
    futures::join!(
        storm(0, "Retry-After: 1\r\n", nothing),
        storm(300, "Retry-After: 1\r\n", nothing),
        storm(5, "", nothing),
        storm(5, "retry-after-ms: 50\r\n", nothing),
        storm(5, "x-ratelimit-reset-requests: 1s\r\n", reply_headers),
    );
}

#[tokio::test]
async fn configured_rate_limit_is_never_refused() {
    let bucket = Bucket::new(20.0, 20.0);
    let server = HttpServer::start(move |request| match bucket.take() {
        Ok(_) => HttpResponse::events(&reply(&request.json(), 40)),
        Err(()) => HttpResponse::new("429 Too Many Requests", ""),
    });
    let rate_limits = RateLimits { requests_per_minute: Some(600), ..RateLimits::default() };
    let folder = tempfile::tempdir().unwrap();
    let ending = run(&server, rate_limits, Timeouts::default(), folder.path()).await;
    assert_eq!(ending.outcome.text.as_str(), "40 parts");
    assert_eq!(server.request_count(), min_requests(40));
}

/// A call that is cut off. It must never run.
fn cut_call(number: usize) -> String {
    let arguments = json!({ "path": format!("cut-{number}.txt"), "content": "no" });
    openai_without_end(&[&delta(
        &json!({ "tool_calls": [call(0, "write_file", &arguments)] }).to_string(),
        "",
    )])
}

/// One fault per hundred requests, of each kind in turn.
fn fault(number: usize) -> Option<HttpResponse> {
    let kind = (number % 100 == 37).then_some((number / 100 + 1) % 8)?;
    let half = "data: {\"choices\":[{\"index\":0,\"del";
    Some(match kind {
        0 => HttpResponse::with_headers("429 Too Many Requests", "retry-after-ms: 30\r\n", ""),
        1 => HttpResponse::new("529 Overloaded", r#"{"error":{"type":"overloaded_error"}}"#),
        2 => HttpResponse::new("500 Internal Server Error", ""),
        3 => HttpResponse::nothing(),
        4 => HttpResponse::beginning(&cut_call(number)).then(AfterResponse::Stall),
        5 => HttpResponse::beginning(&cut_call(number)),
        6 => HttpResponse::events(&format!("{half}\n\n")),
        _ => HttpResponse::with_headers("200 OK", "Content-Type: text/html\r\n", "<p>Back soon"),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_children_survive_faults_of_all_kinds() {
    const CHILDREN: usize = 2000;
    let server = HttpServer::start(|request| {
        fault(request.number).unwrap_or_else(|| HttpResponse::events(&reply(&request.json(), CHILDREN)))
    });
    let folder = tempfile::tempdir().unwrap();
    let timeouts = Timeouts { idle: Some(Duration::from_secs(2)), ..Timeouts::default() };
    let rate_limits =
        RateLimits { concurrency: Some(32), initial_concurrency: Some(8), ..RateLimits::default() };
    let ending = run(&server, rate_limits, timeouts, folder.path()).await;
    assert_eq!(ending.outcome.status, Status::Done, "{}", ending.outcome.text);
    assert_eq!(ending.outcome.text.as_str(), "2000 parts");
    let names = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("part-")).count(), CHILDREN / 10);
    assert_eq!(names.iter().filter(|name| name.starts_with("cut-")).count(), 0, "a cut call ran");
    let (requests, min_requests) = (server.request_count(), min_requests(CHILDREN));
    assert!(
        requests <= min_requests + min_requests / 50,
        "{requests} requests where {min_requests} are needed"
    );
    let sockets = server.max_open_connections();
    // While a connection is returned to the pool, the next request may open another. The pool keeps at most
    // 32.
    assert!(sockets <= 48, "{sockets} connections");
}

#[tokio::test]
async fn provider_that_only_refuses_fails_the_run_with_a_clear_cause() {
    let server = HttpServer::start(|request| {
        assert_eq!(last(&request.json())["role"], "user", "nobody answered");
        HttpResponse::with_headers(
            "429 Too Many Requests",
            "Retry-After: 3600\r\n",
            r#"{"error":{"message":"Used up"}}"#,
        )
    });
    let folder = tempfile::tempdir().unwrap();
    let ending = run(&server, RateLimits::default(), Timeouts::default(), folder.path()).await;
    let Status::Failed { cause } = &ending.outcome.status else { panic!("{:?}", ending.outcome.status) };
    assert!(cause.contains("mock requested a wait of"), "{cause}");
    assert!(cause.contains("the limit is 120 s (`longest_wait`)"), "{cause}");
    assert_eq!(server.request_count(), 1, "it was asked again before the time");
}
