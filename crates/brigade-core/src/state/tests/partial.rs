//! Text of replies that were stopped before their end.

use super::*;

fn broke_off(turn: u32, attempt: u32, text: &str) -> Event {
    let (cause, spent) = (CallFault::Stopped, Spent::doubtful(tokens(100)));
    Event::CallFailed { turn, attempt, cause, spent, partial: Some(text.into()), waited_ms: 0 }
}

/// A session whose second turn is being answered.
fn second_turn() -> Story {
    let mut story =
        Story::of([started(9, ROOMY), called(1, 1, Purpose::Turn), replied(1, "First.", &["shell"])]);
    story.then(tool_ended(1, 0, "ran")).then(called(2, 1, Purpose::Turn));
    story
}

#[test]
fn cancel_while_the_model_answers_keeps_the_partial_text() {
    let mut story = second_turn();
    story.then(cancel());
    let request = story.state.messages();
    story.then(broke_off(2, 1, "Second, and")).next(cancelled("Second, and"));
    assert_eq!(story.state.messages(), request, "requests carry whole replies only");
    story.crash().next(cancelled("Second, and")).ends();
}

#[test]
fn cancel_before_any_text_keeps_the_last_whole_text() {
    let mut story = second_turn();
    story.then(cancel()).then(broke_off(2, 1, "")).next(cancelled("First.")).ends();
}

#[test]
fn time_limit_while_the_model_answers_keeps_the_partial_text_until_the_last_word() {
    let mut story = second_turn();
    story.then(limit_reached(Which::Time)).then(broke_off(2, 1, "Half of"));
    story.next(Step::CallModel(Purpose::Grace)).then(called(2, 2, Purpose::Grace));
    let mut hurried = Story { log: story.log.clone(), state: story.state.clone() };
    hurried.then(failed(2, 2, CallFault::Stopped)).next(incomplete(Which::Time, "Half of"));
    story.then(replied(2, "In short.", &[])).next(incomplete(Which::Time, "In short."));
}

#[test]
fn partial_text_of_a_stored_event_is_optional() {
    let old = r#"{"type":"call_failed","turn":1,"attempt":1,"cause":{"kind":"stopped"},"spent":{}}"#;
    let event: Event = serde_json::from_str(old).unwrap();
    assert_eq!(event, Event::call_failed(1, 1, CallFault::Stopped, Spent::default()));
    assert!(!serde_json::to_string(&event).unwrap().contains("partial"));
}
