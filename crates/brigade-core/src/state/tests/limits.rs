//! Stories of usage that was not expected, of limits, and of agents that repeat themselves.

use super::*;

/// The next call as the runtime would make it.
fn priced(story: &Story, meter: &Meter, purpose: Purpose) -> Event {
    let (turn, attempt) = story.state.upcoming();
    let Worst { amount, input, .. } = story.state.worst_case(meter, purpose).unwrap();
    Event::Called { turn, attempt, purpose, reserved: amount, input, request: Hash::of(b"request") }
}

/// A reply to the open call, with what its books say of it.
fn answered(story: &Story, text: &str, tools: &[&str], usage: Usage) -> Event {
    let open = story.state.open_call().unwrap();
    let spent = Spent { usage, turns: 1, ..Spent::default() };
    let excess = usage.total().saturating_sub(open.reserved.tokens);
    let overrun = story.state.ledger().uncovered(open.reserved, &spent);
    Event::Replied {
        turn: open.turn,
        reply: reply(text, tools),
        spent: Spent { excess, overrun, ..spent },
        waited_ms: 0,
    }
}

fn usage(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

const METER: Meter = Meter {
    price: Price { input: 0, output: 0, cache_read: 0, cache_write: 0 },
    fixed_bytes: 4_000,
    max_output: 500,
    window: None,
};

#[test]
fn usage_above_the_reserve_continues_if_the_grant_covers_it() {
    for budget in [ROOMY, Budget { tokens: Limit::Unlimited, ..ROOMY }] {
        let mut story = Story::of([started(9, budget)]);
        story.then(priced(&story, &METER, Purpose::Turn));
        story.then(answered(&story, "On it.", &["read"], usage(9_000, 4_000)));
        assert_eq!(story.state.ledger().overrun(), Amount::default());
        story.then(tool_started(1, 0)).then(tool_ended(1, 0, "text")).next(Step::CallModel(Purpose::Turn));
    }
}

#[test]
fn usage_above_the_reserve_enters_the_next_reserve() {
    let mut story = Story::of([started(9, ROOMY)]);
    let first = story.state.worst_case(&METER, Purpose::Turn).unwrap();
    story.then(priced(&story, &METER, Purpose::Turn));
    story.then(answered(&story, "On it.", &["read"], usage(3_500, 900)));
    story.then(tool_ended(1, 0, &"x".repeat(10_000)));
    let next = story.state.worst_case(&METER, Purpose::Turn).unwrap();
    assert_eq!(first.max_output, next.max_output);
    // The tokeniser takes nearly a token for each byte, and the server does not keep to the output limit.
    assert!(next.input >= 4_400 + 8_000, "{next:?}");
    assert_eq!(next.amount.tokens, next.input + 500 + 400);
    story.then(priced(&story, &METER, Purpose::Turn));
    let open = story.state.open_call().unwrap().reserved.tokens;
    story.then(answered(&story, "Done.", &[], usage(4_400 + 8_700, 900)));
    assert!(story.state.ledger().spent().usage.total() < 4_400 + open, "the second call kept to its reserve");
    // Another model counts in another way.
    let next = CallFault::GivenUp { message: "gone".to_owned(), next: "another".to_owned() };
    let mut story = Story::of([started(9, ROOMY)]);
    story.then(priced(&story, &METER, Purpose::Turn));
    story.then(answered(&story, "", &["x"], usage(9_000, 900)));
    story.then(tool_ended(1, 0, "text"));
    story.then(priced(&story, &METER, Purpose::Turn));
    story.then(failed(2, 1, next));
    assert_eq!(story.state.worst_case(&METER, Purpose::Turn).unwrap().amount.tokens - first.amount.tokens, 3);
}

#[test]
fn a_reply_that_is_counted_too_low_counts_by_its_bytes_in_the_next_request() {
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn)]);
    let long = "x".repeat(40_000);
    story.then(Event::Replied { turn: 1, reply: reply(&long, &["a"]), spent: used(10), waited_ms: 0 });
    story.then(tool_ended(1, 0, "ok"));
    let input = story.state.worst_case(&METER, Purpose::Turn).unwrap().input;
    assert_eq!(input, 10 + 40_003 / 4 + 1);
    assert_eq!(story.state.ledger().spent().usage.total(), 10, "what is booked is what was reported");
}

#[test]
fn an_overrun_of_a_child_is_booked_against_what_its_parent_has_free() {
    let mut story = Story::of([started(9, tokens_only(1_000)), called(1, 1, Purpose::Turn)]);
    story.then(replied(1, "", &["delegate", "delegate"]));
    story.then(delegated(1, 0, loan(300))).then(delegated(1, 1, loan(600)));
    // It was lent 300 and used 340; 90 were free beside both loans.
    story.then(returned(1, 0, used(340)));
    assert_eq!(story.state.ledger().overrun(), Amount::default());
    assert_eq!(story.state.stopping(), None);
    // The other was lent 600 and used 700, of which 50 are covered by nobody here.
    story.then(returned(1, 1, Spent { overrun: tokens(50), ..used(700) }));
    assert_eq!(story.state.ledger().overrun(), tokens(50));
    story.then(tool_ended(1, 0, "a")).then(tool_ended(1, 1, "b"));
    story.next(incomplete(Which::Tokens, "")).ends();
}

#[test]
fn an_overrun_in_a_log_of_an_earlier_version_is_judged_by_the_grant() {
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn)]);
    let spent = Spent { overrun: tokens(50), ..used(150) };
    story.then(Event::Replied { turn: 1, reply: reply("More.", &["shell"]), spent, waited_ms: 0 });
    assert_eq!(story.state.ledger().overrun(), Amount::default());
    story.then(tool_ended(1, 0, "ok")).next(Step::CallModel(Purpose::Turn));
}

#[test]
fn a_limit_before_any_work_buys_no_wrap_up_call() {
    for limit in [Which::Tokens, Which::Usd, Which::Time] {
        let mut story = Story::of([started(9, ROOMY), limit_reached(limit)]);
        story.refuses(called(1, 1, Purpose::Grace)).next(incomplete(limit, "")).ends();
        let mut story = Story::of([started(9, ROOMY)]);
        story.then(priced(&story, &METER, Purpose::Turn));
        story.then(failed(1, 1, transient())).then(limit_reached(limit));
        story.refuses(called(1, 2, Purpose::Grace)).next(incomplete(limit, ""));
    }
    // Work of an earlier round was reported there.
    let mut story = worked(Which::Turns);
    story.then(called(2, 1, Purpose::Grace)).then(replied(2, "Half.", &[])).ends();
    story.then(started(9, ROOMY)).then(limit_reached(Which::Tokens)).refuses(called(3, 1, Purpose::Grace));
}

#[test]
fn a_budget_that_does_not_cover_the_next_call_says_what_it_needs() {
    let price = Price { input: 2_000_000, output: 10_000_000, cache_read: 0, cache_write: 0 };
    let meter = Meter { price, ..METER };
    let story = Story::of([started(9, tokens_only(5_000))]);
    let shortfall =
        story.state.worst_case(&Meter { fixed_bytes: 8_000, ..meter }, Purpose::Turn).unwrap_err();
    // Twice the input, the least output of a turn and what is kept for the wrap-up call.
    assert_eq!(shortfall.which, Which::Tokens);
    assert_eq!(shortfall.needed.tokens, 2 * 4_003 + 64 + 500);
    let enough = Story::of([started(9, tokens_only(shortfall.needed.tokens))]);
    assert!(enough.state.worst_case(&Meter { fixed_bytes: 8_000, ..meter }, Purpose::Turn).is_ok());
    let cheap = Budget { usd: Limit::AtMost(10_000), ..ROOMY };
    let shortfall = Story::of([started(9, cheap)]).state.worst_case(&meter, Purpose::Turn).unwrap_err();
    assert_eq!(shortfall.which, Which::Usd);
    let enough = Budget { usd: Limit::AtMost(shortfall.needed.usd + 2), ..ROOMY };
    assert!(Story::of([started(9, enough)]).state.worst_case(&meter, Purpose::Turn).is_ok());
}

#[test]
fn a_request_beyond_the_window_is_known_before_it_is_sent() {
    let meter = Meter { window: Some(200_000), ..METER };
    let long = |bytes: usize| {
        let delegation = task(&"x".repeat(bytes)).into();
        let (agent, grant) = (Hash::of(b"agent"), grant(9, ROOMY));
        Story::of([Event::Started { delegation, agent, grant, parent: None, depth: 0 }])
    };
    assert_eq!(long(600_000).state.exceeds_window(&meter), None, "it may fit");
    let mut story = long(3_000_000);
    assert_eq!(story.state.exceeds_window(&meter), Some(500_666));
    assert_eq!(story.state.exceeds_window(&METER), None, "nobody knows the window");
    let overflow = CallFault::Overflow { message: "too long".to_owned() };
    let paid = Event::call_failed(1, 1, overflow.clone(), used(5));
    story.refuses(paid).refuses(failed(2, 1, overflow.clone()));
    story.then(failed(1, 1, overflow));
    story.next(Step::End(Outcome::new(Status::Failed { cause: "too long".to_owned() }, "")));
    // A model with a larger window may take over.
    let mut story = long(3_000_000);
    let given_up = CallFault::GivenUp { message: "too long".to_owned(), next: "larger".to_owned() };
    story.then(failed(1, 1, given_up)).next(Step::CallModel(Purpose::Turn));
    assert_eq!(story.state.given_up(), 1);
}

#[test]
fn a_report_without_room_is_asked_for_once_more_and_then_given_up() {
    let cut = || CallFault::Cut { message: "no room".to_owned() };
    let reporting = || {
        let delegation =
            Delegation { report: Some("Report.".into()), report_bytes: Some(20_000), ..task("Go") };
        let (delegation, agent, grant) = (delegation.into(), Hash::of(b"agent"), grant(9, ROOMY));
        let started = Event::Started { delegation, agent, grant, parent: None, depth: 0 };
        Story::of([started, called(1, 1, Purpose::Turn), replied(1, "Found it.", &[])])
    };
    let meter = Meter { max_output: 100_000, ..METER };
    let mut story = reporting();
    assert_eq!(story.state.worst_case(&meter, Purpose::Summary).unwrap().max_output, 10_000);
    story.then(called(2, 1, Purpose::Summary)).then(failed(2, 1, cut()));
    story.next(Step::CallModel(Purpose::Summary));
    assert_eq!(story.state.worst_case(&meter, Purpose::Summary).unwrap().max_output, 40_000);
    story.then(called(2, 2, Purpose::Summary)).then(failed(2, 2, cut()));
    story.next(done("Found it.")).ends();
    let mut story = reporting();
    story.then(called(2, 1, Purpose::Summary)).then(failed(2, 1, cut()));
    story.then(called(2, 2, Purpose::Summary)).then(replied(2, "It was there.", &[]));
    story.next(done("It was there."));
    // The same for a wrap-up call.
    let mut story = worked(Which::Time);
    story.then(called(2, 1, Purpose::Grace)).then(failed(2, 1, cut())).next(Step::CallModel(Purpose::Grace));
    story.then(called(2, 2, Purpose::Grace)).then(failed(2, 2, cut()));
    story.next(incomplete(Which::Time, "Working.")).ends();
}

#[test]
fn the_wrap_up_call_has_room_though_little_is_kept_for_it() {
    let meter = Meter { max_output: 32_000, ..METER };
    let story = worked(Which::Turns);
    assert_eq!(story.state.worst_case(&meter, Purpose::Grace).unwrap().max_output, 4096);
    let kept = story.state.ledger().free().tokens.number() - story.state.lendable(&meter).tokens.number();
    let input = story.state.worst_case(&meter, Purpose::Grace).unwrap().input;
    assert_eq!(kept, input + 1024);
}

fn repeat(story: &mut Story, turn: u32, output: &str) {
    story.then(called(turn, 1, Purpose::Turn)).then(replied(turn, &format!("try {turn}"), &["read", "grep"]));
    // Results may come in any order.
    story.then(tool_ended(turn, turn % 2, output)).then(tool_ended(turn, (turn + 1) % 2, output));
}

#[test]
fn the_same_calls_with_the_same_results_are_counted() {
    let mut story = Story::of([started(20, ROOMY)]);
    for turn in 1..=3 {
        repeat(&mut story, turn, "nothing");
        assert_eq!(story.state.repeats(), turn);
    }
    assert!(!story.state.is_told_of_repeats());
    story.then(Event::Heard { from: Speaker::Runtime, text: "Try something else.".into() });
    assert!(story.state.is_told_of_repeats());
    assert_eq!(story.state.reminders(), 0, "it is no complaint about a result");
    story.crash();
    repeat(&mut story, 4, "nothing");
    assert_eq!((story.state.repeats(), story.state.is_told_of_repeats()), (4, true));
    repeat(&mut story, 5, "something");
    assert_eq!((story.state.repeats(), story.state.is_told_of_repeats()), (1, false));
    repeat(&mut story, 6, "something");
    story.then(limit_reached(Which::Loop)).next(Step::CallModel(Purpose::Grace));
    story.then(called(7, 1, Purpose::Grace)).then(replied(7, "Stuck.", &[]));
    story.next(incomplete(Which::Loop, "Stuck.")).ends();
    story.then(started(20, ROOMY));
    assert_eq!(story.state.repeats(), 0);
}

#[test]
fn what_a_model_counted_is_no_lower_bound_of_the_next_request() {
    let meter = Meter { window: Some(32_000), ..METER };
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn)]);
    // It thought for 31,000 tokens, which nobody sends back.
    let spent = Spent { usage: usage(2_000, 31_000), turns: 1, ..Spent::default() };
    story.then(Event::Replied { turn: 1, reply: reply("Hi.", &[]), spent, waited_ms: 0 }).ends();
    story.then(heard("Thanks.")).then(started(9, ROOMY));
    assert_eq!(story.state.exceeds_window(&meter), None);
}

#[test]
fn a_report_that_was_given_up_leaves_the_last_text() {
    let delegation = Delegation { report: Some("Report.".into()), ..task("Go") };
    let (delegation, agent, grant) = (delegation.into(), Hash::of(b"agent"), grant(9, ROOMY));
    let started = Event::Started { delegation, agent, grant, parent: None, depth: 0 };
    let mut story = Story::of([started, called(1, 1, Purpose::Turn), replied(1, "Found it.", &[])]);
    story.next(Step::CallModel(Purpose::Summary));
    story.then(failed(2, 1, CallFault::Unaffordable)).next(done("Found it.")).ends();
}

#[test]
fn a_request_that_is_too_long_is_not_wrapped_up() {
    let overflow = || CallFault::Overflow { message: "too long".to_owned() };
    let mut story = worked_once();
    story.then(called(2, 1, Purpose::Turn)).then(failed(2, 1, overflow())).then(limit_reached(Which::Tokens));
    story.refuses(called(2, 2, Purpose::Grace)).next(incomplete(Which::Tokens, "Working.")).ends();
}

#[test]
fn another_agent_definition_forgets_what_was_learned_of_the_model() {
    let mut story = Story::of([started(9, ROOMY)]);
    let first = story.state.worst_case(&METER, Purpose::Turn).unwrap().amount;
    story.then(priced(&story, &METER, Purpose::Turn));
    story.then(answered(&story, "Hi.", &[], usage(40_000, 9_000))).ends();
    let taught = started(9, ROOMY);
    story.then(heard("More.")).then(taught.clone());
    assert!(story.state.worst_case(&METER, Purpose::Turn).unwrap().amount.tokens > 50_000);
    story.then(priced(&story, &METER, Purpose::Turn));
    story.then(answered(&story, "Hi again.", &[], usage(90_000, 9_000))).ends().then(heard("More."));
    let Event::Started { delegation, grant, parent, depth, .. } = taught else { return };
    story.then(Event::Started { delegation, agent: Hash::of(b"other"), grant, parent, depth });
    let now = story.state.worst_case(&METER, Purpose::Turn).unwrap().amount;
    assert!(now.tokens < first.tokens + 100, "{now:?} {first:?}");
}

#[test]
fn words_of_the_user_begin_the_count_of_repeats_anew() {
    let mut story = Story::of([started(20, ROOMY)]);
    for turn in 1..=4 {
        repeat(&mut story, turn, "nothing");
    }
    story.then(heard("Keep polling."));
    assert_eq!(story.state.repeats(), 0);
    repeat(&mut story, 5, "nothing");
    assert_eq!(story.state.repeats(), 1);
}

#[test]
fn no_report_is_too_large_for_a_budget_without_a_limit() {
    let unlimited = Budget { tokens: Limit::Unlimited, usd: Limit::Unlimited, agents: Limit::AtMost(0) };
    let mut story = Story::of([started(9, unlimited), called(1, 1, Purpose::Turn)]);
    let spent = Spent { usage: usage(u64::MAX, u64::MAX), turns: 1, ..Spent::default() };
    story
        .then(Event::Replied { turn: 1, reply: reply("", &["x"]), spent, waited_ms: 0 })
        .then(tool_ended(1, 0, "ok"));
    assert!(story.state.worst_case(&METER, Purpose::Turn).is_ok());
}

#[test]
fn one_call_takes_a_quarter_of_the_free_budget_at_most() {
    let meter = Meter { max_output: 32_000, ..METER };
    let story = Story::of([started(9, tokens_only(100_000))]);
    let turn = story.state.worst_case(&meter, Purpose::Turn).unwrap();
    let free = story.state.lendable(&meter).tokens.number();
    assert_eq!(turn.max_output, (free - turn.input) / 4);
    let summary = story.state.worst_summary(&meter, 4_000).unwrap();
    assert_eq!(summary.max_output, (free - summary.input) / 4);
    // A small budget still pays for a reply of some length.
    let story = Story::of([started(9, tokens_only(12_000))]);
    assert_eq!(story.state.worst_case(&meter, Purpose::Turn).unwrap().max_output, 4096);
}
