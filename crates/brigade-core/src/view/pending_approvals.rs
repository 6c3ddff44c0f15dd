//! The questions of a tree that nobody has answered yet.

use std::collections::BTreeMap;

use crate::event::{Answer, Event, Record};
use crate::id::{CallId, SessionId};
use crate::text::Text;

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingApproval {
    /// Who asks.
    pub session: SessionId,
    /// The call that it is about.
    pub call: CallId,
    /// The call, whole: the tool, a space, and its arguments as JSON.
    pub what: Text,
    /// The rule or mode that asks.
    pub why: String,
    /// The rule that "always" would add for this session, where one can say it exactly.
    pub always: Option<String>,
    /// When it was asked, in UTC milliseconds.
    pub asked_at: u64,
    /// When the default answers, in UTC milliseconds.
    pub until: u64,
    /// What is answered then.
    pub default: Answer,
}

impl PendingApproval {
    /// The tool that is to be called.
    pub fn tool(&self) -> &str {
        self.what.as_str().split_once(' ').map_or(self.what.as_str(), |(tool, _)| tool)
    }

    /// The arguments of the call, as JSON.
    pub fn arguments(&self) -> &str {
        self.what.as_str().split_once(' ').map_or("", |(_, arguments)| arguments)
    }

    /// How people name it: the session and the call.
    pub fn name(&self) -> String {
        format!("{}:{}", self.session, self.call)
    }
}

/// Open questions, in the order in which they were asked.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingApprovals(BTreeMap<u64, PendingApproval>);

impl PendingApprovals {
    pub(super) fn iter(&self) -> impl Iterator<Item = &PendingApproval> {
        self.0.values()
    }

    pub(super) fn apply(&mut self, record: &Record) {
        match &record.event {
            Event::Asked { call, what, why, always, until, default } => {
                self.close(&record.session, Some(*call));
                let question = PendingApproval {
                    session: record.session.clone(),
                    call: *call,
                    what: what.clone(),
                    why: why.clone(),
                    always: always.clone(),
                    asked_at: record.at,
                    until: *until,
                    default: default.clone(),
                };
                self.0.insert(record.pos, question);
            }
            Event::Answered { call, .. } | Event::ToolEnded { call, .. } => {
                self.close(&record.session, Some(*call));
            }
            Event::Ended { .. } => self.close(&record.session, None),
            _ => {}
        }
    }

    fn close(&mut self, session: &SessionId, call: Option<CallId>) {
        if !self.0.is_empty() {
            self.0.retain(|_, open| open.session != *session || call.is_some_and(|call| open.call != call));
        }
    }
}
