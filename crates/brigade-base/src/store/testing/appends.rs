//! Laws of appends.

use std::time::Duration;

use brigade_core::event::VERSION;
use brigade_core::{Cursor, Event, Hash, SessionId};

use super::fixtures::*;
use crate::store::{Append, Expect, Store, StoreError};

pub async fn log_is_dense_and_returns_what_was_appended(store: &dyn Store) {
    let root = root(1);
    let lease = lease(store, &root).await;
    let written = vec![started("task", "agent", "authority"), heard_event("hello"), said_event("there")];
    let appended = store.append(leased_append(&lease, &root, 0, written.clone())).await.unwrap();
    assert_eq!(appended.first_seq, 0);
    let appended = store.append(leased_append(&lease, &root, 3, vec![said_event("more")])).await.unwrap();
    assert_eq!(appended.first_seq, 3);

    let records = store.read(&root, 0).await.unwrap();
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(events(&records[..3]), written);
    assert!(records.iter().all(|record| record.session == root && record.v == VERSION));
    assert_eq!((records[0].at, records[3].at), (1_000, 1_003));
    assert_eq!(records[3].pos, appended.first_pos);
    assert_eq!(store.read(&root, 2).await.unwrap(), records[2..]);
    assert_eq!(store.read_prefix(&root).await.unwrap(), (records, None));
}

pub async fn conflicting_append_changes_nothing_and_fails_alone(store: &dyn Store) {
    let (root, other) = (root(1), root(2));
    let lease = begin_session(store, &root, 3).await;
    let other_lease = begin_session(store, &other, 1).await;
    for length in [0, 2, 4, 99] {
        let mut append = leased_append(&lease, &root, length, vec![said_event("never")]);
        append.blobs.push(content("never"));
        // All are in one batch. The appends around the conflict succeed.
        let good = store.read(&other, 0).await.unwrap().len() as u64;
        let (bad, fine) = tokio::join!(
            store.append(append),
            store.append(leased_append(&other_lease, &other, good, vec![said_event("fine")]))
        );
        assert_eq!(bad, Err(StoreError::Conflict { session: root.clone(), expected: length, actual: 3 }));
        fine.unwrap();
    }
    assert_eq!(store.read(&root, 0).await.unwrap().len(), 3);
    assert_eq!(store.blob(Hash::of(b"never")).await.unwrap(), None);
    assert_eq!(store.read(&other, 0).await.unwrap().len(), 5);
}

pub async fn append_is_atomic(store: &dyn Store) {
    let root = root(1);
    let lease = begin_session(store, &root, 1).await;
    // The last event may not be appended this way, so the first is not appended either.
    let append = external_append(&root, vec![heard_event("one"), said_event("two")]);
    assert!(matches!(store.append(append).await, Err(StoreError::LeaseRequired { kind: "said", .. })));
    assert_eq!(store.read(&root, 0).await.unwrap().len(), 1);
    let many = (0..500).map(|n| said_event(format!("{n}"))).collect();
    let appended = store.append(leased_append(&lease, &root, 1, many)).await.unwrap();
    let records = store.read(&root, 1).await.unwrap();
    let positions = (0..500).map(|nth| appended.pos(nth)).collect::<Vec<_>>();
    assert_eq!(records.iter().map(|record| record.pos).collect::<Vec<_>>(), positions);
}

/// Short and long events, external events among them, and another session between two appends.
pub async fn batched_events_are_read_one_by_one(store: &dyn Store) {
    let top = root(1);
    let lease = begin_session(store, &top, 1).await;
    let event = |n: usize| match n % 11 {
        5 => heard_event(&format!("word {n}\nand a line")),
        7 => said_event(format!("{n} ").repeat(3_000)),
        _ => said_event(format!("{n} ").repeat(n * 4)),
    };
    store.append(leased_append(&lease, &top, 1, (0..40).map(event).collect())).await.unwrap();
    store.append(leased_append(&lease, &child(&top, 0), 0, (0..3).map(event).collect())).await.unwrap();
    store.append(leased_append(&lease, &top, 41, (40..60).map(event).collect())).await.unwrap();
    check_single_reads(store, &top, event).await;
    // Far behind the other sessions, the tree is found through the index.
    let stranger = root(2);
    let lease = super::fixtures::lease(store, &stranger).await;
    let many = (0..20_100).map(|n| said_event(format!("{n}"))).collect();
    store.append(leased_append(&lease, &stranger, 0, many)).await.unwrap();
    check_single_reads(store, &top, event).await;
}

pub async fn external_events_need_only_a_session(store: &dyn Store) {
    let root = root(1);
    assert_eq!(
        store.append(external_append(&root, vec![heard_event("hello")])).await,
        Err(StoreError::UnknownSession(root.clone()))
    );
    begin_session(store, &root, 2).await;
    let appended = store
        .append(external_append(&root, vec![heard_event("hello"), Event::CancelAsked { by: "me".into() }]))
        .await;
    assert_eq!(appended.unwrap().first_seq, 2);
    let at_length = Append { expect: Expect::Length(3), ..external_append(&root, vec![heard_event("late")]) };
    assert!(matches!(
        store.append(at_length).await,
        Err(StoreError::Conflict { expected: 3, actual: 4, .. })
    ));
    assert_eq!(store.read(&root, 0).await.unwrap().len(), 4);
}

pub async fn runner_events_need_a_lease_and_a_length(store: &dyn Store) {
    let root = root(1);
    let lease = begin_session(store, &root, 1).await;
    let refused = Err(StoreError::LeaseRequired { session: root.clone(), kind: "said" });
    assert_eq!(store.append(external_append(&root, vec![said_event("x")])).await, refused);
    let unleased = Append { lease: None, ..leased_append(&lease, &root, 1, vec![said_event("x")]) };
    assert_eq!(store.append(unleased).await, refused);
    let blind = Append { expect: Expect::Exists, ..leased_append(&lease, &root, 1, vec![said_event("x")]) };
    assert_eq!(store.append(blind).await, refused);
    assert_eq!(store.read(&root, 0).await.unwrap().len(), 1);
}

pub async fn only_external_appends_signal_changes(store: &dyn Store) {
    let root = root(1);
    let mut changes = store.changes();
    changes.mark_unchanged();
    begin_session(store, &root, 20).await;
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert!(
        !changes.has_changed().unwrap(),
        "events of the process that runs the session do not count as changes"
    );
    store.append(external_append(&root, vec![heard_event("hello")])).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), changes.changed()).await.unwrap().unwrap();
}

pub async fn blobs_are_stored_with_their_events(store: &dyn Store) {
    let root = root(1);
    let lease = lease(store, &root).await;
    let mut append = leased_append(&lease, &root, 0, vec![started("task", "the agent", "the authority")]);
    append.blobs = vec![content("the agent"), content("the authority"), content("the agent")];
    store.append(append).await.unwrap();
    assert_eq!(store.blob(Hash::of(b"the agent")).await.unwrap(), Some(content("the agent")));
    assert_eq!(store.blob(Hash::of(b"something else")).await.unwrap(), None);
}

pub async fn long_texts_are_read_back_unchanged(store: &dyn Store) {
    let root = root(1);
    let lease = lease(store, &root).await;
    let sizes = [0, 8_191, 8_192, 8_193, 100_000, 1_000_000];
    // Quotes and line ends are longer in JSON than in the text. Non-ASCII letters are not.
    let patterns = ["x", "\"\n", "ä", "\u{1F600}", "{\"blob\":1}"];
    let text = |size: usize, pattern: &str| pattern.repeat(size / pattern.len().max(1) + 1);
    let written: Vec<Event> = sizes
        .iter()
        .flat_map(|size| patterns.iter().map(move |pattern| (*size, *pattern)))
        .map(|(size, pattern)| said_event(brigade_core::text::truncate_bytes(&text(size, pattern), size)))
        .chain([started(&text(100_000, "task "), "agent", "authority")])
        .collect();
    store.append(leased_append(&lease, &root, 0, written.clone())).await.unwrap();
    assert_eq!(events(&store.read(&root, 0).await.unwrap()), written);
    assert_eq!(events(&store.tail(&root, Cursor::START, 999).await.unwrap()), written);
    let summary = store.roots().await.unwrap().remove(0);
    assert_eq!(summary.first.unwrap().event, written[0]);
}

pub async fn appending_nothing_changes_nothing(store: &dyn Store) {
    let lease = begin_session(store, &root(1), 2).await;
    assert_eq!(store.append(leased_append(&lease, &root(1), 2, vec![])).await.unwrap().first_seq, 2);
    assert_eq!(store.read(&root(1), 0).await.unwrap().len(), 2);
}

async fn check_single_reads(store: &dyn Store, top: &SessionId, event: impl Fn(usize) -> Event) {
    let top = top.clone();
    let whole = store.read(&top, 0).await.unwrap();
    assert_eq!(events(&whole[1..]), (0..60).map(event).collect::<Vec<_>>());
    assert!(whole.iter().zip(0..).all(|(record, seq)| record.seq == seq));
    for from in 0..=whole.len() {
        assert_eq!(store.read(&top, from as u64).await.unwrap(), whole[from..], "{from}");
    }
    let tree = store.tail(&top, Cursor::START, 1_000).await.unwrap();
    assert_eq!(tree.len(), whole.len() + 3);
    for (seen, record) in (1..).zip(&tree) {
        for limit in [1, 2, 7, 1_000] {
            let end = tree.len().min(seen + limit);
            assert_eq!(store.tail(&top, record.pos, limit).await.unwrap(), tree[seen..end], "{seen} {limit}");
        }
    }
    let external: Vec<_> = tree
        .iter()
        .filter(|record| record.event.is_external())
        .map(|record| (record.session.clone(), record.pos))
        .collect();
    assert_eq!(external.len(), 5);
    assert_eq!(store.external_events(&top, Cursor::START).await.unwrap(), external);
    assert_eq!(store.external_events(&top, external[1].1).await.unwrap(), external[2..]);
    let roots = store.roots().await.unwrap();
    let summary = roots.iter().find(|summary| summary.root == top).unwrap();
    assert_eq!((summary.first.as_ref(), summary.last.as_ref()), (Ok(&whole[0]), Ok(&whole[60])));
}
