//! The files of the workspace, as far as one agent may see them.
//!
//! Two questions are settled here for every tool. *Where does this path lead?* is answered by the kernel, see
//! [`Workspace`]. *May this agent touch it?* is answered by the rules and folders of its authority, for the name that
//! was given and for the place that it leads to: a link `notes -> .env` is as forbidden as `.env`. After the answer
//! the file is opened by the name that was judged, without following links, so that nothing can change in between.
//!
//! What this cannot see: a second hard link to a file is another name of it, and rules compare names.

mod beneath;
mod blocking;
mod error;
mod lines;
mod replace;
mod walk;
mod workspace;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_core::permission::{Action, ActionKind, Permissions, Subject, Verdict};
use brigade_core::{Extent, Hash, SeenFile};
use rustix::io::Errno;

pub(super) use blocking::blocking;
pub use error::FileError;
pub(super) use lines::{Lines, Rest};
pub(super) use replace::EditTarget;
pub(super) use walk::{EntryKind, StopSignal, WalkLimit};
pub use workspace::Workspace;
pub(crate) use workspace::escape_controls;

use beneath::READ_FLAGS;
use workspace::{CheckedPath, RequestedPath, require_regular};

/// The largest file that is changed: the whole of it is held in memory.
pub(super) const MAX_EDIT_BYTES: u64 = 16 << 20;

/// How often a file that moves away while it is being opened is looked for again.
const OPEN_ATTEMPTS: usize = 16;

/// The files of a workspace under the rules of one agent. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Files {
    workspace: Workspace,
    permissions: Arc<Permissions>,
    paths: Arc<BTreeSet<String>>,
}

/// A file that is open for reading.
pub(super) struct OpenedFile {
    pub(super) file: File,
    /// How large it says that it is.
    pub(super) size: u64,
    /// Where it is, relative to the root, without links.
    pub(super) real: PathBuf,
}

/// A file with all that it held when it was read.
#[derive(Debug)]
pub struct LoadedFile {
    real: PathBuf,
    /// What it held.
    pub content: Vec<u8>,
}

impl LoadedFile {
    /// The file as seen by an agent that is shown this much of it. A file whose name is not UTF-8 cannot be changed,
    /// and whether it was seen does not matter.
    pub fn seen(&self, extent: Extent) -> Option<SeenFile> {
        Some(SeenFile { path: self.real.to_str()?.to_owned(), hash: Hash::of(&self.content), extent })
    }
}

impl Files {
    /// The view of an agent with these rules that may touch these folders, each relative to the root; `""` is all of
    /// the workspace, and no folder at all is nothing of it.
    pub fn new(workspace: Workspace, permissions: Arc<Permissions>, paths: BTreeSet<String>) -> Files {
        let folder = |path: String| {
            let lexical = beneath::normalize(Path::new(&path));
            // A folder outside of the workspace admits nothing, least of all everything.
            lexical.map_or(path, |folder| folder.to_string_lossy().into_owned())
        };
        Files { workspace, permissions, paths: Arc::new(paths.into_iter().map(folder).collect()) }
    }

    /// The workspace itself.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Reads a whole file of at most `max_bytes`.
    pub fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, FileError> {
        self.load(path, max_bytes).map(|found| found.content)
    }

    /// Reads a whole file of at most `max_bytes`, and says which file that is.
    pub fn load(&self, path: &str, max_bytes: u64) -> Result<LoadedFile, FileError> {
        let OpenedFile { file, size, real } = self.open(path)?;
        let too_large = || FileError::TooLarge { path: escape_controls(path), cap: max_bytes };
        if size > max_bytes {
            return Err(too_large());
        }
        let content = read_bounded(file, max_bytes)
            .map_err(|cause| FileError::from_system(path, cause))?
            .ok_or_else(too_large)?;
        Ok(LoadedFile { real, content })
    }

    /// The hash of what a file holds; none where it does not exist.
    pub fn hash(&self, path: &str) -> Result<Option<Hash>, FileError> {
        Ok(self.load_for_edit(path)?.map(|found| Hash::of(&found.content)))
    }

    /// A file that may be changed, with all that it holds; none if it does not exist.
    pub(crate) fn load_for_edit(&self, path: &str) -> Result<Option<LoadedFile>, FileError> {
        match self.load(path, MAX_EDIT_BYTES) {
            Ok(found) => Ok(Some(found)),
            Err(FileError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file for reading.
    pub(super) fn open(&self, path: &str) -> Result<OpenedFile, FileError> {
        let requested = self.workspace.parse_path(path)?;
        self.check_requested_path(&requested, ActionKind::Pure)?;
        for _ in 0..OPEN_ATTEMPTS {
            let found = self.workspace.resolve(&requested)?;
            self.check_real_path(&requested, &found.real, ActionKind::Pure)?;
            require_regular(&requested.display, &found.stat)?;
            let file = match self.workspace.open_real(&found.real, READ_FLAGS) {
                Ok(opened) => File::from(opened),
                Err(cause) if was_moved(&cause) => continue,
                Err(cause) => return Err(FileError::from_system(&requested.display, cause)),
            };
            let stat = rustix::fs::fstat(&file)
                .map_err(|errno| FileError::from_system(&requested.display, errno))?;
            require_regular(&requested.display, &stat)?;
            return Ok(OpenedFile { file, size: u64::try_from(stat.st_size).unwrap_or(0), real: found.real });
        }
        Err(FileError::Busy { path: requested.display })
    }

    /// The rules of the agent.
    pub(super) fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    /// Whether a tool that visits many files may show this one, by its real place.
    fn can_show(&self, real: &str) -> bool {
        self.is_in_allowed_folder(real) && self.permissions.may_read(real)
    }

    /// Refuses a name before anything is looked at, so that a forbidden one does not even tell whether it exists.
    fn check_requested_path(&self, requested: &RequestedPath, kind: ActionKind) -> Result<(), FileError> {
        self.check_access(requested, &requested.lexical, kind)
    }

    fn check_real_path(
        &self,
        requested: &RequestedPath,
        real: &Path,
        kind: ActionKind,
    ) -> Result<(), FileError> {
        self.check_access(requested, &real.to_string_lossy(), kind)
    }

    fn check_access(&self, requested: &RequestedPath, path: &str, kind: ActionKind) -> Result<(), FileError> {
        if !self.is_in_allowed_folder(path) {
            return Err(self.folder_error(requested));
        }
        // No tool has this name: rules about one tool by name alone have been judged for the call itself.
        let tool = if kind == ActionKind::Pure { "a read" } else { "an edit" };
        match self.permissions.check(&Action { tool, kind, subject: Subject::Path(path) }) {
            Verdict::Deny { reason } => Err(FileError::Forbidden { path: requested.display.clone(), reason }),
            // The person was asked about the name in the call. Under another name nobody was asked.
            Verdict::Ask { rule: Some(rule) }
                if requested.checked != CheckedPath::WorkspacePath || path != requested.lexical =>
            {
                let (path, real) = (requested.display.clone(), escape_controls(path));
                Err(FileError::RuleAsksForRealPath { path, real, rule: rule.to_string() })
            }
            // What the mode asks about was judged by the name in the call as well: by a rule, or by a person.
            Verdict::Ask { rule: None } if path != requested.lexical => Err(FileError::ModeAsksForRealPath {
                path: requested.display.clone(),
                real: escape_controls(path),
            }),
            Verdict::Ask { .. } | Verdict::Allow => Ok(()),
        }
    }

    fn folder_error(&self, requested: &RequestedPath) -> FileError {
        let folders: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        let folders = if folders.is_empty() { "none".to_owned() } else { folders.join(", ") };
        FileError::FolderNotAllowed { path: requested.display.clone(), folders }
    }

    /// Whether a place is in a folder that may be touched.
    fn is_in_allowed_folder(&self, real: &str) -> bool {
        let within = |folder: &str| match real.strip_prefix(folder) {
            Some(rest) => folder.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        self.paths.iter().any(|folder| within(folder))
    }

    /// Whether a folder is on the way to one that may be touched.
    fn leads_to_allowed_folder(&self, real: &str) -> bool {
        let below = |folder: &str| folder.strip_prefix(real).is_some_and(|rest| rest.starts_with('/'));
        self.paths.iter().any(|folder| real.is_empty() || below(folder))
    }
}

/// Whether a failure to open says that the file is no longer where it was a moment ago.
fn was_moved(cause: &std::io::Error) -> bool {
    matches!(
        Errno::from_io_error(cause),
        Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::XDEV | Errno::AGAIN)
    )
}

/// Reads to the end, or answers none when there is more than `max_bytes`. The size that the system reports is not
/// believed: a file may grow, and those of `/proc` claim to be empty.
fn read_bounded(file: File, max_bytes: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut content)?;
    let fits = u64::try_from(content.len()).is_ok_and(|length| length <= max_bytes);
    Ok(fits.then_some(content))
}
