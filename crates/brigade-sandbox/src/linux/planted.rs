//! Files that a command created although the sandbox protects them, and links in git directories that lead out of them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags, renameat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

use super::git_links::GitLinks;
use super::placeholders::first_missing;
use crate::Sandbox;

/// Protected paths and links that are looked for after a command.
pub(crate) struct Planted {
    missing: Vec<MissingPath>,
    links: GitLinks,
}

impl Planted {
    /// Records which of them exist before a command. `protected` are the paths that must not appear.
    pub(crate) fn before<'a>(sandbox: &Sandbox, protected: impl Iterator<Item = &'a OsString>) -> Planted {
        let missing =
            protected.filter_map(|path| MissingPath::open(first_missing(sandbox, Path::new(path), 0)?));
        Planted { missing: missing.collect(), links: GitLinks::before(sandbox) }
    }

    /// Forgets a path that is protected in another way.
    pub(crate) fn forget(&mut self, is_covered: impl Fn(&Path) -> bool) {
        self.missing.retain(|missing| !is_covered(&missing.path));
    }

    /// Renames protected paths that appeared and deletes links that appeared. Returns their paths.
    pub(crate) fn remove(self) -> Vec<OsString> {
        let mut removed: Vec<OsString> = self.missing.into_iter().filter_map(MissingPath::remove).collect();
        removed.dedup();
        removed.extend(self.links.remove_new());
        removed
    }
}

/// Protected path that did not exist when a command started.
struct MissingPath {
    path: PathBuf,
    /// Its directory, opened before the command could replace it.
    directory: File,
}

impl MissingPath {
    fn open(path: PathBuf) -> Option<MissingPath> {
        let directory = File::open(path.parent()?).ok()?;
        Some(MissingPath { path, directory })
    }

    /// Renames the file that the command created there, without following links. It is not deleted, because it may be the user's.
    /// Returns its path.
    fn remove(self) -> Option<OsString> {
        let name = self.path.file_name()?;
        statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let renamed = with_write_permission(&self.directory, || self.rename(name));
        let mut path = self.path.clone().into_os_string();
        if renamed.is_err() {
            path.push(" (this failed; delete it)");
        }
        Some(path)
    }

    fn rename(&self, name: &OsStr) -> io::Result<()> {
        /// Number of names that end with a number. The command could have taken all of them.
        const NUMBERED: usize = 20;
        const ATTEMPTS: usize = 40;
        for attempt in 1..=ATTEMPTS {
            let mut new_name = name.to_owned();
            new_name.push(match attempt {
                1 => ".removed".to_owned(),
                ..=NUMBERED => format!(".removed-{attempt}"),
                _ => format!(".removed-{:016x}", RandomState::new().hash_one(attempt)),
            });
            match renameat_with(&self.directory, name, &self.directory, &new_name, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                // Not every file system can refuse to replace a file.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    if statat(&self.directory, &new_name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                        return Ok(renameat(&self.directory, name, &self.directory, &new_name)?);
                    }
                }
                renamed => return Ok(renamed?),
            }
        }
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }
}

/// Changes a directory, also if a command took the permission of the user.
pub(super) fn with_write_permission(directory: &File, change: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match change() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let before = directory.metadata()?.permissions();
            directory.set_permissions(std::fs::Permissions::from_mode(before.mode() | 0o700))?;
            let changed = change();
            // The command chose them, so it does not matter if they are lost.
            let _ = directory.set_permissions(before);
            changed
        }
        changed => changed,
    }
}
