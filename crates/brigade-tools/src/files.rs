//! Files of the workspace, restricted to what one agent may access.
//!
//! Two questions are settled here for every tool. *Where does this path lead?* is answered by the kernel, see
//! [`Workspace`]. *May this agent access it?* is answered by the rules and folders of its authority, for the
//! requested name and for the real path: a link `notes -> .env` is as forbidden as `.env`. After the check the file
//! is opened by the checked name, without following links, so that nothing can change in between. The program's own
//! files are recognised by device and inode while they are opened, see [`FileGuard`].
//!
//! Limitation: a second hard link to a file is another name of it, and rules compare names.

mod beneath;
mod blocking;
mod error;
mod guard;
mod lines;
mod list;
mod replace;
mod temporary;
#[cfg(feature = "walk")]
mod walk;
mod workspace;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_core::permission::{
    Action, ActionKind, AskReason, Permissions, ProtectedPaths, Subject, Verdict,
};
use brigade_core::{Extent, Hash, SeenFile};
use rustix::fs::OFlags;
use rustix::io::Errno;

pub(super) use blocking::{StopSignal, blocking};
pub use error::FileError;
pub use guard::FileGuard;
pub(super) use lines::{Lines, Rest};
pub(super) use list::{EntryKind, WalkLimit};
pub(super) use replace::EditTarget;
pub use workspace::{Workspace, escape_controls};

use beneath::{INSPECT_FLAGS, READ_FLAGS, Symlinks};
use guard::GuardCheck;
use workspace::{CheckedPath, RequestedPath, require_regular};

/// Maximum size of a file to edit; its whole content is held in memory.
pub(super) const MAX_EDIT_BYTES: u64 = 16 << 20;

/// Maximum number of attempts to open a file that is moved at the same time.
const OPEN_ATTEMPTS: usize = 16;

/// Files of a workspace under the rules of one agent. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Files {
    workspace: Workspace,
    permissions: Arc<Permissions>,
    paths: Arc<BTreeSet<String>>,
    /// Directory that commands see as `/tmp`.
    temporary: Option<Arc<Path>>,
    guard: Arc<FileGuard>,
    /// Paths that the permission check has seen, relative to the root. Without it, the caller has checked all paths.
    checked: Option<Arc<BTreeSet<String>>>,
}

/// File that is open for reading.
pub(super) struct OpenedFile {
    pub(super) file: File,
    /// Size that the system reports.
    pub(super) size: u64,
    /// Real path relative to the root, without links.
    pub(super) real: PathBuf,
}

/// File with its whole content at the time of reading.
#[derive(Debug)]
pub struct LoadedFile {
    real: PathBuf,
    /// Content of the file.
    pub content: Vec<u8>,
}

impl LoadedFile {
    /// Returns the file as seen by an agent that is shown this extent of it. Returns `None` if the file name is not
    /// UTF-8: such a file cannot be changed, so it does not matter whether the agent has seen it.
    pub fn seen(&self, extent: Extent) -> Option<SeenFile> {
        Some(SeenFile { path: self.real.to_str()?.to_owned(), hash: Hash::of(&self.content), extent })
    }
}

impl Files {
    /// Creates the view of an agent with these rules and folders, each relative to the root. `""` is the whole
    /// workspace; an empty set permits no access.
    pub fn new(workspace: Workspace, permissions: Arc<Permissions>, paths: BTreeSet<String>) -> Files {
        let folder = |path: String| {
            let lexical = beneath::normalize(Path::new(&path));
            // A folder outside of the workspace must match nothing, and certainly not everything.
            lexical.map_or(path, |folder| folder.to_string_lossy().into_owned())
        };
        let paths = Arc::new(paths.into_iter().map(folder).collect());
        Files { workspace, permissions, paths, guard: Arc::default(), checked: None, temporary: None }
    }

    /// Refuses the files that the guard refuses.
    #[must_use]
    pub fn guarded(self, guard: Arc<FileGuard>) -> Files {
        Files { guard, ..self }
    }

    /// Restricts access to protected files to those that a call names. The rules were applied to these paths only.
    #[must_use]
    pub fn for_call<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Files {
        let requested = paths.into_iter().filter_map(|path| self.workspace.parse_path(path).ok());
        let checked = requested.map(|requested| requested.lexical).collect();
        Files { checked: Some(Arc::new(checked)), ..self.clone() }
    }

    /// Protected paths that depend on the configuration and the place of the workspace.
    pub fn protected_paths(&self) -> &ProtectedPaths {
        self.guard.protected_paths()
    }

    /// Returns the workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Reads a whole file of at most `max_bytes`.
    pub fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, FileError> {
        self.load(path, max_bytes).map(|found| found.content)
    }

    /// Reads a whole file of at most `max_bytes`, with its real path.
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

    /// Returns the hash of a file's content; `None` if the file does not exist.
    pub fn hash(&self, path: &str) -> Result<Option<Hash>, FileError> {
        Ok(self.load_for_edit(path)?.map(|found| Hash::of(&found.content)))
    }

    /// Reads the whole content of a file that may be changed; `None` if it does not exist.
    pub fn load_for_edit(&self, path: &str) -> Result<Option<LoadedFile>, FileError> {
        match self.load(path, MAX_EDIT_BYTES) {
            Ok(found) => Ok(Some(found)),
            Err(FileError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file for reading.
    pub(super) fn open(&self, path: &str) -> Result<OpenedFile, FileError> {
        if let Some(opened) = self.open_temporary(path) {
            return opened;
        }
        let requested = self.workspace.parse_path(path)?;
        self.check_requested_path(&requested, ActionKind::Pure)?;
        self.open_requested(&requested, |real| self.check_real_path(&requested, real, ActionKind::Pure))
    }

    /// Opens a regular file beneath the root, if `check` permits its real path.
    fn open_requested(
        &self,
        requested: &RequestedPath,
        check: impl Fn(&Path) -> Result<(), FileError>,
    ) -> Result<OpenedFile, FileError> {
        let guard = self.guard.check(&self.workspace);
        for _ in 0..OPEN_ATTEMPTS {
            let found = self.workspace.resolve(requested)?;
            check(&found.real)?;
            require_regular(&requested.display, &found.stat)?;
            let file = match self.open_guarded(&found.real, READ_FLAGS, &guard, &requested.display) {
                Ok(opened) => File::from(opened?),
                Err(cause) if was_moved(&cause) => continue,
                Err(cause) => return Err(FileError::from_system(&requested.display, cause)),
            };
            let stat = rustix::fs::fstat(&file)
                .map_err(|errno| FileError::from_system(&requested.display, errno))?;
            require_regular(&requested.display, &stat)?;
            guard.file(&requested.display, &stat)?;
            return Ok(OpenedFile { file, size: u64::try_from(stat.st_size).unwrap_or(0), real: found.real });
        }
        Err(FileError::Busy { path: requested.display.clone() })
    }

    /// Opens exactly this path and checks each directory on the way; a link is an error. The outer error is that of
    /// the system.
    fn open_guarded(
        &self,
        real: &Path,
        flags: OFlags,
        guard: &GuardCheck<'_>,
        shown: &str,
    ) -> std::io::Result<Result<OwnedFd, FileError>> {
        if guard.is_empty() {
            return self.workspace.open_real(real, flags).map(Ok);
        }
        let directory_flags = INSPECT_FLAGS | OFlags::DIRECTORY;
        let mut folder = self.workspace.open_real(Path::new(""), directory_flags)?;
        let mut check = guard.directory(shown, &folder);
        for name in real.parent().unwrap_or(Path::new("")) {
            if check.is_err() {
                break;
            }
            folder = beneath::open(&folder, Path::new(name), directory_flags, Symlinks::Refuse)?;
            check = guard.directory(shown, &folder);
        }
        if let Err(error) = check {
            return Ok(Err(error));
        }
        let name = real.file_name().map_or(Path::new("."), Path::new);
        beneath::open(&folder, name, flags, Symlinks::Refuse).map(Ok)
    }

    /// Returns the rules of the agent.
    pub(super) fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    /// Whether a tool that visits many files may show the content of this one: it has no secrets, or a rule names it.
    pub(super) fn may_search(&self, real: &str) -> bool {
        self.permissions.grants_secret(self.protected_paths(), real)
    }

    /// Whether a tool that visits many files may show this one, by its real path.
    fn can_show(&self, real: &str) -> bool {
        self.is_in_allowed_folder(real) && self.permissions.may_read(real)
    }

    /// Refuses a name before any access, so that a forbidden name does not reveal whether the file exists.
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
        // No tool has this name: rules about one tool by name alone were already applied to the call itself.
        let tool = if kind == ActionKind::Pure { "a read" } else { "an edit" };
        let action = Action { tool, kind, subject: Subject::Path(path) };
        match self.permissions.check_in(self.protected_paths(), &[], &action) {
            Verdict::Deny { reason } => Err(FileError::Forbidden { path: requested.display.clone(), reason }),
            // The user approved the name in the call. No approval was requested for another name.
            Verdict::Ask { reason: AskReason::Rule(rule) }
                if requested.checked != CheckedPath::WorkspacePath || path != requested.lexical =>
            {
                let (path, real) = (requested.display.clone(), escape_controls(path));
                Err(FileError::RuleAsksForRealPath { path, real, rule: rule.to_string() })
            }
            // The name in the call was already checked in this mode, by a rule or by the user.
            Verdict::Ask { reason: AskReason::Protected(protected) } if path != requested.lexical => {
                Err(FileError::ProtectedRealPath {
                    path: requested.display.clone(),
                    real: escape_controls(path),
                    reason: protected.to_string(),
                })
            }
            Verdict::Ask { reason: AskReason::Protected(protected) }
                if self.checked.as_ref().is_some_and(|checked| !checked.contains(path)) =>
            {
                let (path, reason) = (requested.display.clone(), protected.to_string());
                Err(FileError::ProtectedUndeclared { path, reason })
            }
            Verdict::Ask { reason: AskReason::Mode } if path != requested.lexical => {
                Err(FileError::ModeAsksForRealPath {
                    path: requested.display.clone(),
                    real: escape_controls(path),
                })
            }
            Verdict::Ask { .. } | Verdict::Allow => Ok(()),
        }
    }

    fn folder_error(&self, requested: &RequestedPath) -> FileError {
        let folders: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        let folders = if folders.is_empty() { "none".to_owned() } else { folders.join(", ") };
        FileError::FolderNotAllowed { path: requested.display.clone(), folders }
    }

    /// Whether a path is in a permitted folder.
    fn is_in_allowed_folder(&self, real: &str) -> bool {
        let within = |folder: &str| match real.strip_prefix(folder) {
            Some(rest) => folder.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        self.paths.iter().any(|folder| within(folder))
    }

    /// Whether a folder is a parent of a permitted one.
    fn leads_to_allowed_folder(&self, real: &str) -> bool {
        let below = |folder: &str| folder.strip_prefix(real).is_some_and(|rest| rest.starts_with('/'));
        self.paths.iter().any(|folder| real.is_empty() || below(folder))
    }
}

/// Whether a failure to open means that the file was moved a moment ago.
fn was_moved(cause: &std::io::Error) -> bool {
    matches!(
        Errno::from_io_error(cause),
        Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::XDEV | Errno::AGAIN)
    )
}

/// Reads to the end, or returns `None` if there are more than `max_bytes`. The reported size is not trusted: a file
/// may grow, and files in `/proc` report a size of zero.
fn read_bounded(file: File, max_bytes: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut content)?;
    let fits = u64::try_from(content.len()).is_ok_and(|length| length <= max_bytes);
    Ok(fits.then_some(content))
}
