//! Lifecycle events of sub-agents: order, fields, and exactly one terminal event.

use std::collections::BTreeMap;

use brigade::core::message::OutputStatus;
use brigade::lifecycle::Lifecycle;
use brigade::{AgentCatalog, SubagentCallbacks, SubagentInfo, Task};
use serde_json::json;

use super::{ContractHarness, agent, call_each_style, calls, helper, reports, says, spawn};
use crate::run::support::end;

fn id_of(event: &Lifecycle) -> &str {
    match event {
        Lifecycle::Start(info) => &info.id,
        Lifecycle::StreamDelta { id, .. }
        | Lifecycle::ToolCallStart { id, .. }
        | Lifecycle::ToolCallEnd { id, .. }
        | Lifecycle::Complete { id, .. }
        | Lifecycle::Error { id, .. } => id,
    }
}

fn by_id(events: &[Lifecycle]) -> BTreeMap<&str, Vec<&Lifecycle>> {
    let mut sorted: BTreeMap<&str, Vec<&Lifecycle>> = BTreeMap::new();
    for event in events {
        sorted.entry(id_of(event)).or_default().push(event);
    }
    sorted
}

/// Checks the order: start, then everything else, then exactly one terminal event. Every tool call that starts
/// ends, and none ends before it starts.
fn check_order(events: &[Lifecycle]) {
    for (id, events) in by_id(events) {
        let is_start = |event: &&Lifecycle| matches!(event, Lifecycle::Start(_));
        let is_end =
            |event: &&Lifecycle| matches!(event, Lifecycle::Complete { .. } | Lifecycle::Error { .. });
        assert!(is_start(&events[0]), "{id}: {events:?}");
        assert!(is_end(&events[events.len() - 1]), "{id}: {events:?}");
        assert_eq!(events.iter().copied().filter(|event| is_start(event)).count(), 1, "{id}");
        assert_eq!(events.iter().copied().filter(|event| is_end(event)).count(), 1, "{id}");
        let mut open = 0_i32;
        for event in events {
            match event {
                Lifecycle::ToolCallStart { .. } => open += 1,
                Lifecycle::ToolCallEnd { .. } => open -= 1,
                _ => {}
            }
            assert!(open >= 0, "{id}: a call ended before it started");
        }
    }
}

#[tokio::test]
async fn c66_c67_events_of_every_style_are_ordered_and_complete() {
    let mut text = says("child", "some words in pieces");
    text["chunks"] = 4.into();
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &call_each_style("child")),
            says("lead", "end"),
            reports("child", "the report"),
            calls("child", 1, &[("echo", json!({ "text": "ping" }))]),
            text,
        ],
        |settings| settings.agents = AgentCatalog::new().with(agent("child")),
    );
    let (_, events) = harness.run_with_events().await;
    check_order(&events);
    let sorted = by_id(&events);
    assert_eq!(sorted.len(), 3);
    for (id, events) in &sorted {
        let Lifecycle::Start(SubagentInfo { description, mode, .. }) = events[0] else { panic!() };
        assert_eq!(description, "child");
        let (face, text) = match mode.as_str() {
            "spawn" => ("sub_1", "some words in pieces"),
            "subagent" => ("subagent:", "the report"),
            "dispatch" => ("dispatch:", "some words in pieces"),
            other => panic!("{other}"),
        };
        assert!(id.starts_with(face), "{id}");
        let Some(Lifecycle::Complete { result, .. }) = events.last() else { panic!("{events:?}") };
        assert_eq!(result.text, text);
        assert_eq!(result.turns, if *mode == "subagent" { 3 } else { 2 });
        let streamed: String = events
            .iter()
            .filter_map(|event| match event {
                Lifecycle::StreamDelta { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert!(streamed.contains("some words in pieces"), "{streamed}");
        let called = events.iter().find_map(|event| match event {
            Lifecycle::ToolCallStart { call, .. } => Some(call),
            _ => None,
        });
        let got = events.iter().find_map(|event| match event {
            Lifecycle::ToolCallEnd { result, .. } => Some(result),
            _ => None,
        });
        let (called, got) = (called.unwrap(), got.unwrap());
        assert_eq!((called.name.as_str(), &called.arguments), ("echo", &json!({ "text": "ping" })));
        assert_eq!((called.id.as_str(), got.id.as_str(), got.name.as_str()), ("1-0", "1-0", "echo"));
        assert_eq!((got.text.as_str(), got.status), ("ping", OutputStatus::Ok));
    }
}

/// Concurrent calls end in any order. The id identifies the call of a result.
#[tokio::test]
async fn c67_results_name_the_call_that_they_belong_to() {
    let pair = [
        ("echo", json!({ "text": "one" })),
        ("nothing_like_it", json!({})),
        ("echo", json!({ "text": "two" })),
    ];
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[spawn("child")]),
        says("lead", "end"),
        calls("child", 1, &pair),
        says("child", "done"),
    ]);
    let (_, events) = harness.run_with_events().await;
    let mut results: Vec<(&str, &str, &str, OutputStatus)> = events
        .iter()
        .filter_map(|event| match event {
            Lifecycle::ToolCallEnd { result, .. } => {
                Some((result.id.as_str(), result.name.as_str(), &result.text[..3], result.status))
            }
            _ => None,
        })
        .collect();
    results.sort_unstable_by_key(|(id, ..)| *id);
    assert_eq!(
        results,
        [
            ("1-0", "echo", "one", OutputStatus::Ok),
            ("1-1", "nothing_like_it", "Unk", OutputStatus::Error),
            ("1-2", "echo", "two", OutputStatus::Ok)
        ]
    );
}

#[tokio::test]
async fn c67_the_mode_of_a_single_generation_is_delegate() {
    let harness = ContractHarness::new(&[
        calls(
            "lead",
            1,
            &[
                spawn("nested"),
                ("subagent_delegate", json!({ "task": "go", "description": "one answer" })),
                ("delegate", json!({ "role": "Poet", "task": "go" })),
            ],
        ),
        json!({ "text": "done" }),
    ]);
    let (_, events) = harness.run_with_events().await;
    check_order(&events);
    let started: BTreeMap<&str, &str> = events
        .iter()
        .filter_map(|event| match event {
            Lifecycle::Start(info) => Some((info.description.as_str(), info.mode.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(started, BTreeMap::from([("nested", "spawn"), ("one answer", "delegate"), ("Poet", "role")]));
    let mut ids: Vec<&str> = by_id(&events).into_keys().collect();
    ids.sort_unstable();
    assert!(ids[0].starts_with("delegate:"), "the key of a role stays: {ids:?}");
    assert_eq!(ids[1..], ["sub_1", "sub_2"]);
}

#[tokio::test]
async fn c68_an_error_is_one_event_and_a_failed_result() {
    for (call, failure) in
        call_each_style("child").into_iter().zip(["Subagent 'child'", "Agent 'child'", "Subagent 'child'"])
    {
        let harness = ContractHarness::with(
            &[
                calls("lead", 1, &[call]),
                says("lead", "{results}"),
                json!({ "agent": "child", "fault": "refused" }),
            ],
            |settings| settings.agents = AgentCatalog::new().with(agent("child")),
        );
        let (result, events) = harness.run_with_events().await;
        check_order(&events);
        let Some(Lifecycle::Error { error, .. }) = events.last() else { panic!("{events:?}") };
        assert_eq!(error, "the scripted model refuses");
        let text = result.outcome.text.as_str();
        assert_eq!(text, format!("{failure} failed: the scripted model refuses"));
    }
}

/// A child with an unknown outcome also has its one terminal event.
#[tokio::test]
async fn c66_a_lost_child_has_its_terminal_event() {
    for call in call_each_style("panics") {
        let harness =
            ContractHarness::with(&[calls("lead", 1, &[call]), says("lead", "{results}")], |settings| {
                settings.agents = AgentCatalog::new().with(agent("panics"));
            });
        let (result, events) = harness.run_with_events().await;
        check_order(&events);
        assert!(matches!(events.last(), Some(Lifecycle::Error { .. })), "{events:?}");
        assert!(result.outcome.text.as_str().contains("outcome unknown"), "{}", result.outcome.text);
    }
}

#[tokio::test]
async fn c66_cancelled_children_have_one_terminal_event() {
    let tasks = json!({ "tasks": [
        { "label": "slow", "task_prompt": "x" }, { "label": "bad", "task_prompt": "x" },
        { "label": "late", "task_prompt": "x" }
    ], "max_concurrent": 2, "fail_fast": true });
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[("parallel_subagent", tasks)]),
        says("lead", "{results}"),
        json!({ "agent": "slow", "fault": "hang" }),
        json!({ "agent": "bad", "fault": "refused", "delay_ms": 30 }),
        json!({ "text": "never" }),
    ]);
    let (_, events) = harness.run_with_events().await;
    check_order(&events);
    let errors: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Lifecycle::Error { error, .. } => Some(error.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[1].starts_with("cancelled by `fail_fast`"), "{errors:?}");
}

#[tokio::test]
async fn c75_no_subscriber_is_harmless() {
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[helper("h"), spawn("s")]),
        says("lead", "{results}"),
        calls("h", 1, &[("echo", json!({ "text": "x" }))]),
        json!({ "text": "done" }),
    ]);
    let plain = harness.run().await;
    let mut run = harness.runtime.start(Task::new("the task")).await.unwrap();
    drop(run.take_events());
    let dropped = end(run).await.unwrap();
    assert_eq!(plain.outcome, dropped.outcome);
    // Absent closures are not called.
    let (result, events) = harness.run_with_events().await;
    let mut none = SubagentCallbacks::default();
    events.iter().for_each(|event| none.call(event));
    assert_eq!(result.outcome, plain.outcome);
}
