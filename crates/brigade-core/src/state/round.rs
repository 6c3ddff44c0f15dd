//! Data of one round. The next round replaces all of it.

use std::sync::Arc;

use super::calls::{Intent, ToolCalls};
use super::ledger::Ledger;
use super::loans::{Loan, Loans};
use super::model_calls::ModelCalls;
use super::repeats::Repeats;
use super::report::Report;
use crate::delegation::{Delegation, LimitKind, Outcome};
use crate::event::CallFault;
use crate::grant::Grant;
use crate::id::{CallId, Hash, SessionId};
use crate::money::{Resources, Spent};

/// Task, agent and grant of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundSpec {
    /// Task of the round.
    pub delegation: Arc<Delegation>,
    /// Agent definition.
    pub agent: Hash,
    /// Authority and budget of the round.
    pub grant: Grant,
    /// Session that delegated.
    pub parent: Option<SessionId>,
    /// Depth in the tree.
    pub depth: u32,
}

/// Current or most recent round.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    /// `None` until the first round starts.
    pub(super) spec: Option<RoundSpec>,
    pub(super) phase: Phase,
    pub(super) ledger: Ledger,
    pub(super) loans: Loans,
    pub(super) model_calls: ModelCalls,
    pub(super) tool_calls: ToolCalls,
    pub(super) counts: TurnCounts,
    pub(super) stop: StopReason,
    pub(super) report: Report,
    pub(super) repeats: Repeats,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Phase {
    #[default]
    Fresh,
    Running,
    Ended(Outcome),
}

/// Counts of a round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TurnCounts {
    /// Number of turns that count against the limit.
    pub(super) turns: u32,
    /// Whether a turn was answered.
    pub(super) has_worked: bool,
    /// Number of times that the runtime requested a better result.
    pub(super) reminders: u32,
    /// Time that requests waited before they were sent.
    pub(super) waited_ms: u64,
}

/// Reason why a round starts nothing new.
#[derive(Debug, Clone, Default)]
pub(super) struct StopReason {
    /// Recorded limit.
    pub(super) limit: Option<LimitKind>,
    /// Name of the canceller.
    pub(super) cancelled: Option<String>,
}

impl StopReason {
    pub(super) fn is_requested(&self) -> bool {
        self.limit.is_some() || self.cancelled.is_some()
    }
}

impl TurnCounts {
    pub(super) fn add_wait(&mut self, waited_ms: u64) {
        self.waited_ms = self.waited_ms.saturating_add(waited_ms);
    }
}

impl Round {
    pub(super) fn new(spec: RoundSpec) -> Round {
        Round {
            phase: Phase::Running,
            ledger: Ledger::new(spec.grant.budget),
            report: Report::new(&spec.delegation),
            spec: Some(spec),
            ..Round::default()
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether no model call and no tool call is open.
    pub(super) fn is_idle(&self) -> bool {
        self.model_calls.open.is_none() && self.tool_calls.all_answered()
    }

    /// Whether the agent has one reply only, whatever it calls.
    pub(super) fn is_single(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.delegation.single)
    }

    /// Returns the limit that was recorded, or that the usage exceeds.
    pub(super) fn limit(&self) -> Option<LimitKind> {
        self.stop.limit.or(self.overrun())
    }

    /// Returns the limit that the usage exceeds.
    pub(super) fn overrun(&self) -> Option<LimitKind> {
        match self.ledger.overrun() {
            Resources { tokens: 1.., .. } => Some(LimitKind::Tokens),
            Resources { usd: 1.., .. } => Some(LimitKind::Usd),
            Resources { agents: 1.., .. } => Some(LimitKind::Agents),
            Resources { tokens: 0, usd: 0, agents: 0 } => None,
        }
    }

    /// Whether a limit leaves the session its wrap-up call: one reply, if there is work to report, unless an
    /// overrun has used up its reserve.
    pub(super) fn can_wrap_up(&self) -> bool {
        self.counts.has_worked
            && self.overrun().is_none()
            && self.model_calls.can_wrap_up(self.report == Report::Requested)
    }

    pub(super) fn cancel(&mut self, by: &str) {
        if self.is_running() {
            self.stop.cancelled.get_or_insert_with(|| by.to_owned());
        }
    }

    pub(super) fn end(&mut self, outcome: &Outcome) {
        if self.is_running() {
            self.ledger.close();
            self.phase = Phase::Ended(outcome.clone());
        }
    }

    pub(super) fn call_failed(&mut self, cause: &CallFault) {
        self.model_calls.failed(cause);
        let is_cut_again = matches!(cause, CallFault::Cut { .. }) && self.model_calls.truncated_replies > 1;
        // A stop also rules out a report that was requested.
        if is_cut_again || *cause == CallFault::Stopped {
            self.report.abandon();
        }
        if *cause == CallFault::Unaffordable {
            self.report.close();
        }
    }

    pub(super) fn tool_started(&mut self, call: CallId, intent: Intent) {
        let Some(before) = self.tool_calls.started(call, intent) else { return };
        self.ledger.return_loan(before, Spent::default());
        self.ledger.lend(intent.lent);
    }

    pub(super) fn delegated(&mut self, call: CallId, child: &SessionId, spec: RoundSpec) {
        let amount = spec.grant.budget.as_loan(&self.ledger.granted());
        self.tool_calls.delegated(call, child, spec.delegation.execution);
        self.ledger.lend(amount);
        if let Some(older) = self.loans.add(child, Loan { call, amount, round: Box::new(spec) }) {
            self.take_back(&older, Spent::default());
        }
    }

    pub(super) fn returned(&mut self, child: &SessionId, spent: Spent) {
        if let Some(loan) = self.loans.remove(child) {
            let agents = spent.agents.saturating_add(1);
            self.take_back(&loan, Spent { agents, ..spent });
        }
    }

    fn take_back(&mut self, loan: &Loan, spent: Spent) {
        self.ledger.return_loan(loan.amount, spent);
        self.tool_calls.returned(loan.call, loan.execution());
    }
}
