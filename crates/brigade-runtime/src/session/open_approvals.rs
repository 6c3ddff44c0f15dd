//! Approval requests that the user has not answered.

use std::collections::BTreeMap;

use brigade_core::state::CallProgress;
use brigade_core::{CallId, Hash, State};
use tokio::time::Instant;

/// Calls of a session that wait for the user's approval.
#[derive(Default)]
pub(super) struct OpenApprovals {
    /// When the default answer applies to each call.
    deadlines: BTreeMap<CallId, Option<Instant>>,
    /// Hash of the tool change that the approval request showed to the user.
    shown_changes: BTreeMap<CallId, Hash>,
}

impl OpenApprovals {
    /// Adds a request. Without a deadline, only the session's own deadline ends it.
    pub(super) fn add(&mut self, call: CallId, deadline: Option<Instant>) {
        self.deadlines.insert(call, deadline);
    }

    /// Remembers the tool change that a request shows.
    pub(super) fn show_change(&mut self, call: CallId, change: Hash) {
        self.shown_changes.insert(call, change);
    }

    /// Whether the request showed this tool change.
    pub(super) fn has_shown(&self, call: CallId, change: Hash) -> bool {
        self.shown_changes.get(&call) == Some(&change)
    }

    /// Deadline of the request that expires first.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.values().copied().flatten().min()
    }

    /// Takes the deadlines that have passed. Their requests stay open until they are answered.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<CallId> {
        let mut expired = Vec::new();
        for (call, deadline) in &mut self.deadlines {
            if deadline.take_if(|at| *at <= now).is_some() {
                expired.push(*call);
            }
        }
        expired
    }

    /// Takes the calls whose requests were answered.
    pub(super) fn take_answered(&mut self, state: &State) -> Vec<CallId> {
        let is_answered = |call: CallId| {
            let progress = state.call(call).map(|state| &state.progress);
            !matches!(progress, Some(CallProgress::AwaitingApproval))
        };
        self.deadlines.extract_if(.., |call, _| is_answered(*call)).map(|(call, _)| call).collect()
    }

    /// Takes all calls, because none of them may start any more.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = CallId> + use<> {
        std::mem::take(&mut self.deadlines).into_keys()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn expired_request_is_reported_once_and_stays_open() {
        let now = Instant::now();
        let call = |index| CallId { turn: 1, index };
        let mut approvals = OpenApprovals::default();
        approvals.add(call(0), Some(now + Duration::from_secs(5)));
        approvals.add(call(1), Some(now + Duration::from_secs(2)));
        approvals.add(call(2), None);
        assert_eq!(approvals.next_deadline(), Some(now + Duration::from_secs(2)));
        assert_eq!(approvals.take_expired(now + Duration::from_secs(2)), [call(1)]);
        assert_eq!(approvals.take_expired(now + Duration::from_secs(2)), []);
        assert_eq!(approvals.next_deadline(), Some(now + Duration::from_secs(5)));
        assert_eq!(approvals.take_all().collect::<Vec<_>>(), [call(0), call(1), call(2)]);
        assert_eq!(approvals.take_all().count(), 0);
    }
}
