//! The file system of a sandbox, built by its first process in a mount namespace of its own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount,
    open_tree,
};

use super::failure::{Failure, at};
use super::layers::LayerSources;
use super::placeholders::{Placeholders, link_target};
use crate::Sandbox;
use crate::os::{MountAttributes, set_mount_attributes};

/// Directories that are empty and private inside.
const PRIVATE: [&str; 3] = ["/run", "/tmp", "/var/tmp"];

/// Devices that exist inside.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// Links in `/dev`.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Parts of `/proc` that change the kernel. Their owner could write them without any capability.
const KERNEL_SETTINGS: [&str; 6] = ["acpi", "bus", "fs", "irq", "sys", "sysrq-trigger"];

/// Maximum number of links on the way to a protected path.
const MAX_LINKS: usize = 40;

/// Directory for the covers of hidden paths and the layers of discarded directories. It is on a private file system, and is
/// covered at the end.
pub(super) const WORK: &str = "/run/.sandbox";

/// Builds the file system. Every mount that is made here stays: the command cannot change mounts.
pub(crate) fn build(
    sandbox: &Sandbox,
    placeholders: &Placeholders,
    layers: LayerSources,
) -> Result<(), Failure> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(at("make all mounts private"))?;
    // These are taken before everything becomes read-only or is covered.
    let writable = take_all(&sandbox.writable)?;
    let discarded = take_all(&sandbox.discarded)?;
    let visible = take_visible(sandbox)?;
    let sockets = take_all(&sandbox.sockets)?;
    let temporary = sandbox.temporary.as_deref().map(|path| take(Path::new(path))).transpose()?;
    let layers = layers.take()?;
    let devices = DEVICES.map(|name| (name, take(&Path::new("/dev").join(name))));
    let read_only = MountAttributes::READ_ONLY | MountAttributes::NO_SETUID;
    set_mount_attributes(CWD, "/", read_only, true).map_err(at("make the file system read-only"))?;

    mount_devices(devices, sandbox)?;
    mount_proc()?;
    for path in PRIVATE {
        mount_private(Path::new(path), sandbox)?;
    }
    if let Some(temporary) = temporary {
        attach(&temporary, Path::new("/tmp"))?;
    }
    create_dir(Path::new(WORK)).map_err(at("create a work directory"))?;
    let mut targets: Vec<(PathBuf, OwnedFd)> = visible.into_iter().chain(writable).chain(sockets).collect();
    targets.extend(layers.overlays(discarded, Path::new(WORK))?);
    // Of the same path, the writable one comes last and covers the other.
    targets.sort_by_key(|(path, _)| path.components().count());
    for (path, tree) in targets {
        create_mount_point(&tree, &path)?;
        attach(&tree, &path)?;
    }
    let mut pinned = Pinned::default();
    protect(sandbox, placeholders, &mut pinned)?;
    hide(sandbox, &mut pinned)?;
    // Hides the work directory. The mounts made from it stay.
    mount_tmpfs(Path::new(WORK), "mode=0,size=4k").map_err(at("cover the work directory"))?;
    set_mount_attributes(CWD, WORK, MountAttributes::READ_ONLY, false).map_err(at("cover the work directory"))
}

fn take_all(paths: &[std::ffi::OsString]) -> Result<Vec<(PathBuf, OwnedFd)>, Failure> {
    paths.iter().map(|path| Ok((PathBuf::from(path), take(Path::new(path))?))).collect()
}

/// Clones what stays visible below the private directories, read-only. Everything else is visible at its own place.
fn take_visible(sandbox: &Sandbox) -> Result<Vec<(PathBuf, OwnedFd)>, Failure> {
    let is_covered =
        |path: &&std::ffi::OsString| PRIVATE.iter().any(|private| Path::new(path).starts_with(private));
    let trees = sandbox.visible.iter().filter(is_covered).map(|path| {
        let tree = take(Path::new(path))?;
        let attributes = MountAttributes::READ_ONLY | MountAttributes::NO_SETUID;
        set_mount_attributes(&tree, "", attributes, true)
            .map_err(Failure::path("make read-only", Path::new(path)))?;
        Ok((PathBuf::from(path), tree))
    });
    trees.collect()
}

/// Clones the tree of mounts at a path, without following a link at its end.
pub(super) fn take(path: &Path) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(CWD, path, flags).map_err(Failure::path("use", path))
}

/// Mounts a tree that was taken, on a path whose last component is not followed if it is a link.
pub(super) fn attach(tree: &OwnedFd, path: &Path) -> Result<(), Failure> {
    let target = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let target = target.map_err(Failure::path("open", path))?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", &target, "", flags).map_err(Failure::path("mount", path))
}

pub(super) fn mount_tmpfs(path: &Path, options: &str) -> io::Result<()> {
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount("tmpfs", path, "tmpfs", flags, options.as_c_str())?)
}

/// Mounts an empty file system on a directory that the host has.
fn mount_private(path: &Path, sandbox: &Sandbox) -> Result<(), Failure> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => {
            mount_tmpfs(path, &private_options(sandbox)).map_err(at("mount a private directory"))
        }
        // A link leads to another private directory, or nowhere.
        _ => Ok(()),
    }
}

/// Options of a private directory. Its files are in memory, so they may take half of it.
fn private_options(sandbox: &Sandbox) -> String {
    const DEFAULT_SIZE: u64 = 1 << 30;
    let size = sandbox.limits.memory_bytes.map_or(DEFAULT_SIZE, |memory| memory / 2);
    format!("mode=1777,size={size}")
}

fn mount_devices(
    devices: [(&str, Result<OwnedFd, Failure>); DEVICES.len()],
    sandbox: &Sandbox,
) -> Result<(), Failure> {
    let failed = at::<io::Error>("create /dev");
    mount("tmpfs", "/dev", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, c"mode=755")
        .map_err(at("create /dev"))?;
    for (name, device) in devices {
        // A container may lack some of them.
        let Ok(device) = device else { continue };
        let path = Path::new("/dev").join(name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)
            .map_err(at("create /dev"))?;
        attach(&device, &path)?;
    }
    for (name, target) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, Path::new("/dev").join(name)).map_err(at("create /dev"))?;
    }
    create_dir(Path::new("/dev/shm")).map_err(failed)?;
    mount_tmpfs(Path::new("/dev/shm"), &private_options(sandbox)).map_err(at("create /dev/shm"))?;
    create_dir(Path::new("/dev/pts")).map_err(at("create /dev/pts"))?;
    let options = c"newinstance,ptmxmode=0666,mode=620";
    // Programs that need a terminal of their own fail without it. Nothing else does.
    let _ = mount("devpts", "/dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, options);
    set_mount_attributes(CWD, "/dev", MountAttributes::READ_ONLY, false).map_err(at("make /dev read-only"))
}

/// Mounts a `/proc` that shows only processes of the sandbox.
fn mount_proc() -> Result<(), Failure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None::<&std::ffi::CStr>).map_err(at("mount /proc"))?;
    for name in KERNEL_SETTINGS {
        let path = Path::new("/proc").join(name);
        if path.symlink_metadata().is_ok() {
            bind_read_only(&path)?;
        }
    }
    Ok(())
}

/// Creates the path on a private file system, if it is below one. Elsewhere it exists.
fn create_mount_point(tree: &OwnedFd, path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let failed = || Failure::path::<io::Error>("create, inside the sandbox,", path);
    let stat = rustix::fs::fstat(tree).map_err(io::Error::from).map_err(failed())?;
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let directory = if is_dir { Some(path) } else { path.parent() };
    if let Some(directory) = directory {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed())?;
    }
    if !is_dir {
        fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path).map_err(failed())?;
    }
    Ok(())
}

/// Directories and links that were made mount points, because a mount point cannot be renamed or removed.
#[derive(Default)]
struct Pinned {
    paths: BTreeSet<PathBuf>,
    /// Placeholders in layers whose changes are discarded.
    placeholders: BTreeSet<PathBuf>,
}

impl Pinned {
    /// Makes a directory a mount point, with the content that it has.
    fn directory(&mut self, path: &Path) -> Result<(), Failure> {
        if self.paths.insert(path.to_path_buf()) { attach(&take(path)?, path) } else { Ok(()) }
    }

    /// Makes a link a mount point.
    fn link(&mut self, path: &Path) -> Result<(), Failure> {
        if self.paths.insert(path.to_path_buf()) { bind_read_only(path) } else { Ok(()) }
    }

    /// Pins every directory between the writable root and a path.
    fn ancestors(&mut self, sandbox: &Sandbox, path: &Path) -> Result<(), Failure> {
        let Some(root) = sandbox.writable_root(path) else { return Ok(()) };
        let above: Vec<&Path> = path.ancestors().skip(1).take_while(|above| *above != root).collect();
        above.into_iter().rev().try_for_each(|above| self.directory(above))
    }
}

/// Makes the protected paths read-only, and every directory above them a mount point.
fn protect(sandbox: &Sandbox, placeholders: &Placeholders, pinned: &mut Pinned) -> Result<(), Failure> {
    let mut paths: Vec<PathBuf> = sandbox.protected.iter().map(PathBuf::from).collect();
    paths.sort();
    paths.dedup();
    paths.iter().try_for_each(|path| protect_path(sandbox, path, placeholders, pinned, 0))
}

fn protect_path(
    sandbox: &Sandbox,
    path: &Path,
    placeholders: &Placeholders,
    pinned: &mut Pinned,
    links: usize,
) -> Result<(), Failure> {
    let Some(root) = sandbox.writable_root(path) else { return Ok(()) };
    if links > MAX_LINKS {
        return Err(Failure::path("follow the links to", path)(io::Error::from(rustix::io::Errno::LOOP)));
    }
    let parts: Vec<&OsStr> = path.strip_prefix(&root).unwrap_or(path).iter().collect();
    let mut current = root;
    for (index, part) in parts.iter().enumerate() {
        current.push(part);
        let is_last = index + 1 == parts.len();
        let metadata = match current.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && sandbox.discards(&current) => {
                // Only the upper layer gets this placeholder.
                create_dir(&current).map_err(Failure::path("protect", &current))?;
                pinned.placeholders.insert(current.clone());
                return bind_read_only(&current);
            }
            Ok(_) if pinned.placeholders.contains(&current) => return Ok(()),
            found => found.map_err(Failure::path("protect", &current))?,
        };
        if metadata.is_symlink() {
            pinned.link(&current)?;
            let rest: PathBuf = parts[index + 1..].iter().collect();
            let Some(target) = link_target(&current, &rest) else { return Ok(()) };
            return protect_path(sandbox, &target, placeholders, pinned, links + 1);
        }
        if is_last || placeholders.contains(&current) || !metadata.is_dir() {
            return bind_read_only(&current);
        }
        pinned.directory(&current)?;
    }
    Ok(())
}

fn bind_read_only(path: &Path) -> Result<(), Failure> {
    let tree = take(path)?;
    set_mount_attributes(&tree, "", MountAttributes::READ_ONLY, true)
        .map_err(Failure::path("make read-only", path))?;
    attach(&tree, path)
}

/// Covers the hidden paths by an empty file or directory that cannot be opened.
fn hide(sandbox: &Sandbox, pinned: &mut Pinned) -> Result<(), Failure> {
    let (file, directory) = (Path::new(WORK).join("file"), Path::new(WORK).join("directory"));
    let failed = || at::<io::Error>("create covers of hidden paths");
    fs::OpenOptions::new().write(true).create_new(true).mode(0o000).open(&file).map_err(failed())?;
    fs::DirBuilder::new().mode(0o000).create(&directory).map_err(failed())?;
    let allowed: BTreeSet<&Path> = sandbox.sockets.iter().map(Path::new).collect();
    for path in &sandbox.hidden {
        // Hide the target of a symbolic link.
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            // In the workspace, it may have been moved meanwhile. Elsewhere there is nothing to hide.
            Err(error)
                if sandbox.writable_root(Path::new(path)).is_some() && !sandbox.discards(Path::new(path)) =>
            {
                return Err(Failure::path("hide", Path::new(path))(error));
            }
            Err(_) => continue,
        };
        let Ok(metadata) = real.symlink_metadata() else { continue };
        if allowed.contains(real.as_path()) {
            continue;
        }
        pinned.ancestors(sandbox, &real)?;
        let tree = take(if metadata.is_dir() { &directory } else { &file })?;
        set_mount_attributes(&tree, "", MountAttributes::READ_ONLY, false)
            .map_err(Failure::path("hide", &real))?;
        match attach(&tree, &real) {
            // A socket of the host was removed meanwhile.
            Err(_) if sandbox.writable_root(&real).is_none() && real.symlink_metadata().is_err() => {}
            attached => attached?,
        }
    }
    Ok(())
}

pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(path)
}
