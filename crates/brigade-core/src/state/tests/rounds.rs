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

/// Events of a round that leave every kind of data behind, with open work that no runner would leave.
fn untidy_round() -> Vec<Event> {
    let overflow = CallFault::Overflow { message: "too long".to_owned() };
    let given_up = CallFault::GivenUp { message: "gone".to_owned(), next: "second".to_owned() };
    let seen = crate::seen::SeenFile {
        path: "a".to_owned(),
        hash: Hash::of(b"content"),
        extent: crate::seen::Extent::Whole,
    };
    let asked = Event::Asked {
        call: call(1, 0),
        what: "ls".into(),
        why: String::new(),
        always: None,
        until: 9,
        default: Answer::Once,
    };
    let always = Answer::Always("shell(ls)".to_owned());
    vec![
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        Event::Replied { turn: 1, reply: reply("", &["shell", "x"]), spent: used(10), waited_ms: 40 },
        asked,
        Event::Answered { call: call(1, 0), answer: always, by: "me".to_owned() },
        Event::ToolEnded {
            call: call(1, 0),
            output: ToolOutput::ok("y"),
            spent: used(3),
            seen: Some(Box::new(seen)),
        },
        delegated(1, 1, loan(50)),
        returned(1, 1, used(5)),
        delegated(1, 1, loan(70)),
        called(2, 1, Purpose::Turn),
        failed(2, 1, overflow),
        failed(2, 1, given_up),
        called(2, 2, Purpose::Turn),
        failed(2, 2, transient()),
        called(3, 1, Purpose::Summary),
        cancel(),
        limit_reached(LimitKind::Time),
    ]
}

#[test]
fn new_round_starts_without_data_of_the_last_one() {
    let mut state = State::fold(root(), &untidy_round());
    assert_eq!((state.waited_ms(), state.loans().len(), state.unanswered_count()), (40, 1, 1));
    assert_eq!((state.fallback_index(), state.transient_fault()), (1, Some("overloaded")));
    assert!(state.open_call().is_some() && state.stop_reason().is_some() && state.cancelled().is_some());
    state.apply(&started(2, tokens_only(500)));
    assert!(state.is_running() && state.open_call().is_none() && !state.has_called_model());
    assert_eq!((state.waited_ms(), state.loans().len(), state.unanswered()), (0, 0, vec![]));
    assert_eq!((state.fallback_index(), state.faults(), state.transient_fault()), (0, 0, None));
    assert_eq!((state.reminders(), state.repeats(), state.stop_initiator()), (0, 0, None));
    assert_eq!((state.stop_reason(), state.recorded_limit(), state.exceeded_limit()), (None, None, None));
    assert_eq!((state.ledger().granted(), state.ledger().committed()), (tokens_only(500), tokens(0)));
    assert_eq!(state.next(), Step::CallModel(Purpose::Turn));
}

#[test]
fn new_round_keeps_data_of_the_session() {
    let mut state = State::fold(root(), &untidy_round());
    state.apply(&started(2, LARGE_BUDGET));
    let log_length = untidy_round().len() as u64 + 1;
    assert_eq!((state.rounds(), state.length()), (2, log_length));
    assert_eq!(state.always_allowed(), ["shell(ls)".parse().unwrap()]);
    assert!(state.seen("a").is_some());
    assert_eq!(state.longest_result(), "helped".len());
    // The number of a turn is not used again, answered or not.
    assert_eq!(state.next_attempt(), (4, 1));
    assert!(user_messages(&state).len() > 1);
}
