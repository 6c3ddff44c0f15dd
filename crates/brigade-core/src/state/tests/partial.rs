//! Partial text of replies that were stopped.

use super::*;

fn stopped_with_partial(turn: u32, attempt: u32, text: &str) -> Event {
    let (cause, spent) = (CallFault::Stopped, Spent::unconfirmed(tokens(100)));
    Event::CallFailed { turn, attempt, cause, spent, partial: Some(text.into()), waited_ms: 0 }
}

/// Session whose second turn is being answered.
fn second_turn() -> Scenario {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "First.", &["shell"]),
    ]);
    scenario.then(tool_ended(1, 0, "ran")).then(called(2, 1, Purpose::Turn));
    scenario
}

#[test]
fn cancel_while_the_model_answers_keeps_the_partial_text() {
    let mut scenario = second_turn();
    scenario.then(cancel());
    let request = scenario.state.messages();
    scenario.then(stopped_with_partial(2, 1, "Second, and")).next(cancelled("Second, and"));
    assert_eq!(scenario.state.messages(), request, "requests carry whole replies only");
    scenario.crash().next(cancelled("Second, and")).ends();
}

#[test]
fn cancel_before_any_text_keeps_the_last_whole_text() {
    let mut scenario = second_turn();
    scenario.then(cancel()).then(stopped_with_partial(2, 1, "")).next(cancelled("First.")).ends();
}

#[test]
fn time_limit_keeps_the_partial_text_until_the_wrap_up() {
    let mut scenario = second_turn();
    scenario.then(limit_reached(LimitKind::Time)).then(stopped_with_partial(2, 1, "Half of"));
    scenario.next(Step::CallModel(Purpose::Grace)).then(called(2, 2, Purpose::Grace));
    let mut hurried = scenario.clone();
    hurried.then(failed(2, 2, CallFault::Stopped)).next(incomplete(LimitKind::Time, "Half of"));
    scenario.then(replied(2, "In short.", &[])).next(incomplete(LimitKind::Time, "In short."));
}

#[test]
fn partial_text_of_a_stored_event_is_optional() {
    let old = r#"{"type":"call_failed","turn":1,"attempt":1,"cause":{"kind":"stopped"},"spent":{}}"#;
    let event: Event = serde_json::from_str(old).unwrap();
    assert_eq!(event, Event::call_failed(1, 1, CallFault::Stopped, Spent::default()));
    assert!(!serde_json::to_string(&event).unwrap().contains("partial"));
}
