//! Rounds after the first.

use super::*;

#[test]
fn failed_round_has_no_text_of_an_earlier_one() {
    let mut scenario = Scenario::of([started(5, LARGE_BUDGET)]);
    scenario.then(called(1, 1, Purpose::Turn)).then(replied(1, "The first answer.", &[]));
    scenario.then(ended(Status::Done, "The first answer."));
    scenario
        .then(Event::Heard { from: Speaker::Person, text: "And now?".into() })
        .then(started(5, LARGE_BUDGET));
    let cause = CallFault::Fatal { message: "no such model".to_owned() };
    scenario.then(called(2, 1, Purpose::Turn)).then(failed(2, 1, cause));
    let Step::End(outcome) = scenario.state.next() else { panic!("it does not end") };
    assert!(matches!(outcome.status, Status::Failed { .. }), "{outcome:?}");
    assert_eq!(outcome.text.as_str(), "");
}

#[test]
fn failed_round_keeps_its_own_text() {
    let mut scenario = Scenario::of([started(5, LARGE_BUDGET)]);
    scenario
        .then(called(1, 1, Purpose::Turn))
        .then(replied(1, "Half of it.", &["x"]))
        .then(tool_ended(1, 0, "y"));
    let cause = CallFault::Fatal { message: "no such model".to_owned() };
    scenario.then(called(2, 1, Purpose::Turn)).then(failed(2, 1, cause));
    let Step::End(outcome) = scenario.state.next() else { panic!("it does not end") };
    assert_eq!(outcome.text.as_str(), "Half of it.");
}
