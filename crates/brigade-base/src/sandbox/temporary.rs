//! Directory on disk for the commands of a tree.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use brigade_sandbox::remove_tree;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Number of attempts to create a directory that another process removes at the same time.
const ATTEMPTS: usize = 100;

/// Directory of a tree. The first command creates it, and it is removed when this is dropped.
///
/// A lock shows that it is in use. Directories of processes that were killed have none, and the next process that creates
/// one removes them.
#[derive(Debug, Default)]
pub(crate) struct TemporaryDirectory {
    path: Option<PathBuf>,
    lock: Mutex<Option<File>>,
}

/// Parts of the directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// `/tmp` of the commands.
    pub(super) temporary: PathBuf,
    /// Directory for layers of overlays.
    pub(super) layers: PathBuf,
}

impl TemporaryDirectory {
    /// Directory with this name below `parent`. Without a parent, there is none.
    pub(super) fn below(parent: Option<&Path>, name: &str) -> TemporaryDirectory {
        TemporaryDirectory { path: parent.map(|parent| parent.join(name)), lock: Mutex::default() }
    }

    /// Directory of a server that this process starts, with a name of its own.
    pub(super) fn of_server(parent: Option<&Path>) -> TemporaryDirectory {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        TemporaryDirectory::below(parent, &format!("server-{}-{number}", std::process::id()))
    }

    /// Returns the parts, which exist from the first command on.
    pub(super) fn parts(&self) -> Option<Parts> {
        let path = self.path.as_ref()?;
        Some(Parts { temporary: path.join("tmp"), layers: path.join("layers") })
    }

    /// Creates the directory, for this user only, and returns its parts.
    pub(super) fn create(&self) -> io::Result<Option<Parts>> {
        let (Some(path), Some(parts)) = (&self.path, self.parts()) else { return Ok(None) };
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            let file = create_locked(path)?;
            for part in [&parts.temporary, &parts.layers] {
                create_dir(part)?;
            }
            remove_stale(path);
            *lock = Some(file);
        }
        Ok(Some(parts))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let lock = self.lock.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(path), Some(lock)) = (&self.path, lock)
            && is_only_user(&lock)
        {
            // Best effort: the next process tries again.
            let _ = remove_tree(path);
        }
    }
}

fn create_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates and locks a directory. What a killed process left in it is removed.
fn create_locked(path: &Path) -> io::Result<File> {
    for _ in 0..ATTEMPTS {
        create_dir(path)?;
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        if is_only_user(&file) {
            for entry in fs::read_dir(path)? {
                remove_tree(&entry?.path())?;
            }
        }
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            // Another process is removing it.
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(1)),
            // Not every file system has locks. Then no process removes what it did not create.
            Ok(()) | Err(_) if is_at(&file, path) => return Ok(file),
            Ok(()) | Err(_) => {}
        }
    }
    Err(io::Error::other(format!("`{}` keeps changing", path.display())))
}

/// Takes the lock, unless another process holds it.
fn is_only_user(directory: &File) -> bool {
    flock(directory, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Whether the open directory is still the one at this path.
fn is_at(open: &File, path: &Path) -> bool {
    match (open.metadata(), path.symlink_metadata()) {
        (Ok(open), Ok(found)) => (open.dev(), open.ino()) == (found.dev(), found.ino()),
        _ => false,
    }
}

/// Removes the directories of processes that were killed.
fn remove_stale(own: &Path) {
    let Some(Ok(entries)) = own.parent().map(fs::read_dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path != own
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && File::open(&path).is_ok_and(|directory| is_only_user(&directory) && is_at(&directory, &path))
        {
            let _ = remove_tree(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_directory_of_its_own() {
        let parent = tempfile::tempdir().unwrap();
        let first = TemporaryDirectory::of_server(Some(parent.path()));
        let second = TemporaryDirectory::of_server(Some(parent.path()));
        let (one, other) = (first.create().unwrap().unwrap(), second.create().unwrap().unwrap());
        assert!(one != other && one.temporary.is_dir() && other.temporary.is_dir());
    }

    #[test]
    fn directory_exists_from_the_first_command_to_the_end_of_the_tree() {
        let parent = tempfile::tempdir().unwrap();
        let temporary = TemporaryDirectory::below(Some(&parent.path().join("tmp")), "tree");
        let path = parent.path().join("tmp/tree");
        assert!(!path.exists());
        let parts = temporary.create().unwrap().unwrap();
        assert_eq!(parts, Parts { temporary: path.join("tmp"), layers: path.join("layers") });
        fs::write(parts.temporary.join("file"), "x").unwrap();
        temporary.create().unwrap();
        assert!(parts.temporary.join("file").exists());
        drop(temporary);
        assert!(!path.exists());
        assert_eq!(TemporaryDirectory::default().create().unwrap(), None);
    }

    #[test]
    fn directories_of_killed_processes_are_removed_and_others_kept() {
        let parent = tempfile::tempdir().unwrap();
        let running = TemporaryDirectory::below(Some(parent.path()), "running");
        let kept = running.create().unwrap().unwrap();
        fs::create_dir_all(parent.path().join("killed/layers/command-1/work")).unwrap();
        fs::create_dir_all(parent.path().join("resumed/tmp")).unwrap();
        fs::write(parent.path().join("resumed/tmp/old"), "x").unwrap();
        fs::write(parent.path().join("file"), "x").unwrap();
        let resumed = TemporaryDirectory::below(Some(parent.path()), "resumed");
        let parts = resumed.create().unwrap().unwrap();
        assert_eq!(fs::read_dir(&parts.temporary).unwrap().count(), 0);
        assert!(!parent.path().join("killed").exists() && parent.path().join("file").exists());
        assert!(kept.temporary.exists());
        // A second user of the same directory keeps it.
        let second = TemporaryDirectory::below(Some(parent.path()), "resumed");
        fs::write(parts.temporary.join("new"), "x").unwrap();
        second.create().unwrap();
        drop(resumed);
        assert!(parts.temporary.join("new").exists());
        drop(second);
        assert!(!parts.temporary.exists());
    }

    #[test]
    fn concurrent_processes_agree() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let parent = parent.path();
                scope.spawn(move || {
                    for _ in 0..100 {
                        let name = format!("tree-{}", number % 2);
                        let temporary = TemporaryDirectory::below(Some(parent), &name);
                        let parts = temporary.create().unwrap().unwrap();
                        assert!(parts.temporary.is_dir() && parts.layers.is_dir());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
