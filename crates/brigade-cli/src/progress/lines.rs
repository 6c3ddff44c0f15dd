//! Progress as plain lines on standard error.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use brigade::RunEvent;
use brigade_core::event::CallFault;
use brigade_core::{Event, QuestionId, Record, SessionId, Status};

use super::{answer_line, denial_line, message_line, thought_line};
use crate::follow::RunView;
use crate::output;
use crate::render::{approval_view, truncate_at_word};
use crate::sanitize;
use crate::units;

/// Level of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// Starts, messages and ends of agents.
    Agents,
    /// Denied tool calls too.
    Denials,
    /// All tool calls too.
    Calls,
}

/// Writes one line per important event.
pub(crate) struct Lines {
    detail: Detail,
    store_flag: String,
    /// Time of the last note about waiting for a provider. A hundred agents may wait for the same one.
    last_wait_note: Option<Instant>,
    /// Sessions whose last model call failed and is retried. The note about the next attempt contains the error.
    retries: HashSet<SessionId>,
}

/// Width of a task, and of the output of a failed call.
const MAX_TASK_COLUMNS: usize = 100;
const MAX_OUTPUT_COLUMNS: usize = 200;

/// Interval between notes about waiting for a provider.
const WAIT_NOTE_INTERVAL: Duration = Duration::from_secs(10);

impl Lines {
    /// Creates the writer. `store_flag` is the flag that names the same store in a suggested command.
    pub(super) fn new(detail: Detail, store_flag: String) -> Lines {
        Lines { detail, store_flag, last_wait_note: None, retries: HashSet::new() }
    }

    pub(super) fn on_event(&mut self, run_event: &RunEvent, view: &RunView) {
        if let Some(text) = message_line(run_event, view)
            .or_else(|| answer_line(run_event, view))
            .or_else(|| denial_line(run_event, view).filter(|_| self.detail >= Detail::Denials))
            .or_else(|| thought_line(run_event, view))
        {
            output::note(&text);
        } else if let RunEvent::Waiting { session, why } = run_event {
            let is_retry = self.retries.remove(session);
            if is_retry || self.last_wait_note.is_none_or(|at| at.elapsed() >= WAIT_NOTE_INTERVAL) {
                if !is_retry {
                    self.last_wait_note = Some(Instant::now());
                }
                output::note(&format!("{}: {}", view.label(session), sanitize::line(why)));
            }
        } else if let RunEvent::Record(record) = run_event {
            if let Event::CallFailed { cause: CallFault::Transient { .. }, .. } = &record.event {
                self.retries.insert(record.session.clone());
            }
            if let Some(line) = self.line(record, view) {
                output::note(&line);
            }
        }
    }

    fn line(&self, record: &Record, view: &RunView) -> Option<String> {
        let node = view.tree.node(&record.session)?;
        let label = sanitize::line(&node.label);
        let calls = self.detail == Detail::Calls;
        match &record.event {
            Event::Started { .. } if record.session == view.root => {
                Some(format!("{label}: started session={}", record.session))
            }
            Event::Delegated { delegation, .. } => {
                let role = delegation.role.as_deref().or(delegation.agent.as_deref()).unwrap_or_default();
                let task = truncate_at_word(&sanitize::line(delegation.task.as_str()), MAX_TASK_COLUMNS);
                Some(format!("{label} -> {}: {task}", sanitize::line(role)))
            }
            Event::Asked { call, .. } => {
                let question = QuestionId::from(*call);
                let approval =
                    view.tree.pending_approvals().find(|open| open.is(&record.session, &question))?;
                let who = approval_view::lineage(approval, &view.tree);
                let what = sanitize::line(approval.what.as_str());
                let (name, store) = (approval.name(), &self.store_flag);
                Some(format!("{who} requests approval: {what} (brigade answer {name}{store} yes|no)"))
            }
            Event::HostAsked { call, host, .. } => {
                let question = QuestionId { call: *call, host: Some(host.clone()) };
                let approval =
                    view.tree.pending_approvals().find(|open| open.is(&record.session, &question))?;
                let (name, store) = (approval.name(), &self.store_flag);
                let headline = approval_view::headline(approval, &view.tree);
                Some(format!("{headline} (brigade answer {name}{store} yes|no)"))
            }
            Event::ToolStarted { call, .. } if calls => {
                Some(format!("{label}: {}", view.call_label(&record.session, *call)))
            }
            Event::ToolEnded { call, output, .. } if calls && output.is_error() => {
                let first = truncate_at_word(&sanitize::line(output.text.as_str()), MAX_OUTPUT_COLUMNS);
                Some(format!("{label}: {} failed: {first}", view.call_label(&record.session, *call)))
            }
            Event::CallFailed {
                cause: cause @ (CallFault::Fatal { .. } | CallFault::GivenUp { .. }),
                ..
            } => Some(format!("{label}: model error: {}", sanitize::line(&cause.to_string()))),
            Event::LimitReached { which, .. } => Some(format!("{label}: reached the {}", which.label())),
            Event::CancelAsked { by } if record.session == view.root => {
                Some(format!("{label}: cancel requested by {}", sanitize::line(by)))
            }
            Event::Ended { outcome, .. } if record.session != view.root => {
                let cause = match &outcome.status {
                    Status::Failed { cause } | Status::Lost { cause } => {
                        format!(": {}", sanitize::line(cause))
                    }
                    Status::Incomplete { limit } => format!(": {limit}"),
                    Status::Done | Status::Cancelled { .. } | Status::Detached => String::new(),
                };
                Some(format!(
                    "{label}: {} turns={} tokens={} cost={} time={} session={}{cause}",
                    outcome.status.as_str(),
                    node.turns,
                    node.own_usage.usage.total(),
                    units::format_cost(&node.own_usage),
                    units::format_elapsed(view.tree.working_time([&record.session], None)),
                    record.session,
                ))
            }
            _ => None,
        }
    }
}
