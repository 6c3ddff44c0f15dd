//! Pending approvals of a tree.

use crate::event::{Answer, Event, Record};
use crate::host_question::QuestionId;
use crate::id::{CallId, SessionId};
use crate::network::Target;
use crate::text::Text;

/// Approval request that has no answer yet.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingApproval {
    /// Session that requests the approval.
    pub session: SessionId,
    /// Call that needs the approval.
    pub call: CallId,
    /// Host that the running call connects to. `None` if the approval is for the call itself, which has not started.
    pub host: Option<Target>,
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

    /// Returns the id of the request in its session.
    pub fn question(&self) -> QuestionId {
        QuestionId { call: self.call, host: self.host.clone() }
    }

    /// Returns the name that users refer to: the session and the call, with the host if the request is about one.
    pub fn name(&self) -> String {
        format!("{}:{}", self.session, self.question())
    }

    /// Whether the request is of this session and has this id.
    pub fn is(&self, session: &SessionId, question: &QuestionId) -> bool {
        self.session == *session && self.call == question.call && self.host == question.host
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
                self.open(PendingApproval {
                    session: record.session.clone(),
                    call: *call,
                    host: None,
                    what: what.clone(),
                    why: why.clone(),
                    always: always.clone(),
                    asked_at: record.at,
                    until: *until,
                    default: default.clone(),
                });
            }
            Event::HostAsked { call, host, what, why, until, default } => {
                self.open(PendingApproval {
                    session: record.session.clone(),
                    call: *call,
                    host: Some(host.clone()),
                    what: what.clone(),
                    why: why.clone(),
                    always: Some(host.to_string()),
                    asked_at: record.at,
                    until: *until,
                    default: default.clone(),
                });
            }
            Event::Answered { call, .. } => {
                self.close(&record.session, |open| open.call == *call && open.host.is_none());
            }
            Event::HostAnswered { call, host, .. } => {
                self.close(&record.session, |open| open.call == *call && open.host.as_ref() == Some(host));
            }
            Event::ToolEnded { call, .. } => self.close(&record.session, |open| open.call == *call),
            Event::Ended { .. } => self.close(&record.session, |_| true),
            _ => {}
        }
    }

    /// Adds a request. It replaces one with the same id.
    fn open(&mut self, question: PendingApproval) {
        let id = question.question();
        self.0.retain(|open| !open.is(&question.session, &id));
        let earlier = self.0.partition_point(|open| open.asked_at <= question.asked_at);
        self.0.insert(earlier, question);
    }

    fn close(&mut self, session: &SessionId, is_closed: impl Fn(&PendingApproval) -> bool) {
        self.0.retain(|open| open.session != *session || !is_closed(open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cursor;

    #[test]
    fn requests_about_hosts_are_listed_until_they_or_their_call_end() {
        let (call, session) = (CallId { turn: 1, index: 0 }, SessionId::root(1));
        let host = |name: &str| -> Target { format!("{name}.example:443").parse().unwrap() };
        let asked = |name: &str| Event::HostAsked {
            call,
            host: host(name),
            what: r#"shell {"command":"npm install"}"#.into(),
            why: String::new(),
            until: 99,
            default: Answer::Deny { word: None },
        };
        let mut pending = PendingApprovals::default();
        let mut add = |event: Event| {
            let (session, pos) = (session.clone(), Cursor::new(1));
            pending.apply(&Record { session, seq: 0, pos, at: 1, v: 1, event });
            pending.iter().map(PendingApproval::name).collect::<Vec<_>>()
        };
        let name = |name: &str| format!("{session}:1-0:{name}.example:443");
        add(asked("a"));
        assert_eq!(add(asked("b")), [name("a"), name("b")]);
        // The call itself was answered before.
        let by = || "me".to_owned();
        assert_eq!(add(Event::Answered { call, answer: Answer::Once, by: by() }).len(), 2);
        let answered = |name| Event::HostAnswered { call, host: host(name), answer: Answer::Once, by: by() };
        assert_eq!(add(answered("a")), [name("b")]);
        assert_eq!(add(answered("a")), [name("b")], "a second answer closes nothing");
        add(Event::tool_ended(call, crate::ToolOutput::ok("")));
        assert_eq!(pending.iter().count(), 0);
    }

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
