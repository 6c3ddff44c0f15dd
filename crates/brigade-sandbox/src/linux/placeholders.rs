//! Empty directories in the place of missing protected paths, so that a mount can cover them.
//!
//! A placeholder is a directory even if the protected path would be a file: version control ignores empty directories.
//! It has permissions that nothing else uses. Every guard that needs it holds a shared lock on it. The last one removes
//! it. A placeholder that a killed guard left behind is removed by its runner, or by the next guard.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, flock};

use super::planted::with_write_permission;
use crate::Sandbox;

/// Permissions of a placeholder: read-only, with the sticky bit.
const MODE: u32 = 0o1555;

/// Placeholders that a guard uses. They are removed when this is dropped, unless another guard uses them.
#[derive(Default)]
pub(crate) struct Placeholders(Vec<Placeholder>);

struct Placeholder {
    path: PathBuf,
    lock: File,
}

impl Placeholders {
    /// Creates or joins the placeholders of all missing protected paths.
    pub(crate) fn create(sandbox: &Sandbox) -> io::Result<Placeholders> {
        let mut placeholders = Placeholders::default();
        for path in sandbox.protected.iter().map(Path::new) {
            if let Some(path) = first_missing(sandbox, path, 0)
                && !placeholders.contains(&path)
            {
                placeholders.0.extend(Placeholder::join(path)?);
            }
        }
        Ok(placeholders)
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.0.iter().any(|placeholder| placeholder.path == path)
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        for placeholder in self.0.drain(..) {
            remove(&placeholder.path, &placeholder.lock);
        }
    }
}

/// Removes placeholders that no guard uses any more.
pub(crate) fn remove_stale(sandbox: &Sandbox) {
    for path in sandbox.protected.iter().map(Path::new) {
        if let Some(path) = first_missing(sandbox, path, 0)
            && is_placeholder(&path)
            && let Ok(lock) = File::open(&path)
        {
            remove(&path, &lock);
        }
    }
}

/// The first missing component of a path, or an existing placeholder in its place. Links are followed, as long as they lead
/// to a writable directory. A directory whose changes are discarded needs no placeholder on the host.
pub(crate) fn first_missing(sandbox: &Sandbox, path: &Path, links: usize) -> Option<PathBuf> {
    if sandbox.discards(path) {
        return None;
    }
    let root = sandbox.writable_root(path).filter(|_| links <= MAX_LINKS)?;
    let mut current = root.clone();
    let mut parts = path.strip_prefix(&root).ok()?.iter();
    while let Some(part) = parts.next() {
        current.push(part);
        match current.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(current),
            Err(_) => return None,
            Ok(metadata) if has_mark(&metadata) => return Some(current),
            Ok(metadata) if metadata.is_symlink() => {
                return first_missing(sandbox, &link_target(&current, parts.as_path())?, links + 1);
            }
            Ok(metadata) if !metadata.is_dir() => return None,
            Ok(_) => {}
        }
    }
    None
}

/// Maximum number of links on the way to a path.
const MAX_LINKS: usize = 40;

/// The path behind a link, without `..`, whether or not it exists.
pub(crate) fn link_target(link: &Path, rest: &Path) -> Option<PathBuf> {
    let target = link.parent()?.join(fs::read_link(link).ok()?);
    let mut path = PathBuf::new();
    for part in target.components().chain(rest.components()) {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    Some(path)
}

/// Whether a path is an empty directory in the place of a protected path that does not exist. A running command has it there.
pub fn is_placeholder(path: &Path) -> bool {
    let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    path.symlink_metadata().is_ok_and(|metadata| has_mark(&metadata)) && is_empty()
}

/// Whether this directory has the permissions of a placeholder.
fn has_mark(metadata: &Metadata) -> bool {
    metadata.is_dir() && metadata.mode() & 0o7777 == MODE
}

impl Placeholder {
    /// Creates the placeholder or joins those that use it. Returns `None` if something else is there now.
    fn join(path: PathBuf) -> io::Result<Option<Placeholder>> {
        // Another guard may remove it between creating and locking it.
        for _ in 0..100 {
            match create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => result?,
            }
            match path.symlink_metadata() {
                Ok(metadata) if !has_mark(&metadata) => return Ok(None),
                Ok(_) => {}
                Err(_) => continue,
            }
            let Ok(lock) = File::open(&path) else { continue };
            if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() && is_at(&lock, &path) {
                return Ok(Some(Placeholder { path, lock }));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::other(format!("`{}` keeps changing", path.display())))
    }
}

/// Creates a placeholder that has its permissions from the start: another guard must not mistake it for a directory of
/// the user.
fn create(path: &Path) -> io::Result<()> {
    let umask = rustix::process::umask(Mode::empty());
    let created = fs::DirBuilder::new().mode(MODE).create(path);
    rustix::process::umask(umask);
    created
}

/// Removes a placeholder if this is its last user. The system does not remove a directory that is no longer empty.
fn remove(path: &Path, lock: &File) {
    if flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        && is_at(lock, path)
        && is_placeholder(path)
    {
        // A command may have taken the permission to change the directory.
        if let Some(Ok(directory)) = path.parent().map(File::open) {
            let _ = with_write_permission(&directory, || fs::remove_dir(path));
        }
    }
}

/// Whether the open directory is still the one at this path.
pub(super) fn is_at(open: &File, path: &Path) -> bool {
    match (open.metadata(), path.symlink_metadata()) {
        (Ok(open), Ok(found)) => (open.dev(), open.ino()) == (found.dev(), found.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(root: &Path) -> Sandbox {
        let protected = [".a/b", ".c"].map(|path| root.join(path).into());
        Sandbox { writable: vec![root.into()], protected: protected.into(), ..Sandbox::default() }
    }

    fn entries(root: &tempfile::TempDir) -> usize {
        fs::read_dir(root.path()).unwrap().count()
    }

    #[test]
    fn last_user_removes_placeholders() {
        let root = tempfile::tempdir().unwrap();
        let sandbox = sandbox(root.path());
        let first = Placeholders::create(&sandbox).unwrap();
        let second = Placeholders::create(&sandbox).unwrap();
        assert!(root.path().join(".a").is_dir() && root.path().join(".c").is_dir());
        assert!(!root.path().join(".a/b").exists(), "the outermost missing directory is enough");
        drop(first);
        remove_stale(&sandbox);
        assert_eq!(entries(&root), 2);
        drop(second);
        assert_eq!(entries(&root), 0);
    }

    #[test]
    fn placeholders_of_a_killed_guard_are_joined_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let sandbox = sandbox(root.path());
        create(&root.path().join(".a")).unwrap();
        create(&root.path().join(".c")).unwrap();
        drop(Placeholders::create(&sandbox).unwrap());
        assert_eq!(entries(&root), 0);
        create(&root.path().join(".a")).unwrap();
        remove_stale(&sandbox);
        assert_eq!(entries(&root), 0);
    }

    #[test]
    fn directories_and_files_of_the_user_are_never_removed() {
        let root = tempfile::tempdir().unwrap();
        let sandbox = sandbox(root.path());
        fs::create_dir(root.path().join(".a")).unwrap();
        fs::write(root.path().join(".c"), "").unwrap();
        drop(Placeholders::create(&sandbox).unwrap());
        remove_stale(&sandbox);
        assert!(root.path().join(".a").is_dir() && root.path().join(".c").is_file());
        assert!(!root.path().join(".a/b").exists());
    }

    #[test]
    fn discarded_directories_get_no_placeholders() {
        let root = tempfile::tempdir().unwrap();
        let sandbox = sandbox(root.path());
        let sandbox = Sandbox { discarded: sandbox.writable, writable: Vec::new(), ..sandbox };
        let _placeholders = Placeholders::create(&sandbox).unwrap();
        assert_eq!(entries(&root), 0);
    }

    #[test]
    fn concurrent_users_agree() {
        let root = tempfile::tempdir().unwrap();
        let sandbox = sandbox(root.path());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let placeholders = Placeholders::create(&sandbox).unwrap();
                        assert_eq!(placeholders.0.len(), 2);
                        assert_eq!(entries(&root), 2);
                    }
                });
            }
        });
        assert_eq!(entries(&root), 0);
    }
}
