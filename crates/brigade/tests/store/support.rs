//! Helpers for the store tests.

use std::path::{Path, PathBuf};

use brigade::store::SqliteStore;
pub(crate) use brigade::store::testing::fixtures::*;

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
