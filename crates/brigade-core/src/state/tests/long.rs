//! Conversations that grow too long for their model, and models that others stand in for.

use super::*;

fn overflow() -> CallFault {
    CallFault::Overflow { message: "too long".to_owned() }
}

fn given_up() -> CallFault {
    CallFault::GivenUp { message: "no such model".to_owned(), next: "other/model".to_owned() }
}

fn compacted(summary: &str, keep_from: u32) -> Event {
    Event::Compacted { summary: summary.into(), keep_from }
}

fn meter(window: u64) -> Meter {
    Meter { price: Price::default(), fixed_bytes: 0, max_output: 100, window: Some(window) }
}

/// A story of turns with one tool call each, whose results have this many bytes.
fn long(turns: u32, limit: u32, bytes: usize) -> Story {
    let mut story = Story::of([started(limit, ROOMY)]);
    for turn in 1..=turns {
        story.then(called(turn, 1, Purpose::Turn));
        story.then(Event::Replied {
            turn,
            reply: reply(&format!("turn {turn}"), &["x"]),
            spent: Spent::default(),
            waited_ms: 0,
        });
        story.then(tool_ended(turn, 0, &"y".repeat(bytes)));
    }
    story
}

#[test]
fn what_is_too_long_is_summarised_and_asked_again() {
    let mut story = long(2, 3, 100);
    story.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, overflow()));
    story.crash().next(Step::CallModel(Purpose::Compaction));
    story
        .then(called(3, 2, Purpose::Compaction))
        .then(replied(3, "Two turns.", &[]))
        .then(compacted("Two turns.", 3));
    // The turn that did not fit does not count: the limit of three leaves room for it.
    story.crash().next(Step::CallModel(Purpose::Turn));
    story.then(called(4, 1, Purpose::Turn)).then(replied(4, "Done.", &[])).next(done("Done.")).ends();
    assert_eq!(users(&story.state)[0], "Do it");
    assert!(users(&story.state)[1].ends_with("Two turns."));
}

#[test]
fn a_summary_is_no_turn_and_no_part_of_the_conversation() {
    let mut story = long(1, 2, 100);
    story.then(called(2, 1, Purpose::Compaction)).then(replied(2, "Sum.", &["x"])).then(compacted("Sum.", 2));
    story.next(Step::CallModel(Purpose::Turn));
    assert!(
        story.state.messages().iter().all(|message| matches!(message, Message::User(_))),
        "its calls are nothing"
    );
    story.then(called(3, 1, Purpose::Turn)).then(replied(3, "", &["x"])).then(tool_ended(3, 0, ""));
    story.next(Step::CallModel(Purpose::Grace));
}

#[test]
fn words_that_come_while_a_summary_is_made_are_heard_after_it() {
    let mut story = long(1, 9, 100);
    story.then(called(2, 1, Purpose::Compaction)).then(heard("And B?"));
    story.then(replied(2, "Sum.", &[])).then(compacted("Sum.", 2));
    assert_eq!(users(&story.state).last().unwrap(), "And B?");
    assert!(story.state.has_unheard_words());
    story.next(Step::CallModel(Purpose::Turn));
}

#[test]
fn a_task_that_is_too_long_by_itself_ends_at_once() {
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), failed(1, 1, overflow())]);
    let failed = Status::Failed { cause: "too long".to_owned() };
    story.next(Step::End(Outcome::new(failed, ""))).refuses(called(1, 2, Purpose::Compaction)).ends();
}

#[test]
fn what_is_too_long_even_as_a_summary_ends() {
    let mut story = long(1, 9, 100);
    story.then(called(2, 1, Purpose::Turn)).then(failed(2, 1, overflow()));
    story.then(called(2, 2, Purpose::Compaction)).then(replied(2, "Sum.", &[])).then(compacted("Sum.", 2));
    story.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, overflow()));
    let failed = Status::Failed { cause: "too long".to_owned() };
    story.next(Step::End(Outcome::new(failed, "turn 1"))).ends();
}

#[test]
fn a_summary_that_does_not_fit_is_made_from_less_and_less_and_then_given_up() {
    let mut story = long(2, 9, 10_000);
    story.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, overflow()));
    let mut last = usize::MAX;
    for attempt in 2..=6 {
        story.next(Step::CallModel(Purpose::Compaction));
        let size = story.state.digest(&meter(16_000)).text.len();
        assert!(size < last, "{size}");
        last = size;
        story.then(called(3, attempt, Purpose::Compaction)).then(failed(3, attempt, overflow()));
    }
    let Step::End(outcome) = story.state.next() else { panic!("it goes on") };
    assert!(matches!(outcome.status, Status::Failed { .. }), "{outcome:?}");
    story.ends();
}

#[test]
fn a_report_that_does_not_fit_is_asked_for_again_after_a_summary() {
    let delegation = Delegation { report: Some("Report.".into()), ..task("Do it") };
    let started = Event::Started {
        delegation: delegation.into(),
        agent: Hash::of(b"agent"),
        grant: grant(9, ROOMY),
        parent: None,
        depth: 0,
    };
    let mut story =
        Story::of([started, called(1, 1, Purpose::Turn), replied(1, "", &["x"]), tool_ended(1, 0, "y")]);
    story.then(called(2, 1, Purpose::Turn)).then(replied(2, "Done.", &[]));
    story.next(Step::CallModel(Purpose::Summary)).then(called(3, 1, Purpose::Summary));
    story.then(failed(3, 1, overflow())).next(Step::CallModel(Purpose::Compaction));
    assert_eq!(story.state.digest(&meter(1000)).keep_from, 2, "the answer itself stays");
    story.then(called(3, 2, Purpose::Compaction)).then(replied(3, "Sum.", &[])).then(compacted("Sum.", 2));
    assert_eq!(users(&story.state).last().unwrap(), "Report.");
    story.crash().next(Step::CallModel(Purpose::Summary)).then(called(4, 1, Purpose::Summary));
    story.then(replied(4, "All.", &[])).next(done("All.")).ends();
}

#[test]
fn the_window_is_neared_only_by_what_can_be_summarised() {
    let story = long(6, 9, 2000);
    // Six times 2,000 bytes are about 4,000 tokens.
    assert!(story.state.nears_window(&meter(4_200)));
    assert!(!story.state.nears_window(&meter(12_000)), "there is room");
    assert!(!story.state.nears_window(&Meter { window: None, ..meter(0) }), "nobody knows the window");
    let task = Event::Started {
        delegation: task(&"x".repeat(20_000)).into(),
        agent: Hash::of(b"agent"),
        grant: grant(9, ROOMY),
        parent: None,
        depth: 0,
    };
    let mut story = Story::of([task, called(1, 1, Purpose::Turn)]);
    story.then(Event::Replied { turn: 1, reply: reply("", &["x"]), spent: Spent::default(), waited_ms: 0 });
    story.then(tool_ended(1, 0, "short"));
    assert!(!story.state.nears_window(&meter(6_000)), "a summary of a short turn would gain nothing");
}

#[test]
fn the_newest_turns_stay_whole() {
    let story = long(6, 9, 2000);
    let digest = story.state.digest(&meter(20_000));
    // A quarter of the window, in bytes, holds two turns.
    assert_eq!(digest.keep_from, 5);
    assert!(digest.text.contains("turn 4") && !digest.text.contains("turn 5"));
    assert!(digest.text.contains("Do it") && digest.text.contains("The agent calls x"));
}

#[test]
fn output_is_asked_for_only_as_far_as_the_window_goes() {
    let story = long(6, 9, 2000);
    let output = |window| {
        let meter = Meter { max_output: 4_000, ..meter(window) };
        story.state.worst_case(&meter, Purpose::Turn).unwrap().max_output
    };
    assert_eq!(output(20_000), 4_000);
    assert_eq!(output(5_300), 1_280, "12,059 bytes are about 4,020 tokens");
    assert_eq!(output(100), 1_024, "how full the window is, is an estimate");
}

#[test]
fn a_model_that_is_given_up_is_followed_by_the_next() {
    let mut story = Story::of([started(9, ROOMY)]);
    for attempt in 1..=3 {
        story.then(called(1, attempt, Purpose::Turn)).then(failed(1, attempt, transient()));
    }
    story.then(called(1, 4, Purpose::Turn)).then(failed(1, 4, given_up()));
    assert_eq!((story.state.given_up(), story.state.faults()), (1, 0));
    story.crash().next(Step::CallModel(Purpose::Turn));
    assert_eq!(story.state.given_up(), 1);
    story.then(called(1, 5, Purpose::Turn)).then(replied(1, "Ok.", &[])).next(done("Ok.")).ends();
    assert_eq!(story.state.given_up(), 1, "it stays so for the round");
    story.then(heard("More")).then(started(9, ROOMY));
    assert_eq!(story.state.given_up(), 0, "a next round begins with the first");
}

#[test]
fn results_that_the_model_has_not_seen_are_not_summarised() {
    let mut story = long(3, 9, 100);
    story.then(called(4, 1, Purpose::Turn)).then(replied(4, "", &["x"])).then(tool_ended(
        4,
        0,
        &"y".repeat(50_000),
    ));
    let digest = story.state.digest(&meter(8_000));
    assert_eq!(digest.keep_from, 4);
    story.then(called(5, 1, Purpose::Turn)).then(failed(5, 1, overflow()));
    assert_eq!(story.state.digest(&meter(8_000)).keep_from, 5, "unless they do not fit at all");
}

#[test]
fn another_model_counts_in_its_own_way() {
    let mut story = long(1, 9, 3_000);
    story.then(called(2, 1, Purpose::Turn)).then(Event::Replied {
        turn: 2,
        reply: reply("", &["x"]),
        spent: used(100),
        waited_ms: 0,
    });
    story.then(tool_ended(2, 0, ""));
    let input = |story: &Story| {
        let worst = story.state.worst_case(&meter(100_000), Purpose::Turn).unwrap();
        worst.amount.tokens - worst.max_output
    };
    assert_eq!(input(&story), 100, "as it was reported");
    story.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, given_up()));
    assert!(input(&story) > 1_500, "from the bytes, at most");
}

#[test]
fn a_last_word_is_asked_of_the_model_that_takes_over() {
    let mut story = long(1, 1, 10);
    story.next(Step::CallModel(Purpose::Grace)).then(called(2, 1, Purpose::Grace)).then(failed(
        2,
        1,
        given_up(),
    ));
    story.crash().next(Step::CallModel(Purpose::Grace)).then(called(2, 2, Purpose::Grace));
    story.then(replied(2, "Half.", &[])).next(incomplete(Which::Turns, "Half.")).ends();
}

#[test]
fn calls_of_a_refusal_are_not_run() {
    let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn)]);
    let refused = Reply { stop: crate::message::Stop::Refusal, ..reply("No.", &["x"]) };
    story.then(Event::Replied { turn: 1, reply: refused, spent: used(1), waited_ms: 0 });
    story.refuses(tool_started(1, 0)).next(Step::CallModel(Purpose::Turn));
}

#[test]
fn an_agent_that_ends_after_a_denied_permission_is_incomplete() {
    let denied = || {
        let mut story = Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn)]);
        let reply = Reply { stop: crate::message::Stop::Denied, ..reply("I cannot.", &[]) };
        story.then(Event::Replied { turn: 1, reply, spent: used(1), waited_ms: 0 });
        story
    };
    let mut story = denied();
    let done = Outcome::new(Status::Done, "I cannot.");
    story.refuses(Event::Ended { outcome: done, spent: used(1) });
    story.crash().next(incomplete(Which::Permission, "I cannot.")).ends();
    // Words that came meanwhile are answered, and that answer counts.
    let mut story = denied();
    story.then(Event::Heard { from: Speaker::Person, text: "Do it without.".into() });
    story.next(Step::CallModel(Purpose::Turn)).then(called(2, 1, Purpose::Turn)).then(replied(
        2,
        "Done.",
        &[],
    ));
    story.next(Step::End(Outcome::new(Status::Done, "Done."))).ends();
}

#[test]
fn a_failed_call_that_cost_more_than_the_grant_ends_the_round() {
    let mut story = Story::of([started(9, tokens_only(100)), called(1, 1, Purpose::Turn)]);
    let spent = Spent { overrun: tokens(50), ..used(150) };
    story.then(Event::call_failed(1, 1, transient(), spent));
    story.next(incomplete(Which::Tokens, "")).ends();
}
