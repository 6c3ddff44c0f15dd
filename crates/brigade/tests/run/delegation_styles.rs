//! Styles B, C and D on the driver. A test named `c` and a number covers that point of the contracts.

use brigade::core::delegation::Status;
use brigade::core::delegation_styles::spawn::SpawnConfig;
use brigade::core::delegation_styles::subagent::SubagentConfig;
use brigade::core::{Agent, Event, view};
use brigade::{AgentCatalog, Settings};
use brigade_testing::{Fault, Purpose, Reply, Script, call, delegate, fault, reply};
use serde_json::{Value, json};

use super::support::{Harness, check_laws};

fn helper() -> Script {
    Script::new()
        .agent(
            "lead",
            [
                call(
                    "subagent",
                    json!({ "label": "helper", "task_prompt": "look", "summary_prompt": "SUM UP" }),
                ),
                reply("{result:0}"),
            ],
        )
        .agent("helper", [reply("the report on: {heard}").purpose(Purpose::Summary)])
        .agent("helper", [reply("the first answer")])
}

fn subagent(settings: &mut Settings) {
    settings.delegation_styles.subagent = Some(SubagentConfig::default());
}

fn spawn(settings: &mut Settings) {
    settings.delegation_styles.spawn = Some(SpawnConfig::default());
}

fn agent(id: &str) -> Agent {
    Agent {
        id: id.to_owned(),
        name: id.to_owned(),
        description: format!("Does {id}"),
        prompt: format!("You are {id}."),
        ..Agent::default()
    }
}

#[tokio::test]
async fn c33_c42_c43_subagent_returns_the_answer_to_the_summary_prompt() {
    let harness = Harness::with(helper(), subagent);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "the report on: SUM UP");
    let log = harness.log(&ending.session).await;
    check_laws(&log);
    let tree = view::Tree::fold(&log);
    let helper = tree.walk(&ending.session)[1].clone();
    let metadata = helper.metadata().unwrap();
    let expected = [
        ("subagent_label", "helper"),
        ("recursion_depth", "0"),
        ("child_depth", "1"),
        ("turns_used", "2"),
        ("completion_status", "complete"),
    ];
    for (key, value) in expected {
        assert_eq!(metadata[key], value, "{key}");
    }
    assert!(!metadata.contains_key("max_turns_reached"));
    let (all, sent, got): (u64, u64, u64) = (
        metadata["tokens_used"].parse().unwrap(),
        metadata["prompt_tokens"].parse().unwrap(),
        metadata["completion_tokens"].parse().unwrap(),
    );
    assert!(all == sent + got && sent > 0 && got > 0);
}

#[tokio::test]
async fn c35_c46_subagent_at_its_turn_limit_reports_and_is_incomplete() {
    let script = Script::new()
        .agent(
            "lead",
            [
                call("subagent", json!({ "label": "endless", "task_prompt": "go", "max_turns": 2 })),
                reply("{result:0}"),
            ],
        )
        .agent("endless", [reply("as far as I got").purpose(Purpose::Summary)])
        .agent("endless", [call("echo", json!({ "text": "again" }))]);
    let harness = Harness::with(script, subagent);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "as far as I got\n(incomplete: turns)");
    assert_eq!(ending.outcome.status, Status::Done);
    let log = harness.log(&ending.session).await;
    check_laws(&log);
    let tree = view::Tree::fold(&log);
    let metadata = tree.walk(&ending.session)[1].metadata().unwrap();
    assert_eq!(metadata["completion_status"], "incomplete");
    assert_eq!((metadata["max_turns_reached"].as_str(), metadata["max_turns"].as_str()), ("true", "2"));
    assert_eq!(metadata["turns_used"], "3");
}

#[tokio::test]
async fn c23_subagents_nest_to_the_limit_and_are_refused_there() {
    let script = Script::new()
        .reply(reply("{role} reports: {results}").purpose(Purpose::Summary))
        .agent("lead", [reply("{result:0}").turn(2)])
        .agent("lead", [call("subagent", json!({ "label": "one", "task_prompt": "go" }))])
        .agent("one", [call("subagent", json!({ "label": "two", "task_prompt": "go" })).turn(1)])
        .agent("two", [Reply::default().raw_call("subagent", "this is not even JSON").turn(1)])
        .reply("done");
    let harness = Harness::with(script, subagent);
    let ending = harness.run().await;
    let text = ending.outcome.text.as_str();
    assert!(text.contains("Maximum recursion depth exceeded (subagent limit 3, current depth 2)"), "{text}");
    check_laws(&harness.log(&ending.session).await);
}

fn parallel(arguments: Value) -> Script {
    Script::new()
        .agent("lead", [call("parallel_subagent", arguments), reply("{result:0}")])
        .agent("bad", [fault(Fault::Refused)])
        .agent("slow", [reply("never").delay_ms(60_000)])
        .reply(reply("{role} is done").purpose(Purpose::Summary))
        .reply(reply("first").delay_ms(20))
}

#[tokio::test]
async fn parallel_subagents_return_json_in_task_order() {
    let tasks: Vec<Value> =
        (0..7).map(|n| json!({ "label": format!("t{n}"), "task_prompt": "go" })).collect();
    let harness = Harness::with(parallel(json!({ "tasks": tasks, "max_concurrent": 2 })), subagent);
    let ending = harness.run().await;
    let result: serde_json::Value = serde_json::from_str(ending.outcome.text.as_str()).unwrap();
    assert_eq!((result["successful"].as_u64(), result["failed"].as_u64()), (Some(7), Some(0)));
    for (n, one) in result["results"].as_array().unwrap().iter().enumerate() {
        assert_eq!(one["label"], format!("t{n}"));
        assert_eq!(one["output"], format!("t{n} is done"));
        assert_eq!((&one["success"], &one["error"]), (&true.into(), &serde_json::Value::Null));
        assert!(one["tokens_used"].as_u64().unwrap() > 0 && one["duration_ms"].is_u64());
    }
    assert!(result["total_duration_ms"].as_u64().unwrap() >= 60);
    let log = harness.log(&ending.session).await;
    check_laws(&log);
    let (mut out, mut most) = (0, 0);
    for record in &log {
        match record.event {
            Event::Delegated { .. } => out += 1,
            Event::Returned { .. } => out -= 1,
            _ => {}
        }
        most = most.max(out);
    }
    assert_eq!(most, 2, "never more than max_concurrent");
}

#[tokio::test]
async fn fail_fast_cancels_what_still_runs_and_starts_nothing_more() {
    let tasks = ["slow", "bad", "late"].map(|label| json!({ "label": label, "task_prompt": "go" }));
    let arguments = json!({ "tasks": tasks, "max_concurrent": 2, "fail_fast": true });
    let harness = Harness::with(parallel(arguments), subagent);
    let ending = harness.run().await;
    let result: serde_json::Value = serde_json::from_str(ending.outcome.text.as_str()).unwrap();
    assert_eq!((result["successful"].as_u64(), result["failed"].as_u64()), (Some(0), Some(3)));
    let error = |n: usize| result["results"][n]["error"].as_str().unwrap().to_owned();
    assert!(error(0).starts_with("cancelled by `fail_fast`"), "{}", error(0));
    assert!(error(2).starts_with("not started"), "{}", error(2));
    check_laws(&harness.log(&ending.session).await);
}

fn dispatch() -> Script {
    Script::new()
        .agent(
            "lead",
            [
                call(
                    "subagent_dispatch",
                    json!({ "agent_id": "reviewer", "task": "look", "context": "a file" }),
                )
                .call("subagent_dispatch", json!({ "agent_id": "nobody", "task": "look" })),
                reply("{result:0}\n{result:1}"),
            ],
        )
        .agent("reviewer", [reply("I was asked: {task}")])
}

#[tokio::test]
async fn c55_c56_c58_a_dispatch_returns_result_and_session_id() {
    let harness = Harness::with(dispatch(), |settings| {
        settings.agents = AgentCatalog::new().with(agent("reviewer")).with(agent("coder"));
    });
    let ending = harness.run().await;
    let text = ending.outcome.text.as_str();
    let (first, second) = text.split_once('\n').unwrap();
    let result: serde_json::Value = serde_json::from_str(first).unwrap();
    assert_eq!(result.as_object().unwrap().len(), 2);
    assert_eq!(result["result"], "I was asked: look\n\nContext:\na file");
    assert_eq!(result["session_id"], format!("{}.1-0", ending.session));
    assert_eq!(second, "Agent 'nobody' not found");
    check_laws(&harness.log(&ending.session).await);
}

#[tokio::test]
async fn c61_c62_agents_dispatch_each_other_until_the_cap() {
    let script = Script::new()
        .agent("lead", [call("subagent_dispatch", json!({ "agent_id": "a", "task": "go" })).turn(1)])
        .agent("a", [call("subagent_dispatch", json!({ "agent_id": "b", "task": "go" })).turn(1)])
        .agent("b", [call("subagent_dispatch", json!({ "agent_id": "a", "task": "go" })).turn(1)])
        .reply("{role} had: {results}");
    let harness = Harness::with(script, |settings| {
        let one = |id: &str| Agent { max_concurrency: Some(1), ..agent(id) };
        settings.agents = AgentCatalog::new().with(one("a")).with(one("b"));
        settings.limits.max_depth = 5;
        settings.limits.concurrency = 1;
    });
    let ending = harness.run().await;
    let log = harness.log(&ending.session).await;
    check_laws(&log);
    let deepest = view::Tree::fold(&log).walk(&ending.session).iter().map(|node| node.depth).max();
    assert_eq!(deepest, Some(5));
    assert!(ending.outcome.text.as_str().contains("recursion limit"), "{}", ending.outcome.text);
}

#[tokio::test]
async fn c63_c64_c69_c74_spawn_runs_a_nested_loop_with_ids_of_its_own() {
    let script = Script::new()
        .agent(
            "lead",
            [
                call(
                    "subagent_spawn",
                    json!({
                        "task": "outer",
                        "description": "outer",
                        "maxTurns": 3,
                        "systemPrompt": "Be brief.",
                    }),
                )
                .call("subagent_delegate", json!({ "task": "one answer", "description": "single" })),
                reply("{results}"),
            ],
        )
        .agent("outer", [call("subagent_spawn", json!({ "task": "inner" })), reply("outer got {results}")])
        .agent("single", [reply("one answer only").call("echo", json!({ "text": "no" }))])
        .agent(
            "subagent task",
            [call("subagent_spawn", json!({ "task": "too deep" })), reply("inner got {results}")],
        );
    let harness = Harness::with(script, spawn);
    let ending = harness.run().await;
    let text = ending.outcome.text.as_str();
    assert!(
        text.contains(
            "outer got inner got Delegation refused: the maximum depth (2) is reached (recursion limit)"
        ),
        "{text}"
    );
    let log = harness.log(&ending.session).await;
    check_laws(&log);
    let tree = view::Tree::fold(&log);
    let mut keys: Vec<String> = tree.walk(&ending.session)[1..].iter().map(|node| node.key()).collect();
    keys.sort();
    assert_eq!(keys, ["sub_1", "sub_2", "sub_3"]);
    assert!(text.ends_with("one answer only"), "{text}");
    // One generation: its calls are not run, and there is no second reply.
    let single = tree.walk(&ending.session).into_iter().find(|node| node.label == "single").unwrap();
    assert_eq!(single.turns, 1);
}

#[tokio::test]
async fn background_children_report_later_and_accept_messages_and_stops() {
    let script = Script::new()
        .agent(
            "lead",
            [
                call("delegate", json!({ "role": "Quick", "task": "go", "background": true }))
                    .call("delegate", json!({ "role": "Endless", "task": "go", "background": true })),
                reply("working on")
                    .call("tell", json!({ "session_id": "ROOT.1-1", "text": "hurry" }))
                    .call("stop", json!({ "session_id": "elsewhere", "text": "hurry" })),
                reply("I would end here"),
                reply("heard: {heard}").call("echo", json!({ "text": "x" })),
                reply("the end"),
            ],
        )
        .agent("Quick", [reply("quick result").delay_ms(300)])
        .agent("Endless", [reply("told: {heard}").delay_ms(600)]);
    let harness = Harness::with(script, |settings| {
        settings.delegation_styles.delegation.extras =
            [brigade::core::delegation_styles::ExtraParameter::Background].into();
    });
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "the end");
    let log = harness.log(&ending.session).await;
    check_laws(&log);
    let answers = harness.answers(&ending.session).await;
    insta::assert_snapshot!(answers[0].replace(ending.session.as_str(), "ID"));
    assert!(answers[3].contains("not a running sub-agent of yours"), "{answers:?}");
    let heard: Vec<String> = harness
        .events(&ending.session)
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::Heard { text, .. } => Some(text.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert_eq!(heard[0], "[Quick]: quick result");
}

#[tokio::test]
async fn result_that_does_not_fit_its_schema_is_asked_for_again() {
    let script = |kind: &str, good: &str| {
        Script::new()
            .agent(
                "lead",
                [
                    call(
                        "delegate",
                        json!({
                            "role": "R",
                            "task": "go",
                            "schema": { "type": kind, "required": ["n"] },
                        }),
                    ),
                    reply("{result:0}"),
                ],
            )
            .agent("R", [reply("not JSON"), reply("[1]"), reply(good)])
    };
    let extras = |settings: &mut Settings| {
        settings.delegation_styles.delegation.extras =
            [brigade::core::delegation_styles::ExtraParameter::Schema].into();
    };
    let harness = Harness::with(script("object", "```json{\"n\": 1}```"), extras);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), r#"[R]: {"n":1}"#);
    check_laws(&harness.log(&ending.session).await);
    let harness = Harness::with(script("nonsense", "{}"), extras);
    let ending = harness.run().await;
    assert!(ending.outcome.text.as_str().starts_with("Invalid 'schema' argument"), "{}", ending.outcome.text);
    let harness = Harness::with(script("object", "{}"), extras);
    let ending = harness.run().await;
    let text = ending.outcome.text.as_str();
    assert!(text.starts_with("Sub-agent 'R' failed: the result does not match the schema"), "{text}");
}

#[tokio::test]
async fn long_result_is_cut_and_can_be_read_further() {
    let script = Script::new()
        .agent(
            "lead",
            [
                delegate("Long", "LONG"),
                call("read_result", json!({ "handle": "HANDLE", "offset": 30 }))
                    .call("read_result", json!({ "handle": "HANDLE", "pattern": "^c+$" })),
                reply("{results}"),
            ],
        )
        .agent("Long", [reply("aaaaaaaaaaaaaaaaaaaaaaa\nbbbbbbbbbbbbbbbbbbbbbbbbbbbb\ncccc")]);
    let harness = Harness::with(&script, |settings| settings.limits.result_bytes = 20);
    let ending = harness.run().await;
    let answers = harness.answers(&ending.session).await;
    // The script cannot know the id. Its second request is refused without revealing other sessions.
    insta::assert_snapshot!(answers.join("\n").replace(ending.session.as_str(), "ID"));
}

#[tokio::test]
async fn c81_delegate_child_at_its_limit_cannot_delegate() {
    let tools = [
        ("delegate", json!({ "role": "x", "task": "x" })),
        ("subagent", json!({ "label": "x", "task_prompt": "x" })),
        ("parallel_subagent", json!({ "tasks": [{ "label": "x", "task_prompt": "x" }] })),
        ("subagent_dispatch", json!({ "agent_id": "reviewer", "task": "x" })),
        ("subagent_spawn", json!({ "task": "x", "description": "x" })),
        ("subagent_delegate", json!({ "task": "x", "description": "x" })),
    ];
    let calls =
        tools.into_iter().fold(Reply::default(), |reply, (tool, arguments)| reply.call(tool, arguments));
    let script = Script::new()
        .agent("lead", [delegate("Child", "go"), reply("end")])
        .agent("Child", [calls.turn(1)])
        .reply("end");
    let harness = Harness::with(script, |settings| {
        subagent(settings);
        spawn(settings);
        settings.agents = AgentCatalog::new().with(agent("reviewer"));
    });
    let ending = harness.run().await;
    let log = harness.log(&ending.session).await;
    assert_eq!(view::Tree::fold(&log).walk(&ending.session).len(), 2);
    let child = format!("{}.1-0", ending.session).parse().unwrap();
    for answer in harness.answers(&child).await {
        assert!(answer.contains("recursion"), "{answer}");
    }
    assert_eq!(ending.outcome.status, Status::Done);
}

#[tokio::test]
async fn detached_child_runs_under_its_own_lease() {
    let script = Script::new()
        .agent(
            "lead",
            [
                call("delegate", json!({ "role": "Later", "task": "go", "background": "detach" })),
                reply("I do not wait"),
            ],
        )
        .agent("Later", [call("echo", json!({ "text": "still here" })).delay_ms(300), reply("late result")]);
    let harness = Harness::with(script, |settings| {
        settings.delegation_styles.delegation.extras =
            [brigade::core::delegation_styles::ExtraParameter::Background].into();
        settings.budget.tokens = brigade::core::Limit::AtMost(100_000);
    });
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "I do not wait");
    let child: brigade::core::SessionId = format!("{}.1-0", ending.session).parse().unwrap();
    assert_eq!(ending.detached.sessions(), std::slice::from_ref(&child));
    // The loan is booked as spent, regardless of what the child will use.
    assert!(ending.spent.unconfirmed.tokens > 10_000, "{:?}", ending.spent);
    tokio::time::timeout(super::support::TEST_TIMEOUT, ending.detached.ended()).await.unwrap();
    let events = harness.events(&child).await;
    assert!(
        matches!(events.last(), Some(Event::Ended { outcome, .. }) if outcome.text.as_str() == "late result"),
        "{:?}",
        events.last()
    );
    check_laws(&harness.log(&ending.session).await);
    use brigade::Store;
    let listed = harness.store.roots().await.unwrap();
    assert!(listed.iter().any(|summary| summary.root == child), "it is found by itself");
    harness.store.remove(&ending.session).await.unwrap();
    assert_eq!(harness.events(&child).await.len(), events.len(), "it survives its old root");
}

#[tokio::test]
async fn hundred_large_results_keep_the_lead_request_small() {
    let long = "y".repeat(1 << 20);
    let script = Script::new()
        .agent("lead", [delegate("Long", "go {n}").repeat(100), reply("end")])
        .agent("Long", [reply(&long).tokens(10, 10)]);
    let harness = Harness::new(script);
    let ending = harness.run().await;
    assert_eq!(ending.outcome.text.as_str(), "end");
    let answers = harness.answers(&ending.session).await;
    assert_eq!(answers.len(), 100);
    for (n, answer) in answers.iter().enumerate() {
        assert!(answer.len() < 16_384 + 256, "{n}: {} bytes", answer.len());
        let handle = format!("{}.1-{n}", ending.session);
        assert!(answer.contains(&format!("read the rest with `read_result`, handle {handle})")), "{n}");
    }
    let log = harness.log(&ending.session).await;
    let request = log.iter().filter_map(|record| match &record.event {
        Event::Called { turn: 2, input, .. } if record.session == ending.session => Some(*input),
        _ => None,
    });
    // Half a token per byte is the worst case that is reserved.
    assert!(request.max().unwrap() < 100 * (16_384 + 256) / 2 + 10_000);
}

#[tokio::test]
async fn role_with_the_name_of_an_agent_runs_that_agent() {
    let script = Script::new()
        .agent(
            "lead",
            [
                call(
                    "delegate",
                    json!({ "role": "REVIEWER", "task": "go", "tools": ["echo", "write_file"] }),
                ),
                reply("{result:0}"),
            ],
        )
        .agent(
            "reviewer",
            [
                call("write_file", json!({ "path": "x", "content": "x" }))
                    .call("echo", json!({ "text": "I am {role}" })),
                reply("{results}"),
            ],
        );
    let harness = Harness::with(script, |settings| {
        let tools = Some(vec!["echo".to_owned(), "read_file".to_owned()]);
        settings.agents = AgentCatalog::new().with(Agent { tools, ..agent("reviewer") });
    });
    let ending = harness.run().await;
    let text = ending.outcome.text.as_str();
    assert!(text.starts_with("[REVIEWER]: Unknown tool `write_file`"), "{text}");
    assert!(text.contains("I am REVIEWER"), "{text}");
    let log = harness.log(&ending.session).await;
    let child = log.iter().find_map(|record| match &record.event {
        Event::Delegated { agent, .. } => Some(*agent),
        _ => None,
    });
    use brigade::Store;
    let definition = harness.store.blob(child.unwrap()).await.unwrap().unwrap();
    assert!(definition.contains("You are reviewer."), "{definition}");
}
