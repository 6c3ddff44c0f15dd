//! Stories of the contracts, on the scripted model.

use std::sync::{Arc, Mutex};

use brigade::core::{Agent, Status};
use brigade::lifecycle::Observer;
use brigade::{AgentCatalog, SubagentCallbacks, Task};
use serde_json::{Value, json};

use super::{ContractHarness, agent, calls, dispatch, helper, list, reports, says, session_of, spawn};
use crate::run::support::end;

#[tokio::test]
async fn story_06_subagent_has_search_and_read_tools_only() {
    let task = json!({
        "label": "analyze_logs", "task_prompt": "Find the error", "allowed_tools": ["file_ops", "grep"], "max_turns": 5
    });
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[("subagent", task)]),
        says("lead", "{results}"),
        reports("analyze_logs", "one error"),
        calls("analyze_logs", 1, &[("grep", json!({ "pattern": "ERROR" })), ("list_dir", json!({}))]),
        calls("analyze_logs", 2, &[("read_file", json!({ "path": "app.log" }))]),
        calls(
            "analyze_logs",
            3,
            &[
                ("write_file", json!({ "path": "x", "content": "x" })),
                ("shell", json!({ "command": "true" })),
            ],
        ),
        says("analyze_logs", "done"),
    ]);
    std::fs::write(harness.folder.path().join("app.log"), "fine\nERROR disk full\n").unwrap();
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "one error");
    let child = session_of(&harness.tree(&ending.session).await, "analyze_logs");
    let answers = harness.answers(&child).await;
    assert!(answers[0].contains("ERROR disk full") && answers[1].contains("app.log"), "{answers:?}");
    assert!(answers[2].contains("disk full"), "{answers:?}");
    assert!(answers[3].contains("Unknown tool `write_file`"), "{answers:?}");
    assert!(answers[4].contains("Unknown tool `shell`"), "{answers:?}");
    let mut offered = harness.requests("analyze_logs").remove(0).tools;
    offered.sort_unstable();
    assert_eq!(offered, ["grep", "list_dir", "parallel_subagent", "read_file", "subagent"]);
}

#[tokio::test]
async fn story_07_subagents_nest_twice_and_the_third_is_refused() {
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[helper("one")]),
        says("lead", "{results}"),
        json!({ "purpose": "summary", "text": "{role}: {results}" }),
        calls("one", 1, &[helper("two")]),
        calls("two", 1, &[helper("three")]),
        json!({ "text": "done" }),
    ]);
    let ending = harness.run().await;
    assert_eq!(
        ending.outcome.text.as_str(),
        "one: two: Maximum recursion depth exceeded (subagent limit 3, current depth 2)"
    );
    let tree = harness.tree(&ending.session).await;
    assert_eq!(tree.walk(&ending.session).len(), 3);
    for node in &tree.walk(&ending.session)[1..] {
        assert_eq!(node.metadata().unwrap()["completion_status"], "complete");
    }
}

#[tokio::test]
async fn story_08_long_report_of_an_endless_subagent() {
    let task = json!({ "label": "endless", "task_prompt": "go", "max_turns": 1 });
    let long = "0123456789".repeat(500);
    let mut more = says("endless", "");
    more["call"] = json!([{ "tool": "echo", "arguments": { "text": "again" } }]);
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[("subagent", task)]),
        says("lead", "{results}"),
        reports("endless", &long),
        more,
    ]);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    let expected = format!("{}\n... (truncated)\n(incomplete: turns)", &long[..4096]);
    assert_eq!(ending.outcome.text.as_str(), expected);
    let tree = harness.tree(&ending.session).await;
    let node = tree.node(&session_of(&tree, "endless")).unwrap();
    let metadata = node.metadata().unwrap();
    for (key, value) in [
        ("completion_status", "incomplete"),
        ("max_turns_reached", "true"),
        ("max_turns", "1"),
        ("truncated", "true"),
        ("turns_used", "2"),
    ] {
        assert_eq!(metadata.get(key).map(String::as_str), Some(value), "{key}");
    }
    let brigade::core::view::Activity::Ended(outcome) = &node.activity else { panic!() };
    assert_eq!(outcome.text.as_str(), long, "the whole text stays in the session");
}

#[tokio::test]
async fn story_11_a_planner_dispatches_a_coder_with_a_model_of_its_own() {
    let harness = ContractHarness::with(
        &[
            calls("planner", 1, &[dispatch("coder")]),
            says("planner", "{results}"),
            calls("coder", 1, &[("write_file", json!({ "path": "a.rs", "content": "fn main() {}" }))]),
            says("coder", "written"),
        ],
        |settings| {
            let coder = Agent {
                provider: Some("two".to_owned()),
                model: Some("coder-1".to_owned()),
                temperature: Some(0.1),
                tools: Some(list(&["write_file", "shell"])),
                ..agent("coder")
            };
            settings.agents = AgentCatalog::new().with(coder).with(agent("planner"));
        },
    );
    let planner = Agent { tools: Some(list(&["read_file"])), ..agent("planner") };
    let ending = harness.run_task(Task::new("build it").agent(planner)).await;
    let result: Value = serde_json::from_str(ending.outcome.text.as_str()).unwrap();
    assert_eq!(result["result"], "written");
    assert!(harness.folder.path().join("a.rs").exists());
    let asked = harness.requests("coder").remove(0);
    assert_eq!(
        (asked.provider, asked.model.as_str(), asked.system.as_str()),
        ("two", "coder-1", "You are coder.")
    );
    assert_eq!(asked.temperature, Some(0.1));
    let planner = harness.requests("planner").remove(0);
    assert_eq!(planner.temperature, None);
    assert_eq!((planner.provider, planner.model.as_str()), ("one", "base"));
    assert!(planner.tools.contains(&"subagent_dispatch".to_owned()));
    assert!(!planner.tools.contains(&"write_file".to_owned()));
}

#[tokio::test]
async fn story_12_six_callbacks_see_two_nested_sub_agents() {
    let mut outer = calls("outer", 1, &[spawn("inner")]);
    outer["text"] = "asking another".into();
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[spawn("outer")]),
        says("lead", "{results}"),
        outer,
        says("outer", "outer is done"),
        says("inner", "inner is done"),
    ]);
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let say = |lines: &Arc<Mutex<Vec<String>>>| {
        let lines = lines.clone();
        move |line: String| lines.lock().unwrap().push(line)
    };
    let (start, delta, call, result) = (say(&lines), say(&lines), say(&lines), say(&lines));
    let (complete, error) = (say(&lines), say(&lines));
    let mut callbacks = SubagentCallbacks {
        on_start: Some(Box::new(move |info| {
            start(format!("{} start {} {}", info.id, info.description, info.mode))
        })),
        on_stream_delta: Some(Box::new(move |id, text| delta(format!("{id} says {text}")))),
        on_tool_call_start: Some(Box::new(move |id, written| call(format!("{id} calls {}", written.name)))),
        on_tool_call_end: Some(Box::new(move |id, got| result(format!("{id} got {}", got.text)))),
        on_complete: Some(Box::new(move |id, end| {
            complete(format!("{id} complete {} {}", end.turns, end.text))
        })),
        on_error: Some(Box::new(move |id, cause| error(format!("{id} error {cause}")))),
    };
    let mut run = harness.runtime.start(Task::new("the task")).await.unwrap();
    let (mut watch, mut observer) = (run.take_events(), Observer::new());
    while let Some(live) = watch.next().await {
        observer.observe(&live).iter().for_each(|event| callbacks.call(event));
    }
    end(run).await.unwrap();
    let expected = [
        "sub_1 start outer spawn",
        "sub_1 says asking another",
        "sub_1 calls subagent_spawn",
        "sub_2 start inner spawn",
        "sub_2 says inner is done",
        "sub_2 complete 1 inner is done",
        "sub_1 got inner is done",
        "sub_1 says outer is done",
        "sub_1 complete 2 outer is done",
    ];
    assert_eq!(*lines.lock().unwrap(), expected);
}

#[tokio::test]
async fn story_14_mixed_tree_with_a_role_that_cannot_delegate() {
    let any = [
        ("delegate", json!({ "role": "x", "task": "x" })),
        helper("x"),
        ("parallel_subagent", json!({ "tasks": [{ "label": "x", "task_prompt": "x" }] })),
        dispatch("coder"),
        spawn("x"),
        ("subagent_delegate", json!({ "task": "x", "description": "x" })),
    ];
    let harness = ContractHarness::with(
        &[
            calls(
                "lead",
                1,
                &[
                    ("delegate", json!({ "role": "Writer", "task": "go" })),
                    dispatch("coder"),
                    helper("look"),
                    spawn("try"),
                ],
            ),
            says("lead", "end"),
            calls("Writer", 1, &any),
            calls("coder", 1, &[helper("deeper")]),
            calls("look", 1, &[spawn("deepest")]),
            json!({ "text": "done" }),
        ],
        |settings| settings.agents = AgentCatalog::new().with(agent("coder")),
    );
    let ending = harness.run().await;
    let tree = harness.tree(&ending.session).await;
    let rendered: Vec<String> = tree
        .walk(&ending.session)
        .iter()
        .map(|node| format!("{}{} ({})", "  ".repeat(node.depth as usize), node.label, node.style))
        .collect();
    let expected = [
        "lead (run)",
        "  Writer (delegate)",
        "  coder (dispatch)",
        "    deeper (subagent)",
        "  look (subagent)",
        "    deepest (spawn)",
        "  try (spawn)",
    ];
    let mut sorted = (rendered.clone(), expected.map(str::to_owned).to_vec());
    sorted.0.sort_unstable();
    sorted.1.sort_unstable();
    assert_eq!(sorted.0, sorted.1, "{rendered:?}");
    assert_eq!(
        harness.requests("Writer")[0]
            .tools
            .iter()
            .filter(|name| any.iter().any(|(tool, _)| tool == name))
            .count(),
        0
    );
    for answer in harness.answers(&session_of(&tree, "Writer")).await {
        assert!(answer.contains("recursion"), "{answer}");
    }
}
