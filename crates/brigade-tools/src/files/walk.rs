//! Walks folders.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::beneath::{self, DIR_FLAGS, READ_FLAGS, Symlinks};
use super::guard::GuardCheck;
use super::list::{DirEntry, join, read_folder};
use super::workspace::require_regular;
use super::{EntryKind, FileError, Files, StopSignal, WalkLimit, read_bounded};

/// Maximum number of entries of all folders together.
const MAX_ENTRIES: usize = 500_000;

/// Maximum depth of a walk; each level keeps a folder open.
const MAX_DEPTH: usize = 64;

/// Maximum size of a `.gitignore`; a larger one is ignored.
const MAX_IGNORE_BYTES: u64 = 64 * 1024;

/// File that a walk visits.
pub(crate) struct WalkedFile<'a> {
    /// Path relative to the workspace, lossily converted to UTF-8.
    pub(crate) path: &'a str,
    /// Path relative to the start of the walk.
    pub(crate) below: &'a str,
    folder: &'a OwnedFd,
    entry: &'a DirEntry,
    guard: &'a GuardCheck<'a>,
}

impl WalkedFile<'_> {
    /// Type of the entry: a file or a link.
    pub(crate) fn kind(&self) -> EntryKind {
        self.entry.kind
    }

    /// Opens the file for reading, if it is still a regular file.
    pub(crate) fn open(&self) -> Result<File, FileError> {
        let fail = |cause| FileError::from_system(self.path, cause);
        let opened = beneath::open(self.folder, Path::new(&self.entry.name), READ_FLAGS, Symlinks::Refuse)
            .map_err(fail)?;
        let stat = rustix::fs::fstat(&opened).map_err(|errno| fail(errno.into()))?;
        require_regular(self.path, &stat)?;
        self.guard.file(self.path, &stat)?;
        Ok(File::from(opened))
    }
}

impl Files {
    /// Visits the files below a folder in path order. Files that the agent may not see, files ignored by
    /// `.gitignore` and the content of `.git` are skipped. Links are visited but not followed.
    pub(crate) fn walk(
        &self,
        path: &str,
        stop: &StopSignal,
        visit: &mut dyn FnMut(&WalkedFile<'_>) -> ControlFlow<()>,
    ) -> Result<Option<WalkLimit>, FileError> {
        let (folder, real) = self.open_folder(path)?;
        let ignores = self.ignores_above(&real);
        let start = real.to_string_lossy();
        let guard = self.guard.check(&self.workspace);
        let (files, guard, start) = (self, &guard, &*start);
        let mut walk = Walk { files, guard, start, stop, visit, ignores, hit_limit: None, left: MAX_ENTRIES };
        // A visitor that has enough results ends the walk, which is not a failure.
        let _ = walk.walk_folder(&folder, start, 0);
        Ok(walk.hit_limit)
    }

    /// Reads the `.gitignore` files of the parent folders, from the root down.
    fn ignores_above(&self, real: &Path) -> Vec<Gitignore> {
        let mut above: Vec<&Path> = real.ancestors().skip(1).collect();
        above.reverse();
        let rules = |path: &Path| {
            let folder = self.workspace.open_real(path, DIR_FLAGS).ok()?;
            ignore_file(&folder, &path.to_string_lossy())
        };
        above.into_iter().filter_map(rules).collect()
    }
}

struct Walk<'a> {
    files: &'a Files,
    guard: &'a GuardCheck<'a>,
    start: &'a str,
    stop: &'a StopSignal,
    visit: &'a mut dyn FnMut(&WalkedFile<'_>) -> ControlFlow<()>,
    ignores: Vec<Gitignore>,
    hit_limit: Option<WalkLimit>,
    left: usize,
}

impl Walk<'_> {
    fn walk_folder(&mut self, folder: &OwnedFd, path: &str, depth: usize) -> ControlFlow<()> {
        // A folder that cannot be read is skipped: the walk reports only what it can find.
        let Ok((entries, hit_limit)) = read_folder(folder) else { return ControlFlow::Continue(()) };
        self.hit_limit = self.hit_limit.or(hit_limit);
        let ignores = ignore_file(folder, path);
        let added = usize::from(ignores.is_some());
        self.ignores.extend(ignores);
        let outcome = entries.iter().try_for_each(|entry| self.walk_entry(folder, path, entry, depth));
        self.ignores.truncate(self.ignores.len() - added);
        outcome
    }

    fn walk_entry(
        &mut self,
        folder: &OwnedFd,
        path: &str,
        entry: &DirEntry,
        depth: usize,
    ) -> ControlFlow<()> {
        if self.stop.is_stopped() {
            self.hit_limit = Some(WalkLimit::Time);
            return ControlFlow::Break(());
        }
        if self.left == 0 {
            self.hit_limit = Some(WalkLimit::Size);
            return ControlFlow::Break(());
        }
        self.left -= 1;
        let path = join(path, &entry.name());
        if entry.name == ".git"
            || !self.files.can_list(&path, entry.kind)
            || self.is_ignored(&path, entry.kind)
        {
            return ControlFlow::Continue(());
        }
        match entry.kind {
            EntryKind::File | EntryKind::Link => {
                let below = path.strip_prefix(self.start).unwrap_or(&path).trim_start_matches('/');
                (self.visit)(&WalkedFile { path: &path, below, folder, entry, guard: self.guard })
            }
            EntryKind::Special => ControlFlow::Continue(()),
            EntryKind::Folder if depth >= MAX_DEPTH => {
                self.hit_limit = Some(WalkLimit::Size);
                ControlFlow::Continue(())
            }
            EntryKind::Folder => {
                match beneath::open(folder, Path::new(&entry.name), DIR_FLAGS, Symlinks::Refuse) {
                    // A private directory is skipped like one that cannot be read.
                    Ok(below) if self.guard.directory(&path, &below).is_err() => ControlFlow::Continue(()),
                    Ok(below) => self.walk_folder(&below, &path, depth + 1),
                    Err(_) => ControlFlow::Continue(()),
                }
            }
        }
    }

    /// Whether a path is ignored. The nearest `.gitignore` with a matching pattern decides.
    fn is_ignored(&self, path: &str, kind: EntryKind) -> bool {
        let rooted = format!("/{path}");
        let opinions =
            self.ignores.iter().rev().map(|rules| rules.matched(&rooted, kind == EntryKind::Folder));
        opinions.into_iter().find(|opinion| !opinion.is_none()).is_some_and(|opinion| opinion.is_ignore())
    }
}

/// Reads the `.gitignore` of a folder. The crate's own reader is not used because it would follow a link out of the
/// workspace and read from a device without end.
fn ignore_file(folder: &OwnedFd, path: &str) -> Option<Gitignore> {
    let opened = beneath::open(folder, Path::new(".gitignore"), READ_FLAGS, Symlinks::Refuse).ok()?;
    require_regular(path, &rustix::fs::fstat(&opened).ok()?).ok()?;
    let content = read_bounded(File::from(opened), MAX_IGNORE_BYTES).ok()??;
    let mut builder = GitignoreBuilder::new(format!("/{path}"));
    for line in String::from_utf8_lossy(&content).lines() {
        // A line that is not a valid pattern ignores nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok()
}
