//! Overlays of directories whose changes are discarded.
//!
//! Two overlays must not have the same upper layer at the same time. An overlay that several commands share is therefore
//! mounted once, in namespaces that consist of it alone. The runner keeps them alive by their descriptors, and each
//! command gets a clone of the mount.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{WaitOptions, pivot_root, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::failure::{Failure, at};
use super::init::map_user;
use super::mounts::{attach, create_dir, mount_tmpfs, take};
use crate::descriptors;
use crate::os;
use crate::protocol::{JobLayers, LAYERS, LayersMessage, Report};

/// Sources of the layers of a command: overlays that it shares, and a directory for those of its own.
#[derive(Default)]
pub(crate) struct LayerSources {
    shared: Vec<(PathBuf, OwnedFd)>,
    own: Option<PathBuf>,
    disk: Option<OwnedFd>,
}

impl LayerSources {
    /// Clones the shared overlays that a sandbox uses, and creates a directory for the others. The directory ends with the
    /// command. Without layers, the changes are in memory.
    pub(crate) fn open(
        layers: Option<&JobLayers>,
        namespaces: Option<&Namespaces>,
        discarded: &[OsString],
    ) -> (LayerSources, Option<OwnDirectory>) {
        let Some(layers) = layers else { return Default::default() };
        let mut sources = LayerSources::default();
        if let Some(namespaces) = namespaces {
            let wanted = layers.shared.iter().enumerate().filter(|(_, path)| discarded.contains(path));
            let (numbers, paths): (Vec<usize>, Vec<PathBuf>) =
                wanted.map(|(number, path)| (number, PathBuf::from(path))).unzip();
            let mounts = clone_mounts(namespaces, &numbers).unwrap_or_default();
            sources.shared = paths.into_iter().zip(mounts).collect();
        }
        let needs_own = sources.shared.len() < discarded.len();
        let own = needs_own.then(|| OwnDirectory::create(Path::new(&layers.directory)).ok()).flatten();
        sources.own = own.as_ref().map(|own| own.0.clone());
        (sources, own)
    }

    /// Opens the directory on the host before it is covered.
    pub(super) fn take(mut self) -> Result<LayerSources, Failure> {
        self.disk = self.own.as_deref().map(take).transpose()?;
        Ok(self)
    }

    /// Makes an overlay of each directory.
    pub(super) fn overlays(
        self,
        trees: Vec<(PathBuf, OwnedFd)>,
        work: &Path,
    ) -> Result<Vec<(PathBuf, OwnedFd)>, Failure> {
        let failed = || at::<io::Error>("create a discarded layer");
        let disk = work.join("disk");
        if let Some(tree) = &self.disk {
            create_dir(&disk).map_err(failed())?;
            attach(tree, &disk)?;
        }
        let mut overlays = Vec::new();
        for (number, (path, lower)) in trees.into_iter().enumerate() {
            let directory = work.join(format!("layer-{number}"));
            create_dir(&directory).map_err(failed())?;
            let merged = directory.join("merged");
            create_dir(&merged).map_err(failed())?;
            let shared = self.shared.iter().find(|(shared, _)| *shared == path);
            let is_shared = shared.is_some_and(|(_, mount)| attach(mount, &merged).is_ok());
            if !is_shared {
                let on_disk = disk.join(number.to_string());
                let is_on_disk = self.disk.is_some()
                    && create_dir(&on_disk).is_ok()
                    && mount_overlay(&lower, &directory, &on_disk).is_ok();
                // Not every file system can hold an upper layer.
                if !is_on_disk {
                    mount_overlay(&lower, &directory, &directory)?;
                }
            }
            overlays.push((path, take(&merged)?));
            unmount(&merged, UnmountFlags::DETACH).map_err(at("mount an overlay"))?;
        }
        Ok(overlays)
    }
}

/// Mounts an overlay of `lower` at `merged` in `place`. Its changes go to `layer`.
fn mount_overlay(lower: &OwnedFd, place: &Path, layer: &Path) -> Result<(), Failure> {
    let failed = || at::<io::Error>("create a discarded layer");
    let (below, upper, work) = (place.join("lower"), layer.join("upper"), layer.join("work"));
    for directory in [&below, &upper, &work] {
        match create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => created.map_err(failed())?,
        }
    }
    attach(lower, &below)?;
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr",
        below.display(),
        upper.display(),
        work.display()
    );
    let options = CString::new(options).map_err(io::Error::from).map_err(failed())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mounted = mount("overlay", place.join("merged"), "overlay", flags, options.as_c_str());
    // The overlay keeps its layers.
    unmount(&below, UnmountFlags::DETACH).map_err(at("mount an overlay"))?;
    mounted.map_err(at("mount an overlay"))
}

/// Directory for the layers of one command. It is removed when this is dropped.
pub(crate) struct OwnDirectory(PathBuf);

impl OwnDirectory {
    fn create(parent: &Path) -> io::Result<OwnDirectory> {
        let name = format!("command-{}", rustix::process::getpid().as_raw_nonzero());
        let path = parent.join(name);
        // A killed guard with the same process id may have left it behind.
        crate::remove_tree(&path)?;
        create_dir(&path)?;
        Ok(OwnDirectory(path))
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        let _ = crate::remove_tree(&self.0);
    }
}

/// User and mount namespace of shared overlays.
pub(crate) struct Namespaces {
    pub(crate) user: OwnedFd,
    pub(crate) mounts: OwnedFd,
}

/// Creates the overlays of a message, and sends the namespaces that hold them to the runner.
pub(crate) fn create_shared(message: &LayersMessage) -> Report {
    let cannot = |error: io::Error| Report::CannotConfine { reason: format!("cannot share layers: {error}") };
    let (mut reader, mut writer) = match io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return cannot(error),
    };
    let user = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let pid = match os::fork_into(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) {
        Ok(Some(pid)) => pid,
        Ok(None) => {
            drop(reader);
            let created = map_user(user).and_then(|()| create_in_namespace(message));
            let text = match created {
                Ok(created) => serde_json::to_string(&created).unwrap_or_default(),
                Err(failure) => failure.reason,
            };
            let _ = writer.write_all(text.as_bytes());
            os::exit_now(0)
        }
        Err(error) => return cannot(error),
    };
    drop(writer);
    let mut answer = String::new();
    let read = reader.read_to_string(&mut answer);
    let _ = waitpid(Some(pid), WaitOptions::empty());
    match read.and_then(|_| serde_json::from_str(&answer).map_err(|_| io::Error::other(answer))) {
        Ok(shared) => Report::LayersCreated { shared },
        Err(error) => cannot(error),
    }
}

/// Mounts the overlays in a namespace that contains nothing else. Returns the directories, in the order of their numbers.
fn create_in_namespace(message: &LayersMessage) -> Result<Vec<OsString>, Failure> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(at("make all mounts private"))?;
    let failed = || at::<io::Error>("create a shared layer");
    let disk = take(Path::new(&message.directory))?;
    let lowers: Vec<(&OsString, OwnedFd)> =
        message.shared.iter().filter_map(|path| Some((path, take(Path::new(path)).ok()?))).collect();
    let root = Path::new("/run");
    mount_tmpfs(root, "mode=700,size=1m").map_err(failed())?;
    create_dir(&root.join("disk")).map_err(failed())?;
    attach(&disk, &root.join("disk"))?;
    let own_pid = rustix::process::getpid().as_raw_nonzero();
    let mut created = Vec::new();
    for (path, lower) in lowers {
        let place = root.join(created.len().to_string());
        // An earlier attempt may have been interrupted.
        let layer = root.join("disk").join(format!("shared-{own_pid}-{}", created.len()));
        create_dir(&place).map_err(failed())?;
        create_dir(&place.join("merged")).map_err(failed())?;
        create_dir(&layer).map_err(failed())?;
        mount_overlay(&lower, &place, &layer)?;
        created.push(path.clone());
    }
    let namespace = |name: &str| fs::File::open(Path::new("/proc/self/ns").join(name));
    let user = namespace("user").map_err(failed())?;
    let mounts = namespace("mnt").map_err(failed())?;
    leave_host(root)?;
    descriptors::send(rustix::stdio::stdin(), LAYERS, &[user.as_fd(), mounts.as_fd()]).map_err(failed())?;
    Ok(created)
}

/// Detaches everything but this mount, so that no file system of the host is kept in use.
fn leave_host(root: &Path) -> Result<(), Failure> {
    let failed = || at("detach the file systems of the host");
    std::env::set_current_dir(root).map_err(failed())?;
    pivot_root(".", ".").map_err(io::Error::from).map_err(failed())?;
    unmount(".", UnmountFlags::DETACH).map_err(io::Error::from).map_err(failed())
}

/// Clones mounts of shared overlays. The clones belong to no namespace, so that one of another user namespace can attach
/// them. A child enters the namespaces, because this process could not return.
fn clone_mounts(namespaces: &Namespaces, numbers: &[usize]) -> io::Result<Vec<OwnedFd>> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let Some(pid) = os::fork_into(0)? else {
        drop(ours);
        let _ = send_clones(namespaces, numbers, &theirs);
        os::exit_now(0)
    };
    drop(theirs);
    let received = descriptors::receive(&ours, &mut [0]);
    let _ = waitpid(Some(pid), WaitOptions::empty());
    let (_, mounts) = received?;
    if mounts.len() == numbers.len() { Ok(mounts) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn send_clones(namespaces: &Namespaces, numbers: &[usize], socket: &OwnedFd) -> io::Result<()> {
    move_into_link_name_space(namespaces.user.as_fd(), Some(LinkNameSpaceType::User))?;
    move_into_link_name_space(namespaces.mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    let clone = |number: &usize| take(&Path::new("/").join(number.to_string()).join("merged"));
    let clones: Vec<OwnedFd> = numbers.iter().filter_map(|number| clone(number).ok()).collect();
    let clones: Vec<_> = clones.iter().map(AsFd::as_fd).collect();
    descriptors::send(socket, LAYERS, &clones)
}
