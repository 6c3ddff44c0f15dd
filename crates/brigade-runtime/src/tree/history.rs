//! Positions in the log of a resumed tree.

use brigade_core::Cursor;

use crate::runtime::CachedSession;
use crate::store::Store;

/// Positions that earlier rounds and runners of a tree left in its log. A new tree has none.
#[derive(Default)]
pub(crate) struct TreeHistory {
    /// Position up to which the root's log was read when the tree was resumed.
    pub(crate) restored_until: Cursor,
    /// Position before the first event of this round.
    pub(crate) round_after: Cursor,
    /// Resumes of the tree: position, and downtime before it in milliseconds.
    pub(super) resumes: Vec<(Cursor, u64)>,
    /// Last imported position. Records up to it grant no permission.
    pub(super) imported: Option<Cursor>,
}

impl TreeHistory {
    pub(super) fn of(cached: &CachedSession) -> TreeHistory {
        TreeHistory {
            restored_until: cached.last_pos,
            round_after: if cached.state.is_running() { Cursor::START } else { cached.last_pos },
            resumes: cached.resumes.clone(),
            imported: cached.imported,
        }
    }

    /// Whether a part of the tree was imported.
    pub(crate) fn has_imports(&self) -> bool {
        self.imported.is_some()
    }

    /// Whether the record at `pos` was imported.
    pub(crate) fn is_imported(&self, store: &dyn Store, pos: Cursor) -> bool {
        self.imported.is_some_and(|mark| !store.is_after(pos, mark))
    }

    /// Downtime before the last resume, in milliseconds.
    pub(crate) fn last_downtime(&self) -> u64 {
        self.resumes.last().map_or(0, |(_, downtime)| *downtime)
    }

    /// Total downtime since the event at `pos`, in milliseconds.
    pub(crate) fn downtime_since(&self, store: &dyn Store, pos: Cursor) -> u64 {
        self.resumes
            .iter()
            .filter(|(at, _)| store.is_after(*at, pos))
            .fold(0, |sum: u64, (_, downtime)| sum.saturating_add(*downtime))
    }
}
