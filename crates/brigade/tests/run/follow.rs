//! Following a tree: from any position, in the process that runs it and in another one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brigade::core::{Cursor, Event, Record, SessionId};
use brigade::store::SqliteStore;
use brigade::{Follow, Models, ResumeOptions, RunEvent, RunEvents, Runtime, Settings, Task, Workspace};
use brigade_testing::{Script, delegate, reply};

use crate::run::support::{Harness, TEST_TIMEOUT, end};

fn delegates() -> Script {
    Script::new()
        .agent("lead", [delegate("Helper", "help").turn(1)])
        .reply(reply("one two three four five six seven eight").chunks(8).chunk_delay_ms(20))
}

/// Follows a session until its `rounds`-th end. Returns the records, and the text of the deltas by session.
async fn follow_rounds(
    follower: &mut Follow,
    session: &SessionId,
    rounds: usize,
) -> (Vec<Record>, Vec<(SessionId, String)>) {
    let (mut records, mut deltas, mut ended) = (Vec::new(), Vec::new(), 0);
    while ended < rounds {
        match tokio::time::timeout(TEST_TIMEOUT, follower.next()).await.expect("no event").unwrap() {
            RunEvent::Record(record) => {
                let is_end = matches!(record.event, Event::Ended { .. }) && record.session == *session;
                ended += usize::from(is_end);
                records.push(Record::clone(&record));
            }
            RunEvent::Delta { session, turn, text } => {
                let is_reply =
                    |event: &Event| matches!(event, Event::Replied { turn: replied, .. } if *replied >= turn);
                let mut earlier = records.iter().filter(|record| record.session == session);
                assert!(!earlier.any(|record| is_reply(&record.event)), "a delta came after its reply");
                deltas.push((session, text.to_string()));
            }
            RunEvent::Waiting { .. } | RunEvent::Discarded { .. } => {}
        }
    }
    (records, deltas)
}

#[tokio::test]
async fn follower_in_the_process_of_a_run_gets_records_and_deltas() {
    let harness = Harness::new(delegates());
    let session = harness.runtime().new_session().unwrap();
    // Another runtime on the same store, before the session exists.
    let mut follower = harness.runtime().follow(&session, Cursor::START);
    let run = harness.runtime().start(Task::new("the task").session(session.clone())).await.unwrap();
    let (records, deltas) = follow_rounds(&mut follower, &session, 1).await;
    end(run).await.unwrap();
    assert_eq!(records, harness.log(&session).await);
    let child = records.iter().find(|record| record.session != session).unwrap().session.clone();
    for session in [session, child] {
        let text: String =
            deltas.iter().filter(|(of, _)| *of == session).map(|(_, text)| text.as_str()).collect();
        assert_eq!(text, "one two three four five six seven eight");
    }
}

#[tokio::test]
async fn follower_continues_over_rounds_from_its_cursor() {
    let harness = Harness::new(delegates());
    let runtime = harness.runtime();
    let session = harness.run().await.session;
    let mut follower = runtime.follow(&session, Cursor::START);
    let (first, _) = follow_rounds(&mut follower, &session, 1).await;
    assert_eq!(first, harness.log(&session).await);
    let cursor = follower.cursor();
    runtime.tell(&session, "more").await.unwrap();
    end(runtime.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    let (live, _) = follow_rounds(&mut follower, &session, 1).await;
    let (later, _) = follow_rounds(&mut runtime.follow(&session, cursor), &session, 1).await;
    let log = harness.log(&session).await;
    assert_eq!(live, log[first.len()..]);
    assert_eq!(later, log[first.len()..]);
}

#[tokio::test]
async fn stream_of_a_resumed_run_begins_with_its_own_events() {
    let harness = Harness::new(delegates());
    let session = harness.run().await.session;
    let known = harness.log(&session).await.len();
    let runtime = harness.runtime();
    runtime.tell(&session, "more").await.unwrap();
    let mut run = runtime.resume(&session, ResumeOptions::default()).await.unwrap();
    let another = run.subscribe();
    let own = records_of(run.take_events()).await;
    let copy = records_of(another).await;
    // A run that has ended still has its events.
    let late = records_of(run.subscribe()).await;
    end(run).await.unwrap();
    // The message was written before the run.
    assert_eq!(own, harness.log(&session).await[known + 1..]);
    assert_eq!((&copy, &late), (&own, &own));
}

/// Records of a run, to its end.
async fn records_of(mut events: RunEvents) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some(event) = tokio::time::timeout(TEST_TIMEOUT, events.next()).await.expect("it does not end")
    {
        if let RunEvent::Record(record) = event {
            records.push(Record::clone(&record));
        }
    }
    records
}

#[tokio::test]
async fn follower_that_reads_late_gets_no_delta_after_its_reply() {
    let harness = Harness::new(delegates());
    let session = harness.runtime().new_session().unwrap();
    let mut follower = harness.runtime().follow(&session, Cursor::START);
    harness.run_task(Task::new("the task").session(session.clone())).await;
    let (records, deltas) = follow_rounds(&mut follower, &session, 1).await;
    assert_eq!(records, harness.log(&session).await);
    assert_eq!(deltas, []);
    let next = tokio::time::timeout(Duration::from_millis(100), follower.next()).await;
    assert!(next.is_err(), "{next:?}");
}

#[tokio::test]
async fn events_of_a_run_after_a_position_include_earlier_ones() {
    let harness = Harness::new(delegates());
    let session = harness.run().await.session;
    let known = harness.log(&session).await;
    let runtime = harness.runtime();
    runtime.tell(&session, "more").await.unwrap();
    for (cursor, skipped) in [(known[2].pos, 3), (Cursor::START, 0)] {
        let mut run = runtime.resume(&session, ResumeOptions::default()).await.unwrap();
        let records = records_of(run.take_events_after(cursor)).await;
        end(run).await.unwrap();
        assert_eq!(records, harness.log(&session).await[skipped..]);
        runtime.tell(&session, "and more").await.unwrap();
    }
}

#[tokio::test]
async fn reading_the_events_of_a_run_reads_nothing_from_the_store() {
    let mut rows = Vec::new();
    for is_read in [false, true] {
        let harness = Harness::new(delegates());
        let mut run = harness.start().await;
        let mut count = 0;
        if is_read {
            while run.next().await.is_some() {
                count += 1;
            }
            assert!(count > 8, "{count} events");
        } else {
            drop(run.take_events());
        }
        end(run).await.unwrap();
        rows.push(harness.store.rows.load(Ordering::SeqCst));
    }
    assert_eq!(rows[0], rows[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_elsewhere_gets_whole_replies_and_no_deltas() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("sessions.db");
    let runtime = || {
        let settings = Settings::new("script", Workspace::open(folder.path()).unwrap());
        let models = Models::default().with("script", delegates().model());
        Runtime::new(Arc::new(SqliteStore::open(&place).unwrap()), settings, models)
    };
    let (here, elsewhere) = (runtime(), runtime());
    let run = here.start(Task::new("the task")).await.unwrap();
    let session = run.session().clone();
    let mut follower = elsewhere.follow(&session, Cursor::START);
    // A message from there is delivered here, in order.
    elsewhere.tell(&session, "more").await.unwrap();
    let mut own = here.follow(&session, Cursor::START);
    let both = tokio::join!(follow_rounds(&mut follower, &session, 1), follow_rounds(&mut own, &session, 1),);
    let ((records, deltas), (own_records, own_deltas)) = both;
    end(run).await.unwrap();
    let log = here.store().tail(&session, Cursor::START, usize::MAX).await.unwrap();
    assert_eq!((&records, &own_records), (&log, &log));
    assert!(log.iter().any(|record| matches!(record.event, Event::Heard { .. })));
    assert!(deltas.is_empty() && !own_deltas.is_empty());
    // Nothing follows.
    assert!(tokio::time::timeout(Duration::from_millis(100), follower.next()).await.is_err());
}
