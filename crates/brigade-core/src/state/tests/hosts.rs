//! Questions about hosts that a running call connects to.

use std::collections::BTreeMap;

use super::*;
use crate::approval::AnswerError;
use crate::host_question::{MAX_OPEN_HOST_QUESTIONS, QuestionId};
use crate::network::Target;

fn host(name: &str) -> Target {
    format!("{name}.example:443").parse().unwrap()
}

fn asked(index: u32, name: &str) -> Event {
    Event::HostAsked {
        call: call(1, index),
        host: host(name),
        what: "shell {}".into(),
        why: String::new(),
        until: 9,
        default: Answer::Deny { word: None },
    }
}

fn answered(index: u32, name: &str, answer: Answer) -> Event {
    Event::HostAnswered { call: call(1, index), host: host(name), answer, by: "me".to_owned() }
}

fn once(index: u32, name: &str) -> Event {
    answered(index, name, Answer::Once)
}

fn two_calls() -> Scenario {
    Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied(1, "", &["shell", "shell"])])
}

#[test]
fn question_is_asked_only_while_its_call_runs() {
    let mut scenario = two_calls();
    scenario.refuses(asked(0, "a")).then(tool_started(1, 0)).refuses(asked(1, "a")).refuses(once(0, "a"));
    scenario.then(asked(0, "a")).refuses(asked(0, "a")).refuses(once(0, "b")).refuses(once(1, "a"));
    scenario.then(asked(0, "b"));
    // The call continues meanwhile, and does not end with an open question.
    assert_eq!(scenario.state.call(call(1, 0)).unwrap().hosts.open().count(), 2);
    assert!(matches!(scenario.state.call(call(1, 0)).unwrap().progress, CallProgress::Started(_)));
    scenario.refuses(tool_ended(1, 0, "ran")).then(once(0, "a")).refuses(once(0, "a"));
    scenario.refuses(tool_ended(1, 0, "ran")).then(answered(0, "b", Answer::Deny { word: None }));
    // An answer holds for the call.
    scenario.refuses(asked(0, "a")).refuses(asked(0, "b"));
    scenario.then(tool_ended(1, 0, "ran")).refuses(asked(0, "c")).refuses(once(0, "a"));
    scenario.then(tool_ended(1, 1, "refused")).next(Step::CallModel(Purpose::Turn));
}

#[test]
fn nothing_is_asked_after_a_stop_and_open_questions_can_be_closed() {
    let mut scenario = two_calls();
    scenario.then(tool_started(1, 0)).then(asked(0, "a")).then(cancel()).refuses(asked(0, "b"));
    scenario.refuses(tool_ended(1, 0, "stopped")).then(answered(0, "a", Answer::Deny { word: None }));
    scenario.then(tool_ended(1, 0, "stopped")).then(tool_ended(1, 1, "not started"));
    scenario.next(cancelled("")).then(ended(Status::Cancelled { by: "the user".to_owned() }, ""));
    scenario.refuses(once(0, "a"));
}

#[test]
fn call_that_runs_again_asks_again() {
    let mut scenario = two_calls();
    scenario.then(tool_started(1, 0)).then(asked(0, "a")).crash();
    assert!(scenario.state.call(call(1, 0)).unwrap().hosts.is_open(&host("a")));
    scenario.refuses(tool_started(1, 0)).then(answered(0, "a", Answer::Deny { word: None }));
    scenario.then(tool_started(1, 0)).then(asked(0, "a"));
}

#[test]
fn further_questions_are_refused_while_many_are_open() {
    let mut scenario = two_calls();
    scenario.then(tool_started(1, 0)).then(tool_started(1, 1));
    let name = |number: usize| format!("h{number}");
    for number in 0..MAX_OPEN_HOST_QUESTIONS {
        scenario.then(asked(0, &name(number)));
    }
    scenario.refuses(asked(0, "more")).then(asked(1, "more"));
    scenario.then(once(0, &name(3))).then(asked(0, "more")).refuses(asked(0, "another"));
}

#[test]
fn hosts_that_are_always_allowed_outlive_the_round() {
    let always = |rule: &str| Answer::Always(rule.to_owned());
    let mut scenario = two_calls();
    scenario.then(tool_started(1, 0)).then(asked(0, "a")).then(asked(0, "b")).then(asked(0, "c"));
    scenario.then(answered(0, "a", always("a.example:443")));
    // A rule for something else allows only this call; an unexpected answer allows nothing.
    scenario.then(answered(0, "b", always("shell"))).then(once(0, "c"));
    scenario.state.apply(&answered(0, "c", always("c.example:443")));
    scenario.then(tool_ended(1, 0, "ran")).then(tool_ended(1, 1, "ran"));
    let allowed = |state: &State| ["a", "b", "c"].map(|name| state.allows_host(&host(name)));
    assert_eq!(allowed(&scenario.state), [true, false, false]);
    scenario.then(called(2, 1, Purpose::Turn)).then(replied(2, "Done.", &[])).ends();
    scenario.then(started(9, LARGE_BUDGET)).crash();
    assert_eq!(allowed(&scenario.state), [true, false, false]);
    assert!(scenario.state.has_allowed_hosts());
    assert!(!scenario.state.allows_host(&"a.example:80".parse().unwrap()), "the port is part of the rule");
    scenario.state.forget_permissions();
    assert!(!scenario.state.has_allowed_hosts());
}

#[test]
fn late_answer_and_rule_for_something_else_are_refused() {
    let mut scenario = two_calls();
    scenario.then(tool_started(1, 0)).then(asked(0, "a"));
    let question = |name: &str| QuestionId { call: call(1, 0), host: Some(host(name)) };
    let check = |state: &State, name: &str, answer: Answer| state.check_answer(question(name), &answer).err();
    let always = |rule: &str| Answer::Always(rule.to_owned());
    assert_eq!(check(&scenario.state, "a", Answer::Once), None);
    assert_eq!(check(&scenario.state, "a", always("a.example:443")), None);
    for rule in ["b.example:443", "a.example:80", "shell", ""] {
        let error = check(&scenario.state, "a", always(rule)).unwrap();
        assert!(matches!(&error, AnswerError::OtherHost { given, .. } if given == rule), "{error}");
    }
    assert_eq!(check(&scenario.state, "b", Answer::Once), Some(AnswerError::NotOpen));
    // The call itself has no request.
    let of_call = scenario.state.check_answer(call(1, 0), &Answer::Once);
    assert_eq!(of_call, Err(AnswerError::NotOpen));
    scenario.then(once(0, "a"));
    assert_eq!(check(&scenario.state, "a", Answer::Once), Some(AnswerError::NotOpen));
}

#[test]
fn abandoned_round_closes_its_questions() {
    let mut scenario = two_calls();
    scenario.then(tool_started(1, 0)).then(asked(0, "a")).then(asked(0, "b")).then(once(0, "b"));
    let mut after = scenario.state.clone();
    let events = scenario.state.abandon("the process was killed", &BTreeMap::new());
    for event in &events {
        assert!(after.admits(event), "{event:?}");
        after.apply(event);
    }
    let kinds: Vec<&str> = events.iter().map(Event::kind).collect();
    assert_eq!(kinds, ["host_answered", "tool_ended", "tool_ended", "ended"]);
    assert!(after.ended().is_some());
}
