//! Who may run a tree.

use brigade::store::{Holder, Lease, Liveness, MemoryStore, Store, StoreError};

use crate::support::*;

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
    a_living_holder_keeps_its_lease,
    a_dead_holder_is_replaced_at_once,
    a_holder_elsewhere_has_thirty_seconds,
    a_fenced_runner_stops,
    a_released_lease_is_worth_nothing,
    epochs_grow_for_ever,
    a_lease_says_when_the_tree_last_ran,
    a_lease_is_for_its_own_tree,
    a_removed_tree_fences_its_runner,
);

fn here() -> Holder {
    Holder::this_process()
}

/// A process of this machine that is gone: its pid is used, by us, but started at another time.
fn dead() -> Holder {
    Holder { start_time: here().start_time + 1, ..here() }
}

fn elsewhere() -> Holder {
    Holder { host: "another-host".into(), ..here() }
}

async fn a_living_holder_keeps_its_lease(store: &dyn Store) {
    let root = root(1);
    lease(store, &root).await;
    let held = StoreError::Held { root: root.clone(), holder: here() };
    assert_eq!(store.lease(&root, &here(), 2_000).await, Err(held.clone()));
    assert_eq!(store.lease(&root, &dead(), u64::from(u32::MAX)).await, Err(held.clone()));
    assert!(held.to_string().contains(&format!("process {} on", std::process::id())));
}

async fn a_dead_holder_is_replaced_at_once(store: &dyn Store) {
    let another_boot = Holder { boot_id: "before".into(), ..here() };
    let no_process = Holder { pid: u32::MAX, ..here() };
    for (bits, gone) in [(1, dead()), (2, another_boot), (3, no_process)] {
        let first = store.lease(&root(bits), &gone, 1_000).await.unwrap();
        let second = store.lease(&root(bits), &here(), 1_000).await.unwrap();
        assert!(second.epoch > first.epoch);
    }
}

async fn a_holder_elsewhere_has_thirty_seconds(store: &dyn Store) {
    let root = root(1);
    let theirs = store.lease(&root, &elsewhere(), 1_000).await.unwrap();
    assert!(matches!(store.lease(&root, &here(), 30_999).await, Err(StoreError::Held { .. })));
    store.renew(&theirs, 20_000).await.unwrap();
    assert!(matches!(store.lease(&root, &here(), 49_999).await, Err(StoreError::Held { .. })));
    // An append says that the holder lives, too.
    let mut append = led(&theirs, &root, 0, vec![said("alive")]);
    append.at = 40_000;
    store.append(append).await.unwrap();
    assert!(matches!(store.lease(&root, &here(), 69_999).await, Err(StoreError::Held { .. })));
    let ours = store.lease(&root, &here(), 70_000).await.unwrap();
    assert_eq!(ours, Lease { root, epoch: 2, last_run: Some(40_000) });
}

async fn a_fenced_runner_stops(store: &dyn Store) {
    let root = root(1);
    let old = store.lease(&root, &dead(), 1_000).await.unwrap();
    grow(store, &old, &root, 0, 3).await.unwrap();
    let new = lease(store, &root).await;
    let fenced = StoreError::Fenced { root: root.clone(), epoch: old.epoch };
    let mut append = led(&old, &root, 3, vec![said("too late")]);
    append.blobs.push(content("too late"));
    // In one batch with the new runner's append, which happens.
    let (late, fine) =
        tokio::join!(store.append(append), store.append(led(&new, &child(&root, 0), 0, vec![said("fine")])));
    assert_eq!(late, Err(fenced.clone()));
    fine.unwrap();
    assert_eq!(store.renew(&old, 2_000).await, Err(fenced));
    store.release(&old).await.unwrap();
    assert_eq!(store.read(&root, 0).await.unwrap().len(), 3);
    assert_eq!(store.blob(brigade_core::Hash::of(b"too late")).await.unwrap(), None);
    grow(store, &new, &root, 3, 1).await.unwrap();
}

async fn a_released_lease_is_worth_nothing(store: &dyn Store) {
    let root = root(1);
    let lease = begun(store, &root, 1).await;
    store.release(&lease).await.unwrap();
    assert!(matches!(grow(store, &lease, &root, 1, 1).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.renew(&lease, 2_000).await, Err(StoreError::Fenced { .. })));
    store.release(&lease).await.unwrap();
    let never_taken = Lease { root: crate::support::root(9), epoch: 1, last_run: None };
    assert!(matches!(
        grow(store, &never_taken, &never_taken.root, 0, 1).await,
        Err(StoreError::Fenced { .. })
    ));
}

async fn epochs_grow_for_ever(store: &dyn Store) {
    let mut last = 0;
    for round in 0..5 {
        let lease = store.lease(&root(1), &here(), 1_000).await.unwrap();
        assert!(lease.epoch > last);
        last = lease.epoch;
        grow(store, &lease, &root(1), 0, 1).await.unwrap_or_default();
        store.release(&lease).await.unwrap();
        if round == 2 {
            store.remove(&root(1)).await.unwrap();
        }
    }
}

async fn a_lease_says_when_the_tree_last_ran(store: &dyn Store) {
    let root = root(1);
    let first = lease(store, &root).await;
    assert_eq!(first.last_run, None);
    for (length, at) in [(0, 1_001), (1, 5_000), (2, 5_400)] {
        let mut append = led(&first, &root, length, vec![said("x")]);
        append.at = at;
        store.append(append).await.unwrap();
    }
    store.release(&first).await.unwrap();
    assert_eq!(store.lease(&root, &here(), 9_000).await.unwrap().last_run, Some(5_400));
}

async fn a_lease_is_for_its_own_tree(store: &dyn Store) {
    let lease = lease(store, &root(1)).await;
    assert!(matches!(grow(store, &lease, &root(2), 0, 1).await, Err(StoreError::Fenced { .. })));
    grow(store, &lease, &child(&child(&root(1), 3), 4), 0, 1).await.unwrap();
}

async fn a_removed_tree_fences_its_runner(store: &dyn Store) {
    let root = root(1);
    let lost = store.lease(&root, &dead(), 1_000).await.unwrap();
    grow(store, &lost, &root, 0, 2).await.unwrap();
    store.remove(&root).await.unwrap();
    assert!(matches!(grow(store, &lost, &root, 0, 1).await, Err(StoreError::Fenced { .. })));
    assert_eq!(lease(store, &root).await.last_run, None);
}

#[test]
fn liveness_is_known_only_at_home() {
    assert!(here().is_alive());
    assert!(!dead().is_alive());
    assert_eq!(elsewhere().liveness(&here()), Liveness::Elsewhere);
    assert_eq!(Holder { boot_id: "x".into(), ..here() }.liveness(&here()), Liveness::Dead);
    let init = Holder { pid: 1, ..here() };
    assert_eq!(init.liveness(&here()), Liveness::Dead, "the same pid with another start time");
}
