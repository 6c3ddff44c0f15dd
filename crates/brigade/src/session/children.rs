//! Lending to children and taking back what they did not use.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use brigade_core::amount::exact_dollars;
use brigade_core::delegation::Execution as Wait;
use brigade_core::delegation_styles::DELEGATION_TOOLS;
use brigade_core::event::Speaker;
use brigade_core::grant::Grant;
use brigade_core::state::RoundSpec;
use brigade_core::{Budget, Event, Limit, Outcome, Resources, SessionId, Spent, Status};
use futures::FutureExt;
use tokio::time::Instant;

use super::child_queue::{FundedChild, PendingChild};
use super::delegation_calls::is_background;
use super::{ChildEnd, Driver, DriverError, DriverMessage, RoundEnd};
use crate::clock;
use crate::concurrency::Slot;
use crate::resolved_agent::AgentKind;

/// Result of an attempt to lend.
enum LoanAttempt {
    Granted(SessionId, PendingChild),
    WaitForRefund(PendingChild),
    Refused,
}

impl Driver {
    /// Starts as many waiting children as slots and budget allow.
    pub(super) async fn start_pending_children(&mut self) -> Result<(), DriverError> {
        'lanes: for concurrency_key in self.children.queue.fundable_keys() {
            while self.children.queue.needs_slot(&concurrency_key) {
                match self.tree.slots.try_acquire_new(&concurrency_key) {
                    Some(slot) => {
                        if !self.lend_with_slot(slot) {
                            break 'lanes;
                        }
                    }
                    None => self.children.queue.request_slot(
                        &concurrency_key,
                        &self.tree.slots,
                        self.mailbox.sender(),
                    ),
                }
            }
        }
        self.children.queue.remove_empty();
        self.start_funded_children().await
    }

    /// Lends to the first child that waits for this slot. Returns false if it has to wait for a refund.
    pub(super) fn lend_with_slot(&mut self, slot: Slot) -> bool {
        let Some(pending) = self.children.queue.pop(slot.key()) else { return false };
        match self.lend_to(pending) {
            LoanAttempt::Granted(child, pending) => {
                self.children.queue.add_funded(FundedChild { child, pending, slot });
                true
            }
            LoanAttempt::Refused => true,
            LoanAttempt::WaitForRefund(pending) => {
                self.children.queue.wait_for_refund(pending);
                false
            }
        }
    }

    fn lend_to(&mut self, mut pending: PendingChild) -> LoanAttempt {
        if let Some(reason) = self.state().stop_reason() {
            self.refuse_child(pending, format!("Not started: {reason}"));
            return LoanAttempt::Refused;
        }
        let min_loan = pending.resolved.min_loan(pending.delegation.task.len() as u64);
        let explicit = explicit_budget(&pending);
        if let Some(text) = explicit.and_then(|explicit| too_small(&explicit, min_loan)) {
            self.refuse_child(pending, text);
            return LoanAttempt::Refused;
        }
        let budget = self.share(&pending, explicit, min_loan);
        let agents_left = self.state().lendable(self.cost_model()).agents.number();
        if !budget.fits(min_loan) || agents_left == 0 {
            if !self.state().ledger().lent().is_zero() {
                return LoanAttempt::WaitForRefund(pending);
            }
            let what = if agents_left == 0 { "agents" } else { "tokens or cost" };
            let text = format!(
                "Not delegated: the remaining budget ({what}) does not cover another agent. Do the task yourself. The user can raise `budget.tokens`, `budget.usd` or `budget.agents` (--budget-tokens, --budget-usd, --max-agents)."
            );
            self.refuse_child(pending, text);
            return LoanAttempt::Refused;
        }
        if self.tree.settings().delegation_styles.of(&pending.delegation).info().is_numbered {
            Arc::make_mut(&mut pending.delegation).number = Some(self.tree.next_number());
        }
        let child = self.child_id(&pending);
        let grant = self.child_grant(&pending, budget);
        self.log.add_definitions(&self.tree, &pending.resolved);
        let delegated = Event::Delegated {
            call: pending.call,
            child: child.clone(),
            delegation: pending.delegation.clone(),
            agent: pending.resolved.agent_hash,
            grant,
        };
        if !self.record(delegated) {
            self.refuse_child(
                pending,
                "Not delegated: the budget does not cover it. Do the task yourself.".to_owned(),
            );
            return LoanAttempt::Refused;
        }
        if is_background(&pending.delegation) {
            self.answer_background(pending.call, &child, &pending.delegation);
        }
        LoanAttempt::Granted(child, pending)
    }

    fn child_id(&self, pending: &PendingChild) -> SessionId {
        if self.children.is_parallel(pending.call) {
            self.state().session().child_of_several(pending.call, pending.index)
        } else {
            self.state().session().child(pending.call)
        }
    }

    /// Loan of a child: its explicit budget, or an equal share of the free budget among the children that can
    /// start now. If an equal share is too small, fewer children start now and the others wait for a refund.
    fn share(&self, pending: &PendingChild, explicit: Option<Budget>, min_loan: Resources) -> Budget {
        let free = self.state().lendable(self.cost_model());
        let others = self.children.queue.waiting_count() as u64;
        let slots = self.tree.slots.free(&pending.concurrency_key) as u64;
        let parts = (slots + 1).min(others + 1);
        // Each child is an agent itself. Agents that it may start are shared like the rest.
        let beyond = Budget { agents: free.agents.minus(parts), ..free };
        if let AgentKind::External(external) = &pending.resolved.kind {
            let lent = external.limits.budget().min(beyond);
            return explicit.map_or(lent, |explicit| lent.min(explicit));
        }
        // A session that continues beside its child keeps at least as much as it lends.
        let least_parts = if is_background(&pending.delegation) { 2 } else { 1 };
        let mut share = beyond.share(parts.min(beyond.times_covered(min_loan)).max(least_parts));
        let offers_delegation =
            pending.resolved.specs.iter().any(|spec| DELEGATION_TOOLS.contains(&spec.name.as_str()));
        if !offers_delegation {
            share.agents = Limit::AtMost(0);
        }
        match explicit {
            Some(explicit) => Budget { agents: share.agents, ..explicit.min(beyond) },
            None => share,
        }
    }

    fn child_grant(&self, pending: &PendingChild, budget: Budget) -> Grant {
        let limits = &self.tree.settings().limits;
        let delegation = &pending.delegation;
        let timeout = delegation.timeout.or(pending.resolved.timeout());
        let timeout = timeout.unwrap_or(limits.child_timeout.as_millis() as u64);
        let own = Limit::AtMost(clock::now().saturating_add(timeout));
        let turns = delegation.turns.or(pending.resolved.max_turns());
        let turns = turns.unwrap_or(limits.child_turns);
        Grant {
            authority: pending.resolved.authority_hash,
            budget,
            turns,
            deadline: own.min(self.child_deadline()),
        }
    }

    /// Deadline of a child. It ends before its parent's.
    pub(super) fn child_deadline(&self) -> Limit {
        let Some(left) = self.clock.left_for_children(Instant::now()) else { return Limit::Unlimited };
        Limit::AtMost(clock::now().saturating_add(left.as_millis() as u64))
    }

    /// Starts the children whose loans are durable.
    async fn start_funded_children(&mut self) -> Result<(), DriverError> {
        let funded = self.children.queue.take_funded();
        if funded.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        for FundedChild { child, pending, slot } in funded {
            let Some(loan) = self.state().loans().get(&child) else {
                // A conflict showed that the session was cancelled first, so nothing was lent.
                self.refuse_child(pending, "Not started: the session was stopped".to_owned());
                continue;
            };
            let round = RoundSpec::clone(&loan.round);
            let waited = pending.since.elapsed();
            let mut driver =
                Driver::begin(self.tree.clone(), child.clone(), round, pending.resolved, Some(slot));
            driver.observed.slot_wait = waited;
            self.persist_start(&child, &mut driver).await?;
            self.start_child(child, driver);
        }
        Ok(())
    }

    /// Appends the first events of a child that may be detached. From then on its own log is the only way to find
    /// and resume it.
    pub(super) async fn persist_start(
        &self,
        child: &SessionId,
        driver: &mut Driver,
    ) -> Result<(), DriverError> {
        if self.is_detachable(child) { driver.flush().await } else { Ok(()) }
    }

    fn is_detachable(&self, child: &SessionId) -> bool {
        let loan = self.state().loans().get(child);
        loan.is_some_and(|loan| loan.round.delegation.execution == Wait::Detachable)
    }

    pub(super) fn start_child(&mut self, child: SessionId, driver: Box<Driver>) {
        driver.clock.end_before(&self.clock, Instant::now());
        let inbox = driver.mailbox.sender();
        if let Some(by) = self.state().stop_initiator() {
            // The cancellation came after the loan and before the start, so it did not reach this child.
            let _ = inbox.unbounded_send(DriverMessage::Cancel(by.into()));
        }
        let loan = self.state().loans().get(&child);
        if let Some(by) = loan.and_then(|loan| self.children.stop_reason(loan.call)) {
            let _ = inbox.unbounded_send(DriverMessage::Cancel(by.into()));
        }
        let (id, sender) = (child.clone(), self.mailbox.sender());
        let run = Box::pin(async move {
            let result = AssertUnwindSafe(driver.drive()).catch_unwind().await;
            let result = result.unwrap_or_else(|_| Err(DriverError::Bug(format!("{child} panicked"))));
            let _ = sender.unbounded_send(DriverMessage::ChildDone(Box::new(ChildEnd { child, result })));
        });
        self.children.start(id, inbox, run);
    }

    /// Detaches children. Each continues under its own lease with its whole loan, which is booked as spent.
    pub(super) async fn detach(&mut self, children: Vec<SessionId>) -> Result<(), DriverError> {
        for child in children {
            self.tree.leases.take_for(&child).await?;
            let Some(loan) = self.state().loans().get(&child) else { continue };
            // The child itself is counted when the loan is returned.
            let own_agent = Resources { agents: 1, ..Resources::default() };
            let spent = Spent::unconfirmed(loan.amount.minus(own_agent));
            let outcome = Outcome::new(Status::Detached, "");
            let waited_ms = self.unrecorded_wait();
            self.record(Event::Returned { child: child.clone(), outcome, spent, waited_ms });
            if let Some(task) = self.children.remove(&child) {
                self.tree.keep_detached(child, task);
            }
        }
        self.flush().await
    }

    /// Queue time of descendants that no event contains yet, in milliseconds.
    fn unrecorded_wait(&self) -> u64 {
        u64::try_from(self.clock.unrecorded_wait(Instant::now()).as_millis()).unwrap_or(u64::MAX)
    }

    /// Books the refund of a child and answers the call.
    pub(super) fn child_done(&mut self, end: ChildEnd) -> Result<(), DriverError> {
        let ChildEnd { child, result } = end;
        self.children.remove(&child);
        let RoundEnd { outcome, spent } = match result {
            Ok(end) => end,
            // A broken child does not end its parent. A failing store does.
            Err(DriverError::Bug(cause)) => {
                // The child itself is counted when the loan is returned.
                let own_agent = Resources { agents: 1, ..Resources::default() };
                let loan = self.state().loans().get(&child);
                let spent = loan.map(|loan| loan.amount.minus(own_agent)).unwrap_or_default();
                let status = Status::Lost { cause };
                RoundEnd { outcome: Outcome::new(status, ""), spent: Spent::unconfirmed(spent) }
            }
            Err(error) => return Err(error),
        };
        let Some(loan) = self.log.state().loans().get(&child) else { return Ok(()) };
        let (call, request) = (loan.call, loan.round.delegation.clone());
        self.children.queue.refund_arrived();
        // The child itself is counted with its return.
        let used = Spent { agents: spent.agents.saturating_add(1), ..spent };
        let spent = Spent { overrun: self.state().ledger().uncovered(loan.amount, &used), ..spent };
        let waited_ms = self.unrecorded_wait();
        self.record(Event::Returned { child: child.clone(), outcome: outcome.clone(), spent, waited_ms });
        if is_background(&request) {
            let limit = self.tree.settings().limits.result_bytes;
            let output =
                self.tree.settings().delegation_styles.render(&request, &outcome, limit, child.as_str());
            self.record(Event::Heard { from: Speaker::Child(child), text: output.text });
        } else {
            self.child_ended(call, &child, &request, &outcome);
        }
        Ok(())
    }
}

/// Budget that the call and the definition set explicitly for a child.
fn explicit_budget(pending: &PendingChild) -> Option<Budget> {
    match (pending.delegation.budget, pending.resolved.agent.budget) {
        (Some(call), Some(definition)) => Some(call.min(definition)),
        (call, definition) => call.or(definition),
    }
}

/// Refusal of a budget that does not cover the first call of a child.
fn too_small(budget: &Budget, min_loan: Resources) -> Option<String> {
    let needs = match budget.exceeded_by(min_loan) {
        Resources { tokens: 1.., .. } => format!("at least {} tokens", min_loan.tokens),
        Resources { usd: 1.., .. } => format!("at least ${}", exact_dollars(min_loan.usd)),
        Resources { .. } => return None,
    };
    Some(format!(
        "Not delegated: the budget of this sub-agent is too small. Its first call needs {needs}. Raise `tokens` or `usd` in the call, the role or the agent file."
    ))
}
