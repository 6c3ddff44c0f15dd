//! Well-behaved servers.

use std::time::{Duration, Instant};

use brigade::mcp::{Servers, Transport};
use brigade_core::event::Effect;
use brigade_core::permission::ActionKind;
use serde_json::json;

use super::support::{CALL_TIMEOUT, McpHarness, names, tool, until, wait_until_gone};

#[tokio::test]
async fn all_tool_pages_are_offered_with_prefixed_names() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let names = names(&servers);
    assert_eq!(names.len(), 19);
    for name in ["mcp__s__echo", "mcp__s__env", "mcp__s__progress"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let spec = tool(&servers, "mcp__s__echo").spec();
    assert_eq!(spec.description, "echo, version 1");
    assert_eq!(spec.schema["properties"]["text"]["type"], "string");
    assert_eq!(tool(&servers, "mcp__s__look").spec().schema, json!({ "type": "object" }));
}

#[tokio::test]
async fn content_of_every_kind_reaches_the_model_as_text() {
    let harness = McpHarness::new();
    let servers = harness.start("chatters").await;
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
    assert_eq!(harness.ok(&servers, "mcp__s__progress").await, "done");
    assert_eq!(harness.ok(&servers, "mcp__s__picture").await, "(image, image/png, about 3 bytes, not shown)");
    assert_eq!(harness.ok(&servers, "mcp__s__look").await, "{\"tool\":\"look\"}");
    assert_eq!(harness.error(&servers, "mcp__s__fail").await, "it is locked");
}

#[tokio::test]
async fn call_carries_the_remote_context() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let meta: serde_json::Value = serde_json::from_str(&harness.ok(&servers, "mcp__s__meta").await).unwrap();
    let remote_context = brigade_core::RemoteContext::from_meta(meta.as_object().unwrap()).unwrap();
    assert_eq!(remote_context, Some(harness.remote_context()));
}

#[tokio::test]
async fn progress_is_reported_and_extends_the_timeout() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    // Three pauses, each longer than half of the call timeout.
    let millis = u64::try_from(CALL_TIMEOUT.as_millis()).unwrap() / 3 * 2;
    let output = harness.call(&servers, "mcp__s__progress", json!({ "millis": millis })).await;
    assert_eq!((output.text.to_string(), output.is_error()), ("done".to_owned(), false));
    let progress = harness.progress();
    assert_eq!(progress.len(), 3, "{progress:?}");
    assert_eq!(progress[1], "mcp__s__progress: 1 of 3, [2Jreading");
}

#[tokio::test]
async fn empty_resources_and_prompts_add_no_tools() {
    let offered = async |behaviour: &str| {
        let harness = McpHarness::new();
        let servers = harness.start(behaviour).await;
        let names = names(&servers);
        let has = |name: &str| names.contains(&name);
        (has("mcp__s__echo"), has("mcp__s__read_resource"), has("mcp__s__get_prompt"))
    };
    assert_eq!(offered("").await, (true, true, true));
    assert_eq!(offered("bare").await, (true, false, false), "it only says that it could have some");
    assert_eq!(offered("templates").await, (true, true, true));
}

#[tokio::test]
async fn dropped_server_is_closed_and_then_killed() {
    let harness = McpHarness::new();
    drop(harness.start("").await);
    until("it left by itself", || harness.notes().contains("left")).await;
    let stubborn = McpHarness::new();
    let servers = stubborn.start("stays").await;
    let pids = stubborn.pids(&servers).await;
    drop(servers);
    until("it was let go", || stubborn.notes().contains("left")).await;
    wait_until_gone(&pids).await;
}

#[tokio::test]
async fn server_sees_only_its_own_variables() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let text = harness.ok(&servers, "mcp__s__env").await;
    let mut seen: Vec<&str> =
        text.split(' ').filter(|name| !["PWD", "_", "SHLVL", "OLDPWD"].contains(name)).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["FIXTURE_MANNERS", "FIXTURE_NOTES", "PATH", "TOKEN"]);
}

#[tokio::test]
async fn read_only_hint_does_not_permit_a_call() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    assert_eq!(tool(&servers, "mcp__s__look").effect(), Effect::Pure);
    assert_eq!(tool(&servers, "mcp__s__echo").effect(), Effect::Opaque);
    for name in ["mcp__s__look", "mcp__s__echo"] {
        let mut judged = Vec::new();
        let judge = &mut |action: &brigade_core::permission::Action<'_>| {
            judged.push((action.tool.to_owned(), action.kind))
        };
        tool(&servers, name).check(&json!({}), judge).unwrap();
        assert_eq!(judged, [(name.to_owned(), ActionKind::Other)]);
        assert!(tool(&servers, name).check(&json!([]), &mut |_| {}).is_err());
    }
}

#[tokio::test]
async fn colliding_tool_names_are_refused() {
    let harness = McpHarness::new();
    let servers = Servers::start(vec![harness.server("s", "collides")]).await;
    assert_eq!(names(&servers), ["mcp__s__echo", "mcp__s__get_prompt", "mcp__s__read_resource"]);
    assert_eq!(tool(&servers, "mcp__s__get_prompt").spec().description, "get_prompt, version 1");
    let problems: Vec<String> = servers.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 5, "{problems:?}");
    let problems = problems.join("\n");
    assert!(
        problems.contains("cannot offer the tool 'mcp__s__read_file': several tools have this name"),
        "{problems}"
    );
    assert!(problems.contains("cannot offer the tool 'écho'"), "{problems}");
    assert!(problems.contains("longer than 64 characters"), "{problems}");
    assert!(problems.contains("cannot offer the built-in tool 'mcp__s__get_prompt'"), "{problems}");
    assert!(
        problems.contains("cannot offer the tool 'huge': its definition is larger than 32 KiB"),
        "{problems}"
    );
}

#[tokio::test]
async fn servers_with_the_same_name_are_refused() {
    let harness = McpHarness::new();
    let definitions = ["one", "One", "two", "a__b"].map(|name| harness.server(name, ""));
    let servers = Servers::start(definitions.into()).await;
    assert!(names(&servers).iter().all(|name| name.starts_with("mcp__two__")), "{:?}", names(&servers));
    let problems: Vec<String> = servers.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.join(" ").contains("several servers have the name 'one'"), "{problems:?}");
}

#[tokio::test]
async fn stopped_call_is_cancelled_at_the_server() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let begun = Instant::now();
    let stop = async {
        until("the call is under way", || harness.notes().contains("hang")).await;
        harness.stop.send_replace(true);
    };
    let (text, ()) = tokio::join!(harness.error(&servers, "mcp__s__hang"), stop);
    assert!(text.contains("the call was cancelled"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    until("the server knows", || harness.notes().contains("cancelled")).await;
    harness.stop.send_replace(false);
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn dropping_servers_ends_their_processes() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let pids = harness.pids(&servers).await;
    drop(servers);
    wait_until_gone(&pids).await;
}

#[tokio::test]
async fn missing_program_is_reported() {
    let harness = McpHarness::new();
    let mut absent = harness.server("absent", "");
    if let Transport::Stdio(program) = &mut absent.transport {
        program.command = "no-such-program-here".to_owned();
    }
    let servers = Servers::start(vec![absent, harness.server("s", "")]).await;
    assert_eq!(names(&servers).len(), 19);
    let [problem] = servers.problems() else { panic!("{:?}", servers.problems()) };
    assert!(problem.message.contains("it exited with code 127"), "{problem}");
    assert!(problem.message.contains("no-such-program-here"), "{problem}");
}

#[tokio::test]
async fn resources_and_prompts_are_listed_and_read() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let ok = async |tool: &str, arguments: serde_json::Value| {
        let output = harness.call(&servers, tool, arguments).await;
        assert!(!output.is_error(), "{}", output.text);
        output.text.to_string()
    };
    assert_eq!(ok("mcp__s__read_resource", json!({})).await, "a://b (letter)");
    assert_eq!(ok("mcp__s__read_resource", json!({ "uri": "a://b" })).await, "a://b:\ndear reader");
    assert_eq!(ok("mcp__s__get_prompt", json!({})).await, "greet (whom): A greeting");
    let filled = json!({ "name": "greet", "arguments": { "whom": "you" } });
    assert_eq!(ok("mcp__s__get_prompt", filled).await, "user: greet \"you\"");
    let missing = harness.call(&servers, "mcp__s__read_resource", json!({ "uri": "x://y" })).await;
    assert!(
        missing.is_error() && missing.text.as_str().contains("does not support this request"),
        "{}",
        missing.text
    );
    let resource = tool(&servers, "mcp__s__read_resource");
    for wrong in [json!({ "uri": 1 }), json!({ "url": "a://b" }), json!([])] {
        assert!(resource.check(&wrong, &mut |_| {}).is_err(), "{wrong}");
    }
    let mut kinds = Vec::new();
    resource.check(&json!({}), &mut |action| kinds.push(action.kind)).unwrap();
    assert_eq!(kinds, [ActionKind::Other]);
}
