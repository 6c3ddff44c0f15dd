//! Looking through folders.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brigade_core::permission::Kind;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, Dir, FileType};

use super::beneath::{self, FOLDER, Links, READ};
use super::workspace::{require_regular, shown};
use super::{FileError, Files, moved, read_bounded};

/// How many entries of one folder, and of all folders together, are looked at.
const MAX_FOLDER_ENTRIES: usize = 50_000;
const MAX_ENTRIES: usize = 500_000;

/// How deep folders are looked through; each level holds a folder open.
const MAX_DEPTH: usize = 64;

/// Longer lists of ignored files are not believed.
const MAX_IGNORE_BYTES: u64 = 64 * 1024;

/// One thing in a folder.
#[derive(Debug)]
pub(in crate::tool) struct Entry {
    name: OsString,
    /// What it is.
    pub(in crate::tool) kind: EntryKind,
}

/// What a thing in a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool) enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, wherever it leads.
    Link,
    /// A device, pipe or socket.
    Special,
}

impl Entry {
    /// Its name, as far as it is text.
    pub(in crate::tool) fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Sorts entries such that the paths of a whole walk come out sorted.
    fn order(&self) -> Vec<u8> {
        let mut key = self.name.as_bytes().to_vec();
        if self.kind == EntryKind::Folder {
            key.push(b'/');
        }
        key
    }
}

/// A file that a walk came to.
pub(in crate::tool) struct Found<'a> {
    /// Its path relative to the workspace, as far as it is text.
    pub(in crate::tool) path: &'a str,
    /// Its path relative to where the walk began.
    pub(in crate::tool) below: &'a str,
    folder: &'a OwnedFd,
    entry: &'a Entry,
}

impl Found<'_> {
    /// What it is: a file or a link.
    pub(in crate::tool) fn kind(&self) -> EntryKind {
        self.entry.kind
    }

    /// Opens it for reading, if it is still a regular file.
    pub(in crate::tool) fn open(&self) -> Result<File, FileError> {
        let fail = |cause| FileError::from_system(self.path, cause);
        let opened =
            beneath::open(self.folder, Path::new(&self.entry.name), READ, Links::Refuse).map_err(fail)?;
        let stat = rustix::fs::fstat(&opened).map_err(|errno| fail(errno.into()))?;
        require_regular(self.path, &stat)?;
        Ok(File::from(opened))
    }
}

/// When a walk has to end before its end.
#[derive(Debug, Clone)]
pub(in crate::tool) struct Stop {
    dropped: Arc<AtomicBool>,
    until: Instant,
}

impl Stop {
    /// After this time, or when the flag is set.
    pub(in crate::tool) fn after(limit: Duration, dropped: Arc<AtomicBool>) -> Stop {
        Stop { dropped, until: Instant::now() + limit }
    }

    /// Whether it is time to end.
    pub(in crate::tool) fn reached(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) || Instant::now() >= self.until
    }
}

/// Why a walk did not see everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool) enum Cut {
    /// Its time was up.
    Time,
    /// There are too many files, or they are too deep.
    Size,
}

impl Files {
    /// What is in a folder and may be seen, sorted; and whether there is more.
    pub(in crate::tool) fn list(&self, path: &str) -> Result<(Vec<Entry>, Option<Cut>), FileError> {
        let (folder, real) = self.open_folder(path)?;
        let (entries, cut) =
            read_folder(&folder).map_err(|cause| FileError::from_system(&shown(path), cause))?;
        let visible = |entry: &Entry| self.sees(&join(&real.to_string_lossy(), &entry.name()), entry.kind);
        Ok((entries.into_iter().filter(visible).collect(), cut))
    }

    /// Visits the files below a folder in the order of their paths, without those that may not be seen, those that
    /// `.gitignore` names, and what is in `.git`. Links are visited but not followed.
    pub(in crate::tool) fn walk(
        &self,
        path: &str,
        stop: &Stop,
        visit: &mut dyn FnMut(&Found<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Cut>, FileError> {
        let (folder, real) = self.open_folder(path)?;
        let ignores = self.ignores_above(&real);
        let start = real.to_string_lossy();
        let mut walk =
            Walk { files: self, start: &start, stop, visit, ignores, cut: None, left: MAX_ENTRIES };
        // A visitor that has enough ends the walk, and that is no failure.
        let _ = walk.folder(&folder, &start, 0);
        Ok(walk.cut)
    }

    fn open_folder(&self, path: &str) -> Result<(OwnedFd, PathBuf), FileError> {
        let given = self.workspace.given(path)?;
        for _ in 0..super::ATTEMPTS {
            // Folders on the way to what may be touched can be looked into, and show only that way.
            if !self.leads_on(&given.lexical) {
                self.admit_name(&given, Kind::Pure)?;
            }
            let found = self.workspace.resolve(&given)?;
            if !self.leads_on(&found.real.to_string_lossy()) {
                self.admit_place(&given, &found.real, Kind::Pure)?;
            }
            if FileType::from_raw_mode(found.stat.st_mode) != FileType::Directory {
                return Err(FileError::NotAFolder { path: given.shown });
            }
            match self.workspace.open_real(&found.real, FOLDER) {
                Ok(folder) => return Ok((folder, found.real)),
                Err(cause) if moved(&cause) => {}
                Err(cause) => return Err(FileError::from_system(&given.shown, cause)),
            }
        }
        Err(FileError::Busy { path: given.shown })
    }

    fn sees(&self, real: &str, kind: EntryKind) -> bool {
        self.shows(real)
            || (kind == EntryKind::Folder && self.leads_on(real) && self.permissions.may_read(real))
    }

    /// The `.gitignore` files of the folders above a folder, from the root down.
    fn ignores_above(&self, real: &Path) -> Vec<Gitignore> {
        let mut above: Vec<&Path> = real.ancestors().skip(1).collect();
        above.reverse();
        let rules = |path: &Path| {
            let folder = self.workspace.open_real(path, FOLDER).ok()?;
            ignore_file(&folder, &path.to_string_lossy())
        };
        above.into_iter().filter_map(rules).collect()
    }
}

struct Walk<'a> {
    files: &'a Files,
    start: &'a str,
    stop: &'a Stop,
    visit: &'a mut dyn FnMut(&Found<'_>) -> ControlFlow<()>,
    ignores: Vec<Gitignore>,
    cut: Option<Cut>,
    left: usize,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &OwnedFd, path: &str, depth: usize) -> ControlFlow<()> {
        // A folder that cannot be read is left out: the walk is about what can be found.
        let Ok((entries, cut)) = read_folder(folder) else { return ControlFlow::Continue(()) };
        self.cut = self.cut.or(cut);
        let ignores = ignore_file(folder, path);
        let own = usize::from(ignores.is_some());
        self.ignores.extend(ignores);
        let outcome = entries.iter().try_for_each(|entry| self.entry(folder, path, entry, depth));
        self.ignores.truncate(self.ignores.len() - own);
        outcome
    }

    fn entry(&mut self, folder: &OwnedFd, path: &str, entry: &Entry, depth: usize) -> ControlFlow<()> {
        if self.stop.reached() {
            self.cut = Some(Cut::Time);
            return ControlFlow::Break(());
        }
        if self.left == 0 {
            self.cut = Some(Cut::Size);
            return ControlFlow::Break(());
        }
        self.left -= 1;
        let path = join(path, &entry.name());
        if entry.name == ".git" || !self.files.sees(&path, entry.kind) || self.is_ignored(&path, entry.kind) {
            return ControlFlow::Continue(());
        }
        match entry.kind {
            EntryKind::File | EntryKind::Link => {
                let below = path.strip_prefix(self.start).unwrap_or(&path).trim_start_matches('/');
                (self.visit)(&Found { path: &path, below, folder, entry })
            }
            EntryKind::Special => ControlFlow::Continue(()),
            EntryKind::Folder if depth >= MAX_DEPTH => {
                self.cut = Some(Cut::Size);
                ControlFlow::Continue(())
            }
            EntryKind::Folder => match beneath::open(folder, Path::new(&entry.name), FOLDER, Links::Refuse) {
                Ok(below) => self.folder(&below, &path, depth + 1),
                Err(_) => ControlFlow::Continue(()),
            },
        }
    }

    /// The nearest `.gitignore` that has an opinion decides.
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
    let opened = beneath::open(folder, Path::new(".gitignore"), READ, Links::Refuse).ok()?;
    require_regular(path, &rustix::fs::fstat(&opened).ok()?).ok()?;
    let content = read_bounded(File::from(opened), MAX_IGNORE_BYTES).ok()??;
    let mut builder = GitignoreBuilder::new(format!("/{path}"));
    for line in String::from_utf8_lossy(&content).lines() {
        // A line that is no pattern ignores nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok()
}

fn read_folder(folder: &OwnedFd) -> std::io::Result<(Vec<Entry>, Option<Cut>)> {
    let mut entries = Vec::new();
    let mut cut = None;
    for found in Dir::read_from(folder)? {
        let found = found?;
        let name = OsString::from_vec(found.file_name().to_bytes().to_vec());
        if name == "." || name == ".." {
            continue;
        }
        if entries.len() == MAX_FOLDER_ENTRIES {
            cut = Some(Cut::Size);
            break;
        }
        let kind = kind_of(folder, &name, found.file_type());
        entries.push(Entry { name, kind });
    }
    entries.sort_by_cached_key(Entry::order);
    Ok((entries, cut))
}

fn kind_of(folder: &OwnedFd, name: &OsStr, told: FileType) -> EntryKind {
    let kind = match told {
        // Some file systems do not say it in the listing.
        FileType::Unknown => rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        told => told,
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
