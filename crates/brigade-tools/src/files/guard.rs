//! Files that no agent may access, and files that are protected because of the configuration.

use std::os::fd::OwnedFd;
use std::path::Path;

use brigade_base::private_files::{FileId, PrivateFiles, PrivateIds};
use brigade_base::sandbox::SandboxSettings;
use brigade_core::permission::ProtectedPaths;
use rustix::fs::Stat;

use super::FileError;
use super::workspace::Workspace;

/// Protection of files that does not depend on the rules of an agent. The default protects nothing but by name.
#[derive(Debug, Default)]
pub struct FileGuard {
    protected: ProtectedPaths,
    private: PrivateFiles,
}

impl FileGuard {
    /// Creates the guard of a workspace.
    pub fn new(workspace: &Workspace, settings: &SandboxSettings) -> FileGuard {
        let root = workspace.root();
        let below = |path: &Path| {
            let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
            Some(real.strip_prefix(root).ok()?.to_string_lossy().into_owned())
        };
        let home = settings.home.as_deref().and_then(below);
        let configured = settings.protected.iter().filter_map(|path| below(path));
        // If the configuration names the workspace itself, edits in it are no exception.
        let configured = configured.filter(|path| !path.is_empty()).collect();
        let private = PrivateFiles::new(settings.private.clone());
        FileGuard { protected: ProtectedPaths { home, configured }, private }
    }

    /// Protected paths that depend on the configuration and the place of the workspace.
    pub fn protected_paths(&self) -> &ProtectedPaths {
        &self.protected
    }

    /// Starts the check of one access.
    pub(super) fn check<'a>(&'a self, workspace: &Workspace) -> GuardCheck<'a> {
        let ids = if self.private.is_empty() { PrivateIds::default() } else { self.private.near() };
        let is_inside = ids.contains(workspace.root());
        GuardCheck { private: &self.private, ids, is_inside }
    }
}

/// Check of the files of one access.
pub(super) struct GuardCheck<'a> {
    private: &'a PrivateFiles,
    ids: PrivateIds,
    /// Whether the whole workspace is private.
    is_inside: bool,
}

impl GuardCheck<'_> {
    /// Whether nothing is private.
    pub(super) fn is_empty(&self) -> bool {
        self.private.is_empty()
    }

    /// Refuses a private directory.
    pub(super) fn directory(&self, shown: &str, opened: &OwnedFd) -> Result<(), FileError> {
        if self.is_empty() {
            return Ok(());
        }
        let stat = rustix::fs::fstat(opened).map_err(|errno| FileError::from_system(shown, errno))?;
        match self.is_inside || self.ids.has_directory(id(&stat)) {
            true => Err(FileError::Private { path: shown.to_owned() }),
            false => Ok(()),
        }
    }

    /// Refuses a private file. One with several names is compared with all private files.
    pub(super) fn file(&self, shown: &str, stat: &Stat) -> Result<(), FileError> {
        let is_private = || {
            if self.is_inside || self.ids.has_file(id(stat)) {
                return true;
            }
            if stat.st_nlink < 2 || self.ids.is_complete() {
                return false;
            }
            let all = self.private.all();
            !all.is_complete() || all.has_file(id(stat))
        };
        match !self.is_empty() && is_private() {
            true => Err(FileError::Private { path: shown.to_owned() }),
            false => Ok(()),
        }
    }
}

fn id(stat: &Stat) -> FileId {
    FileId { device: stat.st_dev.into(), inode: stat.st_ino.into() }
}
