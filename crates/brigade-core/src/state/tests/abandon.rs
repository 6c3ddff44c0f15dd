//! Rounds that end without finishing their open work.

use std::collections::BTreeMap;

use super::*;

const CAUSE: &str = "the process was killed";

/// Abandons the round, and returns the kinds of the events and the state after them.
fn abandoned(state: &State, known: &BTreeMap<SessionId, (Outcome, Spent)>) -> (Vec<&'static str>, State) {
    let events = state.abandon(CAUSE, known);
    let mut after = state.clone();
    for event in &events {
        assert!(after.admits(event), "{event:?}");
        after.apply(event);
    }
    (events.iter().map(Event::kind).collect(), after)
}

fn lost(text: &str) -> Outcome {
    Outcome::new(Status::Lost { cause: CAUSE.to_owned() }, text)
}

#[test]
fn round_with_an_open_model_call_ends_as_lost() {
    let mut scenario = worked_once();
    scenario.then(called(2, 1, Purpose::Turn));
    let (kinds, after) = abandoned(&scenario.state, &BTreeMap::new());
    assert_eq!(kinds, ["call_failed", "ended"]);
    assert_eq!(after.ended(), Some(&lost("Working.")));
    assert_eq!(after.ledger().spent().unconfirmed, tokens(100), "the reply may still be billed");
}

#[test]
fn round_with_open_children_and_tools_returns_their_loans() {
    let lent = tokens(40);
    let (before, after, lines) = (None, None, None);
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "Working.", &["delegate", "delegate", "remote", "shell"]),
        delegated(1, 0, loan(50)),
        delegated(1, 1, loan(60)),
    ]);
    let (remote, effect) = (call(1, 2), Effect::Opaque);
    scenario.then(Event::ToolStarted { call: remote, effect, before, after, lent, lines });
    let known = (Outcome::new(Status::Done, "helped"), used(7));
    let known = BTreeMap::from([(root().child(call(1, 1)), known)]);
    let (kinds, after) = abandoned(&scenario.state, &known);
    let ends = ["tool_ended"; 4];
    assert_eq!(kinds[..2], ["returned", "returned"]);
    assert_eq!((&kinds[2..6], kinds[6]), (&ends[..], "ended"));
    assert_eq!(after.ended(), Some(&lost("Working.")));
    let spent = after.ledger().spent();
    // The child without a known result may have used its loan; itself it counts once.
    assert_eq!((spent.unconfirmed, spent.agents), (tokens(50 + 40), 2));
    assert_eq!((spent.usage.input, after.ledger().lent()), (10 + 7, Resources::default()));
    let Some(Message::Results(results)) = after.messages().into_iter().next_back() else { panic!() };
    for result in results {
        let text = result.output.text.to_string();
        assert_eq!(text, "interrupted, outcome unknown: the process was killed");
        assert!(result.output.is_error());
    }
}

#[test]
fn round_that_is_not_open_is_not_abandoned() {
    assert!(State::new(root()).abandon(CAUSE, &BTreeMap::new()).is_empty());
    let mut scenario =
        Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied(1, "Answer.", &[])]);
    scenario.ends();
    assert!(scenario.state.abandon(CAUSE, &BTreeMap::new()).is_empty());
}
