//! Progress as plain lines on standard error.

use std::time::{Duration, Instant};

use brigade::Live;
use brigade_core::event::CallFault;
use brigade_core::{Event, Record, Status};

use super::{answered, said};
use crate::follow::View;
use crate::output;
use crate::render::question;
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
}

/// How often it is said that somebody waits for a provider.
const WAIT_NEWS: Duration = Duration::from_secs(10);

impl Lines {
    /// `store` is the flag that names the same store again.
    pub(super) fn new(detail: Detail, store: String) -> Lines {
        Lines { detail, store, waited: None }
    }

    pub(super) fn see(&mut self, live: &Live, view: &View) {
        if let Some(words) = said(live, view).or_else(|| answered(live, view)) {
            output::note(&words);
        } else if let Live::Waiting { session, why } = live {
            if self.waited.is_none_or(|at| at.elapsed() >= WAIT_NEWS) {
                self.waited = Some(Instant::now());
                let label = view.tree.node(session).map_or("", |node| node.label.as_str());
                output::note(&format!("{}: {}", safe::line(label), safe::line(why)));
            }
        } else if let Live::Fact(record) = live
            && let Some(line) = self.line(record, view)
        {
            output::note(&line);
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
                let task: String = safe::line(delegation.task.as_str()).chars().take(100).collect();
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
                let first: String = safe::line(output.text.as_str()).chars().take(200).collect();
                Some(format!("{label}: {} failed: {first}", view.call(&record.session, *call)))
            }
            Event::CallFailed {
                cause: cause @ (CallFault::Transient { .. } | CallFault::Fatal { .. }),
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
