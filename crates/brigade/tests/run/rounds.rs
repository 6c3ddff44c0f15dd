//! Conversations of many rounds in one process.

use std::sync::atomic::Ordering;

use brigade::core::{Event, SessionId, State, Status};
use brigade::{ResumeOptions, Runtime, Store, Task};
use brigade_testing::{Script, delegate, reply};

use crate::run::support::{Harness, check_laws, end};

fn echo() -> Script {
    Script::new().reply("you said: {heard}")
}

/// Every round has a child: the lead's turns alternate between delegating and answering.
fn delegating() -> Script {
    let turn = |number: u32| match number % 2 {
        0 => reply("done").agent("lead").turn(number),
        _ => delegate("Helper", "help").agent("lead").turn(number),
    };
    Script::new().replies((1..200).map(turn)).reply("helped")
}

/// Sends a message and runs the round that it requests.
async fn round(runtime: &Runtime, session: &SessionId, text: &str) -> String {
    runtime.tell(session, text).await.unwrap();
    assert!(runtime.has_unread_input(session).await.unwrap());
    let result = end(runtime.resume(session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!(result.outcome.status, Status::Done);
    assert!(!runtime.has_unread_input(session).await.unwrap());
    result.outcome.text.to_string()
}

#[tokio::test]
async fn rows_read_per_round_do_not_grow_with_the_log() {
    let harness = Harness::new(echo());
    let runtime = harness.runtime();
    let first = end(runtime.start(Task::new("hello")).await.unwrap()).await.unwrap();
    let mut rows = Vec::new();
    for number in 1..=200 {
        let before = harness.store.rows.load(Ordering::SeqCst);
        assert_eq!(
            round(&runtime, &first.session, &format!("{number}")).await,
            format!("you said: {number}")
        );
        rows.push(harness.store.rows.load(Ordering::SeqCst) - before);
    }
    let (early, late) = (rows[20], rows[199]);
    println!("rows read in round 20: {early}, in round 200: {late}");
    assert!(late <= early + 2, "{early} rows in round 20, {late} in round 200");
    check_laws(&harness.log(&first.session).await);
}

#[tokio::test]
async fn session_that_another_process_continued_is_read_on() {
    let harness = Harness::new(echo());
    let (here, there) = (harness.runtime(), harness.runtime());
    let session = end(here.start(Task::new("hello")).await.unwrap()).await.unwrap().session;
    for number in 0..6 {
        let runtime = if number % 2 == 0 { &there } else { &here };
        assert_eq!(round(runtime, &session, &format!("{number}")).await, format!("you said: {number}"));
    }
    let log = harness.log(&session).await;
    check_laws(&log);
    // The cached state equals the folded log.
    let state = State::fold(session.clone(), log.iter().map(|record| &record.event));
    assert_eq!(state.length(), log.len() as u64);
    harness.store.remove(&session).await.unwrap();
    for runtime in [&here, &there] {
        assert!(
            runtime.resume(&session, ResumeOptions::default()).await.is_err(),
            "it is not remembered after its removal"
        );
    }
}

#[tokio::test]
async fn rounds_with_children_read_no_more_late_than_early() {
    let harness = Harness::new(delegating());
    let runtime = harness.runtime();
    let session = end(runtime.start(Task::new("hello")).await.unwrap()).await.unwrap().session;
    let mut rows = Vec::new();
    for number in 1..=60 {
        let before = harness.store.rows.load(Ordering::SeqCst);
        round(&runtime, &session, &format!("{number}")).await;
        rows.push(harness.store.rows.load(Ordering::SeqCst) - before);
    }
    assert!(rows[59] <= rows[9] + 4, "{rows:?}");
    let log = harness.log(&session).await;
    let children = log.iter().filter(|record| matches!(record.event, Event::Delegated { .. })).count();
    assert_eq!(children, 61);
    check_laws(&log);
}
