//! Index of the content that agents left in files, so that a lookup does not read every log.
//!
//! The tables are created on first use, so that stores without them need no upgrade. `edits` covers all rows of
//! `events` up to a position, and those of removed sessions. Later rows are scanned, and are added to the table
//! once there are many of them.

use brigade_core::{Hash, SessionId};
use rusqlite::{Connection, OptionalExtension, params};

use super::Pos;
use super::reader::Snapshot;
use super::write_tx::WriteTx;
use brigade_base::store::{StoreError, backend};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS edits (hash BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS edits_until (only INTEGER PRIMARY KEY CHECK (only = 0), pos INTEGER NOT NULL) STRICT;
";

/// Number of rows that a lookup scans before they are added to the table.
const MAX_UNINDEXED_ROWS: u64 = 2_000;

/// Selects rows of events that may contain an edit.
macro_rules! edited {
    ($which:literal) => {
        concat!(
            "SELECT v, body FROM events WHERE ",
            $which,
            " AND instr(body, CAST('\"after\":\"' AS BLOB)) > 0"
        )
    };
}

/// Result of searching a snapshot for edited content.
pub(super) struct EditSearch {
    pub(super) is_found: bool,
    /// Whether so many rows were scanned that they should be added to the table.
    pub(super) is_slow: bool,
}

impl Snapshot<'_> {
    /// Searches for content in the table and in the rows after it.
    pub(super) fn find_edit(&self, content: Hash) -> Result<EditSearch, StoreError> {
        let search = || {
            let has_tables = self.connection.table_exists(None, "edits_until")?;
            let indexed_until = if has_tables { indexed_until(self.connection)? } else { 0 };
            if has_tables && is_indexed(self.connection, content)? {
                return Ok(EditSearch { is_found: true, is_slow: false });
            }
            let sql = "SELECT count(*) FROM (SELECT 1 FROM events WHERE pos > ? LIMIT ?)";
            let rows: u64 = self
                .connection
                .prepare_cached(sql)?
                .query_row(params![indexed_until, MAX_UNINDEXED_ROWS + 1], |row| row.get(0))?;
            let is_found =
                edits(self.connection, edited!("pos > ?"), params![indexed_until])?.contains(&content);
            Ok(EditSearch { is_found, is_slow: rows > MAX_UNINDEXED_ROWS })
        };
        search().map_err(|error| self.explain(error))
    }
}

impl WriteTx<'_> {
    /// Adds the edits of all rows to the table.
    pub(super) fn index_edits(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch(TABLES)?;
        let indexed_until = indexed_until(self.connection)?;
        self.add_edits(&edits(self.connection, edited!("pos > ?"), params![indexed_until])?)?;
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO edits_until (only, pos) SELECT 0, coalesce(max(pos), 0) FROM events",
            )?
            .execute([])?;
        Ok(())
    }

    /// Keeps the edits of a session that is about to be removed, because its content is still in the files.
    pub(super) fn keep_edits(&self, session: &SessionId) -> rusqlite::Result<()> {
        let found = edits(self.connection, edited!("session = ?"), params![session.as_str()])?;
        if found.is_empty() {
            return Ok(());
        }
        self.connection.execute_batch(TABLES)?;
        self.add_edits(&found)
    }

    fn add_edits(&self, hashes: &[Hash]) -> rusqlite::Result<()> {
        let mut insert = self.connection.prepare_cached("INSERT OR IGNORE INTO edits (hash) VALUES (?)")?;
        hashes.iter().try_for_each(|hash| insert.execute([hash.as_bytes()]).map(drop))
    }
}

fn indexed_until(connection: &Connection) -> rusqlite::Result<Pos> {
    let pos = connection
        .prepare_cached("SELECT pos FROM edits_until")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(pos.unwrap_or(0))
}

fn is_indexed(connection: &Connection, content: Hash) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM edits WHERE hash = ?")?.exists([content.as_bytes()])
}

/// Content that the edits of the given rows led to. Unreadable rows are skipped.
fn edits(
    connection: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
) -> rusqlite::Result<Vec<Hash>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (v, body): (u64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        let lines = backend::lines(&body).into_iter().flatten().filter(|line| line.contains("\"after\":\""));
        found.extend(lines.filter_map(|line| backend::edit(&backend::decode(line, v).ok()?)));
    }
    Ok(found)
}
