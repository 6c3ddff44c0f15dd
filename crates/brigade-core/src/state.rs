//! Fold of a session log, and the next step.
//!
//! [`State::apply`] accepts any event in any order without a panic. [`State::admits`] decides which events a runner
//! may still append. [`State::next`] determines the next step from nothing but the log.

mod abandon;
mod admits;
mod calls;
mod compaction;
mod ledger;
mod queries;
mod repeats;
mod token_estimator;
mod transcript;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use calls::{CallProgress, CallState, Intent};
pub use compaction::CompactionInput;
pub use ledger::{CostModel, Ledger, Shortfall, WorstCase};
pub use transcript::{Transcript, wrap_up_prompt};

use crate::delegation::{Delegation, Execution, LimitKind, Outcome, Status};
use crate::event::{Answer, CallFault, Event, Speaker};
use crate::grant::Grant;
use crate::id::{CallId, Hash, SessionId};
use crate::message::{Reply, Stop, ToolOutput};
use crate::money::{Resources, Spent};
use crate::permission::Rule;
use crate::seen::{SeenFile, SeenFiles};
use calls::ToolCalls;
use repeats::Repeats;
use token_estimator::TokenEstimator;

/// Maximum number of attempts at a turn after transient faults.
pub const MAX_ATTEMPTS: u32 = 6;
/// Maximum number of times that a conversation is compacted for the same turn.
const MAX_OVERFLOWS: u32 = 5;

/// Purpose of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Turn of the loop.
    Turn,
    /// Wrap-up call after a limit: no tools, covered by the session's own reserve.
    Grace,
    /// Report that a delegation style requests at the end.
    Summary,
    /// Summary that replaces earlier turns.
    Compaction,
}

/// Next step of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Call the model.
    CallModel(Purpose),
    /// Process these calls, which were not returned before: run, refuse, re-attach or close them.
    RunCalls(Vec<CallId>),
    /// Wait for work in progress.
    Wait,
    /// Detach these children: everything else is done.
    Detach(Vec<SessionId>),
    /// Append the end of the round.
    End(Outcome),
    /// Nothing to do.
    Nothing,
}

/// Model call that was sent and has no reply yet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenCall {
    /// Turn of the call.
    pub turn: u32,
    /// Attempt at the turn.
    pub attempt: u32,
    /// Purpose of the call.
    pub purpose: Purpose,
    /// Resources reserved for the call.
    pub reserved: Resources,
    /// Input tokens in `reserved`.
    pub input: u64,
}

/// Current or most recent round.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
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

/// Outstanding loan.
#[derive(Debug, Clone, PartialEq)]
pub struct Loan {
    /// Call that requested the child.
    pub call: CallId,
    /// Amount of the loan.
    pub amount: Resources,
    /// Task of the child; kept while the loan is outstanding, so that a resume can start it from here.
    pub round: Box<Round>,
}

/// Progress of the report that a delegation style requests at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportState {
    /// No report is required.
    NotRequired,
    /// The task phase is not over.
    Due,
    /// The task phase is over; the report was requested and has not arrived.
    Requested,
    /// The report arrived, or never will.
    Done,
}

#[derive(Debug, Clone, PartialEq)]
enum Phase {
    Fresh,
    Running,
    Ended(Outcome),
}

/// Next step if nothing is open.
enum Decision {
    Call(Purpose),
    End(Status),
}

/// State of a session, folded from its log.
#[derive(Debug, Clone)]
pub struct State {
    session: SessionId,
    length: u64,
    rounds: u32,
    phase: Phase,
    round: Option<Round>,
    transcript: Transcript,
    turn: u32,
    turns_in_round: u32,
    /// Time that requests of this round waited before they were sent.
    waited_ms: u64,
    open: Option<OpenCall>,
    attempts: u32,
    faults: u32,
    fault: Option<CallFault>,
    calls: ToolCalls,
    ledger: Ledger,
    loans: BTreeMap<SessionId, Loan>,
    limit: Option<LimitKind>,
    cancelled: Option<String>,
    last_purpose: Option<Purpose>,
    /// Number of overflow errors since the conversation was last compacted or answered.
    overflows: u32,
    /// Number of models of the agent's chain that were given up in this round.
    fallback_index: usize,
    /// Last turn that counts against the limit.
    last_counted_turn: u32,
    wrap_up_sent: bool,
    report: ReportState,
    /// Number of consecutive wrap-up calls or reports that reached their output limit before any text.
    truncated_replies: u32,
    /// Whether a turn of this round was answered.
    has_worked: bool,
    estimator: TokenEstimator,
    repeats: Repeats,
    /// Number of loans that a call waits for.
    foreground_loans: usize,
    /// Size of the longest result in bytes when a child was first started in the background.
    longest_result_before_background: Option<usize>,
    /// Number of times that the runtime requested a better result in this round.
    reminders: u32,
    /// Size of the longest result of a child, in bytes.
    longest_result: usize,
    /// Rules that the user has permanently allowed in this session.
    always_allowed: Vec<Rule>,
    /// Files that the agent has seen. Boxed, because most agents access none.
    seen: Option<Box<SeenFiles>>,
}

impl State {
    /// Creates the state of a session with an empty log.
    pub fn new(session: SessionId) -> State {
        State {
            session,
            length: 0,
            rounds: 0,
            phase: Phase::Fresh,
            round: None,
            transcript: Transcript::default(),
            turn: 0,
            turns_in_round: 0,
            waited_ms: 0,
            open: None,
            attempts: 0,
            faults: 0,
            fault: None,
            calls: ToolCalls::default(),
            ledger: Ledger::default(),
            loans: BTreeMap::new(),
            limit: None,
            cancelled: None,
            last_purpose: None,
            overflows: 0,
            fallback_index: 0,
            last_counted_turn: 0,
            wrap_up_sent: false,
            report: ReportState::NotRequired,
            truncated_replies: 0,
            has_worked: false,
            estimator: TokenEstimator::default(),
            repeats: Repeats::default(),
            foreground_loans: 0,
            longest_result_before_background: None,
            reminders: 0,
            longest_result: 0,
            always_allowed: Vec::new(),
            seen: None,
        }
    }

    /// Folds a whole log.
    pub fn fold<'a>(session: SessionId, log: impl IntoIterator<Item = &'a Event>) -> State {
        let mut state = State::new(session);
        for event in log {
            state.apply(event);
        }
        state
    }

    /// Applies one event. The cost does not grow with the log.
    pub fn apply(&mut self, event: &Event) {
        self.length += 1;
        match event {
            Event::Started { delegation, agent, grant, parent, depth } => {
                self.start_round(Round {
                    delegation: delegation.clone(),
                    agent: *agent,
                    grant: *grant,
                    parent: parent.clone(),
                    depth: *depth,
                });
            }
            Event::Resumed { .. } | Event::Said { .. } => {}
            Event::Heard { from, text } => {
                match from {
                    Speaker::Runtime => {
                        self.reminders += u32::from(self.is_answered());
                        self.repeats.mark_warned();
                    }
                    // An agent that receives new input does not merely repeat itself.
                    Speaker::Person | Speaker::Parent => self.repeats = Repeats::default(),
                    Speaker::Child(_) => {}
                }
                self.transcript.heard(from, text);
            }
            Event::Called { turn, attempt, purpose, reserved, input, .. } => {
                self.called(OpenCall {
                    turn: *turn,
                    attempt: *attempt,
                    purpose: *purpose,
                    reserved: *reserved,
                    input: *input,
                });
            }
            Event::Replied { turn, reply, spent, waited_ms } => {
                self.waited_ms = self.waited_ms.saturating_add(*waited_ms);
                self.replied(*turn, reply, *spent);
            }
            Event::CallFailed { cause, spent, partial, waited_ms, .. } => {
                self.waited_ms = self.waited_ms.saturating_add(*waited_ms);
                self.call_failed(cause, *spent);
                if let Some(text) = partial {
                    self.transcript.set_partial_text(text);
                }
            }
            Event::ToolStarted { call, effect, before, after, lent, .. } => {
                let intent = Intent { effect: *effect, before: *before, after: *after, lent: *lent };
                self.tool_started(*call, intent);
            }
            Event::ToolEnded { call, output, spent, seen } => {
                self.tool_ended(*call, output, *spent, seen.as_deref());
            }
            Event::Delegated { call, child, delegation, agent, grant } => {
                let depth = self.round.as_ref().map_or(0, |round| round.depth).saturating_add(1);
                let round = Round {
                    delegation: delegation.clone(),
                    agent: *agent,
                    grant: *grant,
                    parent: Some(self.session.clone()),
                    depth,
                };
                self.delegated(*call, child, round);
            }
            Event::Returned { child, outcome, spent, waited_ms } => {
                self.waited_ms = self.waited_ms.saturating_add(*waited_ms);
                self.longest_result = self.longest_result.max(outcome.text.len());
                self.returned(child, *spent);
            }
            Event::Asked { call, .. } => self.calls.asked(*call),
            Event::Answered { call, answer, .. } => self.answered(*call, answer),
            Event::LimitReached { which, .. } => {
                self.limit.get_or_insert(*which);
            }
            Event::Compacted { summary, keep_from } => {
                self.overflows = 0;
                self.transcript.compact(summary, *keep_from);
                if let Some(seen) = &mut self.seen {
                    seen.forget_before(*keep_from);
                }
            }
            Event::CancelAsked { by } => {
                if self.phase == Phase::Running {
                    self.cancelled.get_or_insert_with(|| by.clone());
                }
            }
            Event::Ended { outcome, .. } => {
                if self.phase == Phase::Running {
                    self.ledger.close();
                    self.phase = Phase::Ended(outcome.clone());
                }
            }
        }
    }

    /// Returns the next step. Calls in a [`Step::RunCalls`] are returned only once by this value; a newly folded
    /// value returns all that have no result.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: it does not move on by itself")]
    pub fn next(&mut self) -> Step {
        if self.phase != Phase::Running {
            return Step::Nothing;
        }
        if self.open.is_some() {
            return Step::Wait;
        }
        let calls = self.calls.take_unassigned();
        if !calls.is_empty() {
            return Step::RunCalls(calls);
        }
        if !self.calls.all_answered() || self.waits_for_children() {
            return Step::Wait;
        }
        match self.decide() {
            Decision::Call(purpose) => Step::CallModel(purpose),
            // A session ends only when every loan is returned; background children are waited for here.
            Decision::End(status) if !self.loans.is_empty() => self.detach_or_wait(&status),
            Decision::End(status) => Step::End(self.outcome(status)),
        }
    }

    fn detach_or_wait(&self, status: &Status) -> Step {
        let can_detach = |loan: &Loan| loan.round.delegation.execution == Execution::Detachable;
        let loans = self.loans.iter().filter(|(_, loan)| *status == Status::Done && can_detach(loan));
        let children: Vec<SessionId> = loans.map(|(child, _)| child.clone()).collect();
        if children.is_empty() { Step::Wait } else { Step::Detach(children) }
    }

    /// Decides between one more model call and the end, if nothing is open.
    fn decide(&self) -> Decision {
        if let Some(by) = &self.cancelled {
            return Decision::End(Status::Cancelled { by: by.clone() });
        }
        let has_unread_input = self.transcript.unread() > 0;
        if let Some(limit) = self.exceeded_limit() {
            if self.report != ReportState::Done && self.can_wrap_up() {
                let owes = self.report != ReportState::NotRequired;
                return Decision::Call(if owes { Purpose::Summary } else { Purpose::Grace });
            }
            return Decision::End(Status::Incomplete { limit });
        }
        if let Some(cause) = self.fatal_error() {
            return Decision::End(Status::Failed { cause });
        }
        if self.overflows > 0 && self.transcript.can_compact() {
            return Decision::Call(Purpose::Compaction);
        }
        match self.report {
            ReportState::Requested => Decision::Call(Purpose::Summary),
            ReportState::Done if !has_unread_input => Decision::End(Status::Done),
            ReportState::Due if self.is_answered() => Decision::Call(Purpose::Summary),
            ReportState::NotRequired if self.is_answered() => Decision::End(match self.is_denied() {
                true => Status::Incomplete { limit: LimitKind::Permission },
                false => Status::Done,
            }),
            ReportState::NotRequired | ReportState::Due | ReportState::Done => Decision::Call(Purpose::Turn),
        }
    }

    /// Whether a call waits for children, or all of them must return because nothing new may start.
    fn waits_for_children(&self) -> bool {
        self.foreground_loans > 0 || (!self.loans.is_empty() && self.stop_reason().is_some())
    }

    fn start_round(&mut self, round: Round) {
        self.rounds += 1;
        self.phase = Phase::Running;
        let is_same_model =
            self.fallback_index == 0 && self.round.as_ref().is_some_and(|last| last.agent == round.agent);
        if !is_same_model {
            // Every model counts tokens differently.
            self.transcript.reset_counts();
            self.estimator = TokenEstimator::default();
        }
        self.ledger = Ledger::new(round.grant.budget);
        self.transcript.begin_round();
        // A turn that an earlier round left unanswered is over: its number is not used again.
        self.transcript.skip_turn(self.turn);
        self.transcript.task(&round.delegation);
        self.report =
            if round.delegation.report.is_some() { ReportState::Due } else { ReportState::NotRequired };
        self.reminders = 0;
        self.round = Some(round);
        self.turns_in_round = 0;
        self.waited_ms = 0;
        self.open = None;
        self.attempts = 0;
        self.faults = 0;
        self.fault = None;
        self.calls = ToolCalls::default();
        self.loans.clear();
        self.foreground_loans = 0;
        self.limit = None;
        self.cancelled = None;
        self.last_purpose = None;
        self.overflows = 0;
        self.fallback_index = 0;
        self.wrap_up_sent = false;
        self.truncated_replies = 0;
        self.has_worked = false;
        self.repeats = Repeats::default();
    }

    fn called(&mut self, call: OpenCall) {
        if matches!(call.purpose, Purpose::Grace | Purpose::Summary) {
            // The turn limit follows from the log only until the next call; from then on it is stored.
            self.limit = self.exceeded_limit();
        }
        if self.turn < call.turn {
            self.turn = call.turn;
            self.faults = 0;
        }
        // An external agent works from its first call on, and nothing is estimated for it. Its wrap-up call tells
        // it to stop.
        self.has_worked |= call.purpose == Purpose::Turn && call.input == 0;
        if call.purpose == Purpose::Turn && self.last_counted_turn < call.turn {
            self.last_counted_turn = call.turn;
            self.turns_in_round += 1;
        }
        if call.purpose == Purpose::Grace && !self.wrap_up_sent {
            self.wrap_up_sent = true;
            self.transcript.instruct(wrap_up_prompt(self.exceeded_limit()));
        }
        match call.purpose {
            Purpose::Summary if self.report != ReportState::Requested => {
                self.report = ReportState::Requested;
                let prompt = self.round.as_ref().and_then(|round| round.delegation.report.clone());
                self.transcript.instruct(prompt.unwrap_or_default().to_string());
            }
            // New input arrived since: the agent reports again when that is done.
            Purpose::Turn if self.report == ReportState::Done => self.report = ReportState::Due,
            Purpose::Turn | Purpose::Grace | Purpose::Summary | Purpose::Compaction => {}
        }
        self.attempts = call.attempt;
        self.ledger.reserve(call.reserved);
        // A summary does not answer the pending messages, so they stay pending.
        if call.purpose != Purpose::Compaction {
            self.transcript.mark_sent();
        }
        self.last_purpose = Some(call.purpose);
        self.open = Some(call);
    }

    fn replied(&mut self, turn: u32, reply: &Reply, spent: Spent) {
        let is_compaction = self.last_purpose == Some(Purpose::Compaction);
        self.settle(spent, !is_compaction);
        self.fault = None;
        self.attempts = 0;
        self.faults = 0;
        self.truncated_replies = 0;
        self.turn = self.turn.max(turn);
        if is_compaction {
            return self.compacted(turn);
        }
        self.overflows = 0;
        self.has_worked |= self.last_purpose == Some(Purpose::Turn);
        // The wrap-up call has no tools: calls in its reply are not run, and the request builder answers them.
        let is_last_word = matches!(self.last_purpose, Some(Purpose::Grace | Purpose::Summary));
        // A reply that was cut off by a refusal does not contain the intended calls.
        let is_refused = reply.stop == Stop::Refusal;
        let runs = !is_last_word && !is_refused && self.overrun().is_none() && !self.is_single();
        if self.last_purpose == Some(Purpose::Summary) {
            self.report = ReportState::Done;
        }
        self.calls = if runs { ToolCalls::of(turn, reply) } else { ToolCalls::default() };
        if self.calls.is_empty() {
            self.repeats = Repeats::default();
        }
        self.transcript.replied(turn, reply, spent.usage);
    }

    /// Charges the cost of the open call, and updates the estimates if its request was the conversation.
    fn settle(&mut self, spent: Spent, is_conversation: bool) {
        let open = self.open.take();
        if let Some(open) = open.as_ref().filter(|_| is_conversation && spent.estimated == 0) {
            self.estimator.observe(open, self.transcript.counted(), spent.usage);
        }
        let reserved = open.map(|call| call.reserved).unwrap_or_default();
        self.ledger.settle(reserved, spent);
        // The session's own calls stop here; an outstanding loan may still cover the overuse of a child.
        self.limit = self.limit.or(self.overrun());
    }

    /// Returns the limit that the usage exceeds.
    fn overrun(&self) -> Option<LimitKind> {
        match self.ledger.overrun() {
            Resources { tokens: 1.., .. } => Some(LimitKind::Tokens),
            Resources { usd: 1.., .. } => Some(LimitKind::Usd),
            Resources { agents: 1.., .. } => Some(LimitKind::Agents),
            Resources { tokens: 0, usd: 0, agents: 0 } => None,
        }
    }

    /// Ends a summary call, which is not part of the conversation. If it was made for a turn that did not fit, that
    /// turn starts again.
    fn compacted(&mut self, turn: u32) {
        if self.last_counted_turn == turn {
            self.turns_in_round = self.turns_in_round.saturating_sub(1);
        }
        self.transcript.skip_turn(turn);
    }

    fn call_failed(&mut self, cause: &CallFault, spent: Spent) {
        self.settle(spent, false);
        self.transcript.end_reply();
        match cause {
            // A crash reveals nothing about the model. An interrupted wrap-up call may be repeated.
            CallFault::Interrupted => {
                if self.last_purpose == Some(Purpose::Grace) {
                    self.last_purpose = Some(Purpose::Turn);
                }
            }
            // Neither does a stop, but it also rules out a wrap-up call that was requested.
            CallFault::Stopped => {
                self.fault = None;
                self.abandon_report();
            }
            CallFault::Unaffordable => {
                self.last_purpose = Some(Purpose::Grace);
                self.fault = None;
                self.report = if self.report == ReportState::NotRequired {
                    ReportState::NotRequired
                } else {
                    ReportState::Done
                };
            }
            CallFault::Transient { .. } | CallFault::Fatal { .. } => {
                self.faults += 1;
                self.fault = Some(cause.clone());
            }
            CallFault::Overflow { .. } => {
                self.overflows += 1;
                self.fault = Some(cause.clone());
            }
            // It is requested once more with a larger output limit; after that, the last text is used.
            CallFault::Cut { .. } => {
                self.truncated_replies += 1;
                self.fault = None;
                if self.truncated_replies > 1 {
                    self.abandon_report();
                }
            }
            CallFault::GivenUp { .. } => {
                self.fallback_index += 1;
                self.faults = 0;
                self.fault = None;
                self.overflows = self.overflows.min(1);
                // Every model counts tokens differently.
                self.transcript.reset_counts();
                self.estimator = TokenEstimator::default();
                if self.last_purpose == Some(Purpose::Grace) {
                    self.last_purpose = Some(Purpose::Turn);
                }
            }
        }
    }

    fn release_foreground(&mut self, execution: Execution) {
        self.foreground_loans =
            self.foreground_loans.saturating_sub(usize::from(execution == Execution::Foreground));
    }

    /// A rule that cannot be parsed allows only the call that it was given for.
    fn answered(&mut self, call: CallId, answer: &Answer) {
        let is_taken = self.calls.answered(call, answer);
        if let Answer::Always(rule) = answer
            && is_taken
            && let Ok(rule) = rule.parse()
            && !self.always_allowed.contains(&rule)
        {
            self.always_allowed.push(rule);
        }
    }

    fn abandon_report(&mut self) {
        if self.report == ReportState::Requested {
            self.report = ReportState::Done;
        }
    }

    fn delegated(&mut self, call: CallId, child: &SessionId, round: Round) {
        let amount = round.grant.budget.as_loan(&self.ledger.granted());
        let execution = round.delegation.execution;
        if execution != Execution::Foreground {
            self.longest_result_before_background.get_or_insert(self.longest_result);
        }
        self.calls.delegated(call, child, execution);
        self.foreground_loans += usize::from(execution == Execution::Foreground);
        self.ledger.lend(amount);
        if let Some(older) = self.loans.insert(child.clone(), Loan { call, amount, round: Box::new(round) }) {
            self.ledger.return_loan(older.amount, Spent::default());
            self.release_foreground(older.round.delegation.execution);
            self.calls.returned(older.call, older.round.delegation.execution);
        }
    }

    fn tool_started(&mut self, call: CallId, intent: Intent) {
        let Some(before) = self.calls.started(call, intent) else { return };
        self.ledger.return_loan(before, Spent::default());
        self.ledger.lend(intent.lent);
    }

    fn tool_ended(&mut self, call: CallId, output: &ToolOutput, spent: Spent, seen: Option<&SeenFile>) {
        let Some(lent) = self.calls.ended(call) else { return };
        self.ledger.return_loan(lent, spent);
        self.transcript.answered(call, output);
        if let Some(seen) = seen {
            self.seen.get_or_insert_default().add(call.turn, seen);
        }
        if self.calls.all_answered() {
            self.repeats.turn_ended(self.transcript.last_exchange());
        }
    }

    fn returned(&mut self, child: &SessionId, spent: Spent) {
        if let Some(loan) = self.loans.remove(child) {
            let agents = spent.agents.saturating_add(1);
            self.ledger.return_loan(loan.amount, Spent { agents, ..spent });
            self.release_foreground(loan.round.delegation.execution);
            self.calls.returned(loan.call, loan.round.delegation.execution);
        }
    }

    /// Whether a limit leaves the session its wrap-up call: one reply, if there is work to report, unless an
    /// overrun has used up its reserve.
    fn can_wrap_up(&self) -> bool {
        let may_pass = matches!(self.fault, Some(CallFault::Transient { .. })) && self.faults < MAX_ATTEMPTS;
        let has_reported = matches!(self.last_purpose, Some(Purpose::Grace | Purpose::Summary));
        let is_open =
            self.fault.is_none() && (self.report == ReportState::Requested || self.truncated_replies == 1);
        let fits = !matches!(self.fault, Some(CallFault::Overflow { .. }));
        self.has_worked && fits && self.overrun().is_none() && (!has_reported || may_pass || is_open)
    }

    /// Whether the last message is the agent's own. A single generation has no second reply, whatever it calls.
    fn is_answered(&self) -> bool {
        self.transcript.is_answered() || (self.is_single() && self.transcript.has_replied())
    }

    /// Whether the agent ended because a permission was denied.
    fn is_denied(&self) -> bool {
        self.transcript.last_stop() == Some(Stop::Denied)
    }

    fn is_single(&self) -> bool {
        self.round.as_ref().is_some_and(|round| round.delegation.single)
    }

    fn outcome(&self, status: Status) -> Outcome {
        Outcome::new(status, self.transcript.last_text())
    }

    fn fatal_error(&self) -> Option<String> {
        match &self.fault {
            Some(CallFault::Fatal { message }) => Some(message.clone()),
            Some(CallFault::Transient { message }) if self.faults >= MAX_ATTEMPTS => {
                Some(format!("{message} (after {} attempts)", self.faults))
            }
            // A conversation that is too long after compaction stays too long.
            Some(CallFault::Overflow { message })
                if !self.transcript.can_compact() || self.overflows > MAX_OVERFLOWS =>
            {
                Some(message.clone())
            }
            _ => None,
        }
    }

    /// Returns the limit that stops this round: a recorded one, usage beyond the grant, or the turn limit that
    /// follows from the log.
    pub fn exceeded_limit(&self) -> Option<LimitKind> {
        let turns = self.round.as_ref().map_or(0, |round| round.grant.turns);
        // A turn that was started but not answered may be retried: it is already counted.
        let is_turn_open = self.turn > self.transcript.last_turn();
        let in_task_phase = match self.report {
            ReportState::NotRequired | ReportState::Due => true,
            ReportState::Requested => false,
            ReportState::Done => self.transcript.unread() > 0,
        };
        let exhausted = in_task_phase && self.turns_in_round >= turns && !is_turn_open && !self.is_answered();
        self.limit.or(self.overrun()).or(exhausted.then_some(LimitKind::Turns))
    }
}

#[cfg(test)]
mod tests;
