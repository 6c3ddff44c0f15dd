//! Children in the foreground and background, detached children, and loans of tools.

use super::*;

fn delegated_as(child: &SessionId, execution: Execution) -> Event {
    let delegation = Delegation { execution, ..task("Help") };
    Event::Delegated {
        call: call(1, 0),
        child: child.clone(),
        delegation: delegation.into(),
        agent: Hash::of(b"helper"),
        grant: grant(5, loan(50)),
    }
}

fn returned_from(child: &SessionId, text: &str) -> Event {
    let outcome = Outcome::new(Status::Done, text);
    Event::Returned { child: child.clone(), outcome, spent: Spent::default(), waited_ms: 0 }
}

fn started_tool(index: u32, lent: u64) -> Event {
    let (before, after, lines) = (None, None, None);
    Event::ToolStarted {
        call: call(1, index),
        effect: Effect::Opaque,
        before,
        after,
        lent: tokens(lent),
        lines,
    }
}

/// Session whose only call has a child in the background, and which has answered since.
fn answered_with(execution: Execution) -> Scenario {
    let child = root().child(call(1, 0));
    Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["delegate"]),
        delegated_as(&child, execution),
        tool_ended(1, 0, "It works in the background."),
        called(2, 1, Purpose::Turn),
        replied(2, "Answer.", &[]),
    ])
}

#[test]
fn session_waits_for_a_background_child_before_it_ends() {
    let child = root().child(call(1, 0));
    let mut scenario = answered_with(Execution::Background);
    scenario.next(Step::Wait).refuses(ended(Status::Done, "Answer."));
    scenario.then(returned_from(&child, "helped")).next(done("Answer."));
}

#[test]
fn session_that_is_done_detaches_its_detachable_children() {
    let child = root().child(call(1, 0));
    answered_with(Execution::Detachable).next(Step::Detach(vec![child]));
}

#[test]
fn session_that_failed_does_not_detach_its_children() {
    let child = root().child(call(1, 0));
    let mut scenario = answered_with(Execution::Detachable);
    let fatal = CallFault::Fatal { message: "no key".to_owned() };
    scenario.then(heard("More?")).then(called(3, 1, Purpose::Turn)).then(failed(3, 1, fatal));
    scenario.next(Step::Wait).then(returned_from(&child, ""));
    scenario.next(Step::End(Outcome::new(Status::Failed { cause: "no key".to_owned() }, "Answer.")));
}

#[test]
fn call_ends_after_all_of_its_foreground_children() {
    let children: Vec<SessionId> = (0..3).map(|index| root().child_of_several(call(1, 0), index)).collect();
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["parallel_subagent"]),
    ]);
    for child in &children {
        scenario.then(delegated_as(child, Execution::Foreground)).refuses(tool_ended(1, 0, "early"));
    }
    let progress = CallProgress::Delegated { children: children.clone(), outstanding: 3 };
    assert_eq!(scenario.state.call(call(1, 0)).unwrap().progress, progress);
    for child in &children {
        scenario.refuses(tool_ended(1, 0, "early")).then(returned_from(child, ""));
    }
    scenario.then(tool_ended(1, 0, "all")).next(Step::CallModel(Purpose::Turn));
}

#[test]
fn call_with_background_children_can_end_at_once() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["delegate"]),
        delegated_as(&root().child_of_several(call(1, 0), 0), Execution::Background),
        delegated_as(&root().child_of_several(call(1, 0), 1), Execution::Background),
    ]);
    scenario.then(tool_ended(1, 0, "They work.")).next(Step::CallModel(Purpose::Turn));
    assert_eq!(scenario.state.loans().len(), 2);
}

#[test]
fn longest_result_is_remembered_when_a_child_first_works_in_the_background() {
    let [first, second] = [0, 1].map(|index| root().child_of_several(call(1, 0), index));
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["delegate"]),
        delegated_as(&first, Execution::Foreground),
        returned_from(&first, "helped"),
    ]);
    assert_eq!(scenario.state.longest_result_before_background(), None);
    scenario.then(delegated_as(&second, Execution::Background));
    assert_eq!(scenario.state.longest_result_before_background(), Some(6));
    scenario.then(returned_from(&second, "helped longer"));
    assert_eq!(scenario.state.longest_result(), 13);
    assert_eq!(scenario.state.longest_result_before_background(), Some(6));
}

#[test]
fn loan_of_a_tool_is_committed_until_the_tool_ends() {
    let mut scenario = Scenario::of([
        started(9, tokens_only(500)),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["remote", "remote"]),
    ]);
    scenario.refuses(started_tool(0, 491)).then(started_tool(0, 400));
    assert_eq!(scenario.state.ledger().lent(), tokens(400));
    // The outcome of the first loan is unknown.
    scenario.refuses(started_tool(0, 1)).refuses(started_tool(1, 91)).then(started_tool(1, 0));
    let spent = Spent { usage: Usage { input: 30, ..Usage::default() }, ..Spent::default() };
    scenario.then(Event::ToolEnded { call: call(1, 0), output: ToolOutput::ok(""), spent, seen: None });
    assert_eq!(scenario.state.ledger().lent(), Resources::default());
    assert_eq!(scenario.state.ledger().spent().usage.input, 40);
}

#[test]
fn child_that_is_lent_twice_holds_one_loan() {
    let child = root().child(call(1, 0));
    let mut state = answered_with(Execution::Background).state;
    let lent = state.ledger().lent();
    state.apply(&delegated_as(&child, Execution::Background));
    assert_eq!((state.ledger().lent(), state.loans().len()), (lent, 1));
    state.apply(&delegated_as(&child, Execution::Foreground));
    state.apply(&returned_from(&child, ""));
    assert_eq!(state.ledger().lent(), Resources::default());
    assert_eq!(state.next(), done("Answer."));
}

#[test]
fn child_must_be_below_its_session() {
    let mut scenario =
        Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied(1, "", &["delegate"])]);
    scenario.refuses(delegated_as(&root(), Execution::Foreground));
    scenario.refuses(delegated_as(&SessionId::root(8).child(call(1, 0)), Execution::Foreground));
}
