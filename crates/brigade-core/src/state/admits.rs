//! Rules for the events that a runner may still append.

use super::{CallProgress, Phase, Purpose, ReportState, State};
use crate::delegation::{LimitKind, Status};
use crate::event::{Answer, CallFault, Event};
use crate::money::Resources;

impl State {
    /// Whether this event may be appended next. A runner whose append conflicts with unknown events folds those and
    /// appends only what is still admitted.
    pub fn admits(&self, event: &Event) -> bool {
        let running = self.phase == Phase::Running;
        match event {
            Event::Started { .. } => !running,
            // Any runner that takes the lease may record it: of a tree, or of a detached session.
            Event::Resumed { .. } => self.phase != Phase::Fresh,
            Event::Heard { .. } => self.phase != Phase::Fresh,
            Event::Called { turn, attempt, purpose, reserved, .. } => {
                running && self.admits_call(*turn, *attempt, *purpose, *reserved)
            }
            Event::Replied { turn, .. } => {
                running && self.open.as_ref().is_some_and(|open| open.turn == *turn)
            }
            Event::CallFailed { turn, attempt, cause, spent, .. } => {
                // A request that was not sent has no cost: it was too expensive, or too long for the window.
                let is_unsent = match cause {
                    CallFault::Unaffordable => true,
                    CallFault::Overflow { .. } | CallFault::GivenUp { .. } => {
                        spent.is_zero() && (*turn, *attempt) == self.next_attempt()
                    }
                    _ => false,
                };
                let nothing_was_sent = is_unsent && self.open.is_none() && self.calls.all_answered();
                let answers_open =
                    self.open.as_ref().is_some_and(|open| open.turn == *turn && open.attempt == *attempt);
                running && (nothing_was_sent || answers_open)
            }
            Event::ToolStarted { call, lent, .. } => {
                // A call that delegates remotely is not run again: the outcome of its first loan is unknown.
                let may_start = |progress: &CallProgress| match progress {
                    CallProgress::Started(intent) => intent.lent.is_zero(),
                    progress => may_begin(progress),
                };
                running
                    && self.stop_reason().is_none()
                    && self.progress(*call).is_some_and(may_start)
                    && (lent.is_zero() || self.ledger.can_commit(*lent))
            }
            Event::ToolEnded { call, .. } => running && self.progress(*call).is_some_and(may_be_answered),
            Event::Delegated { call, child, grant, .. } => {
                let loan = grant.budget.as_loan(&self.ledger.granted());
                let may_lend = |progress: &CallProgress| {
                    may_begin(progress) || matches!(progress, CallProgress::Delegated { .. })
                };
                running
                    && self.stop_reason().is_none()
                    && self.progress(*call).is_some_and(may_lend)
                    && self.session.contains(child)
                    && self.session != *child
                    && !self.loans.contains_key(child)
                    && self.ledger.can_commit(loan)
            }
            Event::Returned { child, .. } => self.loans.contains_key(child),
            // A runner that takes over requests the approval again.
            Event::Asked { call, .. } => {
                let may_ask = |progress: &CallProgress| {
                    matches!(progress, CallProgress::New | CallProgress::AwaitingApproval)
                };
                running && self.stop_reason().is_none() && self.progress(*call).is_some_and(may_ask)
            }
            Event::Answered { call, .. } => {
                running && self.progress(*call) == Some(&CallProgress::AwaitingApproval)
            }
            Event::Said { call, .. } => {
                running && self.progress(*call).is_some_and(|progress| *progress != CallProgress::Answered)
            }
            Event::LimitReached { .. } => running && self.limit.is_none() && self.cancelled.is_none(),
            Event::Compacted { .. } => running && self.open.is_none() && self.calls.all_answered(),
            Event::CancelAsked { .. } => running && self.cancelled.is_none(),
            Event::Ended { outcome, .. } => running && self.admits_end(&outcome.status),
        }
    }

    fn progress(&self, call: crate::id::CallId) -> Option<&CallProgress> {
        self.calls.get(call).map(|state| &state.progress)
    }

    fn admits_call(&self, turn: u32, attempt: u32, purpose: Purpose, reserved: Resources) -> bool {
        let turns_left = self.exceeded_limit().is_none();
        let purpose_fits = match purpose {
            // If the last message is the agent's own, there is nothing to ask the model.
            Purpose::Turn => turns_left && self.report != ReportState::Requested && !self.is_answered(),
            Purpose::Compaction => turns_left && self.transcript.can_compact(),
            Purpose::Grace => self.report == ReportState::NotRequired && !turns_left && self.can_wrap_up(),
            Purpose::Summary => match self.report {
                ReportState::Due => self.is_answered() || (!turns_left && self.can_wrap_up()),
                ReportState::Requested => turns_left || self.can_wrap_up(),
                ReportState::NotRequired | ReportState::Done => false,
            },
        };
        self.open.is_none()
            && self.cancelled.is_none()
            && self.calls.all_answered()
            && purpose_fits
            && (turn, attempt) == self.next_attempt()
            && self.ledger.can_reserve(reserved)
    }

    fn admits_end(&self, status: &Status) -> bool {
        let quiet = self.open.is_none() && self.loans.is_empty() && self.calls.all_answered();
        let true_to_the_log = match status {
            Status::Done => {
                let is_answered = match self.report {
                    ReportState::NotRequired => self.is_answered() && !self.is_denied(),
                    ReportState::Done => true,
                    ReportState::Due | ReportState::Requested => false,
                };
                self.cancelled.is_none() && self.exceeded_limit().is_none() && is_answered
            }
            Status::Cancelled { .. } => self.cancelled.is_some(),
            Status::Incomplete { limit } => {
                let is_denied = *limit == LimitKind::Permission && self.is_answered() && self.is_denied();
                self.cancelled.is_none() && (self.exceeded_limit().is_some() || is_denied)
            }
            Status::Failed { .. } => self.cancelled.is_none(),
            Status::Lost { .. } | Status::Detached => true,
        };
        quiet && true_to_the_log
    }
}

/// Whether a call may begin: a pending or denied approval prevents it.
fn may_begin(progress: &CallProgress) -> bool {
    match progress {
        CallProgress::New | CallProgress::Decided(Answer::Once | Answer::Always(_)) => true,
        CallProgress::AwaitingApproval
        | CallProgress::Decided(Answer::Deny { .. })
        | CallProgress::Started(_)
        | CallProgress::Delegated { .. }
        | CallProgress::Answered => false,
    }
}

/// Whether a call may have a result. Not before all of its children have returned, because their loans would be
/// forgotten.
fn may_be_answered(progress: &CallProgress) -> bool {
    match progress {
        CallProgress::Answered => false,
        CallProgress::Delegated { outstanding, .. } => *outstanding == 0,
        CallProgress::New
        | CallProgress::AwaitingApproval
        | CallProgress::Decided(_)
        | CallProgress::Started(_) => true,
    }
}
