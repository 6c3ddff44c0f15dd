//! Section `sandbox`.

use std::path::{Path, PathBuf};

use brigade::sandbox::{NetworkAccess, SandboxMode, SandboxSettings};
use brigade_core::Limit;
use brigade_core::network::HostPattern;
use brigade_sandbox::SandboxLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::Environment;
use super::values::{ByteSize, InvalidList, MaxCount};

/// Free space that is left on the file systems of the workspace.
const DEFAULT_FREE_DISK: u64 = 256 << 20;

/// Number of processes and threads that parallel builds do not reach, and that leaves the system responsive.
const DEFAULT_PROCESSES: u64 = 4096;

/// Section `sandbox`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSandbox {
    /// Sandbox of commands that agents run: workspace (they can write only to the workspace), read-only, or off.
    mode: SandboxMode,
    /// Secrets that commands can read, such as ~/.aws; other secrets are hidden. If a directory is hidden, list the
    /// directory, not a file in it.
    read: Vec<String>,
    /// Directories that commands can write to in addition to the workspace; ignored in mode read-only.
    write: Vec<String>,
    /// Network access of commands: none, the whole network, or hosts such as "example.org", "*.example.org" and
    /// "10.0.0.5:5432". An entry without a port allows the ports 80 and 443; an IP address needs a port. A list of hosts
    /// requires user namespaces.
    network: RawNetwork,
    /// UNIX sockets that commands can connect to, such as /run/docker.sock; other sockets are not accessible.
    sockets: Vec<String>,
    /// Maximum memory of all processes of a command together.
    memory: Option<ByteSize>,
    /// Maximum number of processes and threads of a command.
    processes: MaxCount,
    /// Minimum free disk space; a command is killed if less is left.
    disk: ByteSize,
}

impl Default for RawSandbox {
    fn default() -> RawSandbox {
        RawSandbox {
            mode: SandboxMode::Workspace,
            read: Vec::new(),
            write: Vec::new(),
            network: RawNetwork::default(),
            sockets: Vec::new(),
            memory: None,
            processes: MaxCount(Limit::AtMost(DEFAULT_PROCESSES)),
            disk: ByteSize(DEFAULT_FREE_DISK),
        }
    }
}

impl RawSandbox {
    /// Settings for the library. `private` are the directories and files of Brigade itself, `protected` those that the
    /// configuration names.
    pub(super) fn resolve(
        self,
        environment: &Environment,
        private: Vec<PathBuf>,
        protected: Vec<PathBuf>,
    ) -> SandboxSettings {
        let RawSandbox { mode, read, write, network, sockets, memory, processes, disk } = self;
        let MaxCount(processes) = processes;
        let paths = |names: Vec<String>| names.iter().map(|name| absolute(environment, name)).collect();
        SandboxSettings {
            mode,
            read: paths(read),
            write: paths(write),
            sockets: paths(sockets),
            network: network.0,
            limits: SandboxLimits {
                memory_bytes: memory.map(|ByteSize(bytes)| bytes),
                processes: processes.at_most(),
                free_disk_bytes: Some(disk.0),
            },
            home: environment.home().map(real),
            private: private.iter().map(|path| real(path)).collect(),
            protected: protected.iter().map(|path| real(path)).collect(),
            temporary: environment.data_folder().map(|data| real(&data).join("tmp")),
        }
    }
}

/// `false`, `true` or a list of hosts.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "Json", into = "Json")]
#[schemars(inline, extend("anyOf" = [
    { "type": "boolean" },
    { "type": "array", "items": { "type": "string", "title": "hosts such as [\"example.org\", \"*.example.org\"]" } },
]))]
struct RawNetwork(NetworkAccess);

impl TryFrom<Json> for RawNetwork {
    type Error = InvalidList;

    fn try_from(value: Json) -> Result<RawNetwork, InvalidList> {
        let texts: Vec<String> = match value {
            Json::Bool(false) => return Ok(RawNetwork(NetworkAccess::Off)),
            Json::Bool(true) => return Ok(RawNetwork(NetworkAccess::All)),
            value => serde_json::from_value(value).map_err(|_| InvalidList::wrong_type())?,
        };
        let hosts: Vec<HostPattern> = InvalidList::collect(&texts)?;
        Ok(RawNetwork(NetworkAccess::Hosts(hosts.into_iter().collect())))
    }
}

impl From<RawNetwork> for Json {
    fn from(RawNetwork(network): RawNetwork) -> Json {
        match network {
            NetworkAccess::Off => false.into(),
            NetworkAccess::All => true.into(),
            NetworkAccess::Hosts(hosts) => {
                hosts.iter().map(HostPattern::to_string).collect::<Vec<_>>().into()
            }
        }
    }
}

/// The path without links and `..`, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    for above in path.ancestors() {
        if let Ok(mut real) = above.canonicalize() {
            real.extend(missing.iter().rev());
            return real;
        }
        missing.extend(above.file_name());
    }
    path.to_path_buf()
}

/// Absolute path; `~/` is the home directory.
pub(super) fn absolute(environment: &Environment, name: &str) -> PathBuf {
    match (name.strip_prefix("~/"), environment.home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => environment.absolute(Path::new(name)),
    }
}
