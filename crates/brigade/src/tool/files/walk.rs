//! Lists and walks folders.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brigade_core::permission::ActionKind;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, Dir, FileType};

use super::beneath::{self, DIR_FLAGS, READ_FLAGS, Symlinks};
use super::workspace::{escape_controls, require_regular};
use super::{FileError, Files, read_bounded, was_moved};

/// Maximum number of entries of one folder, and of all folders together.
const MAX_FOLDER_ENTRIES: usize = 50_000;
const MAX_ENTRIES: usize = 500_000;

/// Maximum depth of a walk; each level keeps a folder open.
const MAX_DEPTH: usize = 64;

/// Maximum size of a `.gitignore`; a larger one is ignored.
const MAX_IGNORE_BYTES: u64 = 64 * 1024;

/// Entry of a folder.
#[derive(Debug)]
pub(in crate::tool) struct DirEntry {
    name: OsString,
    pub(in crate::tool) kind: EntryKind,
}

/// Type of a folder entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool) enum EntryKind {
    File,
    Folder,
    /// Symbolic link, whatever its target.
    Link,
    /// A device, pipe or socket.
    Special,
}

impl DirEntry {
    /// Returns the name, lossily converted to UTF-8.
    pub(in crate::tool) fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Key that sorts entries so that the paths of a whole walk are sorted.
    fn sort_key(&self) -> Vec<u8> {
        let mut key = self.name.as_bytes().to_vec();
        if self.kind == EntryKind::Folder {
            key.push(b'/');
        }
        key
    }
}

/// File that a walk visits.
pub(in crate::tool) struct WalkedFile<'a> {
    /// Path relative to the workspace, lossily converted to UTF-8.
    pub(in crate::tool) path: &'a str,
    /// Path relative to the start of the walk.
    pub(in crate::tool) below: &'a str,
    folder: &'a OwnedFd,
    entry: &'a DirEntry,
}

impl WalkedFile<'_> {
    /// Type of the entry: a file or a link.
    pub(in crate::tool) fn kind(&self) -> EntryKind {
        self.entry.kind
    }

    /// Opens the file for reading, if it is still a regular file.
    pub(in crate::tool) fn open(&self) -> Result<File, FileError> {
        let fail = |cause| FileError::from_system(self.path, cause);
        let opened = beneath::open(self.folder, Path::new(&self.entry.name), READ_FLAGS, Symlinks::Refuse)
            .map_err(fail)?;
        let stat = rustix::fs::fstat(&opened).map_err(|errno| fail(errno.into()))?;
        require_regular(self.path, &stat)?;
        Ok(File::from(opened))
    }
}

/// Condition that ends a walk early.
#[derive(Debug, Clone)]
pub(in crate::tool) struct StopSignal {
    dropped: Arc<AtomicBool>,
    deadline: Instant,
}

impl StopSignal {
    /// Creates a signal that stops after this time, or when the flag is set.
    pub(in crate::tool) fn after(limit: Duration, dropped: Arc<AtomicBool>) -> StopSignal {
        StopSignal { dropped, deadline: Instant::now() + limit }
    }

    /// Whether the walk should stop.
    pub(in crate::tool) fn is_stopped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

/// Reason why a walk is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool) enum WalkLimit {
    /// The time limit was reached.
    Time,
    /// There are too many files, or they are nested too deeply.
    Size,
}

impl Files {
    /// Lists the visible entries of a folder, sorted, and the limit that cut the list, if any.
    pub(in crate::tool) fn list(&self, path: &str) -> Result<(Vec<DirEntry>, Option<WalkLimit>), FileError> {
        let (folder, real) = self.open_folder(path)?;
        let (entries, hit_limit) =
            read_folder(&folder).map_err(|cause| FileError::from_system(&escape_controls(path), cause))?;
        let visible =
            |entry: &DirEntry| self.can_list(&join(&real.to_string_lossy(), &entry.name()), entry.kind);
        Ok((entries.into_iter().filter(visible).collect(), hit_limit))
    }

    /// Visits the files below a folder in path order. Files that the agent may not see, files ignored by
    /// `.gitignore` and the content of `.git` are skipped. Links are visited but not followed.
    pub(in crate::tool) fn walk(
        &self,
        path: &str,
        stop: &StopSignal,
        visit: &mut dyn FnMut(&WalkedFile<'_>) -> ControlFlow<()>,
    ) -> Result<Option<WalkLimit>, FileError> {
        let (folder, real) = self.open_folder(path)?;
        let ignores = self.ignores_above(&real);
        let start = real.to_string_lossy();
        let mut walk =
            Walk { files: self, start: &start, stop, visit, ignores, hit_limit: None, left: MAX_ENTRIES };
        // A visitor that has enough results ends the walk, which is not a failure.
        let _ = walk.walk_folder(&folder, &start, 0);
        Ok(walk.hit_limit)
    }

    fn open_folder(&self, path: &str) -> Result<(OwnedFd, PathBuf), FileError> {
        let requested = self.workspace.parse_path(path)?;
        for _ in 0..super::OPEN_ATTEMPTS {
            // Parents of a permitted folder can be listed, but show only the entries that lead to it.
            if !self.leads_to_allowed_folder(&requested.lexical) {
                self.check_requested_path(&requested, ActionKind::Pure)?;
            }
            let found = self.workspace.resolve(&requested)?;
            if !self.leads_to_allowed_folder(&found.real.to_string_lossy()) {
                self.check_real_path(&requested, &found.real, ActionKind::Pure)?;
            }
            if FileType::from_raw_mode(found.stat.st_mode) != FileType::Directory {
                return Err(FileError::NotAFolder { path: requested.display });
            }
            match self.workspace.open_real(&found.real, DIR_FLAGS) {
                Ok(folder) => return Ok((folder, found.real)),
                Err(cause) if was_moved(&cause) => {}
                Err(cause) => return Err(FileError::from_system(&requested.display, cause)),
            }
        }
        Err(FileError::Busy { path: requested.display })
    }

    fn can_list(&self, real: &str, kind: EntryKind) -> bool {
        self.can_show(real)
            || (kind == EntryKind::Folder
                && self.leads_to_allowed_folder(real)
                && self.permissions.may_read(real))
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
                (self.visit)(&WalkedFile { path: &path, below, folder, entry })
            }
            EntryKind::Special => ControlFlow::Continue(()),
            EntryKind::Folder if depth >= MAX_DEPTH => {
                self.hit_limit = Some(WalkLimit::Size);
                ControlFlow::Continue(())
            }
            EntryKind::Folder => {
                match beneath::open(folder, Path::new(&entry.name), DIR_FLAGS, Symlinks::Refuse) {
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

fn read_folder(folder: &OwnedFd) -> std::io::Result<(Vec<DirEntry>, Option<WalkLimit>)> {
    let mut entries = Vec::new();
    let mut hit_limit = None;
    for found in Dir::read_from(folder)? {
        let found = found?;
        let name = OsString::from_vec(found.file_name().to_bytes().to_vec());
        if name == "." || name == ".." {
            continue;
        }
        if entries.len() == MAX_FOLDER_ENTRIES {
            hit_limit = Some(WalkLimit::Size);
            break;
        }
        let kind = kind_of(folder, &name, found.file_type());
        entries.push(DirEntry { name, kind });
    }
    entries.sort_by_cached_key(DirEntry::sort_key);
    Ok((entries, hit_limit))
}

fn kind_of(folder: &OwnedFd, name: &OsStr, listed_type: FileType) -> EntryKind {
    let kind = match listed_type {
        // Some file systems do not include the type in the listing.
        FileType::Unknown => rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        listed_type => listed_type,
    };
    match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Folder,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
