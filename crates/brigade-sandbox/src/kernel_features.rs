//! Kernel features that could confine a command.
//!
//! Detection reads kernel settings only. A container may still refuse a feature.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Confinement features of this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFeatures {
    /// Version of Landlock, which restricts access to files and ports, or `None` if it is missing or
    /// disabled.
    pub landlock: Option<u32>,
    /// Whether seccomp filters are available.
    pub seccomp: bool,
    /// Whether unprivileged users can create user namespaces.
    pub user_namespaces: Namespaces,
    /// Whether memory and CPU usage can be limited for a group of processes.
    pub cgroups: Cgroups,
}

/// Availability of unprivileged user namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Available, according to the kernel settings.
    Open,
    /// Disabled by this kernel setting.
    Closed(&'static str),
    /// Not supported by the kernel.
    Missing,
}

/// Availability of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// Version 2, and this process may create groups below its own.
    Delegated,
    /// Version 2, but the group of this process belongs to another user.
    Foreign,
    /// Only version 1.
    Old,
    /// Not available.
    Missing,
}

impl KernelFeatures {
    /// Detects the features. Nothing is changed or tried out.
    pub fn detect() -> KernelFeatures {
        KernelFeatures {
            landlock: crate::os::landlock_version(),
            seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
            user_namespaces: namespaces(Path::new("/proc")),
            cgroups: cgroups(Path::new("/proc"), Path::new("/sys/fs/cgroup")),
        }
    }
}

/// Tries to create namespaces and to change a mount in them, as a sandbox does. Settings alone do not tell: a container may
/// refuse either.
#[cfg(target_os = "linux")]
pub fn namespaces_work() -> bool {
    use rustix::mount::{MountPropagationFlags, mount_change};
    use rustix::process::{WaitOptions, waitpid};
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET;
    match crate::os::fork_into(namespaces) {
        Err(_) => false,
        Ok(None) => {
            let changed = mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC);
            crate::os::exit_now(i32::from(changed.is_err()))
        }
        Ok(Some(child)) => {
            let status = waitpid(Some(child), WaitOptions::empty()).ok().flatten();
            status.is_some_and(|(_, status)| status.exit_status() == Some(0))
        }
    }
}

/// Whether namespaces can be used. Only Linux has them.
#[cfg(not(target_os = "linux"))]
pub fn namespaces_work() -> bool {
    false
}

fn namespaces(proc: &Path) -> Namespaces {
    let read = |name: &str| fs::read_to_string(proc.join(name)).ok();
    let is = |name: &str, value: &str| read(name).is_some_and(|text| text.trim() == value);
    if !proc.join("self/ns/user").exists() {
        return Namespaces::Missing;
    }
    if is("sys/user/max_user_namespaces", "0") {
        return Namespaces::Closed("user.max_user_namespaces");
    }
    if is("sys/kernel/unprivileged_userns_clone", "0") {
        return Namespaces::Closed("kernel.unprivileged_userns_clone");
    }
    if is("sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return Namespaces::Closed("kernel.apparmor_restrict_unprivileged_userns");
    }
    Namespaces::Open
}

fn cgroups(proc: &Path, mount: &Path) -> Cgroups {
    if !mount.join("cgroup.controllers").exists() {
        let is_old = fs::read_dir(mount).is_ok_and(|mut entries| entries.next().is_some());
        return if is_old { Cgroups::Old } else { Cgroups::Missing };
    }
    let group = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::/"));
    let folder: Option<PathBuf> = group.map(|group| mount.join(group));
    match folder {
        Some(folder) if access(&folder, Access::WRITE_OK).is_ok() => Cgroups::Delegated,
        _ => Cgroups::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a directory with these files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    #[test]
    fn kernel_settings_close_namespaces() {
        let of = |files: &[(&str, &str)]| namespaces(tree(files).path());
        assert_eq!(of(&[]), Namespaces::Missing);
        let here = ("self/ns/user", "");
        assert_eq!(of(&[here]), Namespaces::Open);
        assert_eq!(
            of(&[here, ("sys/user/max_user_namespaces", "0\n")]),
            Namespaces::Closed("user.max_user_namespaces")
        );
        assert_eq!(
            of(&[here, ("sys/kernel/unprivileged_userns_clone", "0\n")]),
            Namespaces::Closed("kernel.unprivileged_userns_clone")
        );
        assert_eq!(
            of(&[here, ("sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")]),
            Namespaces::Closed("kernel.apparmor_restrict_unprivileged_userns")
        );
        assert_eq!(of(&[here, ("sys/user/max_user_namespaces", "96343\n")]), Namespaces::Open);
    }

    #[test]
    fn cgroup_versions_are_distinguished() {
        let of =
            |proc: &[(&str, &str)], mount: &[(&str, &str)]| cgroups(tree(proc).path(), tree(mount).path());
        let own = [("self/cgroup", "0::/user/brigade\n")];
        assert_eq!(of(&own, &[]), Cgroups::Missing);
        assert_eq!(of(&own, &[("memory/tasks", "")]), Cgroups::Old);
        let new = ("cgroup.controllers", "cpu memory");
        assert_eq!(of(&own, &[new]), Cgroups::Foreign, "the group cannot be seen");
        assert_eq!(of(&own, &[new, ("user/brigade/cgroup.procs", "")]), Cgroups::Delegated);
        assert_eq!(of(&[], &[new]), Cgroups::Foreign);
    }
}
