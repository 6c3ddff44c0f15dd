//! Project files that need trust, and their hash.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use brigade_core::Hash;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::units;

// A directory that contains one of the covered ones is a project.
pub(crate) use brigade::project_files::{MCP_FILE, covered_dirs};

/// Configuration of a project.
const SETTINGS_FILES: [&str; 2] = [".brigade/config.toml", ".brigade/config.json"];
/// Names of the folders in `covered_dirs`, and in `.brigade`, that contain agents.
const AGENT_FOLDERS: [&str; 3] = ["agents", "agent", "droids"];
/// File that makes a folder a skill.
const SKILL_FILE: &str = "SKILL.md";

/// Maximum size of one file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum size of all files together.
const MAX_TOTAL_BYTES: u64 = 32 * 1024 * 1024;
/// Maximum number of files, folders and links.
const MAX_ENTRIES: usize = 5_000;
/// Maximum nesting of folders.
const MAX_DEPTH: usize = 32;

const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags for reading without blocking, in case a pipe replaced the file.
const READ_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Content at a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileContent {
    /// Regular file with these bytes.
    File(Vec<u8>),
    /// Symbolic link with this target. It is never followed.
    Link(PathBuf),
    /// Other kind of file, such as a pipe. It is never opened.
    Other(&'static str),
}

/// Cause for which a project cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: std::io::Error },
    /// A file disappeared or was replaced.
    #[error("{} {event} while it was being read", path.display())]
    Changed { path: PathBuf, event: &'static str },
    /// Directories are nested too deeply.
    #[error("{} is nested more than {MAX_DEPTH} directories deep", .0.display())]
    TooDeep(PathBuf),
    /// There are too many files.
    #[error("there are more than {MAX_ENTRIES} files")]
    TooManyFiles,
    /// A file is too large.
    #[error("{} is larger than 1 MiB", .0.display())]
    FileTooLarge(PathBuf),
    /// The files are too large in total.
    #[error("the files are larger than 32 MiB in total")]
    TooLarge,
}

/// Project files that need trust, by their path in the project.
#[derive(Debug, Default)]
pub(crate) struct ProjectFiles {
    entries: BTreeMap<PathBuf, FileContent>,
}

impl ProjectFiles {
    /// Reads the files. A project that exceeds the limits or cannot be read completely cannot be trusted; the error
    /// names the cause.
    pub(crate) fn read(root: &Path) -> Result<ProjectFiles, ScanError> {
        let folder = rustix::fs::open(root, DIR_FLAGS, Mode::empty())
            .map_err(|error| ScanError::Unreadable { path: root.to_owned(), cause: error.into() })?;
        let mut scan = Scan { root, files: ProjectFiles::default(), count: 0, bytes: 0 };
        for covered in covered_dirs() {
            scan.covered_dir(folder.as_fd(), Path::new(covered))?;
        }
        let servers = Path::new(MCP_FILE);
        if scan
            .kind(folder.as_fd(), servers.as_os_str(), servers)?
            .is_some_and(|kind| kind != FileType::Directory)
        {
            scan.entry(folder.as_fd(), servers.as_os_str(), servers, 0)?;
        }
        Ok(scan.files)
    }

    /// Hash of all paths and their content.
    pub(crate) fn hash(&self) -> Hash {
        let start = Hash::of(b"the files of a project");
        self.iter().fold(start, |hash, (path, content)| {
            let path = path.as_os_str().as_bytes();
            match content {
                FileContent::File(bytes) => hash.chain("file", &[path, bytes]),
                FileContent::Link(target) => hash.chain("link", &[path, target.as_os_str().as_bytes()]),
                FileContent::Other(kind) => hash.chain("other", &[path, kind.as_bytes()]),
            }
        })
    }

    /// Summary of the contents, such as "settings, 2 agents".
    pub(crate) fn contents(&self) -> String {
        let is_agent_folder = |part: &OsStr| AGENT_FOLDERS.iter().any(|folder| part == *folder);
        let agents: BTreeSet<PathBuf> = self
            .entries
            .keys()
            .filter(|path| path.iter().nth(1).is_some_and(is_agent_folder))
            .map(|path| path.iter().take(3).collect())
            .collect();
        let skills =
            self.entries.keys().filter(|path| path.file_name() == Some(OsStr::new(SKILL_FILE))).count();
        let has_settings = SETTINGS_FILES.iter().any(|file| self.get(file).is_some());
        let mut found = Vec::new();
        found.extend(has_settings.then(|| "settings".to_owned()));
        found.extend(self.get(MCP_FILE).map(|_| "MCP servers".to_owned()));
        for (number, what) in [(agents.len(), "agent"), (skills, "skill")] {
            found.extend((number > 0).then(|| units::count(number, what)));
        }
        found.join(", ")
    }

    /// Content at a path, if there is any.
    pub(crate) fn get(&self, path: impl AsRef<Path>) -> Option<&FileContent> {
        self.entries.get(path.as_ref())
    }

    /// All entries, ordered by path.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Path, &FileContent)> {
        self.entries.iter().map(|(path, content)| (path.as_path(), content))
    }
}

/// Scan of a project. It opens one path component at a time, so that no link leads out of the project.
struct Scan<'a> {
    root: &'a Path,
    files: ProjectFiles,
    count: usize,
    bytes: u64,
}

impl Scan<'_> {
    /// Reads one of the covered folders, if it exists.
    fn covered_dir(&mut self, folder: impl AsFd, covered: &Path) -> Result<(), ScanError> {
        let mut path = PathBuf::new();
        let mut current: Option<OwnedFd> = None;
        for name in covered {
            let above = current.as_ref().map_or(folder.as_fd(), AsFd::as_fd);
            path.push(name);
            let opened = match self.kind(above, name, &path)? {
                Some(FileType::Directory) => self.open(above, name, DIR_FLAGS, &path)?,
                Some(FileType::Symlink) => return self.entry(above, name, &path, 0),
                Some(_) | None => return Ok(()),
            };
            current = Some(opened);
        }
        current.map_or(Ok(()), |opened| self.folder(opened, covered, 0))
    }

    fn folder(&mut self, folder: OwnedFd, path: &Path, depth: usize) -> Result<(), ScanError> {
        if depth > MAX_DEPTH {
            return Err(ScanError::TooDeep(self.root.join(path)));
        }
        let mut names: Vec<CString> = Vec::new();
        let entries = Dir::read_from(&folder).map_err(|error| self.unreadable(path, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.unreadable(path, error))?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            self.count += 1;
            if self.count > MAX_ENTRIES {
                return Err(ScanError::TooManyFiles);
            }
            names.push(entry.file_name().to_owned());
        }
        names.sort();
        for name in names {
            let name = OsStr::from_bytes(name.to_bytes());
            self.entry(folder.as_fd(), name, &path.join(name), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, folder: impl AsFd, name: &OsStr, path: &Path, depth: usize) -> Result<(), ScanError> {
        let content = match self.kind(folder.as_fd(), name, path)? {
            None => return Err(ScanError::Changed { path: self.root.join(path), event: "disappeared" }),
            Some(FileType::Directory) => {
                let inner = self.open(folder, name, DIR_FLAGS, path)?;
                return self.folder(inner, path, depth + 1);
            }
            Some(FileType::RegularFile) => FileContent::File(self.file(folder, name, path)?),
            Some(FileType::Symlink) => {
                let target = rustix::fs::readlinkat(folder, name, Vec::new())
                    .map_err(|error| self.unreadable(path, error))?;
                FileContent::Link(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
            }
            Some(FileType::Fifo) => FileContent::Other("pipe"),
            Some(FileType::Socket) => FileContent::Other("socket"),
            Some(FileType::CharacterDevice | FileType::BlockDevice) => FileContent::Other("device"),
            Some(_) => FileContent::Other("unknown"),
        };
        self.files.entries.insert(path.to_path_buf(), content);
        Ok(())
    }

    fn file(&mut self, folder: impl AsFd, name: &OsStr, path: &Path) -> Result<Vec<u8>, ScanError> {
        let opened = self.open(folder, name, READ_FLAGS, path)?;
        let stat = rustix::fs::fstat(&opened).map_err(|error| self.unreadable(path, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(ScanError::Changed { path: self.root.join(path), event: "was replaced" });
        }
        let mut bytes = Vec::new();
        let read = File::from(opened).take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
        let length = read.map_err(|error| self.unreadable(path, error))? as u64;
        if length > MAX_FILE_BYTES {
            return Err(ScanError::FileTooLarge(self.root.join(path)));
        }
        self.bytes += length;
        if self.bytes > MAX_TOTAL_BYTES {
            return Err(ScanError::TooLarge);
        }
        Ok(bytes)
    }

    /// File type, without opening the file.
    fn kind(&self, folder: impl AsFd, name: &OsStr, path: &Path) -> Result<Option<FileType>, ScanError> {
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(self.unreadable(path, error)),
        }
    }

    fn open(
        &self,
        folder: impl AsFd,
        name: &OsStr,
        flags: OFlags,
        path: &Path,
    ) -> Result<OwnedFd, ScanError> {
        rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(|error| self.unreadable(path, error))
    }

    fn unreadable(&self, path: &Path, error: impl Into<std::io::Error>) -> ScanError {
        ScanError::Unreadable { path: self.root.join(path), cause: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(files: &[(&str, &str)]) -> Hash {
        let entries = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), FileContent::File(text.as_bytes().to_vec())));
        ProjectFiles { entries: entries.collect() }.hash()
    }

    #[test]
    fn hash_separates_names_from_content() {
        let all = [
            hash(&[]),
            hash(&[("a", "bc")]),
            hash(&[("ab", "c")]),
            hash(&[("a", ""), ("b", "c")]),
            hash(&[("a", "b"), ("c", "")]),
        ];
        for (place, one) in all.iter().enumerate() {
            assert!(all[place + 1..].iter().all(|other| other != one), "{place}");
        }
        assert_eq!(hash(&[("a", "1"), ("b", "2")]), hash(&[("b", "2"), ("a", "1")]));
    }

    #[test]
    fn only_covered_dirs_are_hashed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write(".claude/agents/deep/a.md", "one");
        write(".claude/settings.json", "{}");
        write("src/main.rs", "");
        let before = ProjectFiles::read(folder.path()).unwrap();
        let paths: Vec<&Path> = before.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, [Path::new(".claude/agents/deep/a.md")]);
        write("src/main.rs", "fn main() {}");
        assert_eq!(ProjectFiles::read(folder.path()).unwrap().hash(), before.hash());
        write(".claude/skills/s/SKILL.md", "two");
        assert_ne!(ProjectFiles::read(folder.path()).unwrap().hash(), before.hash());
    }

    #[test]
    fn symlink_is_recorded_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(outside.path().join("agents")).unwrap();
        std::fs::write(outside.path().join("agents/a.md"), "secret").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join(".claude")).unwrap();
        let files = ProjectFiles::read(folder.path()).unwrap();
        assert_eq!(files.iter().count(), 1);
        assert_eq!(files.get(".claude"), Some(&FileContent::Link(outside.path().to_path_buf())));
    }
}
