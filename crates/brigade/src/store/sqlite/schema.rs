//! The file: its tables, its format number, how it is opened, and what its errors mean to a person.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, access};

use super::lock::{HOLDER_CHECK_INTERVAL, Lock, sibling_path};
use super::writer::is_busy;
use crate::store::{Blocker, StoreError};

/// The format that this version writes, in `user_version`. In 1 every row of `events` has one fact; a store becomes 2 with the
/// first that has several.
pub(super) const FORMAT: u32 = 2;
/// "BRIG": says whose file it is.
const APPLICATION_ID: u32 = 0x4252_4947;
/// The size of a page of a new file: facts come in rows of several hundred bytes, and a page that is written costs two calls of
/// the system, whatever its size.
pub(super) const PAGE_BYTES: u32 = 8_192;
/// Writers meet at the lock file, so this is only for other programs, and for the moments in which SQLite itself
/// opens or recovers the write-ahead log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A row of `events` has facts of one session that were appended together, one on a line; `pos` and `seq` are those of the last.
const TABLES: &str = "
    CREATE TABLE events (
        pos INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        v INTEGER NOT NULL,
        outside INTEGER NOT NULL,
        body BLOB NOT NULL,
        sum BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX events_by_session ON events (session, seq);
    CREATE INDEX events_outside ON events (session) WHERE outside = 1;
    CREATE INDEX events_listed ON events (session) WHERE outside = 2;
    CREATE TABLE blobs (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, body TEXT NOT NULL) STRICT;
    CREATE TABLE refs (
        session TEXT NOT NULL,
        hash BLOB NOT NULL,
        PRIMARY KEY (session, hash)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX refs_by_hash ON refs (hash);
    CREATE TABLE leases (
        root TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        host TEXT,
        boot_id TEXT,
        pid INTEGER,
        start_time INTEGER,
        renewed INTEGER NOT NULL,
        last_run INTEGER
    ) STRICT, WITHOUT ROWID;
    -- The highest position ever removed: positions are never given twice.
    CREATE TABLE removed (only INTEGER PRIMARY KEY CHECK (only = 0), pos INTEGER NOT NULL) STRICT;
";

/// What a store may use up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StoreLimits {
    pub(super) pages: Option<u32>,
}

/// The path from the root, so that the place stays the same when the process changes its folder.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Opens the connection that writes, and makes or checks the tables.
pub(super) fn open_writer(place: &Path, limits: StoreLimits) -> Result<Connection, StoreError> {
    create(place).map_err(|error| io_error(place, &error))?;
    let connection = connect(place)?;
    let explain = |error| store_error(place, error);
    if !is_prepared(place, &connection)? {
        // Switching to the write-ahead log does not wait for others by itself, so two first openings meet here.
        let lock = Lock::open(place, Arc::default())?;
        let _guard = lock.acquire()?;
        connection.execute_batch(&format!("PRAGMA page_size = {PAGE_BYTES}")).map_err(explain)?;
        switch_to_log(&connection).map_err(explain)?;
        prepare(place, &connection)?;
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;").map_err(explain)?;
    // The checkpointer does this outside the lock; here it only bounds the log should that thread fail.
    pragma(&connection, "wal_autocheckpoint", 10_000).map_err(explain)?;
    // In KiB: the index over sessions stays in memory for trees of thousands.
    connection.execute_batch("PRAGMA cache_size = -16384").map_err(explain)?;
    // There are indexes over a part of the events: without this, a statement that could use one of them for some value of a
    // parameter is prepared anew for every value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(explain)?;
    // A writer that waits looks from time to time at who keeps it waiting.
    connection.busy_timeout(HOLDER_CHECK_INTERVAL).map_err(explain)?;
    if let Some(pages) = limits.pages {
        pragma(&connection, "max_page_count", i64::from(pages)).map_err(explain)?;
    }
    Ok(connection)
}

/// Whether a store has its tables and its write-ahead log, so that opening it takes no lock.
fn is_prepared(place: &Path, connection: &Connection) -> Result<bool, StoreError> {
    let mode = || journal_mode(connection, "PRAGMA journal_mode").map_err(|error| store_error(place, error));
    Ok(format(place, connection)?.is_some() && mode()? == "wal")
}

/// Switches a new file to the write-ahead log. That fails at once while another process reads the file, which at this
/// moment can only be one that looks whether the tables are there.
fn switch_to_log(connection: &Connection) -> rusqlite::Result<()> {
    let began = Instant::now();
    loop {
        match journal_mode(connection, "PRAGMA journal_mode = WAL") {
            Err(error) if is_busy(&error) && began.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(1));
            }
            switched => return switched.map(drop),
        }
    }
}

fn journal_mode(connection: &Connection, statement: &str) -> rusqlite::Result<String> {
    connection.query_row(statement, [], |row| row.get(0))
}

/// Opens a connection to a store that exists.
pub(super) fn connect(place: &Path) -> Result<Connection, StoreError> {
    open(place, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|error| store_error(place, error))
}

pub(super) fn open(place: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(place, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(48);
    Ok(connection)
}

fn pragma(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, name, value, |_| Ok(()))
}

/// Makes the folder and an empty file that only the owner can read, where they are missing.
fn create(place: &Path) -> io::Result<()> {
    if let Some(folder) = place.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(place) {
        // A file that exists is not opened here: closing it again would release the locks that other connections of
        // this process hold on it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            check_file(place)?;
            Ok(access(place, Access::READ_OK | Access::WRITE_OK)?)
        }
        made => made.map(drop),
    }
}

/// Refuses what is not there, and what SQLite would only call an error of the disk.
pub(super) fn check_file(place: &Path) -> io::Result<()> {
    if std::fs::metadata(place)?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(()) }
}

fn prepare(place: &Path, connection: &Connection) -> Result<(), StoreError> {
    if format(place, connection)?.is_some() {
        return Ok(());
    }
    let script = format!(
        "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT;"
    );
    connection.execute_batch(&script).map_err(|error| store_error(place, error))
}

/// The number of the format, if this version can use it; none where nothing was written yet.
pub(super) fn format(place: &Path, connection: &Connection) -> Result<Option<u32>, StoreError> {
    let explain = |error| store_error(place, error);
    // One snapshot for all three: another process may be creating the tables at this moment.
    let snapshot = connection.unchecked_transaction().map_err(explain)?;
    let number = |name| snapshot.pragma_query_value(None, name, |row| row.get::<_, u32>(0)).map_err(explain);
    let tables: u32 =
        snapshot.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(explain)?;
    let (found, application) = (number("user_version")?, number("application_id")?);
    snapshot.finish().map_err(explain)?;
    if tables == 0 && found == 0 {
        return Ok(None);
    }
    if application != APPLICATION_ID {
        return Err(broken(place, "it belongs to another program; use --store to name another place".into()));
    }
    if found > FORMAT {
        return Err(StoreError::NewerStore { place: place.display().to_string(), found, known: FORMAT });
    }
    if found == 0 {
        return Err(broken(place, "its format number is damaged; restore the file from a copy".into()));
    }
    Ok(Some(found))
}

/// Something about the file that no other error says.
pub(super) fn broken(place: &Path, cause: String) -> StoreError {
    StoreError::Broken { place: place.display().to_string(), cause }
}

/// What an error of the file system means for the store.
pub(super) fn io_error(place: &Path, error: &io::Error) -> StoreError {
    let cause = error.to_string();
    let place = place.display().to_string();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { place },
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::NotFound
        | io::ErrorKind::AlreadyExists => StoreError::ReadOnly { place, cause },
        _ => StoreError::Broken { place, cause },
    }
}

/// What an error of SQLite means for the store.
pub(super) fn store_error(place: &Path, error: rusqlite::Error) -> StoreError {
    let cause = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full { place: place.display().to_string() },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::ReadOnly { place: place.display().to_string(), cause }
        }
        Some(ErrorCode::NotADatabase) => broken(
            place,
            "it is no brigade store, or its beginning is damaged; move it away, or use --store to name another".into(),
        ),
        Some(ErrorCode::DatabaseCorrupt) => {
            broken(place, format!("{cause}; `brigade sessions export` saves what can still be read"))
        }
        // SQLite does not tell a full disk from a failing one everywhere, such as where it makes room for its index.
        Some(ErrorCode::SystemIoFailure) => {
            broken(place, format!("{cause}; check that its disk has room and works, with `brigade doctor`"))
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked {
            place: place.display().to_string(),
            by: Blocker::of_shared_memory(&sibling_path(place, "-shm")),
        },
        _ => broken(place, cause),
    }
}
