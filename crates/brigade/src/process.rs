//! Processes that the runtime starts: their confinement and their names in the process table.

use brigade_core::grant::Authority;
use brigade_core::{CallId, SessionId};
use brigade_sandbox::Confinement;

/// Owner of a process, which decides its confinement.
#[derive(Debug, Clone, Copy)]
pub enum ProcessOwner<'a> {
    /// A call of a session with this authority.
    Session(&'a Authority),
    /// All sessions of a runtime, which share an MCP or ACP server.
    Runtime,
    /// The user: a command that no agent requested.
    User,
}

/// Computes the confinement of a process. All processes get it here, before they start.
///
/// Today it is always none. It will be derived from the authority of a session:
///
/// * `workspace` and `paths`: the folders that can be read and written,
/// * `network`: whether the network can be used.
///
/// A shared server serves sessions of different authority, so it can only be confined to what the widest of them
/// may access. A command of the user stays unconfined.
pub fn confinement(owner: ProcessOwner<'_>) -> Confinement {
    match owner {
        ProcessOwner::Session(_) | ProcessOwner::Runtime | ProcessOwner::User => Confinement::none(),
    }
}

/// Tag of a call's guard. A runner that resumes the session finds a guard that is still running by it.
pub fn guard_tag(session: &SessionId, call: CallId) -> String {
    format!("{session}:{call}")
}
