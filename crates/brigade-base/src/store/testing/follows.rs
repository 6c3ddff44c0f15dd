//! Laws of followers.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::{Cursor, Record, SessionId};

use super::fixtures::*;
use crate::event_stream::RunEvent;
use crate::follow::Follow;
use crate::store::{Append, Lease, MemoryStore, Store, StoreError};
use crate::task::spawn;

/// Number of sessions that are written at the same time.
pub const WRITERS: u32 = 64;
/// Time within which a record must be delivered.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Followers from the start, from the middle and with interruptions, while 64 sessions of a tree are written. Some
/// appends conflict, some are refused, some are external.
pub async fn follower_under_64_writers_misses_nothing_and_sees_nothing_twice(store: Arc<dyn Store>) {
    let top = root(1);
    let lease = begin_session(&*store, &top, 1).await;
    let count = WRITERS as usize * RECORDS_OF_A_WRITER + 1;
    let patient = spawn(follow(store.clone(), top.clone(), count, usize::MAX));
    let mut late = Follow::new(store.clone(), &top, Cursor::START);
    let interrupted = spawn(follow(store.clone(), top.clone(), count, 37));
    let writers = (0..WRITERS).map(|index| spawn(write(store.clone(), lease.clone(), index)));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let log = store.tail(&top, Cursor::START, usize::MAX).await.unwrap();
    assert_eq!(log.len(), count);
    assert_same_records(&patient.await.unwrap(), &log);
    assert_same_records(&interrupted.await.unwrap(), &log);
    // All appends are in its queue, and in the store.
    assert_same_records(&next_records(&mut late, count).await, &log);
    assert_idle(&mut late).await;
    for start in [0, 1, count / 2, count - 1] {
        let mut follower = Follow::new(store.clone(), &top, log[start].pos);
        assert_same_records(&next_records(&mut follower, count - start - 1).await, &log[start + 1..]);
        assert_idle(&mut follower).await;
    }
}

/// Appends that a follower has not read are dropped from memory and read from the store.
pub async fn slow_follower_reads_the_rest_from_the_store(store: Arc<dyn Store>) {
    let top = root(1);
    let mut follower = Follow::new(store.clone(), &top, Cursor::START);
    let lease = begin_session(&*store, &top, 1).await;
    let first = next_records(&mut follower, 1).await;
    assert_idle(&mut follower).await;
    let sessions: Vec<SessionId> = (0..WRITERS).map(|index| child(&top, index)).collect();
    // More appends than a follower keeps in memory.
    for length in 0..100 {
        let append =
            |session: &SessionId| store.append(leased_append(&lease, session, length, vec![said_event("x")]));
        for appended in futures::future::join_all(sessions.iter().map(append)).await {
            appended.unwrap();
        }
    }
    let log = store.tail(&top, Cursor::START, usize::MAX).await.unwrap();
    assert_eq!(first, log[..1]);
    assert_same_records(&next_records(&mut follower, log.len() - 1).await, &log[1..]);
    // It is back in time.
    store.append(external_append(&top, vec![heard_event("hello")])).await.unwrap();
    assert_eq!(next_records(&mut follower, 1).await, store.read(&top, 1).await.unwrap());
    assert_idle(&mut follower).await;
}

pub async fn follower_of_a_session_gets_only_its_own_tree(store: Arc<dyn Store>) {
    let (top, other) = (root(1), root(2));
    // A follower may come before its session.
    let low = child(&top, 1);
    let mut follower = Follow::new(store.clone(), &low, Cursor::START);
    let lease = begin_session(&*store, &top, 2).await;
    begin_session(&*store, &other, 2).await;
    let sessions = [low.clone(), child(&top, 10), child(&low, 0), child(&top, 2)];
    for session in &sessions {
        store.append(leased_append(&lease, session, 0, vec![said_event(session.as_str())])).await.unwrap();
    }
    let expected = store.tail(&low, Cursor::START, usize::MAX).await.unwrap();
    assert_eq!(expected.len(), 2);
    assert_eq!(next_records(&mut follower, 2).await, expected);
    assert_eq!(follower.cursor(), expected[1].pos);
    assert_idle(&mut follower).await;
}

pub async fn restored_records_reach_followers(store: Arc<dyn Store>) {
    let (top, elsewhere) = (root(1), MemoryStore::new());
    let mut follower = Follow::new(store.clone(), &top, Cursor::START);
    assert_idle(&mut follower).await;
    begin_session(&elsewhere, &top, 3).await;
    let records = elsewhere.tail(&top, Cursor::START, usize::MAX).await.unwrap();
    store.restore(records, Vec::new()).await.unwrap();
    let restored = store.read(&top, 0).await.unwrap();
    assert_eq!(next_records(&mut follower, 3).await, restored);
    assert_idle(&mut follower).await;
}

/// Number of records that [`write()`] adds.
pub const RECORDS_OF_A_WRITER: usize = 30;

/// Writes one child session: 20 records of a runner, and 10 external ones.
pub async fn write(store: Arc<dyn Store>, lease: Lease, index: u32) {
    let session = child(&lease.root, index);
    let refused_lease = Lease { epoch: lease.epoch + 1, ..lease.clone() };
    let mut length = 0;
    for step in 0..10 {
        let events = vec![said_event(format!("{step}")), said_event("and more")];
        store.append(leased_append(&lease, &session, length, events.clone())).await.unwrap();
        let conflict = store.append(leased_append(&lease, &session, length, events.clone()));
        let fenced = store.append(leased_append(&refused_lease, &session, length + 2, events.clone()));
        let unleased =
            store.append(Append { lease: None, ..leased_append(&lease, &session, length + 2, events) });
        let heard = store.append(external_append(&session, vec![heard_event(&format!("{step}"))]));
        let (conflict, fenced, unleased, heard) = tokio::join!(conflict, fenced, unleased, heard);
        assert!(matches!(conflict, Err(StoreError::Conflict { .. })), "{conflict:?}");
        assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
        assert!(matches!(unleased, Err(StoreError::LeaseRequired { .. })), "{unleased:?}");
        heard.unwrap();
        length += 3;
    }
}

/// Follows a tree from its start for a number of records, with a new follower after every `stretch` records.
pub async fn follow(store: Arc<dyn Store>, top: SessionId, count: usize, stretch: usize) -> Vec<Record> {
    let (mut records, mut cursor) = (Vec::new(), Cursor::START);
    while records.len() < count {
        let mut follower = Follow::new(store.clone(), &top, cursor);
        records.extend(next_records(&mut follower, stretch.min(count - records.len())).await);
        cursor = follower.cursor();
    }
    records
}

/// Reads the next records of a follower.
///
/// # Panics
///
/// If one is not delivered in time.
pub async fn next_records(follower: &mut Follow, count: usize) -> Vec<Record> {
    let mut records = Vec::new();
    while records.len() < count {
        let next = tokio::time::timeout(DELIVERY_TIMEOUT, follower.next()).await;
        assert!(next.is_ok(), "{} of {count} records were delivered", records.len());
        if let RunEvent::Record(record) = next.unwrap().unwrap() {
            records.push(Arc::unwrap_or_clone(record));
        }
    }
    records
}

/// # Panics
///
/// If the follower has another event.
pub async fn assert_idle(follower: &mut Follow) {
    let next = tokio::time::timeout(Duration::from_millis(80), follower.next()).await;
    assert!(next.is_err(), "{next:?}");
}

/// # Panics
///
/// If the records differ. The message has the first difference only.
pub fn assert_same_records(delivered: &[Record], log: &[Record]) {
    let place = |records: &[Record]| -> Vec<(SessionId, u64, u64)> {
        records.iter().map(|record| (record.session.clone(), record.seq, record.pos.number())).collect()
    };
    let (delivered_places, log_places) = (place(delivered), place(log));
    let difference = delivered_places.iter().zip(&log_places).position(|(one, other)| one != other);
    assert_eq!(difference, None, "{difference:?}");
    assert_eq!(delivered.len(), log.len());
    assert!(delivered == log, "the events differ");
}
