//! `/tmp` of the commands of a tree.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

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

#[cfg(test)]
mod tests {
    use super::*;

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
