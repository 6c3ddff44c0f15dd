//! Read access to a store, including one that cannot be written.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::lock::sibling_path;
use super::schema::{self, store_error};
use brigade_base::store::StoreError;

/// Kind of read access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadAccess {
    /// Alongside writers.
    Shared,
    /// Without other processes, including commits that are still in the write-ahead log. SQLite keeps the index
    /// of that log in a file beside the database. If it cannot create the file, the index is kept in memory.
    PrivateIndex,
    /// Without other processes, from the database file alone.
    Immutable,
}

impl ReadAccess {
    /// Finds the kind of access that works for a store, and its format. Only a place that cannot be written needs
    /// another kind than [`ReadAccess::Shared`].
    pub(super) fn find(place: &Path) -> Result<(ReadAccess, Option<u32>), StoreError> {
        let shared = ReadAccess::Shared.probe(place);
        let is_unwritable = matches!(shared, Err(StoreError::ReadOnly { .. }));
        if !is_unwritable {
            return shared;
        }
        let log = std::fs::metadata(sibling_path(place, "-wal"));
        let has_log = log.is_ok_and(|log| log.len() > 0);
        let access = if has_log { ReadAccess::PrivateIndex } else { ReadAccess::Immutable };
        access.probe(place)
    }

    fn probe(self, place: &Path) -> Result<(ReadAccess, Option<u32>), StoreError> {
        let format = schema::format(place, &self.connect(place)?)?;
        Ok((self, format))
    }

    /// Opens a connection to an existing store.
    pub(super) fn connect(self, place: &Path) -> Result<Connection, StoreError> {
        let open = || match self {
            ReadAccess::Shared => schema::open(place, OpenFlags::SQLITE_OPEN_READ_WRITE),
            ReadAccess::Immutable => schema::open(&sqlite_uri(place, "immutable=1"), READ_ONLY),
            ReadAccess::PrivateIndex => {
                // No file locks, because a file that is open for reading cannot be locked exclusively.
                let connection = schema::open(&sqlite_uri(place, "vfs=unix-none"), READ_ONLY)?;
                connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
                connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
                Ok(connection)
            }
        };
        open().map_err(|error| store_error(place, error))
    }
}

const READ_ONLY: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_URI);

/// SQLite URI of a file with a parameter.
fn sqlite_uri(place: &Path, parameter: &str) -> PathBuf {
    let mut address = b"file:".to_vec();
    for byte in place.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => address.extend(format!("%{byte:02x}").bytes()),
            byte => address.push(*byte),
        }
    }
    address.extend([b"?", parameter.as_bytes()].concat());
    OsString::from_vec(address).into()
}
