//! Instruction files of a project: `AGENTS.md`, `CLAUDE.md` or `GEMINI.md`, from the root of the git repository down
//! to a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade::Workspace;
use brigade::tool::{FileError, Files};
use brigade_core::Hash;
use brigade_core::permission::Permissions;
use brigade_sandbox::is_placeholder;

pub(crate) use brigade::project_files::INSTRUCTION_FILES as FILE_NAMES;

/// Maximum size of an instruction file.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;

/// File with instructions for agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InstructionFile {
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
}

impl InstructionFile {
    /// Hash of the content, as used for edits of agents and for trust.
    pub(crate) fn hash(&self) -> Hash {
        Hash::of(&self.content)
    }
}

/// Result of looking for an instruction file.
#[derive(Debug)]
pub(crate) enum InstructionLookup {
    Found(InstructionFile),
    /// The file does not exist, or a rule hides it.
    Absent,
    /// The file cannot be used, for this reason.
    Unusable(String),
}

/// Folders whose instructions apply to work in `folder`: from the root of its git repository down to the folder
/// itself. Outside of a repository it is the folder alone.
pub(crate) fn folders(folder: &Path) -> Vec<PathBuf> {
    let root = git_root(folder).unwrap_or_else(|| folder.to_path_buf());
    let mut folders: Vec<PathBuf> =
        folder.ancestors().take_while(|above| above.starts_with(&root)).map(Path::to_path_buf).collect();
    folders.reverse();
    folders
}

/// Root of the git repository that contains a folder. In a worktree, `.git` is a file.
pub(crate) fn git_root(folder: &Path) -> Option<PathBuf> {
    let is_repository = |git: &Path| git.symlink_metadata().is_ok() && !is_placeholder(git);
    let is_root = |folder: &&Path| is_repository(&folder.join(".git"));
    folder.ancestors().find(is_root).map(Path::to_path_buf)
}

/// Reads an instruction file of a folder, if the permissions allow it. A link that leads out of the folder is not
/// followed.
pub(crate) fn read(folder: &Path, name: &str, permissions: &Permissions) -> InstructionLookup {
    let everywhere = BTreeSet::from([String::new()]);
    let content = Workspace::open(folder).and_then(|workspace| {
        Files::new(workspace, Arc::new(permissions.clone()), everywhere).read(name, MAX_FILE_BYTES)
    });
    match content {
        Ok(content) => InstructionLookup::Found(InstructionFile { path: folder.join(name), content }),
        // Most folders have none, and a rule that hides it does so on purpose.
        Err(FileError::NotFound { .. } | FileError::Forbidden { .. }) => InstructionLookup::Absent,
        Err(FileError::TooLarge { .. }) => {
            InstructionLookup::Unusable(format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20))
        }
        Err(_) if is_placeholder(&folder.join(name)) => InstructionLookup::Absent,
        Err(error) => InstructionLookup::Unusable(error.to_string()),
    }
}

/// All instruction files that apply to work in `folder`, by path. Names without a usable file are included, so that a
/// file that appears later is known to be new.
pub(crate) fn all(folder: &Path) -> BTreeMap<PathBuf, Option<InstructionFile>> {
    let permissions = Permissions::default();
    let file = |folder: &Path, name: &str| match read(folder, name, &permissions) {
        InstructionLookup::Found(file) => Some(file),
        InstructionLookup::Absent | InstructionLookup::Unusable(_) => None,
    };
    let folders = folders(folder);
    let in_folder = |folder: &PathBuf| FILE_NAMES.map(|name| (folder.join(name), file(folder, name)));
    folders.iter().flat_map(in_folder).collect()
}

/// Hash of the instruction file at a path, if it is usable.
pub(crate) fn hash(path: &Path) -> Option<Hash> {
    let (folder, name) = (path.parent()?, path.file_name()?.to_str()?);
    match read(folder, name, &Permissions::default()) {
        InstructionLookup::Found(file) => Some(file.hash()),
        InstructionLookup::Absent | InstructionLookup::Unusable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_up_to_the_repository_root() {
        let outside = tempfile::tempdir().unwrap();
        let base = outside.path().canonicalize().unwrap();
        let deep = base.join("repo/a/b");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(folders(&deep), std::slice::from_ref(&deep));
        std::fs::write(base.join("repo/.git"), "gitdir: elsewhere").unwrap();
        assert_eq!(folders(&deep), [base.join("repo"), base.join("repo/a"), deep.clone()]);
        assert_eq!(folders(&base.join("repo")), [base.join("repo")]);
        std::fs::write(base.join("repo/a/CLAUDE.md"), "x").unwrap();
        let all = all(&deep);
        assert_eq!(all.len(), 9);
        let found: Vec<&PathBuf> =
            all.iter().filter(|(_, file)| file.is_some()).map(|(path, _)| path).collect();
        assert_eq!(found, [&base.join("repo/a/CLAUDE.md")]);
        assert_eq!(hash(found[0]), Some(Hash::of(b"x")));
        assert_eq!(hash(&base.join("repo/AGENTS.md")), None);
    }
}
