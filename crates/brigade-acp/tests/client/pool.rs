//! Many sessions on few processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade::core::{Budget, Limit};
use brigade::{Runtime, Task};
use brigade_acp::client::AgentOptions;
use brigade_testing::{Script, call, reply};
use serde_json::json;

use super::setup::{count, harness_with_script, pids, start_as, wait_until_gone};
use super::support::{Harness, end};

/// A lead that delegates this many tasks at once.
fn many(tasks: u32, task: &str) -> Script {
    let arguments = json!({ "serverName": "fix", "description": "Ext", "task": task });
    let calls = call("subagent_delegate", arguments).repeat(tasks);
    Script::new().agent("lead", [calls, reply("{results}")])
}

async fn run(runtime: &Runtime) -> String {
    let task = Task::new("the task").budget(Budget {
        tokens: Limit::Unlimited,
        usd: Limit::Unlimited,
        agents: Limit::AtMost(1000),
    });
    end(runtime.start(task).await.unwrap()).await.unwrap().outcome.text.to_string()
}

/// Resident memory of a process in kilobytes.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_delegations_share_one_process_without_leaking() {
    let harness = harness_with_script(many(100, "!say counted"), |_, server| start_as(server, "closes"));
    let runtime = harness.runtime();
    let mut memories = Vec::new();
    for round in 1..=10 {
        let text = run(&runtime).await;
        assert_eq!(text.matches("counted").count(), 100, "round {round}");
        memories.push((memory(pids(&harness)[0]), memory(std::process::id())));
    }
    assert_eq!((count(&harness, "start"), count(&harness, "prompt")), (1, 1000));
    super::setup::wait_until("all are closed", || count(&harness, "close") == 1000).await;
    // The first rounds fill caches and pools. After that nothing grows with the number of sessions.
    let ((theirs, ours), (their_last, our_last)) = (memories[2], memories[9]);
    assert!(their_last < theirs + 20_000, "theirs: {memories:?}");
    assert!(our_last < ours + 60_000, "ours: {memories:?}");
    drop(runtime);
    wait_until_gone(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_takes_at_most_max_sessions() {
    let harness = harness_with_script(many(6, "!meet 6"), |_, server| server.max_sessions = 2);
    run(&harness.runtime()).await;
    assert_eq!((count(&harness, "start"), count(&harness, "prompt")), (3, 6));
    wait_until_gone(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_for_one_start_share_its_failure() {
    let harness = harness_with_script(many(4, "!say a"), |_, server| {
        start_as(server, "silent");
        server.start_timeout = Duration::from_secs(3);
    });
    let text = run(&harness.runtime()).await;
    assert_eq!(text.matches("no response within 3 s").count(), 4, "{text}");
    assert_eq!(count(&harness, "start"), 1, "each call started its own process");
    wait_until_gone(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_with_different_arguments_get_separate_processes() {
    let script = Script::new().agent(
        "lead",
        [
            call(
                "subagent_delegate",
                json!({
                    "serverName": "fix",
                    "description": "Ext",
                    "task": "!arguments",
                    "agentId": "fast",
                }),
            )
            .call(
                "subagent_delegate",
                json!({ "serverName": "fix", "description": "Ext", "task": "!settings" }),
            ),
            reply("{results}"),
        ],
    );
    let harness = harness_with_script(script, |_, server| {
        server.options = AgentOptions { mode: Some("code".to_owned()), ..AgentOptions::default() };
        let fast = AgentOptions {
            model: Some("large".to_owned()),
            arguments: vec!["--skip".to_owned(), "x".to_owned()],
            mode: None,
        };
        server.agents.insert("fast".to_owned(), fast);
    });
    let text = run(&harness.runtime()).await;
    // The arguments of the shell come first.
    assert!(text.contains(r#"mode Some("code") model None"#), "{text}");
    assert_eq!(count(&harness, "start"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_mode_is_reported() {
    for (options, words) in [(
        AgentOptions { mode: Some("fly".to_owned()), ..AgentOptions::default() },
        "unknown mode 'fly'. The agent offers: plan, code",
    )] {
        let options = Arc::new(Mutex::new(options));
        let harness: Harness = harness_with_script(many(1, "!say a"), move |_, server| {
            server.options = options.lock().unwrap().clone();
        });
        let text = run(&harness.runtime()).await;
        assert!(text.contains(words), "{text}");
        assert_eq!(count(&harness, "prompt"), 0);
    }
}
