//! Files and directories of the program itself, recognised by device and inode whatever their path.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of entries that are compared by default, for each command, and if a file has several hard links.
/// Entries near the top come first.
const MAX_NEAR_ENTRIES: usize = 500;
const MAX_COMMAND_ENTRIES: usize = 5_000;
const MAX_ALL_ENTRIES: usize = 100_000;

/// Directory for the temporary files of running trees, whose content belongs to the agents.
const TEMPORARY_DIR: &str = "tmp";

/// Device and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device.
    pub device: i128,
    /// Inode.
    pub inode: i128,
}

impl FileId {
    /// Returns the identity of a file.
    pub fn of(metadata: &Metadata) -> FileId {
        FileId { device: metadata.dev().into(), inode: metadata.ino().into() }
    }
}

/// Files and directories that only the program itself may access: configuration, sessions, memory, logins and trust.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivateFiles {
    paths: Vec<PathBuf>,
}

/// Identities of private files at one moment.
#[derive(Debug, Default)]
pub struct PrivateIds {
    directories: HashSet<FileId>,
    /// Directories inside private ones that belong to the agents.
    temporary: HashSet<FileId>,
    files: HashSet<FileId>,
    /// Files with several hard links, and links to files elsewhere.
    linked: Vec<PathBuf>,
    is_complete: bool,
}

impl PrivateFiles {
    /// Creates the set from files and directories, which need not exist.
    pub fn new(paths: Vec<PathBuf>) -> PrivateFiles {
        PrivateFiles { paths }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the identities of the directories and of the files near their top.
    pub fn near(&self) -> PrivateIds {
        self.collect(MAX_NEAR_ENTRIES)
    }

    /// Returns the identities of all files.
    pub fn all(&self) -> PrivateIds {
        self.collect(MAX_ALL_ENTRIES)
    }

    /// Returns the real paths of files that symbolic links below the private directories lead to.
    pub fn link_targets(&self) -> Vec<PathBuf> {
        let targets = self.near().linked.into_iter().filter(|path| path.is_symlink());
        targets.filter_map(|path| path.canonicalize().ok()).collect()
    }

    /// Returns the identities of files with several hard links.
    pub fn hard_linked(&self) -> HashSet<FileId> {
        let linked = self
            .collect(MAX_COMMAND_ENTRIES)
            .linked
            .into_iter()
            .filter_map(|path| path.symlink_metadata().ok());
        linked.filter(|found| found.is_file() && found.nlink() > 1).map(|found| FileId::of(&found)).collect()
    }

    fn collect(&self, max_entries: usize) -> PrivateIds {
        let mut ids = PrivateIds { is_complete: true, ..PrivateIds::default() };
        let mut pending: std::collections::VecDeque<PathBuf> = self.paths.iter().cloned().collect();
        let mut entries = 0;
        while let Some(path) = pending.pop_front() {
            entries += 1;
            if entries > max_entries {
                ids.is_complete = false;
                break;
            }
            let Ok(found) = path.symlink_metadata() else { continue };
            if found.is_symlink() || (found.is_file() && found.nlink() > 1) {
                ids.linked.push(path.clone());
            }
            // The file that a link leads to is private too.
            let found = if found.is_symlink() { fs::metadata(&path) } else { Ok(found) };
            let Ok(found) = found else { continue };
            if found.is_file() {
                ids.files.insert(FileId::of(&found));
            } else if found.is_dir() && ids.directories.insert(FileId::of(&found)) {
                let children = fs::read_dir(&path).into_iter().flatten().flatten();
                let (temporary, children): (Vec<PathBuf>, Vec<PathBuf>) = children
                    .map(|entry| entry.path())
                    .partition(|child| self.paths.contains(&path) && child.ends_with(TEMPORARY_DIR));
                let temporary = temporary.iter().filter_map(|path| path.symlink_metadata().ok());
                ids.temporary.extend(temporary.map(|found| FileId::of(&found)));
                pending.extend(children);
            }
        }
        ids
    }
}

impl PrivateIds {
    /// Whether a directory is private.
    pub fn has_directory(&self, id: FileId) -> bool {
        self.directories.contains(&id)
    }

    /// Whether a file is private.
    pub fn has_file(&self, id: FileId) -> bool {
        self.files.contains(&id)
    }

    /// Whether all files are known.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether a path leads through a private directory, but not through one for temporary files.
    pub fn contains(&self, path: &Path) -> bool {
        let above = path.ancestors().filter_map(|above| fs::metadata(above).ok());
        let mut above = above.map(|found| FileId::of(&found)).take_while(|id| !self.temporary.contains(id));
        above.any(|id| self.has_directory(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(path: &Path) -> FileId {
        FileId::of(&fs::symlink_metadata(path).unwrap())
    }

    #[test]
    fn files_are_recognised_under_every_name() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for directory in ["data/logins/deep", "data/tmp/tree", "work", "dotfiles"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in ["data/sessions.db", "data/logins/deep/a", "data/tmp/tree/b", "dotfiles/config", "work/x"]
        {
            fs::write(root.join(file), file).unwrap();
        }
        fs::hard_link(root.join("data/logins/deep/a"), root.join("work/link")).unwrap();
        std::os::unix::fs::symlink("../dotfiles/config", root.join("data/config.toml")).unwrap();
        let private = PrivateFiles::new(vec![root.join("data"), root.join("missing")]);
        let ids = private.near();
        assert!(ids.is_complete() && ids.has_file(id(&root.join("data/sessions.db"))));
        assert!(ids.has_file(id(&root.join("work/link"))) && ids.has_file(id(&root.join("dotfiles/config"))));
        assert!(!ids.has_file(id(&root.join("work/x"))) && !ids.has_file(id(&root.join("data/tmp/tree/b"))));
        fs::rename(root.join("data"), root.join("work/moved")).unwrap();
        assert!(!ids.contains(&root.join("work/moved/tmp/tree")));
        assert!(ids.contains(&root.join("work/moved/logins")) && !ids.contains(&root.join("work")));
        let moved = PrivateFiles::new(vec![root.join("work/moved")]);
        assert_eq!(moved.hard_linked(), HashSet::from([id(&root.join("work/link"))]));
    }

    #[test]
    fn targets_of_links_are_found() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("data")).unwrap();
        fs::write(root.join("real"), "").unwrap();
        std::os::unix::fs::symlink("../real", root.join("data/config.toml")).unwrap();
        assert_eq!(PrivateFiles::new(vec![root.join("data")]).link_targets(), [root.join("real")]);
    }
}
