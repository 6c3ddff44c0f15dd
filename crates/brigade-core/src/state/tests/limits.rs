//! Scenarios of unexpected usage, limits and repetition.

use super::*;

/// Creates the next call as the runtime would.
fn priced(scenario: &Scenario, cost_model: &CostModel, purpose: Purpose) -> Event {
    let (turn, attempt) = scenario.state.next_attempt();
    let WorstCase { amount, input, .. } = scenario.state.worst_case(cost_model, purpose).unwrap();
    Event::Called { turn, attempt, purpose, reserved: amount, input, request: Hash::of(b"request") }
}

/// Creates a reply to the open call, with the usage of its ledger.
fn answered(scenario: &Scenario, text: &str, tools: &[&str], usage: Usage) -> Event {
    let open = scenario.state.open_call().unwrap();
    let spent = Spent { usage, turns: 1, ..Spent::default() };
    let excess = usage.total().saturating_sub(open.reserved.tokens);
    let overrun = scenario.state.ledger().uncovered(open.reserved, &spent);
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

const COST_MODEL: CostModel = CostModel {
    price: Price { input: 0, output: 0, cache_read: 0, cache_write: 0 },
    fixed_bytes: 4_000,
    max_output: 500,
    window: None,
};

#[test]
fn usage_above_the_reserve_continues_if_the_grant_covers_it() {
    for budget in [LARGE_BUDGET, Budget { tokens: Limit::Unlimited, ..LARGE_BUDGET }] {
        let mut scenario = Scenario::of([started(9, budget)]);
        scenario.then(priced(&scenario, &COST_MODEL, Purpose::Turn));
        scenario.then(answered(&scenario, "On it.", &["read"], usage(9_000, 4_000)));
        assert_eq!(scenario.state.ledger().overrun(), Resources::default());
        scenario.then(tool_started(1, 0)).then(tool_ended(1, 0, "text")).next(Step::CallModel(Purpose::Turn));
    }
}

#[test]
fn usage_above_the_reserve_enters_the_next_reserve() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    let first = scenario.state.worst_case(&COST_MODEL, Purpose::Turn).unwrap();
    scenario.then(priced(&scenario, &COST_MODEL, Purpose::Turn));
    scenario.then(answered(&scenario, "On it.", &["read"], usage(3_500, 900)));
    scenario.then(tool_ended(1, 0, &"x".repeat(10_000)));
    let next = scenario.state.worst_case(&COST_MODEL, Purpose::Turn).unwrap();
    assert_eq!(first.max_output, next.max_output);
    // The tokeniser uses nearly a token for each byte, and the server exceeds the output limit.
    assert!(next.input >= 4_400 + 8_000, "{next:?}");
    assert_eq!(next.amount.tokens, next.input + 500 + 400);
    scenario.then(priced(&scenario, &COST_MODEL, Purpose::Turn));
    let open = scenario.state.open_call().unwrap().reserved.tokens;
    scenario.then(answered(&scenario, "Done.", &[], usage(4_400 + 8_700, 900)));
    assert!(
        scenario.state.ledger().spent().usage.total() < 4_400 + open,
        "the second call kept to its reserve"
    );
    // Another model counts tokens differently.
    let next = CallFault::GivenUp { message: "gone".to_owned(), next: "another".to_owned() };
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    scenario.then(priced(&scenario, &COST_MODEL, Purpose::Turn));
    scenario.then(answered(&scenario, "", &["x"], usage(9_000, 900)));
    scenario.then(tool_ended(1, 0, "text"));
    scenario.then(priced(&scenario, &COST_MODEL, Purpose::Turn));
    scenario.then(failed(2, 1, next));
    assert_eq!(
        scenario.state.worst_case(&COST_MODEL, Purpose::Turn).unwrap().amount.tokens - first.amount.tokens,
        3
    );
}

#[test]
fn undercounted_reply_counts_by_its_bytes_in_the_next_request() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    let long = "x".repeat(40_000);
    scenario.then(Event::Replied { turn: 1, reply: reply(&long, &["a"]), spent: used(10), waited_ms: 0 });
    scenario.then(tool_ended(1, 0, "ok"));
    let input = scenario.state.worst_case(&COST_MODEL, Purpose::Turn).unwrap().input;
    assert_eq!(input, 10 + 40_003 / 4 + 1);
    assert_eq!(scenario.state.ledger().spent().usage.total(), 10, "what is booked is what was reported");
}

#[test]
fn child_overrun_is_charged_to_the_parents_free_budget() {
    let mut scenario = Scenario::of([started(9, tokens_only(1_000)), called(1, 1, Purpose::Turn)]);
    scenario.then(replied(1, "", &["delegate", "delegate"]));
    scenario.then(delegated(1, 0, loan(300))).then(delegated(1, 1, loan(600)));
    // It was lent 300 and used 340; 90 were free in addition to both loans.
    scenario.then(returned(1, 0, used(340)));
    assert_eq!(scenario.state.ledger().overrun(), Resources::default());
    assert_eq!(scenario.state.stop_reason(), None);
    // The other was lent 600 and used 700, of which 50 are covered by no grant here.
    scenario.then(returned(1, 1, Spent { overrun: tokens(50), ..used(700) }));
    assert_eq!(scenario.state.ledger().overrun(), tokens(50));
    scenario.then(tool_ended(1, 0, "a")).then(tool_ended(1, 1, "b"));
    scenario.next(incomplete(LimitKind::Tokens, "")).ends();
}

#[test]
fn overrun_in_an_old_log_is_judged_by_the_grant() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    let spent = Spent { overrun: tokens(50), ..used(150) };
    scenario.then(Event::Replied { turn: 1, reply: reply("More.", &["shell"]), spent, waited_ms: 0 });
    assert_eq!(scenario.state.ledger().overrun(), Resources::default());
    scenario.then(tool_ended(1, 0, "ok")).next(Step::CallModel(Purpose::Turn));
}

#[test]
fn limit_before_any_work_gets_no_wrap_up_call() {
    for limit in [LimitKind::Tokens, LimitKind::Usd, LimitKind::Time] {
        let mut scenario = Scenario::of([started(9, LARGE_BUDGET), limit_reached(limit)]);
        scenario.refuses(called(1, 1, Purpose::Grace)).next(incomplete(limit, "")).ends();
        let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
        scenario.then(priced(&scenario, &COST_MODEL, Purpose::Turn));
        scenario.then(failed(1, 1, transient())).then(limit_reached(limit));
        scenario.refuses(called(1, 2, Purpose::Grace)).next(incomplete(limit, ""));
    }
    // Work of an earlier round was reported there.
    let mut scenario = worked(LimitKind::Turns);
    scenario.then(called(2, 1, Purpose::Grace)).then(replied(2, "Half.", &[])).ends();
    scenario.then(started(9, LARGE_BUDGET)).then(limit_reached(LimitKind::Tokens)).refuses(called(
        3,
        1,
        Purpose::Grace,
    ));
}

#[test]
fn shortfall_names_what_the_next_call_needs() {
    let price = Price { input: 2_000_000, output: 10_000_000, cache_read: 0, cache_write: 0 };
    let cost_model = CostModel { price, ..COST_MODEL };
    let scenario = Scenario::of([started(9, tokens_only(5_000))]);
    let shortfall = scenario
        .state
        .worst_case(&CostModel { fixed_bytes: 8_000, ..cost_model }, Purpose::Turn)
        .unwrap_err();
    // Twice the input, the minimum output of a turn and the reserve for the wrap-up call.
    assert_eq!(shortfall.which, LimitKind::Tokens);
    assert_eq!(shortfall.needed.tokens, 2 * 4_003 + 64 + 500);
    let enough = Scenario::of([started(9, tokens_only(shortfall.needed.tokens))]);
    assert!(enough.state.worst_case(&CostModel { fixed_bytes: 8_000, ..cost_model }, Purpose::Turn).is_ok());
    let cheap = Budget { usd: Limit::AtMost(10_000), ..LARGE_BUDGET };
    let shortfall =
        Scenario::of([started(9, cheap)]).state.worst_case(&cost_model, Purpose::Turn).unwrap_err();
    assert_eq!(shortfall.which, LimitKind::Usd);
    let enough = Budget { usd: Limit::AtMost(shortfall.needed.usd + 2), ..LARGE_BUDGET };
    assert!(Scenario::of([started(9, enough)]).state.worst_case(&cost_model, Purpose::Turn).is_ok());
}

#[test]
fn request_beyond_the_window_is_detected_before_sending() {
    let cost_model = CostModel { window: Some(200_000), ..COST_MODEL };
    let long = |bytes: usize| {
        let delegation = task(&"x".repeat(bytes)).into();
        let (agent, grant) = (Hash::of(b"agent"), grant(9, LARGE_BUDGET));
        Scenario::of([Event::Started { delegation, agent, grant, parent: None, depth: 0 }])
    };
    assert_eq!(long(600_000).state.exceeds_window(&cost_model), None, "it may fit");
    let mut scenario = long(3_000_000);
    assert_eq!(scenario.state.exceeds_window(&cost_model), Some(500_666));
    assert_eq!(scenario.state.exceeds_window(&COST_MODEL), None, "nobody knows the window");
    let overflow = CallFault::Overflow { message: "too long".to_owned() };
    let paid = Event::call_failed(1, 1, overflow.clone(), used(5));
    scenario.refuses(paid).refuses(failed(2, 1, overflow.clone()));
    scenario.then(failed(1, 1, overflow));
    scenario.next(Step::End(Outcome::new(Status::Failed { cause: "too long".to_owned() }, "")));
    // A model with a larger window may take over.
    let mut scenario = long(3_000_000);
    let fallback_index = CallFault::GivenUp { message: "too long".to_owned(), next: "larger".to_owned() };
    scenario.then(failed(1, 1, fallback_index)).next(Step::CallModel(Purpose::Turn));
    assert_eq!(scenario.state.fallback_index(), 1);
}

#[test]
fn truncated_report_is_retried_once_and_then_abandoned() {
    let cut = || CallFault::Cut { message: "no room".to_owned() };
    let reporting = || {
        let delegation =
            Delegation { report: Some("Report.".into()), report_bytes: Some(20_000), ..task("Go") };
        let (delegation, agent, grant) = (delegation.into(), Hash::of(b"agent"), grant(9, LARGE_BUDGET));
        let started = Event::Started { delegation, agent, grant, parent: None, depth: 0 };
        Scenario::of([started, called(1, 1, Purpose::Turn), replied(1, "Found it.", &[])])
    };
    let cost_model = CostModel { max_output: 100_000, ..COST_MODEL };
    let mut scenario = reporting();
    assert_eq!(scenario.state.worst_case(&cost_model, Purpose::Summary).unwrap().max_output, 10_000);
    scenario.then(called(2, 1, Purpose::Summary)).then(failed(2, 1, cut()));
    scenario.next(Step::CallModel(Purpose::Summary));
    assert_eq!(scenario.state.worst_case(&cost_model, Purpose::Summary).unwrap().max_output, 40_000);
    scenario.then(called(2, 2, Purpose::Summary)).then(failed(2, 2, cut()));
    scenario.next(done("Found it.")).ends();
    let mut scenario = reporting();
    scenario.then(called(2, 1, Purpose::Summary)).then(failed(2, 1, cut()));
    scenario.then(called(2, 2, Purpose::Summary)).then(replied(2, "It was there.", &[]));
    scenario.next(done("It was there."));
    // The same for a wrap-up call.
    let mut scenario = worked(LimitKind::Time);
    scenario
        .then(called(2, 1, Purpose::Grace))
        .then(failed(2, 1, cut()))
        .next(Step::CallModel(Purpose::Grace));
    scenario.then(called(2, 2, Purpose::Grace)).then(failed(2, 2, cut()));
    scenario.next(incomplete(LimitKind::Time, "Working.")).ends();
}

#[test]
fn wrap_up_call_may_use_more_output_than_its_reserve() {
    let cost_model = CostModel { max_output: 32_000, ..COST_MODEL };
    let scenario = worked(LimitKind::Turns);
    assert_eq!(scenario.state.worst_case(&cost_model, Purpose::Grace).unwrap().max_output, 4096);
    let kept =
        scenario.state.ledger().free().tokens.number() - scenario.state.lendable(&cost_model).tokens.number();
    let input = scenario.state.worst_case(&cost_model, Purpose::Grace).unwrap().input;
    assert_eq!(kept, input + 1024);
}

fn repeat(scenario: &mut Scenario, turn: u32, output: &str) {
    scenario.then(called(turn, 1, Purpose::Turn)).then(replied(
        turn,
        &format!("try {turn}"),
        &["read", "grep"],
    ));
    // Results may arrive in any order.
    scenario.then(tool_ended(turn, turn % 2, output)).then(tool_ended(turn, (turn + 1) % 2, output));
}

#[test]
fn repeated_calls_with_equal_results_are_counted() {
    let mut scenario = Scenario::of([started(20, LARGE_BUDGET)]);
    for turn in 1..=3 {
        repeat(&mut scenario, turn, "nothing");
        assert_eq!(scenario.state.repeats(), turn);
    }
    assert!(!scenario.state.is_warned_of_repeats());
    scenario.then(Event::Heard { from: Speaker::Runtime, text: "Try something else.".into() });
    assert!(scenario.state.is_warned_of_repeats());
    assert_eq!(scenario.state.reminders(), 0, "it is no complaint about a result");
    scenario.crash();
    repeat(&mut scenario, 4, "nothing");
    assert_eq!((scenario.state.repeats(), scenario.state.is_warned_of_repeats()), (4, true));
    repeat(&mut scenario, 5, "something");
    assert_eq!((scenario.state.repeats(), scenario.state.is_warned_of_repeats()), (1, false));
    repeat(&mut scenario, 6, "something");
    scenario.then(limit_reached(LimitKind::Loop)).next(Step::CallModel(Purpose::Grace));
    scenario.then(called(7, 1, Purpose::Grace)).then(replied(7, "Stuck.", &[]));
    scenario.next(incomplete(LimitKind::Loop, "Stuck.")).ends();
    scenario.then(started(20, LARGE_BUDGET));
    assert_eq!(scenario.state.repeats(), 0);
}

#[test]
fn counted_tokens_are_not_a_lower_bound_of_the_next_request() {
    let cost_model = CostModel { window: Some(32_000), ..COST_MODEL };
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    // The model used 31,000 tokens for reasoning, which is not sent back.
    let spent = Spent { usage: usage(2_000, 31_000), turns: 1, ..Spent::default() };
    scenario.then(Event::Replied { turn: 1, reply: reply("Hi.", &[]), spent, waited_ms: 0 }).ends();
    scenario.then(heard("Thanks.")).then(started(9, LARGE_BUDGET));
    assert_eq!(scenario.state.exceeds_window(&cost_model), None);
}

#[test]
fn abandoned_report_leaves_the_last_text() {
    let delegation = Delegation { report: Some("Report.".into()), ..task("Go") };
    let (delegation, agent, grant) = (delegation.into(), Hash::of(b"agent"), grant(9, LARGE_BUDGET));
    let started = Event::Started { delegation, agent, grant, parent: None, depth: 0 };
    let mut scenario = Scenario::of([started, called(1, 1, Purpose::Turn), replied(1, "Found it.", &[])]);
    scenario.next(Step::CallModel(Purpose::Summary));
    scenario.then(failed(2, 1, CallFault::Unaffordable)).next(done("Found it.")).ends();
}

#[test]
fn overflowing_request_gets_no_wrap_up_call() {
    let overflow = || CallFault::Overflow { message: "too long".to_owned() };
    let mut scenario = worked_once();
    scenario
        .then(called(2, 1, Purpose::Turn))
        .then(failed(2, 1, overflow()))
        .then(limit_reached(LimitKind::Tokens));
    scenario.refuses(called(2, 2, Purpose::Grace)).next(incomplete(LimitKind::Tokens, "Working.")).ends();
}

#[test]
fn new_agent_definition_resets_the_token_estimator() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    let first = scenario.state.worst_case(&COST_MODEL, Purpose::Turn).unwrap().amount;
    scenario.then(priced(&scenario, &COST_MODEL, Purpose::Turn));
    scenario.then(answered(&scenario, "Hi.", &[], usage(40_000, 9_000))).ends();
    let taught = started(9, LARGE_BUDGET);
    scenario.then(heard("More.")).then(taught.clone());
    assert!(scenario.state.worst_case(&COST_MODEL, Purpose::Turn).unwrap().amount.tokens > 50_000);
    scenario.then(priced(&scenario, &COST_MODEL, Purpose::Turn));
    scenario.then(answered(&scenario, "Hi again.", &[], usage(90_000, 9_000))).ends().then(heard("More."));
    let Event::Started { delegation, grant, parent, depth, .. } = taught else { return };
    scenario.then(Event::Started { delegation, agent: Hash::of(b"other"), grant, parent, depth });
    let now = scenario.state.worst_case(&COST_MODEL, Purpose::Turn).unwrap().amount;
    assert!(now.tokens < first.tokens + 100, "{now:?} {first:?}");
}

#[test]
fn user_message_resets_the_repeat_count() {
    let mut scenario = Scenario::of([started(20, LARGE_BUDGET)]);
    for turn in 1..=4 {
        repeat(&mut scenario, turn, "nothing");
    }
    scenario.then(heard("Keep polling."));
    assert_eq!(scenario.state.repeats(), 0);
    repeat(&mut scenario, 5, "nothing");
    assert_eq!(scenario.state.repeats(), 1);
}

#[test]
fn huge_usage_fits_an_unlimited_budget() {
    let unlimited = Budget { tokens: Limit::Unlimited, usd: Limit::Unlimited, agents: Limit::AtMost(0) };
    let mut scenario = Scenario::of([started(9, unlimited), called(1, 1, Purpose::Turn)]);
    let spent = Spent { usage: usage(u64::MAX, u64::MAX), turns: 1, ..Spent::default() };
    scenario
        .then(Event::Replied { turn: 1, reply: reply("", &["x"]), spent, waited_ms: 0 })
        .then(tool_ended(1, 0, "ok"));
    assert!(scenario.state.worst_case(&COST_MODEL, Purpose::Turn).is_ok());
}

#[test]
fn one_call_takes_at_most_a_quarter_of_the_free_budget() {
    let cost_model = CostModel { max_output: 32_000, ..COST_MODEL };
    let scenario = Scenario::of([started(9, tokens_only(100_000))]);
    let turn = scenario.state.worst_case(&cost_model, Purpose::Turn).unwrap();
    let free = scenario.state.lendable(&cost_model).tokens.number();
    assert_eq!(turn.max_output, (free - turn.input) / 4);
    let summary = scenario.state.worst_case_summary(&cost_model, 4_000).unwrap();
    assert_eq!(summary.max_output, (free - summary.input) / 4);
    // A small budget still covers a reply of some length.
    let scenario = Scenario::of([started(9, tokens_only(12_000))]);
    assert_eq!(scenario.state.worst_case(&cost_model, Purpose::Turn).unwrap().max_output, 4096);
}
