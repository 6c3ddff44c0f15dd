//! Changing a file: all of it or nothing of it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use brigade_core::Hash;
use brigade_core::permission::Kind;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::beneath::{self, FOLDER, LOOK, Links, READ};
use super::workspace::{Given, require_regular};
use super::{FileError, Files, MAX_EDIT_BYTES, read_bounded};

/// Folders whose content makes other programs run something, or this one permit something.
const PROTECTED: [&str; 2] = [".git", ".brigade"];

/// A file that is to be changed or made.
#[derive(Debug)]
pub(in crate::tool) struct Target {
    /// Where it is, relative to the workspace, without links.
    pub(in crate::tool) path: String,
    /// What it holds; none where it does not exist.
    pub(in crate::tool) content: Option<Vec<u8>>,
}

impl Files {
    /// Finds the file that a change of `path` would change, and what it holds. A link is followed where it stays
    /// inside, so that the change reaches the file and leaves the link alone.
    pub(in crate::tool) fn target(&self, path: &str) -> Result<Target, FileError> {
        let given = self.workspace.given(path)?;
        let real = self.place(&given)?;
        let Some(path) = real.to_str() else {
            return Err(FileError::BadPath { path: given.shown, reason: "its real name is not valid UTF-8" });
        };
        let content = self.found(path)?.map(|found| found.content);
        Ok(Target { path: path.to_owned(), content })
    }

    /// Gives a file a new content, if it still holds what it is expected to hold; none stands for a file that does
    /// not exist. Missing folders are made. Whoever reads at the same time, or after a crash, finds the whole old
    /// content or the whole new one.
    pub fn replace(&self, path: &str, content: &[u8], expected: Option<Hash>) -> Result<(), FileError> {
        let given = self.workspace.given(path)?;
        let fail = |errno: Errno| FileError::from_system(&given.shown, errno);
        let real = self.place(&given)?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(FileError::NotAFile { path: given.shown, what: "a folder" });
        };
        if expected.is_some() && self.workspace.open_real(&real, LOOK).is_err() {
            return Err(FileError::Changed { path: given.shown });
        }
        let folder = self.make_folders(parent).map_err(fail)?;
        let before = status(&folder, name).map_err(fail)?;
        if let Some(before) = &before {
            require_regular(&given.shown, before)?;
        }
        let draft = Draft::write(&folder, content, before.as_ref())
            .map_err(|cause| FileError::from_system(&given.shown, cause))?;
        let _writing = self.workspace.writing();
        // As late as possible: what is checked here can change only in the moment before the renaming.
        if self.current(&folder, name, &given)? != expected {
            return Err(FileError::Changed { path: given.shown });
        }
        draft.publish(name, expected).map_err(|errno| match errno {
            Errno::EXIST => FileError::Changed { path: given.shown.clone() },
            errno => fail(errno),
        })?;
        rustix::fs::fsync(&folder).map_err(fail)
    }

    /// Removes a file, if it still has the content that it is expected to have. Its folders stay.
    pub fn remove(&self, path: &str, expected: Hash) -> Result<(), FileError> {
        let given = self.workspace.given(path)?;
        let fail = |errno: Errno| FileError::from_system(&given.shown, errno);
        let real = self.place(&given)?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(FileError::NotAFile { path: given.shown, what: "a folder" });
        };
        let folder = self
            .workspace
            .open_real(parent, FOLDER)
            .map_err(|cause| FileError::from_system(&given.shown, cause))?;
        let _writing = self.workspace.writing();
        if self.current(&folder, name, &given)? != Some(expected) {
            return Err(FileError::Changed { path: given.shown });
        }
        rustix::fs::unlinkat(&folder, name, AtFlags::empty()).map_err(fail)?;
        rustix::fs::fsync(&folder).map_err(fail)
    }

    /// Where a file to be written is or will be, judged by its name and by its place.
    fn place(&self, given: &Given) -> Result<PathBuf, FileError> {
        require_unprotected(given, Path::new(&given.lexical))?;
        self.admit_name(given, Kind::Edit)?;
        let real = match self.workspace.resolve(given) {
            Ok(found) => {
                require_regular(&given.shown, &found.stat)?;
                found.real
            }
            Err(FileError::NotFound { .. }) => self.future_place(given)?,
            Err(error) => return Err(error),
        };
        require_unprotected(given, &real)?;
        self.admit_place(given, &real, Kind::Edit)?;
        Ok(real)
    }

    /// Where a file that does not exist will be: its last existing folder, and the names that are missing below.
    fn future_place(&self, given: &Given) -> Result<PathBuf, FileError> {
        if given.path.as_os_str().as_bytes().ends_with(b"/.") {
            return Err(FileError::BadPath { path: given.shown.clone(), reason: "its end names a folder" });
        }
        let mut missing: Vec<OsString> = Vec::new();
        let mut components: Vec<Component<'_>> = given.path.components().collect();
        loop {
            match components.pop() {
                Some(Component::Normal(name)) => missing.push(name.to_owned()),
                Some(Component::CurDir) if missing.is_empty() && components.is_empty() => {}
                Some(_) | None => return Err(FileError::NotFound { path: given.shown.clone() }),
            }
            let folder: PathBuf = components.iter().collect();
            let path = if components.is_empty() { PathBuf::from(".") } else { folder };
            let existing =
                Given { path, lexical: String::new(), shown: given.shown.clone(), asked: given.asked };
            let found = match self.workspace.resolve(&existing) {
                Ok(found) => found,
                Err(FileError::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            let first = missing.last().map(|name| found.real.join(name)).unwrap_or_default();
            // What exists under the first missing name can only be a link that leads nowhere. To follow it would be
            // to make a file at a place that nobody named.
            if let Ok(link) = self.look_at(&first) {
                require_regular(&given.shown, &link)?;
            }
            missing.reverse();
            return Ok(missing.iter().fold(found.real, |path, name| path.join(name)));
        }
    }

    fn look_at(&self, real: &Path) -> std::io::Result<Stat> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(Errno::NOENT.into());
        };
        let folder = self.workspace.open_real(parent, LOOK | OFlags::DIRECTORY)?;
        Ok(rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens a folder of the workspace and makes what is missing of it. Each name is opened beneath the folder before
    /// it, so that no link can lead elsewhere in the meantime.
    fn make_folders(&self, real: &Path) -> Result<OwnedFd, Errno> {
        let open = |folder: &dyn AsFd, name: &Path| {
            beneath::open(folder.as_fd(), name, FOLDER, Links::Refuse)
                .map_err(|cause| Errno::from_io_error(&cause).unwrap_or(Errno::IO))
        };
        let mut folder = open(&self.workspace.folder(), Path::new("."))?;
        for name in real.iter().map(Path::new) {
            folder = match open(&folder, name) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno),
                    }
                    open(&folder, name)?
                }
                other => other?,
            };
        }
        Ok(folder)
    }

    fn current(&self, folder: &OwnedFd, name: &OsStr, given: &Given) -> Result<Option<Hash>, FileError> {
        let fail = |cause| FileError::from_system(&given.shown, cause);
        let file = match beneath::open(folder, Path::new(name), READ, Links::Refuse) {
            Ok(opened) => File::from(opened),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(fail(cause)),
        };
        let content = read_bounded(file, MAX_EDIT_BYTES).map_err(fail)?;
        let too_large = || FileError::TooLarge { path: given.shown.clone(), cap: MAX_EDIT_BYTES };
        content.map(|content| Some(Hash::of(&content))).ok_or_else(too_large)
    }
}

/// Refuses a path with a protected name in it, in any case: some file systems do not tell `.GIT` from `.git`.
fn require_unprotected(given: &Given, path: &Path) -> Result<(), FileError> {
    let names = || path.iter().map(|name| name.to_string_lossy().to_lowercase());
    match PROTECTED.into_iter().find(|folder| names().any(|name| name == *folder)) {
        Some(folder) => Err(FileError::Protected { path: given.shown.clone(), folder }),
        None => Ok(()),
    }
}

fn status(folder: &OwnedFd, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A new content beside the file that it is to replace. Unless it is published it goes away again.
struct Draft<'a> {
    folder: &'a OwnedFd,
    name: String,
    published: bool,
}

impl<'a> Draft<'a> {
    fn write(folder: &'a OwnedFd, content: &[u8], before: Option<&Stat>) -> std::io::Result<Draft<'a>> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|cause| std::io::Error::other(cause.to_string()))?;
        let name = format!(".brigade-{:016x}.tmp", u64::from_le_bytes(random));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What a private file holds must not be readable for a moment either.
        let mode = Mode::from_raw_mode(if before.is_some() { 0o600 } else { 0o644 });
        let mut file = File::from(rustix::fs::openat(folder, &name, flags, mode)?);
        let draft = Draft { folder, name, published: false };
        file.write_all(content)?;
        if let Some(before) = before {
            keep_owner(&file, before);
            rustix::fs::fchmod(&file, Mode::from_raw_mode(before.st_mode & 0o777))?;
        }
        file.sync_all()?;
        Ok(draft)
    }

    /// Puts the content in its place. A file that must not exist is not overwritten, even if it came this very moment.
    fn publish(mut self, name: &OsStr, expected: Option<Hash>) -> Result<(), Errno> {
        let (folder, draft) = (self.folder, self.name.as_str());
        let outcome = match expected {
            Some(_) => rustix::fs::renameat(folder, draft, folder, name),
            None => match rustix::fs::renameat_with(folder, draft, folder, name, RenameFlags::NOREPLACE) {
                // Some file systems do not know the flag; there the check a moment ago has to do.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    rustix::fs::renameat(folder, draft, folder, name)
                }
                other => other,
            },
        };
        self.published = outcome.is_ok();
        outcome
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.published {
            // If this fails there is nothing more to do: the name says what the file is.
            let _ = rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// A file of somebody else stays theirs where the system lets it; otherwise it becomes ours, as with any editor.
fn keep_owner(file: &File, before: &Stat) {
    let owner = rustix::fs::Uid::from_raw(before.st_uid);
    let group = rustix::fs::Gid::from_raw(before.st_gid);
    let _ = rustix::fs::fchown(file, Some(owner), Some(group));
}
