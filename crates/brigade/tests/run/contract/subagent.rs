//! Style B (`subagent`) on the driver.

use brigade::core::Status;
use brigade::core::delegation_styles::ExtraParameter;
use serde_json::{Value, json};

use super::{ContractHarness, calls, helper, reports, says, session_of};

#[tokio::test]
async fn c34_metadata_has_label_and_depth_at_every_level() {
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[helper("outer")]),
        says("lead", "{results}"),
        reports("outer", "outer reports"),
        calls("outer", 1, &[helper("inner")]),
        says("outer", "done"),
        reports("inner", "inner reports"),
        says("inner", "done"),
    ]);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "outer reports");
    let tree = harness.tree(&ending.session).await;
    for (label, spawning, own) in [("outer", "0", "1"), ("inner", "1", "2")] {
        let metadata = tree.node(&session_of(&tree, label)).unwrap().metadata().unwrap();
        assert_eq!(metadata["subagent_label"], label);
        assert_eq!((metadata["recursion_depth"].as_str(), metadata["child_depth"].as_str()), (spawning, own));
    }
    assert_eq!(tree.node(&ending.session).unwrap().metadata(), None);
}

#[tokio::test]
async fn c36_within_the_limit_it_is_complete_even_at_its_last_turn() {
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[("subagent", json!({ "label": "h", "task_prompt": "go", "max_turns": 2 }))]),
        says("lead", "{results}"),
        reports("h", "all of it"),
        calls("h", 1, &[("echo", json!({ "text": "x" }))]),
        says("h", "done"),
    ]);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "all of it");
    let tree = harness.tree(&ending.session).await;
    let metadata = tree.node(&session_of(&tree, "h")).unwrap().metadata().unwrap();
    assert_eq!(metadata["completion_status"], "complete");
    assert_eq!(metadata["turns_used"], "3");
    for absent in ["max_turns_reached", "max_turns", "truncated"] {
        assert!(!metadata.contains_key(absent), "{absent}");
    }
}

#[tokio::test]
async fn c37_c38_failing_tools_are_results_and_the_child_continues() {
    let failing = [
        ("read_file", json!({ "path": "missing.txt" })),
        ("read_file", json!({ "path": "../../etc/passwd" })),
        ("list_dir", json!({ "path": "missing" })),
        ("grep", json!({ "pattern": "(" })),
        ("glob", json!({ "pattern": "[" })),
        ("write_file", json!({ "path": "../outside.txt", "content": "x" })),
        ("edit_file", json!({ "path": "missing.txt", "old": "a", "new": "b" })),
        ("shell", json!({ "command": "true" })),
        ("read_file", json!({ "no": "path" })),
        ("teleport", json!({})),
        ("subagent", json!({ "label": "x", "task_prompt": " " })),
    ];
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[helper("h")]),
        says("lead", "{results}"),
        reports("h", "I found another way"),
        calls("h", 1, &failing),
        says("h", "{results}"),
    ]);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "I found another way");
    let tree = harness.tree(&ending.session).await;
    let node = tree.node(&session_of(&tree, "h")).unwrap();
    assert_eq!((node.tool_calls, node.tool_errors), (failing.len() as u64, failing.len() as u64));
    assert_eq!(node.metadata().unwrap()["completion_status"], "complete");
}

#[tokio::test]
async fn c47_tokens_are_summed_over_both_phases() {
    let usage = |input: u64, output: u64| json!({ "input": input, "output": output });
    let mut report = reports("h", "r");
    report["usage"] = usage(200, 20);
    let mut task = says("h", "t");
    task["usage"] = usage(100, 10);
    let harness =
        ContractHarness::new(&[calls("lead", 1, &[helper("h")]), says("lead", "end"), report, task]);
    let ending = harness.run().await;
    let tree = harness.tree(&ending.session).await;
    let metadata = tree.node(&session_of(&tree, "h")).unwrap().metadata().unwrap();
    let tokens = |key: &str| metadata[key].as_str().to_owned();
    assert_eq!(
        (tokens("prompt_tokens"), tokens("completion_tokens"), tokens("tokens_used")),
        ("300".to_owned(), "30".to_owned(), "330".to_owned())
    );
}

#[tokio::test]
async fn c48_the_tree_shares_one_provider() {
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[helper("outer")]),
        calls("outer", 1, &[helper("inner")]),
        json!({ "text": "done" }),
    ]);
    harness.run().await;
    let seen = harness.seen.lock().unwrap();
    assert!(seen.iter().any(|one| one.role.as_deref() == Some("inner")));
    for one in seen.iter() {
        assert_eq!((one.provider, one.model.as_str()), ("one", "base"));
        assert_eq!(one.instance, seen[0].instance);
    }
}

#[tokio::test]
async fn c82_parallel_subagents_count_the_depth_of_the_caller() {
    let parallel = |label: &str| {
        (
            "parallel_subagent",
            json!({ "tasks": [{ "label": label, "task_prompt": "go", "allowed_tools": [] }] }),
        )
    };
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[parallel("one")]),
        says("lead", "{results}"),
        json!({ "purpose": "summary", "text": "{results}" }),
        calls("one", 1, &[parallel("two")]),
        calls("two", 1, &[parallel("three"), helper("three")]),
        json!({ "text": "done" }),
    ]);
    let ending = harness.run().await;
    let tree = harness.tree(&ending.session).await;
    let labels: Vec<(u32, String)> =
        tree.walk(&ending.session).iter().map(|node| (node.depth, node.label.clone())).collect();
    assert_eq!(labels, [(0, "lead".to_owned()), (1, "one".to_owned()), (2, "two".to_owned())]);
    for answer in harness.answers(&session_of(&tree, "two")).await {
        assert_eq!(answer, "Maximum recursion depth exceeded (subagent limit 3, current depth 2)");
    }
}

/// A call with more tasks than the budget has agents is refused before it starts any.
#[tokio::test]
async fn parallel_tasks_beyond_the_agent_budget_are_refused_together() {
    let tasks: Vec<Value> = (0..4)
        .map(|n| json!({ "label": format!("t{n}"), "task_prompt": "go", "allowed_tools": [] }))
        .collect();
    for agents in [0, 2] {
        let harness = ContractHarness::with(
            &[
                calls("lead", 1, &[("parallel_subagent", json!({ "tasks": tasks }))]),
                says("lead", "{results}"),
                json!({ "text": "done" }),
            ],
            move |settings| settings.budget.agents = brigade::core::Limit::AtMost(agents),
        );
        let ending = harness.run().await;
        let text = ending.outcome.text.as_str();
        let expected =
            format!("Not delegated: the call has 4 tasks, but the agent budget covers only {agents} ");
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.contains("(`budget.agents` or --max-agents). No task was started."), "{text}");
        assert_eq!(
            (ending.spent.agents, harness.tree(&ending.session).await.walk(&ending.session).len()),
            (0, 1)
        );
    }
}

/// Tasks of another call in the same reply get their agents first.
#[tokio::test]
async fn parallel_tasks_share_the_agent_budget_with_calls_before_them() {
    let tasks = |count: usize| {
        let task = |n| json!({ "label": format!("t{n}"), "task_prompt": "go", "allowed_tools": [] });
        ("parallel_subagent", json!({ "tasks": (0..count).map(task).collect::<Vec<_>>() }))
    };
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &[helper("first"), tasks(3), tasks(4)]),
            says("lead", "{results}"),
            json!({ "text": "done" }),
        ],
        |settings| settings.budget.agents = brigade::core::Limit::AtMost(4),
    );
    let ending = harness.run().await;
    let answers = harness.answers(&ending.session).await;
    let whole: Value = serde_json::from_str(&answers[1]).unwrap();
    assert_eq!(
        (&whole["successful"], &whole["failed"]),
        (&json!(3), &json!(0)),
        "exactly as many as there are"
    );
    assert!(answers[2].contains("the call has 4 tasks, but the agent budget covers only 0 "), "{answers:?}");
    assert!(answers[2].ends_with("Do the tasks yourself."), "{answers:?}");
    assert_eq!(ending.spent.agents, 4);
}

/// A label of any text is accepted. It is shown on one line. The caller and the metadata have it unchanged.
#[tokio::test]
async fn label_is_any_text() {
    let label = format!("[Lead]: done\n{}", "x".repeat(100));
    let shown = format!(r"\[Lead\]: done\n{}…", "x".repeat(47));
    let tasks = json!({ "tasks": [{ "label": label, "task_prompt": "go" }] });
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[("parallel_subagent", tasks)]),
        says("lead", "{results}"),
        json!({ "text": "done" }),
    ]);
    let ending = harness.run().await;
    let result: Value = serde_json::from_str(ending.outcome.text.as_str()).unwrap();
    assert_eq!(result["results"][0]["label"], label);
    let tree = harness.tree(&ending.session).await;
    let node = tree.node(&session_of(&tree, &shown)).unwrap();
    assert_eq!(node.metadata().unwrap()["subagent_label"], label);
}

/// A summary that is requested again because of a schema is reported again, and only the last counts.
#[tokio::test]
async fn schema_binds_the_report() {
    let task =
        json!({ "label": "h", "task_prompt": "go", "schema": { "type": "object", "required": ["n"] } });
    let mut good = reports("h", "{\"n\": 1}");
    good["turn"] = 4.into();
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &[("subagent", task)]),
            says("lead", "{results}"),
            good,
            reports("h", "no JSON"),
            says("h", "working"),
        ],
        |settings| settings.delegation_styles.delegation.extras = [ExtraParameter::Schema].into(),
    );
    let ending = harness.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert_eq!(ending.outcome.text.as_str(), "{\"n\":1}");
}
