//! Laws of removals, and of what a store knows about removed and missing sessions.

use brigade_core::event::Effect;
use brigade_core::{CallId, Cursor, Event, Hash, Resources};

use super::fixtures::*;
use crate::store::{Append, Lease, MemoryStore, ReturnedChild, Store, StoreError};

pub async fn remove_deletes_the_tree_and_its_own_blobs(store: &dyn Store) {
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

pub async fn remove_keeps_detached_sessions(store: &dyn Store) {
    let (top, low) = small_tree(store).await;
    let own = lease(store, &low).await;
    let with_definition = Append {
        blobs: vec![content("of low")],
        ..leased_append(&own, &low, 4, vec![said_event("on my own")])
    };
    store.append(with_definition).await.unwrap();
    store.release(&own).await.unwrap();
    let of_top = Lease { root: top.clone(), epoch: 1, last_run: None };
    store.release(&of_top).await.unwrap();
    store.remove(&top).await.unwrap();
    assert_eq!(store.sessions(&top).await.unwrap(), [low.clone(), child(&low, 0)]);
    assert_eq!(store.read(&low, 0).await.unwrap().len(), 5);
    assert_eq!(store.blob(Hash::of(b"of low")).await.unwrap(), Some(content("of low")));
    store.remove(&low).await.unwrap();
    assert_eq!(store.sessions(&top).await.unwrap(), []);
    assert_eq!(store.blob(Hash::of(b"of low")).await.unwrap(), None);
}

pub async fn positions_of_a_removed_tree_are_never_assigned_to_it_again(store: &dyn Store) {
    let lease = begin_session(store, &root(1), 5).await;
    let last = store.read(&root(1), 4).await.unwrap()[0].pos;
    store.release(&lease).await.unwrap();
    store.remove(&root(1)).await.unwrap();
    begin_session(store, &root(1), 1).await;
    assert!(store.is_after(store.read(&root(1), 0).await.unwrap()[0].pos, last));
}

pub async fn verify_of_a_tree_whose_returned_child_has_no_log_fails(store: &dyn Store) {
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
    assert_eq!(verify().await, Ok(()), "a child that has been delegated to may not have started yet");
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
    super::fixtures::lease(&elsewhere, &top).await;
    let records = elsewhere.tail(&top, Cursor::START, usize::MAX).await.unwrap();
    elsewhere.verify(&top, ReturnedChild::returned(&records)).await.unwrap();
}

pub async fn edit_hashes_are_known_after_the_session_is_removed(store: &dyn Store) {
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
    let written = vec![said_event("\"after\":\"x"), edit(Some("old"), "written"), edit(Some("same"), "same")];
    store.append(leased_append(&lease, &top, 1, written)).await.unwrap();
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
