//! Confinement of a command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Part of the system that the processes of a command can reach.
///
/// A guard refuses a job whose confinement it cannot enforce. An unknown field is an error, because dropping it would
/// widen what it was meant to narrow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// The command has all rights of its user.
    None,
    /// The command runs in a sandbox.
    Sandbox(Box<Sandbox>),
}

impl Confinement {
    /// Leaves the command all rights of its user.
    pub fn none() -> Confinement {
        Confinement::None
    }
}

/// Sandbox of a command.
///
/// Everything that is not hidden can be read, and only [`writable`](Self::writable) can be written. `/tmp`, `/var/tmp`,
/// `/run` and `/dev/shm` are private to the command. Paths are absolute and without `..`. They are `OsString`s, because
/// a `PathBuf` that is not UTF-8 cannot be sent to the guard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Directories and files that can be written, each with everything below it.
    pub writable: Vec<OsString>,
    /// Paths below the private directories that can be read nevertheless.
    #[serde(default)]
    pub visible: Vec<OsString>,
    /// Directories whose changes the command sees and that are discarded: when it exits, or with the
    /// [`Layers`](crate::Layers) that share them. Landlock alone makes them read-only.
    #[serde(default)]
    pub discarded: Vec<OsString>,
    /// Paths below the writable ones that stay read-only. A missing one cannot be created.
    pub protected: Vec<OsString>,
    /// Missing paths below the writable ones that are renamed after the command if it created them. They are for files that
    /// other programs would misread a placeholder for.
    #[serde(default)]
    pub forbidden: Vec<OsString>,
    /// Files and directories that can be neither read nor written.
    pub hidden: Vec<OsString>,
    /// Directory of the host that is `/tmp` inside, or an empty one that is discarded.
    pub temporary: Option<OsString>,
    /// UNIX sockets of the host that can be connected to. All others are hidden.
    pub sockets: Vec<OsString>,
    /// Network access.
    pub network: Network,
    /// Whether the command may create user namespaces, for programs that bring a sandbox of their own.
    #[serde(default)]
    pub nested_namespaces: bool,
    /// Limits of all its processes together.
    #[serde(default)]
    pub limits: SandboxLimits,
    /// Whether Landlock alone is acceptable if the kernel refuses namespaces.
    pub allow_landlock_only: bool,
}

/// Limits of all processes of a command together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxLimits {
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Number of processes and threads.
    pub processes: Option<u64>,
    /// Free space in bytes that the file systems of the writable paths keep.
    pub free_disk_bytes: Option<u64>,
}

/// Network access of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Only a loopback interface of its own.
    #[default]
    Off,
    /// A loopback interface of its own, with a listener that the runner serves as an HTTP proxy: see
    /// [`Job::on_proxy`](crate::Job::on_proxy).
    Proxy,
    /// The network of the host.
    On,
}

/// Means by which a command was confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// It was not.
    #[default]
    None,
    /// Namespaces, seccomp and, if the kernel has it, Landlock.
    Namespaces,
    /// Landlock and seccomp only. Missing protected paths can be created until the command exits, and other processes
    /// of the user can be seen.
    Landlock,
    /// A Seatbelt profile of macOS. Whether it confines has not been verified.
    Seatbelt,
}

impl Sandbox {
    /// Maximum number of paths. Each becomes a mount.
    pub const MAX_PATHS: usize = 4096;

    /// All paths.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let lists = [
            &self.writable,
            &self.visible,
            &self.discarded,
            &self.protected,
            &self.forbidden,
            &self.hidden,
            &self.sockets,
        ];
        lists.into_iter().flatten().chain(&self.temporary).map(Path::new)
    }

    /// Rejects a description that cannot be enforced on any system.
    pub(crate) fn check(&self) -> Result<(), InvalidSandbox> {
        use std::os::unix::ffi::OsStrExt;
        use std::path::Component;
        let count = self.paths().count();
        if count > Self::MAX_PATHS {
            return Err(InvalidSandbox::TooManyPaths(count));
        }
        let is_plain = |path: &Path| {
            path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
                && !path.as_os_str().as_bytes().contains(&0)
        };
        if let Some(path) = self.paths().find(|path| !path.is_absolute() || !is_plain(path)) {
            return Err(InvalidSandbox::Path(path.to_path_buf()));
        }
        let mut changed = self.writable.iter().chain(&self.discarded).map(Path::new);
        match changed.find(|path| SYSTEM_DIRECTORIES.iter().any(|system| Path::new(system).starts_with(path)))
        {
            Some(path) => Err(InvalidSandbox::SystemDirectory(path.to_path_buf())),
            None => Ok(()),
        }
    }

    /// Whether a path, or what it leads to, is hidden.
    #[cfg(target_os = "linux")]
    pub(crate) fn hides(&self, path: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let path = real(path);
        self.hidden.iter().any(|hidden| path.starts_with(real(Path::new(hidden))))
    }

    /// The innermost writable or discarded path that contains this one.
    #[cfg(target_os = "linux")]
    pub(crate) fn writable_root(&self, path: &Path) -> Option<PathBuf> {
        let roots = self.writable.iter().chain(&self.discarded).map(Path::new);
        let roots = roots.filter(|root| path.starts_with(root) && path != *root);
        roots.max_by_key(|root| root.components().count()).map(Path::to_path_buf)
    }

    /// Whether changes of this path are discarded, so that nothing of the host has to be protected.
    #[cfg(target_os = "linux")]
    pub(crate) fn discards(&self, path: &Path) -> bool {
        let root = self.writable_root(path);
        root.is_some_and(|root| self.discarded.iter().any(|discarded| root.as_os_str() == discarded))
    }
}

/// Reason why a description cannot be enforced on any system.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidSandbox {
    #[error("`{}` must be an absolute path without `..`", .0.display())]
    Path(PathBuf),
    #[error("{0} hidden, protected and writable paths exceed the limit of {limit}", limit = Sandbox::MAX_PATHS)]
    TooManyPaths(usize),
    #[error("`{}` contains system directories and cannot be writable", .0.display())]
    SystemDirectory(PathBuf),
}

/// Directories that a writable path must not contain.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/dev", "/etc", "/proc", "/sys", "/usr"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_with_unusable_paths_is_rejected() {
        let with = |path: &str| Sandbox { writable: vec![path.into()], ..Sandbox::default() }.check();
        assert_eq!(with("/home/user/project"), Ok(()));
        for path in ["", "project", "./project", "/home/../etc", "/a\0b"] {
            assert_eq!(with(path), Err(InvalidSandbox::Path(path.into())), "{path:?}");
        }
        for path in ["/", "/usr", "/etc", "/proc"] {
            assert_eq!(with(path), Err(InvalidSandbox::SystemDirectory(path.into())), "{path:?}");
        }
        let many = (0..=Sandbox::MAX_PATHS).map(|number| format!("/{number}").into()).collect();
        let many = Sandbox { hidden: many, ..Sandbox::default() };
        assert!(many.check().unwrap_err().to_string().contains("the limit of 4096"));
    }
}
