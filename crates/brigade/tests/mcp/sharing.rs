//! Trees that use MCP servers, and the permissions of their agents.

use brigade::mcp::Servers;
use brigade::{ApprovalPolicy, Models, RunEvent, Runtime, Settings, Task, Toolbox, Workspace};
use brigade_core::Event;
use brigade_core::event::Answer;
use brigade_core::permission::Mode;
use brigade_core::view::{PendingApproval, Tree};
use brigade_testing::{Reply, Script, call, reply};
use serde_json::json;

use super::support::McpHarness;

/// Runs a script whose agents may use the server `s`, and returns the result.
async fn run_script(
    harness: &McpHarness,
    servers: &Servers,
    script: Script,
    tweak: impl FnOnce(&mut Settings),
) -> String {
    let mut settings = Settings::new("script", Workspace::open(&harness.root()).unwrap());
    settings.permissions.mode = Mode::Ask;
    settings.tools = Toolbox::standard().with_servers(servers);
    tweak(&mut settings);
    let models = Models::default().with("script", script.model());
    let run = Runtime::in_memory(settings, models).start(Task::new("do it")).await.unwrap();
    run.result().await.unwrap().outcome.text.to_string()
}

fn echo() -> Script {
    Script::new().turns([call("mcp__s__echo", json!({ "text": "deep" })), reply("{results}")])
}

fn allow(settings: &mut Settings) {
    settings.permissions.allow = vec!["mcp__s__*".parse().unwrap()];
}

#[tokio::test]
async fn call_needs_a_rule_or_mode_that_allows_it() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let text = run_script(&harness, &servers, echo(), |_| {}).await;
    assert!(!text.contains("deep") && text.contains("mcp__s__echo"), "{text}");
    let text = run_script(&harness, &servers, echo(), allow).await;
    assert!(text.contains("deep"), "{text}");
    let text =
        run_script(&harness, &servers, echo(), |settings| settings.permissions.mode = Mode::Auto).await;
    assert!(text.contains("deep"), "{text}");
    let text =
        run_script(&harness, &servers, echo(), |settings| settings.permissions.mode = Mode::Plan).await;
    assert!(text.contains("plan mode is read-only"), "{text}");
}

/// A script with a lead that lends these tools to a child, which makes a call.
fn lending(tools: &[&str], called: Reply) -> Script {
    Script::new()
        .agent(
            "lead",
            [
                call("delegate", json!({ "role": "helper", "task": "say it", "tools": tools })),
                reply("{results}"),
            ],
        )
        .turns([called, reply("{results}")])
}

#[tokio::test]
async fn child_has_server_tools_only_if_lent() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let echo = call("mcp__s__echo", json!({ "text": "deep" }));
    for lent in [&["mcp__s__echo"][..], &["mcp__s__*"], &["read_file", "mcp__s__e*"]] {
        let text = run_script(&harness, &servers, lending(lent, echo.clone()), allow).await;
        assert!(text.contains("deep"), "{lent:?}: {text}");
    }
    for kept in ["read_file", "mcp__s__env", "mcp__t__*"] {
        let text = run_script(&harness, &servers, lending(&[kept], echo.clone()), allow).await;
        assert!(text.contains("Unknown tool `mcp__s__echo`"), "{kept}: {text}");
    }
}

#[tokio::test]
async fn all_sessions_share_one_server() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let script = lending(&["mcp__s__pids"], call("mcp__s__pids", json!({ "text": "deep" })));
    let child = run_script(&harness, &servers, script, allow).await;
    let here = harness.pids(&servers).await;
    assert!(child.contains(&here[0].to_string()), "{child} {here:?}");
}

/// A script that changes the server's tool definitions and then calls one of the tools.
fn change() -> Script {
    Script::new().turns([
        call("mcp__s__change", json!({})),
        call("mcp__s__echo", json!({ "text": "deep" })),
        call("mcp__s__echo", json!({ "text": "deeper" })),
        reply("{results}"),
    ])
}

/// Runs that script with a user who gives this answer. Returns the approval request and the outcome.
async fn run_with_answer(
    harness: &McpHarness,
    servers: &Servers,
    answer: Answer,
) -> (Vec<PendingApproval>, String) {
    let mut settings = Settings::new("script", Workspace::open(&harness.root()).unwrap());
    settings.permissions.mode = Mode::Auto;
    settings.approval_policy = ApprovalPolicy::AskUser;
    settings.tools = Toolbox::standard().with_servers(servers);
    let models = Models::default().with("script", change().model());
    let runtime = Runtime::in_memory(settings, models);
    let mut run = runtime.start(Task::new("do it")).await.unwrap();
    let (mut tree, mut questions) = (Tree::default(), Vec::new());
    let mut watch = run.take_events();
    while let Some(live) = watch.next().await {
        let RunEvent::Record(record) = live else { continue };
        tree.apply(&record);
        if let Event::Asked { call, .. } = &record.event {
            questions.extend(tree.pending_approvals().cloned());
            runtime.answer(&record.session, *call, answer.clone(), "a test").await.unwrap();
        }
    }
    (questions, run.result().await.unwrap().outcome.text.to_string())
}

#[tokio::test]
async fn changed_tool_needs_approval_with_its_diff() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let (questions, text) = run_with_answer(&harness, &servers, Answer::Once).await;
    assert!(text.contains("deep") && text.contains("deeper"), "{text}");
    let [question] = &questions[..] else { panic!("{questions:?}") };
    assert_eq!(question.why, "its definition has changed since it was approved");
    assert_eq!(question.always, None);
    // The call comes first, however long the rest is.
    assert!(question.arguments().starts_with(r#"{"call":"#), "{}", question.arguments());
    let shown: serde_json::Value = serde_json::from_str(question.arguments()).unwrap();
    assert_eq!(shown["call"], serde_json::json!({ "text": "deep" }));
    let changed = shown["changed"].as_str().unwrap();
    assert!(changed.contains("-description: echo, version 1\n+description: echo, version 2"), "{changed}");
}

#[tokio::test]
async fn changed_tool_is_not_called_without_approval() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let (questions, text) = run_with_answer(&harness, &servers, Answer::Deny { word: None }).await;
    assert_eq!(questions.len(), 2, "{questions:?}");
    assert!(!text.contains("deep") && text.contains("The user denied this `"), "{text}");
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let text = run_script(&harness, &servers, change(), allow).await;
    assert!(!text.contains("deep"), "{text}");
    assert!(
        text.contains(
            "its definition has changed since it was approved, and no user is available to approve it"
        ),
        "{text}"
    );
}
