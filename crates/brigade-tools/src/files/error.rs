//! File errors, with texts that help a model to recover.

use std::io;

use brigade_core::ToolOutput;
use rustix::io::Errno;

/// Reason why a file of the workspace was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The text is not a valid file name.
    #[error("`{path}` is not a valid path: {reason}")]
    BadPath {
        /// Path, shortened and without control characters.
        path: String,
        /// Description of the problem.
        reason: &'static str,
    },
    /// The path, or a symbolic link on it, leads out of the workspace.
    #[error(
        "`{path}` is outside the workspace, and files there cannot be accessed. Use a path relative to the workspace."
    )]
    Outside {
        /// Path as given.
        path: String,
    },
    /// The file does not exist.
    #[error("`{path}` does not exist. Find existing files with `list_dir` or `glob`.")]
    NotFound {
        /// Path as given.
        path: String,
    },
    /// The file is outside of the folders that this agent may access.
    #[error("`{path}` is not in a directory that this agent may access. Allowed: {folders}")]
    FolderNotAllowed {
        /// Path as given.
        path: String,
        /// Permitted folders.
        folders: String,
    },
    /// A permission rule forbids the access.
    #[error("access to `{path}` is denied: {reason}. Continue without it.")]
    Forbidden {
        /// Path as given.
        path: String,
        /// Description of the rule.
        reason: String,
    },
    /// A rule requires approval for the file's real name, and the call used another name.
    #[error(
        "`{path}` resolves to `{real}`, for which the rule `{rule}` requires approval. Call again with `{real}`."
    )]
    RuleAsksForRealPath {
        /// Path as given.
        path: String,
        /// Real path.
        real: String,
        /// Rule that requires approval.
        rule: String,
    },
    /// The mode requires approval for edits, and the call used another name.
    #[error("`{path}` resolves to `{real}`, and editing it requires approval. Call again with `{real}`.")]
    ModeAsksForRealPath {
        /// Path as given.
        path: String,
        /// Real path.
        real: String,
    },
    /// The real file is protected in every mode, and the call used another name.
    #[error("`{path}` resolves to `{real}`: {reason}. Call again with `{real}` to request approval.")]
    ProtectedRealPath {
        /// Path as given.
        path: String,
        /// Real path.
        real: String,
        /// Description of the protection.
        reason: String,
    },
    /// The file is protected in every mode, and the call does not name it as the file that it accesses.
    #[error(
        "`{path}` is protected: {reason}. This tool cannot request approval for it. Use a file tool instead."
    )]
    ProtectedUndeclared {
        /// Path as given.
        path: String,
        /// Description of the protection.
        reason: String,
    },
    /// The file belongs to the program itself.
    #[error(
        "`{path}` belongs to Brigade's own files, such as its configuration, sessions and logins. No agent may access \
         them. Continue without it."
    )]
    Private {
        /// Path as given.
        path: String,
    },
    /// The path exists but is not a regular file.
    #[error("`{path}` is {what}, not a file. Use a regular file.")]
    NotAFile {
        /// Path as given.
        path: String,
        /// Description of the file type.
        what: &'static str,
    },
    /// The path exists but is not a folder.
    #[error("`{path}` is not a directory. Use a directory, or read the file with `read_file`.")]
    NotAFolder {
        /// Path as given.
        path: String,
    },
    /// The file is larger than the limit for one read.
    #[error(
        "`{path}` is larger than {cap} bytes, the limit for this call. Search it with `grep`, or read a part near its start with `offset` and `limit` of `read_file`."
    )]
    TooLarge {
        /// Path as given.
        path: String,
        /// Maximum number of bytes.
        cap: u64,
    },
    /// The file has changed since the edit was planned.
    #[error("`{path}` has changed in the meantime. Read it again and repeat the change.")]
    Changed {
        /// Path as given.
        path: String,
    },
    /// The file was moved repeatedly while it was being opened.
    #[error("`{path}` was moved while it was being opened. Try again.")]
    Busy {
        /// Path as given.
        path: String,
    },
    /// The system cannot confine paths to a folder.
    #[error(
        "cannot open `{path}` safely: the system call `openat2` is not available. It needs Linux 5.6 or newer, and a \
         container must not block it."
    )]
    Unsupported {
        /// Path as given.
        path: String,
    },
    /// The system reported another error.
    #[error("cannot access `{path}`: {cause}")]
    System {
        /// Path as given.
        path: String,
        /// Error of the system.
        cause: io::Error,
    },
}

impl FileError {
    /// Converts a system error.
    pub(super) fn from_system(path: &str, error: impl Into<io::Error>) -> FileError {
        let cause = error.into();
        let path = path.to_owned();
        match Errno::from_io_error(&cause) {
            Some(Errno::NOENT) => FileError::NotFound { path },
            Some(Errno::XDEV) => FileError::Outside { path },
            Some(Errno::AGAIN) => FileError::Busy { path },
            Some(Errno::NOSYS) => FileError::Unsupported { path },
            Some(Errno::LOOP) => FileError::BadPath {
                path,
                reason: "a symbolic link in it is circular or cannot be followed safely",
            },
            Some(Errno::NOTDIR) => FileError::BadPath { path, reason: "a parent directory in it is a file" },
            Some(Errno::NAMETOOLONG) => FileError::BadPath { path, reason: "a name in it is too long" },
            _ => FileError::System { path, cause },
        }
    }
}

impl From<FileError> for ToolOutput {
    fn from(error: FileError) -> ToolOutput {
        ToolOutput::error(error.to_string())
    }
}
