//! Other names of hidden files: hard links in the workspace, mounts of the same directory elsewhere, and the files
//! that symbolic links in private directories lead to.

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use super::SandboxError;
use crate::private_files::{FileId, PrivateFiles};

/// Maximum number of files and directories that are searched for hard links.
const MAX_ENTRIES: usize = 500_000;

/// Adds the other names of hidden files. The private ones are also found under the names of their hard links.
pub(super) fn with_other_names(
    mut hidden: Vec<PathBuf>,
    workspace: &Path,
    private: &[PathBuf],
) -> Result<Vec<PathBuf>, SandboxError> {
    let private = PrivateFiles::new(private.to_vec());
    hidden.extend(private.link_targets());
    hidden.extend(hard_links(workspace, &private)?);
    if let Ok(mounts) = fs::read("/proc/self/mountinfo") {
        let mounts = parse_mounts(&mounts);
        let aliases: Vec<PathBuf> = hidden.iter().flat_map(|path| aliases(&mounts, path)).collect();
        hidden.extend(aliases);
    }
    Ok(hidden)
}

/// Hard links of private files in the workspace. It is searched only if a private file has several links.
fn hard_links(workspace: &Path, private: &PrivateFiles) -> Result<Vec<PathBuf>, SandboxError> {
    let linked = private.hard_linked();
    let mut found = Vec::new();
    if linked.is_empty() {
        return Ok(found);
    }
    let mut pending = vec![workspace.to_path_buf()];
    let mut entries = 0;
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(SandboxError::TooManyFiles { limit: MAX_ENTRIES });
            }
            let is_linked = || linked.iter().any(|id| id.inode == i128::from(entry.ino()));
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => pending.push(entry.path()),
                Ok(kind) if kind.is_file() && is_linked() => {
                    let is_same = entry.metadata().is_ok_and(|file| linked.contains(&FileId::of(&file)));
                    found.extend(is_same.then(|| entry.path()));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Mounted directory of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// Device, as `major:minor`.
    device: Vec<u8>,
    /// Directory of the file system that is mounted.
    root: PathBuf,
    /// Place of the mount.
    point: PathBuf,
}

fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let (device, root, point) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Mount { device: device.to_vec(), root: unescaped(root), point: unescaped(point) })
    };
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Path in which the kernel wrote spaces, tabs, line ends and backslashes as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = tail.get(if code.is_some() { 3 } else { 0 }..).unwrap_or_default();
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Other places at which the file system shows a path. A mount of a part of the directory counts too.
fn aliases(mounts: &[Mount], path: &Path) -> Vec<PathBuf> {
    let holds = |mount: &&Mount| path.starts_with(&mount.point);
    // A later mount covers an earlier one at the same place.
    let own = mounts.iter().filter(holds).max_by_key(|mount| mount.point.as_os_str().as_bytes().len());
    let Some(own) = own else { return Vec::new() };
    let Ok(below) = path.strip_prefix(&own.point) else { return Vec::new() };
    let inner = joined(&own.root, below);
    let others = mounts.iter().filter(|mount| mount.device == own.device && mount.point != own.point);
    let place = |mount: &Mount| match inner.strip_prefix(&mount.root) {
        Ok(below) => Some(joined(&mount.point, below)),
        Err(_) => mount.root.starts_with(&inner).then(|| mount.point.clone()),
    };
    others.filter_map(place).filter(|other| other != path).collect()
}

/// Joins without a slash at the end.
fn joined(directory: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { directory.to_path_buf() } else { directory.join(below) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
        23 22 0:20 / /proc rw - proc proc rw\n\
        24 22 8:1 /home/me/data /mnt/copy\\040of\\040data rw - ext4 /dev/sda1 rw\n\
        25 22 8:1 /home /srv/home rw - ext4 /dev/sda1 rw\n\
        26 22 8:1 /home/me/data/logins /work/logins rw - ext4 /dev/sda1 rw\n\
        27 22 8:2 /home/me/data /other rw - ext4 /dev/sda2 rw\n";

    #[test]
    fn mounts_of_the_same_directory_are_found() {
        let mounts = parse_mounts(MOUNTS);
        let places = |path: &str| {
            let mut found = aliases(&mounts, Path::new(path));
            found.sort();
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(places("/home/me/data"), ["/mnt/copy of data", "/srv/home/me/data", "/work/logins"]);
        assert_eq!(
            places("/home/me/data/logins"),
            ["/mnt/copy of data/logins", "/srv/home/me/data/logins", "/work/logins"]
        );
        assert_eq!(places("/srv/home/me/.ssh"), ["/home/me/.ssh"]);
        assert_eq!(places("/etc/passwd"), Vec::<String>::new());
        assert_eq!(places("/proc/1"), Vec::<String>::new());
    }

    #[test]
    fn no_text_of_the_kernel_is_misread() {
        assert_eq!(parse_mounts(b"\n1\n1 2\n1 2 3\n"), []);
        assert_eq!(unescaped(b"a\\134b\\04"), Path::new("a\\b\\04"));
        assert_eq!(unescaped(b"\\9991\\"), Path::new("\\9991\\"));
        assert_eq!(unescaped(b"\\777"), Path::new("\\777"));
    }

    #[test]
    fn hard_links_of_private_files_are_hidden_even_in_generated_directories() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for directory in ["data", "work/node_modules/x", "work/src"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("data/sessions.db"), "sessions").unwrap();
        fs::write(root.join("work/src/a"), "a").unwrap();
        fs::hard_link(root.join("work/src/a"), root.join("work/src/b")).unwrap();
        let hidden = |private: &str| {
            hard_links(&root.join("work"), &PrivateFiles::new(vec![root.join(private)])).unwrap()
        };
        assert_eq!(hidden("data"), Vec::<PathBuf>::new());
        let link = root.join("work/node_modules/x/link");
        fs::hard_link(root.join("data/sessions.db"), &link).unwrap();
        assert_eq!(hidden("data"), [link]);
        assert_eq!(hidden("missing"), Vec::<PathBuf>::new());
    }
}
