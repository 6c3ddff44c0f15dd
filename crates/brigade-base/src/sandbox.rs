//! From the authority of a session to the sandbox of its commands.

mod connections;
mod host_decider;
mod network;
mod places;
mod program_state;
mod protected;
mod proxy;
mod scan;
mod secrets;
mod servers;
mod temporary;
mod tree;
mod worktree;

use std::ffi::OsString;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use brigade_core::grant::{Access, Authority};
use brigade_core::network::{HostList, HostPattern};
use brigade_core::permission::Mode;
pub use brigade_core::sandbox::SandboxMode;
pub use brigade_sandbox::Network;
use brigade_sandbox::{Confinement, Job, Layers, Sandbox, SandboxLimits};
pub use connections::{ConnectionLog, ConnectionOutcome, ConnectionRecord, Denial};
pub use host_decider::{HostDecider, HostRequest};
pub use network::NetworkAccess;
pub(crate) use servers::ServerProgram;
pub use servers::{ServerAccess, ServerOrigin, ServerSandbox};
pub(crate) use temporary::TemporaryDirectory;
pub use tree::TreeSandbox;
use worktree::LinkedRepository;

/// Settings of the sandbox in which commands of agents run.
#[derive(Debug, Clone, Default)]
pub struct SandboxSettings {
    /// Widest sandbox of any agent.
    pub mode: SandboxMode,
    /// Files and directories that can be read although they look like secrets.
    pub read: Vec<PathBuf>,
    /// Directories that can be written in addition to the workspace.
    pub write: Vec<PathBuf>,
    /// UNIX sockets that can be connected to.
    pub sockets: Vec<PathBuf>,
    /// Network access of commands.
    pub network: NetworkAccess,
    /// Limits of all processes of a command together.
    pub limits: SandboxLimits,
    /// The user's home directory, whose credentials are hidden.
    pub home: Option<PathBuf>,
    /// Directories and files of the program itself, which are hidden.
    pub private: Vec<PathBuf>,
    /// Files and directories that the configuration names, such as those of agents. Commands cannot write them.
    pub protected: Vec<PathBuf>,
    /// Directory in which each tree gets a directory for its `/tmp`.
    pub temporary: Option<PathBuf>,
}

/// Caches of tools in the home directory. Commands can change them, and the changes end with the tree.
const CACHES: [&str; 14] = [
    ".bun/install/cache",
    ".cache",
    ".cargo",
    ".composer",
    ".deno",
    ".gem",
    ".gradle",
    ".ivy2",
    ".m2",
    ".npm",
    ".nuget",
    ".pub-cache",
    ".yarn",
    "go/pkg",
];

/// Variables that name sockets or directories which the sandbox hides.
const HIDDEN_VARIABLES: [&str; 9] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "GPG_AGENT_INFO",
    "PULSE_SERVER",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "TMPDIR",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
];

impl SandboxSettings {
    /// Whether commands of a session run in a sandbox.
    pub fn confines(&self, authority: &Authority) -> bool {
        self.mode_of(authority) != SandboxMode::Off
    }

    /// Sandbox of a session. The authority can only narrow the settings.
    pub fn mode_of(&self, authority: &Authority) -> SandboxMode {
        authority.sandbox.unwrap_or(self.mode).min(self.mode)
    }

    /// Returns the layers that the commands of a session share, if they run in a sandbox.
    pub fn layers(
        &self,
        authority: &Authority,
        tree: &TreeSandbox,
    ) -> Result<Option<Arc<Layers>>, SandboxError> {
        match self.mode_of(authority) {
            SandboxMode::Off => Ok(None),
            SandboxMode::ReadOnly | SandboxMode::Workspace => {
                Ok(tree.layers(authority, || existing(self.caches()))?)
            }
        }
    }

    fn caches(&self) -> impl Iterator<Item = PathBuf> {
        self.home.iter().flat_map(|home| CACHES.map(|cache| home.join(cache)))
    }

    /// Returns the confinement of commands of a session, with what the user approved in addition.
    ///
    /// In plan mode, commands see their changes of the workspace, which are then discarded. They have neither network nor
    /// sockets nor additional access, and need namespaces.
    pub fn confinement(
        &self,
        authority: &Authority,
        extra: &ExtraAccess,
        tree: &TreeSandbox,
    ) -> Result<Confinement, SandboxError> {
        let mode = self.mode_of(authority);
        if mode == SandboxMode::Off {
            return Ok(Confinement::None);
        }
        let workspace = Path::new(&authority.workspace);
        if self.home.as_deref().is_some_and(|home| home.starts_with(workspace)) {
            return Err(SandboxError::Home);
        }
        let is_plan = authority.permissions.mode == Mode::Plan;
        let nothing = ExtraAccess::default();
        let extra = if is_plan { &nothing } else { extra };
        let granted = self.granted(workspace, extra)?;
        let linked = LinkedRepository::of(workspace);
        let mut writable = match mode {
            SandboxMode::ReadOnly => Vec::new(),
            SandboxMode::Workspace | SandboxMode::Off => {
                let folders = authority.paths.iter().map(|path| match path.as_str() {
                    "" => workspace.to_path_buf(),
                    path => workspace.join(path),
                });
                let mut writable = existing(folders);
                writable.retain(|path| path.starts_with(workspace));
                if authority.paths.contains("") {
                    writable.extend(linked.writable);
                }
                writable.extend(existing(self.write.iter().cloned()));
                writable
            }
        };
        let scan = tree.scan(authority)?;
        let home = self.home.as_deref();
        let hidden = home
            .into_iter()
            .flat_map(secrets::in_home)
            .chain(scan.hidden)
            .chain(secrets::above(workspace))
            .chain(self.private.clone());
        let hidden = places::with_other_names(hidden.collect(), workspace, &self.private)?;
        let stays_hidden = |path: &PathBuf| {
            // Brigade's own files stay hidden, even if `read` lists them.
            let is_granted = self.read.iter().any(|read| path.starts_with(read));
            !is_granted || self.private.iter().any(|private| path.starts_with(private))
        };
        let (instructions, missing_instructions) = protected::instruction_files(workspace);
        let others: Vec<PathBuf> =
            existing(self.write.iter().cloned()).into_iter().chain(granted.clone()).collect();
        let protected = protected::in_workspace(workspace)
            .chain(instructions)
            .chain(home.into_iter().flat_map(protected::in_home))
            .chain(scan.protected)
            .chain(self.protected.iter().cloned())
            .chain(others.iter().flat_map(|directory| protected::in_other(directory)))
            .filter(|path| !granted.contains(path));
        let protected: Vec<PathBuf> = protected.collect();
        // A file with a mount of its own cannot be replaced, which is how git writes its configuration. It needs none if
        // its directory is writable.
        let is_writable = |path: &&PathBuf| {
            writable.iter().any(|root| path.starts_with(root))
                && !protected.iter().any(|protected| path.starts_with(protected))
        };
        let mounted: Vec<PathBuf> = granted.iter().filter(|path| !is_writable(path)).cloned().collect();
        writable.extend(mounted);
        let mut discarded = existing(self.caches());
        discarded.retain(|cache| {
            !writable.iter().any(|path| cache.starts_with(path)) && !contains_any(cache, &writable)
        });
        let network = match (authority.network, &self.network) {
            (Access::Denied, _) if !extra.hosts.is_empty() => return Err(SandboxError::NoNetwork),
            (Access::Denied, _) => Network::Off,
            (Access::Allowed, _) if is_plan => Network::Off,
            (Access::Allowed, NetworkAccess::All) => Network::On,
            (Access::Allowed, NetworkAccess::Hosts(_)) => Network::Proxy,
            (Access::Allowed, NetworkAccess::Off) if extra.hosts.is_empty() => Network::Off,
            (Access::Allowed, NetworkAccess::Off) => Network::Proxy,
        };
        // It often leads to a file below `/run`, which is private.
        let names = (network == Network::On).then(|| PathBuf::from("/etc/resolv.conf"));
        let visible =
            [workspace.to_path_buf()].into_iter().chain(self.read.clone()).chain(names).chain(linked.common);
        let sockets = if is_plan { Vec::new() } else { existing(self.sockets.iter().cloned()) };
        if is_plan {
            discarded.append(&mut writable);
        }
        Ok(Confinement::Sandbox(Box::new(Sandbox {
            discarded: os_strings(discarded.into_iter()),
            protected: os_strings(protected.into_iter()),
            forbidden: os_strings(
                [protected::redirection(&workspace.join(".git"))]
                    .into_iter()
                    .chain(scan.forbidden)
                    .chain(missing_instructions)
                    .filter(|path| !granted.contains(path)),
            ),
            hidden: os_strings(hidden.into_iter().filter(stays_hidden)),
            writable: os_strings(writable.into_iter()),
            visible: os_strings(existing(visible).into_iter()),
            temporary: tree.create()?.map(|parts| OsString::from(parts.temporary)),
            sockets: os_strings(sockets.into_iter()),
            network,
            nested_namespaces: false,
            limits: self.limits,
            allow_landlock_only: !is_plan,
        })))
    }

    /// Resolves the approved paths. A symbolic link is refused, because the approval showed only its name. Brigade's own
    /// files are always refused.
    fn granted(&self, workspace: &Path, extra: &ExtraAccess) -> Result<Vec<PathBuf>, SandboxError> {
        let private = existing(self.private.iter().cloned());
        let real = |path: &String| {
            let fail = |reason: &str| SandboxError::Path { path: path.clone(), reason: reason.to_owned() };
            let real = workspace.join(path).canonicalize().map_err(|error| fail(&error.to_string()))?;
            if real != normalized(&workspace.join(path)) {
                return Err(fail("it is a symbolic link or inside a linked directory"));
            }
            match private.iter().any(|private| real.starts_with(private) || private.starts_with(&real)) {
                true => Err(SandboxError::Private { path: path.clone() }),
                false => Ok(real),
            }
        };
        extra.write.iter().map(real).collect()
    }
}

/// Resolves `.` and `..` without following links.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normalized.pop();
            }
            part => normalized.push(part),
        }
    }
    normalized
}

/// Access beyond the sandbox that the user approved for one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtraAccess {
    /// Files and directories to write, relative to the workspace or absolute.
    pub write: Vec<String>,
    /// Hosts to connect to.
    pub hosts: Vec<HostPattern>,
}

impl ExtraAccess {
    /// Whether anything beyond the sandbox is requested.
    pub fn is_some(&self) -> bool {
        !self.hosts.is_empty() || !self.write.is_empty()
    }
}

/// Sandbox of the commands of one call. It is computed when a command starts, because secrets may have appeared.
#[derive(Clone, Default)]
pub struct CommandSandbox {
    confinement: Option<Arc<Confine>>,
    hosts: HostList,
    decider: Option<HostDecider>,
    connections: ConnectionLog,
}

type Confine = dyn Fn(&ExtraAccess) -> Result<(Confinement, Option<Arc<Layers>>), SandboxError> + Send + Sync;

impl CommandSandbox {
    /// Creates a sandbox from the function that computes it. Without further calls, its proxy allows only the hosts that
    /// the user approved for a command.
    pub fn new(
        confinement: impl Fn(&ExtraAccess) -> Result<Confinement, SandboxError> + Send + Sync + 'static,
    ) -> CommandSandbox {
        CommandSandbox::with_layers(move |extra| Ok((confinement(extra)?, None)))
    }

    /// Creates a sandbox from the function that computes it, with the layers that its commands share.
    pub fn with_layers(
        confinement: impl Fn(&ExtraAccess) -> Result<(Confinement, Option<Arc<Layers>>), SandboxError>
        + Send
        + Sync
        + 'static,
    ) -> CommandSandbox {
        CommandSandbox { confinement: Some(Arc::new(confinement)), ..CommandSandbox::default() }
    }

    /// Commands have the rights of the user.
    pub fn none() -> CommandSandbox {
        CommandSandbox::default()
    }

    /// Allows the hosts of the settings, if the authority has network access.
    pub fn network(self, settings: &NetworkAccess, authority: Access) -> CommandSandbox {
        match authority {
            Access::Allowed => CommandSandbox {
                hosts: settings.hosts(),
                decider: Some(self.decider.unwrap_or_default()),
                ..self
            },
            Access::Denied => CommandSandbox { hosts: HostList::default(), decider: None, ..self },
        }
    }

    /// Decides about hosts that neither the settings nor the user's approval of the call contain. With network access off in
    /// the settings, commands then get a proxy all of whose hosts are decided. It has no effect if [`network`](Self::network)
    /// was not called before with an authority that has network access.
    pub fn deciding_hosts(self, decider: HostDecider) -> CommandSandbox {
        CommandSandbox { decider: self.decider.map(|_| decider), ..self }
    }

    /// Connections of the commands so far.
    pub fn connections(&self) -> &ConnectionLog {
        &self.connections
    }

    /// Creates a job that runs a command in the sandbox, with those variables that lead to nothing hidden. git runs no
    /// programs that the files of a repository name for its status.
    pub fn job(
        &self,
        command: String,
        directory: PathBuf,
        tag: String,
        environment: &[(String, String)],
        extra: &ExtraAccess,
    ) -> Result<Job, SandboxError> {
        let (mut confinement, layers) = match &self.confinement {
            Some(confinement) => confinement(extra)?,
            None => (Confinement::None, None),
        };
        let decider = self.decider.clone().unwrap_or_default();
        let mut environment = visible_variables(&confinement, environment);
        add_git_settings(&mut environment);
        if !uses_proxy(&mut confinement, &decider) {
            let job = Job::new(command, directory, tag, confinement);
            return Ok(job.environment(environment).layers(layers));
        }
        let mut hosts = self.hosts.clone();
        hosts.extend(extra.hosts.iter().cloned());
        network::set_proxy_variables(&mut environment, &hosts);
        self.connections.set_requested();
        let job = Job::new(command, directory, tag, confinement).environment(environment).layers(layers);
        Ok(proxy::serve_for(job, hosts, decider, self.connections.clone()))
    }
}

/// Whether the network is reached through a proxy. It is also used if the network is off and hosts can be decided.
fn uses_proxy(confinement: &mut Confinement, decider: &HostDecider) -> bool {
    let Confinement::Sandbox(sandbox) = confinement else { return false };
    if sandbox.network == Network::Off && decider.can_allow() {
        sandbox.network = Network::Proxy;
    }
    sandbox.network == Network::Proxy
}

impl fmt::Debug for CommandSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.confinement.is_some() { "CommandSandbox(..)" } else { "CommandSandbox::none()" })
    }
}

/// Whether what a command changes in this directory is discarded.
pub fn discards(confinement: &Confinement, directory: &Path) -> bool {
    match confinement {
        Confinement::None => false,
        Confinement::Sandbox(sandbox) => {
            sandbox.discarded.iter().any(|discarded| directory.starts_with(discarded))
        }
    }
}

/// Settings of git that keep files of a repository from naming programs to run.
const GIT_SETTINGS: [(&str, &str); 2] = [("core.fsmonitor", "false"), ("safe.bareRepository", "explicit")];

/// Adds settings for git to those that the variables contain already.
fn add_git_settings(variables: &mut Vec<(String, String)>) {
    const COUNT: &str = "GIT_CONFIG_COUNT";
    let count = variables.iter().find(|(name, _)| name == COUNT).and_then(|(_, value)| value.parse().ok());
    let count: usize = count.unwrap_or(0);
    variables.retain(|(name, _)| name != COUNT);
    for (index, (key, value)) in (count..).zip(GIT_SETTINGS) {
        variables.push((format!("GIT_CONFIG_KEY_{index}"), key.to_owned()));
        variables.push((format!("GIT_CONFIG_VALUE_{index}"), value.to_owned()));
    }
    variables.push((COUNT.to_owned(), count.saturating_add(GIT_SETTINGS.len()).to_string()));
}

/// Variables without those that lead to what the sandbox hides.
pub(crate) fn visible_variables(
    confinement: &Confinement,
    variables: &[(String, String)],
) -> Vec<(String, String)> {
    let Confinement::Sandbox(sandbox) = confinement else { return variables.to_vec() };
    let is_allowed = |value: &str| {
        let path = value.strip_prefix("unix:path=").or(value.strip_prefix("unix://")).unwrap_or(value);
        sandbox.sockets.iter().any(|socket| socket == path)
    };
    let is_visible =
        |(name, value): &&(String, String)| !HIDDEN_VARIABLES.contains(&name.as_str()) || is_allowed(value);
    variables.iter().filter(is_visible).cloned().collect()
}

/// Reason why no sandbox can be built for a workspace.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The workspace is too large to find its secret and protected files.
    #[error(
        "cannot start the command in a sandbox: the workspace has more than {limit} files and directories. \
         The user can choose a smaller workspace with --cwd, or set `sandbox.mode` to \"off\"."
    )]
    TooManyFiles {
        /// Maximum number of files and directories.
        limit: usize,
    },
    /// The workspace contains the home directory.
    #[error(
        "cannot start the command in a sandbox: the workspace contains the user's home directory. \
         The user can run Brigade in a project directory, or set `sandbox.mode` to \"off\"."
    )]
    Home,
    /// The directory for temporary files cannot be created.
    #[error("cannot create the temporary directory: {0}. Check that Brigade's data directory is writable.")]
    Temporary(#[from] std::io::Error),
    /// The authority does not include the network.
    #[error(
        "cannot allow access to hosts: this agent has no network access. Do the task without it, or report that the task \
         requires network access."
    )]
    NoNetwork,
    /// A path for which write access is needed cannot be used.
    #[error(
        "cannot allow write access to `{path}`: {reason}. Use the real path of an existing file or directory."
    )]
    Path {
        /// The path.
        path: String,
        /// Error of the system.
        reason: String,
    },
    /// A path for which write access is needed belongs to the program.
    #[error(
        "cannot allow write access to `{path}`: it contains or belongs to Brigade's own files. Use another path."
    )]
    Private {
        /// The path.
        path: String,
    },
}

/// The real paths of those that exist.
fn existing(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    paths.filter_map(|path| path.canonicalize().ok()).collect()
}

fn contains_any(path: &Path, others: &[PathBuf]) -> bool {
    others.iter().any(|other| other.starts_with(path))
}

fn os_strings(paths: impl Iterator<Item = PathBuf>) -> Vec<OsString> {
    let mut paths: Vec<OsString> = paths.map(OsString::from).collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests;
