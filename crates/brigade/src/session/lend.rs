//! Delegation: lending a child a grant, starting it, and taking back what it did not use.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use brigade_core::delegation::Delegation;
use brigade_core::faces::{MESSAGE, delegate};
use brigade_core::grant::{Access, Grant};
use brigade_core::money::Amount;
use brigade_core::permission::{Action, Kind, Subject, Verdict};
use brigade_core::state::Round;
use brigade_core::{
    Budget, CallId, Event, Limit, Outcome, SessionId, Spent, State, Status, ToolCall, ToolOutput,
};
use futures::FutureExt;

use super::act::refusal;
use super::{ChildEnd, Driver, Fatal, Inbox, RoundEnd};
use crate::clock;
use crate::slots::Slot;
use crate::tree::{Kit, Tree};

/// A delegation that waits for a slot or for a refund.
pub(super) struct Waiting {
    pub(super) call: CallId,
    delegation: Delegation,
    kit: Arc<Kit>,
}

/// The kit that was made last, and for what.
pub(super) struct LastKit {
    role: Option<String>,
    tools: Option<Vec<String>>,
    kit: Arc<Kit>,
    warning: Option<String>,
}

/// A child whose loan is recorded.
pub(super) struct Lent {
    child: SessionId,
    round: Round,
    kit: Arc<Kit>,
    slot: Slot,
}

/// What became of an attempt to lend.
enum Attempt {
    Lent(Box<(SessionId, Round, Arc<Kit>)>),
    WaitForRefund(Box<Waiting>),
    Refused,
}

impl Driver {
    /// Reads a `delegate` call and puts it in line.
    pub(super) fn ask_for_child(&mut self, call: CallId, written: &ToolCall) -> Result<(), ToolOutput> {
        let swarm = &self.tree.core.settings.swarm;
        let authority = &self.kit.authority;
        let depth = self.state.round().map_or(0, |round| round.depth);
        let parsed = swarm.parse(depth, authority, written.arguments.as_str());
        let mut delegation = parsed.map_err(ToolOutput::error)?;
        if !authority.tools.contains(delegate::NAME) {
            return Err(ToolOutput::error("'delegate' is not among the tools of this agent"));
        }
        let action = Action { tool: delegate::NAME, kind: Kind::Pure, subject: Subject::Nothing };
        match authority.permissions.check(&action) {
            Verdict::Allow => {}
            verdict => return Err(refusal(delegate::NAME, verdict)),
        }
        let (kit, warning) = self.kit_for(&delegation, depth + 1)?;
        delegation.warnings.extend(warning);
        self.waiting.push_back(Waiting { call, delegation, kit });
        Ok(())
    }

    /// What a child is equipped with, and what the caller should know about it. Calls of one reply are often alike, so
    /// the last answer is kept.
    fn kit_for(
        &mut self,
        delegation: &Delegation,
        depth: u32,
    ) -> Result<(Arc<Kit>, Option<String>), ToolOutput> {
        if let Some(last) = &self.last_kit
            && last.role == delegation.role
            && last.tools == delegation.tools
        {
            return Ok((last.kit.clone(), last.warning.clone()));
        }
        let swarm = &self.tree.core.settings.swarm;
        let authority = &self.kit.authority;
        let wish = swarm.wish(delegation, depth, authority);
        let attenuated =
            authority.attenuate(&wish, depth).map_err(|refusal| ToolOutput::error(refusal.to_string()))?;
        let mut lent = attenuated.authority;
        if authority.speak == Access::Allowed && authority.lend.contains(MESSAGE) {
            lent.tools.insert(MESSAGE.to_owned());
            lent.lend.insert(MESSAGE.to_owned());
        }
        let shown = |name: &String| name.chars().filter(|c| !c.is_control()).take(64).collect::<String>();
        let unknown: Vec<String> = attenuated.unknown.iter().map(shown).collect();
        let warning = (!unknown.is_empty()).then(|| format!("no such tool to lend: {}", unknown.join(", ")));
        let mut agent = swarm.agent(delegation);
        agent.model = agent.model.or_else(|| self.kit.agent.model.clone());
        let kit = self.tree.kit(agent, lent, depth).map_err(ToolOutput::error)?;
        let (role, tools) = (delegation.role.clone(), delegation.tools.clone());
        self.last_kit = Some(LastKit { role, tools, kit: kit.clone(), warning: warning.clone() });
        Ok((kit, warning))
    }

    /// Starts as many waiting children as there are slots and budget for.
    pub(super) async fn lend(&mut self) -> Result<(), Fatal> {
        while let Some(first) = self.waiting.front() {
            if self.asked_for_slot {
                break;
            }
            let face = first.delegation.face;
            match self.tree.slots.try_begin(face) {
                Some(slot) => {
                    if !self.lend_with(slot) {
                        break;
                    }
                }
                None => {
                    self.asked_for_slot = true;
                    let (granted, sender) = (self.tree.slots.begin(face), self.sender.clone());
                    self.spawn(async move {
                        if let Ok(slot) = granted.await {
                            let _ = sender.send(Inbox::Slot(Box::new(slot)));
                        }
                    });
                }
            }
        }
        self.start_lent().await
    }

    /// Lends to the first that waits. False where it has to wait for a refund.
    pub(super) fn lend_with(&mut self, slot: Slot) -> bool {
        let Some(waiting) = self.waiting.pop_front() else { return false };
        match self.lend_to(waiting) {
            Attempt::Lent(lent) => {
                let (child, round, kit) = *lent;
                self.lent.push(Lent { child, round, kit, slot });
                true
            }
            Attempt::Refused => true,
            Attempt::WaitForRefund(waiting) => {
                self.waiting.push_front(*waiting);
                false
            }
        }
    }

    fn lend_to(&mut self, waiting: Waiting) -> Attempt {
        let call = waiting.call;
        if let Some(reason) = self.state.stopping() {
            self.answer(call, ToolOutput::error(format!("Not started: {reason}")));
            return Attempt::Refused;
        }
        let budget = self.share(&waiting);
        let least = waiting.kit.meter.least_loan(waiting.delegation.task.len() as u64);
        let agents_left = self.state.lendable(&self.kit.meter).agents.number();
        if !budget.fits(least) || agents_left == 0 {
            if !self.state.loans().is_empty() {
                return Attempt::WaitForRefund(Box::new(waiting));
            }
            let what = if agents_left == 0 { "agents" } else { "tokens or money" };
            self.answer(
                call,
                ToolOutput::error(format!(
                    "Not delegated: the budget has not enough {what} left for another agent \
                     (budget.tokens, budget.usd and budget.agents, or --budget-tokens, --budget-usd, --max-agents)"
                )),
            );
            return Attempt::Refused;
        }
        let child = self.state.session().child(call);
        let round = self.child_round(&waiting, budget);
        self.tree.add_unwritten(&waiting.kit, &mut self.blobs);
        let delegated = Event::Delegated {
            call,
            child: child.clone(),
            delegation: round.delegation.clone(),
            agent: round.agent,
            grant: round.grant,
        };
        if !self.record(delegated) {
            self.answer(call, ToolOutput::error("Not delegated: the budget does not cover it"));
            return Attempt::Refused;
        }
        Attempt::Lent(Box::new((child, round, waiting.kit)))
    }

    /// What a child is lent: its explicit budget, or an equal part of what is free for those that can start now.
    fn share(&self, waiting: &Waiting) -> Budget {
        let free = self.state.lendable(&self.kit.meter);
        let others = self.waiting.len() as u64;
        let slots = self.tree.slots.free(waiting.delegation.face) as u64;
        let parts = (slots + 1).min(others + 1);
        // Each child is an agent itself; what it may start beyond that is shared like the rest.
        let beyond = Budget { agents: free.agents.less(parts), ..free };
        let mut share = beyond.share(parts);
        let offers_delegation = waiting.kit.specs.iter().any(|spec| spec.name == delegate::NAME);
        if !offers_delegation {
            share.agents = Limit::AtMost(0);
        }
        match waiting.delegation.budget {
            Some(explicit) => explicit.min(beyond),
            None => share,
        }
    }

    fn child_round(&self, waiting: &Waiting, budget: Budget) -> Round {
        let limits = &self.tree.settings().limits;
        let delegation = waiting.delegation.clone();
        let timeout = delegation.timeout.unwrap_or(limits.child_timeout.as_millis() as u64);
        let own = Limit::AtMost(clock::now().saturating_add(timeout));
        let depth = self.state.round().map_or(0, |round| round.depth) + 1;
        let turns = delegation.turns.or(waiting.kit.agent.max_turns).unwrap_or(limits.child_turns);
        let grant = Grant {
            authority: waiting.kit.authority_hash,
            budget,
            turns,
            deadline: own.min(self.child_deadline()),
        };
        let parent = Some(self.state.session().clone());
        Round { delegation, agent: waiting.kit.agent_hash, grant, parent, depth }
    }

    /// A child has to be done before its parent: ten percent earlier, at most thirty seconds.
    fn child_deadline(&self) -> Limit {
        let Some(deadline) = self.deadline else { return Limit::Unlimited };
        let left = deadline.saturating_duration_since(tokio::time::Instant::now()).as_millis() as u64;
        let grace = (left / 10).min(30_000);
        Limit::AtMost(clock::now().saturating_add(left - grace))
    }

    /// Starts the children whose loans are durable.
    async fn start_lent(&mut self) -> Result<(), Fatal> {
        if self.lent.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        for Lent { child, round, kit, slot } in std::mem::take(&mut self.lent) {
            if !self.state.loans().contains_key(&child) {
                // A conflict showed that the session was stopped first: nothing was lent.
                if let Some(call) = child_call(&child) {
                    self.answer(call, ToolOutput::error("Not started: the session was stopped"));
                }
                continue;
            }
            let driver = Driver::begin(self.tree.clone(), child.clone(), round, kit, Some(slot));
            self.start_child(child, Box::new(driver));
        }
        Ok(())
    }

    fn start_child(&mut self, child: SessionId, driver: Box<Driver>) {
        let inbox = driver.inbox();
        if let Some(by) = self.state.stopper() {
            // The stop came after the loan and before the start: those that were told did not include this child.
            let _ = inbox.send(Inbox::Cancel(by.into()));
        }
        self.children.insert(child.clone(), inbox);
        let sender = self.sender.clone();
        let run: futures::future::BoxFuture<'static, ()> = Box::pin(async move {
            let result = AssertUnwindSafe(driver.drive()).catch_unwind().await;
            let result = result.unwrap_or_else(|_| Err(Fatal::Bug(format!("{child} panicked"))));
            let _ = sender.send(Inbox::ChildDone(Box::new(ChildEnd { child, result })));
        });
        self.spawn(run);
    }

    /// Takes up children that an earlier runner had started, or was about to.
    pub(super) async fn reattach(&mut self, call: CallId, children: Vec<SessionId>) -> Result<(), Fatal> {
        for child in children {
            let Some(loan) = self.state.loans().get(&child).cloned() else { continue };
            let taken_up = take_up(&self.tree, &child, *loan.round).await?;
            match taken_up {
                TakenUp::Ended(end) => self.child_done(ChildEnd { child, result: Ok(end) })?,
                TakenUp::Goes(driver) => self.start_child(child, driver),
            }
        }
        if !self.state.loans().values().any(|loan| loan.call == call) {
            self.answer(
                call,
                ToolOutput::error("interrupted, outcome unknown: the sub-agent's end was not recorded"),
            );
        }
        Ok(())
    }

    /// Books what a child gave back and answers the call.
    pub(super) fn child_done(&mut self, end: ChildEnd) -> Result<(), Fatal> {
        let ChildEnd { child, result } = end;
        self.children.remove(&child);
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
        let call = loan.call;
        let limit = self.tree.settings().limits.result_bytes;
        let output = delegate::render(&loan.round.delegation, &outcome, limit, child.as_str());
        self.record(Event::Returned { child, outcome, spent });
        self.answer(call, output);
        Ok(())
    }
}

enum TakenUp {
    Ended(RoundEnd),
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
        return Ok(TakenUp::Goes(Box::new(Driver::begin(tree.clone(), child.clone(), round, kit, None))));
    }
    let started = records.iter().rev().find(|record| matches!(record.event, Event::Started { .. }));
    let started_pos = started.map_or(0, |record| record.pos);
    let state = State::fold(child.clone(), records.iter().map(|record| &record.event));
    match state.ended() {
        Some(outcome) => {
            Ok(TakenUp::Ended(RoundEnd { outcome: outcome.clone(), spent: state.ledger().spent() }))
        }
        None => Ok(TakenUp::Goes(Box::new(Driver::go_on(tree.clone(), state, kit, started_pos)))),
    }
}

fn child_call(child: &SessionId) -> Option<CallId> {
    child.as_str().rsplit_once('.').and_then(|(_, call)| call.parse().ok())
}
