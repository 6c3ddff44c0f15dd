//! Support for tests of the `brigade` command that need real processes, signals, terminals and servers.
//!
//! The command itself has to be built before: `cargo build -p brigade-cli`. `scripts/test` installs the
//! third-party servers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "support of tests")]

mod acp;
mod agent_workplace;
mod counterpart;
pub mod disk;
mod external_agent;
mod format;
mod secret_scan;
mod server;
pub mod strace;
mod test_env;
mod wire;

use std::path::PathBuf;
use std::process::Command;

pub use acp::AcpSchema;
pub use agent_workplace::{AgentCall, AgentWorkplace, User};
pub use counterpart::{
    AgentDojo, Aimock, Everything, LocalModel, McpFixture, acpx, conformance, inspector, mcp_server, node,
    tools,
};
pub use external_agent::ExternalAgent;
pub use format::{FORMATS, Format};
pub use secret_scan::{SecretScanner, files_below};
pub use server::{CannedResponse, RecordedRequest, RecordingServer};
pub use test_env::{CommandOutput, TestEnv};
pub use wire::{Side, WireLine, WireLog, methods};

/// The `brigade` command next to this test binary.
pub fn brigade() -> PathBuf {
    sibling_binary("brigade")
}

/// A program next to this test binary.
pub fn sibling_binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let folder = test.parent().and_then(|deps| deps.parent()).map(PathBuf::from).unwrap_or_default();
    folder.join(name)
}

/// A command with a separate home and an otherwise minimal environment.
#[expect(clippy::disallowed_methods, reason = "the tests start the command")]
pub fn command(home: &std::path::Path) -> Command {
    let mut command = Command::new(brigade());
    command.env("BRIGADE_HOME", home).env("HOME", home).env_remove("NO_COLOR");
    command
}

/// Processes whose command line contains this text, except for zombies.
pub fn processes_with(text: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(text)
        })
        .collect()
}
