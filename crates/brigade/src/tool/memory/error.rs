//! Why nothing could be remembered or read, in words that help to go on.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

/// Why the memory could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The note is not one that can be stored.
    #[error("This cannot be remembered: {0}")]
    InvalidEntry(String),
    /// The file cannot be written.
    #[error("the memory {path} cannot be written ({cause}); make it and its folder writable")]
    ReadOnly {
        /// The file.
        path: String,
        /// What the system answered.
        cause: String,
    },
    /// There is no more room for it.
    #[error("the memory {path} is full, or the disk is; make room and try again")]
    Full {
        /// The file.
        path: String,
    },
    /// Another process kept it locked for too long.
    #[error("the memory {path} is locked by another program; try again")]
    Busy {
        /// The file.
        path: String,
    },
    /// It was written by a later version.
    #[error(
        "the memory {path} has format {found}, and this version knows formats up to {known}; use a newer one"
    )]
    NewerFormat {
        /// The file.
        path: String,
        /// The format that it has.
        found: u32,
        /// The latest format that this version knows.
        known: u32,
    },
    /// It is no memory, or no longer one.
    #[error("the memory {path} is damaged or no memory ({cause}); restore it from a copy, or move it away")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
}

impl MemoryError {
    pub(super) fn damaged(path: &Path, cause: impl Into<String>) -> MemoryError {
        MemoryError::Damaged { path: path.display().to_string(), cause: cause.into() }
    }

    /// What an error of the file system means.
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

    /// What an error of SQLite means.
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
