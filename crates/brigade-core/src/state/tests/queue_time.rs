//! Time in the queue of a provider.

use super::*;

#[test]
fn queue_time_is_summed_over_a_round() {
    let mut scenario = Scenario::of([started(5, LARGE_BUDGET)]);
    let failed = Event::CallFailed {
        turn: 1,
        attempt: 1,
        cause: transient(),
        spent: Spent::default(),
        partial: None,
        waited_ms: 1_500,
    };
    let replied = Event::Replied { turn: 1, reply: reply("Done.", &[]), spent: used(10), waited_ms: 400 };
    scenario.then(called(1, 1, Purpose::Turn)).then(failed);
    scenario.then(called(1, 2, Purpose::Turn)).then(replied);
    assert_eq!(scenario.state.waited_ms(), 1_900);
    scenario.then(ended(Status::Done, "Done.")).then(started(5, LARGE_BUDGET));
    assert_eq!(scenario.state.waited_ms(), 0, "a next round has a deadline of its own");
}

#[test]
fn queue_time_of_zero_is_not_stored() {
    let json = serde_json::to_value(replied(1, "Done.", &[])).unwrap();
    assert!(json.get("waited_ms").is_none(), "{json}");
    let event = Event::Replied { turn: 1, reply: reply("", &[]), spent: used(1), waited_ms: 7 };
    assert_eq!(serde_json::to_value(&event).unwrap()["waited_ms"], 7);
    assert_eq!(serde_json::from_value::<Event>(json).unwrap(), replied(1, "Done.", &[]));
}
