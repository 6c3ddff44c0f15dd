//! Pending approvals of a tree.

use crate::event::{Answer, Event, Record};
use crate::id::{CallId, SessionId};
use crate::text::Text;

/// Approval request that has no answer yet.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingApproval {
    /// Session that requests the approval.
    pub session: SessionId,
    /// Call that needs the approval.
    pub call: CallId,
    /// Complete call: the tool, a space, and its arguments as JSON.
    pub what: Text,
    /// Rule or mode that requires the approval.
    pub why: String,
    /// Rule that "always" would add for this session, if a rule can express it exactly.
    pub always: Option<String>,
    /// Time of the request, in UTC milliseconds.
    pub asked_at: u64,
    /// Time of the default answer, in UTC milliseconds.
    pub until: u64,
    /// Default answer.
    pub default: Answer,
}

impl PendingApproval {
    /// Returns the tool to call.
    pub fn tool(&self) -> &str {
        self.what.as_str().split_once(' ').map_or(self.what.as_str(), |(tool, _)| tool)
    }

    /// Returns the arguments of the call, as JSON.
    pub fn arguments(&self) -> &str {
        self.what.as_str().split_once(' ').map_or("", |(_, arguments)| arguments)
    }

    /// Returns the name that users refer to: the session and the call.
    pub fn name(&self) -> String {
        format!("{}:{}", self.session, self.call)
    }
}

/// Pending approvals, in the order of the requests.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingApprovals(Vec<PendingApproval>);

impl PendingApprovals {
    pub(super) fn iter(&self) -> impl Iterator<Item = &PendingApproval> {
        self.0.iter()
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
                let earlier = self.0.partition_point(|open| open.asked_at <= question.asked_at);
                self.0.insert(earlier, question);
            }
            Event::Answered { call, .. } | Event::ToolEnded { call, .. } => {
                self.close(&record.session, Some(*call));
            }
            Event::Ended { .. } => self.close(&record.session, None),
            _ => {}
        }
    }

    fn close(&mut self, session: &SessionId, call: Option<CallId>) {
        self.0.retain(|open| open.session != *session || call.is_some_and(|call| open.call != call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cursor;

    #[test]
    fn pending_approvals_are_in_the_order_of_their_times() {
        let mut pending = PendingApprovals::default();
        // Positions say nothing, and live records of two sessions may arrive in any order.
        for (bits, pos, at) in [(1, 9, 20), (2, 8, 10), (3, 1, 20), (4, 2, 30)] {
            let call = CallId { turn: 1, index: 0 };
            let (why, default) = (String::new(), Answer::Once);
            let event = Event::Asked { call, what: "shell {}".into(), why, always: None, until: 99, default };
            let (session, pos) = (SessionId::root(bits), Cursor::new(pos));
            pending.apply(&Record { session, seq: 0, pos, at, v: 1, event });
        }
        let order: Vec<&SessionId> = pending.iter().map(|open| &open.session).collect();
        assert_eq!(order, [2, 1, 3, 4].map(SessionId::root).iter().collect::<Vec<_>>());
    }
}
