//! Law about the floor of reported usage: random trees over HTTP whose server reports random usage, with
//! runners that die at random moments. Whatever is reported, at least one token is booked per 16 bytes sent.

use std::sync::Arc;
use std::time::Duration;

use brigade::core::{Event, Hash, Limit};
use brigade::store::memory::MemoryStore;
use brigade::store::{Owner, Store};
use brigade::{Models, ResumeOptions, RunResult, Runtime, Settings, Task, Workspace};
use brigade_testing::HttpResponse;
use serde_json::{Value, json};

use super::server::{Server, body, events};
use super::streams::{delta, openai};

const TREES: u64 = 60;
const BUDGET: u64 = 60_000;
const BYTES_PER_TOKEN: u64 = 16;

/// A number below `bound` that depends on the text alone.
fn pick(of: &str, salt: u64, bound: u64) -> u64 {
    let hash = Hash::of(format!("{salt} {of}").as_bytes());
    let bytes = hash.as_bytes();
    u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) % bound
}

/// A reply that depends on the request: text, or calls that echo or delegate, with any reported usage.
fn reply(seed: u64, request: &Value) -> HttpResponse {
    let text = request["messages"].to_string();
    let calls = if request.get("tools").is_none() { 0 } else { pick(&text, seed, 4) };
    let call = |index: u64| {
        let arguments = match pick(&text, seed + index, 3) {
            0 => json!({ "role": "Ada", "task": format!("part {index} {}", "y".repeat(300)) }),
            _ => {
                json!({ "text": format!("{seed} {index} {} {}", text.len(), "x".repeat(pick(&text, index, 4_000) as usize)) })
            }
        };
        let name = if arguments.get("role").is_some() { "delegate" } else { "echo" };
        json!({ "index": index, "id": format!("c{index}"), "function": { "name": name, "arguments": arguments.to_string() } })
    };
    let delta_json = match calls {
        0 => json!({ "content": "That is all." }),
        _ => json!({ "tool_calls": (0..calls).map(call).collect::<Vec<_>>() }),
    };
    let usage = match pick(&text, seed + 7, 5) {
        0 => json!({}),
        1 => json!({ "prompt_tokens": 1, "completion_tokens": 1 }),
        2 => json!({ "prompt_tokens": 0, "completion_tokens": 5_000 }),
        3 => json!({ "prompt_tokens": 20_000, "completion_tokens": 0 }),
        _ => {
            json!({ "prompt_tokens": text.len() / 4, "completion_tokens": delta_json.to_string().len() / 4 })
        }
    };
    let finish = if calls == 0 { "stop" } else { "tool_calls" };
    let count = json!({ "choices": [], "usage": usage }).to_string();
    events(&openai(&[&delta(&delta_json.to_string(), finish), &count]))
}

fn sent_bytes(server: &Server) -> u64 {
    server.requests().iter().map(|request| body(request).to_string().len() as u64).sum()
}

/// Runs one tree. Its runner dies after the server has received a random number of requests, and another one
/// takes over. Returns `None` if the run had already ended when its runner died.
async fn run(seed: u64, server: &Server, folder: &tempfile::TempDir) -> Option<RunResult> {
    let store = Arc::new(MemoryStore::new());
    let runtime = || {
        let mut settings = Settings::new("mock/small", Workspace::open(folder.path()).unwrap());
        settings.delegation_styles.swarm.max_depth = 2;
        settings.limits.lead_turns = 12;
        settings.limits.child_turns = 6;
        settings.budget.tokens = Limit::AtMost(BUDGET);
        let dead = Owner { pid: 999_999_999, start_time: 1, ..Owner::this_process() };
        Runtime::new(store.clone(), settings, Models::default().with("mock", server.openai()))
            .with_owner(dead)
    };
    let mut run = runtime().start(Task::new(format!("Task {seed}."))).await.unwrap();
    let root = run.session().clone();
    for death in 0..3 {
        let enough = server.requests().len() + 1 + pick("death", seed + death, 12) as usize;
        let full = async {
            while server.requests().len() < enough {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Dropping a run stops it at once, as if its process had been killed.
        let ended = tokio::select! {
            ended = run.result() => Some(ended),
            () = full => None,
        };
        if let Some(ended) = ended {
            return ended.ok();
        }
        // A resume would start another round, whose usage is counted by itself.
        let records = store.read(&root, 0).await.unwrap();
        if records.iter().any(|record| matches!(record.event, Event::Ended { .. })) {
            return None;
        }
        run = runtime().resume(&root, ResumeOptions::default()).await.ok()?;
    }
    run.result().await.ok()
}

#[tokio::test]
async fn booked_usage_has_a_token_for_every_sixteen_bytes_sent() {
    let (mut checked, mut requests, mut estimated) = (0, 0, 0);
    for seed in 0..TREES {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(move |request| reply(seed, &body(request)));
        let run = run(seed, &server, &folder);
        let ending = tokio::time::timeout(Duration::from_secs(60), run).await.expect("the run hangs");
        let Some(RunResult { spent, .. }) = ending else { continue };
        let booked = spent.amount().tokens;
        assert!(
            sent_bytes(&server) <= BYTES_PER_TOKEN * booked,
            "seed {seed}: {} bytes were sent and {booked} tokens booked: {spent:?}",
            sent_bytes(&server)
        );
        assert!(booked - spent.overrun.tokens <= BUDGET, "seed {seed}: {spent:?}");
        checked += 1;
        requests += server.requests().len();
        estimated += spent.estimated;
    }
    assert!(
        checked > TREES * 9 / 10 && requests as u64 > 4 * TREES && estimated > 0,
        "{checked} {requests} {estimated}"
    );
}
