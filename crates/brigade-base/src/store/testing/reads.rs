//! Laws of reads: positions, pages, listings and usage.

use brigade_core::{Cursor, Event, SessionId, Status};

use super::fixtures::*;
use crate::store::{Append, Store, StoreError, Totals};

pub async fn positions_increase_in_every_tree(store: &dyn Store) {
    let (top, _) = small_tree(store).await;
    for root in [top, root(8)] {
        let tree = store.tail(&root, Cursor::START, 1_000).await.unwrap();
        assert!(tree.iter().all(|record| store.is_after(record.pos, Cursor::START)));
        assert!(tree.is_sorted_by(|a, b| store.is_after(b.pos, a.pos) && !store.is_after(a.pos, b.pos)));
        assert!(tree.iter().all(|record| !store.is_after(record.pos, record.pos)));
    }
}

pub async fn tail_returns_the_tree_in_order_and_in_pages(store: &dyn Store) {
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

pub async fn siblings_with_longer_ids_are_not_descendants(store: &dyn Store) {
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
    let external = store.external_events(&one, Cursor::START).await.unwrap();
    assert_eq!(external.into_iter().map(|(session, _)| session).collect::<Vec<_>>(), expected);
    assert_eq!(store.sessions(&top).await.unwrap().len(), 5);
    store.remove(&root(9)).await.unwrap_err();
}

pub async fn external_events_return_session_and_position(store: &dyn Store) {
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

pub async fn roots_are_the_newest_first(store: &dyn Store) {
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

pub async fn reading_nothing_is_not_an_error(store: &dyn Store) {
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

pub async fn totals_are_the_sum_of_rounds_and_of_open_branches(store: &dyn Store) {
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
    assert_eq!(totals().await, (3, 12, 120, None), "a running child is counted");
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
