//! Progress as plain lines on standard error.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use brigade::Live;
use brigade_core::event::CallFault;
use brigade_core::{Event, Record, SessionId, Status};

use super::{answered, said, thought};
use crate::follow::View;
use crate::output;
use crate::render::{question, shortened};
use crate::safe;
use crate::units;

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Who starts, speaks and ends.
    Agents,
    /// Also every tool call.
    Calls,
}

/// Writes a line for what matters.
pub(crate) struct Lines {
    detail: Detail,
    store: String,
    /// When it was last said that somebody waits: a hundred agents wait for the same thing.
    waited: Option<Instant>,
    /// Sessions whose last model call failed and is made again. The note about the next attempt contains the fault.
    retries: HashSet<SessionId>,
}

/// Columns of a task, and of the output of a call that failed.
const MAX_TASK: usize = 100;
const MAX_OUTPUT: usize = 200;

/// How often it is said that somebody waits for a provider.
const WAIT_NEWS: Duration = Duration::from_secs(10);

impl Lines {
    /// `store` is the flag that names the same store again.
    pub(super) fn new(detail: Detail, store: String) -> Lines {
        Lines { detail, store, waited: None, retries: HashSet::new() }
    }

    pub(super) fn see(&mut self, live: &Live, view: &View) {
        if let Some(words) = said(live, view).or_else(|| answered(live, view)).or_else(|| thought(live, view))
        {
            output::note(&words);
        } else if let Live::Waiting { session, why } = live {
            let is_retry = self.retries.remove(session);
            if is_retry || self.waited.is_none_or(|at| at.elapsed() >= WAIT_NEWS) {
                if !is_retry {
                    self.waited = Some(Instant::now());
                }
                let label = view.tree.node(session).map_or("", |node| node.label.as_str());
                output::note(&format!("{}: {}", safe::line(label), safe::line(why)));
            }
        } else if let Live::Fact(record) = live {
            if let Event::CallFailed { cause: CallFault::Transient { .. }, .. } = &record.event {
                self.retries.insert(record.session.clone());
            }
            if let Some(line) = self.line(record, view) {
                output::note(&line);
            }
        }
    }

    fn line(&self, record: &Record, view: &View) -> Option<String> {
        let node = view.tree.node(&record.session)?;
        let label = safe::line(&node.label);
        let calls = self.detail == Detail::Calls;
        match &record.event {
            Event::Started { .. } if record.session == view.root => {
                Some(format!("{label}: started session={}", record.session))
            }
            Event::Delegated { delegation, .. } => {
                let role = delegation.role.as_deref().or(delegation.agent.as_deref()).unwrap_or_default();
                let task = shortened(&safe::line(delegation.task.as_str()), MAX_TASK);
                Some(format!("{label} -> {}: {task}", safe::line(role)))
            }
            Event::Asked { call, .. } => {
                let question = view.tree.question(&record.session).filter(|open| open.call == *call)?;
                let who = question::lineage(question, &view.tree);
                let what = safe::line(question.what.as_str());
                let (name, store) = (question.name(), &self.store);
                Some(format!("{who} asks: {what} (brigade answer {name}{store} yes|no)"))
            }
            Event::ToolStarted { call, .. } if calls => {
                Some(format!("{label}: {}", view.call(&record.session, *call)))
            }
            Event::ToolEnded { call, output, .. } if calls && output.is_error() => {
                let first = shortened(&safe::line(output.text.as_str()), MAX_OUTPUT);
                Some(format!("{label}: {} failed: {first}", view.call(&record.session, *call)))
            }
            Event::CallFailed {
                cause: cause @ (CallFault::Fatal { .. } | CallFault::GivenUp { .. }),
                ..
            } => Some(format!("{label}: the model failed: {}", safe::line(&cause.to_string()))),
            Event::LimitReached { which, .. } => Some(format!("{label}: reached the {}", which.phrase())),
            Event::CancelAsked { by } if record.session == view.root => {
                Some(format!("{label}: asked to stop by {}", safe::line(by)))
            }
            Event::Ended { outcome, .. } if record.session != view.root => {
                let cause = match &outcome.status {
                    Status::Failed { cause } | Status::Lost { cause } => format!(": {}", safe::line(cause)),
                    Status::Incomplete { limit } => format!(": {limit}"),
                    Status::Done | Status::Cancelled { .. } | Status::Detached => String::new(),
                };
                Some(format!(
                    "{label}: {} turns={} tokens={} cost={} time={} session={}{cause}",
                    outcome.status.word(),
                    node.turns,
                    node.own.usage.total(),
                    units::cost(&node.own),
                    units::elapsed(view.tree.working_time([&record.session], None)),
                    record.session,
                ))
            }
            _ => None,
        }
    }
}
