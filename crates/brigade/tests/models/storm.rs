//! Many children and a provider that does not take them all at once, or not at all.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use brigade::core::{Budget, Status};
use brigade::model::{Pace, Times};
use brigade::{Ending, Models, Runtime, Settings, Task, Workspace};
use serde_json::{Value, json};

use super::crowd::{Answer, Crowd, Then};
use super::streams::{delta, openai, openai_without_end};

/// The longest that a test may take, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(240);

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

/// The lead calls so many children in and says whether each has done its part. Every tenth child writes a file first.
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

/// Requests without a fault: two of the lead, one of each child and one more of those that write.
fn least(children: usize) -> usize {
    2 + children + children.div_ceil(10)
}

async fn run(crowd: &Crowd, pace: Pace, times: Times, folder: &std::path::Path) -> Ending {
    let mut settings = Settings::new("mock/small", Workspace::open(folder).unwrap());
    settings.faces.swarm.max_concurrent = u32::MAX;
    settings.limits.concurrency = usize::MAX;
    settings.limits.retry_pause = Duration::from_millis(20);
    settings.budget = Budget::UNLIMITED;
    let models = Models::default().with("mock", crowd.openai(pace, times));
    let run = Runtime::in_memory(settings, models).start(Task::new("Cook.")).await.unwrap();
    tokio::time::timeout(LIMIT, run.ending()).await.expect("it hangs").unwrap()
}

/// A bucket of requests as providers have them.
struct Bucket {
    capacity: f64,
    per_second: f64,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    fn new(capacity: f64, per_second: f64) -> Bucket {
        Bucket { capacity, per_second, state: Mutex::new((capacity, Instant::now())) }
    }

    /// Takes one, if there is one, and gives what is left.
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

/// 200 children share 20 requests a second; refusals have these headers, and replies those that the function makes.
async fn storm(latency: u64, refusal: &'static str, told: impl Fn(f64) -> String + Send + Sync + 'static) {
    const CHILDREN: usize = 200;
    let bucket = Bucket::new(20.0, 20.0);
    let crowd = Crowd::start(move |_, body| {
        let mut answer = match bucket.take() {
            Ok(left) => Answer::events(&told(left), &reply(body, CHILDREN)),
            Err(()) => Answer::whole(
                "429 Too Many Requests",
                refusal,
                r#"{"error":{"message":"Slow down","type":"rate_limit_error"}}"#,
            ),
        };
        answer.delay = Duration::from_millis(latency);
        answer
    });
    let folder = tempfile::tempdir().unwrap();
    let ending = run(&crowd, Pace::default(), Times::default(), folder.path()).await;
    assert_eq!(ending.outcome.status, Status::Done, "{}", ending.outcome.text);
    assert_eq!(ending.outcome.text.as_str(), "200 parts");
    let (requests, least) = (crowd.requests(), least(CHILDREN));
    assert!(requests >= least);
    assert!(requests * 10 <= least * 12, "{refusal:?}: {requests} requests where {least} are needed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_children_share_a_bucket_however_the_provider_puts_it() {
    let nothing = |_| String::new();
    let told = |left: f64| {
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
        storm(5, "x-ratelimit-reset-requests: 1s\r\n", told),
    );
}

#[tokio::test]
async fn a_pace_that_the_person_sets_is_never_refused() {
    let bucket = Bucket::new(20.0, 20.0);
    let crowd = Crowd::start(move |_, body| match bucket.take() {
        Ok(_) => Answer::events("", &reply(body, 40)),
        Err(()) => Answer::whole("429 Too Many Requests", "", ""),
    });
    let pace = Pace { requests_per_minute: Some(600), ..Pace::default() };
    let folder = tempfile::tempdir().unwrap();
    let ending = run(&crowd, pace, Times::default(), folder.path()).await;
    assert_eq!(ending.outcome.text.as_str(), "40 parts");
    assert_eq!(crowd.requests(), least(40));
}

/// A call whose end does not come. Nothing that it says may happen.
fn cut_call(number: usize) -> String {
    let arguments = json!({ "path": format!("cut-{number}.txt"), "content": "no" });
    openai_without_end(&[&delta(
        &json!({ "tool_calls": [call(0, "write_file", &arguments)] }).to_string(),
        "",
    )])
}

/// One fault in a hundred, each kind in turn.
fn fault(number: usize) -> Option<Answer> {
    let kind = (number % 100 == 37).then_some((number / 100 + 1) % 8)?;
    let half = "data: {\"choices\":[{\"index\":0,\"del";
    Some(match kind {
        0 => Answer::whole("429 Too Many Requests", "retry-after-ms: 30\r\n", ""),
        1 => Answer::whole("529 Overloaded", "", r#"{"error":{"type":"overloaded_error"}}"#),
        2 => Answer::whole("500 Internal Server Error", "", ""),
        3 => Answer::nothing(Then::Close),
        4 => Answer::beginning(&cut_call(number), Then::Stall),
        5 => Answer::beginning(&cut_call(number), Then::Close),
        6 => Answer::events("", &format!("{half}\n\n")),
        _ => Answer::whole("200 OK", "Content-Type: text/html\r\n", "<p>Back soon"),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_children_come_through_faults_of_all_kinds() {
    const CHILDREN: usize = 2000;
    let crowd = Crowd::start(|number, body| {
        fault(number).unwrap_or_else(|| Answer::events("", &reply(body, CHILDREN)))
    });
    let folder = tempfile::tempdir().unwrap();
    let times = Times { idle: Some(Duration::from_secs(2)), ..Times::default() };
    let pace = Pace { concurrency: Some(32), first: Some(8), ..Pace::default() };
    let ending = run(&crowd, pace, times, folder.path()).await;
    assert_eq!(ending.outcome.status, Status::Done, "{}", ending.outcome.text);
    assert_eq!(ending.outcome.text.as_str(), "2000 parts");
    let names = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("part-")).count(), CHILDREN / 10);
    assert_eq!(names.iter().filter(|name| name.starts_with("cut-")).count(), 0, "a cut call ran");
    let (requests, least) = (crowd.requests(), least(CHILDREN));
    assert!(requests <= least + least / 50, "{requests} requests where {least} are needed");
    let sockets = crowd.most_sockets();
    // While one is on its way back to the pool, the next request may open another; the pool keeps no more than 32.
    assert!(sockets <= 48, "{sockets} connections");
}

#[tokio::test]
async fn a_provider_that_only_refuses_ends_the_run_in_clear_words() {
    let crowd = Crowd::start(|_, body| {
        assert_eq!(last(body)["role"], "user", "nobody answered");
        Answer::whole("429 Too Many Requests", "Retry-After: 3600\r\n", r#"{"error":{"message":"Used up"}}"#)
    });
    let folder = tempfile::tempdir().unwrap();
    let ending = run(&crowd, Pace::default(), Times::default(), folder.path()).await;
    let Status::Failed { cause } = &ending.outcome.status else { panic!("{:?}", ending.outcome.status) };
    assert!(cause.contains("mock asks to wait"), "{cause}");
    assert!(cause.contains("longest wait is 120 s"), "{cause}");
    assert_eq!(crowd.requests(), 1, "it was asked again before the time");
}
