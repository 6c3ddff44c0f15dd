//! Conversations that exceed the context window, and fallback models.

use super::*;

fn overflow() -> CallFault {
    CallFault::Overflow { message: "too long".to_owned() }
}

fn model_given_up() -> CallFault {
    CallFault::GivenUp { message: "no such model".to_owned(), next: "other/model".to_owned() }
}

fn compacted(summary: &str, keep_from: u32) -> Event {
    Event::Compacted { summary: summary.into(), keep_from }
}

fn cost_model(window: u64) -> CostModel {
    CostModel { price: Price::default(), fixed_bytes: 0, max_output: 100, window: Some(window) }
}

/// Scenario of turns with one tool call each, whose results have this many bytes.
fn scenario_of_turns(turns: u32, limit: u32, bytes: usize) -> Scenario {
    let mut scenario = Scenario::of([started(limit, LARGE_BUDGET)]);
    for turn in 1..=turns {
        scenario.then(called(turn, 1, Purpose::Turn));
        scenario.then(Event::Replied {
            turn,
            reply: reply(&format!("turn {turn}"), &["x"]),
            spent: Spent::default(),
            waited_ms: 0,
        });
        scenario.then(tool_ended(turn, 0, &"y".repeat(bytes)));
    }
    scenario
}

#[test]
fn overflowing_turn_is_compacted_and_retried() {
    let mut scenario = scenario_of_turns(2, 3, 100);
    scenario.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, overflow()));
    scenario.crash().next(Step::CallModel(Purpose::Compaction));
    scenario
        .then(called(3, 2, Purpose::Compaction))
        .then(replied(3, "Two turns.", &[]))
        .then(compacted("Two turns.", 3));
    // The turn that did not fit does not count: the limit of three leaves room for it.
    scenario.crash().next(Step::CallModel(Purpose::Turn));
    scenario.then(called(4, 1, Purpose::Turn)).then(replied(4, "Done.", &[])).next(done("Done.")).ends();
    assert_eq!(user_messages(&scenario.state)[0], "Do it");
    assert!(user_messages(&scenario.state)[1].ends_with("Two turns."));
}

#[test]
fn compaction_call_is_not_a_turn() {
    let mut scenario = scenario_of_turns(1, 2, 100);
    scenario
        .then(called(2, 1, Purpose::Compaction))
        .then(replied(2, "Sum.", &["x"]))
        .then(compacted("Sum.", 2));
    scenario.next(Step::CallModel(Purpose::Turn));
    assert!(
        scenario.state.messages().iter().all(|message| matches!(message, Message::User(_))),
        "its calls are nothing"
    );
    scenario.then(called(3, 1, Purpose::Turn)).then(replied(3, "", &["x"])).then(tool_ended(3, 0, ""));
    scenario.next(Step::CallModel(Purpose::Grace));
}

#[test]
fn message_during_compaction_is_read_after_it() {
    let mut scenario = scenario_of_turns(1, 9, 100);
    scenario.then(called(2, 1, Purpose::Compaction)).then(heard("And B?"));
    scenario.then(replied(2, "Sum.", &[])).then(compacted("Sum.", 2));
    assert_eq!(user_messages(&scenario.state).last().unwrap(), "And B?");
    assert!(scenario.state.has_unread_input());
    scenario.next(Step::CallModel(Purpose::Turn));
}

#[test]
fn overflowing_task_ends_at_once() {
    let mut scenario =
        Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), failed(1, 1, overflow())]);
    let failed = Status::Failed { cause: "too long".to_owned() };
    scenario.next(Step::End(Outcome::new(failed, ""))).refuses(called(1, 2, Purpose::Compaction)).ends();
}

#[test]
fn overflow_after_compaction_ends() {
    let mut scenario = scenario_of_turns(1, 9, 100);
    scenario.then(called(2, 1, Purpose::Turn)).then(failed(2, 1, overflow()));
    scenario.then(called(2, 2, Purpose::Compaction)).then(replied(2, "Sum.", &[])).then(compacted("Sum.", 2));
    scenario.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, overflow()));
    let failed = Status::Failed { cause: "too long".to_owned() };
    scenario.next(Step::End(Outcome::new(failed, "turn 1"))).ends();
}

#[test]
fn overflowing_compaction_shrinks_its_input_and_then_fails() {
    let mut scenario = scenario_of_turns(2, 9, 10_000);
    scenario.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, overflow()));
    let mut last = usize::MAX;
    for attempt in 2..=6 {
        scenario.next(Step::CallModel(Purpose::Compaction));
        let size = scenario.state.compaction_input(&cost_model(16_000)).text.len();
        assert!(size < last, "{size}");
        last = size;
        scenario.then(called(3, attempt, Purpose::Compaction)).then(failed(3, attempt, overflow()));
    }
    let Step::End(outcome) = scenario.state.next() else { panic!("it continues") };
    assert!(matches!(outcome.status, Status::Failed { .. }), "{outcome:?}");
    scenario.ends();
}

#[test]
fn fallback_model_gets_the_input_of_a_first_overflow() {
    let mut scenario = scenario_of_turns(2, 9, 10_000);
    scenario.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, overflow()));
    let first = scenario.state.compaction_input(&cost_model(16_000));
    for attempt in 2..=3 {
        scenario.then(called(3, attempt, Purpose::Compaction)).then(failed(3, attempt, overflow()));
    }
    assert!(scenario.state.compaction_input(&cost_model(16_000)).text.len() < first.text.len());
    scenario.then(called(3, 4, Purpose::Compaction)).then(failed(3, 4, model_given_up()));
    assert_eq!(scenario.state.compaction_input(&cost_model(16_000)), first);
    scenario.next(Step::CallModel(Purpose::Compaction));
}

/// Start of a round that ends with a report.
fn started_with_report(turns: u32) -> Event {
    let delegation = Delegation { report: Some("Report.".into()), ..task("Do it") };
    Event::Started {
        delegation: delegation.into(),
        agent: Hash::of(b"agent"),
        grant: grant(turns, LARGE_BUDGET),
        parent: None,
        depth: 0,
    }
}

#[test]
fn message_after_the_report_is_bound_by_the_turn_limit() {
    let reported = |turns| {
        let mut scenario = Scenario::of([started_with_report(turns), called(1, 1, Purpose::Turn)]);
        scenario.then(replied(1, "Done.", &[])).then(called(2, 1, Purpose::Summary));
        scenario.then(replied(2, "All.", &[])).next(done("All.")).then(heard("And B?"));
        scenario
    };
    reported(2).next(Step::CallModel(Purpose::Turn));
    reported(1).next(incomplete(LimitKind::Turns, "All.")).ends();
}

#[test]
fn overflowing_report_is_requested_again_after_compaction() {
    let started = started_with_report(9);
    let mut scenario =
        Scenario::of([started, called(1, 1, Purpose::Turn), replied(1, "", &["x"]), tool_ended(1, 0, "y")]);
    scenario.then(called(2, 1, Purpose::Turn)).then(replied(2, "Done.", &[]));
    scenario.next(Step::CallModel(Purpose::Summary)).then(called(3, 1, Purpose::Summary));
    scenario.then(failed(3, 1, overflow())).next(Step::CallModel(Purpose::Compaction));
    assert_eq!(scenario.state.compaction_input(&cost_model(1000)).keep_from, 2, "the answer itself stays");
    scenario.then(called(3, 2, Purpose::Compaction)).then(replied(3, "Sum.", &[])).then(compacted("Sum.", 2));
    assert_eq!(user_messages(&scenario.state).last().unwrap(), "Report.");
    scenario.crash().next(Step::CallModel(Purpose::Summary)).then(called(4, 1, Purpose::Summary));
    scenario.then(replied(4, "All.", &[])).next(done("All.")).ends();
}

#[test]
fn should_compact_counts_only_compactable_text() {
    let scenario = scenario_of_turns(6, 9, 2000);
    // Six times 2,000 bytes are about 4,000 tokens.
    assert!(scenario.state.should_compact(&cost_model(4_200)));
    assert!(!scenario.state.should_compact(&cost_model(12_000)), "there is room");
    assert!(
        !scenario.state.should_compact(&CostModel { window: None, ..cost_model(0) }),
        "nobody knows the window"
    );
    let task = Event::Started {
        delegation: task(&"x".repeat(20_000)).into(),
        agent: Hash::of(b"agent"),
        grant: grant(9, LARGE_BUDGET),
        parent: None,
        depth: 0,
    };
    let mut scenario = Scenario::of([task, called(1, 1, Purpose::Turn)]);
    scenario.then(Event::Replied {
        turn: 1,
        reply: reply("", &["x"]),
        spent: Spent::default(),
        waited_ms: 0,
    });
    scenario.then(tool_ended(1, 0, "short"));
    assert!(
        !scenario.state.should_compact(&cost_model(6_000)),
        "a summary of a short turn would gain nothing"
    );
}

#[test]
fn compaction_keeps_the_newest_turns() {
    let scenario = scenario_of_turns(6, 9, 2000);
    let digest = scenario.state.compaction_input(&cost_model(20_000));
    // A quarter of the window, in bytes, holds two turns.
    assert_eq!(digest.keep_from, 5);
    assert!(digest.text.contains("turn 4") && !digest.text.contains("turn 5"));
    assert!(digest.text.contains("Do it") && digest.text.contains("The agent calls x"));
}

#[test]
fn max_output_is_limited_by_the_window() {
    let scenario = scenario_of_turns(6, 9, 2000);
    let output = |window| {
        let cost_model = CostModel { max_output: 4_000, ..cost_model(window) };
        scenario.state.worst_case(&cost_model, Purpose::Turn).unwrap().max_output
    };
    assert_eq!(output(20_000), 4_000);
    assert_eq!(output(5_300), 1_280, "12,059 bytes are about 4,020 tokens");
    assert_eq!(output(100), 1_024, "how full the window is, is an estimate");
}

#[test]
fn failed_model_falls_back_to_the_next() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    for attempt in 1..=3 {
        scenario.then(called(1, attempt, Purpose::Turn)).then(failed(1, attempt, transient()));
    }
    scenario.then(called(1, 4, Purpose::Turn)).then(failed(1, 4, model_given_up()));
    assert_eq!((scenario.state.fallback_index(), scenario.state.faults()), (1, 0));
    scenario.crash().next(Step::CallModel(Purpose::Turn));
    assert_eq!(scenario.state.fallback_index(), 1);
    scenario.then(called(1, 5, Purpose::Turn)).then(replied(1, "Ok.", &[])).next(done("Ok.")).ends();
    assert_eq!(scenario.state.fallback_index(), 1, "it stays so for the round");
    scenario.then(heard("More")).then(started(9, LARGE_BUDGET));
    assert_eq!(scenario.state.fallback_index(), 0, "a next round begins with the first");
}

#[test]
fn unread_results_are_not_compacted() {
    let mut scenario = scenario_of_turns(3, 9, 100);
    scenario.then(called(4, 1, Purpose::Turn)).then(replied(4, "", &["x"])).then(tool_ended(
        4,
        0,
        &"y".repeat(50_000),
    ));
    let digest = scenario.state.compaction_input(&cost_model(8_000));
    assert_eq!(digest.keep_from, 4);
    scenario.then(called(5, 1, Purpose::Turn)).then(failed(5, 1, overflow()));
    assert_eq!(
        scenario.state.compaction_input(&cost_model(8_000)).keep_from,
        5,
        "unless they do not fit at all"
    );
}

#[test]
fn fallback_model_resets_the_token_count() {
    let mut scenario = scenario_of_turns(1, 9, 3_000);
    scenario.then(called(2, 1, Purpose::Turn)).then(Event::Replied {
        turn: 2,
        reply: reply("", &["x"]),
        spent: used(100),
        waited_ms: 0,
    });
    scenario.then(tool_ended(2, 0, ""));
    let input = |scenario: &Scenario| {
        let worst = scenario.state.worst_case(&cost_model(100_000), Purpose::Turn).unwrap();
        worst.amount.tokens - worst.max_output
    };
    assert_eq!(input(&scenario), 100, "as it was reported");
    scenario.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, model_given_up()));
    assert!(input(&scenario) > 1_500, "from the bytes, at most");
}

#[test]
fn wrap_up_falls_back_to_the_next_model() {
    let mut scenario = scenario_of_turns(1, 1, 10);
    scenario.next(Step::CallModel(Purpose::Grace)).then(called(2, 1, Purpose::Grace)).then(failed(
        2,
        1,
        model_given_up(),
    ));
    scenario.crash().next(Step::CallModel(Purpose::Grace)).then(called(2, 2, Purpose::Grace));
    scenario.then(replied(2, "Half.", &[])).next(incomplete(LimitKind::Turns, "Half.")).ends();
}

#[test]
fn calls_in_a_refusal_are_not_run() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    let refused = Reply { stop: crate::message::Stop::Refusal, ..reply("No.", &["x"]) };
    scenario.then(Event::Replied { turn: 1, reply: refused, spent: used(1), waited_ms: 0 });
    scenario.refuses(tool_started(1, 0)).next(Step::CallModel(Purpose::Turn));
}

#[test]
fn agent_stopped_by_a_denied_permission_is_incomplete() {
    let denied = || {
        let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
        let reply = Reply { stop: crate::message::Stop::Denied, ..reply("I cannot.", &[]) };
        scenario.then(Event::Replied { turn: 1, reply, spent: used(1), waited_ms: 0 });
        scenario
    };
    let mut scenario = denied();
    let done = Outcome::new(Status::Done, "I cannot.");
    scenario.refuses(Event::Ended { outcome: done, spent: used(1) });
    scenario.crash().next(incomplete(LimitKind::Permission, "I cannot.")).ends();
    // Messages that arrived in the meantime are answered, and that answer counts.
    let mut scenario = denied();
    scenario.then(Event::Heard { from: Speaker::Person, text: "Do it without.".into() });
    scenario.next(Step::CallModel(Purpose::Turn)).then(called(2, 1, Purpose::Turn)).then(replied(
        2,
        "Done.",
        &[],
    ));
    scenario.next(Step::End(Outcome::new(Status::Done, "Done."))).ends();
}

#[test]
fn failed_call_beyond_the_grant_ends_the_round() {
    let mut scenario = Scenario::of([started(9, tokens_only(100)), called(1, 1, Purpose::Turn)]);
    let spent = Spent { overrun: tokens(50), ..used(150) };
    scenario.then(Event::call_failed(1, 1, transient(), spent));
    scenario.next(incomplete(LimitKind::Tokens, "")).ends();
}
