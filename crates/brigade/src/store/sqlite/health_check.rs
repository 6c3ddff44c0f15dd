//! A look at the file of a store, for whoever wants to know whether all is well with it.

use std::path::Path;

use super::access::ReadAccess;
use super::{SqliteStore, schema};
use crate::store::StoreError;

/// How many places of damage are named.
const MAX_NAMED_PROBLEMS: u32 = 3;

/// Size of the largest file whose tables are compared with their indexes, which takes several times as long.
const MAX_COMPARED_BYTES: u64 = 128 << 20;

/// What a look at the file of a store showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// The number of its format; none where nothing was written yet.
    pub format: Option<u32>,
    /// Its size, without what is still to be moved into it.
    pub bytes: u64,
    /// Whether it is whole.
    pub integrity: Integrity,
}

/// Whether a file is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// It is, as far as one can tell without comparing every entry.
    Intact,
    /// It is not, at these places.
    Damaged(Vec<String>),
    /// It was too large to be looked through.
    Unknown,
}

impl SqliteStore {
    /// Looks at a store that exists, and through it where it has at most so many bytes. Nothing is written, and nobody who
    /// uses the store has to wait.
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
