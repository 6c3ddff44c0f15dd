//! Memory errors, with texts that help an agent to recover.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

/// Reason why the memory could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The entry is not valid.
    #[error("cannot store the entry: {0}")]
    InvalidEntry(String),
    /// The file cannot be written.
    #[error("cannot write the memory file {path}: {cause}. Make the file and its directory writable.")]
    ReadOnly {
        /// Path of the file.
        path: String,
        /// Error of the system.
        cause: String,
    },
    /// There is no space left.
    #[error(
        "cannot write the memory file {path}: the file or the disk is full. Free some space and try again."
    )]
    Full {
        /// Path of the file.
        path: String,
    },
    /// Another process kept the file locked for too long.
    #[error("the memory file {path} is locked by another process. Try again.")]
    Busy {
        /// Path of the file.
        path: String,
    },
    /// The file was written by a later version.
    #[error(
        "cannot use the memory file {path}: its format is {found}, and this version supports formats up to {known}. Upgrade Brigade."
    )]
    NewerFormat {
        /// Path of the file.
        path: String,
        /// Format of the file.
        found: u32,
        /// Latest format that this version supports.
        known: u32,
    },
    /// The file is not a memory file, or is damaged.
    #[error("{path} is damaged or not a memory file: {cause}. Restore it from a backup, or move it away.")]
    Damaged {
        /// Path of the file.
        path: String,
        /// Description of the problem.
        cause: String,
    },
}

impl MemoryError {
    pub(super) fn damaged(path: &Path, cause: impl Into<String>) -> MemoryError {
        MemoryError::Damaged { path: path.display().to_string(), cause: cause.into() }
    }

    /// Converts an error of the file system.
    pub(super) fn from_system(path: &Path, error: &io::Error) -> MemoryError {
        let (shown, cause) = (path.display().to_string(), error.to_string());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => MemoryError::Full { path: shown },
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists => MemoryError::ReadOnly { path: shown, cause },
            _ => MemoryError::Damaged { path: shown, cause },
        }
    }

    /// Converts an error of SQLite.
    pub(super) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> MemoryError {
        let (shown, cause) = (path.display().to_string(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => MemoryError::Full { path: shown },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                MemoryError::ReadOnly { path: shown, cause }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => MemoryError::Busy { path: shown },
            _ => MemoryError::Damaged { path: shown, cause },
        }
    }
}
