//! Marks of imported trees. The first import creates the table, so that stores without imports need no upgrade.

use brigade_core::SessionId;
use rusqlite::params;

use super::Pos;
use super::reader::Snapshot;
use super::write_tx::WriteTx;
use brigade_base::store::StoreError;

impl WriteTx<'_> {
    /// Marks all records of a tree up to this position as imported.
    pub(super) fn mark_imported(&self, root: &SessionId, pos: Pos) -> rusqlite::Result<()> {
        self.connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS imported (root TEXT PRIMARY KEY, pos INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        )?;
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO imported (root, pos) VALUES (?, ?)")?
            .execute(params![root.as_str(), pos])?;
        Ok(())
    }

    /// Removes the mark of a tree that was removed completely.
    pub(super) fn forget_import(&self, root: &SessionId) -> rusqlite::Result<()> {
        if self.connection.table_exists(None, "imported")? {
            self.connection.execute("DELETE FROM imported WHERE root = ?", [root.as_str()])?;
        }
        Ok(())
    }
}

impl Snapshot<'_> {
    /// Position up to which the records of a tree were imported.
    pub(super) fn imported(&self, root: &SessionId) -> Result<Option<Pos>, StoreError> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'imported'";
        if self.query_one(sql, [], |row| row.get::<_, u32>(0))? != Some(1) {
            return Ok(None);
        }
        self.query_one("SELECT pos FROM imported WHERE root = ?", params![root.as_str()], |row| row.get(0))
    }
}
