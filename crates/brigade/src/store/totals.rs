//! What trees have used up, for listings.

use std::collections::BTreeMap;

use brigade_core::{Event, Record, Resources, SessionId, Spent, Status};

/// What a tree has used up so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals {
    /// Number of its sessions, itself included.
    pub sessions: u64,
    /// What its rounds used up. Of a round that has not ended, that is the sum over all sessions that work in it, whether
    /// they have returned or not.
    pub spent: Spent,
    /// How its last round ended, if it did.
    pub ended: Option<Status>,
}

/// What sessions used up in facts after the end of the last round, session by session in the order of their logs.
#[derive(Debug, Default)]
pub(super) struct OpenRound(BTreeMap<SessionId, SessionSpent>);

#[derive(Debug, Default)]
struct SessionSpent {
    /// Whether it began in the round. One that was left to itself in an earlier round works on its own account.
    has_started: bool,
    spent: Spent,
    held_back: Resources,
}

impl OpenRound {
    pub(super) fn take(&mut self, record: &Record) {
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

    /// What the round used up so far, if the session at the top has begun one.
    pub(super) fn spent(&self, root: &SessionId) -> Option<Spent> {
        if !self.0.get(root)?.has_started {
            return None;
        }
        let begun = self.0.values().filter(|session| session.has_started);
        Some(begun.fold(Spent::default(), |sum, session| sum.plus(session.spent)))
    }
}

/// The rounds of a session that have ended.
#[derive(Debug, Default)]
pub(super) struct EndedRounds {
    spent: Spent,
    last: Option<Status>,
}

impl EndedRounds {
    pub(super) fn take(&mut self, event: &Event) {
        if let Event::Ended { outcome, spent } = event {
            self.spent = self.spent.plus(*spent);
            self.last = Some(outcome.status.clone());
        }
    }

    /// The sum with a round that is open.
    pub(super) fn with(self, root: &SessionId, open: &OpenRound, sessions: u64) -> Totals {
        match open.spent(root) {
            Some(spent) => Totals { sessions, spent: self.spent.plus(spent), ended: None },
            None => Totals { sessions, spent: self.spent, ended: self.last },
        }
    }
}
