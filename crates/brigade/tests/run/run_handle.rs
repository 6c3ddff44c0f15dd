//! The handle of a run: it can be addressed as soon as it is returned, streams its events and awaits to its result.

use std::time::Duration;

use brigade::core::delegation::LimitKind;
use brigade::core::{Event, Status};
use brigade::{ResumeOptions, RunError, RunEvent, Task};
use brigade_testing::{Fault, Script, fault, reply};
use futures::StreamExt;

use crate::run::support::Harness;

fn hangs() -> Script {
    Script::new().reply(fault(Fault::Hang))
}

fn answers() -> Script {
    Script::new().reply("done")
}

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn is_cancelled(status: &Status) -> bool {
    matches!(status, Status::Cancelled { by } if by == "the test")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_run_is_durable_and_can_be_cancelled_at_once() {
    for _ in 0..50 {
        let harness = Harness::new(hangs());
        let run = harness.runtime().start(Task::new("the task")).await.unwrap();
        assert!(matches!(harness.events(run.session()).await.first(), Some(Event::Started { .. })));
        run.cancel("the test").await.unwrap();
        let result =
            tokio::time::timeout(TEST_TIMEOUT, run).await.expect("the cancel had no effect").unwrap();
        assert!(is_cancelled(&result.outcome.status), "{:?}", result.outcome);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_round_can_be_cancelled_at_once() {
    for _ in 0..50 {
        let harness = Harness::new(Script::new().turns([reply("done"), fault(Fault::Hang)]));
        let runtime = harness.runtime();
        let session = runtime.start(Task::new("the task")).await.unwrap().await.unwrap().session;
        runtime.tell(&session, "more").await.unwrap();
        let run = runtime.resume(&session, ResumeOptions::default()).await.unwrap();
        run.cancel("the test").await.unwrap();
        let result =
            tokio::time::timeout(TEST_TIMEOUT, run).await.expect("the cancel had no effect").unwrap();
        assert!(is_cancelled(&result.outcome.status), "{:?}", result.outcome);
    }
}

#[tokio::test]
async fn stream_of_a_run_has_every_event_of_its_log_in_order() {
    let harness = Harness::new(answers());
    let mut run = harness.runtime().start(Task::new("the task")).await.unwrap();
    let mut streamed = Vec::new();
    // `StreamExt::next`, not the method of the same name.
    while let Some(event) = StreamExt::next(&mut run).await {
        if let RunEvent::Record(record) = event {
            streamed.push(record.event.clone());
        }
    }
    let result = run.await.unwrap();
    assert_eq!(streamed, harness.events(&result.session).await);
    assert!(streamed.len() >= 4, "{streamed:?}");
}

#[tokio::test]
async fn message_to_a_run_is_read_before_its_end() {
    let script = Script::new().turns([reply("first").delay_ms(50), reply("{last}")]);
    let harness = Harness::new(script);
    let run = harness.runtime().start(Task::new("the task")).await.unwrap();
    run.tell("one more thing").await.unwrap();
    let result = run.await.unwrap();
    assert_eq!(result.outcome.status, Status::Done);
    let heard =
        |event: &Event| matches!(event, Event::Heard { text, .. } if text.as_str() == "one more thing");
    assert!(harness.events(&result.session).await.iter().any(heard));
}

#[tokio::test]
async fn start_fails_if_the_first_event_cannot_be_stored() {
    let harness = Harness::new(answers());
    harness.store.crash_after(0);
    let failed = harness.runtime().start(Task::new("the task")).await;
    assert!(matches!(failed, Err(RunError::Store(_))));
}

#[tokio::test]
async fn pause_before_a_retry_ends_at_the_time_limit() {
    let script = Script::new().reply(fault(Fault::Overloaded));
    let harness = Harness::with(script, |settings| settings.limits.retry_pause = Duration::from_secs(60));
    let task = Task::new("the task").timeout(Duration::from_millis(300));
    let run = harness.runtime().start(task).await.unwrap();
    let result =
        tokio::time::timeout(TEST_TIMEOUT, run).await.expect("the pause outlasts the limit").unwrap();
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Time });
    // No request was sent after the pause, so nothing may have been billed.
    assert_eq!(result.spent.unconfirmed.tokens, 0, "{:?}", result.spent);
}
