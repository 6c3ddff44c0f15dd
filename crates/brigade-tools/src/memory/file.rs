//! SQLite file of the memory: tables, opening and queries.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_base::clock;
use brigade_core::{CallId, Hash, SessionId};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};

use super::snippet::snippet;
use super::{MemoryEntry, MemoryError, PutResult, Replaced, ValidEntry};

/// Format that this version writes, in `user_version`.
const FORMAT: u32 = 1;
/// "BRGM": identifies the file as a memory file.
const APPLICATION_ID: u32 = 0x4252_474d;
/// Maximum wait for other processes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of attempts to open the file for the first time: switching to the write-ahead log does not wait
/// by itself.
const OPEN_ATTEMPTS: u32 = 100;
const OPEN_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Maximum size of the file, in pages of 4 KiB: one GiB.
const MAX_PAGES: u32 = 262_144;
/// Period in which a repeated call is recognised.
const CALL_RETENTION_MS: u64 = 90 * 24 * 60 * 60 * 1000;

/// Maximum number of terms of a query, and maximum length of each.
const MAX_TERMS: usize = 32;
const MAX_TERM_CHARACTERS: usize = 64;

const SCHEMA: &str = "
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        tags TEXT NOT NULL,
        session TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT;
    -- Only the index: the text is in the table above.
    CREATE VIRTUAL TABLE words USING fts5 (
        key, text, tags, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
    );
    -- Calls that were carried out: one that is made again after a crash changes nothing.
    CREATE TABLE done (
        session TEXT NOT NULL,
        call TEXT NOT NULL,
        note TEXT NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (session, call)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX done_by_time ON done (at);
";

const STORED_AT_SQL: &str = "strftime('%Y-%m-%dT%H:%M:%SZ', entries.at / 1000, 'unixepoch')";

/// File that is opened at the first use.
#[derive(Debug)]
pub(super) struct MemoryFile {
    path: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl MemoryFile {
    pub(super) fn new(path: &Path) -> MemoryFile {
        // An absolute path stays valid if the process changes its working directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        MemoryFile { path, connection: Mutex::default() }
    }

    /// Creates or checks the file.
    pub(super) fn open_or_create(&self) -> Result<(), MemoryError> {
        self.work(|_| Ok(()))
    }

    pub(super) fn put(
        &self,
        entry: &ValidEntry,
        session: &SessionId,
        call: CallId,
    ) -> Result<PutResult, MemoryError> {
        let tags = entry.tags.join("\n");
        let entry_hash = Hash::of(format!("{}\n{tags}\n\n{}", entry.key, entry.text).as_bytes()).to_string();
        let (now, call) = (clock::now(), call.to_string());
        self.work(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let stored = |replaced| PutResult { key: entry.key.clone(), replaced };
            let recorded_hash: Option<String> = transaction
                .query_row(
                    "SELECT note FROM done WHERE session = ?1 AND call = ?2",
                    params![session.as_str(), call],
                    |row| row.get(0),
                )
                .optional()?;
            if recorded_hash.as_deref() == Some(&entry_hash) {
                return Ok(stored(Replaced::Nothing));
            }
            let old: Option<(i64, String)> = transaction
                .query_row("SELECT id, text FROM entries WHERE key = ?1", [&entry.key], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            if let Some((id, _)) = &old {
                transaction.execute("DELETE FROM words WHERE rowid = ?1", [id])?;
                transaction.execute("DELETE FROM entries WHERE id = ?1", [id])?;
            }
            transaction.execute(
                "INSERT INTO entries (key, text, tags, session, at) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![entry.key, entry.text, tags, session.as_str(), now],
            )?;
            transaction.execute(
                "INSERT INTO words (rowid, key, text, tags) VALUES (?1, ?2, ?3, ?4)",
                params![transaction.last_insert_rowid(), entry.key, entry.text, tags],
            )?;
            transaction.execute("DELETE FROM done WHERE at < ?1", [now.saturating_sub(CALL_RETENTION_MS)])?;
            transaction.execute(
                "INSERT OR REPLACE INTO done (session, call, note, at) VALUES (?1, ?2, ?3, ?4)",
                params![session.as_str(), call, entry_hash, now],
            )?;
            transaction.commit()?;
            let another = old.is_some_and(|(_, text)| text != entry.text);
            Ok(stored(if another { Replaced::DifferentText } else { Replaced::Nothing }))
        })
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<MemoryEntry>, MemoryError> {
        if !self.exists()? {
            return Ok(None);
        }
        let query = format!("SELECT key, text, tags, session, {STORED_AT_SQL} FROM entries WHERE key = ?1");
        self.work(|connection| connection.query_row(&query, [key], entry_from_row).optional())
    }

    pub(super) fn search(&self, query: &str, limit: usize) -> Result<Vec<MemoryEntry>, MemoryError> {
        let Some(expression) = match_expression(query) else { return Ok(Vec::new()) };
        if !self.exists()? {
            return Ok(Vec::new());
        }
        // A match in the key ranks highest, then one in the tags.
        let statement = format!(
            "SELECT entries.key, entries.text, entries.tags, entries.session, {STORED_AT_SQL}
             FROM (
                 SELECT rowid AS id, bm25(words, 4.0, 1.0, 2.0) AS score
                 FROM words WHERE words MATCH ?1 ORDER BY score, id LIMIT ?2
             ) AS best JOIN entries ON entries.id = best.id ORDER BY best.score, best.id"
        );
        let shortened = |row: &Row<'_>| {
            let entry = entry_from_row(row)?;
            Ok(MemoryEntry { text: snippet(&entry.text, query), ..entry })
        };
        self.work(|connection| {
            let mut statement = connection.prepare(&statement)?;
            statement.query_map(params![expression, limit as u64], shortened)?.collect()
        })
    }

    /// Whether the file exists. Reading does not create it.
    fn exists(&self) -> Result<bool, MemoryError> {
        match self.path.try_exists() {
            Ok(exists) => Ok(exists),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(false),
            Err(error) => Err(MemoryError::from_system(&self.path, &error)),
        }
    }

    /// Runs work on the connection. After an error the connection is reopened, because the file may have been
    /// repaired since.
    fn work<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, MemoryError> {
        let mut held = self.lock();
        let mut connection = match held.take() {
            Some(connection) => connection,
            None => open(&self.path)?,
        };
        let outcome = work(&mut connection).map_err(|error| MemoryError::from_sqlite(&self.path, &error))?;
        *held = Some(connection);
        Ok(outcome)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry_from_row(row: &Row<'_>) -> rusqlite::Result<MemoryEntry> {
    let tags: String = row.get(2)?;
    Ok(MemoryEntry {
        key: row.get(0)?,
        text: row.get(1)?,
        tags: tags.lines().map(str::to_owned).collect(),
        session: row.get(3)?,
        stored_at: row.get::<_, Option<String>>(4)?.unwrap_or_default(),
    })
}

/// Builds the match expression of a query. Each word is quoted so that none is parsed as syntax, and matches as a
/// prefix. `None` if the query contains no word.
fn match_expression(query: &str) -> Option<String> {
    let mut terms: Vec<String> = Vec::new();
    for word in query.split(|c: char| c.is_whitespace() || c.is_control()) {
        let word: String = word.chars().take(MAX_TERM_CHARACTERS).collect();
        let term = format!("\"{}\"*", word.replace('"', "\"\""));
        if word.contains(char::is_alphanumeric) && !terms.contains(&term) {
            terms.push(term);
        }
        if terms.len() == MAX_TERMS {
            break;
        }
    }
    (!terms.is_empty()).then(|| terms.join(" OR "))
}

fn open(path: &Path) -> Result<Connection, MemoryError> {
    create(path).map_err(|error| MemoryError::from_system(path, &error))?;
    for _ in 1..OPEN_ATTEMPTS {
        match connect(path) {
            Err(error) if is_busy(&error) => std::thread::sleep(OPEN_RETRY_DELAY),
            outcome => return check_format(path, outcome),
        }
    }
    check_format(path, connect(path))
}

/// Creates the folder and an empty file that only the owner can read, if they are missing.
fn create(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match OpenOptions::new().append(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Opened database with its metadata.
struct OpenedDatabase {
    connection: Connection,
    application: u32,
    format: u32,
}

fn connect(path: &Path) -> rusqlite::Result<OpenedDatabase> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let number = |connection: &Connection, name| connection.pragma_query_value(None, name, |row| row.get(0));
    let is_new = |connection: &Connection| {
        connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get::<_, bool>(0))
    };
    // A file of another program is inspected but not modified.
    let fresh = number(&connection, "user_version")? == 0u32 && is_new(&connection)?;
    if fresh || number(&connection, "application_id")? == APPLICATION_ID {
        let switch = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match switch {
            // A read-only file can still be read.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) && !fresh => {}
            switched => drop(switched?),
        }
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        connection.pragma_update_and_check(None, "max_page_count", MAX_PAGES, |_| Ok(()))?;
    }
    if fresh {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have created the tables first.
        if is_new(&transaction)? {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
        }
        transaction.commit()?;
    }
    let (application, format) =
        (number(&connection, "application_id")?, number(&connection, "user_version")?);
    Ok(OpenedDatabase { connection, application, format })
}

fn check_format(path: &Path, outcome: rusqlite::Result<OpenedDatabase>) -> Result<Connection, MemoryError> {
    let opened = outcome.map_err(|error| MemoryError::from_sqlite(path, &error))?;
    match opened.format {
        _ if opened.application != APPLICATION_ID => {
            Err(MemoryError::damaged(path, "it belongs to another program"))
        }
        FORMAT => Ok(opened.connection),
        0 => Err(MemoryError::damaged(path, "its format number is damaged")),
        found => Err(MemoryError::NewerFormat { path: path.display().to_string(), found, known: FORMAT }),
    }
}
