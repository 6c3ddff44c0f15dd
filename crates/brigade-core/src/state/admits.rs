//! Rules for the events that a runner may still append.

use super::report::Report;
use super::round::Phase;
use super::{CallProgress, CallState, Purpose, State};
use crate::delegation::{LimitKind, Status};
use crate::event::{CallFault, Event};
use crate::id::CallId;
use crate::money::{Resources, Spent};

impl State {
    /// Whether this event may be appended next. A runner whose append conflicts with unknown events folds those and
    /// appends only what is still admitted.
    pub fn admits(&self, event: &Event) -> bool {
        let round = &self.round;
        let (running, open) = (round.is_running(), round.model_calls.open.as_ref());
        let may_begin_work = running && !round.stop.is_requested();
        match event {
            Event::Started { .. } => !running,
            // Any runner that takes the lease may record it: of a tree, or of a detached session.
            Event::Resumed { .. } | Event::Heard { .. } => round.phase != Phase::Fresh,
            Event::Called { turn, attempt, purpose, reserved, .. } => {
                running && self.admits_call(*turn, *attempt, *purpose, *reserved)
            }
            Event::Replied { turn, .. } => running && open.is_some_and(|open| open.turn == *turn),
            Event::CallFailed { turn, attempt, cause, spent, .. } => {
                let attempt = (*turn, *attempt);
                let answers_open = open.is_some_and(|open| (open.turn, open.attempt) == attempt);
                running && (answers_open || self.admits_unsent(attempt, cause, spent))
            }
            Event::ToolStarted { call, lent, .. } => {
                may_begin_work
                    && self.is_call(*call, CallProgress::may_start)
                    && self.call(*call).is_some_and(CallState::is_every_host_answered)
                    && (lent.is_zero() || round.ledger.can_commit(*lent))
            }
            // Each question about a host is answered first, so that none is open without a call.
            Event::ToolEnded { call, .. } => {
                running
                    && self.is_call(*call, CallProgress::may_end)
                    && self.call(*call).is_some_and(CallState::is_every_host_answered)
            }
            Event::Delegated { call, child, grant, .. } => {
                may_begin_work
                    && self.is_call(*call, CallProgress::may_delegate)
                    && self.session.contains(child)
                    && self.session != *child
                    && !self.loans().contains_key(child)
                    && round.ledger.can_commit(grant.budget.as_loan(&round.ledger.granted()))
            }
            Event::Returned { child, .. } => self.loans().contains_key(child),
            Event::Asked { call, .. } => may_begin_work && self.is_call(*call, CallProgress::may_ask),
            Event::Answered { call, .. } => {
                running && self.is_call(*call, |progress| *progress == CallProgress::AwaitingApproval)
            }
            Event::HostAsked { call, host, .. } => {
                may_begin_work && self.call(*call).is_some_and(|state| state.may_ask_host(host))
            }
            Event::HostAnswered { call, host, .. } => {
                running && self.call(*call).is_some_and(|state| state.awaits_host(host))
            }
            Event::Said { call, .. } => {
                running && self.is_call(*call, |progress| *progress != CallProgress::Answered)
            }
            Event::LimitReached { .. } => may_begin_work,
            Event::Compacted { .. } => running && round.is_idle(),
            Event::CancelAsked { .. } => running && round.stop.cancelled.is_none(),
            Event::Ended { outcome, .. } => running && self.admits_end(&outcome.status),
        }
    }

    /// Whether the call is one of the last reply, with progress that fits.
    fn is_call(&self, call: CallId, fits: impl Fn(&CallProgress) -> bool) -> bool {
        self.call(call).is_some_and(|state| fits(&state.progress))
    }

    /// Whether a request may fail without a call. A request that was not sent has no cost: it was too expensive, or
    /// too long for the window.
    fn admits_unsent(&self, attempt: (u32, u32), cause: &CallFault, spent: &Spent) -> bool {
        let is_unsent = match cause {
            CallFault::Unaffordable => true,
            CallFault::Overflow { .. } | CallFault::GivenUp { .. } => {
                spent.is_zero() && attempt == self.next_attempt()
            }
            _ => false,
        };
        is_unsent && self.round.is_idle()
    }

    fn admits_call(&self, turn: u32, attempt: u32, purpose: Purpose, reserved: Resources) -> bool {
        let round = &self.round;
        let turns_left = self.exceeded_limit().is_none();
        let purpose_fits = match purpose {
            // If the last message is the agent's own, there is nothing to ask the model.
            Purpose::Turn => turns_left && round.report != Report::Requested && !self.is_answered(),
            Purpose::Compaction => turns_left && self.transcript.can_compact(),
            Purpose::Grace => round.report == Report::NotRequired && !turns_left && round.can_wrap_up(),
            Purpose::Summary => match round.report {
                Report::Due => self.is_answered() || (!turns_left && round.can_wrap_up()),
                Report::Requested => turns_left || round.can_wrap_up(),
                Report::NotRequired | Report::Done => false,
            },
        };
        round.is_idle()
            && round.stop.cancelled.is_none()
            && purpose_fits
            && (turn, attempt) == self.next_attempt()
            && round.ledger.can_reserve(reserved)
    }

    fn admits_end(&self, status: &Status) -> bool {
        let is_cancelled = self.round.stop.cancelled.is_some();
        let true_to_the_log = match status {
            Status::Done => {
                let is_answered = match self.round.report {
                    Report::NotRequired => self.is_answered() && !self.is_denied(),
                    Report::Done => true,
                    Report::Due | Report::Requested => false,
                };
                !is_cancelled && self.exceeded_limit().is_none() && is_answered
            }
            Status::Cancelled { .. } => is_cancelled,
            Status::Incomplete { limit } => {
                let is_denied = *limit == LimitKind::Permission && self.is_answered() && self.is_denied();
                !is_cancelled && (self.exceeded_limit().is_some() || is_denied)
            }
            Status::Failed { .. } => !is_cancelled,
            Status::Lost { .. } | Status::Detached => true,
        };
        self.round.is_idle() && self.loans().is_empty() && true_to_the_log
    }
}
