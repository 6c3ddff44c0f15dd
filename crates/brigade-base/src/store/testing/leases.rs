//! Laws of leases.

use brigade_core::Hash;

use super::fixtures::*;
use crate::store::{Lease, Owner, Store, StoreError};

fn local_owner() -> Owner {
    Owner::this_process()
}

/// A process of this host that has ended: its pid is in use, by this process, but with another start time.
fn dead_owner() -> Owner {
    Owner { start_time: local_owner().start_time + 1, ..local_owner() }
}

fn remote_owner() -> Owner {
    Owner { host: "another-host".into(), ..local_owner() }
}

pub async fn live_owner_keeps_its_lease(store: &dyn Store) {
    let root = root(1);
    lease(store, &root).await;
    let held = StoreError::Held { root: root.clone(), owner: local_owner() };
    assert_eq!(store.lease(&root, &local_owner(), 2_000).await, Err(held.clone()));
    assert_eq!(store.lease(&root, &dead_owner(), u64::from(u32::MAX)).await, Err(held.clone()));
    assert!(held.to_string().contains(&format!("process {} on", std::process::id())));
}

pub async fn dead_owner_is_replaced_at_once(store: &dyn Store) {
    let another_boot = Owner { boot_id: "before".into(), ..local_owner() };
    let no_process = Owner { pid: u32::MAX, ..local_owner() };
    for (bits, gone) in [(1, dead_owner()), (2, another_boot), (3, no_process)] {
        let first = store.lease(&root(bits), &gone, 1_000).await.unwrap();
        let second = store.lease(&root(bits), &local_owner(), 1_000).await.unwrap();
        assert!(second.epoch > first.epoch);
    }
}

pub async fn remote_owner_expires_after_thirty_seconds(store: &dyn Store) {
    let root = root(1);
    let theirs = store.lease(&root, &remote_owner(), 1_000).await.unwrap();
    assert!(matches!(store.lease(&root, &local_owner(), 30_999).await, Err(StoreError::Held { .. })));
    store.renew(&theirs, 20_000).await.unwrap();
    assert!(matches!(store.lease(&root, &local_owner(), 49_999).await, Err(StoreError::Held { .. })));
    // An append renews the lease, too.
    let mut append = leased_append(&theirs, &root, 0, vec![said_event("alive")]);
    append.at = 40_000;
    store.append(append).await.unwrap();
    assert!(matches!(store.lease(&root, &local_owner(), 69_999).await, Err(StoreError::Held { .. })));
    let ours = store.lease(&root, &local_owner(), 70_000).await.unwrap();
    assert_eq!(ours, Lease { root, epoch: 2, last_run: Some(40_000) });
}

pub async fn a_fenced_runner_stops(store: &dyn Store) {
    let root = root(1);
    let old = store.lease(&root, &dead_owner(), 1_000).await.unwrap();
    append_events(store, &old, &root, 0, 3).await.unwrap();
    let new = lease(store, &root).await;
    let fenced = StoreError::Fenced { root: root.clone(), epoch: old.epoch };
    let mut append = leased_append(&old, &root, 3, vec![said_event("too late")]);
    append.blobs.push(content("too late"));
    // In one batch with the new runner's append, which succeeds.
    let (late, fine) = tokio::join!(
        store.append(append),
        store.append(leased_append(&new, &child(&root, 0), 0, vec![said_event("fine")]))
    );
    assert_eq!(late, Err(fenced.clone()));
    fine.unwrap();
    assert_eq!(store.renew(&old, 2_000).await, Err(fenced));
    store.release(&old).await.unwrap();
    assert_eq!(store.read(&root, 0).await.unwrap().len(), 3);
    assert_eq!(store.blob(Hash::of(b"too late")).await.unwrap(), None);
    append_events(store, &new, &root, 3, 1).await.unwrap();
}

pub async fn released_lease_is_fenced(store: &dyn Store) {
    let root = root(1);
    let lease = begin_session(store, &root, 1).await;
    store.release(&lease).await.unwrap();
    assert!(matches!(append_events(store, &lease, &root, 1, 1).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.renew(&lease, 2_000).await, Err(StoreError::Fenced { .. })));
    store.release(&lease).await.unwrap();
    let never_taken = Lease { root: super::fixtures::root(9), epoch: 1, last_run: None };
    assert!(matches!(
        append_events(store, &never_taken, &never_taken.root, 0, 1).await,
        Err(StoreError::Fenced { .. })
    ));
}

pub async fn epochs_always_increase(store: &dyn Store) {
    let mut last = 0;
    for round in 0..5 {
        let lease = store.lease(&root(1), &local_owner(), 1_000).await.unwrap();
        assert!(lease.epoch > last);
        last = lease.epoch;
        append_events(store, &lease, &root(1), 0, 1).await.unwrap_or_default();
        store.release(&lease).await.unwrap();
        if round == 2 {
            store.remove(&root(1)).await.unwrap();
        }
    }
}

pub async fn a_lease_says_when_the_tree_last_ran(store: &dyn Store) {
    let root = root(1);
    let first = lease(store, &root).await;
    assert_eq!(first.last_run, None);
    for (length, at) in [(0, 1_001), (1, 5_000), (2, 5_400)] {
        let mut append = leased_append(&first, &root, length, vec![said_event("x")]);
        append.at = at;
        store.append(append).await.unwrap();
    }
    store.release(&first).await.unwrap();
    assert_eq!(store.lease(&root, &local_owner(), 9_000).await.unwrap().last_run, Some(5_400));
}

pub async fn lease_is_valid_for_its_own_tree_only(store: &dyn Store) {
    let lease = lease(store, &root(1)).await;
    assert!(matches!(append_events(store, &lease, &root(2), 0, 1).await, Err(StoreError::Fenced { .. })));
    append_events(store, &lease, &child(&child(&root(1), 3), 4), 0, 1).await.unwrap();
}

pub async fn a_removed_tree_fences_its_runner(store: &dyn Store) {
    let root = root(1);
    let lost = store.lease(&root, &dead_owner(), 1_000).await.unwrap();
    append_events(store, &lost, &root, 0, 2).await.unwrap();
    store.remove(&root).await.unwrap();
    assert!(matches!(append_events(store, &lost, &root, 0, 1).await, Err(StoreError::Fenced { .. })));
    assert_eq!(lease(store, &root).await.last_run, None);
}

pub async fn runner_is_the_live_owner_of_the_lease_of_that_tree(store: &dyn Store) {
    let (top, other) = (root(1), root(2));
    assert_eq!(store.runner(&top).await, Ok(None));
    let held = begin_session(store, &top, 1).await;
    assert_eq!(store.runner(&top).await, Ok(Some(local_owner())));
    assert_eq!(store.runner(&child(&top, 0)).await, Ok(None), "a child has no lease of its own");
    assert_eq!(store.runner(&other).await, Ok(None));
    store.lease(&other, &dead_owner(), 1_000).await.unwrap();
    assert_eq!(store.runner(&other).await, Ok(None), "the process has ended");
    store.release(&held).await.unwrap();
    assert_eq!(store.runner(&top).await, Ok(None));
    store.remove(&top).await.unwrap();
    assert_eq!(store.runner(&top).await, Ok(None));
}
