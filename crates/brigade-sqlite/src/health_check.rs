//! Health check of a store file.

use std::path::Path;

use super::access::ReadAccess;
use super::{SqliteStore, schema};
use brigade_base::store::StoreError;

/// Maximum number of reported problems.
const MAX_NAMED_PROBLEMS: u32 = 3;

/// Maximum size of a file whose tables are compared with their indexes, which takes several times as long.
const MAX_COMPARED_BYTES: u64 = 128 << 20;

/// Result of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// Format version, or none if nothing was written yet.
    pub format: Option<u32>,
    /// Size of the file, without the write-ahead log.
    pub bytes: u64,
    /// Integrity of the file.
    pub integrity: Integrity,
}

/// Integrity of a store file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// No damage was found.
    Intact,
    /// The file is damaged at these places.
    Damaged(Vec<String>),
    /// The file was too large to check.
    Unknown,
}

impl SqliteStore {
    /// Checks an existing store, including its content if the file has at most `max_bytes`. Nothing is written,
    /// and other users of the store are not blocked.
    pub fn check_health(path: &Path, max_bytes: u64) -> Result<HealthCheck, StoreError> {
        let place = schema::absolute(path);
        let bytes = std::fs::metadata(&place).map_err(|error| schema::io_error(&place, &error))?.len();
        let (access, format) = ReadAccess::find(&place)?;
        let connection = access.connect(&place)?;
        let integrity =
            if bytes > max_bytes { Integrity::Unknown } else { check_integrity(&place, bytes, &connection)? };
        Ok(HealthCheck { format, bytes, integrity })
    }
}

fn check_integrity(
    place: &Path,
    bytes: u64,
    connection: &rusqlite::Connection,
) -> Result<Integrity, StoreError> {
    // The quick check does not compare tables with their indexes.
    let check = if bytes > MAX_COMPARED_BYTES { "quick_check" } else { "integrity_check" };
    let read = || {
        let mut statement = connection.prepare(&format!("PRAGMA {check}({MAX_NAMED_PROBLEMS})"))?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.collect::<rusqlite::Result<Vec<String>>>()
    };
    let problems = read().map_err(|error| schema::store_error(place, error))?;
    match problems.as_slice() {
        [word] if word == "ok" => Ok(Integrity::Intact),
        _ => Ok(Integrity::Damaged(problems)),
    }
}
