//! Section `sandbox`.

use std::path::{Path, PathBuf};

use brigade::sandbox::{SandboxMode, SandboxSettings};
use brigade_core::Limit;
use brigade_sandbox::SandboxLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Environment;
use super::values::{ByteSize, MaxCount};

/// Free space that is left on the file systems of the workspace.
const DEFAULT_FREE_DISK: u64 = 256 << 20;

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
    /// Whether commands can use the network.
    network: bool,
    /// UNIX sockets that commands can connect to, such as /run/docker.sock; other sockets are not accessible.
    sockets: Vec<String>,
    /// Maximum memory of all processes of a command together.
    memory: Option<ByteSize>,
    /// Maximum number of processes of a command.
    processes: MaxCount,
    /// Minimum free disk space; a command is killed if less is left.
    disk: ByteSize,
}

impl Default for RawSandbox {
    fn default() -> RawSandbox {
        RawSandbox {
            mode: SandboxMode::default(),
            read: Vec::new(),
            write: Vec::new(),
            network: false,
            sockets: Vec::new(),
            memory: None,
            processes: MaxCount(Limit::Unlimited),
            disk: ByteSize(DEFAULT_FREE_DISK),
        }
    }
}

impl RawSandbox {
    /// Settings for the library. `private` are the directories and files of Brigade itself.
    pub(super) fn resolve(self, environment: &Environment, private: Vec<PathBuf>) -> SandboxSettings {
        let RawSandbox { mode, read, write, network, sockets, memory, processes, disk } = self;
        let MaxCount(processes) = processes;
        let paths = |names: Vec<String>| names.iter().map(|name| absolute(environment, name)).collect();
        SandboxSettings {
            mode,
            read: paths(read),
            write: paths(write),
            sockets: paths(sockets),
            network,
            limits: SandboxLimits {
                memory_bytes: memory.map(|ByteSize(bytes)| bytes),
                processes: processes.at_most(),
                free_disk_bytes: Some(disk.0),
            },
            home: environment.home().map(Path::to_path_buf),
            private,
            temporary: environment.data_folder().map(|data| data.join("tmp")),
        }
    }
}

/// Absolute path; `~/` is the home directory.
pub(super) fn absolute(environment: &Environment, name: &str) -> PathBuf {
    match (name.strip_prefix("~/"), environment.home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => environment.absolute(Path::new(name)),
    }
}
