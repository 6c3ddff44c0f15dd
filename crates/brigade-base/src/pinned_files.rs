//! Files that are used only with the content that the user trusted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_core::Hash;

/// Directories whose files are used only with known content. The default has none, so that every file is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinnedFiles {
    directories: Arc<[PathBuf]>,
    files: Arc<BTreeMap<PathBuf, Hash>>,
}

/// Reason why a file is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is a symbolic link, or it has changed since its project was trusted. The user can review it and run: brigade trust"
)]
pub struct ChangedFile;

impl PinnedFiles {
    /// Creates the set from directories and the files in them.
    pub fn new(directories: Vec<PathBuf>, files: impl IntoIterator<Item = (PathBuf, Hash)>) -> PinnedFiles {
        PinnedFiles { directories: directories.into(), files: Arc::new(files.into_iter().collect()) }
    }

    /// Checks the content of a file. `None` means content that is too large to have a hash.
    pub fn check(&self, path: &Path, content: Option<Hash>) -> Result<(), ChangedFile> {
        let is_free = !self.directories.iter().any(|directory| path.starts_with(directory));
        let is_same = || content.is_some() && self.files.get(path).copied() == content;
        if is_free || is_same() { Ok(()) } else { Err(ChangedFile) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_content_of_pinned_directories_is_used() {
        let hash = |text: &str| Some(Hash::of(text.as_bytes()));
        let files = [("/p/.brigade/agents/a.md".into(), Hash::of(b"a"))];
        let pinned = PinnedFiles::new(vec!["/p/.brigade".into()], files);
        let check = |path: &str, content| pinned.check(Path::new(path), content).is_ok();
        assert!(check("/p/.brigade/agents/a.md", hash("a")));
        assert!(!check("/p/.brigade/agents/a.md", hash("b")) && !check("/p/.brigade/agents/a.md", None));
        assert!(!check("/p/.brigade/agents/new.md", hash("a")));
        assert!(check("/p/.brigade2/a.md", hash("b")) && check("/home/agents/a.md", None));
        assert!(PinnedFiles::default().check(Path::new("/p/.brigade/x"), None).is_ok());
    }
}
