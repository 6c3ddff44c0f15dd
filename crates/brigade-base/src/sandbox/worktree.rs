//! Linked worktrees: git writes to the repository that the worktree belongs to.

use std::path::{Path, PathBuf};

use super::secrets::git_link;

/// Directories of a repository that git changes in all of its worktrees. Its configuration and its hooks are elsewhere.
const SHARED: [&str; 3] = ["logs", "objects", "refs"];

/// Repository of a linked worktree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LinkedRepository {
    /// Its directory, which git reads.
    pub(super) common: Option<PathBuf>,
    /// Directories in it that git changes.
    pub(super) writable: Vec<PathBuf>,
}

impl LinkedRepository {
    /// Repository of a workspace that is a linked worktree. The repository must name the worktree too, because `.git` alone
    /// could have come with the files of a project.
    pub(super) fn of(workspace: &Path) -> LinkedRepository {
        LinkedRepository::find(workspace).unwrap_or_default()
    }

    fn find(workspace: &Path) -> Option<LinkedRepository> {
        let git = workspace.join(".git");
        if !git.symlink_metadata().ok()?.is_file() {
            return None;
        }
        let own = git_link(&git)?.strip_prefix("gitdir: ")?.trim().to_owned();
        let own = workspace.join(own).canonicalize().ok()?;
        let common = own.join(git_link(&own.join("commondir"))?.trim()).canonicalize().ok()?;
        let back = own.join(git_link(&own.join("gitdir"))?.trim()).canonicalize().ok()?;
        if back != git.canonicalize().ok()? || own.parent() != Some(common.join("worktrees").as_path()) {
            return None;
        }
        let shared = SHARED.map(|name| common.join(name)).into_iter().filter(|path| is_real_directory(path));
        let writable = shared.chain([own]).collect();
        Some(LinkedRepository { common: Some(common), writable })
    }
}

fn is_real_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn repository_must_name_the_worktree() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let own = root.join("main/.git/worktrees/w");
        for directory in
            ["main/.git/worktrees/w", "main/.git/objects", "main/.git/refs", "main/.git/hooks", "w", "x"]
        {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("w/.git"), format!("gitdir: {}\n", own.display())).unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        fs::write(own.join("gitdir"), format!("{}\n", root.join("w/.git").display())).unwrap();
        let shared = |name: &str| root.join("main/.git").join(name);
        let expected = vec![shared("objects"), shared("refs"), own.clone()];
        let found = LinkedRepository::of(&root.join("w"));
        assert_eq!((found.common, found.writable), (Some(root.join("main/.git")), expected.clone()));
        fs::write(own.join("gitdir"), "../../../../w/.git\n").unwrap();
        assert_eq!(
            LinkedRepository::of(&root.join("w")).writable,
            expected,
            "newer versions of git write relative paths"
        );
        // Another directory claims to be the worktree.
        fs::copy(root.join("w/.git"), root.join("x/.git")).unwrap();
        assert_eq!(LinkedRepository::of(&root.join("x")), LinkedRepository::default());
        // The worktree claims to belong to another repository.
        fs::write(own.join("commondir"), "../../../..\n").unwrap();
        assert_eq!(LinkedRepository::of(&root.join("w")), LinkedRepository::default());
        assert_eq!(LinkedRepository::of(&root.join("main")), LinkedRepository::default());
        assert_eq!(LinkedRepository::of(&root), LinkedRepository::default());
    }
}
