//! Sessions that were started through this server or an earlier one. All state is read from the store.

use brigade::{OpenSessions, Runtime, StoreError};
use brigade_core::view::Tree;
use brigade_core::{CallId, Cursor, Event, Outcome, Record, SessionId, Spent, ToolOutput};

use crate::server::AGENT;
use crate::text;
use crate::visibility::Visibility;

/// The only call of the root session.
const ROOT_CALL: CallId = CallId { turn: 1, index: 0 };

/// A session and its tree.
pub(crate) struct FoundSession {
    pub(crate) session: SessionId,
    pub(crate) root: SessionId,
    pub(crate) tree: Tree,
    records: Vec<Record>,
    pub(crate) run_status: RunStatus,
}

/// Run status of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunStatus {
    /// A process is running it.
    Running,
    /// It has ended.
    Ended,
    /// No process is running it, and it has not ended.
    Interrupted,
}

/// Origin of a tree's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitSource {
    /// The settings of this server.
    Server,
    /// An agent of another Brigade.
    Caller,
}

/// Reason why a session cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error(
        "unknown session '{0}'. Use a session that was started through `brigade mcp`. To list these sessions, call `session_status` without `session_id`."
    )]
    Unknown(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Finds a session by its id. A session that the caller may not see is reported as unknown.
pub(crate) async fn find(
    runtime: &Runtime,
    calls: &OpenSessions,
    visibility: &Visibility,
    id: &str,
) -> Result<FoundSession, LookupError> {
    let unknown = || LookupError::Unknown(text::one_line(id, 80));
    let session: SessionId = id.trim().parse().map_err(|_| unknown())?;
    let root = session.root_id();
    let store = runtime.store();
    let records = store.tail(&root, Cursor::START, usize::MAX).await?;
    let first = records.iter().find(|record| record.session == root).map(|record| &record.event);
    let Some(first) = first.filter(|first| visibility.covers(first)) else { return Err(unknown()) };
    // Another agent may have the same name, but a real model.
    let is_ours =
        is_mcp_root(first) && runtime.session_info(&root).await?.is_some_and(|info| info.is_passthrough());
    if !is_ours || !records.iter().any(|record| record.session == session) {
        return Err(unknown());
    }
    let ended = records.iter().rev().find(|record| record.session == root).map(|record| &record.event);
    let run_status = match ended {
        Some(Event::Ended { .. }) => RunStatus::Ended,
        _ if calls.get(&root).is_some() => RunStatus::Running,
        _ if store.runner(&root).await?.is_some() => RunStatus::Running,
        _ => RunStatus::Interrupted,
    };
    let tree = Tree::fold(&records);
    Ok(FoundSession { session, root, tree, records, run_status })
}

/// The newest root sessions that were started through a server and are visible, at most `limit`.
pub(crate) async fn newest(
    runtime: &Runtime,
    calls: &OpenSessions,
    visibility: &Visibility,
    limit: usize,
) -> Result<Vec<FoundSession>, LookupError> {
    let mut found = Vec::new();
    for summary in runtime.store().roots().await? {
        if found.len() >= limit {
            break;
        }
        let is_candidate = |record: &Record| is_mcp_root(&record.event) && visibility.covers(&record.event);
        if summary.first.as_ref().is_ok_and(is_candidate)
            && let Ok(session) = find(runtime, calls, visibility, summary.root.as_str()).await
        {
            found.push(session);
        }
    }
    Ok(found)
}

fn is_mcp_root(event: &Event) -> bool {
    matches!(event, Event::Started { delegation, .. } if delegation.agent.as_deref() == Some(AGENT))
}

impl FoundSession {
    /// The output of the call that the tree was started for.
    pub(crate) fn output(&self) -> Option<&ToolOutput> {
        self.events_of(&self.root).rev().find_map(|event| match event {
            Event::ToolEnded { call, output, .. } if *call == ROOT_CALL => Some(output),
            _ => None,
        })
    }

    /// Whether this is the root session and its call failed.
    pub(crate) fn call_failed(&self) -> bool {
        self.session == self.root && self.output().is_some_and(ToolOutput::is_error)
    }

    /// The outcome of the session, if it has ended.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome_of(&self.session)
    }

    /// The outcome of the root session, if it has ended.
    pub(crate) fn root_outcome(&self) -> Option<&Outcome> {
        self.outcome_of(&self.root)
    }

    fn outcome_of(&self, session: &SessionId) -> Option<&Outcome> {
        self.records.iter().rev().find_map(|record| match &record.event {
            Event::Ended { outcome, .. } if record.session == *session => Some(outcome),
            _ => None,
        })
    }

    /// The usage of the tree.
    pub(crate) fn spent(&self) -> Spent {
        self.tree.spent(&self.root)
    }

    /// The times of the first and the last event, in UTC milliseconds.
    pub(crate) fn times(&self) -> (u64, u64) {
        let at = |record: Option<&Record>| record.map_or(0, |record| record.at);
        (at(self.records.first()), at(self.records.last()))
    }

    /// The recipients of a message. The root session only forwards a call, so its message goes to the agents
    /// below it.
    pub(crate) fn message_targets(&self) -> Vec<SessionId> {
        if self.session != self.root {
            return vec![self.session.clone()];
        }
        self.tree.node(&self.root).map(|node| node.children.clone()).unwrap_or_default()
    }

    /// The origin of the tree's limits.
    pub(crate) fn limit_source(&self) -> LimitSource {
        let is_lent = self.events_of(&self.root).any(
            |event| matches!(event, Event::Started { delegation, .. } if delegation.remote_context.is_some()),
        );
        if is_lent { LimitSource::Caller } else { LimitSource::Server }
    }

    /// Whether a session of the tree has ended.
    pub(crate) fn is_over(&self, session: &SessionId) -> bool {
        self.events_of(session).next_back().is_some_and(|event| matches!(event, Event::Ended { .. }))
    }

    fn events_of<'a>(&'a self, session: &'a SessionId) -> impl DoubleEndedIterator<Item = &'a Event> {
        self.records.iter().filter(move |record| record.session == *session).map(|record| &record.event)
    }
}
