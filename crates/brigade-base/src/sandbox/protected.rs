//! Files that programs of the user act upon. Commands of agents cannot write them.

use std::path::{Path, PathBuf};

use brigade_core::project_files::{self, GIT_CONTROL, HOME_FILES, INSTRUCTION_FILES};

use super::secrets::git_link;

/// Protected paths of a workspace, whether or not they exist.
pub(super) fn in_workspace(workspace: &Path) -> impl Iterator<Item = PathBuf> {
    let names = project_files::settings();
    let own: Vec<PathBuf> = names.map(|name| workspace.join(name)).collect();
    own.into_iter().chain(git_files(&workspace.join(".git")))
}

/// Protected paths of another writable directory. Those that do not exist may be created, except in its repository.
pub(super) fn in_other(directory: &Path) -> Vec<PathBuf> {
    let git = directory.join(".git");
    let names = project_files::settings().chain(INSTRUCTION_FILES).map(|name| directory.join(name));
    let mut paths: Vec<PathBuf> = names.filter(|path| path.symlink_metadata().is_ok()).collect();
    if git.symlink_metadata().is_ok() {
        paths.extend(git_files(&git));
    }
    // The directory of a repository itself.
    if directory.join("HEAD").exists() && directory.join("objects").is_dir() {
        paths.extend(git_files(directory));
    }
    paths
}

/// Instruction files of a workspace that exist, and those that do not. Placeholders for the latter would be visible to every
/// command that lists the workspace.
pub(super) fn instruction_files(workspace: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let files = INSTRUCTION_FILES.into_iter().map(|name| workspace.join(name));
    files.partition(|file| file.symlink_metadata().is_ok())
}

/// Protected paths of a home directory.
pub(super) fn in_home(home: &Path) -> impl Iterator<Item = PathBuf> {
    HOME_FILES.map(|name| home.join(name)).into_iter()
}

/// Control files of a repository. In a worktree and a submodule, `.git` is a file that names the directory.
pub(super) fn git_files(git: &Path) -> Vec<PathBuf> {
    let control = |directory: &Path| GIT_CONTROL.map(|name| directory.join(name));
    if !git.metadata().is_ok_and(|metadata| metadata.is_file()) {
        let mut files: Vec<PathBuf> = control(git).into();
        files.extend(submodules(&git.join("modules"), 0).iter().flat_map(|directory| control(directory)));
        return files;
    };
    let mut files = vec![git.to_path_buf()];
    if let Some(line) = git_link(git)
        && let Some(target) = line.strip_prefix("gitdir: ")
        && let Ok(directory) = git.with_file_name("").join(target.trim()).canonicalize()
    {
        files.extend(control(&directory));
        // A submodule has none, and git would misread a placeholder for it.
        files.extend(Some(redirection(&directory)).filter(|file| file.exists()));
    }
    files
}

/// File of a git directory that leads to another configuration. git would misread a placeholder for it.
pub(super) fn redirection(git: &Path) -> PathBuf {
    git.join("commondir")
}

/// The same files of the submodules of a repository.
pub(super) fn redirections_of_submodules(git: &Path) -> impl Iterator<Item = PathBuf> {
    submodules(&git.join("modules"), 0).into_iter().map(|directory| redirection(&directory))
}

/// Git directories of submodules, which may be nested in directories.
fn submodules(modules: &Path, depth: usize) -> Vec<PathBuf> {
    const MAX_DEPTH: usize = 8;
    let Ok(entries) = std::fs::read_dir(modules) else { return Vec::new() };
    let directories = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    let mut found = Vec::new();
    for directory in directories {
        if directory.join("HEAD").exists() {
            found.extend(submodules(&directory.join("modules"), depth + 1));
            found.push(directory);
        } else if depth < MAX_DEPTH {
            found.extend(submodules(&directory, depth + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_file_of_a_worktree_leads_to_its_directory() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let directory = root.join("main/.git/worktrees/w");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::create_dir(root.join("w")).unwrap();
        std::fs::write(root.join("w/.git"), "gitdir: ../main/.git/worktrees/w\n").unwrap();
        let files = git_files(&root.join("w/.git"));
        assert!(
            files.contains(&root.join("w/.git")) && files.contains(&directory.join("hooks")),
            "{files:?}"
        );
        assert!(git_files(&root.join("main/.git")).contains(&root.join("main/.git/config")));
    }

    #[test]
    fn git_file_of_a_submodule_needs_no_placeholder_that_git_reads() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let directory = root.join(".git/modules/libs/one");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::create_dir(root.join("one")).unwrap();
        std::fs::write(root.join("one/.git"), "gitdir: ../.git/modules/libs/one\n").unwrap();
        let redirection = directory.join("commondir");
        let files = git_files(&root.join("one/.git"));
        assert!(files.contains(&directory.join("config")) && !files.contains(&redirection), "{files:?}");
        assert_eq!(redirections_of_submodules(&root.join(".git")).collect::<Vec<_>>(), [&*redirection]);
        // A file that exists is protected.
        std::fs::write(&redirection, "elsewhere").unwrap();
        assert!(git_files(&root.join("one/.git")).contains(&redirection));
    }
}
