//! Style A (`delegate`) on the driver: the points of the contract that need a run.

use brigade::core::delegation_styles::delegate::SwarmRole;
use brigade::core::permission::{Mode, Permissions};
use brigade::core::view::{self, Activity};
use brigade::core::{DelegationStyle, Event, Status};
use brigade::lifecycle::{Lifecycle, Observer};
use brigade::{Settings, Task};
use brigade_testing::{Fault, Reply, Script, call, delegate, fault, reply};
use serde_json::{Value, json};

use crate::run::support::{Harness, check_laws, end};

fn one_child(researcher: impl IntoIterator<Item = Reply>) -> Script {
    Script::new()
        .agent("lead", [delegate("Researcher", "find it"), reply("lead: {result:0}").turn(2)])
        .agent("Researcher", researcher)
}

#[tokio::test]
async fn c12_delegate_result_has_the_role_in_the_callers_spelling() {
    let harness = Harness::new(one_child([reply("found {task}")]));
    let ending = harness.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert_eq!(ending.outcome.text.as_str(), "lead: [Researcher]: found find it");
    check_laws(&harness.log(&ending.session).await);
}

#[tokio::test]
async fn c13_delegate_failure_is_a_result_and_c80_never_ends_the_parent() {
    let harness = Harness::new(one_child([fault(Fault::Refused)]));
    let ending = harness.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert_eq!(
        ending.outcome.text.as_str(),
        "lead: Sub-agent 'Researcher' failed: the scripted model refuses"
    );
    check_laws(&harness.log(&ending.session).await);
}

#[tokio::test]
async fn c08_delegate_preset_prompt_and_tools_reach_the_child() {
    let harness = Harness::with(one_child([reply("found {task}")]), |settings: &mut Settings| {
        let role = SwarmRole {
            system_prompt: "You search.".to_owned(),
            tools: vec!["grep".to_owned()],
            ..SwarmRole::default()
        };
        settings.delegation_styles.swarm.roles.insert("RESEARCHER".to_owned(), role);
    });
    let ending = harness.run().await;
    let events = harness.events(&ending.session.child("1-0".parse().unwrap())).await;
    let Event::Started { agent, grant, .. } = &events[0] else { panic!("no start") };
    let agent = harness.store.inner.blob(*agent).await.unwrap().unwrap();
    assert!(agent.contains("You search."));
    let authority = harness.store.inner.blob(grant.authority).await.unwrap().unwrap();
    let authority: brigade::core::Authority = serde_json::from_str(&authority).unwrap();
    assert_eq!(authority.tools.iter().collect::<Vec<_>>(), ["grep", "message"]);
}

#[tokio::test]
async fn c14_delegate_child_sees_nothing_of_the_parent_and_c15_has_a_session_of_its_own() {
    let script = Script::new()
        .agent("lead", [delegate("One", "first").delegate("Two", "second"), reply("{results}")])
        .reply("I was told: {heard}");
    let harness = Harness::new(script);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "[One]: I was told: first\n[Two]: I was told: second");
    let sessions = harness.store.inner.sessions(&ending.session).await.unwrap();
    assert_eq!(sessions.len(), 3);
    let keys: Vec<String> =
        sessions[1..].iter().map(|session| view::key(DelegationStyle::Delegate, None, session)).collect();
    assert_ne!(keys[0], keys[1]);
    assert!(keys.iter().all(|key| key.starts_with("delegate:") && key.len() == 17));
}

#[tokio::test]
async fn c04_c11_delegate_from_a_child_at_the_limit_is_refused() {
    let script = |arguments: Value| {
        Script::new()
            .agent("lead", [delegate("Child", "x"), reply("{result:0}")])
            .agent("Child", [call("delegate", arguments).turn(1)])
            .agent("Grandchild", [reply("deep")])
            .agent("Child", [reply("{result:0}")])
    };
    let harness = Harness::new(script(json!({ "nonsense": 1 })));
    let ending = harness.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(ending.outcome.text.as_str().contains("recursion"), "{}", ending.outcome.text);

    let deeper = Harness::with(script(json!({ "role": "Grandchild", "task": "y" })), |settings| {
        settings.delegation_styles.swarm.max_depth = 2
    });
    let ending = deeper.run().await;
    assert_eq!(ending.outcome.text.as_str(), "[Child]: [Grandchild]: deep");
}

#[tokio::test]
async fn c07_c17_delegate_is_absent_and_refused_when_disabled() {
    let harness = Harness::with(one_child([reply("found {task}")]), |settings| {
        settings.delegation_styles.swarm.enabled = false
    });
    let ending = harness.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(ending.outcome.text.as_str().contains("Delegation is disabled in configuration"));
}

#[tokio::test]
async fn c16_child_message_reaches_the_user_before_the_end() {
    let script = Script::new()
        .agent(
            "lead",
            [call("delegate", json!({ "role": "Scout", "task": "x", "tools": [] })), reply("done")],
        )
        .agent("Scout", [call("message", json!({ "text": "half way" })), reply("found").delay_ms(200)]);
    let harness = Harness::new(script);
    let mut run = harness.runtime().start(Task::new("the task")).await.unwrap();
    let root = run.session().clone();
    let mut watch = run.take_events();
    let said = loop {
        let live = watch.next().await.expect("the message comes before the end");
        if let brigade::RunEvent::Record(record) = live {
            match &record.event {
                Event::Said { text, .. } => break text.to_string(),
                Event::Ended { .. } => panic!("ended before the message"),
                _ => {}
            }
        }
    };
    assert_eq!(said, "half way");
    end(run).await.unwrap();
    let tree = view::Tree::fold(&harness.log(&root).await);
    assert_eq!(tree.agent_messages()[0].role, "Scout");
}

#[tokio::test]
async fn c16_a_deny_rule_silences_children() {
    let script = Script::new().turns([call("message", json!({ "text": "hello" })), reply("{result:0}")]);
    let harness = Harness::with(script, |settings| {
        settings.permissions.deny.push("message".parse().unwrap());
    });
    let ending = harness.run().await;
    assert!(ending.outcome.text.as_str().contains("not allowed"), "{}", ending.outcome.text);
}

#[tokio::test]
async fn c78_a_childs_usage_is_in_the_totals() {
    let script = Script::new()
        .price(2.0, 10.0)
        .agent("lead", [delegate("Child", "x").tokens(100, 10), reply("done").tokens(200, 20)])
        .agent("Child", [reply("ok").tokens(50, 5)]);
    let harness = Harness::new(script);
    let ending = harness.run().await;
    assert_eq!(ending.spent.usage.input, 350);
    assert_eq!(ending.spent.usage.output, 35);
    assert_eq!(ending.spent.turns, 3);
    assert_eq!(ending.spent.agents, 1);
    // 350 tokens at 2 dollars and 35 at 10 dollars a million.
    assert_eq!(ending.spent.usd, 350 * 2_000 + 35 * 10_000);
    let tree = view::Tree::fold(&harness.log(&ending.session).await);
    assert_eq!(tree.spent(&ending.session), ending.spent);
}

#[tokio::test]
async fn c79_calls_of_one_turn_run_at_once_and_answer_in_call_order() {
    let script = Script::new()
        .agent("lead", [delegate("Slow", "x").delegate("Quick", "x"), reply("{results}")])
        .agent("Slow", [reply("slow").delay_ms(300)])
        .agent("Quick", [reply("quick")]);
    let harness = Harness::new(script);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "[Slow]: slow\n[Quick]: quick");
    let log = harness.log(&ending.session).await;
    let place = |wanted: &str, label: &str| {
        let child = log.iter().find(|record| matches!(&record.event, Event::Started { delegation, .. } if delegation.role.as_deref() == Some(label))).unwrap().session.clone();
        log.iter().position(|record| record.session == child && record.event.kind() == wanted).unwrap()
    };
    assert!(place("ended", "Quick") < place("ended", "Slow"));
    assert!(place("called", "Quick") < place("replied", "Slow"));
}

#[tokio::test]
async fn unknown_tools_on_a_whitelist_are_reported_and_do_not_widen() {
    let script = Script::new()
        .agent(
            "lead",
            [
                call("delegate", json!({ "role": "Child", "task": "x", "tools": ["read_file", "teleport"] })),
                reply("{result:0}"),
            ],
        )
        .agent("Child", [call("write_file", json!({ "path": "a", "content": "b" })), reply("{result:0}")]);
    let harness = Harness::new(script);
    let ending = harness.run().await;
    let text = ending.outcome.text.as_str();
    assert!(text.contains("Unknown tool `write_file`"), "{text}");
    assert!(
        text.ends_with(
            "(warning: tools not granted, because they are unknown or you cannot pass them on: teleport)"
        ),
        "{text}"
    );
    assert!(!harness.path().join("a").exists());
}

#[tokio::test]
async fn plan_mode_writes_nothing_at_any_depth() {
    let script = Script::new()
        .agent(
            "lead",
            [
                delegate("Child", "x").call("write_file", json!({ "path": "lead", "content": "b" })),
                reply("{results}"),
            ],
        )
        .agent(
            "Child",
            [call("write_file", json!({ "path": "child", "content": "b" })), reply("{result:0}")],
        );
    let harness = Harness::with(script, |settings| {
        settings.permissions = Permissions {
            mode: Mode::Plan,
            allow: vec!["write_file".parse().unwrap()],
            ..Permissions::default()
        };
    });
    let ending = harness.run().await;
    insta::assert_snapshot!(ending.outcome.text.as_str());
    assert_eq!(std::fs::read_dir(harness.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn lifecycle_events_come_in_order_with_one_terminal_event() {
    let harness = Harness::new(one_child([
        reply("looking").call("echo", json!({ "text": "e" })),
        reply("found {task}"),
    ]));
    let mut run = harness.runtime().start(Task::new("the task")).await.unwrap();
    let mut watch = run.take_events();
    let mut observer = Observer::new();
    let mut seen = Vec::new();
    let collect = async {
        while let Some(live) = watch.next().await {
            for event in observer.observe(&live) {
                seen.push(match event {
                    Lifecycle::Start(info) => format!("start {} {}", info.description, info.mode),
                    Lifecycle::StreamDelta { text, .. } => format!("delta {text}"),
                    Lifecycle::ToolCallStart { call, .. } => format!("call {}", call.name),
                    Lifecycle::ToolCallEnd { result, .. } => format!("result {}", result.text),
                    Lifecycle::Complete { result, .. } => {
                        format!("complete {} {}", result.text, result.turns)
                    }
                    Lifecycle::Error { error, .. } => format!("error {error}"),
                });
            }
        }
    };
    let (ending, ()) = tokio::join!(end(run), collect);
    ending.unwrap();
    assert_eq!(
        seen,
        [
            "start Researcher role",
            "delta looking",
            "call echo",
            "result e",
            "delta found find it",
            "complete found find it 2"
        ]
    );
}

#[tokio::test]
async fn bad_calls_are_error_results_and_the_run_continues() {
    let script = Script::new().turns([
        call("teleport", json!({}))
            .call("read_file", json!({ "file": "x" }))
            .raw_call("read_file", r#"{"path":"a","path":"b"}"#)
            .raw_call("read_file", r#"{"path":"#)
            .call("shell", json!({ "command": "true" })),
        reply("ok"),
    ]);
    let harness = Harness::new(script);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    let answers = harness.answers(&ending.session).await;
    insta::assert_snapshot!(answers.join("\n"));
    let tree = view::Tree::fold(&harness.log(&ending.session).await);
    let node = tree.node(&ending.session).unwrap();
    assert_eq!(node.tool_errors, 5);
    assert!(matches!(node.activity, Activity::Ended(_)));
}

#[tokio::test]
async fn empty_task_is_refused_and_leaves_no_session() {
    let harness = Harness::new(one_child([reply("found {task}")]));
    assert!(harness.runtime().start(Task::new(" \n")).await.is_err());
    assert!(harness.store.inner.roots().await.unwrap().is_empty());
}
