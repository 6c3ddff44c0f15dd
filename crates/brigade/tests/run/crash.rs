//! A crash before every single append, and before every append of the recovery.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brigade::core::{Event, SessionId, Status};
use brigade::store::Owner;
use brigade::{ResumeOptions, RunResult};
use brigade_testing::{Fault, Script, call, delegate, fault, reply};
use serde_json::json;

use crate::effort::some_or_all;
use crate::run::support::{Harness, check_laws, end};

/// Three levels, parallel children, a tool of each effect that runs in process, a transient fault and a message.
fn deep() -> Script {
    Script::new()
        .price(1.0, 5.0)
        .agent(
            "lead",
            [
                reply("splitting")
                    .delegate("Left", "left")
                    .delegate("Right", "right")
                    .call("echo", json!({ "text": "meanwhile" })),
                call("write_file", json!({ "path": "lead.txt", "content": "{results}" })),
                reply("all: {result:0}").turn(3),
            ],
        )
        .agent("Left", [delegate("LeftLeaf", "a").delegate("RightLeaf", "b"), reply("left {results}")])
        .agent(
            "Right",
            [
                fault(Fault::Overloaded).attempt(1),
                call("message", json!({ "text": "still here" }))
                    .call("read_file", json!({ "path": "notes.txt" }))
                    .turn(1),
            ],
        )
        .agent(
            "Right",
            [call("edit_file", json!({ "path": "notes.txt", "old": "before", "new": "after" })).turn(2)],
        )
        .agent("Right", [delegate("RightLeaf", "c").turn(3)])
        .agent("Right", [reply("right {results}")])
        .agent("LeftLeaf", [delegate("Deepest", "d"), reply("leaf {results}")])
        .reply("{role} did {task}")
}

pub(crate) fn harness() -> Harness {
    let harness = Harness::with(deep(), |settings| settings.delegation_styles.swarm.max_depth = 3);
    std::fs::write(harness.path().join("notes.txt"), "before\n").unwrap();
    harness
}

/// Runs until the store crashes, then repairs it. Returns `None` if the run ended first.
pub(crate) async fn run_until_crash(
    harness: &Harness,
    root: Option<&SessionId>,
    appends: i64,
) -> (Option<RunResult>, Option<SessionId>) {
    harness.store.crash_after(appends);
    let run = match root {
        None => harness.runtime().start(brigade::Task::new("the task")).await,
        Some(root) => harness.runtime().resume(root, ResumeOptions::default()).await,
    };
    let result = match run {
        Ok(run) => {
            let session = run.session().clone();
            (end(run).await.ok(), Some(session))
        }
        Err(_) => (None, root.cloned()),
    };
    harness.store.repair();
    result
}

pub(crate) async fn resume(harness: &Harness, root: &SessionId) -> RunResult {
    end(harness.runtime().resume(root, ResumeOptions::default()).await.unwrap()).await.unwrap()
}

struct Baseline {
    text: String,
    appends: i64,
    usage: brigade::core::Usage,
    usd: u64,
    turns: u64,
}

async fn baseline() -> Baseline {
    let harness = harness();
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done);
    check_laws(&harness.log(&result.session).await);
    assert_eq!(std::fs::read_to_string(harness.path().join("notes.txt")).unwrap(), "after\n");
    Baseline {
        text: result.outcome.text.to_string(),
        appends: harness.store.appends.load(Ordering::SeqCst),
        usage: result.spent.usage,
        usd: result.spent.usd,
        turns: result.spent.turns,
    }
}

/// Same outcome, same cost apart from what is unconfirmed, and no recorded work done again.
async fn check(harness: &Harness, baseline: &Baseline, result: &RunResult, crashes: u32) {
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    // An edit that was written right before the crash is reported with another text. Everything else is equal.
    let same = |text: &str| {
        text.replace("lead.txt has the new content (Brigade exited right after writing it)", "W")
    };
    if !result.outcome.text.as_str().contains("right after writing") {
        assert_eq!(same(result.outcome.text.as_str()), same(&baseline.text));
    }
    assert_eq!(result.spent.turns, baseline.turns);
    assert_eq!(std::fs::read_to_string(harness.path().join("notes.txt")).unwrap(), "after\n");
    let log = harness.log(&result.session).await;
    check_laws(&log);
    let mut replied = 0;
    for record in &log {
        if let Event::Replied { turn, .. } = &record.event {
            replied += 1;
            let asked = harness.replies.count_for(&record.session, *turn);
            let faults = log
                .iter()
                .filter(|other| {
                    other.session == record.session
                        && matches!(&other.event, Event::CallFailed { turn: failed, .. } if failed == turn)
                })
                .count() as u32;
            assert!(asked <= faults + 1, "turn {turn} of {} was bought {asked} times", record.session);
        }
    }
    assert_eq!(u64::from(replied as u32), baseline.turns);
    let unconfirmed = result.spent.unconfirmed.tokens;
    let interrupted = log
        .iter()
        .filter(|r| {
            matches!(&r.event, Event::CallFailed { cause: brigade::core::event::CallFault::Interrupted, .. })
        })
        .count();
    assert_eq!(unconfirmed > 0, interrupted > 0);
    assert!(interrupted as u32 <= crashes * 8);
    // File sizes differ only if the report of an edit does.
    if result.outcome.text.as_str() == baseline.text && interrupted == 0 {
        assert_eq!(result.spent.usage.output, baseline.usage.output);
        assert!(result.spent.usd.abs_diff(baseline.usd) < 10_000_000);
    }
}

/// A disk that was full and has room again: the process that ran the tree is alive and can resume it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovered_store_lets_the_same_process_resume() {
    let harness = harness();
    let runtime = harness.runtime().with_owner(Owner::this_process());
    harness.store.crash_after(5);
    let run = runtime.start(brigade::Task::new("the task")).await.unwrap();
    let root = run.session().clone();
    end(run).await.unwrap_err();
    harness.store.repair();
    let begun = Instant::now();
    let run = loop {
        match runtime.resume(&root, ResumeOptions::default()).await {
            Ok(run) => break run,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(end(run).await.unwrap().outcome.status, Status::Done);
    check_laws(&harness.log(&root).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_before_every_append_and_resume() {
    let baseline = baseline().await;
    for appends in 0..baseline.appends {
        let harness = harness();
        let (ended, root) = run_until_crash(&harness, None, appends).await;
        if let Some(result) = ended {
            check(&harness, &baseline, &result, 0).await;
            continue;
        }
        let Some(root) = root else { continue };
        if harness.log(&root).await.is_empty() {
            assert!(appends == 0, "only the first append may be lost whole");
            continue;
        }
        let result = resume(&harness, &root).await;
        check(&harness, &baseline, &result, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_again_at_every_append_of_the_recovery() {
    let baseline = baseline().await;
    for first in (1..baseline.appends).step_by(some_or_all(12, 3)) {
        for second in 0..baseline.appends {
            let harness = harness();
            let (ended, root) = run_until_crash(&harness, None, first).await;
            let Some(root) = root.filter(|_| ended.is_none()) else { break };
            let (ended, _) = run_until_crash(&harness, Some(&root), second).await;
            match ended {
                Some(result) => {
                    check(&harness, &baseline, &result, 1).await;
                    break;
                }
                None => {
                    let result = resume(&harness, &root).await;
                    check(&harness, &baseline, &result, 2).await;
                }
            }
        }
    }
}
