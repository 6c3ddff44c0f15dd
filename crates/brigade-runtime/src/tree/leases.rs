//! Leases of a running tree: that of its root, and those of sessions that were detached from it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use brigade_core::SessionId;

use crate::clock;
use crate::store::{Lease, Owner, Store, StoreError, retry};

/// Number of attempts to release a lease that the store rejects, and the pause between them.
const MAX_RELEASE_ATTEMPTS: u32 = 7200;
const RELEASE_PAUSE: Duration = Duration::from_millis(500);

/// Leases under which the sessions of a tree are written. The root's lease is released when they are dropped.
pub(crate) struct Leases {
    store: Arc<dyn Store>,
    owner: Owner,
    root: Lease,
    is_root_released: AtomicBool,
    detached: RwLock<Vec<Lease>>,
}

impl Leases {
    pub(super) fn new(store: Arc<dyn Store>, owner: Owner, root: Lease) -> Leases {
        let (is_root_released, detached) = (AtomicBool::new(false), RwLock::default());
        Leases { store, owner, root, is_root_released, detached }
    }

    /// Returns the root session of the tree.
    pub(super) fn root(&self) -> &SessionId {
        &self.root.root
    }

    /// Releases the lease of the root.
    pub(crate) async fn release(&self) -> Result<(), StoreError> {
        self.is_root_released.store(true, Ordering::SeqCst);
        let released = retry::while_unavailable(|| self.store.release(&self.root)).await;
        if released.is_err() {
            self.release_later();
        }
        released
    }

    /// Releases the lease as soon as the store accepts it, for example after a full disk has room again. While
    /// this process lives, no other could resume the tree before that.
    fn release_later(&self) {
        let Ok(handle) = tokio::runtime::Handle::try_current() else { return };
        let (mut store, lease) = (self.store.clone(), self.root.clone());
        handle.spawn(async move {
            for _ in 0..MAX_RELEASE_ATTEMPTS {
                if store.release(&lease).await.is_ok() {
                    return;
                }
                // The store is not kept open for this.
                let weak_store = Arc::downgrade(&store);
                drop(store);
                tokio::time::sleep(RELEASE_PAUSE).await;
                match weak_store.upgrade() {
                    Some(again) => store = again,
                    None => return,
                }
            }
        });
    }

    /// Returns the lease that covers a session.
    pub(crate) fn covering(&self, session: &SessionId) -> Lease {
        let detached = self.detached.read().unwrap_or_else(PoisonError::into_inner);
        let own = detached.iter().rev().find(|lease| lease.root.contains(session));
        own.unwrap_or(&self.root).clone()
    }

    /// Takes a lease for a session that is about to be detached.
    pub(crate) async fn take_for(&self, session: &SessionId) -> Result<(), StoreError> {
        let lease = self.store.lease(session, &self.owner, clock::now()).await?;
        self.detached.write().unwrap_or_else(PoisonError::into_inner).push(lease);
        Ok(())
    }

    /// Renews all leases.
    pub(crate) async fn renew(&self) {
        let detached = self.detached.read().unwrap_or_else(PoisonError::into_inner).clone();
        let own = (!self.is_root_released.load(Ordering::SeqCst)).then(|| self.root.clone());
        for lease in own.into_iter().chain(detached) {
            // A failure appears at the next append.
            let _ = self.store.renew(&lease, clock::now()).await;
        }
    }

    /// Releases the lease of a detached session that has ended.
    pub(crate) async fn release_detached(&self, session: &SessionId) -> Result<(), StoreError> {
        let lease = self.covering(session);
        if lease.root == *session { self.store.release(&lease).await } else { Ok(()) }
    }
}

impl Drop for Leases {
    /// A dropped run also releases its lease, so that any process can resume the tree.
    fn drop(&mut self) {
        if !self.is_root_released.load(Ordering::SeqCst) {
            self.release_later();
        }
    }
}
