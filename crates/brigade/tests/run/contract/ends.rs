//! Ends of children: cancelled, timed out, failed, in parallel.

use std::time::{Duration, Instant};

use brigade::core::delegation_styles::ExtraParameter;
use brigade::core::view::Activity;
use brigade::core::{Event, Spent, Status};
use brigade::{AgentCatalog, Run, RunError, RunEvent, RunResult, Runtime, Settings, Task};
use serde_json::{Value, json};

use super::{
    ContractHarness, agent, call_each_style, calls, enable_all_styles, helper, reports, says, script, spawn,
};
use crate::run::support::{Harness, check_laws, end};

/// A child that streams text, calls a tool and then never replies again.
fn hanging(call: (&str, Value)) -> ContractHarness {
    hanging_for(call, |_| {})
}

fn hanging_for(call: (&str, Value), tweak: impl Fn(&mut Settings)) -> ContractHarness {
    let mut first = calls("child", 1, &[("echo", json!({ "text": "x" }))]);
    first["text"] = "half of it".into();
    ContractHarness::with(
        &[
            calls("lead", 1, &[call]),
            says("lead", "{results}"),
            json!({ "agent": "child", "purpose": "grace", "text": "as far as I got" }),
            reports("child", "as far as I got"),
            first,
            json!({ "agent": "child", "fault": "hang" }),
        ],
        |settings| {
            settings.agents = AgentCatalog::new().with(agent("child"));
            tweak(settings);
        },
    )
}

#[tokio::test]
async fn c76_cancelling_the_root_cancels_descendants_and_keeps_results() {
    let parallel = ("parallel_subagent", json!({ "tasks": [{ "label": "child", "task_prompt": "x" }] }));
    for call in call_each_style("child").into_iter().chain([parallel]) {
        let tool = call.0;
        let harness = hanging(call);
        let run = harness.runtime.start(Task::new("the task")).await.unwrap();
        let root = run.session().clone();
        while harness.requests("child").len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let asked = Instant::now();
        harness.runtime.cancel(&root, "the user").await.unwrap();
        let result = end(run).await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(2), "{tool}");
        assert_eq!(result.outcome.status, Status::Cancelled { by: "the user".to_owned() });
        check_laws(&harness.log(&root).await);
        let tree = harness.tree(&root).await;
        for node in tree.walk(&root) {
            let Activity::Ended(outcome) = &node.activity else { panic!("{tool}: {} continues", node.label) };
            assert!(matches!(outcome.status, Status::Cancelled { .. }), "{tool}: {outcome:?}");
        }
        let answer = harness.answers(&root).await.remove(0);
        assert!(answer.contains("cancelled by") && answer.contains("half of it"), "{tool}: {answer}");
    }
}

#[tokio::test]
async fn c77_timeout_returns_partial_results() {
    let parallel = ("parallel_subagent", json!({ "tasks": [{ "label": "child", "task_prompt": "x" }] }));
    for call in call_each_style("child").into_iter().chain([parallel]) {
        let tool = call.0;
        let harness = hanging(call);
        let result = harness.run_task(Task::new("the task").timeout(Duration::from_millis(300))).await;
        assert_eq!(result.outcome.status, Status::Done, "{tool}");
        let text = result.outcome.text.as_str();
        assert!(text.contains("as far as I got"), "{tool}: {text}");
        assert!(text.contains("(incomplete: time)"), "{tool}: {text}");
    }
}

/// A child can time out long before its parent.
#[tokio::test]
async fn c77_timeout_of_one_child() {
    for call in call_each_style("child") {
        let tool = call.0;
        let harness =
            hanging_for(call, |settings| settings.limits.child_timeout = Duration::from_millis(150));
        let result = harness.run().await;
        assert_eq!(result.outcome.status, Status::Done, "{tool}");
        assert!(
            result.outcome.text.as_str().contains("(incomplete: time)"),
            "{tool}: {}",
            result.outcome.text
        );
    }
    let harness = hanging_for(super::dispatch("child"), |settings| {
        let child = brigade::core::Agent { timeout: Some(150), ..agent("child") };
        settings.agents = AgentCatalog::new().with(child);
    });
    let result = harness.run().await;
    assert!(result.outcome.text.as_str().contains("(incomplete: time)"), "{}", result.outcome.text);
}

#[tokio::test]
async fn c78_the_usage_of_children_is_in_the_totals_of_their_parents() {
    let usage = |mut reply: Value, input: u64| {
        reply["usage"] = json!({ "input": input, "output": 1 });
        reply
    };
    let harness = ContractHarness::with(
        &[
            usage(calls("lead", 1, &call_each_style("child")), 1_000),
            usage(says("lead", "end"), 1_000),
            usage(calls("child", 1, &[helper("below")]), 100),
            usage(reports("below", "r"), 7),
            usage(says("below", "t"), 5),
            usage(json!({ "text": "done" }), 100),
        ],
        |settings| settings.agents = AgentCatalog::new().with(agent("child")),
    );
    let result = harness.run().await;
    let tree = harness.tree(&result.session).await;
    let whole: Spent = tree.spent(&result.session);
    assert_eq!(result.spent.usage, whole.usage);
    // Two of the lead, two of each child and the helper's summary, and twelve for each of three grandchildren.
    assert_eq!(result.spent.usage.input, 2_000 + 3 * 200 + 100 + 3 * 12);
    assert_eq!((result.spent.agents, result.spent.turns), (6, whole.turns));
}

#[tokio::test]
async fn c79_calls_of_one_turn_run_in_parallel_and_return_in_call_order() {
    let late = |name: &str, delay: u64| json!({ "agent": name, "delay_ms": delay, "text": name });
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &[helper("first"), super::dispatch("second"), spawn("third"), helper("fourth")]),
            says("lead", "{results}"),
            reports("first", "first"),
            reports("fourth", "fourth"),
            late("first", 200),
            late("second", 150),
            late("third", 100),
            late("fourth", 200),
        ],
        |settings| settings.agents = AgentCatalog::new().with(agent("second")),
    );
    let started = Instant::now();
    let result = harness.run().await;
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    let text = result.outcome.text.as_str();
    let at = |name: &str| text.find(name).unwrap();
    assert!(at("first") < at("second") && at("second") < at("third") && at("third") < at("fourth"), "{text}");
}

#[tokio::test]
async fn c80_an_error_of_a_sub_agent_never_ends_its_parent() {
    let faults = [
        json!({ "agent": "child", "fault": "refused" }),
        // Requested and requested again, in vain.
        json!({ "agent": "child", "turn": 7, "text": "no reply fits" }),
    ];
    for fault in faults {
        for call in call_each_style("child") {
            let harness = ContractHarness::with(
                &[
                    calls("lead", 1, &[call]),
                    json!({ "agent": "lead", "text": "went on: {results}" }),
                    fault.clone(),
                ],
                |settings| settings.agents = AgentCatalog::new().with(agent("child")),
            );
            let result = harness.run().await;
            assert_eq!(result.outcome.status, Status::Done);
            let text = result.outcome.text.as_str();
            assert!(text.starts_with("went on: ") && text.contains("'child' failed: "), "{text}");
        }
    }
}

/// An unknown model in a definition is an error of the call.
#[tokio::test]
async fn c80_child_that_cannot_be_resolved_is_a_result() {
    let harness = ContractHarness::with(
        &[calls("lead", 1, &[super::dispatch("child")]), says("lead", "{results}")],
        |settings| {
            let child = brigade::core::Agent { model: Some("nobody/none".to_owned()), ..agent("child") };
            settings.agents = AgentCatalog::new().with(child);
        },
    );
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done);
    let text = result.outcome.text.as_str();
    assert!(text.starts_with("Agent 'child' failed: ") && text.contains("nobody/none"), "{text}");
}

/// The definition is read at call time. A definition that was broken or removed since is reported as such.
#[tokio::test]
async fn c58_definition_that_became_unreadable_is_a_result() {
    let agents = tempfile::tempdir().unwrap();
    let write = |id: &str, text: &str| {
        std::fs::create_dir_all(agents.path().join(id)).unwrap();
        std::fs::write(agents.path().join(id).join("AGENT.md"), text).unwrap();
    };
    let good = "---\nname: x\ndescription: d\n---\nYou are x.\n";
    for id in ["broken", "gone", "fine"] {
        write(id, good);
    }
    let (catalogue, problems) = AgentCatalog::from_folders(&[agents.path()]);
    assert_eq!((problems.len(), catalogue.list().len()), (0, 3));
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &["broken", "gone", "fine"].map(super::dispatch)),
            says("lead", "{result:0}\n{result:1}\n{result:2}"),
            says("fine", "still here"),
        ],
        move |settings| settings.agents = catalogue.clone(),
    );
    write("broken", "---\nname: x\n---\n");
    std::fs::remove_dir_all(agents.path().join("gone")).unwrap();
    write("fine", &good.replace("You are x.", "You are new."));
    let result = harness.run().await;
    let text = result.outcome.text.as_str();
    assert!(text.starts_with("Agent 'broken' failed: ") && text.contains("AGENT.md"), "{text}");
    assert!(text.contains("Agent 'gone' not found"), "{text}");
    assert!(text.contains("still here"), "{text}");
    assert_eq!(harness.requests("fine")[0].system, "You are new.");
}

/// A tree with every delegation style: parallel helpers that wait for each other, an agent, a loop, and a
/// background child.
fn mixed(settings: &mut Settings) {
    enable_all_styles(settings);
    settings.agents = AgentCatalog::new().with(agent("coder"));
    settings.delegation_styles.delegation.extras = [ExtraParameter::Background].into();
}

fn mixed_script() -> String {
    let tasks: Vec<Value> =
        (0..3).map(|n| json!({ "label": format!("t{n}"), "task_prompt": "go" })).collect();
    let mut beside = spawn("beside");
    beside.1["background"] = true.into();
    script(&[
        calls(
            "lead",
            1,
            &[
                ("parallel_subagent", json!({ "tasks": tasks, "max_concurrent": 2 })),
                super::dispatch("coder"),
                beside,
                ("echo", json!({ "text": "e" })),
            ],
        ),
        json!({ "purpose": "summary", "text": "report", "delay_ms": 1 }),
        calls("coder", 1, &[helper("below")]),
        json!({ "text": "done", "delay_ms": 2 }),
    ])
}

/// Cancels as soon as this many events are recorded.
async fn cancel_at(runtime: &Runtime, mut run: Run, at: usize) -> Result<RunResult, RunError> {
    let (root, mut watch) = (run.session().clone(), run.take_events());
    let cancel = async {
        let mut seen = 0;
        while seen <= at {
            match watch.next().await {
                Some(RunEvent::Record(_)) => seen += 1,
                Some(_) => {}
                None => return,
            }
        }
        // A store that is down rejects the cancellation. The run then ends without it.
        let _ = runtime.cancel(&root, "the user").await;
    };
    tokio::join!(end(run), cancel).0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c76_cancelling_a_mixed_tree_at_every_event() {
    let facts = {
        let harness = Harness::with(mixed_script(), mixed);
        let result = harness.run().await;
        harness.log(&result.session).await.len()
    };
    for at in 0..facts {
        let harness = Harness::with(mixed_script(), mixed);
        let runtime = harness.runtime();
        let started = Instant::now();
        let run = runtime.start(Task::new("the task")).await.unwrap();
        let result = cancel_at(&runtime, run, at).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        check_laws(&harness.log(&result.session).await);
    }
}

/// Cancelled, and then the runner dies: the next runner ends the tree and starts nothing new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c76_a_crash_after_a_cancel_does_not_undo_it() {
    for (at, appends) in
        (0..30).step_by(5).flat_map(|at| (1..24).step_by(2).map(move |appends| (at, appends)))
    {
        let harness = Harness::with(mixed_script(), mixed);
        let runtime = harness.runtime();
        harness.store.crash_after(appends + 2);
        let run = runtime.start(Task::new("the task")).await.unwrap();
        let root = run.session().clone();
        let ended = cancel_at(&runtime, run, at).await;
        harness.store.repair();
        let asked = |log: &[brigade::core::Record]| {
            log.iter()
                .any(|record| record.session == root && matches!(record.event, Event::CancelAsked { .. }))
        };
        let was_asked = asked(&harness.log(&root).await);
        let result = match ended {
            Ok(result) => result,
            Err(_) => crate::run::crash::resume(&harness, &root).await,
        };
        let log = harness.log(&root).await;
        check_laws(&log);
        let done = result.outcome.status == Status::Done;
        assert!(!was_asked || !done, "cancelled at {at}, crashed after {appends}: {:?}", result.outcome);
    }
}

/// The summary is paid from the reserve of the child.
#[tokio::test]
async fn subagent_without_tokens_still_reports() {
    let mut more = json!({ "agent": "h", "usage": { "input": 3_000, "output": 100 } });
    more["call"] = json!([{ "tool": "echo", "arguments": { "text": "{turn}" } }]);
    let harness = ContractHarness::with(
        &[calls("lead", 1, &[helper("h")]), says("lead", "{results}"), reports("h", "so far"), more],
        |settings| settings.budget.tokens = brigade::core::Limit::AtMost(60_000),
    );
    let result = harness.run().await;
    assert_eq!(result.outcome.text.as_str(), "so far\n(incomplete: turns)");
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &[("subagent", json!({ "label": "h", "task_prompt": "go", "max_turns": 50 }))]),
            says("lead", "{results}"),
            reports("h", "so far"),
            json!({
                "agent": "h", "usage": { "input": 3_000, "output": 100 },
                "call": [{ "tool": "echo", "arguments": { "text": "{turn}" } }]
            }),
        ],
        |settings| settings.budget.tokens = brigade::core::Limit::AtMost(60_000),
    );
    let result = harness.run().await;
    assert_eq!(result.outcome.text.as_str(), "so far\n(incomplete: tokens)");
    let tree = harness.tree(&result.session).await;
    let metadata = tree.node(&super::session_of(&tree, "h")).unwrap().metadata().unwrap();
    assert_eq!(metadata["completion_status"], "incomplete");
    assert!(!metadata.contains_key("max_turns_reached"));
}

/// One slot for the whole tree: a session that waits for its children holds none.
#[tokio::test]
async fn one_slot_is_enough_for_a_mixed_tree() {
    let harness = Harness::with(mixed_script(), |settings| {
        mixed(settings);
        settings.limits.concurrency = 1;
    });
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done);
    check_laws(&harness.log(&result.session).await);
}
