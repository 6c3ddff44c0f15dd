//! Atomic file changes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use brigade_core::Hash;
use brigade_core::permission::ActionKind;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::beneath::{self, DIR_FLAGS, INSPECT_FLAGS, READ_FLAGS, Symlinks};
use super::guard::GuardCheck;
use super::workspace::{RequestedPath, require_regular};
use super::{FileError, Files, MAX_EDIT_BYTES, read_bounded};

/// File to change or create.
#[derive(Debug)]
pub(crate) struct EditTarget {
    /// Real path relative to the workspace, without links.
    pub(crate) path: String,
    /// Current content; `None` if the file does not exist.
    pub(crate) content: Option<Vec<u8>>,
}

impl Files {
    /// Resolves the file that a change of `path` would modify, and reads its content. A link that stays inside is
    /// followed, so that the change modifies the file and keeps the link.
    pub(crate) fn edit_target(&self, path: &str) -> Result<EditTarget, FileError> {
        let requested = self.workspace.parse_path(path)?;
        let real = self.resolve_target(&requested)?;
        let Some(path) = real.to_str() else {
            return Err(FileError::BadPath {
                path: requested.display,
                reason: "its real name is not valid UTF-8",
            });
        };
        let content = self.load_for_edit(path)?.map(|found| found.content);
        Ok(EditTarget { path: path.to_owned(), content })
    }

    /// Replaces the content of a file if the current content matches the expected hash; `None` means that the file
    /// must not exist. Missing folders are created. Concurrent readers, and readers after a crash, see either the
    /// whole old content or the whole new one.
    pub fn replace(&self, path: &str, content: &[u8], expected: Option<Hash>) -> Result<(), FileError> {
        let requested = self.workspace.parse_path(path)?;
        let fail = |errno: Errno| FileError::from_system(&requested.display, errno);
        let real = self.resolve_target(&requested)?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(FileError::NotAFile { path: requested.display, what: "a directory" });
        };
        if expected.is_some() && self.workspace.open_real(&real, INSPECT_FLAGS).is_err() {
            return Err(FileError::Changed { path: requested.display });
        }
        let guard = self.guard.check(&self.workspace);
        let folder = self.make_folders(parent, &guard, &requested)?;
        let before = stat_entry(&folder, name).map_err(fail)?;
        if let Some(before) = &before {
            require_regular(&requested.display, before)?;
            guard.file(&requested.display, before)?;
        }
        let temp = TempFile::write(&folder, content, before.as_ref())
            .map_err(|cause| FileError::from_system(&requested.display, cause))?;
        let _write_lock = self.workspace.lock_writes();
        // Checked as late as possible: the content can change only in the moment before the rename.
        if self.current_hash(&folder, name, &requested)? != expected {
            return Err(FileError::Changed { path: requested.display });
        }
        temp.commit(name, expected).map_err(|errno| match errno {
            Errno::EXIST => FileError::Changed { path: requested.display.clone() },
            errno => fail(errno),
        })?;
        rustix::fs::fsync(&folder).map_err(fail)
    }

    /// Removes a file if its content matches the expected hash. Its folders stay.
    pub fn remove(&self, path: &str, expected: Hash) -> Result<(), FileError> {
        let requested = self.workspace.parse_path(path)?;
        let fail = |errno: Errno| FileError::from_system(&requested.display, errno);
        let real = self.resolve_target(&requested)?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(FileError::NotAFile { path: requested.display, what: "a directory" });
        };
        let guard = self.guard.check(&self.workspace);
        let folder = self
            .open_guarded(parent, DIR_FLAGS, &guard, &requested.display)
            .map_err(|cause| FileError::from_system(&requested.display, cause))??;
        guard.directory(&requested.display, &folder)?;
        if let Some(before) = stat_entry(&folder, name).map_err(fail)? {
            guard.file(&requested.display, &before)?;
        }
        let _write_lock = self.workspace.lock_writes();
        if self.current_hash(&folder, name, &requested)? != Some(expected) {
            return Err(FileError::Changed { path: requested.display });
        }
        rustix::fs::unlinkat(&folder, name, AtFlags::empty()).map_err(fail)?;
        rustix::fs::fsync(&folder).map_err(fail)
    }

    /// Resolves the path of a file to write, and checks both its name and its real path.
    fn resolve_target(&self, requested: &RequestedPath) -> Result<PathBuf, FileError> {
        self.check_requested_path(requested, ActionKind::Edit)?;
        let real = match self.workspace.resolve(requested) {
            Ok(found) => {
                require_regular(&requested.display, &found.stat)?;
                found.real
            }
            Err(FileError::NotFound { .. }) => self.resolve_new_file(requested)?,
            Err(error) => return Err(error),
        };
        self.check_real_path(requested, &real, ActionKind::Edit)?;
        Ok(real)
    }

    /// Returns the real path that a name leads to, relative to the workspace. The file need not exist. None if the name
    /// leads out of the workspace.
    pub fn real_path(&self, path: &str) -> Option<String> {
        let requested = self.workspace.parse_path(path).ok()?;
        let real = match self.workspace.resolve(&requested) {
            Ok(found) => found.real,
            Err(_) => self.resolve_new_file(&requested).ok()?,
        };
        real.to_str().map(str::to_owned)
    }

    /// Resolves the path of a new file: its last existing folder and the missing components below it.
    fn resolve_new_file(&self, requested: &RequestedPath) -> Result<PathBuf, FileError> {
        if requested.path.as_os_str().as_bytes().ends_with(b"/.") {
            return Err(FileError::BadPath {
                path: requested.display.clone(),
                reason: "it names a directory",
            });
        }
        let mut missing: Vec<OsString> = Vec::new();
        let mut components: Vec<Component<'_>> = requested.path.components().collect();
        loop {
            match components.pop() {
                Some(Component::Normal(name)) => missing.push(name.to_owned()),
                Some(Component::CurDir) if missing.is_empty() && components.is_empty() => {}
                Some(_) | None => return Err(FileError::NotFound { path: requested.display.clone() }),
            }
            let folder: PathBuf = components.iter().collect();
            let path = if components.is_empty() { PathBuf::from(".") } else { folder };
            let existing = RequestedPath {
                path,
                lexical: String::new(),
                display: requested.display.clone(),
                checked: requested.checked,
            };
            let found = match self.workspace.resolve(&existing) {
                Ok(found) => found,
                Err(FileError::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            let first = missing.last().map(|name| found.real.join(name)).unwrap_or_default();
            // Anything that exists under the first missing name can only be a dangling link. Following it would
            // create a file at a path that the call does not name.
            if let Ok(link) = self.stat_path(&first) {
                require_regular(&requested.display, &link)?;
            }
            missing.reverse();
            return Ok(missing.iter().fold(found.real, |path, name| path.join(name)));
        }
    }

    fn stat_path(&self, real: &Path) -> std::io::Result<Stat> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(Errno::NOENT.into());
        };
        let folder = self.workspace.open_real(parent, INSPECT_FLAGS | OFlags::DIRECTORY)?;
        Ok(rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens a folder of the workspace and creates the missing parts of it. Each component is opened beneath the
    /// previous one, so that no link can redirect it in the meantime.
    fn make_folders(
        &self,
        real: &Path,
        guard: &GuardCheck<'_>,
        requested: &RequestedPath,
    ) -> Result<OwnedFd, FileError> {
        let fail = |errno: Errno| FileError::from_system(&requested.display, errno);
        let open = |folder: &dyn AsFd, name: &Path| {
            beneath::open(folder.as_fd(), name, DIR_FLAGS, Symlinks::Refuse)
                .map_err(|cause| Errno::from_io_error(&cause).unwrap_or(Errno::IO))
        };
        let mut folder = open(&self.workspace.folder(), Path::new(".")).map_err(fail)?;
        guard.directory(&requested.display, &folder)?;
        for name in real.iter().map(Path::new) {
            folder = match open(&folder, name) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(fail(errno)),
                    }
                    open(&folder, name).map_err(fail)?
                }
                other => other.map_err(fail)?,
            };
            guard.directory(&requested.display, &folder)?;
        }
        Ok(folder)
    }

    fn current_hash(
        &self,
        folder: &OwnedFd,
        name: &OsStr,
        requested: &RequestedPath,
    ) -> Result<Option<Hash>, FileError> {
        let fail = |cause| FileError::from_system(&requested.display, cause);
        let file = match beneath::open(folder, Path::new(name), READ_FLAGS, Symlinks::Refuse) {
            Ok(opened) => File::from(opened),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(fail(cause)),
        };
        let content = read_bounded(file, MAX_EDIT_BYTES).map_err(fail)?;
        let too_large = || FileError::TooLarge { path: requested.display.clone(), cap: MAX_EDIT_BYTES };
        content.map(|content| Some(Hash::of(&content))).ok_or_else(too_large)
    }
}

fn stat_entry(folder: &OwnedFd, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// New content next to the file that it replaces. It is removed unless it is committed.
struct TempFile<'a> {
    folder: &'a OwnedFd,
    name: String,
    published: bool,
}

impl<'a> TempFile<'a> {
    fn write(folder: &'a OwnedFd, content: &[u8], before: Option<&Stat>) -> std::io::Result<TempFile<'a>> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|cause| std::io::Error::other(cause.to_string()))?;
        let name = format!(".brigade-{:016x}.tmp", u64::from_le_bytes(random));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The content of a private file must not be readable by others even for a moment.
        let mode = Mode::from_raw_mode(if before.is_some() { 0o600 } else { 0o644 });
        let mut file = File::from(rustix::fs::openat(folder, &name, flags, mode)?);
        let temp = TempFile { folder, name, published: false };
        file.write_all(content)?;
        if let Some(before) = before {
            keep_owner(&file, before);
            rustix::fs::fchmod(&file, Mode::from_raw_mode(before.st_mode & 0o777))?;
        }
        file.sync_all()?;
        Ok(temp)
    }

    /// Renames the content into place. If the file must not exist, it is not overwritten even if it was created a
    /// moment ago.
    fn commit(mut self, name: &OsStr, expected: Option<Hash>) -> Result<(), Errno> {
        let (folder, temp) = (self.folder, self.name.as_str());
        let outcome = match expected {
            Some(_) => rustix::fs::renameat(folder, temp, folder, name),
            None => match rustix::fs::renameat_with(folder, temp, folder, name, RenameFlags::NOREPLACE) {
                // Some file systems do not support the flag; the preceding check has to suffice there.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    rustix::fs::renameat(folder, temp, folder, name)
                }
                other => other,
            },
        };
        self.published = outcome.is_ok();
        outcome
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if !self.published {
            // If this fails there is nothing more to do: the name shows that the file is temporary.
            let _ = rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Keeps the owner of the file if the system permits it; otherwise the current user becomes the owner, as with any
/// editor.
fn keep_owner(file: &File, before: &Stat) {
    let owner = rustix::fs::Uid::from_raw(before.st_uid);
    let group = rustix::fs::Gid::from_raw(before.st_gid);
    let _ = rustix::fs::fchown(file, Some(owner), Some(group));
}
