//! Opening what is beneath a folder, such that the kernel keeps the path inside.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

#[cfg(target_os = "linux")]
use rustix::fs::ResolveFlags;
use rustix::fs::{Mode, OFlags};
#[cfg(target_os = "linux")]
use rustix::io::Errno;

/// What happens at a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symlinks {
    /// It is followed as long as it stays inside.
    FollowInside,
    /// It is an error.
    Refuse,
}

/// Looks at something without opening it, so that no device or pipe notices.
#[cfg(target_os = "linux")]
pub(super) const INSPECT_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Looks at something; systems without `O_PATH` have to open it.
#[cfg(not(target_os = "linux"))]
pub(super) const INSPECT_FLAGS: OFlags = READ_FLAGS;

/// Opens for reading and never waits, neither for the other end of a pipe nor for a terminal.
pub(super) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a folder for listing and for syncing.
pub(super) const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens `path` beneath `folder`.
///
/// The kernel gives up with `EAGAIN` when anything on the system is renamed while it walks over a `..`. That is
/// rare and over at once, so a few attempts are enough; whoever renames in a loop gets an error, not a way out.
#[cfg(target_os = "linux")]
pub(super) fn open(folder: impl AsFd, path: &Path, flags: OFlags, symlinks: Symlinks) -> io::Result<OwnedFd> {
    const ATTEMPTS: usize = 64;
    let resolve = match symlinks {
        Symlinks::FollowInside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Symlinks::Refuse => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    };
    let mut outcome = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        outcome = rustix::fs::openat2(folder.as_fd(), path, flags, Mode::empty(), resolve);
        match outcome {
            Err(Errno::AGAIN | Errno::INTR) => std::thread::yield_now(),
            _ => break,
        }
    }
    Ok(outcome?)
}

/// Opens `path` beneath `folder`, one name at a time. Without `openat2` no symbolic link can be followed safely, so
/// none is.
#[cfg(not(target_os = "linux"))]
pub(super) fn open(
    folder: impl AsFd,
    path: &Path,
    flags: OFlags,
    _symlinks: Symlinks,
) -> io::Result<OwnedFd> {
    let outside = || io::Error::from(rustix::io::Errno::XDEV);
    let path = normalize(path).ok_or_else(outside)?;
    let names: Vec<OsString> = path.iter().map(OsString::from).collect();
    let Some((last, parents)) = names.split_last() else {
        return Ok(rustix::fs::openat(folder, ".", flags, Mode::empty())?);
    };
    let mut current = rustix::fs::openat(folder, ".", DIR_FLAGS, Mode::empty())?;
    for name in parents {
        current = rustix::fs::openat(&current, name, DIR_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(rustix::fs::openat(&current, last, flags | OFlags::NOFOLLOW, Mode::empty())?)
}

/// Where something that [`open`] opened really is, relative to the folder. The answer may be out of date at once, so
/// whoever relies on it opens it again by this name and refuses links.
#[cfg(target_os = "linux")]
pub(super) fn real_path(folder: impl AsFd, opened: impl AsFd, _given: &Path) -> io::Result<PathBuf> {
    // The folder's own path is asked for each time, because a workspace may be moved while it is in use.
    let folder = path_of(folder)?;
    let opened = path_of(opened)?;
    opened.strip_prefix(&folder).map(Path::to_path_buf).map_err(|_| Errno::XDEV.into())
}

/// Where something that [`open`] opened really is: as no link was followed, where its name says.
#[cfg(not(target_os = "linux"))]
pub(super) fn real_path(_folder: impl AsFd, _opened: impl AsFd, given: &Path) -> io::Result<PathBuf> {
    normalize(given).ok_or_else(|| rustix::io::Errno::XDEV.into())
}

#[cfg(target_os = "linux")]
fn path_of(opened: impl AsFd) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd()))
}

/// The path without `.` and `..`, by its text alone; none where it leads above its start.
pub(super) fn normalize(path: &Path) -> Option<PathBuf> {
    let mut names: Vec<OsString> = Vec::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_owned()),
            Component::ParentDir => {
                names.pop()?;
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(names.iter().collect())
}
