//! Whole runs whose replies are cut after every number of bytes, over all four wire formats.
//!
//! The first reply calls `write_file`, the second is the result. There is one run for every number of bytes,
//! in which the first attempt at both replies ends after that many bytes. The next attempt gets the whole
//! reply. Without `THOROUGH=1`, only every 17th number is tried.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade::core::{Event, Spent, State, Status};
use brigade::{Models, Runtime, Settings, Task, Workspace};
use brigade_testing::HttpResponse;
use serde_json::{Value, json};

use super::recorded::{ANTHROPIC_TEXT, GEMINI_TEXT, OPENAI_TEXT, RESPONSES_TEXT};
use super::server::{Server, events};
use super::streams::{delta, openai};
use crate::effort::some_or_all;

/// Number of concurrent runs.
const RUNS_AT_ONCE: usize = 4;
/// Timeout of one run, on a busy machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// The result of every run: the text of the recorded replies.
const RESULT: &str = "Grüße, cook.";
const CONTENT: &str = "whole: ä\n";

/// A wire format: the replies of a run, and the model that reads them.
#[derive(Clone, Copy)]
struct Format {
    calling: fn(&str, [Value; 2]) -> String,
    text: &'static str,
    /// Whether only the end of the body ends a reply, so that the response needs a length.
    needs_size: bool,
    models: fn(&Server) -> Models,
}

/// The file that run `number` writes. All names have the same length.
fn file_name(number: usize) -> String {
    format!("file-{number:05}.txt")
}

/// The arguments of the call, whole and as two fragments.
fn arguments(number: usize) -> (String, [Value; 2]) {
    let all = json!({ "path": file_name(number), "content": CONTENT }).to_string();
    let (one, two) = all.split_at(12);
    let fragments = [Value::from(one), Value::from(two)];
    (all, fragments)
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn openai_calling(_: &str, [one, two]: [Value; 2]) -> String {
    let first = json!({ "role": "assistant", "content": "Ich schreibe: ä", "tool_calls": [
        { "index": 0, "id": "call_a", "type": "function", "function": { "name": "write_file", "arguments": "" } }
    ] });
    let more = |part: &Value| json!({ "tool_calls": [{ "index": 0, "function": { "arguments": part } }] });
    openai(&[
        &delta(&first.to_string(), ""),
        &delta(&more(&one).to_string(), ""),
        &delta(&more(&two).to_string(), ""),
        &delta("{}", "tool_calls"),
        r#"{"choices":[],"usage":{"prompt_tokens":900,"completion_tokens":30}}"#,
    ])
}

fn anthropic_calling(_: &str, parts: [Value; 2]) -> String {
    let usage = json!({ "input_tokens": 900, "output_tokens": 2 });
    let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "write_file", "input": {} });
    let mut stream = event(&json!({ "type": "message_start", "message": { "usage": usage } }));
    stream += &event(&json!({ "type": "content_block_start", "index": 0, "content_block": call }));
    for part in parts {
        let delta = json!({ "type": "input_json_delta", "partial_json": part });
        stream += &event(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }));
    }
    stream += &event(&json!({ "type": "content_block_stop", "index": 0 }));
    let (delta, usage) = (json!({ "stop_reason": "tool_use" }), json!({ "output_tokens": 30 }));
    stream += &event(&json!({ "type": "message_delta", "delta": delta, "usage": usage }));
    stream + &event(&json!({ "type": "message_stop" }))
}

fn responses_calling(arguments: &str, parts: [Value; 2]) -> String {
    let item = |arguments: &str, status: &str| {
        json!({ "id": "fc_1", "type": "function_call", "status": status, "call_id": "call_a",
                "name": "write_file", "arguments": arguments })
    };
    let begun = json!({ "id": "resp_1", "status": "in_progress", "output": [] });
    let mut stream = event(&json!({ "type": "response.created", "response": begun }));
    let added = item("", "in_progress");
    stream += &event(&json!({ "type": "response.output_item.added", "output_index": 0, "item": added }));
    for part in parts {
        let kind = "response.function_call_arguments.delta";
        stream += &event(&json!({ "type": kind, "item_id": "fc_1", "output_index": 0, "delta": part }));
    }
    let done = item(arguments, "completed");
    stream += &event(&json!({ "type": "response.output_item.done", "output_index": 0, "item": done }));
    let usage = json!({ "input_tokens": 900, "output_tokens": 30 });
    let whole = json!({ "id": "resp_1", "status": "completed", "output": [done], "usage": usage });
    stream + &event(&json!({ "type": "response.completed", "response": whole }))
}

fn gemini_calling(arguments: &str, _: [Value; 2]) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    let call = json!({ "functionCall": { "id": "fc1", "name": "write_file", "args": arguments } });
    let data = |parts: Value, finish: Value| {
        let content = json!({ "parts": parts, "role": "model" });
        json!({ "candidates": [{ "content": content, "finishReason": finish, "index": 0 }] })
    };
    let events = [
        data(json!([{ "text": "Ich schreibe: ä" }]), Value::Null),
        data(json!([call]), "STOP".into()),
        // The finish reason has arrived, but the reply is not complete yet.
        json!({ "usageMetadata": { "promptTokenCount": 900, "candidatesTokenCount": 30 } }),
    ];
    events.map(|event| format!("data: {event}\n\n")).concat()
}

/// The whole HTTP response.
fn answer(stream: &str, tells_size: bool) -> HttpResponse {
    if tells_size { events(stream) } else { HttpResponse::beginning(stream) }
}

/// A server that sends only N bytes for the first attempt at each reply of run N.
struct CuttingServer {
    format: Format,
    folder: PathBuf,
    /// Number of requests for each reply of each run. The key is the run, and whether its call has a result.
    asked: Mutex<HashMap<(usize, bool), usize>>,
    /// Unexpected events.
    faults: Mutex<Vec<String>>,
}

impl CuttingServer {
    fn longest(&self) -> usize {
        [self.whole(0, false), self.whole(0, true)]
            .map(|answer| answer.bytes().len())
            .into_iter()
            .max()
            .unwrap()
    }

    fn whole(&self, run: usize, is_answered: bool) -> HttpResponse {
        // Every other run has a server that sends no length.
        let tells_size = self.format.needs_size || run.is_multiple_of(2);
        if is_answered {
            return answer(self.format.text, tells_size);
        }
        let (arguments, fragments) = arguments(run);
        answer(&(self.format.calling)(&arguments, fragments), tells_size)
    }

    fn answer(&self, request: &str) -> HttpResponse {
        let run: usize = request.split("cut after ").nth(1).unwrap()[..5].parse().unwrap();
        let is_answered = request.contains(&file_name(run));
        let is_first = {
            let mut asked = self.asked.lock().unwrap();
            let times = asked.entry((run, is_answered)).or_insert(0);
            *times += 1;
            *times == 1
        };
        let whole = self.whole(run, is_answered);
        if !is_answered && self.folder.join(file_name(run)).exists() {
            self.faults.lock().unwrap().push(format!("run {run}: the call of a cut reply ran"));
        }
        if is_first { whole.truncated(run) } else { whole }
    }

    /// The expected number of requests in a run: one more for each reply that was cut.
    fn attempts(&self, run: usize) -> usize {
        let replies = [false, true].map(|is_answered| self.whole(run, is_answered).bytes().len());
        2 + replies.into_iter().filter(|length| run < *length).count()
    }
}

async fn check_run(runtime: &Runtime, server_state: &CuttingServer, run: usize) {
    let task = Task::new(format!("cut after {run:05} bytes"));
    let started = runtime.start(task).await.unwrap();
    let ending = tokio::time::timeout(RUN_TIMEOUT, started.result()).await.expect("it hangs").unwrap();
    assert_eq!(ending.outcome.status, Status::Done, "run {run}: {}", ending.outcome.text);
    assert_eq!(ending.outcome.text.as_str(), RESULT, "run {run}");
    let written = std::fs::read_to_string(server_state.folder.join(file_name(run))).unwrap();
    assert_eq!(written, CONTENT, "run {run}");
    let records = runtime.store().read(&ending.session, 0).await.unwrap();
    let count = |kind: &str| records.iter().filter(|record| record.event.kind() == kind).count();
    assert_eq!((count("replied"), count("tool_started"), count("tool_ended")), (2, 1, 1), "run {run}");
    assert_eq!(count("called"), server_state.attempts(run), "run {run}");
    check_books(run, records.iter().map(|record| &record.event));
}

/// Checks that every event was admissible, that the budget held at each, and that the end reports the total
/// cost.
fn check_books<'a>(run: usize, events: impl Iterator<Item = &'a Event>) {
    let mut state = State::new(brigade::core::SessionId::root(run as u128));
    let mut sum = Spent::default();
    for event in events {
        assert!(state.admits(event), "run {run}: {} may not be at {}", event.kind(), state.length());
        state.apply(event);
        let ledger = state.ledger();
        assert!(ledger.granted().fits(ledger.committed()), "run {run}: more committed than granted");
        match event {
            Event::Replied { spent, .. } | Event::CallFailed { spent, .. } => sum = sum.plus(*spent),
            Event::Ended { spent, .. } => assert_eq!(*spent, sum, "run {run}"),
            _ => {}
        }
    }
    let ledger = state.ledger();
    assert!(ledger.reserved().is_zero() && ledger.lent().is_zero(), "run {run}");
}

fn runtime(folder: &Path, models: Models) -> Runtime {
    let mut settings = Settings::new("mock/small", Workspace::open(folder).unwrap());
    settings.limits.retry_pause = Duration::from_millis(1);
    Runtime::in_memory(settings, models)
}

async fn every_cut(format: Format) {
    let folder = tempfile::tempdir().unwrap();
    let server_state = Arc::new(CuttingServer {
        format,
        folder: folder.path().to_owned(),
        asked: Mutex::default(),
        faults: Mutex::default(),
    });
    let cutting = server_state.clone();
    let server = Server::start(move |request| cutting.answer(request));
    let runs = server_state.longest();
    let step = some_or_all(17, 1);
    // Each row of runs has its own model, so that backoff in one row does not delay the others.
    let rows = (0..RUNS_AT_ONCE).map(|row| {
        let (runtime, server_state) =
            (runtime(folder.path(), (format.models)(&server)), server_state.clone());
        async move {
            for run in (row * step..=runs).step_by(RUNS_AT_ONCE * step) {
                check_run(&runtime, &server_state, run).await;
            }
        }
    });
    futures::future::join_all(rows).await;
    assert_eq!(*server_state.faults.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_over_chat_completions_cut_after_every_byte_ends_with_the_result() {
    every_cut(Format {
        calling: openai_calling,
        text: OPENAI_TEXT,
        needs_size: false,
        models: |server| Models::default().with("mock", server.openai()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_over_responses_cut_after_every_byte_ends_with_the_result() {
    every_cut(Format {
        calling: responses_calling,
        text: RESPONSES_TEXT,
        needs_size: false,
        models: |server| Models::default().with("mock", server.responses()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_over_messages_cut_after_every_byte_ends_with_the_result() {
    every_cut(Format {
        calling: anthropic_calling,
        text: ANTHROPIC_TEXT,
        needs_size: false,
        models: |server| Models::default().with("mock", server.anthropic()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_over_gemini_cut_after_every_byte_ends_with_the_result() {
    every_cut(Format {
        calling: gemini_calling,
        text: GEMINI_TEXT,
        needs_size: true,
        models: |server| Models::default().with("mock", server.gemini()),
    })
    .await;
}
