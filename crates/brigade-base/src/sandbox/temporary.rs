//! `/tmp` of the commands of a tree.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Prefix of the directories of servers. The id of the process that created one follows.
const SERVER_PREFIX: &str = "server-";

/// Directory that all commands of a tree see as `/tmp`. The first command creates it, and it is removed when this is dropped.
#[derive(Debug, Default)]
pub struct TemporaryDirectory {
    path: Option<PathBuf>,
    created: OnceLock<()>,
}

impl TemporaryDirectory {
    /// Directory with this name below `parent`. Without a parent, every command has a `/tmp` of its own.
    pub fn below(parent: Option<&Path>, name: &str) -> TemporaryDirectory {
        TemporaryDirectory { path: parent.map(|parent| parent.join(name)), created: OnceLock::new() }
    }

    /// Directory of a server that this process starts, with a name of its own. Those of processes that were killed are
    /// removed.
    pub(super) fn of_server(parent: Option<&Path>) -> TemporaryDirectory {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        parent.into_iter().for_each(remove_stale);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        TemporaryDirectory::below(parent, &format!("{SERVER_PREFIX}{}-{number}", std::process::id()))
    }

    /// Creates the directory, for this user only, and returns its path.
    pub(super) fn create(&self) -> io::Result<Option<&Path>> {
        let Some(path) = &self.path else { return Ok(None) };
        if self.created.get().is_none() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            self.created.get_or_init(|| ());
        }
        Ok(Some(path))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if let (Some(path), Some(())) = (&self.path, self.created.get()) {
            // Best effort: a command may have removed the permissions of a directory in it.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// Removes directories of servers whose process no longer exists.
fn remove_stale(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(SERVER_PREFIX)?.split_once('-'));
        let process = process.and_then(|(process, _)| process.parse().ok());
        if let Some(process) = process.and_then(rustix::process::Pid::from_raw)
            && rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
        {
            // Best effort: the next server tries again.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_servers_of_dead_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join(format!("server-{}-0", i32::MAX));
        let other = parent.path().join("tree");
        let alive = TemporaryDirectory::of_server(Some(parent.path()));
        let alive_path = alive.create().unwrap().unwrap().to_path_buf();
        std::fs::create_dir(&dead).unwrap();
        std::fs::create_dir(&other).unwrap();
        let second = TemporaryDirectory::of_server(Some(parent.path()));
        assert_ne!(second.create().unwrap(), Some(alive_path.as_path()));
        assert!(!dead.exists() && other.exists() && alive_path.exists());
    }

    #[test]
    fn directory_exists_from_the_first_command_to_the_end_of_the_tree() {
        let parent = tempfile::tempdir().unwrap();
        let temporary = TemporaryDirectory::below(Some(&parent.path().join("tmp")), "tree");
        let path = parent.path().join("tmp/tree");
        assert!(!path.exists());
        assert_eq!(temporary.create().unwrap(), Some(path.as_path()));
        std::fs::write(path.join("file"), "x").unwrap();
        temporary.create().unwrap();
        assert!(path.join("file").exists());
        drop(temporary);
        assert!(!path.exists());
        assert_eq!(TemporaryDirectory::default().create().unwrap(), None);
    }
}
