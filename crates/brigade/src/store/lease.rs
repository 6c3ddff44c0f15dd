//! Lease rules, the same for every store.

use brigade_core::SessionId;

use super::{Lease, Owner, StoreError};

/// Stored lease of a tree. It remains after a release, so that epochs never repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseRow {
    pub(super) epoch: u64,
    /// `None` after a release.
    pub(super) owner: Option<Owner>,
    /// When the lease was last renewed.
    pub(super) renewed: u64,
    /// When the tree last ran. None if it never did or was removed.
    pub(super) last_run: Option<u64>,
}

impl LeaseRow {
    /// Process that runs the tree now, as far as `observer` can tell.
    pub(super) fn runner(&self, observer: &Owner, at: u64) -> Option<&Owner> {
        self.owner.as_ref().filter(|owner| owner.is_valid_at(self.renewed, observer, at))
    }

    /// Whether `lease` is the latest and has not been released.
    pub(super) fn admits(&self, lease: &Lease) -> bool {
        self.epoch == lease.epoch && self.owner.is_some()
    }

    /// Lease row of a removed tree. Its epoch fences a runner that is unaware of the removal.
    pub(super) fn tombstone(&self) -> LeaseRow {
        LeaseRow { epoch: self.epoch + 1, owner: None, renewed: 0, last_run: None }
    }
}

/// Takes the lease of `root` unless a live runner has it.
pub(super) fn take(
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

/// Error of an append under an outdated lease.
pub(super) fn fenced(lease: &Lease) -> StoreError {
    StoreError::Fenced { root: lease.root.clone(), epoch: lease.epoch }
}

/// A session and its ancestors, nearest first. A lease of any of them may cover the session.
pub(super) fn ancestors(session: &SessionId) -> impl Iterator<Item = SessionId> {
    std::iter::successors(Some(session.clone()), SessionId::parent)
}
