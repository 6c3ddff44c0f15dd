//! Inputs and results of a run.

use std::time::Duration;

use brigade_core::amount::dollars_as_f64;
use brigade_core::permission::Mode;
use brigade_core::{Agent, Budget, Outcome, QuestionId, RemoteContext, SessionId, Spent};

use tokio::sync::watch;

use crate::resolved_agent::{ResolveError, UnpricedModel};
use crate::schema::ResultSchema;
use crate::session::DriverError;
use crate::store::StoreError;

/// Task for a new session tree.
#[derive(Debug, Clone)]
pub struct Task {
    pub(super) text: String,
    pub(super) session: Option<SessionId>,
    pub(super) agent: Option<Agent>,
    pub(super) budget: Option<Budget>,
    pub(super) turns: Option<u32>,
    pub(super) timeout: Option<Duration>,
    pub(super) remote_context: Option<RemoteContext>,
    pub(super) schema: Option<ResultSchema>,
}

impl Task {
    /// Creates a task for the lead agent with the budget of the settings.
    pub fn new(text: impl Into<String>) -> Task {
        Task {
            text: text.into(),
            session: None,
            agent: None,
            budget: None,
            turns: None,
            timeout: None,
            remote_context: None,
            schema: None,
        }
    }

    /// Sets the session id, for callers that need it before the session starts.
    pub fn session(self, session: SessionId) -> Task {
        Task { session: Some(session), ..self }
    }

    /// Depth of the session in the tree of the process that delegates it.
    pub(crate) fn depth(&self) -> u32 {
        self.remote_context.as_ref().map_or(0, |remote_context| remote_context.depth)
    }

    /// Sets an agent other than the lead.
    pub fn agent(self, agent: Agent) -> Task {
        Task { agent: Some(agent), ..self }
    }

    /// Sets the budget of the whole tree.
    pub fn budget(self, budget: Budget) -> Task {
        Task { budget: Some(budget), ..self }
    }

    /// Sets the maximum number of model calls of the agent.
    pub fn turns(self, turns: u32) -> Task {
        Task { turns: Some(turns), ..self }
    }

    /// Sets the time limit of the whole tree.
    pub fn timeout(self, timeout: Duration) -> Task {
        Task { timeout: Some(timeout), ..self }
    }

    /// Sets the context of a task that another process delegates. The tree stays within the limits it contains.
    pub fn remote_context(self, remote_context: Option<RemoteContext>) -> Task {
        Task { remote_context, ..self }
    }

    /// Sets the JSON Schema of the result. The round fails if the result does not match. A later round that the
    /// user requests with [`Runtime::tell`](crate::Runtime::tell) is not bound by it.
    pub fn schema(self, schema: ResultSchema) -> Task {
        Task { schema: Some(schema), ..self }
    }
}

impl From<&str> for Task {
    fn from(text: &str) -> Task {
        Task::new(text)
    }
}

impl From<String> for Task {
    fn from(text: String) -> Task {
        Task::new(text)
    }
}

/// Options for resuming a session. Absent values come from the settings.
#[derive(Debug, Clone, Default)]
pub struct ResumeOptions {
    /// Budget of the whole tree.
    pub budget: Option<Budget>,
    /// Maximum number of model calls of the agent.
    pub turns: Option<u32>,
    /// Time limit of the whole tree.
    pub timeout: Option<Duration>,
    /// Model that replaces the recorded ones.
    pub model: Option<String>,
    /// Permission mode. It can only narrow an open round. A next round uses it instead of the previous mode.
    pub mode: Option<Mode>,
    /// Context of a next round that another process requests. The round stays within the limits it contains.
    pub remote_context: Option<RemoteContext>,
    /// Whether a session whose last round was cancelled starts a next round. Otherwise it returns its result
    /// again.
    pub continue_cancelled: bool,
}

/// Error that kept a tree from running to its end. Unless the error says otherwise, nothing recorded is lost and
/// the tree can be resumed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    /// The task has no text.
    #[error("the task is empty. Describe what to do.")]
    EmptyTask,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A model, an agent definition or the request is invalid.
    #[error("{0}")]
    Config(String),
    /// A budget in dollars cannot be enforced, because the price of the model is unknown.
    #[error(transparent)]
    Unpriced(#[from] UnpricedModel),
    /// A child cannot be resumed on its own while its tree is running.
    #[error(
        "cannot run {child} on its own: {root}, which it belongs to, has not ended. Resume or cancel {root}."
    )]
    TreeRunning {
        /// The child.
        child: SessionId,
        /// The root of its tree.
        root: SessionId,
    },
    /// A session that only forwards a call of another program cannot receive messages.
    #[error(
        "cannot send a message to {0}: it only forwards a call from another program. Start a new run, or send the message to one of its sub-agents."
    )]
    Passthrough(SessionId),
    /// The approval request does not exist or was already answered.
    #[error(
        "cannot answer approval request {question} of {session}: it is not open. It may already have been answered, or the call may have ended."
    )]
    NoSuchApproval {
        /// The session.
        session: SessionId,
        /// The request.
        question: QuestionId,
    },
    /// An answer contains an invalid permission rule.
    #[error("{0}")]
    Rule(String),
    /// A bug in this library.
    #[error("internal error: {0}. Please report it.")]
    Bug(String),
}

impl From<ResolveError> for RunError {
    fn from(error: ResolveError) -> RunError {
        RunError::Config(error.to_string())
    }
}

impl From<DriverError> for RunError {
    fn from(error: DriverError) -> RunError {
        match error {
            DriverError::Store(error) => RunError::Store(error),
            DriverError::Config(cause) => RunError::Config(cause),
            DriverError::Bug(cause) => RunError::Bug(cause),
        }
    }
}

/// Result of a run.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// The root session.
    pub session: SessionId,
    /// Terminal state and result text.
    pub outcome: Outcome,
    /// Resources that the round used, children included.
    pub spent: Spent,
    /// Detached sessions that continue in this process.
    pub detached: Detached,
}

impl RunResult {
    /// Returns the result text. It is partial unless the status is [`Status::Done`](brigade_core::Status::Done).
    pub fn text(&self) -> &str {
        self.outcome.text.as_str()
    }

    /// Returns the cost in dollars, children included. Calls with an unknown price are not included; their number is
    /// `spent.unpriced`.
    pub fn cost_usd(&self) -> f64 {
        dollars_as_f64(self.spent.usd)
    }

    /// Returns the tokens, input and output together, children included.
    pub fn tokens(&self) -> u64 {
        self.spent.usage.total()
    }
}

/// Sessions that were detached from their parent. They run as long as the process does.
#[derive(Debug, Clone)]
pub struct Detached {
    sessions: Vec<SessionId>,
    ended: watch::Sender<bool>,
}

impl Detached {
    pub(crate) fn of<T>(tasks: &[(SessionId, T)]) -> Detached {
        let sessions: Vec<SessionId> = tasks.iter().map(|(session, _)| session.clone()).collect();
        let ended = watch::Sender::new(sessions.is_empty());
        Detached { sessions, ended }
    }

    /// Returns an empty list, for a round that another process ran.
    pub fn none() -> Detached {
        Detached::of::<()>(&[])
    }

    pub(crate) fn all_ended(&self) {
        self.ended.send_replace(true);
    }

    /// Returns the session ids.
    pub fn sessions(&self) -> &[SessionId] {
        &self.sessions
    }

    /// Waits until all of them have ended.
    pub async fn ended(&self) {
        // The sender is part of this value, so the channel cannot be closed.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}
