//! Helpers for the store tests.

use std::path::{Path, PathBuf};

use brigade::store::SqliteStore;
pub(crate) use brigade::store::testing::fixtures::*;
use rusqlite::{Connection, params};

/// A directory in memory, if there is one. The tests check what is written, not the disk.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub(crate) fn open(folder: &tempfile::TempDir) -> SqliteStore {
    SqliteStore::open(&database(folder.path())).unwrap()
}

pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("sessions.db")
}

pub(crate) fn wal(folder: &Path) -> PathBuf {
    folder.join("sessions.db-wal")
}

/// Checksum of earlier versions, which covers the position.
pub(crate) fn sum_with_position(pos: u64, seq: u64, at: u64, v: u64, body: &[u8]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    for number in [seq, pos, at, v, root(1).as_str().len() as u64] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(root(1).as_str().as_bytes()).update(body);
    hasher.finalize().as_bytes()[..8].try_into().unwrap()
}

/// Gives the single-event rows of `root(1)` the checksums of earlier versions.
pub(crate) fn cover_positions(connection: &Connection) {
    let mut statement = connection.prepare("SELECT pos, seq, at, v, body, sum FROM events").unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let number = |index| row.get::<_, u64>(index).unwrap();
        let (pos, seq, at, v, body): (_, _, _, _, Vec<u8>) =
            (number(0), number(1), number(2), number(3), row.get(4).unwrap());
        let sum: [u8; 8] = row.get(5).unwrap();
        assert_eq!(sum, sum_with_position(0, seq, at, v, &body), "new rows do not cover the position");
        let earlier = sum_with_position(pos, seq, at, v, &body);
        connection.execute("UPDATE events SET sum = ? WHERE pos = ?", params![earlier, pos]).unwrap();
    }
}
