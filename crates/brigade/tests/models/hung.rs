//! Requests that are never answered, beside requests that are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use brigade::core::delegation::LimitKind;
use brigade::core::{Event, Status};
use brigade::model::{Chunk, Model, ModelError, ModelInfo, RateLimits, Request, Timeouts};
use brigade::{Models, RunResult, Runtime, Settings, Task, Workspace};
use brigade_testing::{AfterResponse, HttpResponse, HttpServer};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;

use super::server::limited_openai;
use super::streams::{delta, openai};

/// The first-byte timeout. It leaves a child time for a second attempt.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(4);
/// The usual time from a request to its answer.
const TYPICAL_LATENCY: Duration = Duration::from_millis(50);

fn say(text: &str) -> HttpResponse {
    let stream = openai(&[&delta(&format!("{{\"content\":{}}}", Value::from(text)), "stop")]);
    HttpResponse::events(&stream).delayed(TYPICAL_LATENCY)
}

/// A server for a lead that delegates this many tasks in one reply. `child` answers the children, counted
/// from 0.
fn delegating_server(
    children: usize,
    child: impl Fn(usize) -> HttpResponse + Send + Sync + 'static,
) -> HttpServer {
    let asked = AtomicUsize::new(0);
    HttpServer::start(move |request| {
        let body = request.json();
        let messages = body["messages"].as_array().unwrap();
        let is_lead = messages[0]["content"].as_str().unwrap().contains("You are the lead agent");
        match (is_lead, messages.last().unwrap()["role"].as_str().unwrap()) {
            (true, "user") => {
                let calls: Vec<String> = (0..children).map(|index| delta(&call(index), "")).collect();
                let last = delta("{}", "tool_calls");
                let events: Vec<&str> = calls.iter().map(String::as_str).chain([last.as_str()]).collect();
                HttpResponse::events(&openai(&events))
            }
            (true, _) => say("All served."),
            (false, _) => child(asked.fetch_add(1, Ordering::SeqCst)),
        }
    })
}

fn call(index: usize) -> String {
    let arguments = Value::from(format!(r#"{{"role":"Cook","task":"dish {index}"}}"#));
    format!(
        r#"{{"tool_calls":[{{"index":{index},"id":"call_{index}","type":"function","function":{{"name":"delegate","arguments":{arguments}}}}}]}}"#
    )
}

/// Returns when each child returned, in milliseconds after the first event, and its outcome; then the outcome
/// of the run.
async fn run(
    server: &HttpServer,
    timeouts: Timeouts,
    child_timeout: Duration,
    task: Task,
) -> (Vec<(u64, Status)>, RunResult) {
    let models = Models::default().with("mock", limited_openai(server, RateLimits::default(), timeouts));
    run_with(models, child_timeout, task).await
}

async fn run_at(server: &HttpServer, rate_limits: RateLimits, task: Task) -> (Vec<(u64, Status)>, RunResult) {
    let models = Models::default().with("mock", limited_openai(server, rate_limits, Timeouts::default()));
    run_with(models, CHILD_TIMEOUT, task).await
}

async fn run_with(models: Models, child_timeout: Duration, task: Task) -> (Vec<(u64, Status)>, RunResult) {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::new("mock/small", Workspace::open(folder.path()).unwrap());
    settings.limits.child_timeout = child_timeout;
    settings.delegation_styles.swarm.max_concurrent = 64;
    settings.limits.retry_pause = Duration::from_millis(20);
    let runtime = Runtime::in_memory(settings, models);
    let run = runtime.start(task).await.unwrap();
    let session = run.session().clone();
    let ending =
        tokio::time::timeout(Duration::from_secs(60), run.result()).await.expect("it hangs").unwrap();
    let records = runtime.store().read(&session, 0).await.unwrap();
    let start = records[0].at;
    let returned = records.into_iter().filter_map(|record| match record.event {
        Event::Returned { outcome, .. } => Some((record.at - start, outcome.status)),
        _ => None,
    });
    (returned.collect(), ending)
}

#[tokio::test]
async fn hung_requests_and_faults_starve_none_of_many_children() {
    let server = delegating_server(60, |number| match number {
        0..4 => HttpResponse::nothing().then(AfterResponse::Stall),
        4..9 => HttpResponse::new("500 Internal Server Error", "{}"),
        _ => say("Done."),
    });
    let limit = Duration::from_secs(6);
    let timeouts = Timeouts { first_byte: Some(FIRST_BYTE_TIMEOUT), ..Timeouts::default() };
    let (children, ending) = run(&server, timeouts, limit, Task::new("Cook.")).await;
    assert_eq!(done(&children), 60, "{children:?}");
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
    // Only the four that hang wait for their second attempt.
    let soon = children.iter().filter(|(after, _)| *after < 3_500).count();
    assert_eq!(soon, 56, "{children:?}");
}

fn done(children: &[(u64, Status)]) -> usize {
    children.iter().filter(|(_, status)| *status == Status::Done).count()
}

/// A server for five children that are answered one at a time, each within its time limit.
fn slow_server() -> HttpServer {
    delegating_server(5, |_| say("Done.").delayed(Duration::from_millis(600)))
}

const CHILD_TIMEOUT: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn time_in_the_queue_does_not_count_against_the_deadline_of_a_child() {
    let server = slow_server();
    let one_at_a_time = RateLimits { concurrency: Some(1), ..RateLimits::default() };
    let (children, ending) = run_at(&server, one_at_a_time, Task::new("Cook.")).await;
    assert_eq!(done(&children), 5, "{children:?}");
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
}

#[tokio::test]
async fn time_in_the_queue_does_not_move_the_deadline_of_the_user() {
    let server = slow_server();
    let one_at_a_time = RateLimits { concurrency: Some(1), ..RateLimits::default() };
    let task = Task::new("Cook.").timeout(Duration::from_millis(1800));
    let start = Instant::now();
    let (children, ending) = run_at(&server, one_at_a_time, task).await;
    let stopped =
        children.iter().filter(|(_, status)| *status == Status::Incomplete { limit: LimitKind::Time });
    assert_eq!(
        (done(&children) + stopped.count(), done(&children) < 5),
        (5, true),
        "{children:?} {ending:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

/// A model that accepts a request and then only reports that it waits.
struct WaitingModel;

impl Model for WaitingModel {
    fn stream(&self, _: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let notes = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(Chunk::Waiting("it thinks".to_owned()))
        });
        stream::iter([Ok(Chunk::Queued), Ok(Chunk::Sent)]).chain(notes).boxed()
    }

    fn model_info(&self, _: &str) -> ModelInfo {
        ModelInfo::default()
    }
}

#[tokio::test]
async fn waiting_chunks_do_not_reset_the_silence_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::new("mock/small", Workspace::open(folder.path()).unwrap());
    settings.limits.model_silence = Duration::from_millis(200);
    settings.limits.retry_pause = Duration::from_millis(1);
    let runtime = Runtime::in_memory(settings, Models::default().with("mock", WaitingModel));
    let run = runtime.start(Task::new("Cook.")).await.unwrap();
    let ending =
        tokio::time::timeout(Duration::from_secs(20), run.result()).await.expect("it waits").unwrap();
    let Status::Failed { cause } = ending.outcome.status else { panic!("{:?}", ending.outcome) };
    assert!(cause.contains("the model sent nothing"), "{cause}");
}
