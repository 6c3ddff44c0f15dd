//! What trees have used up, for listings.

use std::collections::BTreeMap;

use brigade_core::{Amount, Event, Record, SessionId, Spent, Status};

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
pub(super) struct OpenRound(BTreeMap<SessionId, Own>);

#[derive(Debug, Default)]
struct Own {
    /// Whether it began in the round. One that was left to itself in an earlier round works on its own account.
    has_begun: bool,
    spent: Spent,
    held: Amount,
}

impl OpenRound {
    pub(super) fn take(&mut self, record: &Record) {
        let own = self.0.entry(record.session.clone()).or_default();
        match &record.event {
            Event::Started { .. } => own.has_begun = true,
            Event::Called { .. } => own.held = Amount::default(),
            Event::Replied { spent, .. } | Event::CallFailed { spent, .. } => {
                own.spent = own.spent.plus(*spent);
                own.held = spent.held;
            }
            Event::ToolEnded { spent, .. } => own.spent = own.spent.plus(*spent),
            Event::Ended { .. } => {
                own.spent = own.spent.plus(Spent::doubtful(own.held));
                own.held = Amount::default();
            }
            _ => {}
        }
    }

    /// What the round used up so far, if the session at the top has begun one.
    pub(super) fn spent(&self, root: &SessionId) -> Option<Spent> {
        if !self.0.get(root)?.has_begun {
            return None;
        }
        let begun = self.0.values().filter(|own| own.has_begun);
        Some(begun.fold(Spent::default(), |sum, own| sum.plus(own.spent)))
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
