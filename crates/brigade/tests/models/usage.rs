//! Whole runs against servers with arbitrary usage reports. Budgets are enforced all the same.

use std::time::Duration;

use brigade::core::delegation::LimitKind;
use brigade::core::{Budget, Limit, Resources, Status};
use brigade::{Models, RunResult, Runtime, Settings, Task, Workspace};
use brigade_testing::HttpResponse;
use serde_json::Value;

use super::server::{Server, body, events};
use super::streams::{delta, openai};

const TURNS: usize = 40;

/// A reply that calls `echo` with this many bytes, or the final reply.
fn reply(body: &Value, bytes: usize, usage: &str) -> HttpResponse {
    let turns =
        body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool").count();
    let is_wrap_up = body.get("tools").is_none();
    let events_json = if is_wrap_up || turns >= TURNS {
        vec![delta(r#"{"content":"That is all."}"#, "stop")]
    } else {
        let text = format!("{turns}{}", "x".repeat(bytes));
        let arguments = Value::from(format!(r#"{{"text":"{text}"}}"#));
        let call = format!(
            r#"{{"tool_calls":[{{"index":0,"id":"c","function":{{"name":"echo","arguments":{arguments}}}}}]}}"#
        );
        vec![delta(&call, "tool_calls")]
    };
    let count = format!(r#"{{"choices":[],"usage":{usage}}}"#);
    let events_json: Vec<&str> = events_json.iter().map(String::as_str).chain([count.as_str()]).collect();
    events(&openai(&events_json))
}

async fn run(server: &Server, tokens: Limit) -> RunResult {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new("mock/small", Workspace::open(folder.path()).unwrap());
    let runtime = Runtime::in_memory(settings, Models::default().with("mock", server.openai()));
    let budget = Budget { tokens, usd: Limit::Unlimited, agents: Limit::AtMost(5) };
    let run = runtime.start(Task::new("Go.").budget(budget)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), run.result()).await.expect("it hangs").unwrap()
}

fn sent_bytes(server: &Server) -> usize {
    server.requests().iter().map(String::len).sum()
}

#[tokio::test]
async fn implausibly_low_usage_still_ends_at_the_budget() {
    let server =
        Server::start(|request| reply(&body(request), 4_000, r#"{"prompt_tokens":1,"completion_tokens":1}"#));
    let ending = run(&server, Limit::AtMost(60_000)).await;
    assert_eq!(
        ending.outcome.status,
        Status::Incomplete { limit: LimitKind::Tokens },
        "{:?}",
        ending.outcome
    );
    assert!(ending.spent.estimated > 10_000, "{:?}", ending.spent);
    // At least one token per 16 bytes is booked, so no more than this can have been sent.
    assert!(sent_bytes(&server) < 16 * 60_000, "{} bytes", sent_bytes(&server));
    let is_usage_warning = |warning: &&String| warning.contains("implausibly low usage");
    assert_eq!(
        ending.outcome.warnings.iter().filter(is_usage_warning).count(),
        1,
        "{:?}",
        ending.outcome.warnings
    );
}

/// For any reported usage and reply length, spent + reserved stays within the grant, and no more is sent than
/// one token per 16 bytes allows.
#[tokio::test]
async fn any_reported_usage_stays_within_the_budget() {
    let reports = [
        r#"{"prompt_tokens":0,"completion_tokens":0}"#,
        r#"{"prompt_tokens":100000,"completion_tokens":1}"#,
        r#"{"prompt_tokens":1,"completion_tokens":90000}"#,
        r#"{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615}"#,
        r#"{"prompt_tokens":4000,"completion_tokens":50}"#,
        "{}",
    ];
    for report in reports {
        for bytes in [1, 500, 20_000] {
            let server = Server::start(move |request| reply(&body(request), bytes, report));
            let ending = run(&server, Limit::AtMost(50_000)).await;
            let covered = ending.spent.amount().minus(ending.spent.overrun);
            assert!(covered.tokens <= 50_000, "{report} {bytes}: {:?}", ending.spent);
            let is_over = !ending.spent.overrun.is_zero();
            let is_incomplete = ending.outcome.status == (Status::Incomplete { limit: LimitKind::Tokens });
            assert!(!is_over || is_incomplete, "{report} {bytes}: {:?}", ending.outcome);
            // One request beyond the budget may have been sent.
            let requests = server.requests();
            let longest = requests.iter().map(String::len).max().unwrap_or(0);
            assert!(
                sent_bytes(&server) <= 16 * 50_000 + longest,
                "{report} {bytes}: {}",
                sent_bytes(&server)
            );
        }
    }
}

#[tokio::test]
async fn usage_above_the_reserve_is_allowed_without_a_budget() {
    let server = Server::start(|request| {
        reply(&body(request), 10, r#"{"prompt_tokens":9000,"completion_tokens":70000}"#)
    });
    let ending = run(&server, Limit::Unlimited).await;
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
    assert_eq!(ending.outcome.text.as_str(), "That is all.");
    assert!(ending.spent.excess > 0 && ending.spent.overrun == Resources::default(), "{:?}", ending.spent);
}
