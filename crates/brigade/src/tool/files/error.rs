//! Why a file could not be reached, in words that help a model to go on.

use std::io;

use brigade_core::ToolOutput;
use rustix::io::Errno;

/// Why a file of the workspace was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The text cannot be the name of a file.
    #[error("`{path}` is not a usable path: {reason}")]
    BadPath {
        /// The path, shortened and without control characters.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The path, or a symbolic link on it, leads out of the workspace.
    #[error(
        "`{path}` leads out of the workspace, and nothing outside may be touched; give a path relative to the \
         workspace"
    )]
    Outside {
        /// The path as given.
        path: String,
    },
    /// There is no such file.
    #[error("`{path}` does not exist; list_dir and glob show what there is")]
    NotFound {
        /// The path as given.
        path: String,
    },
    /// The folders that this agent may touch do not include it.
    #[error("`{path}` is not in a folder that this agent may touch; it may touch: {folders}")]
    FolderNotAllowed {
        /// The path as given.
        path: String,
        /// The folders there are.
        folders: String,
    },
    /// A permission rule forbids it.
    #[error("`{path}` may not be touched: {reason}; go on without it")]
    Forbidden {
        /// The path as given.
        path: String,
        /// Which rule, in words.
        reason: String,
    },
    /// A rule wants a question to be asked about the file's real name, and the call named it differently.
    #[error("`{path}` is really `{real}`, and the rule `{rule}` asks about that; call again with `{real}`")]
    RuleAsksForRealPath {
        /// The path as given.
        path: String,
        /// Where it leads.
        real: String,
        /// The rule that asks.
        rule: String,
    },
    /// The mode asks about edits, and the call named the file differently.
    #[error("`{path}` is really `{real}`, and edits of that are asked about; call again with `{real}`")]
    ModeAsksForRealPath {
        /// The path as given.
        path: String,
        /// Where it leads.
        real: String,
    },
    /// It is in a folder that only its own program writes.
    #[error("`{path}` is inside a `{folder}` folder, and file tools never write there; leave it as it is")]
    Protected {
        /// The path as given.
        path: String,
        /// The name of the folder.
        folder: &'static str,
    },
    /// It exists, but it is no file that can be read or written.
    #[error("`{path}` is {what}, not a file; name a regular file")]
    NotAFile {
        /// The path as given.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// It exists, but it is no folder.
    #[error("`{path}` is not a folder; name a folder, or read the file with read_file")]
    NotAFolder {
        /// The path as given.
        path: String,
    },
    /// It holds more than is read at once.
    #[error(
        "`{path}` holds more than {cap} bytes; read a part of it: read_file with offset and limit, or grep"
    )]
    TooLarge {
        /// The path as given.
        path: String,
        /// How much is read at most.
        cap: u64,
    },
    /// It is not what it was when the change was planned.
    #[error("`{path}` was changed by someone else in the meantime; read it again and repeat the change")]
    Changed {
        /// The path as given.
        path: String,
    },
    /// It was moved again and again while it was being opened.
    #[error("`{path}` keeps moving while it is being opened; try again")]
    Busy {
        /// The path as given.
        path: String,
    },
    /// The system cannot keep paths inside a folder.
    #[error(
        "this system does not offer openat2, so `{path}` cannot be opened safely; Linux 5.6 or newer is needed, \
         and a container must not block the call"
    )]
    Unsupported {
        /// The path as given.
        path: String,
    },
    /// The system refused for another reason.
    #[error("`{path}` cannot be used: {cause}")]
    System {
        /// The path as given.
        path: String,
        /// What the system answered.
        cause: io::Error,
    },
}

impl FileError {
    /// Puts the answer of the system into words.
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
                reason: "a symbolic link on it goes in a circle or cannot be followed safely",
            },
            Some(Errno::NOTDIR) => {
                FileError::BadPath { path, reason: "a part of it that should be a folder is a file" }
            }
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
