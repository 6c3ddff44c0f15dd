//! A crash before every append of a scene for each delegation style: same outcome, nothing paid twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brigade::core::delegation_styles::ExtraParameter;
use brigade::core::{Event, Status};
use brigade::{AgentCatalog, RunResult, Settings};
use serde_json::{Value, json};

use super::{agent, calls, dispatch, enable_all_styles, helper, reports, says, script, spawn};
use crate::run::crash::{resume, run_until_crash};
use crate::run::support::{Harness, check_laws, end};

struct Baseline {
    text: String,
    appends: i64,
    output: u64,
    turns: u64,
}

/// Parts of two results that must be equal: all but ids and times.
fn comparable_result(ending: &RunResult) -> String {
    let text = ending.outcome.text.as_str().replace(ending.session.as_str(), "ROOT");
    let Ok(mut value) = serde_json::from_str::<Value>(&text) else { return text };
    forget_times(&mut value);
    value.to_string()
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !key.ends_with("duration_ms"));
            map.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

async fn check(harness: &Harness, baseline: &Baseline, ending: &RunResult) {
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
    assert_eq!(comparable_result(ending), baseline.text);
    let log = harness.log(&ending.session).await;
    check_laws(&log);
    for record in &log {
        if let Event::Replied { turn, .. } = &record.event {
            let failed = log.iter().filter(|other| {
                other.session == record.session
                    && matches!(&other.event, Event::CallFailed { turn: failed, .. } if failed == turn)
            });
            let asked = harness.replies.count_for(&record.session, *turn);
            assert!(
                asked as usize <= failed.count() + 1,
                "turn {turn} of {} was bought {asked} times",
                record.session
            );
        }
    }
}

/// Checks for the same outcome, the same number of replies and the same cost, wherever the store crashes.
async fn crash_everywhere(harness: impl Fn() -> Harness, same_turns: bool) {
    let baseline = {
        let harness = harness();
        let ending = harness.run().await;
        let baseline = Baseline {
            text: comparable_result(&ending),
            appends: harness.store.appends.load(Ordering::SeqCst),
            output: ending.spent.usage.output,
            turns: ending.spent.turns,
        };
        check(&harness, &baseline, &ending).await;
        baseline
    };
    for appends in 1..baseline.appends {
        let harness = harness();
        let (ended, root) = run_until_crash(&harness, None, appends).await;
        let ending = match ended {
            Some(ending) => ending,
            None => resume(&harness, &root.unwrap()).await,
        };
        check(&harness, &baseline, &ending).await;
        if same_turns {
            assert_eq!((ending.spent.turns, ending.spent.usage.output), (baseline.turns, baseline.output));
        }
    }
}

fn parallel_replies(more: &Value) -> Vec<Value> {
    let tasks: Vec<Value> =
        ["a", "b", "c"].iter().map(|label| json!({ "label": label, "task_prompt": "go" })).collect();
    let mut arguments = json!({ "tasks": tasks, "max_concurrent": 2, "fail_fast": false });
    for (key, value) in more.as_object().unwrap() {
        arguments[key] = value.clone();
    }
    vec![
        calls("lead", 1, &[("parallel_subagent", arguments)]),
        // The result contains times, whose length varies.
        json!({ "agent": "lead", "text": "{results}", "usage": { "input": 10, "output": 10 } }),
        json!({ "purpose": "summary", "text": "{role} reports: {results}" }),
        calls("b", 1, &[helper("below")]),
        calls("c", 1, &[("echo", json!({ "text": "hello" }))]),
        json!({ "text": "{role} is done" }),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_before_every_append_of_parallel_subagents() {
    let text = script(&parallel_replies(&json!({})));
    crash_everywhere(|| Harness::with(&text, enable_all_styles), true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_during_recovery_of_parallel_subagents() {
    let text = script(&parallel_replies(&json!({})));
    let harness = || Harness::with(&text, enable_all_styles);
    let whole = harness();
    let expected = comparable_result(&whole.run().await);
    let appends = whole.store.appends.load(Ordering::SeqCst);
    for first in (2..appends).step_by(5) {
        for second in (0..appends).step_by(3) {
            let harness = harness();
            let (ended, root) = run_until_crash(&harness, None, first).await;
            let Some(root) = root.filter(|_| ended.is_none()) else { break };
            let (ended, _) = run_until_crash(&harness, Some(&root), second).await;
            let is_over = ended.is_some();
            let ending = match ended {
                Some(ending) => ending,
                None => resume(&harness, &root).await,
            };
            assert_eq!(comparable_result(&ending), expected, "{first} {second}");
            check_laws(&harness.log(&root).await);
            if is_over {
                break;
            }
        }
    }
}

fn with_agents(settings: &mut Settings) {
    enable_all_styles(settings);
    settings.agents = AgentCatalog::new().with(agent("reviewer")).with(agent("coder"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_before_every_append_of_dispatched_agents() {
    let text = script(&[
        calls("lead", 1, &[dispatch("reviewer"), dispatch("coder")]),
        says("lead", "{result:0}"),
        calls("reviewer", 1, &[dispatch("coder")]),
        says("reviewer", "saw {result:0}"),
        calls("coder", 1, &[("write_file", json!({ "path": "same.txt", "content": "x" }))]),
        says("coder", "written"),
    ]);
    crash_everywhere(|| Harness::with(&text, with_agents), true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_before_every_append_of_spawned_agents() {
    let text = script(&[
        calls(
            "lead",
            1,
            &[spawn("outer"), ("subagent_delegate", json!({ "task": "go", "description": "single" }))],
        ),
        says("lead", "{results}"),
        calls("outer", 1, &[spawn("inner"), ("echo", json!({ "text": "e" }))]),
        says("outer", "outer got {results}"),
        says("single", "one answer"),
        says("inner", "inner"),
    ]);
    crash_everywhere(|| Harness::with(&text, enable_all_styles), true).await;
}

/// The numbering of `spawn` delegations continues: a resumed tree assigns no number twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c69_numbers_stay_unique_over_a_crash() {
    let text = script(&[
        calls("lead", 1, &[spawn("first"), spawn("second")]),
        calls("lead", 2, &[spawn("third")]),
        calls("first", 1, &[spawn("below")]),
        json!({ "text": "done" }),
    ]);
    let harness = || Harness::with(&text, enable_all_styles);
    let whole = harness();
    whole.run().await;
    for appends in 1..whole.store.appends.load(Ordering::SeqCst) {
        let harness = harness();
        let (_, root) = run_until_crash(&harness, None, appends).await;
        let ending = resume(&harness, &root.unwrap()).await;
        let tree = brigade::core::view::Tree::fold(&harness.log(&ending.session).await);
        let mut keys: Vec<String> = tree.walk(&ending.session)[1..].iter().map(|node| node.key()).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["sub_1", "sub_2", "sub_3", "sub_4"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_before_every_append_with_a_child_in_the_background() {
    let beside = |(tool, mut arguments): (&'static str, Value)| {
        arguments["background"] = true.into();
        (tool, arguments)
    };
    for call in [helper("child"), spawn("child"), dispatch("coder")] {
        let text = script(&[
            calls("lead", 1, &[beside(call)]),
            says("lead", "heard: {heard}"),
            reports("child", "the report"),
            calls("child", 1, &[("echo", json!({ "text": "e" }))]),
            json!({ "text": "the result" }),
        ]);
        let harness = || {
            Harness::with(&text, |settings| {
                with_agents(settings);
                settings.delegation_styles.delegation.extras = [ExtraParameter::Background].into();
            })
        };
        // The number of the lead's replies depends on which of the two is faster.
        crash_everywhere(harness, false).await;
    }
}

/// A detached child also reaches its end, regardless of when its runner or its caller's crashes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_before_every_append_with_a_detached_child() {
    let mut left = helper("child");
    left.1["background"] = "detach".into();
    let text = script(&[
        calls("lead", 1, &[left]),
        says("lead", "I do not wait"),
        reports("child", "the report"),
        json!({ "agent": "child", "turn": 1, "delay_ms": 10, "call": [{ "tool": "echo", "arguments": { "text": "e" } }] }),
        json!({ "text": "the result" }),
    ]);
    let harness = || {
        Harness::with(&text, |settings| {
            with_agents(settings);
            settings.delegation_styles.delegation.extras = [ExtraParameter::Background].into();
        })
    };
    let whole = harness();
    let ending = whole.run().await;
    ending.detached.ended().await;
    for appends in 1..whole.store.appends.load(Ordering::SeqCst) {
        let harness = harness();
        harness.store.crash_after(appends);
        let run = harness.start().await;
        let root = run.session().clone();
        let ended = end(run).await;
        if let Ok(ending) = &ended {
            ending.detached.ended().await;
        }
        harness.store.repair();
        let ending = match ended {
            Ok(ending) => ending,
            Err(_) => resume(&harness, &root).await,
        };
        ending.detached.ended().await;
        assert_eq!(ending.outcome.text.as_str(), "I do not wait", "after {appends}");
        let child = format!("{root}.1-0").parse().unwrap();
        if !matches!(harness.events(&child).await.last(), Some(Event::Ended { .. })) {
            resume(&harness, &child).await;
        }
        let events = harness.events(&child).await;
        let Some(Event::Ended { outcome, .. }) = events.last() else { panic!("{events:?}") };
        assert_eq!(
            (&outcome.status, outcome.text.as_str()),
            (&Status::Done, "the report"),
            "after {appends}"
        );
        check_laws(&harness.log(&root).await);
    }
}

/// A failure before the crash stops the siblings after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_fast_cancels_after_a_crash_as_well() {
    let tasks = json!({ "tasks": [
        { "label": "slow", "task_prompt": "go" }, { "label": "bad", "task_prompt": "go" },
        { "label": "late", "task_prompt": "go" }
    ], "max_concurrent": 2, "fail_fast": true });
    let text = script(&[
        calls("lead", 1, &[("parallel_subagent", tasks)]),
        says("lead", "{results}"),
        json!({ "agent": "slow", "fault": "hang" }),
        json!({ "agent": "bad", "fault": "refused", "delay_ms": 10 }),
        json!({ "text": "never" }),
    ]);
    let harness = || Harness::with(&text, enable_all_styles);
    let whole = harness();
    let ending = whole.run().await;
    for appends in 1..whole.store.appends.load(Ordering::SeqCst) {
        let harness = harness();
        let (ended, root) = run_until_crash(&harness, None, appends).await;
        let again = match ended {
            Some(ending) => ending,
            None => resume(&harness, &root.unwrap()).await,
        };
        check_laws(&harness.log(&again.session).await);
        let result: Value = serde_json::from_str(again.outcome.text.as_str()).unwrap();
        let expected: Value = serde_json::from_str(ending.outcome.text.as_str()).unwrap();
        for n in 0..3 {
            assert_eq!(result["results"][n]["error"], expected["results"][n]["error"], "after {appends}");
        }
    }
}

/// A resume under settings that would refuse the call still returns the existing results and ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_without_the_delegation_style_ends() {
    let text = script(&parallel_replies(&json!({})));
    let harness = |has_face: Arc<AtomicBool>| {
        Harness::with(&text, move |settings| {
            enable_all_styles(settings);
            if !has_face.load(Ordering::SeqCst) {
                settings.delegation_styles.subagent = None;
            }
        })
    };
    let has_face = Arc::new(AtomicBool::new(true));
    let whole = harness(has_face.clone());
    whole.run().await;
    for appends in 1..whole.store.appends.load(Ordering::SeqCst) {
        has_face.store(true, Ordering::SeqCst);
        let harness = harness(has_face.clone());
        let (ended, root) = run_until_crash(&harness, None, appends).await;
        let Some(root) = root.filter(|_| ended.is_none()) else { continue };
        has_face.store(false, Ordering::SeqCst);
        let ending = resume(&harness, &root).await;
        assert_eq!(ending.outcome.status, Status::Done);
        check_laws(&harness.log(&root).await);
    }
}
