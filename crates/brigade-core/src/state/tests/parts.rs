//! Parts of a round on their own: repeats, the report, model calls and the transcript.

use super::*;
use crate::state::model_calls::ModelCalls;
use crate::state::repeats::Repeats;
use crate::state::report::Report;

#[test]
fn repeats_count_equal_exchanges_in_a_row() {
    let (one, other) = (Some(Hash::of(b"one")), Some(Hash::of(b"other")));
    let mut repeats = Repeats::default();
    for (exchange, count) in [(one, 1), (one, 2), (other, 1), (other, 2), (other, 3), (None, 1), (None, 1)] {
        repeats.turn_ended(exchange);
        assert_eq!(repeats.count(), count);
    }
}

#[test]
fn warning_counts_only_after_a_repetition() {
    let mut repeats = Repeats::default();
    repeats.turn_ended(Some(Hash::of(b"one")));
    repeats.mark_warned();
    assert!(!repeats.is_warned());
    repeats.turn_ended(Some(Hash::of(b"one")));
    repeats.mark_warned();
    assert!(repeats.is_warned());
    repeats.turn_ended(Some(Hash::of(b"one")));
    assert!(repeats.is_warned());
    repeats.turn_ended(Some(Hash::of(b"other")));
    assert!(!repeats.is_warned());
}

#[test]
fn report_ends_the_task_phase_until_new_input_arrives() {
    for (report, without_input, with_input) in [
        (Report::NotRequired, true, true),
        (Report::Due, true, true),
        (Report::Requested, false, false),
        (Report::Done, false, true),
    ] {
        assert_eq!((report.in_task_phase(false), report.in_task_phase(true)), (without_input, with_input));
    }
}

#[test]
fn abandoned_report_is_done_only_if_it_was_requested() {
    for (report, abandoned, closed) in [
        (Report::NotRequired, Report::NotRequired, Report::NotRequired),
        (Report::Due, Report::Due, Report::Done),
        (Report::Requested, Report::Done, Report::Done),
        (Report::Done, Report::Done, Report::Done),
    ] {
        let (mut first, mut second) = (report, report);
        first.abandon();
        second.close();
        assert_eq!((first, second), (abandoned, closed));
    }
}

#[test]
fn summary_reply_does_not_reset_overflows() {
    for (purpose, left) in [(Purpose::Turn, 0), (Purpose::Compaction, 2)] {
        let mut calls = ModelCalls { overflows: 2, last_purpose: Some(purpose), ..ModelCalls::default() };
        calls.replied();
        assert_eq!(calls.overflows, left, "{purpose:?}");
    }
}

#[test]
fn fault_is_fatal_after_the_last_attempt_or_without_a_way_to_compact() {
    let overflow = CallFault::Overflow { message: "too long".to_owned() };
    let calls = |fault: &CallFault, faults: u32, overflows: u32| {
        let fault = Some(fault.clone());
        ModelCalls { fault, faults, overflows, ..ModelCalls::default() }
    };
    let fatal = |calls: ModelCalls| calls.fatal_error(true);
    assert_eq!(fatal(calls(&transient(), MAX_ATTEMPTS - 1, 0)), None);
    let after = format!("overloaded (after {MAX_ATTEMPTS} attempts)");
    assert_eq!(fatal(calls(&transient(), MAX_ATTEMPTS, 0)), Some(after));
    assert_eq!(
        (fatal(calls(&overflow, 0, 5)), fatal(calls(&overflow, 0, 6))),
        (None, Some("too long".into()))
    );
    assert_eq!(calls(&overflow, 0, 1).fatal_error(false), Some("too long".to_owned()));
    assert_eq!(fatal(calls(&CallFault::Interrupted, 9, 9)), None);
}

#[test]
fn exchange_of_a_reply_without_calls_is_none() {
    let mut transcript = Transcript::default();
    assert_eq!(transcript.last_exchange(), None);
    transcript.replied(1, &reply("Answer.", &[]), Usage::default());
    assert_eq!(transcript.last_exchange(), None);
    transcript.replied(2, &reply("", &["read"]), Usage::default());
    let unanswered = transcript.last_exchange().unwrap();
    transcript.answered(call(1, 0), &ToolOutput::ok("of an earlier turn"));
    assert_eq!(transcript.last_exchange(), Some(unanswered));
    transcript.answered(call(2, 0), &ToolOutput::ok("text"));
    let answered = transcript.last_exchange().unwrap();
    transcript.answered(call(2, 0), &ToolOutput::error("text"));
    let hashes = [unanswered, answered, transcript.last_exchange().unwrap()];
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2]);
}

#[test]
fn task_message_contains_context_and_schema_if_they_are_given() {
    let messages = |delegation: Delegation| {
        let mut transcript = Transcript::default();
        transcript.task(&delegation);
        (transcript.messages(), transcript.unread())
    };
    let user = |text: &str| (vec![Message::User(text.into())], 1);
    let with = |context: &str| Delegation { context: Some(context.into()), ..task("Do it") };
    assert_eq!(messages(task("Do it")), user("Do it"));
    assert_eq!(messages(with("")), user("Do it"));
    assert_eq!(messages(with("Background.")), user("Do it\n\nContext:\nBackground."));
    let schema = Delegation { schema: Some("{}".into()), ..task("Do it") };
    let expected = "Do it\n\nReply with JSON only, with no other text. It must match this JSON Schema:\n{}";
    assert_eq!(messages(schema), user(expected));
    assert_eq!(messages(task("")), (vec![], 0));
}

#[test]
fn compaction_keeps_the_task_wherever_it_is() {
    let mut transcript = Transcript::default();
    transcript.task(&task("First"));
    for turn in 1..=2 {
        transcript.replied(turn, &reply("Answer.", &["x"]), Usage::default());
    }
    transcript.task(&task("Second"));
    transcript.compact(&"One turn.".into(), 2);
    let second = Message::User("Second".into());
    assert_eq!(transcript.messages().last(), Some(&second));
    // The task is now behind a summary and a turn. A further summary replaces both.
    transcript.replied(3, &reply("", &["x"]), Usage::default());
    transcript.compact(&"Three turns.".into(), 4);
    let summary = Message::User("Summary of the conversation before this point:\nThree turns.".into());
    assert_eq!(transcript.messages(), [second, summary]);
}
