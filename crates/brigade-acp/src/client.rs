//! ACP client: runs external agents as child sessions.
//!
//! [`Acp`] holds the configured agent servers and starts a process when a session first needs one. Many
//! sessions share a process. To the driver each external agent is a model: a prompt is a request. Requests of
//! the agent for a file, a terminal or a permission are calls of its reply. They pass the same permission
//! check as the calls of any model.
//!
//! External agents are not trusted. Lines, queues and texts are bounded, and every wait has a timeout. A
//! process that violates the protocol is terminated. Only its own sessions fail.

mod account;
mod agent_request;
mod agent_update;
mod calls;
mod denied;
mod modes;
mod peer;
mod pool;
mod process;
mod session;
mod subagents;
mod terminal;
mod tools;
mod turn;
mod update;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use brigade::Secret;
use brigade::sandbox::ServerSandbox;
use brigade_sandbox::GuardCommand;

pub use agent_update::AgentUpdate;
pub use pool::Acp;

/// A configured program that speaks ACP.
#[derive(Debug, Clone)]
pub struct AgentServer {
    /// Name in the configuration.
    pub name: String,
    /// The guard process that it runs under.
    pub guard: GuardCommand,
    /// The directory in which it starts and its sessions work.
    pub workspace: PathBuf,
    /// The executable.
    pub command: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its complete environment. Nothing else is inherited.
    pub environment: Vec<(String, Secret)>,
    /// Secrets that were expanded into its command and arguments. Like the values of its environment, they
    /// are redacted in error messages.
    pub expanded_secrets: Vec<Secret>,
    /// Maximum number of concurrent sessions per process.
    pub max_sessions: usize,
    /// Default options of its agents.
    pub options: AgentOptions,
    /// Agents by name. Their options take precedence over those of the server.
    pub agents: BTreeMap<String, AgentOptions>,
    /// Limits of a session on it.
    pub terms: brigade::external::ExternalLimits,
    /// Time limit for starting it and for opening a session.
    pub start_timeout: Duration,
    /// Its sandbox in mode `edit`. Modes and roles can narrow it.
    pub sandbox: ServerSandbox,
    /// Whether it may run in mode `plan` although it offers no mode that is known to be safe.
    pub allow_in_plan: bool,
}

/// Options of an external agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentOptions {
    /// The agent's own mode to select.
    pub mode: Option<String>,
    /// The model to select.
    pub model: Option<String>,
    /// Additional arguments of the program.
    pub arguments: Vec<String>,
}

/// Default time limit for starting a program and for opening a session.
pub const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);
/// Default maximum number of concurrent sessions per process.
pub const DEFAULT_MAX_SESSIONS: usize = 256;

/// Sanitizes a text of an external agent and shortens it to one line.
fn sanitize(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let mut plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut shown: String = plain.by_ref().take(MAX_CHARS).collect();
    if plain.next().is_some() {
        shown.push('…');
    }
    shown.trim().to_owned()
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
