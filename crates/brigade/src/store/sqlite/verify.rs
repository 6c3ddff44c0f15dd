//! Detection of data that a damaged file has lost.
//!
//! Every event is in the file twice: in the table by position, and in the index by session. A row that only one
//! of them has was lost from the other.

use std::cmp::Ordering;

use brigade_core::SessionId;
use rusqlite::params;

use super::Pos;
use super::reader::{Snapshot, SubtreeRange};
use super::write_tx::lease_row;
use crate::store::backend::DecodeError;
use crate::store::backend::ancestors;
use crate::store::{ReturnedChild, StoreError};

/// Place of a row: session, `seq`, position.
type RowPosition = (String, u64, Pos);

impl Snapshot<'_> {
    /// Verifies that nothing of a tree is lost.
    pub(super) fn verify(&self, root: &SessionId, children: &[ReturnedChild]) -> Result<(), StoreError> {
        let indexed = self.row_positions(
            root,
            "SELECT session, seq, pos FROM events INDEXED BY events_by_session
             WHERE session >= ?1 AND session < ?3 AND (+session = ?1 OR +session > ?2) AND ?4 = 0
             ORDER BY session, seq",
            0,
        )?;
        let first = indexed.iter().map(|(_, _, pos)| *pos).min().unwrap_or_default();
        let mut rows = self.row_positions(
            root,
            "SELECT session, seq, pos FROM events NOT INDEXED
             WHERE pos >= ?4 AND session >= ?1 AND session < ?3 AND (session = ?1 OR session > ?2) ORDER BY pos",
            first,
        )?;
        rows.sort();
        self.compare_index(&indexed, &rows)?;
        self.check_children(root, children)
    }

    fn row_positions(&self, root: &SessionId, sql: &str, first: Pos) -> Result<Vec<RowPosition>, StoreError> {
        let below = SubtreeRange::of(root);
        let parameters = params![root.as_str(), below.first, below.end, first];
        self.query_all(sql, parameters, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }

    /// Reports the first row that only one of the two has.
    fn compare_index(&self, indexed: &[RowPosition], rows: &[RowPosition]) -> Result<(), StoreError> {
        let differ = indexed.iter().zip(rows).find(|(one, other)| one != other);
        let (one, other) = match differ {
            Some((one, other)) => (Some(one), Some(other)),
            None => (indexed.get(rows.len()), rows.get(indexed.len())),
        };
        let only_indexed = match (one, other) {
            (None, None) => return Ok(()),
            (Some(one), Some(other)) => one.cmp(other) != Ordering::Greater,
            (one, _) => one.is_some(),
        };
        let (session, seq, _) = if only_indexed { one } else { other }.ok_or(StoreError::Closed)?;
        let session = self.id(session)?;
        if only_indexed {
            return Err(StoreError::MissingRecord { seq: self.end_before(&session, *seq)?, session });
        }
        Err(DecodeError::Damaged("the index has no entry for it".into()).of(&session, *seq))
    }

    /// Checks for sessions that must be present. Those that were removed, here or before the import of the tree,
    /// are exempt.
    fn check_children(&self, root: &SessionId, children: &[ReturnedChild]) -> Result<(), StoreError> {
        let removed: Option<Pos> = self.query_one("SELECT pos FROM removed", [], |row| row.get(0))?;
        let mut may_be_missing = false;
        for child in
            children.iter().filter(|child| removed.is_none_or(|removed| removed < child.after.number()))
        {
            if may_be_missing || self.exists(&child.session)? {
                continue;
            }
            if self.was_run(root)? {
                return Err(child.missing());
            }
            may_be_missing = true;
        }
        Ok(())
    }

    /// Whether a tree ran in this store, and was not only imported.
    fn was_run(&self, root: &SessionId) -> Result<bool, StoreError> {
        for above in ancestors(root) {
            if lease_row(self.connection, &above).map_err(|error| self.explain(error))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
