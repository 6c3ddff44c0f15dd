//! Decision about the next step.

use super::report::Report;
use super::{Purpose, State, Step};
use crate::delegation::{LimitKind, Outcome, Status};
use crate::message::Stop;

/// Next step if nothing is open.
enum Decision {
    Call(Purpose),
    End(Status),
}

impl State {
    /// Returns the next step. It depends only on the log, and its cost does not grow with the number of calls.
    pub fn next(&self) -> Step {
        if !self.round.is_running() {
            return Step::Nothing;
        }
        if self.round.model_calls.open.is_some() {
            return Step::Wait;
        }
        if !self.round.tool_calls.all_answered() {
            return Step::RunCalls;
        }
        // A call waits for children, or all of them must return because nothing new may start.
        let loans = &self.round.loans;
        if loans.foreground > 0 || (!loans.by_child.is_empty() && self.round.stop.is_requested()) {
            return Step::Wait;
        }
        match self.decide() {
            Decision::Call(purpose) => Step::CallModel(purpose),
            // A session ends only when every loan is returned; background children are waited for here.
            Decision::End(status) if !loans.by_child.is_empty() => self.detach_or_wait(&status),
            Decision::End(status) => Step::End(Outcome::new(status, self.transcript.last_text())),
        }
    }

    fn detach_or_wait(&self, status: &Status) -> Step {
        let children = if *status == Status::Done { self.round.loans.detachable() } else { Vec::new() };
        if children.is_empty() { Step::Wait } else { Step::Detach(children) }
    }

    /// Decides between one more model call and the end, if nothing is open.
    fn decide(&self) -> Decision {
        let round = &self.round;
        if let Some(by) = &round.stop.cancelled {
            return Decision::End(Status::Cancelled { by: by.clone() });
        }
        if let Some(limit) = self.exceeded_limit() {
            let last_call = round.report.last_call().filter(|_| round.can_wrap_up());
            return last_call.map_or(Decision::End(Status::Incomplete { limit }), Decision::Call);
        }
        let can_compact = self.transcript.can_compact();
        if let Some(cause) = round.model_calls.fatal_error(can_compact) {
            return Decision::End(Status::Failed { cause });
        }
        if round.model_calls.overflows > 0 && can_compact {
            return Decision::Call(Purpose::Compaction);
        }
        match round.report {
            Report::Requested => Decision::Call(Purpose::Summary),
            Report::Done if !self.has_unread_input() => Decision::End(Status::Done),
            Report::Due if self.is_answered() => Decision::Call(Purpose::Summary),
            Report::NotRequired if self.is_answered() => Decision::End(match self.is_denied() {
                true => Status::Incomplete { limit: LimitKind::Permission },
                false => Status::Done,
            }),
            Report::NotRequired | Report::Due | Report::Done => Decision::Call(Purpose::Turn),
        }
    }

    /// Returns the limit that stops this round: a recorded one, usage beyond the grant, or the turn limit that
    /// follows from the log.
    pub fn exceeded_limit(&self) -> Option<LimitKind> {
        let max_turns = self.round().map_or(0, |spec| spec.grant.turns);
        // A turn that was started but not answered may be retried: it is already counted.
        let is_turn_open = self.turns.last > self.transcript.last_turn();
        let exhausted = self.round.report.in_task_phase(self.has_unread_input())
            && self.round.counts.turns >= max_turns
            && !is_turn_open
            && !self.is_answered();
        self.round.limit().or(exhausted.then_some(LimitKind::Turns))
    }

    /// Whether the last message is the agent's own. A single generation has no second reply, whatever it calls.
    pub(super) fn is_answered(&self) -> bool {
        self.transcript.is_answered() || (self.round.is_single() && self.transcript.has_replied())
    }

    /// Whether the agent ended because a permission was denied.
    pub(super) fn is_denied(&self) -> bool {
        self.transcript.last_stop() == Some(Stop::Denied)
    }
}
