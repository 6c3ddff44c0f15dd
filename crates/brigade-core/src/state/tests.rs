//! Scenarios of sessions: past events, the next step and events that are not admitted.

mod abandon;
mod children;
mod context_window;
mod hosts;
mod ledger;
mod limits;
mod partial;
mod parts;
mod queries;
mod queue_time;
mod rounds;
mod seen;

use super::*;
use crate::delegation::{Delegation, DelegationStyle, LimitKind, Status};
use crate::event::Effect;
use crate::grant::{Authority, Budget, Grant, Limit};
use crate::id::Hash;
use crate::message::{CallResult, Message, ToolCall};
use crate::money::{Price, Resources, Usage};
use crate::text::BlobRef;

const LARGE_BUDGET: Budget =
    Budget { tokens: Limit::AtMost(1_000_000), usd: Limit::Unlimited, agents: Limit::AtMost(20_000) };

fn root() -> SessionId {
    SessionId::root(7)
}

fn call(turn: u32, index: u32) -> CallId {
    CallId { turn, index }
}

fn tokens(tokens: u64) -> Resources {
    Resources { tokens, ..Resources::default() }
}

fn used(tokens: u64) -> Spent {
    Spent { usage: Usage { input: tokens, ..Usage::default() }, turns: 1, ..Spent::default() }
}

fn tokens_only(tokens: u64) -> Budget {
    Budget { tokens: Limit::AtMost(tokens), usd: Limit::Unlimited, agents: Limit::AtMost(10) }
}

fn loan(tokens: u64) -> Budget {
    Budget { tokens: Limit::AtMost(tokens), usd: Limit::Unlimited, agents: Limit::AtMost(0) }
}

fn grant(turns: u32, budget: Budget) -> Grant {
    Grant { authority: Authority::default().hash(), budget, turns, deadline: Limit::Unlimited }
}

fn task(text: &str) -> Delegation {
    Delegation { task: text.into(), ..Delegation::default() }
}

fn started(turns: u32, budget: Budget) -> Event {
    Event::Started {
        delegation: task("Do it").into(),
        agent: Hash::of(b"agent"),
        grant: grant(turns, budget),
        parent: None,
        depth: 0,
    }
}

fn called(turn: u32, attempt: u32, purpose: Purpose) -> Event {
    reserving(turn, attempt, purpose, 100)
}

fn reserving(turn: u32, attempt: u32, purpose: Purpose, reserve: u64) -> Event {
    Event::Called {
        turn,
        attempt,
        purpose,
        reserved: tokens(reserve),
        input: 0,
        request: Hash::of(b"request"),
    }
}

fn reply(text: &str, tools: &[&str]) -> Reply {
    let calls = tools.iter().map(|name| ToolCall {
        name: (*name).to_owned(),
        arguments: "{}".into(),
        provider_id: Some(format!("id of {name}")),
    });
    Reply { text: text.into(), calls: calls.collect(), ..Reply::default() }
}

fn replied(turn: u32, text: &str, tools: &[&str]) -> Event {
    Event::Replied { turn, reply: reply(text, tools), spent: used(10), waited_ms: 0 }
}

fn failed(turn: u32, attempt: u32, cause: CallFault) -> Event {
    let spent = match cause {
        CallFault::Interrupted | CallFault::Stopped => Spent::unconfirmed(tokens(100)),
        _ => Spent::default(),
    };
    Event::call_failed(turn, attempt, cause, spent)
}

fn transient() -> CallFault {
    CallFault::Transient { message: "overloaded".to_owned() }
}

fn tool_started(turn: u32, index: u32) -> Event {
    Event::tool_started(call(turn, index), Effect::Pure)
}

fn tool_ended(turn: u32, index: u32, text: &str) -> Event {
    Event::tool_ended(call(turn, index), ToolOutput::ok(text))
}

fn delegated(turn: u32, index: u32, budget: Budget) -> Event {
    let delegation =
        Delegation { style: DelegationStyle::Delegate, role: Some("Helper".to_owned()), ..task("Help") };
    Event::Delegated {
        call: call(turn, index),
        child: root().child(call(turn, index)),
        delegation: delegation.into(),
        agent: Hash::of(b"helper"),
        grant: grant(5, budget),
    }
}

fn returned(turn: u32, index: u32, spent: Spent) -> Event {
    let outcome = Outcome::new(Status::Done, "helped");
    Event::Returned { child: root().child(call(turn, index)), outcome, spent, waited_ms: 0 }
}

fn heard(text: &str) -> Event {
    Event::Heard { from: Speaker::Person, text: text.into() }
}

fn limit_reached(which: LimitKind) -> Event {
    Event::limit_reached(which)
}

fn limit_of(worst: Result<WorstCase, Shortfall>) -> Option<LimitKind> {
    worst.err().map(|shortfall| shortfall.which)
}

fn cancel() -> Event {
    Event::CancelAsked { by: "the user".to_owned() }
}

fn ended(status: Status, text: &str) -> Event {
    Event::Ended { outcome: Outcome::new(status, text), spent: Spent::default() }
}

fn done(text: &str) -> Step {
    Step::End(Outcome::new(Status::Done, text))
}

fn incomplete(limit: LimitKind, text: &str) -> Step {
    Step::End(Outcome::new(Status::Incomplete { limit }, text))
}

fn cancelled(text: &str) -> Step {
    Step::End(Outcome::new(Status::Cancelled { by: "the user".to_owned() }, text))
}

/// Session that has completed one turn.
fn worked_once() -> Scenario {
    let turn = [called(1, 1, Purpose::Turn), replied(1, "Working.", &["read"]), tool_ended(1, 0, "text")];
    Scenario::of([started(9, LARGE_BUDGET)].into_iter().chain(turn))
}

/// The same session, with a limit reached afterwards.
fn worked(limit: LimitKind) -> Scenario {
    let mut scenario = worked_once();
    scenario.then(limit_reached(limit));
    scenario
}

/// Growing log: every event must be admitted at its position, and the ledger must balance after it.
#[derive(Clone)]
struct Scenario {
    log: Vec<Event>,
    state: State,
    /// Calls that the runner processes.
    in_flight: Vec<CallId>,
}

impl Scenario {
    fn new() -> Scenario {
        Scenario { log: Vec::new(), state: State::new(root()), in_flight: Vec::new() }
    }

    fn of(events: impl IntoIterator<Item = Event>) -> Scenario {
        let mut scenario = Scenario::new();
        for event in events {
            scenario.then(event);
        }
        scenario
    }

    #[track_caller]
    fn then(&mut self, event: Event) -> &mut Scenario {
        assert!(self.state.admits(&event), "{event:?} is not admitted after {:#?}", self.log);
        self.state.apply(&event);
        self.log.push(event);
        let ledger = self.state.ledger();
        assert!(ledger.granted().fits(ledger.committed()), "{ledger:?}");
        assert_paired(&self.state.messages());
        self
    }

    #[track_caller]
    fn refuses(&mut self, event: Event) -> &mut Scenario {
        assert!(!self.state.admits(&event), "{event:?} is admitted after {:#?}", self.log);
        self
    }

    #[track_caller]
    fn next(&mut self, step: Step) -> &mut Scenario {
        let next = match self.state.next() {
            Step::RunCalls if self.calls_to_run().is_empty() => Step::Wait,
            next => next,
        };
        assert_eq!(next, step, "after {:#?}", self.log);
        self
    }

    /// The next step is to process exactly these calls. From now on the runner does.
    #[track_caller]
    fn runs(&mut self, calls: &[CallId]) -> &mut Scenario {
        assert_eq!(self.state.next(), Step::RunCalls, "after {:#?}", self.log);
        assert_eq!(self.calls_to_run(), calls, "after {:#?}", self.log);
        self.in_flight.extend(calls);
        self
    }

    fn calls_to_run(&self) -> Vec<CallId> {
        let unanswered = self.state.unanswered();
        assert_eq!(unanswered.len(), self.state.unanswered_count());
        unanswered.into_iter().filter(|call| !self.in_flight.contains(call)).collect()
    }

    /// The runner is gone; another one reads the log.
    fn crash(&mut self) -> &mut Scenario {
        self.state = State::fold(root(), &self.log);
        self.in_flight.clear();
        self
    }

    fn ends(&mut self) -> &mut Scenario {
        let Step::End(outcome) = self.state.next() else { panic!("no end after {:#?}", self.log) };
        let spent = self.state.ledger().spent();
        self.then(Event::Ended { outcome, spent }).next(Step::Nothing)
    }
}

/// Each reply with calls is directly followed by one result for each of them, and there are no other results.
#[track_caller]
fn assert_paired(messages: &[Message]) {
    let mut due: Option<&Reply> = None;
    for message in messages {
        match (message, due.take()) {
            (Message::Results(results), Some(reply)) => {
                assert_eq!(results.len(), reply.calls.len());
                for ((index, result), call) in (0..).zip(results).zip(&reply.calls) {
                    assert_eq!((result.call.index, &result.name), (index, &call.name));
                    assert_eq!(result.provider_id, call.provider_id);
                }
            }
            (Message::Assistant(reply), None) if !reply.calls.is_empty() => due = Some(reply),
            (Message::Assistant(_) | Message::User(_), None) => {}
            (message, due) => panic!("{message:?} stands where {due:?} is due"),
        }
    }
    assert!(due.is_none(), "{due:?} has no results");
}

fn user_messages(state: &State) -> Vec<String> {
    let messages = state.messages().into_iter().filter_map(|message| match message {
        Message::User(text) => Some(text.to_string()),
        Message::Assistant(_) | Message::Results(_) => None,
    });
    messages.collect()
}

fn last_results(state: &State) -> Vec<CallResult> {
    let mut results = Vec::new();
    for message in state.messages() {
        if let Message::Results(found) = message {
            results = found;
        }
    }
    results
}

#[test]
fn run_without_tools_ends_done() {
    let mut scenario = Scenario::new();
    scenario.next(Step::Nothing).refuses(called(1, 1, Purpose::Turn)).refuses(heard("x")).refuses(cancel());
    scenario.then(started(3, LARGE_BUDGET)).next(Step::CallModel(Purpose::Turn));
    assert_eq!(user_messages(&scenario.state), ["Do it"]);
    assert_eq!(scenario.state.next_attempt(), (1, 1));
    scenario.then(called(1, 1, Purpose::Turn)).next(Step::Wait);
    assert_eq!(scenario.state.ledger().reserved(), tokens(100));
    scenario.then(replied(1, "Done.", &[])).next(done("Done."));
    assert_eq!(scenario.state.ledger().reserved(), tokens(0));
    assert_eq!(scenario.state.ledger().spent(), used(10));
    scenario.then(ended(Status::Done, "Done.")).next(Step::Nothing);
    assert_eq!(scenario.state.ended().unwrap().text.as_str(), "Done.");
}

#[test]
fn delegation_context_follows_the_task() {
    let mut delegation = task("Look");
    delegation.context = Some("It is red.".into());
    let event = Event::Started {
        delegation: delegation.into(),
        agent: Hash::of(b"a"),
        grant: grant(1, LARGE_BUDGET),
        parent: None,
        depth: 0,
    };
    assert_eq!(user_messages(&Scenario::of([event]).state), ["Look\n\nContext:\nIt is red."]);
}

#[test]
fn tool_turn_runs_calls_and_continues() {
    let mut scenario = Scenario::of([started(3, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    scenario.then(replied(1, "I look.", &["read_file", "shell"]));
    scenario.runs(&[call(1, 0), call(1, 1)]).next(Step::Wait);
    scenario
        .refuses(called(2, 1, Purpose::Turn))
        .refuses(ended(Status::Done, ""))
        .refuses(tool_ended(1, 2, "x"));
    scenario.then(tool_started(1, 0)).then(tool_started(1, 1)).next(Step::Wait);
    // Results are in the order of the calls, whichever ends first.
    scenario.then(tool_ended(1, 1, "second")).next(Step::Wait);
    scenario.refuses(tool_ended(1, 1, "again")).refuses(tool_started(1, 1)).refuses(called(
        2,
        1,
        Purpose::Turn,
    ));
    scenario.then(tool_ended(1, 0, "first")).next(Step::CallModel(Purpose::Turn));
    let texts: Vec<String> =
        last_results(&scenario.state).iter().map(|result| result.output.text.to_string()).collect();
    assert_eq!(texts, ["first", "second"]);
    scenario.refuses(tool_started(1, 0)).refuses(called(1, 2, Purpose::Turn)).refuses(called(
        3,
        1,
        Purpose::Turn,
    ));
    scenario.then(called(2, 1, Purpose::Turn)).then(replied(2, "Red.", &[])).next(done("Red.")).ends();
    assert_eq!(scenario.state.ledger().spent().turns, 2);
}

#[test]
fn delegation_lends_and_returns_budget() {
    let mut scenario = Scenario::of([started(3, tokens_only(1000)), called(1, 1, Purpose::Turn)]);
    scenario.then(replied(1, "", &["delegate", "delegate"]));
    scenario.runs(&[call(1, 0), call(1, 1)]);
    scenario.then(delegated(1, 0, loan(600)));
    assert_eq!(scenario.state.ledger().lent(), Resources { tokens: 600, usd: 0, agents: 1 });
    // 10 are spent and 600 are lent, so 390 are left.
    scenario.refuses(delegated(1, 1, loan(391))).then(delegated(1, 1, loan(390))).next(Step::Wait);
    scenario.refuses(tool_ended(1, 0, "too early")).refuses(ended(Status::Done, ""));
    scenario.refuses(ended(Status::Failed { cause: "x".to_owned() }, "")).refuses(called(
        2,
        1,
        Purpose::Turn,
    ));
    scenario.then(returned(1, 1, used(300))).refuses(returned(1, 1, used(300))).next(Step::Wait);
    assert_eq!(scenario.state.ledger().committed(), Resources { tokens: 10 + 600 + 300, usd: 0, agents: 2 });
    scenario.then(tool_ended(1, 1, "[Helper]: b")).next(Step::Wait);
    scenario.then(returned(1, 0, Spent { agents: 0, ..used(5) })).then(tool_ended(1, 0, "[Helper]: a"));
    assert_eq!(scenario.state.ledger().lent(), Resources::default());
    assert_eq!(scenario.state.ledger().committed(), Resources { tokens: 315, usd: 0, agents: 2 });
    scenario
        .next(Step::CallModel(Purpose::Turn))
        .then(called(2, 1, Purpose::Turn))
        .then(replied(2, "Ok.", &[]))
        .ends();
    // A child's usage is included in its parent's totals: 10 + 300 + 5 + 10, and four answered calls.
    let spent = scenario.state.ledger().spent();
    assert_eq!((spent.usage.total(), spent.agents, spent.turns), (325, 2, 4));
}

#[test]
fn agents_and_money_are_lent_like_tokens() {
    let budget = |usd, agents| Budget {
        tokens: Limit::Unlimited,
        usd: Limit::AtMost(usd),
        agents: Limit::AtMost(agents),
    };
    let mut scenario = Scenario::of([started(3, budget(50, 3))]);
    scenario.then(reserving(1, 1, Purpose::Turn, 1_000_000_000)).then(replied(
        1,
        "",
        &["delegate", "delegate"],
    ));
    scenario.refuses(delegated(1, 0, budget(51, 0))).refuses(delegated(1, 0, budget(0, 3)));
    scenario.refuses(delegated(1, 0, Budget::UNLIMITED));
    scenario.then(delegated(1, 0, budget(50, 1))).refuses(delegated(1, 1, budget(1, 0))).refuses(delegated(
        1,
        1,
        budget(0, 1),
    ));
    // The child started one agent of its own and used 20.
    scenario.then(returned(1, 0, Spent { usd: 20, agents: 1, ..used(5) }));
    assert_eq!(scenario.state.ledger().committed(), Resources { tokens: 15, usd: 20, agents: 2 });
    scenario.refuses(delegated(1, 1, budget(30, 1))).refuses(delegated(1, 1, budget(31, 0)));
    scenario.then(delegated(1, 1, budget(30, 0)));
}

#[test]
fn loan_keeps_what_a_resume_needs() {
    let scenario = Scenario::of([
        started(3, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["delegate"]),
        delegated(1, 0, loan(50)),
    ]);
    let loan_out = &scenario.state.loans()[&root().child(call(1, 0))];
    assert_eq!(loan_out.call, call(1, 0));
    assert_eq!(loan_out.round.depth, 1);
    assert_eq!(loan_out.round.parent, Some(root()));
    assert_eq!(loan_out.round.grant, grant(5, loan(50)));
    assert_eq!(loan_out.round.delegation.task.as_str(), "Help");
    assert_eq!(loan_out.round.agent, Hash::of(b"helper"));
}

#[test]
fn delegated_accepts_only_own_children() {
    let mut scenario = Scenario::of([
        started(3, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["delegate", "x"]),
    ]);
    let to = |child: SessionId| match delegated(1, 0, loan(5)) {
        Event::Delegated { call, delegation, agent, grant, .. } => {
            Event::Delegated { call, child, delegation, agent, grant }
        }
        event => event,
    };
    scenario
        .refuses(to(root()))
        .refuses(to(SessionId::root(8)))
        .refuses(to(SessionId::root(8).child(call(1, 0))));
    scenario.then(to(root().child(call(1, 0)))).refuses(to(root().child(call(1, 0))));
    scenario.refuses(delegated(2, 0, loan(5))).refuses(delegated(1, 2, loan(5)));
    // An answered call lends no more.
    scenario.then(tool_ended(1, 1, "x")).refuses(delegated(1, 1, loan(5)));
}

#[test]
fn turn_limit_gets_a_wrap_up_call() {
    let mut scenario = Scenario::of([
        started(1, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "Half.", &["read_file"]),
    ]);
    scenario.then(tool_ended(1, 0, "x")).next(Step::CallModel(Purpose::Grace));
    scenario.refuses(called(2, 1, Purpose::Turn)).refuses(ended(Status::Done, "Half."));
    scenario.then(limit_reached(LimitKind::Turns)).next(Step::CallModel(Purpose::Grace));
    scenario.then(called(2, 1, Purpose::Grace)).next(Step::Wait);
    assert!(user_messages(&scenario.state).last().unwrap().contains("turn limit"));
    scenario.then(replied(2, "I got half; the rest is left.", &[]));
    scenario
        .next(incomplete(LimitKind::Turns, "I got half; the rest is left."))
        .refuses(called(3, 1, Purpose::Turn))
        .refuses(called(3, 1, Purpose::Grace))
        .ends();
}

/// The turn limit follows from the log, so it holds even without an event.
#[test]
fn turn_limit_without_an_event_gets_a_wrap_up_call() {
    let begin = || {
        Scenario::of([
            started(1, LARGE_BUDGET),
            called(1, 1, Purpose::Turn),
            replied(1, "Half.", &["read_file"]),
            tool_ended(1, 0, "x"),
            called(2, 1, Purpose::Grace),
        ])
    };
    assert!(user_messages(&begin().state).last().unwrap().contains("turn limit"));
    begin().then(replied(2, "All I got.", &[])).next(incomplete(LimitKind::Turns, "All I got.")).ends();
    // A crash in the wrap-up call gives no further turn.
    let mut scenario = begin();
    scenario.crash().then(failed(2, 1, CallFault::Interrupted)).next(Step::CallModel(Purpose::Grace));
    scenario.refuses(called(2, 2, Purpose::Turn)).then(called(2, 2, Purpose::Grace)).then(replied(
        2,
        "All.",
        &[],
    ));
    scenario.next(incomplete(LimitKind::Turns, "All.")).ends();
}

#[test]
fn answer_on_the_last_turn_is_done() {
    Scenario::of([started(1, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied(1, "Done.", &[])])
        .next(done("Done."))
        .ends();
}

#[test]
fn round_with_zero_turns_ends_incomplete() {
    let mut scenario = Scenario::of([started(0, LARGE_BUDGET)]);
    scenario.refuses(called(1, 1, Purpose::Turn)).refuses(called(1, 1, Purpose::Grace));
    scenario.next(incomplete(LimitKind::Turns, ""));
}

#[test]
fn calls_in_the_wrap_up_reply_are_not_run() {
    let mut scenario = worked(LimitKind::Turns);
    scenario.then(called(2, 1, Purpose::Grace));
    scenario.then(replied(2, "One more?", &["shell"])).refuses(tool_started(2, 0)).refuses(delegated(
        2,
        0,
        loan(1),
    ));
    scenario.next(incomplete(LimitKind::Turns, "One more?")).ends();
    assert!(last_results(&scenario.state)[0].output.is_error());
}

#[test]
fn token_limit_gets_a_wrap_up_call() {
    let cost_model = CostModel { price: Price::default(), fixed_bytes: 0, max_output: 100, window: None };
    let mut scenario = Scenario::of([started(50, tokens_only(400))]);
    // Of 400 tokens the session reserves 103, so 197 of the next call's 297 would be output; 100 are enough.
    let worst = scenario.state.worst_case(&cost_model, Purpose::Turn).unwrap();
    assert_eq!((worst.amount.tokens, worst.max_output), (103, 100));
    scenario.then(reserving(1, 1, Purpose::Turn, worst.amount.tokens));
    scenario.then(Event::Replied {
        turn: 1,
        reply: reply("Half.", &["read_file"]),
        spent: used(103),
        waited_ms: 0,
    });
    scenario.then(tool_ended(1, 0, &"x".repeat(100)));
    // The next input is 103 + 50: with the reserve of 253 nothing is left for a turn out of 297.
    assert_eq!(limit_of(scenario.state.worst_case(&cost_model, Purpose::Turn)), Some(LimitKind::Tokens));
    scenario.then(limit_reached(LimitKind::Tokens)).next(Step::CallModel(Purpose::Grace)).refuses(called(
        2,
        1,
        Purpose::Turn,
    ));
    let grace = scenario.state.worst_case(&cost_model, Purpose::Grace).unwrap();
    assert!(grace.max_output > 0);
    scenario.then(reserving(2, 1, Purpose::Grace, grace.amount.tokens)).then(replied(2, "Only half.", &[]));
    scenario.next(incomplete(LimitKind::Tokens, "Only half.")).ends();
}

#[test]
fn reserve_beyond_the_budget_is_refused() {
    let mut scenario = Scenario::of([started(9, tokens_only(100))]);
    scenario.refuses(reserving(1, 1, Purpose::Turn, 101)).then(reserving(1, 1, Purpose::Turn, 100));
    scenario
        .then(Event::Replied { turn: 1, reply: reply("", &["x"]), spent: used(60), waited_ms: 0 })
        .then(tool_ended(1, 0, ""));
    scenario.refuses(reserving(2, 1, Purpose::Turn, 41)).then(limit_reached(LimitKind::Tokens));
    scenario.refuses(reserving(2, 1, Purpose::Grace, 41)).then(reserving(2, 1, Purpose::Grace, 40));
}

#[test]
fn unaffordable_wrap_up_ends_with_the_last_text() {
    let mut scenario =
        Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied(1, "Half.", &["x"])]);
    scenario
        .then(tool_ended(1, 0, ""))
        .then(limit_reached(LimitKind::Usd))
        .next(Step::CallModel(Purpose::Grace));
    scenario.then(failed(2, 1, CallFault::Unaffordable)).next(incomplete(LimitKind::Usd, "Half.")).ends();
}

/// An earlier transient fault does not cause retries of a call that the budget cannot cover.
#[test]
fn unaffordable_wrap_up_after_a_fault_ends() {
    let mut scenario = worked_once();
    scenario.then(called(2, 1, Purpose::Turn)).then(failed(2, 1, transient()));
    scenario.then(limit_reached(LimitKind::Tokens)).next(Step::CallModel(Purpose::Grace));
    scenario
        .then(failed(2, 2, CallFault::Unaffordable))
        .next(incomplete(LimitKind::Tokens, "Working."))
        .ends();
}

#[test]
fn stopped_wrap_up_is_not_repeated() {
    let mut scenario = worked(LimitKind::Time);
    scenario.then(called(2, 1, Purpose::Grace));
    scenario.then(failed(2, 1, CallFault::Stopped)).next(incomplete(LimitKind::Time, "Working.")).ends();
    let mut scenario = worked(LimitKind::Time);
    scenario.then(called(2, 1, Purpose::Grace));
    scenario.then(failed(2, 1, transient())).next(Step::CallModel(Purpose::Grace)).then(called(
        2,
        2,
        Purpose::Grace,
    ));
    scenario.then(failed(2, 2, CallFault::Stopped)).next(incomplete(LimitKind::Time, "Working.")).ends();
}

#[test]
fn interrupted_wrap_up_is_repeated() {
    let mut scenario = worked(LimitKind::Time);
    scenario.then(called(2, 1, Purpose::Grace));
    scenario.crash().then(failed(2, 1, CallFault::Interrupted)).next(Step::CallModel(Purpose::Grace));
    scenario
        .then(called(2, 2, Purpose::Grace))
        .then(replied(2, "Late.", &[]))
        .next(incomplete(LimitKind::Time, "Late."));
    // The prompt is sent once.
    assert_eq!(
        user_messages(&scenario.state).iter().filter(|message| message.contains("time limit")).count(),
        1
    );
}

#[test]
fn wrap_up_is_retried_until_max_attempts() {
    let mut scenario = worked(LimitKind::Time);
    for attempt in 1..=MAX_ATTEMPTS {
        scenario.next(Step::CallModel(Purpose::Grace));
        scenario.then(called(2, attempt, Purpose::Grace)).then(failed(2, attempt, transient()));
    }
    scenario.next(incomplete(LimitKind::Time, "Working.")).ends();
}

#[test]
fn time_limit_stops_new_calls_and_wraps_up() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "I run.", &["shell", "shell"]),
    ]);
    scenario.then(tool_started(1, 0)).then(limit_reached(LimitKind::Time));
    // Running calls may end; nothing new starts; the first limit stays.
    scenario
        .refuses(tool_started(1, 1))
        .refuses(delegated(1, 1, loan(1)))
        .refuses(limit_reached(LimitKind::Tokens));
    assert!(scenario.state.stop_reason().unwrap().contains("time"));
    scenario.then(tool_ended(1, 0, "interrupted")).then(tool_ended(1, 1, "not started"));
    scenario.next(Step::CallModel(Purpose::Grace)).then(called(2, 1, Purpose::Grace)).then(replied(
        2,
        "So far.",
        &[],
    ));
    scenario.next(incomplete(LimitKind::Time, "So far.")).ends();
}

#[test]
fn cancel_waits_for_open_children() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "Two helpers.", &["delegate", "delegate", "delegate"]),
        delegated(1, 0, loan(100)),
        delegated(1, 1, loan(100)),
    ]);
    scenario.runs(&[call(1, 0), call(1, 1), call(1, 2)]);
    scenario.then(cancel()).refuses(cancel()).refuses(limit_reached(LimitKind::Time)).next(Step::Wait);
    // Nothing is lent, started, requested or called any more.
    scenario.refuses(delegated(1, 2, loan(1))).refuses(tool_started(1, 2)).refuses(called(
        2,
        1,
        Purpose::Turn,
    ));
    scenario.refuses(Event::Asked {
        call: call(1, 2),
        what: "?".into(),
        why: String::new(),
        always: None,
        until: 0,
        default: Answer::Once,
    });
    let end = || ended(Status::Cancelled { by: "the user".to_owned() }, "Two helpers.");
    scenario.refuses(end()).then(tool_ended(1, 2, "not started")).refuses(end());
    scenario.then(returned(1, 0, used(50))).then(tool_ended(1, 0, "part")).refuses(end()).next(Step::Wait);
    scenario.then(returned(1, 1, used(50))).then(tool_ended(1, 1, "part"));
    // A cancellation has no wrap-up call.
    scenario.refuses(called(2, 1, Purpose::Grace)).refuses(called(2, 1, Purpose::Summary));
    scenario
        .refuses(ended(Status::Done, ""))
        .refuses(ended(Status::Incomplete { limit: LimitKind::Turns }, ""));
    scenario.next(cancelled("Two helpers.")).then(end()).next(Step::Nothing);
    assert_eq!(scenario.state.ledger().lent(), Resources::default());
}

#[test]
fn cancel_during_a_model_call_charges_the_reserve() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), cancel()]);
    scenario.next(Step::Wait).refuses(ended(Status::Cancelled { by: String::new() }, ""));
    scenario.then(failed(1, 1, CallFault::Stopped)).next(cancelled("")).ends();
    assert_eq!(scenario.state.ledger().spent().unconfirmed, tokens(100));
}

#[test]
fn reply_after_a_cancel_runs_no_calls() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        cancel(),
        replied(1, "Go.", &["shell"]),
    ]);
    scenario.runs(&[call(1, 0)]).refuses(tool_started(1, 0)).then(tool_ended(1, 0, "not started"));
    scenario.next(cancelled("Go.")).ends();
}

#[test]
fn cancel_right_after_start_ends_cancelled() {
    Scenario::of([started(9, LARGE_BUDGET), cancel()]).next(cancelled("")).ends();
}

#[test]
fn cancel_takes_precedence_over_a_limit() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), limit_reached(LimitKind::Time), cancel()]);
    scenario.refuses(called(1, 1, Purpose::Grace)).next(cancelled("")).ends();
}

/// Two delegations and a tool, a fault, an external message and an answer.
fn whole_log() -> Vec<Event> {
    vec![
        started(9, tokens_only(10_000)),
        called(1, 1, Purpose::Turn),
        replied(1, "I share the work.", &["delegate", "read_file", "delegate"]),
        tool_started(1, 1),
        delegated(1, 0, loan(2000)),
        delegated(1, 2, loan(2000)),
        tool_ended(1, 1, "content"),
        returned(1, 2, used(700)),
        tool_ended(1, 2, "[Helper]: b"),
        returned(1, 0, used(2000)),
        tool_ended(1, 0, "[Helper]: a"),
        called(2, 1, Purpose::Turn),
        failed(2, 1, transient()),
        called(2, 2, Purpose::Turn),
        heard("Be brief."),
        replied(2, "Both agree, and I have gone on at length.", &[]),
        called(3, 1, Purpose::Turn),
        replied(3, "Both agree.", &[]),
        ended(Status::Done, "Both agree."),
    ]
}

/// Whether executing `step` can lead to `event`.
fn leads_to(state: &State, event: &Event) -> bool {
    let calls = state.unanswered();
    match (state.next(), event) {
        (_, Event::Heard { .. }) => true,
        (Step::Nothing, Event::Started { .. }) => true,
        (Step::CallModel(step), Event::Called { purpose, .. }) => step == *purpose,
        (Step::Wait, Event::Replied { .. } | Event::CallFailed { .. } | Event::Returned { .. }) => true,
        (
            Step::RunCalls,
            Event::ToolStarted { call, .. } | Event::ToolEnded { call, .. } | Event::Delegated { call, .. },
        ) => calls.contains(call),
        (Step::RunCalls, Event::Returned { child, .. }) => {
            calls.iter().any(|call| root().child(*call) == *child)
        }
        (Step::End(step), Event::Ended { outcome, .. }) => step == *outcome,
        _ => false,
    }
}

/// Runner that resumes a log at any point and follows the steps until there is nothing to do.
#[track_caller]
fn run_to_end(scenario: &mut Scenario) {
    if let Some(open) = scenario.state.open_call().cloned() {
        let spent = Spent::unconfirmed(open.reserved);
        let cause = CallFault::Interrupted;
        scenario.then(Event::call_failed(open.turn, open.attempt, cause, spent));
    }
    for _ in 0..100 {
        match scenario.state.next() {
            Step::Nothing => return,
            Step::Wait | Step::Detach(_) => panic!("nothing is under way after {:#?}", scenario.log),
            Step::CallModel(purpose) => {
                let (turn, attempt) = scenario.state.next_attempt();
                scenario.then(called(turn, attempt, purpose)).then(replied(turn, "Carried on.", &[]));
            }
            Step::RunCalls => {
                for call in scenario.state.unanswered() {
                    let children: Vec<SessionId> = scenario.state.loans().keys().cloned().collect();
                    for child in children.into_iter().filter(|child| *child == root().child(call)) {
                        let outcome = Outcome::new(Status::Done, "");
                        scenario.then(Event::Returned { child, outcome, spent: used(1), waited_ms: 0 });
                    }
                    scenario.then(Event::tool_ended(call, ToolOutput::ok("answered later")));
                }
            }
            Step::End(outcome) => {
                scenario.then(Event::Ended { outcome, spent: Spent::default() });
            }
        }
    }
    panic!("no end after {:#?}", scenario.log);
}

#[test]
fn session_resumes_from_every_crash_point() {
    let log = whole_log();
    for length in 0..=log.len() {
        let state = State::fold(root(), &log[..length]);
        let Some(event) = log.get(length) else {
            assert_eq!(state.next(), Step::Nothing);
            continue;
        };
        assert!(state.admits(event), "{event:?} is not admitted at {length}");
        assert!(leads_to(&state, event), "{:?} does not lead to {event:?} at {length}", state.next());
        if length == 0 {
            continue;
        }
        let mut scenario = Scenario::of(log[..length].to_vec());
        run_to_end(scenario.crash());
        let count = |kind: &str| scenario.log.iter().filter(|event| event.kind() == kind).count();
        assert_eq!(count("ended"), 1);
        assert_eq!(count("delegated"), count("returned"));
        assert_eq!(scenario.state.ledger().lent(), Resources::default());
        assert_eq!(scenario.state.ledger().reserved(), Resources::default());
    }
}

/// Nothing that is recorded as done is done or charged twice: no event is admitted again at its position.
#[test]
fn no_event_is_admitted_twice_in_a_row() {
    let log = whole_log();
    for (index, event) in log.iter().enumerate() {
        let state = State::fold(root(), &log[..=index]);
        // Messages may be repeated, and a pure tool may be started again.
        let repeatable = matches!(event, Event::Heard { .. } | Event::ToolStarted { .. });
        assert_eq!(state.admits(event), repeatable, "{event:?}");
    }
}

#[test]
fn transient_fault_is_retried() {
    let mut scenario =
        Scenario::of([started(1, LARGE_BUDGET), called(1, 1, Purpose::Turn), failed(1, 1, transient())]);
    scenario.next(Step::CallModel(Purpose::Turn)).refuses(called(2, 1, Purpose::Turn)).refuses(called(
        1,
        1,
        Purpose::Turn,
    ));
    assert_eq!(scenario.state.ledger().committed(), Resources::default());
    scenario.then(called(1, 2, Purpose::Turn)).refuses(failed(1, 1, transient())).then(replied(
        1,
        "Ok.",
        &[],
    ));
    scenario.next(done("Ok.")).ends();
}

#[test]
fn transient_fault_is_fatal_after_six_attempts() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    for attempt in 1..=6 {
        scenario.next(Step::CallModel(Purpose::Turn));
        scenario.then(called(1, attempt, Purpose::Turn)).then(failed(1, attempt, transient()));
    }
    let Step::End(outcome) = scenario.state.next() else { panic!("it continues") };
    let Status::Failed { cause } = &outcome.status else { panic!("{outcome:?}") };
    assert!(cause.contains("overloaded") && cause.contains('6'), "{cause}");
    scenario.ends();
}

#[test]
fn fault_count_restarts_for_each_turn() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    for turn in 1..=3 {
        for attempt in 1..=3 {
            scenario.then(called(turn, attempt, Purpose::Turn)).then(failed(turn, attempt, transient()));
        }
        scenario
            .then(called(turn, 4, Purpose::Turn))
            .then(replied(turn, "", &["x"]))
            .then(tool_ended(turn, 0, ""));
        scenario.next(Step::CallModel(Purpose::Turn));
    }
}

#[test]
fn fatal_fault_ends_at_once() {
    let fatal = CallFault::Fatal { message: "no such model".to_owned() };
    let mut scenario =
        Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), failed(1, 1, fatal)]);
    scenario.next(Step::End(Outcome::new(Status::Failed { cause: "no such model".to_owned() }, ""))).ends();
}

#[test]
fn interrupted_call_is_charged_as_unconfirmed_and_retried() {
    let mut scenario = Scenario::of([started(1, tokens_only(250)), called(1, 1, Purpose::Turn)]);
    scenario.crash().next(Step::Wait).then(failed(1, 1, CallFault::Interrupted));
    assert_eq!(scenario.state.ledger().spent().unconfirmed, tokens(100));
    assert_eq!(scenario.state.ledger().committed(), tokens(100));
    assert_eq!(scenario.state.ledger().spent().usage.total(), 0);
    // This is the same turn: the limit of one turn still permits it.
    scenario.next(Step::CallModel(Purpose::Turn));
    assert_eq!(scenario.state.next_attempt(), (1, 2));
    scenario.refuses(called(1, 1, Purpose::Turn)).refuses(called(2, 1, Purpose::Turn));
    scenario.refuses(reserving(1, 2, Purpose::Turn, 151)).then(called(1, 2, Purpose::Turn)).then(replied(
        1,
        "Ok.",
        &[],
    ));
    assert_eq!(scenario.state.ledger().committed(), tokens(110));
    scenario.next(done("Ok.")).ends();
}

#[test]
fn crashes_do_not_count_as_faults() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    for attempt in 1..=20 {
        scenario.next(Step::CallModel(Purpose::Turn)).then(called(1, attempt, Purpose::Turn)).crash();
        scenario.then(failed(1, attempt, CallFault::Interrupted));
    }
    scenario
        .then(called(1, 21, Purpose::Turn))
        .then(replied(1, "At last.", &[]))
        .next(done("At last."))
        .ends();
}

#[test]
fn message_during_a_model_call_follows_its_reply_and_results() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), heard("Wait!")]);
    // The request in progress does not contain them; neither does one that is rebuilt for it.
    assert_eq!(user_messages(&scenario.state), ["Do it"]);
    scenario.then(replied(1, "I look.", &["read_file"])).then(heard("And another thing."));
    scenario.then(tool_ended(1, 0, "content"));
    let messages = scenario.state.messages();
    assert!(matches!(&messages[0], Message::User(text) if text.as_str() == "Do it"));
    assert!(matches!(&messages[1], Message::Assistant(_)));
    assert!(matches!(&messages[2], Message::Results(_)));
    assert!(matches!(&messages[3], Message::User(text) if text.as_str() == "Wait!"));
    assert!(matches!(&messages[4], Message::User(text) if text.as_str() == "And another thing."));
    assert_eq!(messages.len(), 5);
}

#[test]
fn message_during_a_model_call_keeps_the_session_running() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        heard("And B?"),
        replied(1, "A.", &[]),
    ]);
    scenario.refuses(ended(Status::Done, "A.")).next(Step::CallModel(Purpose::Turn));
    scenario.then(called(2, 1, Purpose::Turn)).then(replied(2, "B.", &[])).next(done("B.")).ends();
}

#[test]
fn message_survives_a_failed_call() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        heard("Hurry."),
        failed(1, 1, transient()),
    ]);
    assert_eq!(user_messages(&scenario.state), ["Do it", "Hurry."]);
    scenario.then(called(1, 2, Purpose::Turn)).then(replied(1, "Ok.", &[])).next(done("Ok."));
}

#[test]
fn message_sender_is_stamped_by_the_runtime() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    for from in [Speaker::Parent, Speaker::Child(root().child(call(1, 0))), Speaker::Runtime] {
        scenario.then(Event::Heard { from, text: "hello".into() });
    }
    let messages = user_messages(&scenario.state);
    assert!(
        messages[1..].iter().all(|message| message != "hello" && message.contains("hello")),
        "{messages:?}"
    );
    assert!(messages[2].contains(root().child(call(1, 0)).as_str()));
}

#[test]
fn message_after_the_end_starts_another_round() {
    let mut scenario =
        Scenario::of([started(1, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied(1, "A.", &[])]);
    scenario.ends();
    assert!(!scenario.state.has_unread_input());
    scenario.then(Event::Heard { from: Speaker::Runtime, text: "A note.".into() });
    assert!(
        scenario.state.has_unread_input() && !scenario.state.has_user_input(),
        "the runtime is not the user"
    );
    scenario.then(heard("And B?")).next(Step::Nothing).refuses(called(2, 1, Purpose::Turn));
    assert!(scenario.state.has_unread_input() && scenario.state.has_user_input());
    let silent = Event::Started {
        delegation: Delegation::default().into(),
        agent: Hash::of(b"agent"),
        grant: grant(1, tokens_only(500)),
        parent: None,
        depth: 0,
    };
    scenario.then(silent).next(Step::CallModel(Purpose::Turn));
    assert_eq!(scenario.state.rounds(), 2);
    // The ledger belongs to the round; turn numbers continue, so that call ids stay unique.
    assert_eq!(scenario.state.ledger().committed(), Resources::default());
    assert_eq!(scenario.state.ledger().granted(), tokens_only(500));
    assert_eq!(scenario.state.next_attempt(), (2, 1));
    scenario.then(called(2, 1, Purpose::Turn)).then(replied(2, "B.", &[])).next(done("B.")).ends();
    assert_eq!(user_messages(&scenario.state), ["Do it", "Note from the runtime: A note.", "And B?"]);
}

#[test]
fn limit_and_cancel_end_with_their_round() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), cancel()]);
    scenario.ends().then(started(9, LARGE_BUDGET)).next(Step::CallModel(Purpose::Turn));
    scenario.then(limit_reached(LimitKind::Time)).then(failed(1, 1, CallFault::Unaffordable)).ends();
    scenario.then(started(9, LARGE_BUDGET)).next(Step::CallModel(Purpose::Turn));
    assert_eq!(scenario.state.stop_reason(), None);
}

#[test]
fn end_waits_for_every_call_and_loan() {
    let failed = || ended(Status::Failed { cause: "x".to_owned() }, "");
    let lost = || ended(Status::Lost { cause: "x".to_owned() }, "");
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    scenario
        .refuses(failed())
        .refuses(lost())
        .then(replied(1, "", &["delegate"]))
        .refuses(failed())
        .refuses(lost());
    scenario.then(delegated(1, 0, loan(5))).refuses(failed()).refuses(lost());
    // No runner answers the call before its child; if a log contains that, the loan must still be returned.
    let mut state = scenario.state;
    state.apply(&tool_ended(1, 0, "too early"));
    assert!(!state.admits(&failed()) && !state.admits(&lost()));
    assert_eq!(state.next(), Step::Wait);
    state.apply(&returned(1, 0, used(1)));
    assert!(state.admits(&failed()) && state.admits(&lost()));
}

#[test]
fn cancelled_answer_is_not_done() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "A.", &[]),
        cancel(),
    ]);
    scenario
        .refuses(ended(Status::Done, "A."))
        .refuses(ended(Status::Failed { cause: "x".to_owned() }, "A."));
    scenario.next(cancelled("A.")).ends();
}

/// A turn that the last round left unfinished is not available to the next.
#[test]
fn turn_count_restarts_for_each_round() {
    let fatal = || CallFault::Fatal { message: "down".to_owned() };
    let mut scenario =
        Scenario::of([started(1, LARGE_BUDGET), called(1, 1, Purpose::Turn), failed(1, 1, fatal())]);
    scenario.ends().then(started(1, LARGE_BUDGET)).next(Step::CallModel(Purpose::Turn));
    let (turn, attempt) = scenario.state.next_attempt();
    scenario
        .then(called(turn, attempt, Purpose::Turn))
        .then(replied(turn, "", &["x"]))
        .then(tool_ended(turn, 0, ""));
    scenario.next(Step::CallModel(Purpose::Grace));
    scenario.refuses(called(turn + 1, 1, Purpose::Turn));
}

#[test]
fn zero_turn_round_after_a_cancelled_one_has_no_turns() {
    let mut scenario = Scenario::of([
        started(1, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        cancel(),
        failed(1, 1, CallFault::Stopped),
    ]);
    scenario.ends().then(started(0, LARGE_BUDGET)).next(incomplete(LimitKind::Turns, ""));
}

#[test]
fn only_external_events_and_a_new_round_follow_an_end() {
    let mut scenario = Scenario::of(whole_log());
    for event in whole_log().into_iter().skip(1).filter(|event| event.kind() != "heard") {
        scenario.refuses(event);
    }
    scenario.refuses(cancel()).refuses(limit_reached(LimitKind::Time)).refuses(ended(Status::Done, ""));
    scenario.refuses(ended(Status::Lost { cause: String::new() }, "")).refuses(ended(Status::Detached, ""));
    scenario.then(heard("More.")).then(started(1, LARGE_BUDGET)).refuses(started(1, LARGE_BUDGET));
}

#[test]
fn end_status_must_match_the_log() {
    let incomplete = || ended(Status::Incomplete { limit: LimitKind::Turns }, "");
    let mut scenario = Scenario::of([started(2, LARGE_BUDGET)]);
    // There is no answer yet, no limit was reached, and the round was not cancelled.
    scenario.refuses(ended(Status::Done, "")).refuses(incomplete());
    scenario.refuses(ended(Status::Cancelled { by: "me".to_owned() }, ""));
    scenario
        .then(called(1, 1, Purpose::Turn))
        .then(failed(1, 1, transient()))
        .refuses(ended(Status::Done, ""));
    scenario
        .then(called(1, 2, Purpose::Turn))
        .then(replied(1, "", &["x"]))
        .then(tool_ended(1, 0, ""))
        .refuses(ended(Status::Done, ""));
    scenario.then(limit_reached(LimitKind::Time)).refuses(ended(Status::Done, "")).then(incomplete());
}

#[test]
fn overrun_ends_incomplete() {
    let mut scenario = Scenario::of([started(9, tokens_only(100)), called(1, 1, Purpose::Turn)]);
    let spent = Spent { overrun: tokens(50), ..used(150) };
    scenario.then(Event::Replied { turn: 1, reply: reply("I go on.", &["shell"]), spent, waited_ms: 0 });
    // No tool of that reply runs, and there is no wrap-up call to cover.
    scenario.refuses(tool_started(1, 0)).refuses(delegated(1, 0, loan(0))).refuses(called(
        2,
        1,
        Purpose::Turn,
    ));
    scenario.next(incomplete(LimitKind::Tokens, "I go on.")).ends();
    assert_eq!(scenario.state.ledger().spent().overrun, tokens(50));
}

#[test]
fn cost_overrun_names_the_cost_limit() {
    let budget = Budget { tokens: Limit::Unlimited, usd: Limit::AtMost(100), agents: Limit::AtMost(0) };
    let mut scenario = Scenario::of([started(9, budget)]);
    let reserved = Resources { tokens: 100, usd: 100, agents: 0 };
    scenario.then(Event::Called {
        turn: 1,
        attempt: 1,
        purpose: Purpose::Turn,
        reserved,
        input: 0,
        request: Hash::of(b""),
    });
    let overrun = Resources { tokens: 0, usd: 20, agents: 0 };
    scenario.then(Event::Replied {
        turn: 1,
        reply: reply("Dear.", &[]),
        spent: Spent { usd: 120, overrun, ..used(90) },
        waited_ms: 0,
    });
    scenario.next(incomplete(LimitKind::Usd, "Dear.")).ends();
}

#[test]
fn run_calls_names_each_call_once() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["a", "b", "c"]),
    ]);
    scenario
        .runs(&[call(1, 0), call(1, 1), call(1, 2)])
        .next(Step::Wait)
        .then(tool_started(1, 0))
        .next(Step::Wait);
    scenario.then(tool_ended(1, 1, "")).next(Step::Wait).then(heard("x")).next(Step::Wait);
    // A runner that folds the log again processes all calls without a result.
    scenario.crash().runs(&[call(1, 0), call(1, 2)]).next(Step::Wait);
    assert_eq!(scenario.state.unanswered(), [call(1, 0), call(1, 2)]);
    assert!(matches!(scenario.state.call(call(1, 0)).unwrap().progress, CallProgress::Started(_)));
    scenario
        .then(tool_ended(1, 0, ""))
        .then(tool_ended(1, 2, ""))
        .crash()
        .next(Step::CallModel(Purpose::Turn));
}

#[test]
fn approval_comes_before_the_call() {
    let asked = |index| Event::Asked {
        call: call(1, index),
        what: "May I?".into(),
        why: String::new(),
        always: None,
        until: 9,
        default: Answer::Once,
    };
    let answered = |index, answer| Event::Answered { call: call(1, index), answer, by: "me".to_owned() };
    let mut scenario =
        Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied(1, "", &["a", "b"])]);
    scenario.refuses(answered(0, Answer::Once)).then(asked(0)).then(asked(1));
    // A runner that takes over requests the approval again.
    scenario.crash().runs(&[call(1, 0), call(1, 1)]).next(Step::Wait).then(asked(0));
    // A call without a decision does not run and gets no loan.
    scenario.refuses(tool_started(1, 0)).refuses(delegated(1, 0, loan(1)));
    scenario.then(answered(0, Answer::Once)).refuses(answered(0, Answer::Once)).refuses(asked(0));
    scenario.then(tool_started(1, 0));
    // An approval is remembered as long as the call is open.
    scenario.crash();
    assert!(scenario.state.call(call(1, 0)).unwrap().is_permitted);
    assert!(!scenario.state.call(call(1, 1)).unwrap().is_permitted);
    // A denied call never runs.
    scenario.then(answered(1, Answer::Deny { word: None })).refuses(tool_started(1, 1)).refuses(delegated(
        1,
        1,
        loan(1),
    ));
    scenario
        .then(tool_ended(1, 1, "denied"))
        .then(tool_ended(1, 0, "ran"))
        .next(Step::CallModel(Purpose::Turn));
}

#[test]
fn always_allowed_rules_outlive_the_round_without_duplicates() {
    let answered = |index, rule: &str| Event::Answered {
        call: call(1, index),
        answer: Answer::Always(rule.to_owned()),
        by: "me".to_owned(),
    };
    let asked = |index| Event::Asked {
        call: call(1, index),
        what: "May I?".into(),
        why: String::new(),
        always: None,
        until: 9,
        default: Answer::Once,
    };
    let calls = ["a", "b", "c", "d"];
    let mut scenario =
        Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied(1, "", &calls)]);
    scenario.then(asked(0)).then(asked(1)).then(asked(2));
    scenario.then(answered(0, "shell(git status)")).then(answered(1, "shell(git status)"));
    // A rule that cannot be parsed allows only this call; an unexpected answer allows nothing.
    scenario.then(answered(2, "shell(")).refuses(answered(3, "shell"));
    scenario.state.apply(&answered(3, "shell"));
    let rules: Vec<String> = scenario.state.always_allowed().iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["shell(git status)"]);
    assert!(scenario.state.call(call(1, 2)).unwrap().is_permitted);
}

#[test]
fn duplicate_delegated_event_does_not_block_the_call() {
    let log = [
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["delegate"]),
        delegated(1, 0, loan(50)),
    ];
    let mut state = State::fold(root(), &log);
    // No runner writes this; a log that contains it can still be closed.
    state.apply(&delegated(1, 0, loan(70)));
    assert_eq!(state.ledger().lent().tokens, 70);
    state.apply(&returned(1, 0, used(1)));
    assert_eq!(state.ledger().lent(), Resources::default());
    assert!(state.admits(&tool_ended(1, 0, "closed")));
    // The earlier loan is not waited for.
    state.apply(&tool_ended(1, 0, "closed"));
    assert_eq!(state.next(), Step::CallModel(Purpose::Turn));
}

#[test]
fn ten_thousand_children_take_linear_time() {
    const MANY: u32 = 10_000;
    let names = vec!["delegate"; MANY as usize];
    let budget = Budget { tokens: Limit::AtMost(u64::MAX / 2), ..LARGE_BUDGET };
    let mut state = State::new(root());
    for event in [started(2, budget), called(1, 1, Purpose::Turn), replied(1, "", &names)] {
        assert!(state.admits(&event));
        state.apply(&event);
    }
    assert_eq!(state.unanswered_count(), MANY as usize);
    for index in 0..MANY {
        let event = delegated(1, index, loan(10));
        assert!(state.admits(&event));
        state.apply(&event);
        assert_eq!(state.next(), Step::RunCalls);
    }
    assert_eq!(state.loans().len(), MANY as usize);
    for index in (0..MANY).rev() {
        for event in [returned(1, index, used(10)), tool_ended(1, index, "x")] {
            assert_eq!(state.next(), Step::RunCalls);
            assert!(state.admits(&event));
            state.apply(&event);
        }
    }
    assert_eq!(state.next(), Step::CallModel(Purpose::Turn));
    assert_eq!(state.ledger().spent().agents, u64::from(MANY));
    assert_eq!(state.ledger().lent(), Resources::default());
}

#[test]
fn long_session_takes_constant_time_per_turn() {
    let mut state = State::new(root());
    state.apply(&started(u32::MAX, Budget::UNLIMITED));
    for turn in 1..=10_000 {
        assert_eq!(state.next(), Step::CallModel(Purpose::Turn));
        for event in [called(turn, 1, Purpose::Turn), replied(turn, "", &["x"]), tool_ended(turn, 0, "y")] {
            assert!(state.admits(&event));
            state.apply(&event);
            let _ = (state.fingerprint(), state.next_attempt(), state.exceeded_limit());
        }
    }
}

#[test]
fn unanswered_calls_report_an_unknown_outcome() {
    // A crash between the start and the end of the tools, seen by a reader that only needs the messages.
    let scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["a", "b"]),
        tool_ended(1, 1, "b"),
    ]);
    let results = last_results(&scenario.state);
    assert!(results[0].output.is_error());
    assert!(results[0].output.text.as_str().contains("outcome unknown"));
    assert_eq!(results[1].output, ToolOutput::ok("b"));
    assert_eq!(results[0].provider_id.as_deref(), Some("id of a"));
}

#[test]
fn compaction_replaces_earlier_turns() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    for turn in 1..=3 {
        scenario.then(called(turn, 1, Purpose::Turn)).then(replied(turn, &format!("turn {turn}"), &["x"]));
        scenario
            .refuses(Event::Compacted { summary: "s".into(), keep_from: 1 })
            .then(tool_ended(turn, 0, "y"));
    }
    scenario.then(Event::Compacted { summary: "It went well.".into(), keep_from: 3 });
    let messages = scenario.state.messages();
    assert!(matches!(&messages[0], Message::User(text) if text.as_str() == "Do it"), "the task stays");
    assert!(matches!(&messages[1], Message::User(text) if text.as_str().contains("It went well.")));
    assert!(matches!(&messages[2], Message::Assistant(reply) if reply.text.as_str() == "turn 3"));
    assert_eq!(messages.len(), 4);
    scenario.next(Step::CallModel(Purpose::Turn));
}

#[test]
fn compaction_keeps_unread_messages() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "A.", &[]),
        heard("And B?"),
    ]);
    scenario.then(Event::Compacted { summary: "A was found.".into(), keep_from: 2 });
    assert_eq!(user_messages(&scenario.state).last().unwrap(), "And B?");
    scenario.next(Step::CallModel(Purpose::Turn));
}

#[test]
fn equal_messages_have_equal_fingerprints() {
    let begin = || Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    let print = |events: [Event; 4]| {
        let mut scenario = begin();
        for event in events {
            scenario.then(event);
        }
        (scenario.state.fingerprint(), scenario.state.messages())
    };
    let calls = || replied(1, "", &["a", "b"]);
    let (one, messages) = print([calls(), tool_ended(1, 0, "x"), tool_ended(1, 1, "y"), heard("w")]);
    for other in [
        [calls(), tool_ended(1, 1, "y"), tool_ended(1, 0, "x"), heard("w")],
        [calls(), heard("w"), tool_ended(1, 1, "y"), tool_ended(1, 0, "x")],
        [heard("w"), calls(), tool_ended(1, 1, "y"), tool_ended(1, 0, "x")],
    ] {
        assert_eq!(print(other), (one, messages.clone()));
    }
    let failed = Event::tool_ended(call(1, 1), ToolOutput::error("y"));
    for other in [
        [calls(), tool_ended(1, 0, "y"), tool_ended(1, 1, "x"), heard("w")],
        [calls(), tool_ended(1, 0, "x"), failed, heard("w")],
        [calls(), tool_ended(1, 0, "x"), tool_ended(1, 1, "y"), heard("v")],
    ] {
        assert_ne!(print(other).0, one);
    }
}

#[test]
fn turn_leaves_the_wrap_up_reserve_untouched() {
    let price = Price { input: 3_000_000, output: 15_000_000, cache_read: 0, cache_write: 3_750_000 };
    let cost_model = CostModel { price, fixed_bytes: 1000, max_output: 4000, window: None };
    let budget = Budget { tokens: Limit::AtMost(6000), usd: Limit::AtMost(60_000), agents: Limit::AtMost(1) };
    let scenario = Scenario::of([started(9, budget)]);
    let turn = scenario.state.worst_case(&cost_model, Purpose::Turn).unwrap();
    let kept = Resources { tokens: 500 + 1024, usd: price.worst_case(500, 1024), agents: 0 };
    assert!(budget.fits(kept.plus(turn.amount)), "{turn:?}");
    assert!(turn.max_output < 4000, "the output is clamped to what is left");
    assert_eq!(turn.amount.usd, price.worst_case(turn.amount.tokens - turn.max_output, turn.max_output));
    // Lending leaves the same reserve: a child may have everything lendable, and the wrap-up call is still covered.
    let lendable = scenario.state.lendable(&cost_model);
    let lent = Budget { agents: Limit::AtMost(0), ..lendable }.as_loan(&budget);
    assert_eq!(budget.minus(lent).tokens, Limit::AtMost(503 + 1024));
    let mut scenario = worked_once();
    scenario.then(called(2, 1, Purpose::Turn)).then(replied(2, "", &["x"])).then(delegated(2, 0, lendable));
    assert!(scenario.state.worst_case(&cost_model, Purpose::Grace).is_ok());
}

#[test]
fn exhausted_cost_budget_names_the_cost_limit() {
    let price = Price { input: 1_000_000, output: 1_000_000, cache_read: 0, cache_write: 0 };
    let cost_model = CostModel { price, fixed_bytes: 200, max_output: 100, window: None };
    let budget = |usd| Budget { tokens: Limit::Unlimited, usd: Limit::AtMost(usd), agents: Limit::AtMost(0) };
    let case = |usd, purpose| Scenario::of([started(9, budget(usd))]).state.worst_case(&cost_model, purpose);
    assert_eq!(limit_of(case(50, Purpose::Grace)), Some(LimitKind::Usd));
    assert_eq!(limit_of(case(150, Purpose::Turn)), Some(LimitKind::Usd));
    assert!(case(150, Purpose::Grace).is_ok());
    assert!(case(10_000, Purpose::Turn).is_ok());
}

#[test]
fn worst_case_grows_with_added_text() {
    let cost_model = CostModel { price: Price::default(), fixed_bytes: 100, max_output: 10, window: None };
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    let input = |scenario: &Scenario| {
        scenario.state.worst_case(&cost_model, Purpose::Turn).unwrap().amount.tokens - 10
    };
    // "Do it" has five bytes: half a token for each of 105.
    assert_eq!(input(&scenario), 53);
    scenario.then(called(1, 1, Purpose::Turn)).then(replied(1, "", &["x"]));
    assert_eq!(input(&scenario), 10, "the last reported usage");
    scenario.then(tool_ended(1, 0, &"x".repeat(1000)));
    assert_eq!(input(&scenario), 510);
    scenario.then(heard(&"x".repeat(100)));
    assert_eq!(input(&scenario), 560);
}

/// Logs may come from an untrusted export: no number in them makes the fold panic.
#[test]
fn hostile_numbers_do_not_panic() {
    let most = u32::MAX;
    let blob = || Text::Spilled(Box::new(BlobRef { blob: Hash::of(b""), bytes: u64::MAX }));
    let all = Resources { tokens: u64::MAX, usd: u64::MAX, agents: u64::MAX };
    let usage = Usage { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, cache_write: u64::MAX };
    let spent = Spent {
        usage,
        usd: u64::MAX,
        agents: u64::MAX,
        turns: u64::MAX,
        unconfirmed: all,
        overrun: all,
        excess: u64::MAX,
        estimated: u64::MAX,
        cost_unreported: u64::MAX,
        unpriced: u64::MAX,
        held_back: all,
        reported: all,
    };
    let long = Reply {
        text: blob(),
        calls: vec![ToolCall { name: "x".to_owned(), arguments: blob(), provider_id: None }; 2],
        ..Reply::default()
    };
    let far = CallId { turn: most, index: most };
    let purposes = [Purpose::Turn, Purpose::Grace, Purpose::Summary, Purpose::Compaction];
    let mut events = vec![
        Event::Started {
            delegation: Delegation { task: blob(), context: Some(blob()), ..Delegation::default() }.into(),
            agent: Hash::of(b""),
            grant: grant(most, Budget::UNLIMITED),
            parent: None,
            depth: most,
        },
        Event::Heard { from: Speaker::Person, text: blob() },
        Event::Replied { turn: most, reply: long.clone(), spent, waited_ms: 0 },
        Event::Replied { turn: most, reply: long, spent: Spent::default(), waited_ms: 0 },
        Event::tool_ended(CallId { turn: most, index: 0 }, ToolOutput::ok(blob())),
        Event::tool_ended(CallId { turn: most, index: 1 }, ToolOutput::ok(blob())),
        Event::tool_ended(far, ToolOutput::ok(blob())),
        Event::Delegated {
            call: far,
            child: root().child(far),
            delegation: task("").into(),
            agent: Hash::of(b""),
            grant: grant(most, Budget::UNLIMITED),
        },
        Event::Returned {
            child: root().child(far),
            outcome: Outcome::new(Status::Done, blob()),
            spent,
            waited_ms: 0,
        },
        Event::call_failed(most, most, transient(), spent),
        Event::Compacted { summary: blob(), keep_from: 0 },
        Event::Compacted { summary: blob(), keep_from: most },
        Event::Resumed { epoch: u64::MAX, downtime: u64::MAX, mode: None },
    ];
    for purpose in purposes {
        events.push(Event::Called {
            turn: most,
            attempt: most,
            purpose,
            reserved: all,
            input: u64::MAX,
            request: Hash::of(b""),
        });
    }
    let price = Price { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, cache_write: u64::MAX };
    let cost_model = CostModel { price, fixed_bytes: u64::MAX, max_output: u64::MAX, window: None };
    // Every order of pairs, each followed by everything.
    for first in &events {
        for second in &events {
            let mut state = State::new(root());
            for event in [&events[0], first, second].into_iter().chain(&events) {
                state.apply(event);
                let _ =
                    (state.next(), state.next_attempt(), state.lendable(&cost_model), state.stop_reason());
                for purpose in purposes {
                    let _ = state.worst_case(&cost_model, purpose);
                }
                for event in &events {
                    let _ = state.admits(event);
                }
                assert_paired(&state.messages());
            }
        }
    }
    let _ = cost_model.min_loan(u64::MAX);
}
