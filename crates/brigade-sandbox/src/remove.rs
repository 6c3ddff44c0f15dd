//! Removal of directories that commands have written.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// Nesting from which directories are first moved up, because every level keeps descriptors open.
const MAX_DEPTH: usize = 32;

/// Removes a directory and everything in it, without following links. A missing one is removed already.
///
/// A command may have removed the permissions of its directories, and may have nested them deeply.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let name = path.as_os_str();
    let top = match enter(CWD, name) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(unlinkat(CWD, name, AtFlags::empty())?),
        Err(error) => return Err(error.into()),
    };
    let mut removal = Removal { top: &top, moved: 0 };
    loop {
        let before = removal.moved;
        removal.clear(&top, 0)?;
        if removal.moved == before {
            break;
        }
    }
    Ok(unlinkat(CWD, name, AtFlags::REMOVEDIR)?)
}

/// Opens a directory, with permission to change it.
fn enter(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(parent, name, flags, Mode::empty())?;
    let itself = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A directory of another user cannot be changed, and may be empty.
    let _ = rustix::fs::chmod(&itself, Mode::RWXU);
    openat(CWD, &itself, flags, Mode::empty())
}

struct Removal<'a> {
    top: &'a OwnedFd,
    moved: u64,
}

impl Removal<'_> {
    /// Removes the content of a directory, except directories that it moved up.
    fn clear(&mut self, directory: &OwnedFd, depth: usize) -> rustix::io::Result<()> {
        let names: Vec<_> = Dir::read_from(directory)?
            .map(|entry| entry.map(|entry| entry.file_name().to_owned()))
            .collect::<Result<_, _>>()?;
        for name in names {
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match remove_file(directory.as_fd(), &name)? {
                Removed::Yes => {}
                Removed::IsDirectory if depth >= MAX_DEPTH => self.move_up(directory, &name)?,
                Removed::IsDirectory => {
                    let below = enter(directory, OsStr::from_bytes(name.to_bytes()))?;
                    self.clear(&below, depth + 1)?;
                    unlinkat(directory, &name, AtFlags::REMOVEDIR)?;
                }
            }
        }
        Ok(())
    }

    fn move_up(&mut self, directory: &OwnedFd, name: &std::ffi::CStr) -> rustix::io::Result<()> {
        // The system demands write permission for a directory that gets another parent.
        drop(enter(directory, OsStr::from_bytes(name.to_bytes()))?);
        loop {
            self.moved += 1;
            match renameat(directory, name, self.top, format!("moved-{}", self.moved)) {
                // The command has used this name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                moved => return moved,
            }
        }
    }
}

enum Removed {
    Yes,
    IsDirectory,
}

fn remove_file(directory: BorrowedFd<'_>, name: &std::ffi::CStr) -> rustix::io::Result<Removed> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(Removed::Yes),
        Err(error) => {
            let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if is_directory { Ok(Removed::IsDirectory) } else { Err(error) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directories_without_permissions_and_deep_ones_are_removed_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        fs::create_dir_all(tree.join("closed/below")).unwrap();
        fs::write(tree.join("closed/below/file"), "x").unwrap();
        fs::write(root.path().join("kept"), "x").unwrap();
        std::os::unix::fs::symlink(root.path(), tree.join("link")).unwrap();
        // Deeper than descriptors and the length of a path would allow.
        let mut directory = rustix::fs::open(&tree, OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&directory, "0123456789", Mode::RWXU).unwrap();
            directory = openat(&directory, "0123456789", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        fs::set_permissions(tree.join("closed/below"), fs::Permissions::from_mode(0o0)).unwrap();
        fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o0)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && root.path().join("kept").exists());
        remove_tree(&tree).unwrap();
    }
}
