//! Lease rules, the same for every store.

use brigade_core::SessionId;

use crate::store::{Lease, Owner, StoreError};

/// Stored lease of a tree. It remains after a release and after a removal, so that epochs never repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// Epoch of the latest lease.
    pub epoch: u64,
    /// Holder of the lease, or none after a release.
    pub owner: Option<Owner>,
    /// When the lease was last renewed, in UTC milliseconds.
    pub renewed: u64,
    /// When the tree last ran. None if it never did or was removed.
    pub last_run: Option<u64>,
}

impl LeaseRow {
    /// Takes the lease of `root` unless a live runner has it. Returns the lease and the row to store in the same
    /// transaction.
    pub fn take(
        row: Option<&LeaseRow>,
        root: &SessionId,
        owner: &Owner,
        at: u64,
    ) -> Result<(Lease, LeaseRow), StoreError> {
        if let Some(runner) = row.and_then(|row| row.runner(owner, at)) {
            return Err(StoreError::Held { root: root.clone(), owner: runner.clone() });
        }
        let epoch = row.map_or(1, |row| row.epoch + 1);
        let lease = Lease { root: root.clone(), epoch, last_run: row.and_then(|row| row.last_run) };
        Ok((lease, LeaseRow { epoch, owner: Some(owner.clone()), renewed: at, last_run: Some(at) }))
    }

    /// Fails unless `lease` is the latest of its tree, has not been released, and covers `session`. A store checks
    /// this in the transaction of the append.
    pub fn check(row: Option<&LeaseRow>, lease: &Lease, session: &SessionId) -> Result<(), StoreError> {
        let is_admitted = row.is_some_and(|row| row.admits(lease)) && lease.root.contains(session);
        let fenced = || StoreError::Fenced { root: lease.root.clone(), epoch: lease.epoch };
        is_admitted.then_some(()).ok_or_else(fenced)
    }

    /// Process that runs the tree now, as far as `observer` can tell.
    pub fn runner(&self, observer: &Owner, at: u64) -> Option<&Owner> {
        self.owner.as_ref().filter(|owner| owner.is_valid_at(self.renewed, observer, at))
    }

    /// Whether `lease` is the latest and has not been released.
    pub fn admits(&self, lease: &Lease) -> bool {
        self.epoch == lease.epoch && self.owner.is_some()
    }

    /// Renews the lease. Every append with a lease renews it.
    pub fn renew(&mut self, at: u64) {
        self.renewed = at;
        self.last_run = Some(at);
    }

    /// Lease row of a removed tree. Its epoch fences a runner that is unaware of the removal.
    pub fn tombstone(&self) -> LeaseRow {
        LeaseRow { epoch: self.epoch + 1, owner: None, renewed: 0, last_run: None }
    }
}

/// A session and its ancestors, nearest first. A lease of any of them may cover the session.
pub fn ancestors(session: &SessionId) -> impl Iterator<Item = SessionId> {
    std::iter::successors(Some(session.clone()), SessionId::parent)
}
