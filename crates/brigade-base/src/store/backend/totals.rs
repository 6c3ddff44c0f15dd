//! Usage of trees, for listings.

use std::collections::BTreeMap;

use brigade_core::{Event, Record, Resources, SessionId, Spent, Status};

/// Usage of a tree so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals {
    /// Number of sessions, including the root.
    pub sessions: u64,
    /// Usage of its rounds. For an open round this is the sum over all sessions in it, whether or not they have
    /// returned.
    pub spent: Spent,
    /// Outcome of the last round, if it has ended.
    pub ended: Option<Status>,
}

/// Usage in events of a tree after the end of the last round of its root. Takes each session in log order.
#[derive(Debug, Default)]
pub struct OpenRound(BTreeMap<SessionId, SessionSpent>);

#[derive(Debug, Default)]
struct SessionSpent {
    /// Whether the session started in the round. One that was detached in an earlier round is accounted for
    /// separately.
    has_started: bool,
    spent: Spent,
    held_back: Resources,
}

impl OpenRound {
    /// Adds a record.
    pub fn take(&mut self, record: &Record) {
        let session = self.0.entry(record.session.clone()).or_default();
        match &record.event {
            Event::Started { .. } => session.has_started = true,
            Event::Called { .. } => session.held_back = Resources::default(),
            Event::Replied { spent, .. } | Event::CallFailed { spent, .. } => {
                session.spent = session.spent.plus(*spent);
                session.held_back = spent.held_back;
            }
            Event::ToolEnded { spent, .. } => session.spent = session.spent.plus(*spent),
            Event::Ended { .. } => {
                session.spent = session.spent.plus(Spent::unconfirmed(session.held_back));
                session.held_back = Resources::default();
            }
            _ => {}
        }
    }

    /// Usage of the round so far, if the root has started one.
    fn spent(&self, root: &SessionId) -> Option<Spent> {
        if !self.0.get(root)?.has_started {
            return None;
        }
        let begun = self.0.values().filter(|session| session.has_started);
        Some(begun.fold(Spent::default(), |sum, session| sum.plus(session.spent)))
    }
}

/// Ended rounds of a session.
#[derive(Debug, Default)]
pub struct EndedRounds {
    spent: Spent,
    last: Option<Status>,
}

impl EndedRounds {
    /// Adds an event of the session.
    pub fn take(&mut self, event: &Event) {
        if let Event::Ended { outcome, spent } = event {
            self.spent = self.spent.plus(*spent);
            self.last = Some(outcome.status.clone());
        }
    }

    /// Returns the totals of a tree with this many sessions and this open round.
    pub fn with(self, root: &SessionId, open: &OpenRound, sessions: u64) -> Totals {
        match open.spent(root) {
            Some(spent) => Totals { sessions, spent: self.spent.plus(spent), ended: None },
            None => Totals { sessions, spent: self.spent, ended: self.last },
        }
    }
}
