//! Root folder of all file access.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Stat};

use super::beneath::{self, INSPECT_FLAGS, Symlinks};
use super::error::FileError;

/// Maximum length of a path; the kernel accepts no longer one.
const MAX_PATH_BYTES: usize = 4096;
/// Number of attempts to resolve a path that others replace at the same time.
const RESOLVE_ATTEMPTS: usize = 64;
/// Suffix of the path that the kernel reports for a file that no longer has it.
const REMOVED_MARK: &[u8] = b" (deleted)";

/// A folder and everything in it. Everything opened through it is beneath it: the kernel resolves each path and
/// refuses one that leads out, even if a symbolic link changes in the middle.
#[derive(Debug, Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: OwnedFd,
    root: PathBuf,
    /// Held between the last check of a file and its replacement, so that the later of two edits sees the earlier
    /// one.
    write_lock: std::sync::Mutex<()>,
}

/// Path of the workspace as requested.
pub(super) struct RequestedPath {
    /// Path to open: relative to the root, with `..` and links.
    pub(super) path: PathBuf,
    /// Path without `..`, resolved lexically; rules match this one.
    pub(super) lexical: String,
    /// Name for error messages.
    pub(super) display: String,
    /// Name that the permission check has seen. It does not resolve absolute paths.
    pub(super) checked: CheckedPath,
}

/// Name that the permission check has decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckedPath {
    /// Path relative to the workspace.
    WorkspacePath,
    /// Absolute path, which rules do not recognise.
    AbsolutePath,
}

/// Target of a path.
pub(super) struct Resolved {
    /// Real path relative to the root, without links.
    pub(super) real: PathBuf,
    pub(super) stat: Stat,
}

impl Workspace {
    /// Locks out other writers of this workspace.
    pub(super) fn lock_writes(&self) -> std::sync::MutexGuard<'_, ()> {
        self.inner.write_lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Opens the folder. It is kept open, so that it stays the same folder if its path changes.
    pub fn open(root: &Path) -> Result<Workspace, FileError> {
        let display = root.to_string_lossy();
        let fail = |error: std::io::Error| FileError::from_system(&display, error);
        let root = root.canonicalize().map_err(fail)?;
        if !root.is_dir() {
            return Err(FileError::NotAFolder { path: display.into_owned() });
        }
        let flags = INSPECT_FLAGS | OFlags::DIRECTORY;
        let folder = rustix::fs::open(&root, flags, Mode::empty()).map_err(|errno| fail(errno.into()))?;
        Ok(Workspace { inner: Arc::new(Inner { folder, root, write_lock: std::sync::Mutex::new(()) }) })
    }

    /// Returns the path of the folder when it was opened, without symbolic links.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.inner.folder.as_fd()
    }

    /// Parses a path as a model writes it. An absolute path is accepted if it is lexically beneath the root.
    pub(super) fn parse_path(&self, path: &str) -> Result<RequestedPath, FileError> {
        let display = escape_controls(brigade_core::text::truncate_bytes(path, 200));
        let bad = |reason| Err(FileError::BadPath { path: display.clone(), reason });
        if path.is_empty() {
            return bad("it is empty. Use `.` for the workspace itself");
        }
        if path.contains('\0') {
            return bad("it contains a NUL character");
        }
        if path.len() > MAX_PATH_BYTES {
            return bad("it is longer than 4096 bytes");
        }
        let path_given = Path::new(path);
        let (inside, checked) = match path_given.strip_prefix(self.root()) {
            Ok(inside) => (inside, CheckedPath::AbsolutePath),
            Err(_) if path_given.is_absolute() => return Err(FileError::Outside { path: display }),
            Err(_) => (path_given, CheckedPath::WorkspacePath),
        };
        let Some(lexical) = beneath::normalize(inside) else {
            return Err(FileError::Outside { path: display });
        };
        let mut opened = inside.to_path_buf();
        if opened.as_os_str().is_empty() {
            opened.push(".");
        }
        // `Path` drops a trailing slash, which means that a folder is requested.
        if path.ends_with('/') {
            opened.push(".");
        }
        Ok(RequestedPath { path: opened, lexical: lexical.to_string_lossy().into_owned(), display, checked })
    }

    /// Resolves a path to its target.
    pub(super) fn resolve(&self, requested: &RequestedPath) -> Result<Resolved, FileError> {
        let fail = |error| FileError::from_system(&requested.display, error);
        for _ in 0..RESOLVE_ATTEMPTS {
            let opened = beneath::open(self.folder(), &requested.path, INSPECT_FLAGS, Symlinks::FollowInside)
                .map_err(fail)?;
            let real = beneath::real_path(self.folder(), &opened, &requested.path).map_err(fail)?;
            let stat = rustix::fs::fstat(&opened).map_err(|errno| fail(errno.into()))?;
            if self.is_current(&real, &stat) {
                return Ok(Resolved { real, stat });
            }
        }
        Err(fail(rustix::io::Errno::AGAIN.into()))
    }

    /// Whether a path still leads to what was opened. The kernel appends a mark to the path of a file that has been
    /// replaced or removed since. A file may also have such a name.
    fn is_current(&self, real: &Path, opened: &Stat) -> bool {
        if !real.as_os_str().as_bytes().ends_with(REMOVED_MARK) {
            return true;
        }
        let found = self.open_real(real, INSPECT_FLAGS).and_then(|file| Ok(rustix::fs::fstat(file)?));
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino))
    }

    /// Opens exactly this path; a link on the way is an error.
    pub(super) fn open_real(&self, real: &Path, flags: OFlags) -> std::io::Result<OwnedFd> {
        let path = if real.as_os_str().is_empty() { Path::new(".") } else { real };
        beneath::open(self.folder(), path, flags, Symlinks::Refuse)
    }
}

/// Refuses anything but a regular file. Reading a device or a pipe may block forever or have side effects.
pub(super) fn require_regular(path: &str, stat: &Stat) -> Result<(), FileError> {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Symlink => "a dangling symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "of unknown type",
    };
    Err(FileError::NotAFile { path: path.to_owned(), what })
}

/// Escapes control characters of a file name, because line ends in it could imitate other lines of the output.
pub fn escape_controls(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_file_that_was_replaced_is_outdated() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let write = |name: &str| std::fs::write(dir.path().join(name), name).unwrap();
        let open = |name: &str| workspace.open_real(Path::new(name), INSPECT_FLAGS).unwrap();
        let resolve = |opened: &OwnedFd| {
            let real = beneath::real_path(workspace.folder(), opened, Path::new("")).unwrap();
            let is_current = workspace.is_current(&real, &rustix::fs::fstat(opened).unwrap());
            (real.display().to_string(), is_current)
        };
        ["a", "new", "b (deleted)"].into_iter().for_each(write);
        let (old, named) = (open("a"), open("b (deleted)"));
        assert_eq!(resolve(&old), ("a".to_owned(), true));
        assert_eq!(resolve(&named), ("b (deleted)".to_owned(), true));
        std::fs::rename(dir.path().join("new"), dir.path().join("a")).unwrap();
        assert_eq!(resolve(&old), ("a (deleted)".to_owned(), false));
        // Another file that has the reported name is not the one that was opened.
        write("a (deleted)");
        assert_eq!(resolve(&old), ("a (deleted)".to_owned(), false));
        assert_eq!(resolve(&open("a")), ("a".to_owned(), true));
    }
}
