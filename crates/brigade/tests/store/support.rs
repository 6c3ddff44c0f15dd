//! Helpers for the store tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade::store::{Append, Appended, Expect, Lease, Owner, SqliteStore, Store, StoreError};
use brigade_core::event::Speaker;
use brigade_core::{Budget, CallId, Delegation, Event, Grant, Hash, Limit, Record, SessionId, Text};

pub(crate) fn root(bits: u128) -> SessionId {
    SessionId::root(bits)
}

pub(crate) fn child(parent: &SessionId, index: u32) -> SessionId {
    parent.child(CallId { turn: 1, index })
}

pub(crate) fn heard_event(text: &str) -> Event {
    Event::Heard { from: Speaker::Person, text: text.into() }
}

pub(crate) fn said_event(text: impl Into<Text>) -> Event {
    Event::Said { call: CallId { turn: 1, index: 0 }, text: text.into() }
}

pub(crate) fn started(task: &str, agent: &str, authority: &str) -> Event {
    Event::Started {
        delegation: Delegation { task: task.into(), ..Delegation::default() }.into(),
        agent: Hash::of(agent.as_bytes()),
        grant: Grant {
            authority: Hash::of(authority.as_bytes()),
            budget: Budget::UNLIMITED,
            turns: 5,
            deadline: Limit::Unlimited,
        },
        parent: None,
        depth: 0,
    }
}

/// An append by a runner.
pub(crate) fn leased_append(lease: &Lease, session: &SessionId, length: u64, events: Vec<Event>) -> Append {
    Append {
        session: session.clone(),
        expect: Expect::Length(length),
        events: events.into(),
        blobs: Vec::new(),
        lease: Some(lease.clone()),
        at: 1_000 + length,
    }
}

/// An append of external events.
pub(crate) fn external_append(session: &SessionId, events: Vec<Event>) -> Append {
    Append {
        session: session.clone(),
        expect: Expect::Exists,
        events: events.into(),
        blobs: Vec::new(),
        lease: None,
        at: 1_000,
    }
}

pub(crate) async fn lease(store: &dyn Store, root: &SessionId) -> Lease {
    store.lease(root, &Owner::this_process(), 1_000).await.unwrap()
}

/// A leased session with `count` events.
pub(crate) async fn begin_session(store: &dyn Store, root: &SessionId, count: u64) -> Lease {
    let lease = lease(store, root).await;
    append_events(store, &lease, root, 0, count).await.unwrap();
    lease
}

/// Appends `count` events, one by one.
pub(crate) async fn append_events(
    store: &dyn Store,
    lease: &Lease,
    session: &SessionId,
    from: u64,
    count: u64,
) -> Result<Option<Appended>, StoreError> {
    let mut last = None;
    for length in from..from + count {
        last = Some(
            store
                .append(leased_append(lease, session, length, vec![said_event(format!("fact {length}"))]))
                .await?,
        );
    }
    Ok(last)
}

pub(crate) fn events(records: &[Record]) -> Vec<Event> {
    records.iter().map(|record| record.event.clone()).collect()
}

pub(crate) fn content(text: &str) -> Arc<str> {
    text.into()
}

/// A directory in memory, if there is one. The tests check what is written, not the disk.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub(crate) fn open(folder: &tempfile::TempDir) -> SqliteStore {
    SqliteStore::open(&database(folder.path())).unwrap()
}

pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("sessions.db")
}

pub(crate) fn wal(folder: &Path) -> PathBuf {
    folder.join("sessions.db-wal")
}
