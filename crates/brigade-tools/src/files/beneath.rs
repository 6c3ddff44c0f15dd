//! Opens paths beneath a folder, with the kernel keeping them inside.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

#[cfg(target_os = "linux")]
use rustix::fs::ResolveFlags;
use rustix::fs::{Mode, OFlags};
#[cfg(target_os = "linux")]
use rustix::io::Errno;

/// Treatment of symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symlinks {
    /// Follow a link as long as it stays inside.
    FollowInside,
    /// Fail at a link.
    Refuse,
}

/// Flags to inspect a path without opening it, so that no device or pipe is affected.
#[cfg(target_os = "linux")]
pub(super) const INSPECT_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Flags to inspect a path; systems without `O_PATH` have to open it.
#[cfg(not(target_os = "linux"))]
pub(super) const INSPECT_FLAGS: OFlags = READ_FLAGS;

/// Flags to open for reading without ever waiting, neither for the other end of a pipe nor for a terminal.
pub(super) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Flags to open a folder for listing and syncing.
pub(super) const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens `path` beneath `folder`.
///
/// The kernel returns `EAGAIN` if anything on the system is renamed while it resolves a `..`. That is rare and
/// short, so a few attempts are enough. A process that renames in a loop causes an error, not an escape.
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

/// Opens `path` beneath `folder`, one component at a time. Without `openat2` no symbolic link can be followed
/// safely, so none is followed.
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

/// Returns the real path of something that [`open`] opened, relative to the folder. The path may be outdated
/// immediately, so callers that rely on it open it again by this name and refuse links.
#[cfg(target_os = "linux")]
pub(super) fn real_path(folder: impl AsFd, opened: impl AsFd, _given: &Path) -> io::Result<PathBuf> {
    // The folder's own path is read each time, because a workspace may be moved while it is in use.
    let folder = path_of(folder)?;
    let opened = path_of(opened)?;
    opened.strip_prefix(&folder).map(Path::to_path_buf).map_err(|_| Errno::XDEV.into())
}

/// Returns the real path of something that [`open`] opened: the given path, because no link was followed.
#[cfg(not(target_os = "linux"))]
pub(super) fn real_path(_folder: impl AsFd, _opened: impl AsFd, given: &Path) -> io::Result<PathBuf> {
    normalize(given).ok_or_else(|| rustix::io::Errno::XDEV.into())
}

#[cfg(target_os = "linux")]
fn path_of(opened: impl AsFd) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd()))
}

/// Removes `.` and `..` lexically; `None` if the path leads above its start.
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
