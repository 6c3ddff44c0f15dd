//! A store that cannot be reached at times, or loses its answers.

use std::collections::BTreeMap;
use std::time::Duration;

use brigade::core::{Record, SessionId, Status};
use brigade::{ResumeOptions, RunError, RunEvent, StoreError, Task};

use crate::run::crash::harness;
use crate::run::support::{Fault, Harness, check_laws, end};

/// Number of trees with random faults.
const TREES: u64 = 16;

/// Kinds of the events of each session, by its place in the tree. Children that end at the same time return in any
/// order.
fn kinds(root: &SessionId, log: &[Record]) -> BTreeMap<String, Vec<&'static str>> {
    let mut kinds: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for record in log {
        let place = record.session.as_str().trim_start_matches(root.as_str()).to_owned();
        kinds.entry(place).or_default().push(record.event.kind());
    }
    kinds.values_mut().for_each(|kinds| kinds.sort_unstable());
    kinds
}

/// Runs a tree and returns its root, its log, and the records that a subscriber was sent.
async fn run(harness: &Harness) -> (SessionId, Vec<Record>, Vec<Record>) {
    let mut run = harness.runtime().start(Task::new("the task")).await.unwrap();
    let mut events = run.take_events();
    let result = end(run).await.unwrap();
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    let mut sent = Vec::new();
    while let Some(event) = events.try_next() {
        if let RunEvent::Record(record) = event {
            sent.push(Record::clone(&record));
        }
    }
    // Appends that are still under way must not add anything.
    tokio::time::sleep(Duration::from_millis(40)).await;
    (result.session.clone(), harness.log(&result.session).await, sent)
}

#[tokio::test]
async fn events_of_a_tree_are_written_once_whatever_the_store_answers() {
    let expected = {
        let (root, log, _) = run(&harness()).await;
        kinds(&root, &log)
    };
    let mut faults: BTreeMap<Fault, u32> = BTreeMap::new();
    for seed in 0..TREES {
        let harness = harness();
        harness.store.fail_at_random(seed);
        let (root, log, mut sent) = run(&harness).await;
        for (fault, count) in harness.store.faults() {
            *faults.entry(fault).or_default() += count;
        }
        let mut log = log;
        check_laws(&log);
        assert_eq!(kinds(&root, &log), expected, "seed {seed}");
        // A subscriber learns of every record once, with the place it has in the log.
        let place = |record: &Record| (record.session.clone(), record.seq);
        log.sort_by_key(place);
        sent.sort_by_key(place);
        assert_eq!(sent, log, "seed {seed}");
    }
    let all = [Fault::Unavailable, Fault::AnswerLost, Fault::RequestLost, Fault::Late, Fault::UnreadableNow];
    for fault in all {
        assert!(
            faults.get(&fault).is_some_and(|count| *count >= 10),
            "{fault:?} was hardly tried: {faults:?}"
        );
    }
}

#[tokio::test]
async fn a_store_that_stays_unavailable_stops_the_run_and_loses_nothing() {
    let harness = harness();
    harness.store.fail_for_good_after(7);
    let run = harness.start().await;
    let root = run.session().clone();
    let error = end(run).await.unwrap_err();
    assert!(matches!(error, RunError::Store(StoreError::Unavailable { retry: None, .. })), "{error:?}");
    harness.store.fail_for_good_after(i64::MAX);
    let resumed = harness.runtime().resume(&root, ResumeOptions::default()).await.unwrap();
    assert_eq!(end(resumed).await.unwrap().outcome.status, Status::Done);
    check_laws(&harness.log(&root).await);
}
