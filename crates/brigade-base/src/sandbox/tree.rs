//! State that the sandboxes of a tree share.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_core::grant::Authority;
use brigade_sandbox::{Confinement, Enforcement, ExitReason, GuardCommand, Job, Layers, Sandbox};
use tokio::sync::OnceCell;

use super::SandboxError;
use super::scan::{Scan, ScanCache};
use super::temporary::{Parts, TemporaryDirectory};

/// Time limit of the command that tries a sandbox.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of agents with different rights whose state is kept.
const MAX_AGENTS: usize = 64;

/// State that the sandboxes of a tree share: their `/tmp`, the layers of caches, and what was found in the workspace.
///
/// Its files on disk are removed when this is dropped. If this process is killed, the next one removes it.
#[derive(Default)]
pub struct TreeSandbox {
    name: String,
    agents: Mutex<Vec<AgentState>>,
    can_discard: OnceCell<bool>,
    // Dropped last, when nothing uses it any more.
    directory: TemporaryDirectory,
}

/// State of the agents with the same rights.
struct AgentState {
    rights: Authority,
    layers: Option<Arc<Layers>>,
    scan: Arc<Mutex<ScanCache>>,
}

impl TreeSandbox {
    /// State of the tree with this name, with a directory below `parent`. Without a parent, every command has a `/tmp` of
    /// its own.
    pub fn below(parent: Option<&Path>, name: &str) -> TreeSandbox {
        let directory = TemporaryDirectory::below(parent, name);
        TreeSandbox { name: name.to_owned(), directory, ..TreeSandbox::default() }
    }

    /// Returns the directory that commands see as `/tmp`. The first command creates it.
    pub fn temporary(&self) -> Option<PathBuf> {
        self.directory.parts().map(|parts| parts.temporary)
    }

    /// Creates the directory of the tree.
    pub(super) fn create(&self) -> io::Result<Option<Parts>> {
        self.directory.create()
    }

    /// Searches the workspace of an agent. What has not changed since the last search is not read again.
    pub(super) fn scan(&self, authority: &Authority) -> Result<Scan, SandboxError> {
        let cache = with_state(&mut self.lock(), authority, |state| state.scan.clone()).unwrap_or_default();
        let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.scan(Path::new(&authority.workspace), &authority.permissions)
    }

    /// The layers of the agents with these rights. Agents with other rights have others, so that none can plant a program
    /// in a cache that an agent with more rights would run.
    pub(super) fn layers(
        &self,
        authority: &Authority,
        shared: impl FnOnce() -> Vec<PathBuf>,
    ) -> io::Result<Option<Arc<Layers>>> {
        let Some(parts) = self.create()? else { return Ok(None) };
        let layers = with_state(&mut self.lock(), authority, |state| {
            if state.layers.is_none() {
                let directory = create_numbered(&parts.layers)?;
                state.layers = Some(Arc::new(Layers::below(directory, shared())));
            }
            Ok(state.layers.clone())
        });
        layers.unwrap_or(Ok(None))
    }

    /// Whether commands can run in a sandbox that discards what they change. The first call tries it.
    pub async fn can_discard(&self, guard: &GuardCommand, workspace: &Path) -> bool {
        let try_it = || async {
            let sandbox = Sandbox {
                visible: vec![workspace.into()],
                discarded: vec![workspace.into()],
                ..Sandbox::default()
            };
            let confinement = Confinement::Sandbox(Box::new(sandbox));
            let job = Job::new("true", workspace, format!("{}:try-sandbox", self.name), confinement);
            let job = job.time_limit(TRIAL_TIMEOUT).output_limit(0);
            let result = brigade_sandbox::run(guard, job, std::future::pending()).await;
            result.is_ok_and(|result| {
                result.end == ExitReason::Exited(0) && result.enforcement == Enforcement::Namespaces
            })
        };
        *self.can_discard.get_or_init(try_it).await
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AgentState>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TreeSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeSandbox").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Creates a directory with a name that nothing has. Another process may work for the same tree.
fn create_numbered(parent: &Path) -> io::Result<PathBuf> {
    for number in 0..u32::MAX {
        let directory = parent.join(number.to_string());
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|()| directory),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Calls a function with the state of the agents with the same rights. `None` if there are too many.
fn with_state<T>(
    agents: &mut Vec<AgentState>,
    authority: &Authority,
    with: impl FnOnce(&mut AgentState) -> T,
) -> Option<T> {
    let rights = rights(authority);
    if let Some(state) = agents.iter_mut().find(|state| state.rights == rights) {
        return Some(with(state));
    }
    if agents.len() >= MAX_AGENTS {
        return None;
    }
    agents.push(AgentState { rights, layers: None, scan: Arc::default() });
    agents.last_mut().map(with)
}

/// The part of an authority that decides on the sandbox of an agent's commands.
fn rights(authority: &Authority) -> Authority {
    Authority {
        workspace: authority.workspace.clone(),
        paths: authority.paths.clone(),
        network: authority.network,
        permissions: authority.permissions.clone(),
        sandbox: authority.sandbox,
        ..Authority::default()
    }
}
