//! What is asked of a runtime and what it answers.

use std::time::Duration;

use brigade_core::permission::Mode;
use brigade_core::{Agent, Budget, CallId, Outcome, RemoteContext, SessionId, Spent};

use tokio::sync::watch;

use crate::schema::ResultSchema;
use crate::session::DriverError;
use crate::store::StoreError;

/// What a person asks for.
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
    /// A task for the lead agent, within the budget of the settings.
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

    /// The id that the session is to have, where somebody knows it before the session begins.
    pub fn session(self, session: SessionId) -> Task {
        Task { session: Some(session), ..self }
    }

    /// Another agent than the lead.
    pub fn agent(self, agent: Agent) -> Task {
        Task { agent: Some(agent), ..self }
    }

    /// What the whole tree may use up.
    pub fn budget(self, budget: Budget) -> Task {
        Task { budget: Some(budget), ..self }
    }

    /// Model calls of the agent.
    pub fn turns(self, turns: u32) -> Task {
        Task { turns: Some(turns), ..self }
    }

    /// How long the whole tree may take.
    pub fn timeout(self, timeout: Duration) -> Task {
        Task { timeout: Some(timeout), ..self }
    }

    /// Where the task comes from, where another process hands it on: the tree stays within what is left there.
    pub fn hop(self, remote_context: Option<RemoteContext>) -> Task {
        Task { remote_context, ..self }
    }

    /// The schema that the result has to fit. The round fails if it does not; a round that the user asks for later by
    /// [`Runtime::tell`](crate::Runtime::tell) is free of it.
    pub fn schema(self, schema: ResultSchema) -> Task {
        Task { schema: Some(schema), ..self }
    }
}

/// What a next round may use up; what is absent comes from the settings.
#[derive(Debug, Clone, Default)]
pub struct ResumeOptions {
    /// What the whole tree may use up.
    pub budget: Option<Budget>,
    /// Model calls of the agent.
    pub turns: Option<u32>,
    /// How long the whole tree may take.
    pub timeout: Option<Duration>,
    /// A model that takes the place of the recorded ones.
    pub model: Option<String>,
    /// The mode: an open round can only be narrowed by it, a next one has it instead of the last one's.
    pub mode: Option<Mode>,
    /// Where the words come from that ask for a next round, where another process hands them on: the round stays within
    /// what is left there.
    pub remote_context: Option<RemoteContext>,
    /// Whether a session whose last round was cancelled gets a next round. Otherwise it returns its result again.
    pub continue_cancelled: bool,
}

/// Why a tree did not run to an end. Unless the error says so, nothing recorded is lost and the tree can be resumed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    /// A task without words.
    #[error("the task is empty; say what is to be done")]
    EmptyTask,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A model or a definition is not as it has to be.
    #[error("{0}")]
    Config(String),
    /// A budget in dollars cannot be kept, because the price of the model is unknown.
    #[error("{0}")]
    Unpriced(String),
    /// The child of a tree that is not over can't go on by itself.
    #[error("{child} belongs to {root}, which is not over; resume or cancel that one")]
    TreeRunning {
        /// The child.
        child: SessionId,
        /// The tree that it belongs to.
        root: SessionId,
    },
    /// A session that makes a call for another program hears nothing.
    #[error(
        "{0} stands for one call of another program, and nobody thinks there; make another call, start a run, or tell an agent below it"
    )]
    Passthrough(SessionId),
    /// There is no such question, or it was answered already.
    #[error("{session} asks nothing about its call {call}; it may have been answered already")]
    NoSuchApproval {
        /// The session.
        session: SessionId,
        /// The call.
        call: CallId,
    },
    /// An answer names a rule that cannot be read.
    #[error("{0}")]
    Rule(String),
    /// A mistake of this library.
    #[error("this should not happen, please report it: {0}")]
    Bug(String),
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

/// How a tree ended.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// The session at its top.
    pub session: SessionId,
    /// The terminal state and the result.
    pub outcome: Outcome,
    /// What the round used up, children included.
    pub spent: Spent,
    /// Sessions that go on by themselves in this process.
    pub detached: Detached,
}

/// Sessions that their parent has left to themselves. They run on with the process.
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

    /// No sessions: those of a round that another process ran.
    pub fn none() -> Detached {
        Detached::of::<()>(&[])
    }

    pub(crate) fn all_ended(&self) {
        self.ended.send_replace(true);
    }

    /// Which they are.
    pub fn sessions(&self) -> &[SessionId] {
        &self.sessions
    }

    /// Waits until none of them runs any more.
    pub async fn ended(&self) {
        // The sender lives in this very value, so there is always an answer.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}
