//! Cancelling at every step.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brigade::core::{Event, Status};
use brigade::{ResumeOptions, RunEvent};
use brigade_testing::{Fault, Purpose, Reply, Script, call, delegate, fault, reply};
use serde_json::json;

use crate::run::support::{Harness, check_laws, end};

fn scene(leaf: Reply) -> Script {
    Script::new()
        .agent(
            "lead",
            [reply("splitting")
                .delegate("Left", "x")
                .delegate("Right", "x")
                .call("echo", json!({ "text": "e" }))
                .turn(1)],
        )
        .agent("Left", [reply("half of left").delegate("Leaf", "x"), reply("left").delay_ms(5)])
        .agent("Leaf", [leaf])
        .agent("Right", [call("echo", json!({ "text": "e" })), reply("right").delay_ms(5)])
        .agent("lead", [reply("all")])
}

fn harness(leaf: Reply) -> Harness {
    Harness::with(scene(leaf), |settings| settings.delegation_styles.swarm.max_depth = 2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c76_cancelling_at_every_event_ends_all_descendants_in_two_seconds() {
    let leaf = reply("leaf").delay_ms(5);
    let whole = harness(leaf.clone());
    let facts = {
        let result = whole.run().await;
        whole.log(&result.session).await.len()
    };
    for at in 0..facts {
        let harness = harness(leaf.clone());
        let runtime = harness.runtime();
        let mut run = runtime.start(brigade::Task::new("the task")).await.unwrap();
        let root = run.session().clone();
        let mut watch = run.take_events();
        let canceller = runtime.clone();
        let cancel = async {
            let mut seen = 0;
            while seen <= at {
                match watch.next().await {
                    Some(RunEvent::Record(_)) => seen += 1,
                    Some(_) => {}
                    None => return,
                }
            }
            let _ = canceller.cancel(&root, "the user").await;
        };
        let started = Instant::now();
        let (result, ()) = tokio::join!(end(run), cancel);
        let result = result.unwrap();
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        let log = harness.log(&root).await;
        check_laws(&log);
        if matches!(result.outcome.status, Status::Cancelled { .. }) {
            let cancelled_at = log.iter().position(|record| {
                record.session == root && matches!(record.event, Event::CancelAsked { .. })
            });
            let lent_after = log[cancelled_at.unwrap()..]
                .iter()
                .any(|record| record.session == root && matches!(record.event, Event::Delegated { .. }));
            assert!(!lent_after, "nothing is lent after a cancel");
        }
    }
}

#[tokio::test]
async fn partial_results_are_kept() {
    let harness = harness(fault(Fault::Hang));
    let runtime = harness.runtime();
    let run = runtime.start(brigade::Task::new("the task")).await.unwrap();
    let root = run.session().clone();
    tokio::time::sleep(Duration::from_millis(300)).await;
    runtime.cancel(&root, "the user").await.unwrap();
    let result = end(run).await.unwrap();
    assert_eq!(result.outcome.status, Status::Cancelled { by: "the user".to_owned() });
    assert_eq!(result.outcome.text.as_str(), "splitting");
    let answers = harness.answers(&root).await;
    assert!(answers[0].starts_with("Sub-agent 'Left' failed: cancelled by"), "{}", answers[0]);
    assert!(answers[0].ends_with("half of left"), "{}", answers[0]);
    assert_eq!(answers[1], "[Right]: right");
}

/// A text that is streamed in pieces, followed by a call.
fn streamed_text() -> Reply {
    reply("one two three four five six")
        .chunks(6)
        .chunk_delay_ms(400)
        .call("write_file", json!({ "path": "made", "content": "x" }))
}

fn one_writer(writer: impl IntoIterator<Item = Reply>) -> Script {
    Script::new()
        .agent("lead", [delegate("Writer", "x").turn(1)])
        .agent("Writer", writer)
        .agent("lead", [reply("all")])
}

#[tokio::test]
async fn child_cancelled_while_it_streams_returns_its_partial_text() {
    let harness = Harness::new(one_writer([streamed_text()]));
    let runtime = harness.runtime();
    let mut run = runtime.start(brigade::Task::new("the task")).await.unwrap();
    let root = run.session().clone();
    let child = root.child("1-0".parse().unwrap());
    let mut watch = run.take_events();
    let mut streamed = String::new();
    while streamed.len() < 8 {
        if let RunEvent::Delta { session, text, .. } = watch.next().await.unwrap() {
            assert_eq!(session, child);
            streamed.push_str(&text);
        }
    }
    runtime.cancel(&child, "the user").await.unwrap();
    let result = end(run).await.unwrap();
    assert_eq!(result.outcome.status, Status::Done);
    let answer = harness.answers(&root).await.remove(0);
    assert!(answer.starts_with("Sub-agent 'Writer' failed: cancelled by the user"), "{answer}");
    let (_, kept) = answer.split_once("Partial result:\n").unwrap();
    assert!(kept.starts_with(&streamed) && "one two three four five six".starts_with(kept), "{answer}");
    assert!(kept.len() < "one two three four five six".len(), "{answer}");
    assert!(!harness.path().join("made").exists(), "no call of a partial reply runs");
    check_laws(&harness.log(&root).await);
}

#[tokio::test]
async fn child_timeout_without_wrap_up_returns_partial_text() {
    let script =
        one_writer([streamed_text().purpose(Purpose::Turn), fault(Fault::Refused).purpose(Purpose::Grace)]);
    let harness = Harness::with(script, |settings| {
        settings.limits.child_timeout = Duration::from_millis(900);
    });
    let result = harness.run().await;
    let child = result.session.child("1-0".parse().unwrap());
    let events = harness.events(&child).await;
    let Some(Event::Ended { outcome, .. }) = events.last() else { panic!("{events:?}") };
    assert!(outcome.text.as_str().starts_with("one"), "{outcome:?}");
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn resume_completes_a_cancellation_that_a_crash_interrupted() {
    let total = {
        let harness = harness(fault(Fault::Hang));
        cancelled_run(&harness, i64::MAX).await;
        harness.store.appends.load(Ordering::SeqCst)
    };
    for appends in 0..total {
        let harness = harness(fault(Fault::Hang));
        let root = cancelled_run(&harness, appends).await;
        harness.store.repair();
        if harness.log(&root).await.is_empty() {
            continue;
        }
        let asked =
            harness.events(&root).await.iter().any(|event| matches!(event, Event::CancelAsked { .. }));
        if !asked {
            continue;
        }
        let result =
            end(harness.runtime().resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap();
        assert!(matches!(result.outcome.status, Status::Cancelled { .. }), "{:?}", result.outcome);
        check_laws(&harness.log(&root).await);
    }
}

/// Runs the scene until it hangs, cancels it, and crashes the store at some point.
async fn cancelled_run(harness: &Harness, appends: i64) -> brigade::core::SessionId {
    harness.store.crash_after(appends);
    let runtime = harness.runtime();
    let root = runtime.new_session().unwrap();
    let task = brigade::Task::new("the task").session(root.clone());
    let Ok(run) = runtime.start(task).await else { return root };
    tokio::time::sleep(Duration::from_millis(60)).await;
    // If the cancellation itself was not stored, the process is dead and the run is not awaited.
    if runtime.cancel(&root, "the user").await.is_ok() {
        let _ = end(run).await;
    }
    root
}

#[tokio::test]
async fn one_child_can_be_cancelled_alone() {
    let harness = harness(fault(Fault::Hang));
    let runtime = harness.runtime();
    let run = runtime.start(brigade::Task::new("the task")).await.unwrap();
    let leaf = run.session().child("1-0".parse().unwrap()).child("1-0".parse().unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    runtime.cancel(&leaf, "the user").await.unwrap();
    let result = end(run).await.unwrap();
    assert_eq!(result.outcome.status, Status::Done);
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn cancelled_session_continues_only_on_request() {
    let script = Script::new().turns([fault(Fault::Hang).attempt(1), reply("finished: {heard}")]);
    let harness = Harness::with(script, |_| {});
    let root = cancelled_run(&harness, i64::MAX).await;
    let again = end(harness.runtime().resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert!(matches!(again.outcome.status, Status::Cancelled { .. }), "{:?}", again.outcome);
    let facts = harness.log(&root).await.len();
    let more = ResumeOptions { continue_cancelled: true, ..ResumeOptions::default() };
    let result = end(harness.runtime().resume(&root, more.clone()).await.unwrap()).await.unwrap();
    assert_eq!(result.outcome.status, Status::Done);
    let words = "Your last run was cancelled before it finished. Continue the task";
    assert!(result.outcome.text.as_str().contains(words), "{:?}", result.outcome.text);
    check_laws(&harness.log(&root).await);
    let records = harness.log(&root).await.len();
    assert!(records > facts);
    // A finished session is not continued.
    end(harness.runtime().resume(&root, more).await.unwrap()).await.unwrap();
    assert_eq!(harness.log(&root).await.len(), records);
}
