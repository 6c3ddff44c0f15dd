//! Symbolic links in git directories. git writes through them, so a command could make the user's next `git commit` change
//! any file.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, readlinkat, statat, unlinkat};

use super::planted::with_write_permission;
use crate::Sandbox;

/// Maximum number of entries that are visited.
const MAX_ENTRIES: usize = 100_000;

/// Maximum nesting of directories.
const MAX_DEPTH: usize = 32;

/// Directories of a git directory with many files, which git names by their content.
const CONTENT: [&str; 3] = ["annex", "lfs", "objects"];

/// Links in the git directories of a sandbox that lead out of them, as they were before a command.
pub(crate) struct GitLinks {
    directories: Vec<PathBuf>,
    before: BTreeSet<(PathBuf, OsString)>,
}

/// Link that leads out of its git directory.
struct Link {
    directory: File,
    name: OsString,
    path: PathBuf,
    target: OsString,
}

impl GitLinks {
    pub(crate) fn before(sandbox: &Sandbox) -> GitLinks {
        let directories = git_directories(sandbox);
        let before = links(&directories).into_iter().map(|link| (link.path, link.target)).collect();
        GitLinks { directories, before }
    }

    /// Deletes links that were not there before. Returns their paths.
    pub(crate) fn remove_new(self) -> Vec<OsString> {
        let mut removed = Vec::new();
        for Link { directory, name, path, target } in links(&self.directories) {
            let link = (path, target);
            if self.before.contains(&link) {
                continue;
            }
            let delete = || Ok(unlinkat(&directory, &name, AtFlags::empty())?);
            let is_deleted = with_write_permission(&directory, delete).is_ok();
            let mut path = link.0.into_os_string();
            path.push(if is_deleted { " (a link, deleted)" } else { " (a link; delete it)" });
            removed.push(path);
        }
        removed
    }
}

/// Git directories that commands can write to: those whose hooks are protected, and shared parts of others.
fn git_directories(sandbox: &Sandbox) -> Vec<PathBuf> {
    let is_git = |path: &Path| path.join("HEAD").symlink_metadata().is_ok();
    let hooks =
        sandbox.protected.iter().map(Path::new).filter(|path| path.file_name() == Some(OsStr::new("hooks")));
    let own = hooks.filter(|path| sandbox.writable_root(path).is_some()).filter_map(Path::parent);
    let shared = sandbox.writable.iter().map(Path::new).filter(|path| path.parent().is_some_and(is_git));
    let mut found: Vec<PathBuf> =
        own.filter(|path| is_git(path)).chain(shared).map(Path::to_path_buf).collect();
    found.sort();
    found.dedup();
    found
}

fn links(directories: &[PathBuf]) -> Vec<Link> {
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    for directory in directories {
        if let Ok(open) = openat(CWD, directory, DIRECTORY, Mode::empty()) {
            collect(File::from(open), directory, directory, 0, &mut left, &mut found);
        }
    }
    found
}

/// Opens a directory that is not a link.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn collect(open: File, path: &Path, root: &Path, depth: usize, left: &mut usize, found: &mut Vec<Link>) {
    let Ok(entries) = Dir::read_from(&open) else { return };
    for entry in entries.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." || CONTENT.iter().any(|content| name == *content) {
            continue;
        }
        let Some(rest) = left.checked_sub(1) else { return };
        *left = rest;
        let kind = match entry.file_type() {
            FileType::Unknown => statat(&open, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        let below = path.join(name);
        match kind {
            FileType::Directory if depth < MAX_DEPTH => {
                if let Ok(directory) = openat(&open, name, DIRECTORY, Mode::empty()) {
                    collect(File::from(directory), &below, root, depth + 1, left, found);
                }
            }
            FileType::Symlink => {
                let Ok(target) = readlinkat(&open, name, Vec::new()) else { continue };
                let target = OsString::from_vec(target.into_bytes());
                if !normalized(&path.join(&target)).starts_with(root)
                    && let Ok(directory) = open.try_clone()
                {
                    found.push(Link { directory, name: name.to_owned(), path: below, target });
                }
            }
            _ => {}
        }
    }
}

/// Resolves `.` and `..` without following links.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normalized.pop();
            }
            part => normalized.push(part),
        }
    }
    normalized
}
