//! Removal of a tree and of the content that only it refers to.

use std::collections::BTreeSet;

use brigade_core::SessionId;
use rusqlite::{Connection, params};

use super::reader::SubtreeRange;
use super::write_tx::{WriteTx, has_events, lease_row, runner, tree_key};
use super::writer::WriteError;
use brigade_base::store::StoreError;
use brigade_base::store::backend::ancestors;

impl WriteTx<'_> {
    /// Removes a session and its descendants, except those that were resumed on their own.
    pub(super) fn remove(&mut self, root: &SessionId) -> Result<(), WriteError> {
        self.check_idle(root)?;
        self.invalidate_cache();
        let sessions = self.sessions_to_remove(root)?;
        if sessions.is_empty() {
            return Err(StoreError::UnknownSession(root.clone()).into());
        }
        let mut hashes: BTreeSet<[u8; 32]> = BTreeSet::new();
        for session in &sessions {
            hashes.extend(self.remove_session(session)?);
        }
        if !has_events(self.connection, &root.root_id())? {
            hashes.extend(self.remove_refs(&tree_key(root))?);
            self.forget_import(&root.root_id())?;
        }
        for hash in hashes {
            self.connection
                .prepare_cached(
                    "DELETE FROM blobs WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM refs WHERE hash = ?1)",
                )?
                .execute([hash])?;
        }
        self.written.removed = true;
        self.written.must_notify = true;
        Ok(())
    }

    /// Fails if a live runner holds the tree of a session.
    pub(super) fn check_idle(&self, session: &SessionId) -> Result<(), WriteError> {
        for root in ancestors(session) {
            if let Some(owner) = runner(self.connection, &root)? {
                return Err(StoreError::Held { root, owner }.into());
            }
        }
        Ok(())
    }

    /// Sessions to remove: those of the tree, without subtrees that have their own lease.
    fn sessions_to_remove(&self, root: &SessionId) -> rusqlite::Result<Vec<SessionId>> {
        let below = SubtreeRange::of(root);
        let range = params![root.as_str(), below.first, below.end];
        let separate = ids(
            self.connection,
            "SELECT root FROM leases WHERE root <> ?1 AND root > ?2 AND root < ?3 AND last_run IS NOT NULL",
            range,
        )?;
        let all = ids(
            self.connection,
            "SELECT DISTINCT session FROM events
             WHERE session >= ?1 AND session < ?3 AND (+session = ?1 OR +session > ?2)",
            range,
        )?;
        Ok(all
            .into_iter()
            .filter(|session| !separate.iter().any(|separate| separate.contains(session)))
            .collect())
    }

    /// Removes one session and returns the hashes it referred to.
    fn remove_session(&mut self, session: &SessionId) -> rusqlite::Result<Vec<[u8; 32]>> {
        let connection = self.connection;
        let id = [session.as_str()];
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO removed (only, pos) SELECT 0, max(pos) FROM (
                    SELECT max(pos) AS pos FROM events WHERE session = ? UNION ALL SELECT pos FROM removed)",
            )?
            .execute(id)?;
        self.keep_edits(session)?;
        connection.prepare_cached("DELETE FROM events WHERE session = ?")?.execute(id)?;
        let hashes = self.remove_refs(session.as_str())?;
        if let Some(row) = lease_row(connection, session)? {
            self.write_lease(session, &row.tombstone())?;
        }
        self.forget(session);
        Ok(hashes)
    }

    /// Removes the references of a referrer and returns their hashes.
    fn remove_refs(&self, referrer: &str) -> rusqlite::Result<Vec<[u8; 32]>> {
        let hashes = self
            .connection
            .prepare_cached("SELECT hash FROM refs WHERE session = ?")?
            .query_map([referrer], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<[u8; 32]>>>()?;
        self.connection.prepare_cached("DELETE FROM refs WHERE session = ?")?.execute([referrer])?;
        Ok(hashes)
    }
}

fn ids(connection: &Connection, sql: &str, range: impl rusqlite::Params) -> rusqlite::Result<Vec<SessionId>> {
    let mut statement = connection.prepare_cached(sql)?;
    let texts = statement.query_map(range, |row| row.get::<_, String>(0))?;
    // An unparsable id belongs to no known tree.
    texts.filter_map(|text| text.map(|text| text.parse().ok()).transpose()).collect()
}
