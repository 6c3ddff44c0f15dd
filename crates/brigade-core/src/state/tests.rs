//! Stories of sessions: what happened, what is to be done next, what may not stand in the log.

mod limits;
mod long;
mod partial;
mod rounds;
mod seen;
mod waited;

use super::*;
use crate::delegation::Face;
use crate::event::{Answer, Effect, Speaker};
use crate::grant::{Authority, Budget, Limit};

use crate::message::{CallResult, Message, ToolCall, ToolOutput};
use crate::money::{Price, Usage};
use crate::text::{Aside, Text};

const ROOMY: Budget =
    Budget { tokens: Limit::AtMost(1_000_000), usd: Limit::Unlimited, agents: Limit::AtMost(20_000) };

fn root() -> SessionId {
    SessionId::root(7)
}

fn call(turn: u32, index: u32) -> CallId {
    CallId { turn, index }
}

fn tokens(tokens: u64) -> Amount {
    Amount { tokens, ..Amount::default() }
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
        CallFault::Interrupted | CallFault::Stopped => Spent::doubtful(tokens(100)),
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
    let delegation = Delegation { face: Face::Delegate, role: Some("Helper".to_owned()), ..task("Help") };
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

fn limit_reached(which: Which) -> Event {
    Event::limit_reached(which)
}

fn limit_of(worst: Result<Worst, Shortfall>) -> Option<Which> {
    worst.err().map(|shortfall| shortfall.which)
}

fn cancel() -> Event {
    Event::CancelAsked { by: "the person".to_owned() }
}

fn ended(status: Status, text: &str) -> Event {
    Event::Ended { outcome: Outcome::new(status, text), spent: Spent::default() }
}

fn done(text: &str) -> Step {
    Step::End(Outcome::new(Status::Done, text))
}

fn incomplete(limit: Which, text: &str) -> Step {
    Step::End(Outcome::new(Status::Incomplete { limit }, text))
}

fn cancelled(text: &str) -> Step {
    Step::End(Outcome::new(Status::Cancelled { by: "the person".to_owned() }, text))
}

/// A session that has done one turn.
fn worked_once() -> Story {
    let turn = [called(1, 1, Purpose::Turn), replied(1, "Working.", &["read"]), tool_ended(1, 0, "text")];
    Story::of([started(9, ROOMY)].into_iter().chain(turn))
}

/// The same, and a limit after it.
fn worked(limit: Which) -> Story {
    let mut story = worked_once();
    story.then(limit_reached(limit));
    story
}

/// A log as it grows: every fact has to be admitted at its place, and the books have to balance after it.
struct Story {
    log: Vec<Event>,
    state: State,
}

impl Story {
    fn new() -> Story {
        Story { log: Vec::new(), state: State::new(root()) }
    }

    fn of(events: impl IntoIterator<Item = Event>) -> Story {
        let mut story = Story::new();
        for event in events {
            story.then(event);
        }
        story
    }

    #[track_caller]
    fn then(&mut self, event: Event) -> &mut Story {
        assert!(self.state.admits(&event), "{event:?} is not admitted after {:#?}", self.log);
        self.state.apply(&event);
        self.log.push(event);
        let ledger = self.state.ledger();
        assert!(ledger.granted().fits(ledger.committed()), "{ledger:?}");
        assert_paired(&self.state.messages());
        self
    }

    #[track_caller]
    fn refuses(&mut self, event: Event) -> &mut Story {
        assert!(!self.state.admits(&event), "{event:?} is admitted after {:#?}", self.log);
        self
    }

    #[track_caller]
    fn next(&mut self, step: Step) -> &mut Story {
        assert_eq!(self.state.next(), step, "after {:#?}", self.log);
        self
    }

    /// The runner is gone; another one reads the log.
    fn crash(&mut self) -> &mut Story {
        self.state = State::fold(root(), &self.log);
        self
    }

    fn ends(&mut self) -> &mut Story {
        let Step::End(outcome) = self.state.next() else { panic!("no end after {:#?}", self.log) };
        let spent = self.state.ledger().spent();
        self.then(Event::Ended { outcome, spent }).next(Step::Nothing)
    }
}

/// Each reply with calls is directly followed by one result for each of them, and no result stands elsewhere.
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

fn users(state: &State) -> Vec<String> {
    let words = state.messages().into_iter().filter_map(|message| match message {
        Message::User(text) => Some(text.to_string()),
        Message::Assistant(_) | Message::Results(_) => None,
    });
    words.collect()
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
fn a_plain_run() {
    let mut story = Story::new();
    story.next(Step::Nothing).refuses(called(1, 1, Purpose::Turn)).refuses(heard("x")).refuses(cancel());
    story.then(started(3, ROOMY)).next(Step::CallModel(Purpose::Turn));
    assert_eq!(users(&story.state), ["Do it"]);
    assert_eq!(story.state.upcoming(), (1, 1));
    story.then(called(1, 1, Purpose::Turn)).next(Step::Wait);
    assert_eq!(story.state.ledger().reserved(), tokens(100));
    story.then(replied(1, "Done.", &[])).next(done("Done."));
    assert_eq!(story.state.ledger().reserved(), tokens(0));
    assert_eq!(story.state.ledger().spent(), used(10));
    story.then(ended(Status::Done, "Done.")).next(Step::Nothing);
    assert_eq!(story.state.ended().unwrap().text.as_str(), "Done.");
}

#[test]
fn the_context_of_a_delegation_stands_under_its_task() {
    let mut delegation = task("Look");
    delegation.context = Some("It is red.".into());
    let event = Event::Started {
        delegation: delegation.into(),
        agent: Hash::of(b"a"),
        grant: grant(1, ROOMY),
        parent: None,
        depth: 0,
    };
    assert_eq!(users(&Story::of([event]).state), ["Look\n\nContext:\nIt is red."]);
}

#[test]
fn a_tool_turn() {
    let mut story = Story::of([started(3, ROOMY), called(1, 1, Purpose::Turn)]);
    story.then(replied(1, "I look.", &["read_file", "shell"]));
    story.next(Step::RunCalls(vec![call(1, 0), call(1, 1)])).next(Step::Wait);
    story
        .refuses(called(2, 1, Purpose::Turn))
        .refuses(ended(Status::Done, ""))
        .refuses(tool_ended(1, 2, "x"));
    story.then(tool_started(1, 0)).then(tool_started(1, 1)).next(Step::Wait);
    // Results stand in the order of the calls, whatever ends first.
    story.then(tool_ended(1, 1, "second")).next(Step::Wait);
    story.refuses(tool_ended(1, 1, "again")).refuses(tool_started(1, 1)).refuses(called(2, 1, Purpose::Turn));
    story.then(tool_ended(1, 0, "first")).next(Step::CallModel(Purpose::Turn));
    let texts: Vec<String> =
        last_results(&story.state).iter().map(|result| result.output.text.to_string()).collect();
    assert_eq!(texts, ["first", "second"]);
    story.refuses(tool_started(1, 0)).refuses(called(1, 2, Purpose::Turn)).refuses(called(
        3,
        1,
        Purpose::Turn,
    ));
    story.then(called(2, 1, Purpose::Turn)).then(replied(2, "Red.", &[])).next(done("Red.")).ends();
    assert_eq!(story.state.ledger().spent().turns, 2);
}

#[test]
fn a_delegation_lends_and_gives_back() {
    let mut story = Story::of([started(3, tokens_only(1000)), called(1, 1, Purpose::Turn)]);
    story.then(replied(1, "", &["delegate", "delegate"]));
    story.next(Step::RunCalls(vec![call(1, 0), call(1, 1)]));
    story.then(delegated(1, 0, loan(600)));
    assert_eq!(story.state.ledger().lent(), Amount { tokens: 600, usd: 0, agents: 1 });
    // Spent are 10, lent are 600: what is left is 390.
    story.refuses(delegated(1, 1, loan(391))).then(delegated(1, 1, loan(390))).next(Step::Wait);
    story.refuses(tool_ended(1, 0, "too early")).refuses(ended(Status::Done, ""));
    story.refuses(ended(Status::Failed { cause: "x".to_owned() }, "")).refuses(called(2, 1, Purpose::Turn));
    story.then(returned(1, 1, used(300))).refuses(returned(1, 1, used(300))).next(Step::Wait);
    assert_eq!(story.state.ledger().committed(), Amount { tokens: 10 + 600 + 300, usd: 0, agents: 2 });
    story.then(tool_ended(1, 1, "[Helper]: b")).next(Step::Wait);
    story.then(returned(1, 0, Spent { agents: 0, ..used(5) })).then(tool_ended(1, 0, "[Helper]: a"));
    assert_eq!(story.state.ledger().lent(), Amount::default());
    assert_eq!(story.state.ledger().committed(), Amount { tokens: 315, usd: 0, agents: 2 });
    story
        .next(Step::CallModel(Purpose::Turn))
        .then(called(2, 1, Purpose::Turn))
        .then(replied(2, "Ok.", &[]))
        .ends();
    // A child's usage is in its parent's totals: 10 + 300 + 5 + 10, and four answered calls.
    let spent = story.state.ledger().spent();
    assert_eq!((spent.usage.total(), spent.agents, spent.turns), (325, 2, 4));
}

#[test]
fn agents_and_money_are_lent_like_tokens() {
    let budget = |usd, agents| Budget {
        tokens: Limit::Unlimited,
        usd: Limit::AtMost(usd),
        agents: Limit::AtMost(agents),
    };
    let mut story = Story::of([started(3, budget(50, 3))]);
    story.then(reserving(1, 1, Purpose::Turn, 1_000_000_000)).then(replied(1, "", &["delegate", "delegate"]));
    story.refuses(delegated(1, 0, budget(51, 0))).refuses(delegated(1, 0, budget(0, 3)));
    story.refuses(delegated(1, 0, Budget::UNLIMITED));
    story.then(delegated(1, 0, budget(50, 1))).refuses(delegated(1, 1, budget(1, 0))).refuses(delegated(
        1,
        1,
        budget(0, 1),
    ));
    // The child started one agent of its own and used 20.
    story.then(returned(1, 0, Spent { usd: 20, agents: 1, ..used(5) }));
    assert_eq!(story.state.ledger().committed(), Amount { tokens: 15, usd: 20, agents: 2 });
    story.refuses(delegated(1, 1, budget(30, 1))).refuses(delegated(1, 1, budget(31, 0)));
    story.then(delegated(1, 1, budget(30, 0)));
}

#[test]
fn a_loan_keeps_all_that_a_resume_needs() {
    let story = Story::of([
        started(3, ROOMY),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["delegate"]),
        delegated(1, 0, loan(50)),
    ]);
    let loan_out = &story.state.loans()[&root().child(call(1, 0))];
    assert_eq!(loan_out.call, call(1, 0));
    assert_eq!(loan_out.round.depth, 1);
    assert_eq!(loan_out.round.parent, Some(root()));
    assert_eq!(loan_out.round.grant, grant(5, loan(50)));
    assert_eq!(loan_out.round.delegation.task.as_str(), "Help");
    assert_eq!(loan_out.round.agent, Hash::of(b"helper"));
}

#[test]
fn only_own_children_are_lent_to() {
    let mut story =
        Story::of([started(3, ROOMY), called(1, 1, Purpose::Turn), replied(1, "", &["delegate", "x"])]);
    let to = |child: SessionId| match delegated(1, 0, loan(5)) {
        Event::Delegated { call, delegation, agent, grant, .. } => {
            Event::Delegated { call, child, delegation, agent, grant }
        }
        event => event,
    };
    story
        .refuses(to(root()))
        .refuses(to(SessionId::root(8)))
        .refuses(to(SessionId::root(8).child(call(1, 0))));
    story.then(to(root().child(call(1, 0)))).refuses(to(root().child(call(1, 0))));
    story.refuses(delegated(2, 0, loan(5))).refuses(delegated(1, 2, loan(5)));
    // An answered call lends no more.
    story.then(tool_ended(1, 1, "x")).refuses(delegated(1, 1, loan(5)));
}

#[test]
fn grace_after_the_turn_limit() {
    let mut story =
        Story::of([started(1, ROOMY), called(1, 1, Purpose::Turn), replied(1, "Half.", &["read_file"])]);
    story.then(tool_ended(1, 0, "x")).next(Step::CallModel(Purpose::Grace));
    story.refuses(called(2, 1, Purpose::Turn)).refuses(ended(Status::Done, "Half."));
    story.then(limit_reached(Which::Turns)).next(Step::CallModel(Purpose::Grace));
    story.then(called(2, 1, Purpose::Grace)).next(Step::Wait);
    assert!(users(&story.state).last().unwrap().contains("turns limit"));
    story.then(replied(2, "I got half; the rest is left.", &[]));
    story
        .next(incomplete(Which::Turns, "I got half; the rest is left."))
        .refuses(called(3, 1, Purpose::Turn))
        .refuses(called(3, 1, Purpose::Grace))
        .ends();
}

/// The turn limit follows from the log, so it holds also where nobody wrote it down.
#[test]
fn grace_after_the_turn_limit_without_a_record_of_it() {
    let begin = || {
        Story::of([
            started(1, ROOMY),
            called(1, 1, Purpose::Turn),
            replied(1, "Half.", &["read_file"]),
            tool_ended(1, 0, "x"),
            called(2, 1, Purpose::Grace),
        ])
    };
    assert!(users(&begin().state).last().unwrap().contains("turns limit"));
    begin().then(replied(2, "All I got.", &[])).next(incomplete(Which::Turns, "All I got.")).ends();
    // A crash in the grace call gives no further turn.
    let mut story = begin();
    story.crash().then(failed(2, 1, CallFault::Interrupted)).next(Step::CallModel(Purpose::Grace));
    story.refuses(called(2, 2, Purpose::Turn)).then(called(2, 2, Purpose::Grace)).then(replied(
        2,
        "All.",
        &[],
    ));
    story.next(incomplete(Which::Turns, "All.")).ends();
}

#[test]
fn an_answer_on_the_last_turn_is_complete() {
    Story::of([started(1, ROOMY), called(1, 1, Purpose::Turn), replied(1, "Done.", &[])])
        .next(done("Done."))
        .ends();
}

#[test]
fn no_turns_at_all_leave_nothing_to_report() {
    let mut story = Story::of([started(0, ROOMY)]);
    story.refuses(called(1, 1, Purpose::Turn)).refuses(called(1, 1, Purpose::Grace));
    story.next(incomplete(Which::Turns, ""));
}

#[test]
fn calls_in_the_last_word_are_not_run() {
    let mut story = worked(Which::Turns);
    story.then(called(2, 1, Purpose::Grace));
    story.then(replied(2, "One more?", &["shell"])).refuses(tool_started(2, 0)).refuses(delegated(
        2,
        0,
        loan(1),
    ));
    story.next(incomplete(Which::Turns, "One more?")).ends();
    assert!(last_results(&story.state)[0].output.is_error());
}

#[test]
fn the_tokens_limit() {
    let meter = Meter { price: Price::default(), fixed_bytes: 0, max_output: 100, window: None };
    let mut story = Story::of([started(50, tokens_only(400))]);
    // Of 400 tokens the own reserve keeps 103, so that 197 of the next call's 297 would be output; 100 are enough.
    let worst = story.state.worst_case(&meter, Purpose::Turn).unwrap();
    assert_eq!((worst.amount.tokens, worst.max_output), (103, 100));
    story.then(reserving(1, 1, Purpose::Turn, worst.amount.tokens));
    story.then(Event::Replied {
        turn: 1,
        reply: reply("Half.", &["read_file"]),
        spent: used(103),
        waited_ms: 0,
    });
    story.then(tool_ended(1, 0, &"x".repeat(100)));
    // The next input is 103 + 50: with the reserve of 253 there is nothing left for a turn out of 297.
    assert_eq!(limit_of(story.state.worst_case(&meter, Purpose::Turn)), Some(Which::Tokens));
    story.then(limit_reached(Which::Tokens)).next(Step::CallModel(Purpose::Grace)).refuses(called(
        2,
        1,
        Purpose::Turn,
    ));
    let grace = story.state.worst_case(&meter, Purpose::Grace).unwrap();
    assert!(grace.max_output > 0);
    story.then(reserving(2, 1, Purpose::Grace, grace.amount.tokens)).then(replied(2, "Only half.", &[]));
    story.next(incomplete(Which::Tokens, "Only half.")).ends();
}

#[test]
fn a_reserve_beyond_the_budget_is_refused() {
    let mut story = Story::of([started(9, tokens_only(100))]);
    story.refuses(reserving(1, 1, Purpose::Turn, 101)).then(reserving(1, 1, Purpose::Turn, 100));
    story
        .then(Event::Replied { turn: 1, reply: reply("", &["x"]), spent: used(60), waited_ms: 0 })
        .then(tool_ended(1, 0, ""));
    story.refuses(reserving(2, 1, Purpose::Turn, 41)).then(limit_reached(Which::Tokens));
    story.refuses(reserving(2, 1, Purpose::Grace, 41)).then(reserving(2, 1, Purpose::Grace, 40));
}

#[test]
fn a_last_word_that_cannot_be_paid_ends_with_the_last_text() {
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), replied(1, "Half.", &["x"])]);
    story.then(tool_ended(1, 0, "")).then(limit_reached(Which::Usd)).next(Step::CallModel(Purpose::Grace));
    story.then(failed(2, 1, CallFault::Unaffordable)).next(incomplete(Which::Usd, "Half.")).ends();
}

/// An earlier fault that might have passed does not keep asking for what cannot be paid.
#[test]
fn a_last_word_that_cannot_be_paid_ends_also_after_a_fault() {
    let mut story = worked_once();
    story.then(called(2, 1, Purpose::Turn)).then(failed(2, 1, transient()));
    story.then(limit_reached(Which::Tokens)).next(Step::CallModel(Purpose::Grace));
    story.then(failed(2, 2, CallFault::Unaffordable)).next(incomplete(Which::Tokens, "Working.")).ends();
}

#[test]
fn a_last_word_that_takes_too_long_is_not_asked_again() {
    let mut story = worked(Which::Time);
    story.then(called(2, 1, Purpose::Grace));
    story.then(failed(2, 1, CallFault::Stopped)).next(incomplete(Which::Time, "Working.")).ends();
    let mut story = worked(Which::Time);
    story.then(called(2, 1, Purpose::Grace));
    story.then(failed(2, 1, transient())).next(Step::CallModel(Purpose::Grace)).then(called(
        2,
        2,
        Purpose::Grace,
    ));
    story.then(failed(2, 2, CallFault::Stopped)).next(incomplete(Which::Time, "Working.")).ends();
}

#[test]
fn a_last_word_that_a_crash_cut_off_is_asked_again() {
    let mut story = worked(Which::Time);
    story.then(called(2, 1, Purpose::Grace));
    story.crash().then(failed(2, 1, CallFault::Interrupted)).next(Step::CallModel(Purpose::Grace));
    story
        .then(called(2, 2, Purpose::Grace))
        .then(replied(2, "Late.", &[]))
        .next(incomplete(Which::Time, "Late."));
    // It is told once what is asked of it.
    assert_eq!(users(&story.state).iter().filter(|words| words.contains("time limit")).count(), 1);
}

#[test]
fn a_last_word_is_retried_and_then_given_up() {
    let mut story = worked(Which::Time);
    for attempt in 1..=MAX_ATTEMPTS {
        story.next(Step::CallModel(Purpose::Grace));
        story.then(called(2, attempt, Purpose::Grace)).then(failed(2, attempt, transient()));
    }
    story.next(incomplete(Which::Time, "Working.")).ends();
}

#[test]
fn the_time_limit_is_a_fact() {
    let mut story = Story::of([
        started(9, ROOMY),
        called(1, 1, Purpose::Turn),
        replied(1, "I run.", &["shell", "shell"]),
    ]);
    story.then(tool_started(1, 0)).then(limit_reached(Which::Time));
    // What runs may end; nothing new starts; the first limit stays.
    story.refuses(tool_started(1, 1)).refuses(delegated(1, 1, loan(1))).refuses(limit_reached(Which::Tokens));
    assert!(story.state.stopping().unwrap().contains("time"));
    story.then(tool_ended(1, 0, "interrupted")).then(tool_ended(1, 1, "not started"));
    story.next(Step::CallModel(Purpose::Grace)).then(called(2, 1, Purpose::Grace)).then(replied(
        2,
        "So far.",
        &[],
    ));
    story.next(incomplete(Which::Time, "So far.")).ends();
}

#[test]
fn a_cancel_waits_for_open_children() {
    let mut story = Story::of([
        started(9, ROOMY),
        called(1, 1, Purpose::Turn),
        replied(1, "Two helpers.", &["delegate", "delegate", "delegate"]),
        delegated(1, 0, loan(100)),
        delegated(1, 1, loan(100)),
    ]);
    story.next(Step::RunCalls(vec![call(1, 0), call(1, 1), call(1, 2)]));
    story.then(cancel()).refuses(cancel()).refuses(limit_reached(Which::Time)).next(Step::Wait);
    // Nothing is lent, started, asked or thought any more.
    story.refuses(delegated(1, 2, loan(1))).refuses(tool_started(1, 2)).refuses(called(2, 1, Purpose::Turn));
    story.refuses(Event::Asked {
        call: call(1, 2),
        what: "?".into(),
        why: String::new(),
        always: None,
        until: 0,
        default: Answer::Once,
    });
    let end = || ended(Status::Cancelled { by: "the person".to_owned() }, "Two helpers.");
    story.refuses(end()).then(tool_ended(1, 2, "not started")).refuses(end());
    story.then(returned(1, 0, used(50))).then(tool_ended(1, 0, "part")).refuses(end()).next(Step::Wait);
    story.then(returned(1, 1, used(50))).then(tool_ended(1, 1, "part"));
    // A cancel has no grace.
    story.refuses(called(2, 1, Purpose::Grace)).refuses(called(2, 1, Purpose::Summary));
    story.refuses(ended(Status::Done, "")).refuses(ended(Status::Incomplete { limit: Which::Turns }, ""));
    story.next(cancelled("Two helpers.")).then(end()).next(Step::Nothing);
    assert_eq!(story.state.ledger().lent(), Amount::default());
}

#[test]
fn a_cancel_while_the_model_answers() {
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), cancel()]);
    story.next(Step::Wait).refuses(ended(Status::Cancelled { by: String::new() }, ""));
    story.then(failed(1, 1, CallFault::Stopped)).next(cancelled("")).ends();
    assert_eq!(story.state.ledger().spent().in_doubt, tokens(100));
}

#[test]
fn a_reply_that_was_faster_than_the_cancel_runs_nothing() {
    let mut story =
        Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), cancel(), replied(1, "Go.", &["shell"])]);
    story.next(Step::RunCalls(vec![call(1, 0)])).refuses(tool_started(1, 0)).then(tool_ended(
        1,
        0,
        "not started",
    ));
    story.next(cancelled("Go.")).ends();
}

#[test]
fn a_cancel_at_once() {
    Story::of([started(9, ROOMY), cancel()]).next(cancelled("")).ends();
}

#[test]
fn a_cancel_beats_a_limit() {
    let mut story = Story::of([started(9, ROOMY), limit_reached(Which::Time), cancel()]);
    story.refuses(called(1, 1, Purpose::Grace)).next(cancelled("")).ends();
}

/// Two delegations and a tool, a fault, words from outside and an answer.
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

/// Whether doing `step` can lead to `event`.
fn leads_to(step: &Step, event: &Event) -> bool {
    match (step, event) {
        (_, Event::Heard { .. }) => true,
        (Step::Nothing, Event::Started { .. }) => true,
        (Step::CallModel(step), Event::Called { purpose, .. }) => step == purpose,
        (Step::Wait, Event::Replied { .. } | Event::CallFailed { .. } | Event::Returned { .. }) => true,
        (
            Step::RunCalls(calls),
            Event::ToolStarted { call, .. } | Event::ToolEnded { call, .. } | Event::Delegated { call, .. },
        ) => calls.contains(call),
        (Step::RunCalls(calls), Event::Returned { child, .. }) => {
            calls.iter().any(|call| root().child(*call) == *child)
        }
        (Step::End(step), Event::Ended { outcome, .. }) => step == outcome,
        _ => false,
    }
}

/// A runner that takes a log up where it stands and does what it is told until there is nothing to do.
#[track_caller]
fn carry_on(story: &mut Story) {
    if let Some(open) = story.state.open_call().cloned() {
        let spent = Spent::doubtful(open.reserved);
        let cause = CallFault::Interrupted;
        story.then(Event::call_failed(open.turn, open.attempt, cause, spent));
    }
    for _ in 0..100 {
        match story.state.next() {
            Step::Nothing => return,
            Step::Wait | Step::Detach(_) => panic!("nothing is under way after {:#?}", story.log),
            Step::CallModel(purpose) => {
                let (turn, attempt) = story.state.upcoming();
                story.then(called(turn, attempt, purpose)).then(replied(turn, "Carried on.", &[]));
            }
            Step::RunCalls(calls) => {
                for call in calls {
                    let children: Vec<SessionId> = story.state.loans().keys().cloned().collect();
                    for child in children.into_iter().filter(|child| *child == root().child(call)) {
                        let outcome = Outcome::new(Status::Done, "");
                        story.then(Event::Returned { child, outcome, spent: used(1), waited_ms: 0 });
                    }
                    story.then(Event::tool_ended(call, ToolOutput::ok("answered later")));
                }
            }
            Step::End(outcome) => {
                story.then(Event::Ended { outcome, spent: Spent::default() });
            }
        }
    }
    panic!("no end after {:#?}", story.log);
}

#[test]
fn every_crash_point_can_be_taken_up() {
    let log = whole_log();
    for length in 0..=log.len() {
        let mut state = State::fold(root(), &log[..length]);
        let step = state.next();
        let Some(event) = log.get(length) else {
            assert_eq!(step, Step::Nothing);
            continue;
        };
        assert!(state.admits(event), "{event:?} is not admitted at {length}");
        assert!(leads_to(&step, event), "{step:?} does not lead to {event:?} at {length}");
        if length == 0 {
            continue;
        }
        let mut story = Story::of(log[..length].to_vec());
        carry_on(story.crash());
        let count = |kind: &str| story.log.iter().filter(|event| event.kind() == kind).count();
        assert_eq!(count("ended"), 1);
        assert_eq!(count("delegated"), count("returned"));
        assert_eq!(story.state.ledger().lent(), Amount::default());
        assert_eq!(story.state.ledger().reserved(), Amount::default());
    }
}

/// Nothing recorded as done is done or bought twice: a fact cannot stand a second time where it stood.
#[test]
fn no_fact_of_the_whole_log_is_admitted_twice_in_a_row() {
    let log = whole_log();
    for (index, event) in log.iter().enumerate() {
        let state = State::fold(root(), &log[..=index]);
        // Words may be repeated, and a pure tool may be started again.
        let repeatable = matches!(event, Event::Heard { .. } | Event::ToolStarted { .. });
        assert_eq!(state.admits(event), repeatable, "{event:?}");
    }
}

#[test]
fn a_fault_that_may_pass_is_asked_again() {
    let mut story = Story::of([started(1, ROOMY), called(1, 1, Purpose::Turn), failed(1, 1, transient())]);
    story.next(Step::CallModel(Purpose::Turn)).refuses(called(2, 1, Purpose::Turn)).refuses(called(
        1,
        1,
        Purpose::Turn,
    ));
    assert_eq!(story.state.ledger().committed(), Amount::default());
    story.then(called(1, 2, Purpose::Turn)).refuses(failed(1, 1, transient())).then(replied(1, "Ok.", &[]));
    story.next(done("Ok.")).ends();
}

#[test]
fn a_fault_is_hopeless_after_six_attempts() {
    let mut story = Story::of([started(9, ROOMY)]);
    for attempt in 1..=6 {
        story.next(Step::CallModel(Purpose::Turn));
        story.then(called(1, attempt, Purpose::Turn)).then(failed(1, attempt, transient()));
    }
    let Step::End(outcome) = story.state.next() else { panic!("it goes on") };
    let Status::Failed { cause } = &outcome.status else { panic!("{outcome:?}") };
    assert!(cause.contains("overloaded") && cause.contains('6'), "{cause}");
    story.ends();
}

#[test]
fn faults_are_counted_for_each_turn_anew() {
    let mut story = Story::of([started(9, ROOMY)]);
    for turn in 1..=3 {
        for attempt in 1..=3 {
            story.then(called(turn, attempt, Purpose::Turn)).then(failed(turn, attempt, transient()));
        }
        story
            .then(called(turn, 4, Purpose::Turn))
            .then(replied(turn, "", &["x"]))
            .then(tool_ended(turn, 0, ""));
        story.next(Step::CallModel(Purpose::Turn));
    }
}

#[test]
fn a_fatal_fault_ends_at_once() {
    let fatal = CallFault::Fatal { message: "no such model".to_owned() };
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), failed(1, 1, fatal)]);
    story.next(Step::End(Outcome::new(Status::Failed { cause: "no such model".to_owned() }, ""))).ends();
}

#[test]
fn an_interrupted_call_is_charged_in_doubt_and_asked_again() {
    let mut story = Story::of([started(1, tokens_only(250)), called(1, 1, Purpose::Turn)]);
    story.crash().next(Step::Wait).then(failed(1, 1, CallFault::Interrupted));
    assert_eq!(story.state.ledger().spent().in_doubt, tokens(100));
    assert_eq!(story.state.ledger().committed(), tokens(100));
    assert_eq!(story.state.ledger().spent().usage.total(), 0);
    // It is the same turn: the limit of one turn still allows it.
    story.next(Step::CallModel(Purpose::Turn));
    assert_eq!(story.state.upcoming(), (1, 2));
    story.refuses(called(1, 1, Purpose::Turn)).refuses(called(2, 1, Purpose::Turn));
    story.refuses(reserving(1, 2, Purpose::Turn, 151)).then(called(1, 2, Purpose::Turn)).then(replied(
        1,
        "Ok.",
        &[],
    ));
    assert_eq!(story.state.ledger().committed(), tokens(110));
    story.next(done("Ok.")).ends();
}

#[test]
fn crashes_are_no_faults_of_the_model() {
    let mut story = Story::of([started(9, ROOMY)]);
    for attempt in 1..=20 {
        story.next(Step::CallModel(Purpose::Turn)).then(called(1, attempt, Purpose::Turn)).crash();
        story.then(failed(1, attempt, CallFault::Interrupted));
    }
    story.then(called(1, 21, Purpose::Turn)).then(replied(1, "At last.", &[])).next(done("At last.")).ends();
}

#[test]
fn words_heard_while_the_model_answers_stand_after_its_reply_and_results() {
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), heard("Wait!")]);
    // The request that is under way does not have them; neither does one that is rebuilt for it.
    assert_eq!(users(&story.state), ["Do it"]);
    story.then(replied(1, "I look.", &["read_file"])).then(heard("And another thing."));
    story.then(tool_ended(1, 0, "content"));
    let messages = story.state.messages();
    assert!(matches!(&messages[0], Message::User(text) if text.as_str() == "Do it"));
    assert!(matches!(&messages[1], Message::Assistant(_)));
    assert!(matches!(&messages[2], Message::Results(_)));
    assert!(matches!(&messages[3], Message::User(text) if text.as_str() == "Wait!"));
    assert!(matches!(&messages[4], Message::User(text) if text.as_str() == "And another thing."));
    assert_eq!(messages.len(), 5);
}

#[test]
fn words_heard_while_the_model_answers_keep_the_session_going() {
    let mut story =
        Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), heard("And B?"), replied(1, "A.", &[])]);
    story.refuses(ended(Status::Done, "A.")).next(Step::CallModel(Purpose::Turn));
    story.then(called(2, 1, Purpose::Turn)).then(replied(2, "B.", &[])).next(done("B.")).ends();
}

#[test]
fn words_survive_a_failed_call() {
    let mut story = Story::of([
        started(9, ROOMY),
        called(1, 1, Purpose::Turn),
        heard("Hurry."),
        failed(1, 1, transient()),
    ]);
    assert_eq!(users(&story.state), ["Do it", "Hurry."]);
    story.then(called(1, 2, Purpose::Turn)).then(replied(1, "Ok.", &[])).next(done("Ok."));
}

#[test]
fn who_speaks_is_stamped_by_the_runtime() {
    let mut story = Story::of([started(9, ROOMY)]);
    for from in [Speaker::Parent, Speaker::Child(root().child(call(1, 0))), Speaker::Runtime] {
        story.then(Event::Heard { from, text: "hello".into() });
    }
    let words = users(&story.state);
    assert!(words[1..].iter().all(|words| words != "hello" && words.contains("hello")), "{words:?}");
    assert!(words[2].contains(root().child(call(1, 0)).as_str()));
}

#[test]
fn words_after_the_end_ask_for_a_next_round() {
    let mut story = Story::of([started(1, ROOMY), called(1, 1, Purpose::Turn), replied(1, "A.", &[])]);
    story.ends();
    assert!(!story.state.has_unheard_words());
    story.then(Event::Heard { from: Speaker::Runtime, text: "A note.".into() });
    assert!(story.state.has_unheard_words() && !story.state.is_told(), "the runtime is not the user");
    story.then(heard("And B?")).next(Step::Nothing).refuses(called(2, 1, Purpose::Turn));
    assert!(story.state.has_unheard_words() && story.state.is_told());
    let silent = Event::Started {
        delegation: Delegation::default().into(),
        agent: Hash::of(b"agent"),
        grant: grant(1, tokens_only(500)),
        parent: None,
        depth: 0,
    };
    story.then(silent).next(Step::CallModel(Purpose::Turn));
    assert_eq!(story.state.rounds(), 2);
    // The books are those of the round; turn numbers go on, so that call ids stay unique.
    assert_eq!(story.state.ledger().committed(), Amount::default());
    assert_eq!(story.state.ledger().granted(), tokens_only(500));
    assert_eq!(story.state.upcoming(), (2, 1));
    story.then(called(2, 1, Purpose::Turn)).then(replied(2, "B.", &[])).next(done("B.")).ends();
    assert_eq!(users(&story.state), ["Do it", "Note from the runtime: A note.", "And B?"]);
}

#[test]
fn limits_and_cancels_end_with_their_round() {
    let mut story = Story::of([started(9, ROOMY), cancel()]);
    story.ends().then(started(9, ROOMY)).next(Step::CallModel(Purpose::Turn));
    story.then(limit_reached(Which::Time)).then(failed(1, 1, CallFault::Unaffordable)).ends();
    story.then(started(9, ROOMY)).next(Step::CallModel(Purpose::Turn));
    assert_eq!(story.state.stopping(), None);
}

#[test]
fn an_end_waits_for_every_call_and_loan() {
    let failed = || ended(Status::Failed { cause: "x".to_owned() }, "");
    let lost = || ended(Status::Lost { cause: "x".to_owned() }, "");
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn)]);
    story
        .refuses(failed())
        .refuses(lost())
        .then(replied(1, "", &["delegate"]))
        .refuses(failed())
        .refuses(lost());
    story.then(delegated(1, 0, loan(5))).refuses(failed()).refuses(lost());
    // No runner answers the call before its child; where a log has it, the loan still has to come back.
    let mut state = story.state;
    state.apply(&tool_ended(1, 0, "too early"));
    assert!(!state.admits(&failed()) && !state.admits(&lost()));
    assert_eq!(State::next(&mut state), Step::Wait);
    state.apply(&returned(1, 0, used(1)));
    assert!(state.admits(&failed()) && state.admits(&lost()));
}

#[test]
fn an_answer_that_was_cancelled_is_not_done() {
    let mut story =
        Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), replied(1, "A.", &[]), cancel()]);
    story.refuses(ended(Status::Done, "A.")).refuses(ended(Status::Failed { cause: "x".to_owned() }, "A."));
    story.next(cancelled("A.")).ends();
}

/// A turn that the last round began and did not finish is no gift to the next.
#[test]
fn turns_are_counted_for_each_round_anew() {
    let fatal = || CallFault::Fatal { message: "down".to_owned() };
    let mut story = Story::of([started(1, ROOMY), called(1, 1, Purpose::Turn), failed(1, 1, fatal())]);
    story.ends().then(started(1, ROOMY)).next(Step::CallModel(Purpose::Turn));
    let (turn, attempt) = story.state.upcoming();
    story
        .then(called(turn, attempt, Purpose::Turn))
        .then(replied(turn, "", &["x"]))
        .then(tool_ended(turn, 0, ""));
    story.next(Step::CallModel(Purpose::Grace));
    story.refuses(called(turn + 1, 1, Purpose::Turn));
}

#[test]
fn a_round_without_turns_has_none_even_after_a_broken_one() {
    let mut story = Story::of([
        started(1, ROOMY),
        called(1, 1, Purpose::Turn),
        cancel(),
        failed(1, 1, CallFault::Stopped),
    ]);
    story.ends().then(started(0, ROOMY)).next(incomplete(Which::Turns, ""));
}

#[test]
fn nothing_but_outside_words_and_a_next_round_follows_an_end() {
    let mut story = Story::of(whole_log());
    for event in whole_log().into_iter().skip(1).filter(|event| event.kind() != "heard") {
        story.refuses(event);
    }
    story.refuses(cancel()).refuses(limit_reached(Which::Time)).refuses(ended(Status::Done, ""));
    story.refuses(ended(Status::Lost { cause: String::new() }, "")).refuses(ended(Status::Detached, ""));
    story.then(heard("More.")).then(started(1, ROOMY)).refuses(started(1, ROOMY));
}

#[test]
fn an_end_says_what_the_log_says() {
    let incomplete = || ended(Status::Incomplete { limit: Which::Turns }, "");
    let mut story = Story::of([started(2, ROOMY)]);
    // There is no answer yet, no limit was reached, nobody cancelled.
    story.refuses(ended(Status::Done, "")).refuses(incomplete());
    story.refuses(ended(Status::Cancelled { by: "me".to_owned() }, ""));
    story.then(called(1, 1, Purpose::Turn)).then(failed(1, 1, transient())).refuses(ended(Status::Done, ""));
    story
        .then(called(1, 2, Purpose::Turn))
        .then(replied(1, "", &["x"]))
        .then(tool_ended(1, 0, ""))
        .refuses(ended(Status::Done, ""));
    story.then(limit_reached(Which::Time)).refuses(ended(Status::Done, "")).then(incomplete());
}

#[test]
fn an_overrun_ends_incomplete() {
    let mut story = Story::of([started(9, tokens_only(100)), called(1, 1, Purpose::Turn)]);
    let spent = Spent { overrun: tokens(50), ..used(150) };
    story.then(Event::Replied { turn: 1, reply: reply("I go on.", &["shell"]), spent, waited_ms: 0 });
    // No tool of that reply runs, and there is no last word to pay.
    story.refuses(tool_started(1, 0)).refuses(delegated(1, 0, loan(0))).refuses(called(2, 1, Purpose::Turn));
    story.next(incomplete(Which::Tokens, "I go on.")).ends();
    assert_eq!(story.state.ledger().spent().overrun, tokens(50));
}

#[test]
fn an_overrun_of_money_names_money() {
    let budget = Budget { tokens: Limit::Unlimited, usd: Limit::AtMost(100), agents: Limit::AtMost(0) };
    let mut story = Story::of([started(9, budget)]);
    let reserved = Amount { tokens: 100, usd: 100, agents: 0 };
    story.then(Event::Called {
        turn: 1,
        attempt: 1,
        purpose: Purpose::Turn,
        reserved,
        input: 0,
        request: Hash::of(b""),
    });
    let overrun = Amount { tokens: 0, usd: 20, agents: 0 };
    story.then(Event::Replied {
        turn: 1,
        reply: reply("Dear.", &[]),
        spent: Spent { usd: 120, overrun, ..used(90) },
        waited_ms: 0,
    });
    story.next(incomplete(Which::Usd, "Dear.")).ends();
}

#[test]
fn calls_are_named_once() {
    let mut story =
        Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), replied(1, "", &["a", "b", "c"])]);
    let all = vec![call(1, 0), call(1, 1), call(1, 2)];
    story.next(Step::RunCalls(all.clone())).next(Step::Wait).then(tool_started(1, 0)).next(Step::Wait);
    story.then(tool_ended(1, 1, "")).next(Step::Wait).then(heard("x")).next(Step::Wait);
    // A runner that folds the log anew sees to all that have no answer.
    story.crash().next(Step::RunCalls(vec![call(1, 0), call(1, 2)])).next(Step::Wait);
    assert_eq!(story.state.unanswered(), [call(1, 0), call(1, 2)]);
    assert!(matches!(story.state.call(call(1, 0)).unwrap().progress, CallProgress::Started(_)));
    story.then(tool_ended(1, 0, "")).then(tool_ended(1, 2, "")).crash().next(Step::CallModel(Purpose::Turn));
}

#[test]
fn questions_come_before_the_call() {
    let asked = |index| Event::Asked {
        call: call(1, index),
        what: "May I?".into(),
        why: String::new(),
        always: None,
        until: 9,
        default: Answer::Once,
    };
    let answered = |index, answer| Event::Answered { call: call(1, index), answer, by: "me".to_owned() };
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), replied(1, "", &["a", "b"])]);
    story.refuses(answered(0, Answer::Once)).then(asked(0)).then(asked(1));
    // A runner that takes over asks again.
    story.crash().next(Step::RunCalls(vec![call(1, 0), call(1, 1)])).next(Step::Wait).then(asked(0));
    // What is not decided does not run, and neither is it lent to.
    story.refuses(tool_started(1, 0)).refuses(delegated(1, 0, loan(1)));
    story.then(answered(0, Answer::Once)).refuses(answered(0, Answer::Once)).refuses(asked(0));
    story.then(tool_started(1, 0));
    // That a person said yes is remembered as long as the call is open.
    story.crash();
    assert!(story.state.call(call(1, 0)).unwrap().is_permitted);
    assert!(!story.state.call(call(1, 1)).unwrap().is_permitted);
    // What was denied never runs.
    story.then(answered(1, Answer::Deny { word: None })).refuses(tool_started(1, 1)).refuses(delegated(
        1,
        1,
        loan(1),
    ));
    story.then(tool_ended(1, 1, "denied")).then(tool_ended(1, 0, "ran")).next(Step::CallModel(Purpose::Turn));
}

#[test]
fn what_is_always_permitted_outlives_the_round_and_counts_once() {
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
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), replied(1, "", &calls)]);
    story.then(asked(0)).then(asked(1)).then(asked(2));
    story.then(answered(0, "shell(git status)")).then(answered(1, "shell(git status)"));
    // A rule that cannot be read permits this call alone; an answer that nobody waits for permits nothing.
    story.then(answered(2, "shell(")).refuses(answered(3, "shell"));
    story.state.apply(&answered(3, "shell"));
    let rules: Vec<String> = story.state.always().iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["shell(git status)"]);
    assert!(story.state.call(call(1, 2)).unwrap().is_permitted);
}

#[test]
fn a_second_delegated_for_the_same_child_does_not_block_its_call() {
    let log = [
        started(9, ROOMY),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["delegate"]),
        delegated(1, 0, loan(50)),
    ];
    let mut state = State::fold(root(), &log);
    // No runner writes this; a log that has it can still be closed.
    state.apply(&delegated(1, 0, loan(70)));
    assert_eq!(state.ledger().lent().tokens, 70);
    state.apply(&returned(1, 0, used(1)));
    assert_eq!(state.ledger().lent(), Amount::default());
    assert!(state.admits(&tool_ended(1, 0, "closed")));
}

#[test]
fn ten_thousand_children_cost_no_more_than_ten_thousand_steps() {
    const MANY: u32 = 10_000;
    let names = vec!["delegate"; MANY as usize];
    let budget = Budget { tokens: Limit::AtMost(u64::MAX / 2), ..ROOMY };
    let mut state = State::new(root());
    for event in [started(2, budget), called(1, 1, Purpose::Turn), replied(1, "", &names)] {
        assert!(state.admits(&event));
        state.apply(&event);
    }
    assert!(matches!(state.next(), Step::RunCalls(calls) if calls.len() == MANY as usize));
    for index in 0..MANY {
        let event = delegated(1, index, loan(10));
        assert!(state.admits(&event));
        state.apply(&event);
        assert_eq!(state.next(), Step::Wait);
    }
    assert_eq!(state.loans().len(), MANY as usize);
    for index in (0..MANY).rev() {
        for event in [returned(1, index, used(10)), tool_ended(1, index, "x")] {
            assert_eq!(state.next(), Step::Wait);
            assert!(state.admits(&event));
            state.apply(&event);
        }
    }
    assert_eq!(state.next(), Step::CallModel(Purpose::Turn));
    assert_eq!(state.ledger().spent().agents, u64::from(MANY));
    assert_eq!(state.ledger().lent(), Amount::default());
}

#[test]
fn a_long_session_costs_the_same_for_each_turn() {
    let mut state = State::new(root());
    state.apply(&started(u32::MAX, Budget::UNLIMITED));
    for turn in 1..=10_000 {
        assert_eq!(state.next(), Step::CallModel(Purpose::Turn));
        for event in [called(turn, 1, Purpose::Turn), replied(turn, "", &["x"]), tool_ended(turn, 0, "y")] {
            assert!(state.admits(&event));
            state.apply(&event);
            let _ = (state.fingerprint(), state.upcoming(), state.limit_due());
        }
    }
}

#[test]
fn calls_without_an_answer_say_that_it_is_unknown() {
    // A crash between the tools' start and their end, read by someone who only wants the messages.
    let story = Story::of([
        started(9, ROOMY),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["a", "b"]),
        tool_ended(1, 1, "b"),
    ]);
    let results = last_results(&story.state);
    assert!(results[0].output.is_error());
    assert!(results[0].output.text.as_str().contains("outcome unknown"));
    assert_eq!(results[1].output, ToolOutput::ok("b"));
    assert_eq!(results[0].provider_id.as_deref(), Some("id of a"));
}

#[test]
fn a_summary_replaces_what_was_before() {
    let mut story = Story::of([started(9, ROOMY)]);
    for turn in 1..=3 {
        story.then(called(turn, 1, Purpose::Turn)).then(replied(turn, &format!("turn {turn}"), &["x"]));
        story.refuses(Event::Compacted { summary: "s".into(), keep_from: 1 }).then(tool_ended(turn, 0, "y"));
    }
    story.then(Event::Compacted { summary: "It went well.".into(), keep_from: 3 });
    let messages = story.state.messages();
    assert!(matches!(&messages[0], Message::User(text) if text.as_str() == "Do it"), "the task stays");
    assert!(matches!(&messages[1], Message::User(text) if text.as_str().contains("It went well.")));
    assert!(matches!(&messages[2], Message::Assistant(reply) if reply.text.as_str() == "turn 3"));
    assert_eq!(messages.len(), 4);
    story.next(Step::CallModel(Purpose::Turn));
}

#[test]
fn a_summary_keeps_words_that_no_request_has_carried() {
    let mut story =
        Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), replied(1, "A.", &[]), heard("And B?")]);
    story.then(Event::Compacted { summary: "A was found.".into(), keep_from: 2 });
    assert_eq!(users(&story.state).last().unwrap(), "And B?");
    story.next(Step::CallModel(Purpose::Turn));
}

#[test]
fn equal_messages_have_equal_fingerprints() {
    let begin = || Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn)]);
    let print = |events: [Event; 4]| {
        let mut story = begin();
        for event in events {
            story.then(event);
        }
        (story.state.fingerprint(), story.state.messages())
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
fn a_turn_leaves_the_own_reserve_untouched() {
    let price = Price { input: 3_000_000, output: 15_000_000, cache_read: 0, cache_write: 3_750_000 };
    let meter = Meter { price, fixed_bytes: 1000, max_output: 4000, window: None };
    let budget = Budget { tokens: Limit::AtMost(6000), usd: Limit::AtMost(60_000), agents: Limit::AtMost(1) };
    let story = Story::of([started(9, budget)]);
    let turn = story.state.worst_case(&meter, Purpose::Turn).unwrap();
    let kept = Amount { tokens: 500 + 1024, usd: price.worst(500, 1024), agents: 0 };
    assert!(budget.fits(kept.plus(turn.amount)), "{turn:?}");
    assert!(turn.max_output < 4000, "the output is clamped to what is left");
    assert_eq!(turn.amount.usd, price.worst(turn.amount.tokens - turn.max_output, turn.max_output));
    // What is lent leaves the same: a child may have all that is lendable, and the wrap-up call can still be paid.
    let lendable = story.state.lendable(&meter);
    let lent = Budget { agents: Limit::AtMost(0), ..lendable }.as_loan(&budget);
    assert_eq!(budget.less(lent).tokens, Limit::AtMost(503 + 1024));
    let mut story = worked_once();
    story.then(called(2, 1, Purpose::Turn)).then(replied(2, "", &["x"])).then(delegated(2, 0, lendable));
    assert!(story.state.worst_case(&meter, Purpose::Grace).is_ok());
}

#[test]
fn money_that_runs_out_is_named() {
    let price = Price { input: 1_000_000, output: 1_000_000, cache_read: 0, cache_write: 0 };
    let meter = Meter { price, fixed_bytes: 200, max_output: 100, window: None };
    let budget = |usd| Budget { tokens: Limit::Unlimited, usd: Limit::AtMost(usd), agents: Limit::AtMost(0) };
    let case = |usd, purpose| Story::of([started(9, budget(usd))]).state.worst_case(&meter, purpose);
    assert_eq!(limit_of(case(50, Purpose::Grace)), Some(Which::Usd));
    assert_eq!(limit_of(case(150, Purpose::Turn)), Some(Which::Usd));
    assert!(case(150, Purpose::Grace).is_ok());
    assert!(case(10_000, Purpose::Turn).is_ok());
}

#[test]
fn the_worst_case_grows_with_what_was_added() {
    let meter = Meter { price: Price::default(), fixed_bytes: 100, max_output: 10, window: None };
    let mut story = Story::of([started(9, ROOMY)]);
    let input = |story: &Story| story.state.worst_case(&meter, Purpose::Turn).unwrap().amount.tokens - 10;
    // "Do it" has five bytes: half a token for each of 105.
    assert_eq!(input(&story), 53);
    story.then(called(1, 1, Purpose::Turn)).then(replied(1, "", &["x"]));
    assert_eq!(input(&story), 10, "the last reported usage");
    story.then(tool_ended(1, 0, &"x".repeat(1000)));
    assert_eq!(input(&story), 510);
    story.then(heard(&"x".repeat(100)));
    assert_eq!(input(&story), 560);
}

/// Logs may come from a stranger's export: no number in them makes the fold panic.
#[test]
fn hostile_numbers_do_no_harm() {
    let most = u32::MAX;
    let blob = || Text::Blob(Box::new(Aside { blob: Hash::of(b""), bytes: u64::MAX }));
    let all = Amount { tokens: u64::MAX, usd: u64::MAX, agents: u64::MAX };
    let usage = Usage { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, cache_write: u64::MAX };
    let spent = Spent {
        usage,
        usd: u64::MAX,
        agents: u64::MAX,
        turns: u64::MAX,
        in_doubt: all,
        overrun: all,
        excess: u64::MAX,
        estimated: u64::MAX,
        cost_unreported: u64::MAX,
        unpriced: u64::MAX,
        held: all,
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
    let meter = Meter { price, fixed_bytes: u64::MAX, max_output: u64::MAX, window: None };
    // Every order of pairs, each followed by everything.
    for first in &events {
        for second in &events {
            let mut state = State::new(root());
            for event in [&events[0], first, second].into_iter().chain(&events) {
                state.apply(event);
                let _ = (state.next(), state.upcoming(), state.lendable(&meter), state.stopping());
                for purpose in purposes {
                    let _ = state.worst_case(&meter, purpose);
                }
                for event in &events {
                    let _ = state.admits(event);
                }
                assert_paired(&state.messages());
            }
        }
    }
    let _ = meter.least_loan(u64::MAX);
}
