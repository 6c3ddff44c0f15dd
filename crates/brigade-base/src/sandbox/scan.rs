//! Search of a workspace for paths with special treatment, which reads again only what has changed.

use std::collections::HashMap;
use std::fs::{self, DirEntry, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brigade_core::permission::{self, Permissions, ProtectedPaths};
use brigade_core::project_files::{SecretName, secret_name};

use super::SandboxError;
use super::protected::{git_files, redirection, redirections_of_submodules};
use super::secrets;
use crate::clock;

/// Maximum number of files and directories in a workspace.
const MAX_ENTRIES: usize = 100_000;

/// Maximum nesting of directories.
const MAX_DEPTH: usize = 64;

/// Age from which the times of a file are reliable: a change in the same unit of time would not change them. The longest
/// unit of a file system is two seconds.
const SETTLED_AGE: Duration = Duration::from_secs(3);

/// Directories whose content is installed or generated. Rules with a path hold in them only if they name the whole directory.
const GENERATED: [&str; 8] =
    [".git", ".tox", ".venv", "__pycache__", "bower_components", "node_modules", "target", "venv"];

/// Paths of a workspace with special treatment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Secrets, and paths that a rule hides.
    pub(super) hidden: Vec<PathBuf>,
    /// Paths that a rule protects, and nested files that programs act upon.
    pub(super) protected: Vec<PathBuf>,
    /// Files of repositories that must not be created.
    pub(super) forbidden: Vec<PathBuf>,
}

/// Last search of a workspace. One value is for one workspace and the same rules.
#[derive(Default)]
pub(super) struct ScanCache {
    directories: HashMap<PathBuf, Listing>,
    file_systems: HashMap<u64, Times>,
}

/// Whether the times of directories on a file system show every change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Reliable,
    /// The file system is remote or unknown.
    Unreliable,
}

/// Content of a directory, as far as it matters.
#[derive(Default)]
struct Listing {
    /// Identity and times before it was read. `None` if it must be read again.
    stamp: Option<Stamp>,
    entries: usize,
    hidden: Vec<PathBuf>,
    protected: Vec<PathBuf>,
    /// Files that are hidden only if they contain a private key.
    keys: Vec<Key>,
    repositories: Vec<Repository>,
    below: Vec<Directory>,
}

/// Repository in the workspace.
struct Repository {
    /// Its `.git`.
    git: PathBuf,
    /// Whether it is below the root of the workspace, whose repository is protected by name.
    is_nested: bool,
}

/// File that may contain a private key.
struct Key {
    path: PathBuf,
    stamp: Option<Stamp>,
    is_private: bool,
}

/// Directory to visit.
#[derive(Clone)]
struct Directory {
    path: PathBuf,
    /// Path relative to the workspace.
    relative: String,
    depth: usize,
}

/// Identity and times of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
    size: u64,
}

impl ScanCache {
    /// Looks for secrets that no rule grants, for repositories, for files that programs act upon, and for files that a rule
    /// with a path denies or asks about. Links to directories are not followed: what they lead to is found at its own place.
    pub(super) fn scan(&mut self, workspace: &Path, permissions: &Permissions) -> Result<Scan, SandboxError> {
        self.scan_up_to(MAX_ENTRIES, workspace, permissions)
    }

    fn scan_up_to(
        &mut self,
        max_entries: usize,
        workspace: &Path,
        permissions: &Permissions,
    ) -> Result<Scan, SandboxError> {
        // Directories that no longer exist are not taken over.
        let mut before = std::mem::take(&mut self.directories);
        let mut scan = Scan::default();
        let mut entries: usize = 0;
        let root = Directory { path: workspace.to_path_buf(), relative: String::new(), depth: 0 };
        let mut pending = vec![root];
        while let Some(directory) = pending.pop() {
            let stamp = self.stamp(&directory.path);
            let known = before.remove(&directory.path).filter(|known| known.is_current(stamp.as_ref()));
            let mut listing = match known {
                Some(known) => known,
                None => Listing::read(&directory, permissions, max_entries)?,
            };
            // Only times from before the directory was read are valid for what was read.
            listing.stamp = stamp.as_ref().filter(|stamp| stamp.is_settled()).map(|stamp| stamp.stamp);
            entries = entries.saturating_add(listing.entries);
            if entries > max_entries {
                return Err(SandboxError::TooManyFiles { limit: max_entries });
            }
            for key in &mut listing.keys {
                key.refresh(self);
            }
            scan.hidden.extend(listing.hidden.iter().cloned());
            scan.hidden.extend(listing.keys.iter().filter(|key| key.is_private).map(|key| key.path.clone()));
            scan.protected.extend(listing.protected.iter().cloned());
            // A repository can refer to any directory, so it is read each time.
            for Repository { git, is_nested } in &listing.repositories {
                scan.forbidden.extend(redirections_of_submodules(git));
                if *is_nested {
                    scan.protected.extend(git_files(git));
                    scan.forbidden.push(redirection(git));
                }
            }
            pending.extend(listing.below.iter().cloned());
            self.directories.insert(directory.path, listing);
        }
        scan.protected = without_nested(scan.protected);
        Ok(scan)
    }

    /// Identity and times of a file. `None` if they cannot show whether it changes.
    fn stamp(&mut self, path: &Path) -> Option<TimedStamp> {
        let now = Duration::from_millis(clock::now());
        let metadata = path.symlink_metadata().ok().filter(|metadata| !metadata.is_symlink())?;
        let times = self.file_systems.entry(metadata.dev()).or_insert_with(|| times_of(path));
        (*times == Times::Reliable).then(|| TimedStamp { stamp: Stamp::of(&metadata), now })
    }
}

/// Identity and times of a file, and the time at which they were read.
struct TimedStamp {
    stamp: Stamp,
    /// Since 1970.
    now: Duration,
}

impl TimedStamp {
    /// Whether every later change changes the times.
    fn is_settled(&self) -> bool {
        let age = |(seconds, _): (i64, i64)| {
            self.now.checked_sub(Duration::from_secs(u64::try_from(seconds).ok()?))
        };
        let times = [self.stamp.modified, self.stamp.changed];
        times.into_iter().all(|time| age(time).is_some_and(|age| age >= SETTLED_AGE))
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            file: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            size: metadata.size(),
        }
    }
}

/// File systems of this machine, whose times the kernel sets. Others may report old ones.
#[cfg(target_os = "linux")]
fn times_of(path: &Path) -> Times {
    const LOCAL: [u64; 9] = [
        0x0102_1994, // tmpfs
        0x2fc1_2fc1, // zfs
        0x5846_5342, // xfs
        0x794c_7630, // overlayfs
        0x9123_683e, // btrfs
        0xca45_1a4e, // bcachefs
        0xef53,      // ext2, ext3, ext4
        0xf2f5_2010, // f2fs
        0x3153_464a, // jfs
    ];
    match rustix::fs::statfs(path) {
        Ok(file_system) if LOCAL.contains(&(file_system.f_type as u64 & 0xffff_ffff)) => Times::Reliable,
        Ok(_) | Err(_) => Times::Unreliable,
    }
}

#[cfg(not(target_os = "linux"))]
fn times_of(_path: &Path) -> Times {
    Times::Unreliable
}

impl Listing {
    /// Whether the directory still is as it was read.
    fn is_current(&self, found: Option<&TimedStamp>) -> bool {
        self.stamp.is_some() && self.stamp == found.map(|found| found.stamp)
    }

    /// Reads a directory, unless it has too many entries.
    fn read(
        directory: &Directory,
        permissions: &Permissions,
        max_entries: usize,
    ) -> Result<Listing, SandboxError> {
        let mut listing = Listing::default();
        // A directory that cannot be listed may still be entered, and its owner can make it readable.
        let Ok(found) = fs::read_dir(&directory.path) else {
            listing.hidden.push(directory.path.clone());
            return Ok(listing);
        };
        for entry in found {
            let Ok(entry) = entry else {
                listing.hidden.push(directory.path.clone());
                break;
            };
            listing.entries += 1;
            if listing.entries > max_entries {
                return Err(SandboxError::TooManyFiles { limit: max_entries });
            }
            listing.add(&entry, directory, permissions);
        }
        Ok(listing)
    }

    fn add(&mut self, entry: &DirEntry, directory: &Directory, permissions: &Permissions) {
        let (path, name) = (entry.path(), entry.file_name());
        let relative = match directory.relative.as_str() {
            "" => name.to_string_lossy().into_owned(),
            relative => format!("{relative}/{}", name.to_string_lossy()),
        };
        let kind = entry.file_type();
        let is_dir = kind.as_ref().is_ok_and(fs::FileType::is_dir);
        let secrecy = if is_dir { SecretName::No } else { secret_name(&name.to_string_lossy()) };
        let is_granted = || permissions.grants_secret(&ProtectedPaths::default(), &relative);
        let is_secret = secrecy == SecretName::Yes && !is_granted();
        if !permissions.may_read(&relative) || kind.is_err() || is_secret {
            self.hidden.push(path);
            return;
        }
        if secrecy == SecretName::MaybeKey && !is_granted() {
            self.keys.push(Key { path: path.clone(), stamp: None, is_private: false });
        }
        // A protected directory may contain secrets.
        if !permissions.may_edit(&relative) || permission::is_acted_upon(&relative) {
            self.protected.push(path.clone());
        }
        if name == ".git" {
            self.repositories.push(Repository { git: path.clone(), is_nested: directory.depth > 0 });
        }
        if is_dir && !GENERATED.iter().any(|generated| name == *generated) {
            match directory.depth < MAX_DEPTH {
                true => self.below.push(Directory { path, relative, depth: directory.depth + 1 }),
                false => self.hidden.push(path),
            }
        }
    }
}

/// Paths that are not below another one.
fn without_nested(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in paths {
        // In this order, what is below a path follows it directly.
        if !kept.last().is_some_and(|above| path.starts_with(above)) {
            kept.push(path);
        }
    }
    kept
}

impl Key {
    /// Reads the file again if it has changed. The target of a link is always read.
    fn refresh(&mut self, cache: &mut ScanCache) {
        let found = cache.stamp(&self.path);
        if self.stamp.is_some() && self.stamp == found.as_ref().map(|found| found.stamp) {
            return;
        }
        self.is_private = secrets::is_private_key(&self.path);
        self.stamp = found.filter(TimedStamp::is_settled).map(|found| found.stamp);
    }
}

#[cfg(test)]
mod tests;
