//! Removing a tree, and what only it named.

use std::collections::BTreeSet;

use brigade_core::SessionId;
use rusqlite::{Connection, params};

use super::ledger::{Ledger, has_facts, lease_row, tree_name};
use super::reader::Below;
use super::writer::Fault;
use crate::store::lease::lineage;
use crate::store::{Holder, StoreError};

impl Ledger<'_> {
    /// Removes a session and all below it that was not continued on its own.
    pub(super) fn remove(&mut self, root: &SessionId) -> Result<(), Fault> {
        self.check_idle(root)?;
        self.ask_again();
        let doomed = self.doomed(root)?;
        if doomed.is_empty() {
            return Err(StoreError::Unknown(root.clone()).into());
        }
        let mut named: BTreeSet<[u8; 32]> = BTreeSet::new();
        for session in &doomed {
            named.extend(self.remove_session(session)?);
        }
        if !has_facts(self.connection, &root.root_id())? {
            named.extend(self.forget_names(&tree_name(root))?);
            self.forget_import(&root.root_id())?;
        }
        for hash in named {
            self.connection
                .prepare_cached(
                    "DELETE FROM blobs WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM refs WHERE hash = ?1)",
                )?
                .execute([hash])?;
        }
        self.written.removed = true;
        self.written.stirs = true;
        Ok(())
    }

    /// Refuses if a living runner has the tree of a session.
    pub(super) fn check_idle(&self, session: &SessionId) -> Result<(), Fault> {
        let at: u64 = self
            .connection
            .prepare_cached("SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)")?
            .query_row([], |row| row.get(0))?;
        for root in lineage(session) {
            let row = lease_row(self.connection, &root)?.filter(|row| row.holder.is_some());
            if let Some(holder) = row.and_then(|row| row.runner(&Holder::this_process(), at).cloned()) {
                return Err(StoreError::Held { root, holder }.into());
            }
        }
        Ok(())
    }

    /// The sessions to remove: those of the tree, without those that have a lease of their own and all below them.
    fn doomed(&self, root: &SessionId) -> rusqlite::Result<Vec<SessionId>> {
        let below = Below::of(root);
        let range = params![root.as_str(), below.first, below.end];
        let own = ids(
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
        Ok(all.into_iter().filter(|session| !own.iter().any(|own| own.contains(session))).collect())
    }

    /// Removes one session and returns what it named.
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
        let named = self.forget_names(session.as_str())?;
        if let Some(row) = lease_row(connection, session)? {
            self.write_lease(session, &row.buried())?;
        }
        self.forget(session);
        Ok(named)
    }

    /// Removes what is kept about who names what, and returns what it was.
    fn forget_names(&self, who: &str) -> rusqlite::Result<Vec<[u8; 32]>> {
        let named = self
            .connection
            .prepare_cached("SELECT hash FROM refs WHERE session = ?")?
            .query_map([who], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<[u8; 32]>>>()?;
        self.connection.prepare_cached("DELETE FROM refs WHERE session = ?")?.execute([who])?;
        Ok(named)
    }
}

fn ids(connection: &Connection, sql: &str, range: impl rusqlite::Params) -> rusqlite::Result<Vec<SessionId>> {
    let mut statement = connection.prepare_cached(sql)?;
    let texts = statement.query_map(range, |row| row.get::<_, String>(0))?;
    // An id that cannot be read belongs to no tree that can be named.
    texts.filter_map(|text| text.map(|text| text.parse().ok()).transpose()).collect()
}
