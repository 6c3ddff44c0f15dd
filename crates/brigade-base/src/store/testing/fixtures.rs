//! Sessions, events and appends for tests of stores.

use std::sync::Arc;

use brigade_core::event::Speaker;
use brigade_core::{
    Budget, CallId, Delegation, Event, Grant, Hash, Limit, Outcome, Record, Reply, SessionId, Spent, Status,
    Text,
};

use crate::store::{Append, Appended, Expect, Lease, Owner, Store, StoreError};

pub fn root(bits: u128) -> SessionId {
    SessionId::root(bits)
}

pub fn child(parent: &SessionId, index: u32) -> SessionId {
    parent.child(CallId { turn: 1, index })
}

pub fn heard_event(text: &str) -> Event {
    Event::Heard { from: Speaker::Person, text: text.into() }
}

pub fn said_event(text: impl Into<Text>) -> Event {
    Event::Said { call: CallId { turn: 1, index: 0 }, text: text.into() }
}

pub fn started(task: &str, agent: &str, authority: &str) -> Event {
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
pub fn leased_append(lease: &Lease, session: &SessionId, length: u64, events: Vec<Event>) -> Append {
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
pub fn external_append(session: &SessionId, events: Vec<Event>) -> Append {
    Append {
        session: session.clone(),
        expect: Expect::Exists,
        events: events.into(),
        blobs: Vec::new(),
        lease: None,
        at: 1_000,
    }
}

pub async fn lease(store: &dyn Store, root: &SessionId) -> Lease {
    store.lease(root, &Owner::this_process(), 1_000).await.unwrap()
}

/// A leased session with `count` events.
pub async fn begin_session(store: &dyn Store, root: &SessionId, count: u64) -> Lease {
    let lease = lease(store, root).await;
    append_events(store, &lease, root, 0, count).await.unwrap();
    lease
}

/// Appends `count` events, one by one.
pub async fn append_events(
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

pub fn events(records: &[Record]) -> Vec<Event> {
    records.iter().map(|record| record.event.clone()).collect()
}

pub fn content(text: &str) -> Arc<str> {
    text.into()
}

/// A root, two children and a grandchild with interleaved events, and an unrelated session.
pub(super) async fn small_tree(store: &dyn Store) -> (SessionId, SessionId) {
    let (top, stranger) = (root(7), root(8));
    let leases = [lease(store, &top).await, lease(store, &stranger).await];
    let low = child(&top, 0);
    let sessions = [top.clone(), stranger, low.clone(), child(&top, 1), child(&low, 0)];
    for length in 0..4 {
        for session in &sessions {
            let lease = leases.iter().find(|lease| lease.root.contains(session)).unwrap();
            append_events(store, lease, session, length, 1).await.unwrap();
        }
    }
    (top, low)
}

/// Usage of this many turns.
pub(super) fn turns(turns: u64) -> Spent {
    Spent { turns, usd: turns * 10, ..Spent::default() }
}

pub(super) fn replied(turn: u32, spent: Spent) -> Event {
    Event::Replied { turn, reply: Reply::default(), spent, waited_ms: 0 }
}

pub(super) fn ended(spent: Spent) -> Event {
    Event::Ended { outcome: Outcome::new(Status::Done, "so"), spent }
}

pub(super) fn delegated(parent: &SessionId, index: u32) -> Event {
    let Event::Started { delegation, agent, grant, .. } = started("part", "agent", "authority") else {
        unreachable!()
    };
    let call = CallId { turn: 1, index };
    Event::Delegated { call, child: child(parent, index), delegation, agent, grant }
}

pub(super) fn returned(parent: &SessionId, index: u32, spent: Spent) -> Event {
    let outcome = Outcome::new(Status::Done, "part");
    Event::Returned { child: child(parent, index), outcome, spent, waited_ms: 0 }
}
