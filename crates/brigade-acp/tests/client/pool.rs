//! Many sessions, few processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade::core::{Budget, Limit};
use brigade::{Runtime, Task};
use brigade_acp::client::Choice;

use super::support::{Stage, end};
use super::world::{all_gone, begins, count, pids, scripted};

/// A lead that delegates so many tasks at once.
fn many(tasks: usize, task: &str) -> String {
    let mut script = "[[reply]]\nagent = 'lead'\nturn = 1\n".to_owned();
    for _ in 0..tasks {
        script.push_str("[[reply.call]]\ntool = 'subagent_delegate'\n[reply.call.arguments]\n");
        script.push_str(&format!("serverName = 'fix'\ndescription = 'Ext'\ntask = '{task}'\n"));
    }
    script.push_str("[[reply]]\nagent = 'lead'\ntext = '{results}'\n");
    script
}

async fn run(runtime: &Runtime) -> String {
    let task = Task::new("the task").budget(Budget {
        tokens: Limit::Unlimited,
        usd: Limit::Unlimited,
        agents: Limit::AtMost(1000),
    });
    end(runtime.start(task).await.unwrap()).await.unwrap().outcome.text.to_string()
}

/// Kilobytes that a process holds.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_delegations_share_one_process_and_leave_no_memory() {
    let stage = scripted(&many(100, "!say counted"), |_, server| begins(server, "closes"));
    let runtime = stage.runtime();
    let mut memories = Vec::new();
    for round in 1..=10 {
        let text = run(&runtime).await;
        assert_eq!(text.matches("counted").count(), 100, "round {round}");
        memories.push((memory(pids(&stage)[0]), memory(std::process::id())));
    }
    assert_eq!((count(&stage, "start"), count(&stage, "prompt")), (1, 1000));
    super::world::until("all are closed", || count(&stage, "close") == 1000).await;
    // The first rounds fill what is kept; after them nothing grows with the number of sessions.
    let ((theirs, ours), (their_last, our_last)) = (memories[2], memories[9]);
    assert!(their_last < theirs + 20_000, "theirs: {memories:?}");
    assert!(our_last < ours + 60_000, "ours: {memories:?}");
    drop(runtime);
    all_gone(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_has_no_more_sessions_than_it_may() {
    let stage = scripted(&many(6, "!meet 6"), |_, server| server.sessions = 2);
    run(&stage.runtime()).await;
    assert_eq!((count(&stage, "start"), count(&stage, "prompt")), (3, 6));
    all_gone(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_start_shares_its_failure() {
    let stage = scripted(&many(4, "!say a"), |_, server| {
        begins(server, "silent");
        server.start_time = Duration::from_secs(3);
    });
    let text = run(&stage.runtime()).await;
    assert_eq!(text.matches("it did not answer within 3 s").count(), 4, "{text}");
    assert_eq!(count(&stage, "start"), 1, "each had a start of its own");
    all_gone(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_with_other_arguments_have_other_processes() {
    let script = "[[reply]]\nagent = 'lead'\nturn = 1\n\
        [[reply.call]]\ntool = 'subagent_delegate'\n[reply.call.arguments]\nserverName = 'fix'\n\
        description = 'Ext'\ntask = '!arguments'\nagentId = 'fast'\n\
        [[reply.call]]\ntool = 'subagent_delegate'\n[reply.call.arguments]\nserverName = 'fix'\n\
        description = 'Ext'\ntask = '!settings'\n\
        [[reply]]\nagent = 'lead'\ntext = '{results}'\n";
    let stage = scripted(script, |_, server| {
        server.choice = Choice { mode: Some("code".to_owned()), ..Choice::default() };
        let fast = Choice {
            model: Some("large".to_owned()),
            arguments: vec!["--skip".to_owned(), "x".to_owned()],
            mode: None,
        };
        server.agents.insert("fast".to_owned(), fast);
    });
    let text = run(&stage.runtime()).await;
    // The words of a shell come first.
    assert!(text.contains(r#"mode Some("code") model None"#), "{text}");
    assert_eq!(count(&stage, "start"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_or_model_that_it_does_not_have_is_said() {
    for (choice, words) in [(
        Choice { mode: Some("fly".to_owned()), ..Choice::default() },
        "it has no mode 'fly'; it offers: plan, code",
    )] {
        let choice = Arc::new(Mutex::new(choice));
        let stage: Stage = scripted(&many(1, "!say a"), move |_, server| {
            server.choice = choice.lock().unwrap().clone();
        });
        let text = run(&stage.runtime()).await;
        assert!(text.contains(words), "{text}");
        assert_eq!(count(&stage, "prompt"), 0);
    }
}
