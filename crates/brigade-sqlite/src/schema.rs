//! Store file: its tables, format version, opening, and conversion of errors.

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
use brigade_base::store::{Blocker, BrokenKind, StoreError};

/// Format that this version writes, in `user_version`. In format 1 every row of `events` has one event. Format 2 allows
/// several. In format 3 the checksum of a row does not cover its position. The first row that this version writes makes
/// a store format 3; rows of earlier formats stay as they are.
pub(super) const FORMAT: u32 = 3;
/// Identifies the file type: "BRIG".
const APPLICATION_ID: u32 = 0x4252_4947;
/// Page size of a new file. Rows have several hundred bytes, and writing a page costs two system calls regardless
/// of its size.
pub(super) const PAGE_BYTES: u32 = 8_192;
/// Writers are serialized by the lock file. This timeout is for other programs, and for the moments when SQLite
/// itself opens or recovers the write-ahead log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A row of `events` has events of one session that were appended together, one per line. `pos` and `seq` are
/// those of the last.
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

/// Limits of a store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StoreLimits {
    pub(super) pages: Option<u32>,
}

/// Absolute path, which stays valid if the process changes its working directory.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Opens the writer's connection, and creates or checks the tables.
pub(super) fn open_writer(place: &Path, limits: StoreLimits) -> Result<Connection, StoreError> {
    create(place).map_err(|error| io_error(place, &error))?;
    let connection = connect(place)?;
    let explain = |error| store_error(place, error);
    if !is_prepared(place, &connection)? {
        // Switching to the write-ahead log does not wait for other processes, so concurrent first openings are
        // serialized here.
        let lock = Lock::open(place, Arc::default())?;
        let _guard = lock.acquire()?;
        connection.execute_batch(&format!("PRAGMA page_size = {PAGE_BYTES}")).map_err(explain)?;
        switch_to_log(&connection).map_err(explain)?;
        prepare(place, &connection)?;
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;").map_err(explain)?;
    // The checkpointer does this outside the lock. This limit applies only if that thread fails.
    pragma(&connection, "wal_autocheckpoint", 10_000).map_err(explain)?;
    // In KiB. The index over sessions stays in memory for trees of thousands.
    connection.execute_batch("PRAGMA cache_size = -16384").map_err(explain)?;
    // There are partial indexes over the events. Without this option, a statement that could use one of them for
    // some parameter value is prepared again for every value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(explain)?;
    // A waiting writer regularly checks which process holds the lock.
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

/// Switches a new file to the write-ahead log. That fails at once while another process reads the file, which at
/// this point can only be checking for the tables.
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

/// Opens a connection to an existing store.
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

/// Creates the directory and an empty file that only the owner can read, if they are missing.
fn create(place: &Path) -> io::Result<()> {
    if let Some(folder) = place.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(place) {
        // An existing file is not opened here. Closing it would release the locks that other connections of this
        // process hold on it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            check_file(place)?;
            Ok(access(place, Access::READ_OK | Access::WRITE_OK)?)
        }
        made => made.map(drop),
    }
}

/// Refuses missing files and cases that SQLite would report only as a disk error.
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

/// Format version if this version supports it, or none if nothing was written yet.
pub(super) fn format(place: &Path, connection: &Connection) -> Result<Option<u32>, StoreError> {
    let explain = |error| store_error(place, error);
    // One snapshot for all three, because another process may be creating the tables.
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
        let cause = "it belongs to another program".into();
        return Err(broken_as(BrokenKind::Foreign, place, cause));
    }
    if found > FORMAT {
        return Err(StoreError::NewerStore { place: place.display().to_string(), found, known: FORMAT });
    }
    if found == 0 {
        return Err(broken_as(BrokenKind::Format, place, "its format number is damaged".into()));
    }
    Ok(Some(found))
}

/// Error for a failure of the file that no other variant covers.
pub(super) fn broken(place: &Path, cause: String) -> StoreError {
    broken_as(BrokenKind::Other, place, cause)
}

fn broken_as(kind: BrokenKind, place: &Path, cause: String) -> StoreError {
    StoreError::Broken { place: place.display().to_string(), kind, cause }
}

/// Converts a file system error.
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
        _ => StoreError::Broken { place, kind: BrokenKind::Other, cause },
    }
}

/// Converts an SQLite error.
pub(super) fn store_error(place: &Path, error: rusqlite::Error) -> StoreError {
    let cause = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full { place: place.display().to_string() },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::ReadOnly { place: place.display().to_string(), cause }
        }
        Some(ErrorCode::NotADatabase) => {
            let cause = "it is not a Brigade store, or its header is damaged".into();
            broken_as(BrokenKind::NotAStore, place, cause)
        }
        Some(ErrorCode::DatabaseCorrupt) => broken_as(BrokenKind::Corrupt, place, cause),
        // SQLite does not always distinguish a full disk from a failing one, for example when it extends its
        // index.
        Some(ErrorCode::SystemIoFailure) => broken_as(BrokenKind::Disk, place, cause),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked {
            place: place.display().to_string(),
            by: Blocker::of_shared_memory(&sibling_path(place, "-shm")),
        },
        _ => broken(place, cause),
    }
}
