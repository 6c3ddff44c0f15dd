//! External agents as children.
//!
//! [`Acp`] holds the programs that were configured, starts them when a session first needs one, and lets many sessions
//! share a process. To the driver each of them is a model: a prompt is a request, and what the agent asks of us (a file,
//! a terminal, a permission) are calls of its reply, which pass the same choke point as those of any model.
//!
//! A peer is not trusted. Lines, queues and texts are bounded, every wait has an end, and a program that breaks the
//! protocol is ended: that costs the sessions on it, and nothing else.

mod account;
mod agent_request;
mod agent_update;
mod calls;
mod close_reason;
mod denied;
mod modes;
mod peer;
mod pool;
mod process;
mod redactor;
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
use brigade_sandbox::GuardCommand;

pub use agent_update::AgentUpdate;
pub use pool::Acp;

/// A program that speaks the protocol.
#[derive(Debug, Clone)]
pub struct AgentServer {
    /// Its name.
    pub name: String,
    /// The program that guards it.
    pub guard: GuardCommand,
    /// The folder that it starts in and that its sessions work in.
    pub workspace: PathBuf,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Exactly the environment that it gets.
    pub environment: Vec<(String, Secret)>,
    /// What was filled into its command and arguments: like the values of its environment, it is hidden in what the
    /// program says about its failures.
    pub expanded_secrets: Vec<Secret>,
    /// How many sessions one process serves at once.
    pub max_sessions: usize,
    /// How it is to work.
    pub options: AgentOptions,
    /// Its agents, by name: what they choose counts before what the server chooses.
    pub agents: BTreeMap<String, AgentOptions>,
    /// What a session on it is lent.
    pub terms: brigade::external::ExternalLimits,
    /// How long starting it and opening a session may take.
    pub start_timeout: Duration,
    /// Whether it may work in mode `plan` although it offers no mode that is known to be safe.
    pub allow_in_plan: bool,
}

/// How an agent is to work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentOptions {
    /// The mode that it is put into.
    pub mode: Option<String>,
    /// The model that it is told to use.
    pub model: Option<String>,
    /// More arguments of the program.
    pub arguments: Vec<String>,
}

/// How long starting a program and opening a session may take.
pub const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);
/// How many sessions one process serves at once.
pub const DEFAULT_MAX_SESSIONS: usize = 256;

/// A few plain words of a stranger.
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
