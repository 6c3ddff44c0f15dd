//! Interface between the driver and agents that other programs run.
//!
//! An external agent is a [`Model`]: it receives a request, streams a reply, and what it wants from the runtime
//! are calls in that reply. The driver checks and runs those calls like those of any model.

use std::sync::Arc;

use brigade_core::SessionId;
pub use brigade_core::external_limits::{ExternalLimits, ReportedUsage};
use futures::future::BoxFuture;

use crate::model::Model;
use crate::tool::AnyTool;

/// Failure cause of a session that an external program was running when the runner stopped.
pub const INTERRUPTED: &str = "interrupted, outcome unknown: Brigade exited while the external agent was working, \
and the agent was not called again";

/// Reason why an external agent cannot be used, or has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExternalError {
    /// The runtime has no external agents.
    #[error("no external agents are configured. Add one under `[acp.servers.NAME]`.")]
    NotConfigured,
    /// The place does not exist. The text lists the known ones.
    #[error("{0}")]
    UnknownPlace(String),
    /// The program cannot be started, or a session on it cannot be opened as configured.
    #[error("{0}")]
    Start(String),
    /// The program answered a request with an error.
    #[error("{0}")]
    Request(String),
    /// The program exited or closed its connection.
    #[error("{0}")]
    Lost(String),
    /// The program violated the protocol or a limit.
    #[error("{0}")]
    Protocol(String),
}

/// External agents that a runtime can reach.
///
/// # Contract
///
/// * A place is `server` or `server/agent`. An unknown place is an error that lists the known ones.
/// * The model of a place never asks for a retry after a fault, because the effects of the external agent are unknown.
/// * Everything kept for a session is released when the session is [ended](ExternalAgents::end).
pub trait ExternalAgents: Send + Sync + 'static {
    /// Returns the model for the agent at this place.
    fn model(&self, place: &str) -> Result<Arc<dyn Model>, ExternalError>;

    /// Returns the default limits of an agent at this place.
    fn limits(&self, place: &str) -> ExternalLimits;

    /// Returns the tool of this name for external agents, if it differs from the one for Brigade's own agents.
    fn tool(&self, name: &str) -> Option<&ExternalTool>;

    /// Stops the agent of a session and waits briefly for its usage since the last report. Returns none if there
    /// is no such agent.
    fn stop<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Option<ReportedUsage>>;

    /// Releases everything kept for a session.
    fn end(&self, session: &SessionId);
}

/// A tool that carries out requests of external agents.
pub struct ExternalTool {
    /// The tool.
    pub tool: Arc<dyn AnyTool>,
    /// Tools of which the agent's authority must contain at least one. Empty if every agent may use this tool.
    pub needs: &'static [&'static str],
}

/// Ends the external session when its driver is dropped.
pub(crate) struct ExternalSessionGuard {
    pub(crate) external: Arc<dyn ExternalAgents>,
    pub(crate) session: SessionId,
    /// Number of the newest write in the tree when the session started.
    pub(crate) since: u64,
    /// Whether the program worked on the round for an earlier runner and does not know this one.
    pub(crate) is_lost: bool,
}

impl Drop for ExternalSessionGuard {
    fn drop(&mut self) {
        self.external.end(&self.session);
    }
}
