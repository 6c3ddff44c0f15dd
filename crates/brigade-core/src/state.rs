//! Fold of a session log, and the next step.
//!
//! [`State::apply`] accepts any event in any order without a panic. [`State::admits`] decides which events a runner
//! may still append. [`State::next`] determines the next step from nothing but the log.

mod abandon;
mod admits;
mod calls;
mod compaction;
mod ledger;
mod loans;
mod model_calls;
mod next;
mod queries;
mod repeats;
mod report;
mod round;
mod token_estimator;
mod transcript;

pub use calls::{CallProgress, CallState, Intent};
pub use compaction::CompactionInput;
pub use ledger::{CostModel, Ledger, Shortfall, WorstCase};
pub use loans::Loan;
pub use model_calls::{MAX_ATTEMPTS, OpenCall, Purpose};
pub use round::RoundSpec;
pub use transcript::{Transcript, wrap_up_prompt};

use std::collections::BTreeSet;

use crate::delegation::{Execution, Outcome};
use crate::event::{Answer, CallFault, Event, Speaker};
use crate::id::{CallId, SessionId};
use crate::message::{Reply, Stop, ToolOutput};
use crate::money::Spent;
use crate::network::Target;
use crate::permission::Rule;
use crate::seen::{SeenFile, SeenFiles};
use crate::text::Text;
use calls::ToolCalls;
use repeats::Repeats;
use report::Report;
use round::Round;
use token_estimator::TokenEstimator;

/// Next step of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Call the model.
    CallModel(Purpose),
    /// Process the calls in [`State::unanswered`] that are not in progress: run, refuse, re-attach or close them. If
    /// all are in progress, wait.
    RunCalls,
    /// Wait for work in progress.
    Wait,
    /// Detach these children: everything else is done.
    Detach(Vec<SessionId>),
    /// Append the end of the round.
    End(Outcome),
    /// Nothing to do.
    Nothing,
}

/// State of a session, folded from its log. A new round replaces `round`; everything else survives it.
#[derive(Debug, Clone)]
pub struct State {
    session: SessionId,
    length: u64,
    rounds: u32,
    transcript: Transcript,
    turns: Turns,
    estimator: TokenEstimator,
    results: ResultSizes,
    /// Rules that the user has permanently allowed in this session.
    always_allowed: Vec<Rule>,
    /// Hosts that the user has permanently allowed in this session.
    allowed_hosts: BTreeSet<Target>,
    /// Files that the agent has seen. Boxed, because most agents access none.
    seen: Option<Box<SeenFiles>>,
    round: Round,
}

/// Turn numbers, which continue from round to round.
#[derive(Debug, Clone, Copy, Default)]
struct Turns {
    /// Last turn that was started.
    last: u32,
    /// Last turn that counts against the limit.
    last_counted: u32,
}

/// Sizes of the results of children, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct ResultSizes {
    longest: usize,
    /// Longest result when a child was first started in the background.
    longest_before_background: Option<usize>,
}

impl State {
    /// Creates the state of a session with an empty log.
    pub fn new(session: SessionId) -> State {
        State {
            session,
            length: 0,
            rounds: 0,
            transcript: Transcript::default(),
            turns: Turns::default(),
            estimator: TokenEstimator::default(),
            results: ResultSizes::default(),
            always_allowed: Vec::new(),
            allowed_hosts: BTreeSet::new(),
            seen: None,
            round: Round::default(),
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
                self.start_round(RoundSpec {
                    delegation: delegation.clone(),
                    agent: *agent,
                    grant: *grant,
                    parent: parent.clone(),
                    depth: *depth,
                });
            }
            Event::Resumed { .. } | Event::Said { .. } => {}
            Event::Heard { from, text } => self.heard(from, text),
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
                self.round.counts.add_wait(*waited_ms);
                self.replied(*turn, reply, *spent);
            }
            Event::CallFailed { cause, spent, partial, waited_ms, .. } => {
                self.round.counts.add_wait(*waited_ms);
                self.call_failed(cause, *spent);
                if let Some(text) = partial {
                    self.transcript.set_partial_text(text);
                }
            }
            Event::ToolStarted { call, effect, before, after, lent, .. } => {
                let intent = Intent { effect: *effect, before: *before, after: *after, lent: *lent };
                self.round.tool_started(*call, intent);
            }
            Event::ToolEnded { call, output, spent, seen } => {
                self.tool_ended(*call, output, *spent, seen.as_deref());
            }
            Event::Delegated { call, child, delegation, agent, grant } => {
                if delegation.execution != Execution::Foreground {
                    self.results.longest_before_background.get_or_insert(self.results.longest);
                }
                let spec = RoundSpec {
                    delegation: delegation.clone(),
                    agent: *agent,
                    grant: *grant,
                    parent: Some(self.session.clone()),
                    depth: self.round().map_or(0, |round| round.depth).saturating_add(1),
                };
                self.round.delegated(*call, child, spec);
            }
            Event::Returned { child, outcome, spent, waited_ms } => {
                self.round.counts.add_wait(*waited_ms);
                self.results.longest = self.results.longest.max(outcome.text.len());
                self.round.returned(child, *spent);
            }
            Event::Asked { call, .. } => self.round.tool_calls.asked(*call),
            Event::Answered { call, answer, .. } => self.answered(*call, answer),
            Event::HostAsked { call, host, .. } => self.round.tool_calls.host_asked(*call, host),
            Event::HostAnswered { call, host, answer, .. } => self.host_answered(*call, host, answer),
            Event::LimitReached { which, .. } => {
                self.round.stop.limit.get_or_insert(*which);
            }
            Event::Compacted { summary, keep_from } => {
                self.round.model_calls.overflows = 0;
                self.transcript.compact(summary, *keep_from);
                if let Some(seen) = &mut self.seen {
                    seen.forget_before(*keep_from);
                }
            }
            Event::CancelAsked { by } => self.round.cancel(by),
            Event::Ended { outcome, .. } => self.round.end(outcome),
        }
    }

    fn start_round(&mut self, spec: RoundSpec) {
        self.rounds += 1;
        let is_same_agent = self.round().is_some_and(|last| last.agent == spec.agent);
        if !is_same_agent || self.fallback_index() > 0 {
            self.reset_token_counts();
        }
        self.transcript.begin_round();
        // A turn that an earlier round left unanswered is over: its number is not used again.
        self.transcript.skip_turn(self.turns.last);
        self.transcript.task(&spec.delegation);
        self.round = Round::new(spec);
    }

    /// Discards what is known of the model. Every model counts tokens differently.
    fn reset_token_counts(&mut self) {
        self.transcript.reset_counts();
        self.estimator = TokenEstimator::default();
    }

    fn heard(&mut self, from: &Speaker, text: &Text) {
        match from {
            Speaker::Runtime => {
                self.round.counts.reminders += u32::from(self.is_answered());
                self.round.repeats.mark_warned();
            }
            // An agent that receives new input does not merely repeat itself.
            Speaker::Person | Speaker::Parent => self.round.repeats = Repeats::default(),
            Speaker::Child(_) => {}
        }
        self.transcript.heard(from, text);
    }

    fn called(&mut self, call: OpenCall) {
        if matches!(call.purpose, Purpose::Grace | Purpose::Summary) {
            // The turn limit follows from the log only until the next call; from then on it is stored.
            self.round.stop.limit = self.exceeded_limit();
        }
        if self.turns.last < call.turn {
            self.turns.last = call.turn;
            self.round.model_calls.faults = 0;
        }
        // An external agent works from its first call on, and nothing is estimated for it. Its wrap-up call tells
        // it to stop.
        self.round.counts.has_worked |= call.purpose == Purpose::Turn && call.input == 0;
        if call.purpose == Purpose::Turn && self.turns.last_counted < call.turn {
            self.turns.last_counted = call.turn;
            self.round.counts.turns += 1;
        }
        match call.purpose {
            Purpose::Grace if !self.round.model_calls.wrap_up_sent => {
                self.round.model_calls.wrap_up_sent = true;
                self.transcript.instruct(wrap_up_prompt(self.round.stop.limit));
            }
            Purpose::Summary if self.round.report != Report::Requested => {
                self.round.report = Report::Requested;
                let prompt = self.round().and_then(|round| round.delegation.report.clone());
                self.transcript.instruct(prompt.unwrap_or_default().to_string());
            }
            // New input arrived since: the agent reports again when that is done.
            Purpose::Turn if self.round.report == Report::Done => self.round.report = Report::Due,
            Purpose::Turn | Purpose::Grace | Purpose::Summary | Purpose::Compaction => {}
        }
        self.round.ledger.reserve(call.reserved);
        // A summary does not answer the pending messages, so they stay pending.
        if call.purpose != Purpose::Compaction {
            self.transcript.mark_sent();
        }
        self.round.model_calls.called(call);
    }

    fn replied(&mut self, turn: u32, reply: &Reply, spent: Spent) {
        let purpose = self.round.model_calls.last_purpose;
        let is_compaction = purpose == Some(Purpose::Compaction);
        self.settle(spent, !is_compaction);
        self.round.model_calls.replied();
        self.turns.last = self.turns.last.max(turn);
        if is_compaction {
            return self.compacted(turn);
        }
        self.round.counts.has_worked |= purpose == Some(Purpose::Turn);
        // The wrap-up call has no tools: calls in its reply are not run, and the request builder answers them.
        let is_last_word = matches!(purpose, Some(Purpose::Grace | Purpose::Summary));
        // A reply that was cut off by a refusal does not contain the intended calls.
        let is_refused = reply.stop == Stop::Refusal;
        let runs = !is_last_word && !is_refused && self.round.overrun().is_none() && !self.round.is_single();
        if purpose == Some(Purpose::Summary) {
            self.round.report = Report::Done;
        }
        self.round.tool_calls = if runs { ToolCalls::of(turn, reply) } else { ToolCalls::default() };
        if self.round.tool_calls.is_empty() {
            self.round.repeats = Repeats::default();
        }
        self.transcript.replied(turn, reply, spent.usage);
    }

    /// Charges the cost of the open call, and updates the estimates if its request was the conversation.
    fn settle(&mut self, spent: Spent, is_conversation: bool) {
        let open = self.round.model_calls.open.take();
        if let Some(open) = open.as_ref().filter(|_| is_conversation && spent.estimated == 0) {
            self.estimator.observe(open, self.transcript.counted(), spent.usage);
        }
        self.round.ledger.settle(open.map(|call| call.reserved).unwrap_or_default(), spent);
        // The session's own calls stop here; an outstanding loan may still cover the overuse of a child.
        self.round.stop.limit = self.round.limit();
    }

    /// Ends a summary call, which is not part of the conversation. If it was made for a turn that did not fit, that
    /// turn starts again.
    fn compacted(&mut self, turn: u32) {
        if self.turns.last_counted == turn {
            self.round.counts.turns = self.round.counts.turns.saturating_sub(1);
        }
        self.transcript.skip_turn(turn);
    }

    fn call_failed(&mut self, cause: &CallFault, spent: Spent) {
        self.settle(spent, false);
        self.transcript.end_reply();
        self.round.call_failed(cause);
        if matches!(cause, CallFault::GivenUp { .. }) {
            self.reset_token_counts();
        }
    }

    /// A rule that cannot be parsed allows only the call that it was given for.
    fn answered(&mut self, call: CallId, answer: &Answer) {
        let is_taken = self.round.tool_calls.answered(call, answer);
        if let Answer::Always(rule) = answer
            && is_taken
            && let Ok(rule) = rule.parse()
            && !self.always_allowed.contains(&rule)
        {
            self.always_allowed.push(rule);
        }
    }

    /// A permanent answer for another host allows only the call that it was given for.
    fn host_answered(&mut self, call: CallId, host: &Target, answer: &Answer) {
        let is_taken = self.round.tool_calls.host_answered(call, host, answer);
        if let Answer::Always(rule) = answer
            && is_taken
            && rule.parse().as_ref() == Ok(host)
        {
            self.allowed_hosts.insert(host.clone());
        }
    }

    fn tool_ended(&mut self, call: CallId, output: &ToolOutput, spent: Spent, seen: Option<&SeenFile>) {
        let Some(lent) = self.round.tool_calls.ended(call) else { return };
        self.round.ledger.return_loan(lent, spent);
        self.transcript.answered(call, output);
        if let Some(seen) = seen {
            self.seen.get_or_insert_default().add(call.turn, seen);
        }
        if self.round.tool_calls.all_answered() {
            self.round.repeats.turn_ended(self.transcript.last_exchange());
        }
    }
}

#[cfg(test)]
mod tests;
