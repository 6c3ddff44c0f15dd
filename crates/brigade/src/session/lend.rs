//! Lending to children, and getting back what they did not use.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use brigade_core::amount::exact_dollars;
use brigade_core::delegation::Waiting as Wait;
use brigade_core::event::Speaker;
use brigade_core::faces::DELEGATION_TOOLS;
use brigade_core::grant::Grant;
use brigade_core::state::Round;
use brigade_core::{
    Amount, Budget, CallId, Delegation, Event, Face, Limit, Outcome, SessionId, Spent, Status,
};
use futures::FutureExt;
use tokio::time::Instant;

use super::group::{FAIL_FAST, is_background};
use super::{ChildEnd, Driver, Fatal, Inbox, RoundEnd};
use crate::clock;
use crate::slots::{Lane, Slot};
use crate::task::{self, AbortOnDrop};
use crate::tree::{Kit, Tree};

/// A child that waits for a slot or for a refund.
pub(super) struct Waiting {
    pub(super) call: CallId,
    /// Which child of the call it is.
    pub(super) index: usize,
    pub(super) delegation: Arc<Delegation>,
    pub(super) kit: Arc<Kit>,
    pub(super) lane: Lane,
}

/// A child whose loan is recorded.
pub(super) struct Lent {
    child: SessionId,
    waiting: Waiting,
    slot: Slot,
}

/// What became of an attempt to lend.
enum Attempt {
    Lent(SessionId, Waiting),
    WaitForRefund(Waiting),
    Refused,
}

impl Driver {
    /// Starts as many waiting children as there are slots and budget for.
    pub(super) async fn lend(&mut self) -> Result<(), Fatal> {
        // Who waits for a refund asks for no slot: others can use it, perhaps to give the refund.
        let lanes: Vec<Lane> =
            if self.waits_for_refund { Vec::new() } else { self.waiting.keys().cloned().collect() };
        'lanes: for lane in lanes {
            while !self.asked.contains(&lane)
                && self.waiting.get(&lane).is_some_and(|queue| !queue.is_empty())
            {
                match self.tree.slots.try_begin(&lane) {
                    Some(slot) => {
                        if !self.lend_with(slot) {
                            break 'lanes;
                        }
                    }
                    None => self.ask_for_slot(&lane),
                }
            }
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
        self.start_lent().await
    }

    fn ask_for_slot(&mut self, lane: &Lane) {
        self.asked.insert(lane.clone());
        let (granted, sender) = (self.tree.slots.begin(lane), self.sender.clone());
        self.spawn(async move {
            if let Ok(slot) = granted.await {
                let _ = sender.unbounded_send(Inbox::Slot(Box::new(slot)));
            }
        });
    }

    /// Lends to the first that waits for such a slot. False where it has to wait for a refund.
    pub(super) fn lend_with(&mut self, slot: Slot) -> bool {
        if self.waits_for_refund {
            return false;
        }
        let queue = self.waiting.get_mut(slot.lane());
        let Some(waiting) = queue.and_then(std::collections::VecDeque::pop_front) else { return false };
        match self.lend_to(waiting) {
            Attempt::Lent(child, waiting) => {
                self.lent.push(Lent { child, waiting, slot });
                true
            }
            Attempt::Refused => true,
            Attempt::WaitForRefund(waiting) => {
                self.waits_for_refund = true;
                self.waiting.entry(waiting.lane.clone()).or_default().push_front(waiting);
                false
            }
        }
    }

    fn lend_to(&mut self, mut waiting: Waiting) -> Attempt {
        if let Some(reason) = self.state.stopping() {
            self.refuse_part(waiting, format!("Not started: {reason}"));
            return Attempt::Refused;
        }
        let least = match waiting.kit.terms {
            None => waiting.kit.link(0).meter.least_loan(waiting.delegation.task.len() as u64),
            Some(_) => Amount::default(),
        };
        let explicit = explicit_budget(&waiting);
        if let Some(text) = explicit.and_then(|explicit| too_small(&explicit, least)) {
            self.refuse_part(waiting, text);
            return Attempt::Refused;
        }
        let budget = self.share(&waiting, explicit, least);
        let agents_left = self.state.lendable(self.meter()).agents.number();
        if !budget.fits(least) || agents_left == 0 {
            if !self.state.ledger().lent().is_nothing() {
                return Attempt::WaitForRefund(waiting);
            }
            let what = if agents_left == 0 { "agents" } else { "tokens or money" };
            let text = format!(
                "Not delegated: the budget has not enough {what} left for another agent \
                 (budget.tokens, budget.usd and budget.agents, or --budget-tokens, --budget-usd, --max-agents)"
            );
            self.refuse_part(waiting, text);
            return Attempt::Refused;
        }
        if waiting.delegation.face == Face::Spawn {
            Arc::make_mut(&mut waiting.delegation).number = Some(self.tree.next_number());
        }
        let child = self.child_id(&waiting);
        let grant = self.child_grant(&waiting, budget);
        self.tree.add_unwritten(&waiting.kit, &mut self.blobs);
        let delegated = Event::Delegated {
            call: waiting.call,
            child: child.clone(),
            delegation: waiting.delegation.clone(),
            agent: waiting.kit.agent_hash,
            grant,
        };
        if !self.record(delegated) {
            self.refuse_part(waiting, "Not delegated: the budget does not cover it".to_owned());
            return Attempt::Refused;
        }
        if is_background(&waiting.delegation) {
            self.answer_background(waiting.call, &child, &waiting.delegation);
        }
        Attempt::Lent(child, waiting)
    }

    fn child_id(&self, waiting: &Waiting) -> SessionId {
        if self.has_several(waiting.call) {
            self.state.session().child_of_several(waiting.call, waiting.index)
        } else {
            self.state.session().child(waiting.call)
        }
    }

    /// What a child is lent: its explicit budget, or an equal part of what is free for those that can start now. If
    /// an equal part is less than a child needs, fewer of them start now, and the others wait for a refund.
    fn share(&self, waiting: &Waiting, explicit: Option<Budget>, least: Amount) -> Budget {
        let free = self.state.lendable(self.meter());
        let others: usize = self.waiting.values().map(std::collections::VecDeque::len).sum();
        let others = others as u64;
        let slots = self.tree.slots.free(&waiting.lane) as u64;
        let parts = (slots + 1).min(others + 1);
        // Each child is an agent itself; what it may start beyond that is shared like the rest.
        let beyond = Budget { agents: free.agents.less(parts), ..free };
        if let Some(terms) = &waiting.kit.terms {
            let lent = terms.budget().min(beyond);
            return explicit.map_or(lent, |explicit| lent.min(explicit));
        }
        // Who goes on beside a child keeps at least as much as it lends.
        let least_parts = if is_background(&waiting.delegation) { 2 } else { 1 };
        let mut share = beyond.share(parts.min(beyond.holds(least)).max(least_parts));
        let offers_delegation =
            waiting.kit.specs.iter().any(|spec| DELEGATION_TOOLS.contains(&spec.name.as_str()));
        if !offers_delegation {
            share.agents = Limit::AtMost(0);
        }
        match explicit {
            Some(explicit) => Budget { agents: share.agents, ..explicit.min(beyond) },
            None => share,
        }
    }

    /// What a call is lent for work that it hands on to another Brigade: an equal part of what is free for the calls
    /// of this reply that need a loan and have not begun. The session keeps such a part for itself, since after a crash
    /// nobody can say what became of the others.
    pub(super) fn far_share(&self) -> Budget {
        let parts = self.calls_to_lend_to().max(1) + 1;
        let free = self.state.lendable(self.meter());
        // Half an agent is none: of agents, the first calls get more rather than all of them nothing.
        let agents = match free.agents {
            Limit::AtMost(agents) => Limit::AtMost(agents.div_ceil(parts)),
            Limit::Unlimited => Limit::Unlimited,
        };
        Budget { agents, ..free.share(parts) }
    }

    fn calls_to_lend_to(&self) -> u64 {
        let takes_a_loan = |call: &CallId| {
            let Some(written) = self.state.tool_call(*call) else { return false };
            DELEGATION_TOOLS.contains(&written.name.as_str())
                || self.tree.tool(&self.kit, &written.name).is_some_and(|tool| tool.hands_on())
        };
        self.state.calls_to_begin().filter(takes_a_loan).count() as u64
    }

    fn child_grant(&self, waiting: &Waiting, budget: Budget) -> Grant {
        let limits = &self.tree.settings().limits;
        let delegation = &waiting.delegation;
        let terms = waiting.kit.terms.unwrap_or_default();
        let timeout = delegation.timeout.or(waiting.kit.agent.timeout).or(terms.timeout);
        let timeout = timeout.unwrap_or(limits.child_timeout.as_millis() as u64);
        let own = Limit::AtMost(clock::now().saturating_add(timeout));
        let turns = delegation.turns.or(waiting.kit.agent.max_turns).or(terms.turns);
        let turns = turns.unwrap_or(limits.child_turns);
        Grant {
            authority: waiting.kit.authority_hash,
            budget,
            turns,
            deadline: own.min(self.child_deadline()),
        }
    }

    /// A child has to be done before its parent.
    pub(super) fn child_deadline(&self) -> Limit {
        let Some(left) = self.clock.left_for_children(Instant::now()) else { return Limit::Unlimited };
        Limit::AtMost(clock::now().saturating_add(left.as_millis() as u64))
    }

    /// Starts the children whose loans are durable.
    async fn start_lent(&mut self) -> Result<(), Fatal> {
        if self.lent.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        for Lent { child, waiting, slot } in std::mem::take(&mut self.lent) {
            let Some(loan) = self.state.loans().get(&child) else {
                // A conflict showed that the session was stopped first: nothing was lent.
                self.refuse_part(waiting, "Not started: the session was stopped".to_owned());
                continue;
            };
            let round = Round::clone(&loan.round);
            let mut driver = Driver::begin(self.tree.clone(), child.clone(), round, waiting.kit, Some(slot));
            self.make_findable(&child, &mut driver).await?;
            self.start_child(child, driver);
        }
        Ok(())
    }

    /// Writes the first facts of a child that may be left to itself: from then on, its own log is all that it can be
    /// found and taken up by.
    async fn make_findable(&self, child: &SessionId, driver: &mut Driver) -> Result<(), Fatal> {
        if self.may_be_left(child) { driver.flush().await } else { Ok(()) }
    }

    fn may_be_left(&self, child: &SessionId) -> bool {
        let loan = self.state.loans().get(child);
        loan.is_some_and(|loan| loan.round.delegation.waiting == Wait::Detachable)
    }

    fn start_child(&mut self, child: SessionId, driver: Box<Driver>) {
        driver.clock.end_before(&self.clock, Instant::now());
        let inbox = driver.inbox();
        if let Some(by) = self.state.stopper() {
            // The stop came after the loan and before the start: those that were told did not include this child.
            let _ = inbox.unbounded_send(Inbox::Cancel(by.into()));
        }
        if self.is_stopped_with_its_group(&child) {
            let _ = inbox.unbounded_send(Inbox::Cancel(FAIL_FAST.into()));
        }
        self.children.insert(child.clone(), inbox);
        let may_be_left = self.may_be_left(&child);
        let left = child.clone();
        let sender = self.sender.clone();
        let run: futures::future::BoxFuture<'static, ()> = Box::pin(async move {
            let result = AssertUnwindSafe(driver.drive()).catch_unwind().await;
            let result = result.unwrap_or_else(|_| Err(Fatal::Bug(format!("{child} panicked"))));
            let _ = sender.unbounded_send(Inbox::ChildDone(Box::new(ChildEnd { child, result })));
        });
        if may_be_left {
            self.detachable.insert(left, AbortOnDrop(task::spawn(run)));
        } else {
            self.spawn(run);
        }
    }

    /// Leaves children to themselves: each goes on under a lease of its own, with all that it was lent, which is booked
    /// as spent.
    pub(super) async fn detach(&mut self, children: Vec<SessionId>) -> Result<(), Fatal> {
        for child in children {
            self.tree.hand_over(&child).await?;
            let Some(loan) = self.state.loans().get(&child) else { continue };
            // The child itself is counted when the loan comes back.
            let itself = Amount { agents: 1, ..Amount::default() };
            let spent = Spent::doubtful(loan.amount.minus(itself));
            let outcome = Outcome::new(Status::Detached, "");
            let waited_ms = self.unrecorded_wait();
            self.record(Event::Returned { child: child.clone(), outcome, spent, waited_ms });
            self.children.remove(&child);
            if let Some(task) = self.detachable.remove(&child) {
                self.tree.adopt(child, task);
            }
        }
        self.flush().await
    }

    /// Time in which descendants queued and that no event has yet, in milliseconds.
    fn unrecorded_wait(&self) -> u64 {
        u64::try_from(self.clock.unrecorded_wait(Instant::now()).as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes up one child that an earlier runner had started, or was about to.
    pub(super) async fn take_up_child(&mut self, child: &SessionId) -> Result<(), Fatal> {
        let Some(loan) = self.state.loans().get(child).cloned() else { return Ok(()) };
        match take_up(&self.tree, child, *loan.round).await? {
            TakenUp::Ended(end) => self.child_done(ChildEnd { child: child.clone(), result: Ok(*end) })?,
            TakenUp::Goes(mut driver) => {
                self.make_findable(child, &mut driver).await?;
                self.start_child(child.clone(), driver);
            }
        }
        Ok(())
    }

    /// Takes up the children that work beside this session.
    pub(super) async fn take_up_background(&mut self) -> Result<(), Fatal> {
        let loans = self.state.loans().iter();
        let beside = loans.filter(|(_, loan)| is_background(&loan.round.delegation));
        let children: Vec<SessionId> = beside.map(|(child, _)| child.clone()).collect();
        for child in children {
            self.take_up_child(&child).await?;
        }
        Ok(())
    }

    /// Books what a child gave back and answers the call.
    pub(super) fn child_done(&mut self, end: ChildEnd) -> Result<(), Fatal> {
        let ChildEnd { child, result } = end;
        self.children.remove(&child);
        self.detachable.remove(&child);
        let RoundEnd { outcome, spent } = match result {
            Ok(end) => end,
            // One broken child does not end its parent; a store that fails does.
            Err(Fatal::Bug(cause)) => {
                // The child itself is counted when the loan comes back.
                let itself = Amount { agents: 1, ..Amount::default() };
                let spent =
                    self.state.loans().get(&child).map(|loan| loan.amount.minus(itself)).unwrap_or_default();
                let status = Status::Lost { cause };
                RoundEnd { outcome: Outcome::new(status, ""), spent: Spent::doubtful(spent) }
            }
            Err(fatal) => return Err(fatal),
        };
        let Some(loan) = self.state.loans().get(&child) else { return Ok(()) };
        let (call, part) = (loan.call, loan.round.delegation.clone());
        self.waits_for_refund = false;
        // The child itself is counted with its return.
        let used = Spent { agents: spent.agents.saturating_add(1), ..spent };
        let spent = Spent { overrun: self.state.ledger().uncovered(loan.amount, &used), ..spent };
        let waited_ms = self.unrecorded_wait();
        self.record(Event::Returned { child: child.clone(), outcome: outcome.clone(), spent, waited_ms });
        if is_background(&part) {
            let limit = self.tree.settings().limits.result_bytes;
            let output = self.tree.settings().faces.render(&part, &outcome, limit, child.as_str());
            self.record(Event::Heard { from: Speaker::Child(child), text: output.text });
        } else {
            self.part_ended(call, &child, &part, &outcome);
        }
        Ok(())
    }
}

/// The budget that a child was given in so many words, by the call and by its definition.
fn explicit_budget(waiting: &Waiting) -> Option<Budget> {
    match (waiting.delegation.budget, waiting.kit.agent.budget) {
        (Some(call), Some(definition)) => Some(call.min(definition)),
        (call, definition) => call.or(definition),
    }
}

/// The refusal of a budget that does not pay for the first call of a child.
fn too_small(budget: &Budget, least: Amount) -> Option<String> {
    let needs = match budget.exceeded_by(least) {
        Amount { tokens: 1.., .. } => format!("at least {} tokens", least.tokens),
        Amount { usd: 1.., .. } => format!("at least ${}", exact_dollars(least.usd)),
        Amount { .. } => return None,
    };
    Some(format!(
        "Not delegated: the budget of this sub-agent is too small. Its first call needs {needs}. Raise `tokens` or \
         `usd` of the call, the role or the agent file."
    ))
}

enum TakenUp {
    Ended(Box<RoundEnd>),
    Goes(Box<Driver>),
}

/// A child's log as an earlier runner left it: not begun, under way or ended.
async fn take_up(tree: &Arc<Tree>, child: &SessionId, mut round: Round) -> Result<TakenUp, Fatal> {
    let records = tree.store().read(child, 0).await?;
    let kit = tree.recorded_kit(round.agent, round.grant.authority, round.depth).await?;
    if records.is_empty() {
        // Time without a runner does not count, and this child's own log cannot tell: it begins only now.
        let downtime = tree.resumes.last().map_or(0, |(_, downtime)| *downtime);
        if let Limit::AtMost(at) = round.grant.deadline {
            round.grant.deadline = Limit::AtMost(at.saturating_add(downtime));
        }
        return Ok(TakenUp::Goes(Driver::begin(tree.clone(), child.clone(), round, kit, None)));
    }
    let started = records.iter().rev().find(|record| matches!(record.event, Event::Started { .. }));
    let started_pos = started.map_or(0, |record| record.pos);
    let state = tree.fold(child, &records);
    match state.ended() {
        Some(outcome) => {
            let end = RoundEnd { outcome: outcome.clone(), spent: state.ledger().spent() };
            Ok(TakenUp::Ended(Box::new(end)))
        }
        None => Ok(TakenUp::Goes(Driver::go_on(tree.clone(), state, kit, started_pos))),
    }
}
