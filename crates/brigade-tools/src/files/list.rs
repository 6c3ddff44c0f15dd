//! Lists folders.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use brigade_core::permission::ActionKind;
use rustix::fs::{AtFlags, Dir, FileType};

use super::beneath::DIR_FLAGS;
use super::workspace::escape_controls;
use super::{FileError, Files, was_moved};

/// Maximum number of entries of one folder.
const MAX_FOLDER_ENTRIES: usize = 50_000;

/// Entry of a folder.
#[derive(Debug)]
pub(crate) struct DirEntry {
    pub(super) name: OsString,
    pub(crate) kind: EntryKind,
}

/// Type of a folder entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Folder,
    /// Symbolic link, whatever its target.
    Link,
    /// A device, pipe or socket.
    Special,
}

impl DirEntry {
    /// Returns the name, lossily converted to UTF-8.
    pub(crate) fn name(&self) -> String {
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

/// Reason why a walk is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkLimit {
    /// The time limit was reached.
    Time,
    /// There are too many files, or they are nested too deeply.
    Size,
}

impl Files {
    /// Lists the visible entries of a folder, sorted, and the limit that cut the list, if any.
    pub(crate) fn list(&self, path: &str) -> Result<(Vec<DirEntry>, Option<WalkLimit>), FileError> {
        let (folder, real) = self.open_folder(path)?;
        let (entries, hit_limit) =
            read_folder(&folder).map_err(|cause| FileError::from_system(&escape_controls(path), cause))?;
        let place = self.workspace.root().join(&real);
        let visible = |entry: &DirEntry| {
            // A command that runs meanwhile has placeholders of protected files.
            let is_placeholder = || brigade_sandbox::is_placeholder(&place.join(&entry.name));
            self.can_list(&join(&real.to_string_lossy(), &entry.name()), entry.kind)
                && !(entry.kind == EntryKind::Folder && is_placeholder())
        };
        Ok((entries.into_iter().filter(visible).collect(), hit_limit))
    }

    pub(super) fn open_folder(&self, path: &str) -> Result<(OwnedFd, PathBuf), FileError> {
        let requested = self.workspace.parse_path(path)?;
        let guard = self.guard.check(&self.workspace);
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
            match self.open_guarded(&found.real, DIR_FLAGS, &guard, &requested.display) {
                Ok(folder) => {
                    let folder = folder?;
                    guard.directory(&requested.display, &folder)?;
                    return Ok((folder, found.real));
                }
                Err(cause) if was_moved(&cause) => {}
                Err(cause) => return Err(FileError::from_system(&requested.display, cause)),
            }
        }
        Err(FileError::Busy { path: requested.display })
    }

    pub(super) fn can_list(&self, real: &str, kind: EntryKind) -> bool {
        self.can_show(real)
            || (kind == EntryKind::Folder
                && self.leads_to_allowed_folder(real)
                && self.permissions.may_read(real))
    }
}

pub(super) fn read_folder(folder: &OwnedFd) -> std::io::Result<(Vec<DirEntry>, Option<WalkLimit>)> {
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

pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
