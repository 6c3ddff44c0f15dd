//! Laws that every store keeps.

use std::time::Duration;

use brigade::store::{Append, Expect, MemoryStore, ReturnedChild, Store, StoreError, Totals};
use brigade_core::event::{Effect, VERSION};
use brigade_core::{CallId, Cursor, Event, Hash, Outcome, Reply, Resources, SessionId, Spent, Status};

use crate::support::*;

/// Runs every law on every store.
macro_rules! laws {
    ($($law:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $law() { super::$law(&super::MemoryStore::new()).await; })*
        }
        mod sqlite {
            $(#[tokio::test] async fn $law() {
                let folder = crate::support::folder();
                super::$law(&crate::support::open(&folder)).await;
            })*
        }
    };
}

laws!(
    log_is_dense_and_returns_what_was_appended,
    conflicting_append_changes_nothing_and_fails_alone,
    append_is_atomic,
    batched_events_are_read_one_by_one,
    external_events_need_only_a_session,
    runner_events_need_a_lease_and_a_length,
    positions_increase_in_every_tree,
    tail_returns_the_tree_in_order_and_in_pages,
    siblings_with_longer_ids_are_not_descendants,
    external_events_return_session_and_position,
    only_external_appends_signal_changes,
    blobs_are_stored_with_their_events,
    long_texts_are_read_back_unchanged,
    roots_are_the_newest_first,
    remove_deletes_the_tree_and_its_own_blobs,
    remove_keeps_detached_sessions,
    positions_of_a_removed_tree_are_never_assigned_to_it_again,
    reading_nothing_is_not_an_error,
    totals_are_the_sum_of_rounds_and_of_open_branches,
    verify_of_a_tree_whose_returned_child_has_no_log_fails,
    appending_nothing_changes_nothing,
    edit_hashes_are_known_after_the_session_is_removed,
);

async fn log_is_dense_and_returns_what_was_appended(store: &dyn Store) {
    let root = root(1);
    let lease = lease(store, &root).await;
    let facts = vec![started("task", "agent", "authority"), heard_event("hello"), said_event("there")];
    let appended = store.append(leased_append(&lease, &root, 0, facts.clone())).await.unwrap();
    assert_eq!(appended.first_seq, 0);
    let appended = store.append(leased_append(&lease, &root, 3, vec![said_event("more")])).await.unwrap();
    assert_eq!(appended.first_seq, 3);

    let records = store.read(&root, 0).await.unwrap();
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(events(&records[..3]), facts);
    assert!(records.iter().all(|record| record.session == root && record.v == VERSION));
    assert_eq!((records[0].at, records[3].at), (1_000, 1_003));
    assert_eq!(records[3].pos, appended.first_pos);
    assert_eq!(store.read(&root, 2).await.unwrap(), records[2..]);
    assert_eq!(store.read_prefix(&root).await.unwrap(), (records, None));
}

async fn conflicting_append_changes_nothing_and_fails_alone(store: &dyn Store) {
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

async fn append_is_atomic(store: &dyn Store) {
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
async fn batched_events_are_read_one_by_one(store: &dyn Store) {
    let top = root(1);
    let lease = begin_session(store, &top, 1).await;
    let fact = |n: usize| match n % 11 {
        5 => heard_event(&format!("word {n}\nand a line")),
        7 => said_event(format!("{n} ").repeat(3_000)),
        _ => said_event(format!("{n} ").repeat(n * 4)),
    };
    store.append(leased_append(&lease, &top, 1, (0..40).map(fact).collect())).await.unwrap();
    store.append(leased_append(&lease, &child(&top, 0), 0, (0..3).map(fact).collect())).await.unwrap();
    store.append(leased_append(&lease, &top, 41, (40..60).map(fact).collect())).await.unwrap();
    check_single_reads(store, &top, fact).await;
    // Far behind the other sessions, the tree is found through the index.
    let stranger = root(2);
    let lease = crate::support::lease(store, &stranger).await;
    let many = (0..20_100).map(|n| said_event(format!("{n}"))).collect();
    store.append(leased_append(&lease, &stranger, 0, many)).await.unwrap();
    check_single_reads(store, &top, fact).await;
}

async fn check_single_reads(store: &dyn Store, top: &SessionId, fact: impl Fn(usize) -> Event) {
    let top = top.clone();
    let whole = store.read(&top, 0).await.unwrap();
    assert_eq!(events(&whole[1..]), (0..60).map(fact).collect::<Vec<_>>());
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
    let words: Vec<_> = tree
        .iter()
        .filter(|record| record.event.is_external())
        .map(|record| (record.session.clone(), record.pos))
        .collect();
    assert_eq!(words.len(), 5);
    assert_eq!(store.external_events(&top, Cursor::START).await.unwrap(), words);
    assert_eq!(store.external_events(&top, words[1].1).await.unwrap(), words[2..]);
    let roots = store.roots().await.unwrap();
    let summary = roots.iter().find(|summary| summary.root == top).unwrap();
    assert_eq!((summary.first.as_ref(), summary.last.as_ref()), (Ok(&whole[0]), Ok(&whole[60])));
}

async fn external_events_need_only_a_session(store: &dyn Store) {
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

async fn runner_events_need_a_lease_and_a_length(store: &dyn Store) {
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

async fn positions_increase_in_every_tree(store: &dyn Store) {
    let (top, _) = small_tree(store).await;
    for root in [top, root(8)] {
        let tree = store.tail(&root, Cursor::START, 1_000).await.unwrap();
        assert!(tree.iter().all(|record| store.is_after(record.pos, Cursor::START)));
        assert!(tree.is_sorted_by(|a, b| store.is_after(b.pos, a.pos) && !store.is_after(a.pos, b.pos)));
        assert!(tree.iter().all(|record| !store.is_after(record.pos, record.pos)));
    }
}

/// A root, two children and a grandchild with interleaved events, and an unrelated session.
async fn small_tree(store: &dyn Store) -> (SessionId, SessionId) {
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

async fn tail_returns_the_tree_in_order_and_in_pages(store: &dyn Store) {
    let (top, low) = small_tree(store).await;
    let whole = store.tail(&top, Cursor::START, 1_000).await.unwrap();
    assert_eq!(whole.len(), 16);
    assert!(whole.is_sorted_by(|a, b| store.is_after(b.pos, a.pos)));
    assert!(whole.iter().all(|record| top.contains(&record.session)));
    let mut paged = Vec::new();
    let mut after = Cursor::START;
    loop {
        let page = store.tail(&top, after, 3).await.unwrap();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = last.pos;
        paged.extend(page);
    }
    assert_eq!(paged, whole);
    let below: Vec<_> = whole.into_iter().filter(|record| low.contains(&record.session)).collect();
    assert_eq!(store.tail(&low, Cursor::START, 1_000).await.unwrap(), below);
    assert_eq!(store.tail(&low, after, 1_000).await.unwrap(), []);
    assert_eq!(store.tail(&low, Cursor::START, 0).await.unwrap(), []);
}

async fn siblings_with_longer_ids_are_not_descendants(store: &dyn Store) {
    let top = root(1);
    let lease = lease(store, &top).await;
    let call = brigade_core::CallId { turn: 1, index: 0 };
    let (one, many, ten) = (top.child(call), top.child_of_several(call, 1), child(&top, 10));
    for session in [&top, &one, &many, &ten, &child(&one, 3)] {
        store.append(leased_append(&lease, session, 0, vec![heard_event("x")])).await.unwrap();
    }
    let expected = [one.clone(), child(&one, 3)];
    assert_eq!(store.sessions(&one).await.unwrap(), expected);
    let tail = store.tail(&one, Cursor::START, 99).await.unwrap();
    assert_eq!(tail.into_iter().map(|record| record.session).collect::<Vec<_>>(), expected);
    let words = store.external_events(&one, Cursor::START).await.unwrap();
    assert_eq!(words.into_iter().map(|(session, _)| session).collect::<Vec<_>>(), expected);
    assert_eq!(store.sessions(&top).await.unwrap().len(), 5);
    store.remove(&root(9)).await.unwrap_err();
}

async fn external_events_return_session_and_position(store: &dyn Store) {
    let (top, low) = small_tree(store).await;
    assert_eq!(store.external_events(&top, Cursor::START).await.unwrap(), []);
    let first = store.append(external_append(&low, vec![heard_event("one")])).await.unwrap().first_pos;
    let second = store.append(external_append(&top, vec![heard_event("two")])).await.unwrap().first_pos;
    store.append(external_append(&root(8), vec![heard_event("elsewhere")])).await.unwrap();
    assert_eq!(
        store.external_events(&top, Cursor::START).await.unwrap(),
        [(low.clone(), first), (top.clone(), second)]
    );
    assert_eq!(store.external_events(&top, first).await.unwrap(), [(top.clone(), second)]);
    assert_eq!(store.external_events(&low, Cursor::START).await.unwrap(), [(low.clone(), first)]);
}

async fn only_external_appends_signal_changes(store: &dyn Store) {
    let root = root(1);
    let mut stirred = store.changes();
    stirred.mark_unchanged();
    begin_session(store, &root, 20).await;
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert!(!stirred.has_changed().unwrap(), "a runner's own facts wake nobody");
    store.append(external_append(&root, vec![heard_event("hello")])).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), stirred.changed()).await.unwrap().unwrap();
}

async fn blobs_are_stored_with_their_events(store: &dyn Store) {
    let root = root(1);
    let lease = lease(store, &root).await;
    let mut append = leased_append(&lease, &root, 0, vec![started("task", "the agent", "the authority")]);
    append.blobs = vec![content("the agent"), content("the authority"), content("the agent")];
    store.append(append).await.unwrap();
    assert_eq!(store.blob(Hash::of(b"the agent")).await.unwrap(), Some(content("the agent")));
    assert_eq!(store.blob(Hash::of(b"something else")).await.unwrap(), None);
}

async fn long_texts_are_read_back_unchanged(store: &dyn Store) {
    let root = root(1);
    let lease = lease(store, &root).await;
    let sizes = [0, 8_191, 8_192, 8_193, 100_000, 1_000_000];
    // Quotes and line ends are longer in JSON than in the text. Non-ASCII letters are not.
    let patterns = ["x", "\"\n", "ä", "\u{1F600}", "{\"blob\":1}"];
    let text = |size: usize, pattern: &str| pattern.repeat(size / pattern.len().max(1) + 1);
    let facts: Vec<Event> = sizes
        .iter()
        .flat_map(|size| patterns.iter().map(move |pattern| (*size, *pattern)))
        .map(|(size, pattern)| said_event(brigade_core::text::truncate_bytes(&text(size, pattern), size)))
        .chain([started(&text(100_000, "task "), "agent", "authority")])
        .collect();
    store.append(leased_append(&lease, &root, 0, facts.clone())).await.unwrap();
    assert_eq!(events(&store.read(&root, 0).await.unwrap()), facts);
    assert_eq!(events(&store.tail(&root, Cursor::START, 999).await.unwrap()), facts);
    let summary = store.roots().await.unwrap().remove(0);
    assert_eq!(summary.first.unwrap().event, facts[0]);
}

async fn roots_are_the_newest_first(store: &dyn Store) {
    // Not in the order of the times, as after an import.
    for (bits, at) in [(5, 2_000), (3, 1_000), (9, 3_000), (7, 1_500)] {
        let lease = lease(store, &root(bits)).await;
        for length in 0..2 {
            let append = leased_append(&lease, &root(bits), length, vec![said_event("x")]);
            store.append(Append { at: at + length, ..append }).await.unwrap();
        }
        append_events(store, &lease, &child(&root(bits), 0), 0, 1).await.unwrap();
        if bits != 3 {
            store.release(&lease).await.unwrap();
        }
    }
    let roots = store.roots().await.unwrap();
    assert_eq!(
        roots.iter().map(|summary| summary.root.clone()).collect::<Vec<_>>(),
        [root(9), root(5), root(7), root(3)]
    );
    for summary in &roots {
        assert_eq!(summary.first.as_ref().unwrap().seq, 0);
        assert_eq!(summary.last.as_ref().unwrap().seq, 1);
        assert_eq!(summary.runner.is_some(), summary.root == root(3));
    }
}

async fn remove_deletes_the_tree_and_its_own_blobs(store: &dyn Store) {
    let long = "long ".repeat(10_000);
    for bits in [1, 2] {
        let lease = lease(store, &root(bits)).await;
        let own = format!("own {bits}");
        let mut append = leased_append(
            &lease,
            &root(bits),
            0,
            vec![started("task", "shared", &own), said_event(long.as_str())],
        );
        append.blobs = vec![content("shared"), content(&own)];
        store.append(append).await.unwrap();
        append_events(store, &lease, &child(&root(bits), 0), 0, 3).await.unwrap();
        if bits == 1 {
            let held = store.remove(&root(1)).await;
            assert!(matches!(held, Err(StoreError::Held { .. })), "{held:?}");
            assert!(matches!(store.remove(&child(&root(1), 0)).await, Err(StoreError::Held { .. })));
        }
        store.release(&lease).await.unwrap();
    }
    store.remove(&root(1)).await.unwrap();
    assert_eq!(store.remove(&root(1)).await, Err(StoreError::UnknownSession(root(1))));
    assert_eq!(store.read(&root(1), 0).await.unwrap(), []);
    assert_eq!(store.sessions(&root(1)).await.unwrap(), []);
    assert_eq!(store.roots().await.unwrap().len(), 1);
    assert_eq!(store.blob(Hash::of(b"own 1")).await.unwrap(), None);
    assert_eq!(store.blob(Hash::of(b"own 2")).await.unwrap(), Some(content("own 2")));
    assert_eq!(store.blob(Hash::of(b"shared")).await.unwrap(), Some(content("shared")));
    assert_eq!(store.read(&root(2), 0).await.unwrap()[1].event, said_event(long.as_str()));
}

async fn remove_keeps_detached_sessions(store: &dyn Store) {
    let (top, low) = small_tree(store).await;
    let own = lease(store, &low).await;
    let with_definition = Append {
        blobs: vec![content("of low")],
        ..leased_append(&own, &low, 4, vec![said_event("on my own")])
    };
    store.append(with_definition).await.unwrap();
    store.release(&own).await.unwrap();
    let of_top = brigade::store::Lease { root: top.clone(), epoch: 1, last_run: None };
    store.release(&of_top).await.unwrap();
    store.remove(&top).await.unwrap();
    assert_eq!(store.sessions(&top).await.unwrap(), [low.clone(), child(&low, 0)]);
    assert_eq!(store.read(&low, 0).await.unwrap().len(), 5);
    assert_eq!(store.blob(Hash::of(b"of low")).await.unwrap(), Some(content("of low")));
    store.remove(&low).await.unwrap();
    assert_eq!(store.sessions(&top).await.unwrap(), []);
    assert_eq!(store.blob(Hash::of(b"of low")).await.unwrap(), None);
}

async fn positions_of_a_removed_tree_are_never_assigned_to_it_again(store: &dyn Store) {
    let lease = begin_session(store, &root(1), 5).await;
    let last = store.read(&root(1), 4).await.unwrap()[0].pos;
    store.release(&lease).await.unwrap();
    store.remove(&root(1)).await.unwrap();
    begin_session(store, &root(1), 1).await;
    assert!(store.is_after(store.read(&root(1), 0).await.unwrap()[0].pos, last));
}

async fn reading_nothing_is_not_an_error(store: &dyn Store) {
    assert_eq!(store.read(&root(1), 0).await.unwrap(), []);
    assert_eq!(store.read_prefix(&root(1)).await.unwrap(), (vec![], None));
    assert_eq!(store.tail(&root(1), Cursor::START, 10).await.unwrap(), []);
    assert_eq!(store.external_events(&root(1), Cursor::START).await.unwrap(), []);
    assert_eq!(store.sessions(&root(1)).await.unwrap(), []);
    assert_eq!(store.roots().await.unwrap(), []);
    begin_session(store, &root(1), 2).await;
    assert_eq!(store.read(&root(1), 2).await.unwrap(), []);
    assert_eq!(store.read(&root(1), 99).await.unwrap(), []);
}

async fn appending_nothing_changes_nothing(store: &dyn Store) {
    let lease = begin_session(store, &root(1), 2).await;
    assert_eq!(store.append(leased_append(&lease, &root(1), 2, vec![])).await.unwrap().first_seq, 2);
    assert_eq!(store.read(&root(1), 0).await.unwrap().len(), 2);
}

/// Usage of this many turns.
fn turns(turns: u64) -> Spent {
    Spent { turns, usd: turns * 10, ..Spent::default() }
}

fn replied(turn: u32, spent: Spent) -> Event {
    Event::Replied { turn, reply: Reply::default(), spent, waited_ms: 0 }
}

fn ended(spent: Spent) -> Event {
    Event::Ended { outcome: Outcome::new(Status::Done, "so"), spent }
}

fn delegated(parent: &SessionId, index: u32) -> Event {
    let Event::Started { delegation, agent, grant, .. } = started("part", "agent", "authority") else {
        unreachable!()
    };
    let call = CallId { turn: 1, index };
    Event::Delegated { call, child: child(parent, index), delegation, agent, grant }
}

fn returned(parent: &SessionId, index: u32, spent: Spent) -> Event {
    let outcome = Outcome::new(Status::Done, "part");
    Event::Returned { child: child(parent, index), outcome, spent, waited_ms: 0 }
}

async fn totals_are_the_sum_of_rounds_and_of_open_branches(store: &dyn Store) {
    let begin = || started("task", "agent", "authority");
    let (top, other) = (root(1), root(2));
    let own = lease(store, &top).await;
    let mut length = 0;
    let append = async |session: &SessionId, from: u64, events: Vec<Event>| {
        let count = events.len() as u64;
        store.append(leased_append(&own, session, from, events)).await.unwrap();
        from + count
    };
    let totals = async || {
        let mut totals = store.totals(vec![top.clone(), other.clone()]).await.unwrap();
        assert_eq!(totals.pop().unwrap(), Err(StoreError::UnknownSession(other.clone())));
        let Totals { sessions, spent, ended } = totals.pop().unwrap().unwrap();
        (sessions, spent.turns, spent.usd, ended)
    };
    // A first round with two children, one of which has not returned.
    length = append(&top, length, vec![begin(), replied(1, turns(1)), delegated(&top, 0)]).await;
    assert_eq!(totals().await, (1, 1, 10, None));
    append(&child(&top, 0), 0, vec![begin(), replied(1, turns(4)), ended(turns(4))]).await;
    length = append(&top, length, vec![returned(&top, 0, turns(4)), delegated(&top, 1)]).await;
    assert_eq!(totals().await, (2, 5, 50, None));
    append(&child(&top, 1), 0, vec![begin(), replied(1, turns(7))]).await;
    assert_eq!(totals().await, (3, 12, 120, None), "a child that works counts");
    append(&child(&top, 1), 2, vec![ended(turns(7))]).await;
    length = append(&top, length, vec![returned(&top, 1, turns(7)), ended(turns(12))]).await;
    assert_eq!(totals().await, (3, 12, 120, Some(Status::Done)));
    // A message requests a next round but does not start one.
    store.append(external_append(&top, vec![heard_event("more")])).await.unwrap();
    assert_eq!(totals().await, (3, 12, 120, Some(Status::Done)));
    length = append(&top, length + 1, vec![begin(), replied(2, turns(2))]).await;
    assert_eq!(totals().await, (3, 14, 140, None));
    append(&top, length, vec![ended(turns(2))]).await;
    assert_eq!(totals().await, (3, 14, 140, Some(Status::Done)));
}

async fn verify_of_a_tree_whose_returned_child_has_no_log_fails(store: &dyn Store) {
    let top = root(1);
    let lease = lease(store, &top).await;
    store
        .append(leased_append(&lease, &top, 0, vec![said_event("first"), delegated(&top, 0)]))
        .await
        .unwrap();
    let verify = async || {
        let records = store.tail(&top, Cursor::START, usize::MAX).await.unwrap();
        store.verify(&top, ReturnedChild::returned(&records)).await
    };
    assert_eq!(verify().await, Ok(()), "a child that has only been lent to may not have begun");
    store.append(leased_append(&lease, &top, 2, vec![returned(&top, 0, turns(1))])).await.unwrap();
    let missing = StoreError::MissingSession { child: child(&top, 0), parent: top.clone() };
    assert_eq!(verify().await, Err(missing));
    // A removed child is not missing, neither here nor in the store that the tree is imported into.
    store.append(leased_append(&lease, &child(&top, 0), 0, vec![said_event("part")])).await.unwrap();
    verify().await.unwrap();
    store.release(&lease).await.unwrap();
    store.remove(&child(&top, 0)).await.unwrap();
    verify().await.unwrap();
    let records = store.tail(&top, Cursor::START, usize::MAX).await.unwrap();
    let elsewhere = MemoryStore::new();
    elsewhere.restore(records, Vec::new()).await.unwrap();
    crate::support::lease(&elsewhere, &top).await;
    let records = elsewhere.tail(&top, Cursor::START, usize::MAX).await.unwrap();
    elsewhere.verify(&top, ReturnedChild::returned(&records)).await.unwrap();
}

async fn edit_hashes_are_known_after_the_session_is_removed(store: &dyn Store) {
    let edit = |before: Option<&str>, after: &str| Event::ToolStarted {
        call: CallId { turn: 1, index: 0 },
        effect: Effect::Edit,
        before: before.map(|text| Hash::of(text.as_bytes())),
        after: Some(Hash::of(after.as_bytes())),
        lent: Resources::default(),
        lines: None,
    };
    let knows = async |text: &str| store.has_edit(Hash::of(text.as_bytes())).await.unwrap();
    assert!(!knows("written").await);
    let (top, other) = (root(1), root(2));
    let lease = begin_session(store, &top, 1).await;
    begin_session(store, &other, 3).await;
    let facts = vec![said_event("\"after\":\"x"), edit(Some("old"), "written"), edit(Some("same"), "same")];
    store.append(leased_append(&lease, &top, 1, facts)).await.unwrap();
    store.append(leased_append(&lease, &child(&top, 0), 0, vec![edit(None, "by the child")])).await.unwrap();
    store.release(&lease).await.unwrap();
    for _ in 0..2 {
        assert!(knows("written").await && knows("by the child").await);
        for unknown in ["old", "same", "x", "another"] {
            assert!(!knows(unknown).await, "{unknown}");
        }
        // The content that the session wrote is still in the files.
        let _ = store.remove(&top).await;
        assert!(store.read(&top, 0).await.unwrap().is_empty());
    }
}
