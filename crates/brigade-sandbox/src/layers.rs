//! Layers on disk for directories whose changes are discarded.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use tokio::sync::OnceCell;

use crate::GuardCommand;
use crate::protocol::JobLayers;

/// Layers on disk for directories whose changes are discarded.
///
/// The jobs that use the same value share the changes of some directories, also while they run at the same time. The
/// changes of other directories end with their command. When this is dropped, the shared layers no longer exist, except
/// for running commands. The directory must be removed then.
#[derive(Debug)]
pub struct Layers {
    directory: PathBuf,
    shared: Vec<PathBuf>,
    created: OnceCell<Option<SharedLayers>>,
}

/// Shared layers that exist, and the namespaces that hold them.
#[derive(Debug)]
pub(crate) struct SharedLayers {
    directories: Vec<OsString>,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux has namespaces"))]
    namespaces: [OwnedFd; 2],
}

/// Maximum number of shared directories. The others are not shared.
const MAX_SHARED: usize = 64;

impl Layers {
    /// Creates layers below an existing directory that is used for nothing else. The changes of the `shared` directories
    /// are shared. If the kernel refuses that, each command has its own.
    pub fn below(directory: impl Into<PathBuf>, mut shared: Vec<PathBuf>) -> Layers {
        shared.truncate(MAX_SHARED);
        Layers { directory: directory.into(), shared, created: OnceCell::new() }
    }

    /// Creates the shared layers on first use. `tag` identifies the guard that does it.
    pub(crate) async fn open(&self, guard: &GuardCommand, tag: &str) -> Option<&SharedLayers> {
        if self.shared.is_empty() {
            return None;
        }
        self.created.get_or_init(|| self.create(guard, tag)).await.as_ref()
    }

    #[cfg(target_os = "linux")]
    async fn create(&self, guard: &GuardCommand, tag: &str) -> Option<SharedLayers> {
        use crate::protocol::{self, LayersMessage, Request};
        use crate::runner::GuardProcess;
        let message = LayersMessage {
            directory: self.directory.clone().into(),
            shared: self.shared.iter().cloned().map(OsString::from).collect(),
        };
        let message = protocol::frame(&Request::CreateLayers(message)).ok()?;
        let job = crate::Job::new("", "/", tag, crate::Confinement::none());
        let guard = GuardProcess::start(guard, &job, None).ok()?;
        let (directories, namespaces) = guard.create_layers(&message).await?;
        Some(SharedLayers { directories, namespaces })
    }

    #[cfg(not(target_os = "linux"))]
    async fn create(&self, _guard: &GuardCommand, _tag: &str) -> Option<SharedLayers> {
        None
    }

    /// Describes the layers to a guard that gets the namespaces of the shared ones.
    pub(crate) fn message(&self, shared: Option<&SharedLayers>) -> JobLayers {
        JobLayers {
            directory: self.directory.clone().into(),
            shared: shared.map(|shared| shared.directories.clone()).unwrap_or_default(),
        }
    }
}

#[cfg(target_os = "linux")]
impl SharedLayers {
    /// The namespaces: user, mounts.
    pub(crate) fn namespaces(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.namespaces.iter().map(AsFd::as_fd).collect()
    }
}
