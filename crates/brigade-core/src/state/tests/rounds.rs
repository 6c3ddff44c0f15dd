//! Rounds after the first.

use super::*;

#[test]
fn a_failed_round_has_no_text_of_an_earlier_one() {
    let mut story = Story::of([started(5, ROOMY)]);
    story.then(called(1, 1, Purpose::Turn)).then(replied(1, "The first answer.", &[]));
    story.then(ended(Status::Done, "The first answer."));
    story.then(Event::Heard { from: Speaker::Person, text: "And now?".into() }).then(started(5, ROOMY));
    let cause = CallFault::Fatal { message: "no such model".to_owned() };
    story.then(called(2, 1, Purpose::Turn)).then(failed(2, 1, cause));
    let Step::End(outcome) = story.state.next() else { panic!("it does not end") };
    assert!(matches!(outcome.status, Status::Failed { .. }), "{outcome:?}");
    assert_eq!(outcome.text.as_str(), "");
}

#[test]
fn a_failed_round_keeps_its_own_text() {
    let mut story = Story::of([started(5, ROOMY)]);
    story
        .then(called(1, 1, Purpose::Turn))
        .then(replied(1, "Half of it.", &["x"]))
        .then(tool_ended(1, 0, "y"));
    let cause = CallFault::Fatal { message: "no such model".to_owned() };
    story.then(called(2, 1, Purpose::Turn)).then(failed(2, 1, cause));
    let Step::End(outcome) = story.state.next() else { panic!("it does not end") };
    assert_eq!(outcome.text.as_str(), "Half of it.");
}
