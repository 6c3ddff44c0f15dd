//! A crash before every append while an external agent is working. The agent is never prompted twice.

use std::sync::atomic::Ordering;

use brigade::ResumeOptions;
use brigade::core::{SessionId, Status};

use super::setup::{count, harness, wait_until_gone};
use super::support::{Harness, check_laws, end};

fn working_harness() -> Harness {
    let harness = harness(&["!say a\n!read a.txt\n!write b.txt new\n!say b", "!say second"], |_, _| {});
    std::fs::write(harness.path().join("a.txt"), "fine").unwrap();
    harness
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_is_not_prompted_again_after_a_crash() {
    crash_everywhere("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_told_something_meanwhile_is_not_prompted_again() {
    crash_everywhere("and be quick").await;
}

/// Crashes before every append, sends a message to the running agents, and resumes.
async fn crash_everywhere(message: &str) {
    let whole = working_harness();
    assert_eq!(whole.run().await.outcome.text.as_str(), "[Ext]: second");
    let appends = whole.store.appends.load(Ordering::SeqCst);
    assert!(appends > 8);
    let mut unknown = 0;
    for crash in 1..appends {
        let harness = working_harness();
        harness.store.crash_after(crash);
        let runtime = harness.runtime();
        let Ok(run) = runtime.start(brigade::Task::new("the task")).await else {
            harness.store.repair();
            continue;
        };
        let root = run.session().clone();
        let ended = end(run).await.ok();
        drop(runtime);
        harness.store.repair();
        let resumed = match ended {
            Some(ended) => ended,
            None => {
                let runtime = harness.runtime();
                for child in ["1-0", "2-0"] {
                    let child: SessionId = format!("{root}.{child}").parse().unwrap();
                    if !message.is_empty() && !harness.events(&child).await.is_empty() {
                        runtime.tell(&child, message).await.unwrap();
                    }
                }
                end(runtime.resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap()
            }
        };
        assert_eq!(resumed.outcome.status, Status::Done, "crash {crash}: {}", resumed.outcome.text);
        let answers = harness.answers(&root).await;
        assert_eq!(answers.len(), 2, "crash {crash}: {answers:?}");
        for (answer, right) in answers.iter().zip(["b", "second"]) {
            let is_unknown = answer.contains("outcome unknown");
            unknown += usize::from(is_unknown);
            assert!(is_unknown || answer.ends_with(right), "crash {crash}: {answers:?}");
        }
        assert!(count(&harness, "prompt") <= 2, "crash {crash}: an agent was asked twice");
        check_laws(&harness.log(&root).await);
        wait_until_gone(&harness).await;
    }
    assert!(unknown > 0, "no crash came in between");
}
