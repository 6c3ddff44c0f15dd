//! Servers that behave.

use std::time::{Duration, Instant};

use brigade::mcp::{Servers, Way};
use brigade_core::event::Effect;
use brigade_core::permission::Kind;
use serde_json::json;

use super::world::{CALL_TIME, World, gone, names, tool, until};

#[tokio::test]
async fn all_pages_of_tools_are_offered_under_long_names() {
    let world = World::new();
    let servers = world.start("").await;
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
async fn answers_of_every_kind_reach_the_model_as_text() {
    let world = World::new();
    let servers = world.start("chatters").await;
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
    assert_eq!(world.ok(&servers, "mcp__s__progress").await, "done");
    assert_eq!(world.ok(&servers, "mcp__s__picture").await, "(image, image/png, about 3 bytes, not shown)");
    assert_eq!(world.ok(&servers, "mcp__s__look").await, "{\"tool\":\"look\"}");
    assert_eq!(world.error(&servers, "mcp__s__fail").await, "it is locked");
}

#[tokio::test]
async fn a_call_says_where_it_comes_from() {
    let world = World::new();
    let servers = world.start("").await;
    let meta: serde_json::Value = serde_json::from_str(&world.ok(&servers, "mcp__s__meta").await).unwrap();
    let hop = brigade_core::Hop::in_meta(meta.as_object().unwrap()).unwrap();
    assert_eq!(hop, Some(world.hop()));
}

#[tokio::test]
async fn news_of_a_call_are_told_and_push_its_time_limit_on() {
    let world = World::new();
    let servers = world.start("").await;
    // Three times more than half of what a call may take.
    let millis = u64::try_from(CALL_TIME.as_millis()).unwrap() / 3 * 2;
    let output = world.call(&servers, "mcp__s__progress", json!({ "millis": millis })).await;
    assert_eq!((output.text.to_string(), output.is_error()), ("done".to_owned(), false));
    let told = world.told();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(told[1], "mcp__s__progress: 1 of 3, [2Jreading");
}

#[tokio::test]
async fn a_server_without_resources_or_prompts_costs_no_tools_for_them() {
    let offered = async |manners: &str| {
        let world = World::new();
        let servers = world.start(manners).await;
        let names = names(&servers);
        let has = |name: &str| names.contains(&name);
        (has("mcp__s__echo"), has("mcp__s__read_resource"), has("mcp__s__get_prompt"))
    };
    assert_eq!(offered("").await, (true, true, true));
    assert_eq!(offered("bare").await, (true, false, false), "it only says that it could have some");
    assert_eq!(offered("templates").await, (true, true, true));
}

#[tokio::test]
async fn a_server_is_let_go_and_then_ended() {
    let world = World::new();
    drop(world.start("").await);
    until("it left by itself", || world.notes().contains("left")).await;
    let stubborn = World::new();
    let servers = stubborn.start("stays").await;
    let pids = stubborn.pids(&servers).await;
    drop(servers);
    until("it was let go", || stubborn.notes().contains("left")).await;
    gone(&pids).await;
}

#[tokio::test]
async fn a_server_sees_no_variable_that_it_is_not_given() {
    let world = World::new();
    let servers = world.start("").await;
    let text = world.ok(&servers, "mcp__s__env").await;
    let mut seen: Vec<&str> =
        text.split(' ').filter(|name| !["PWD", "_", "SHLVL", "OLDPWD"].contains(name)).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["FIXTURE_MANNERS", "FIXTURE_NOTES", "PATH", "TOKEN"]);
}

#[tokio::test]
async fn a_word_of_the_server_frees_no_call() {
    let world = World::new();
    let servers = world.start("").await;
    assert_eq!(tool(&servers, "mcp__s__look").effect(), Effect::Pure);
    assert_eq!(tool(&servers, "mcp__s__echo").effect(), Effect::Opaque);
    for name in ["mcp__s__look", "mcp__s__echo"] {
        let mut judged = Vec::new();
        let judge = &mut |action: &brigade_core::permission::Action<'_>| {
            judged.push((action.tool.to_owned(), action.kind))
        };
        tool(&servers, name).check(&json!({}), judge).unwrap();
        assert_eq!(judged, [(name.to_owned(), Kind::Other)]);
        assert!(tool(&servers, name).check(&json!([]), &mut |_| {}).is_err());
    }
}

#[tokio::test]
async fn names_that_collide_are_refused_and_the_rest_is_offered() {
    let world = World::new();
    let servers = Servers::start(vec![world.server("s", "collides")]).await;
    assert_eq!(names(&servers), ["mcp__s__echo", "mcp__s__get_prompt", "mcp__s__read_resource"]);
    assert_eq!(tool(&servers, "mcp__s__get_prompt").spec().description, "get_prompt, version 1");
    let problems: Vec<String> = servers.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 5, "{problems:?}");
    let problems = problems.join("\n");
    assert!(problems.contains("several of its tools would be called 'mcp__s__read_file'"), "{problems}");
    assert!(problems.contains("'écho' is left out"), "{problems}");
    assert!(problems.contains("longer than 64 characters"), "{problems}");
    assert!(problems.contains("it has a tool called 'mcp__s__get_prompt' itself"), "{problems}");
    assert!(problems.contains("'huge' is left out: its definition has more than 32 KB"), "{problems}");
}

#[tokio::test]
async fn servers_that_share_a_name_are_refused() {
    let world = World::new();
    let definitions = ["one", "One", "two", "a__b"].map(|name| world.server(name, ""));
    let servers = Servers::start(definitions.into()).await;
    assert!(names(&servers).iter().all(|name| name.starts_with("mcp__two__")), "{:?}", names(&servers));
    let problems: Vec<String> = servers.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.join(" ").contains("several servers would be called 'one'"), "{problems:?}");
}

#[tokio::test]
async fn a_call_that_is_stopped_is_cancelled_at_the_server() {
    let world = World::new();
    let servers = world.start("").await;
    let begun = Instant::now();
    let stop = async {
        until("the call is under way", || world.notes().contains("hang")).await;
        world.stop.send_replace(true);
    };
    let (text, ()) = tokio::join!(world.error(&servers, "mcp__s__hang"), stop);
    assert!(text.contains("the call was cancelled"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    until("the server knows", || world.notes().contains("cancelled")).await;
    world.stop.send_replace(false);
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn nothing_is_left_when_the_set_is_dropped() {
    let world = World::new();
    let servers = world.start("").await;
    let pids = world.pids(&servers).await;
    drop(servers);
    gone(&pids).await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_problem() {
    let world = World::new();
    let mut absent = world.server("absent", "");
    if let Way::Program(program) = &mut absent.way {
        program.command = "no-such-program-here".to_owned();
    }
    let servers = Servers::start(vec![absent, world.server("s", "")]).await;
    assert_eq!(names(&servers).len(), 19);
    let [problem] = servers.problems() else { panic!("{:?}", servers.problems()) };
    assert!(problem.what.contains("exit code 127"), "{problem}");
    assert!(problem.what.contains("no-such-program-here"), "{problem}");
}

#[tokio::test]
async fn resources_and_prompts_are_listed_and_read() {
    let world = World::new();
    let servers = world.start("").await;
    let ok = async |tool: &str, arguments: serde_json::Value| {
        let output = world.call(&servers, tool, arguments).await;
        assert!(!output.is_error(), "{}", output.text);
        output.text.to_string()
    };
    assert_eq!(ok("mcp__s__read_resource", json!({})).await, "a://b (letter)");
    assert_eq!(ok("mcp__s__read_resource", json!({ "uri": "a://b" })).await, "a://b:\ndear reader");
    assert_eq!(ok("mcp__s__get_prompt", json!({})).await, "greet (whom): A greeting");
    let filled = json!({ "name": "greet", "arguments": { "whom": "you" } });
    assert_eq!(ok("mcp__s__get_prompt", filled).await, "user: greet \"you\"");
    let missing = world.call(&servers, "mcp__s__read_resource", json!({ "uri": "x://y" })).await;
    assert!(missing.is_error() && missing.text.as_str().contains("does not know"), "{}", missing.text);
    let resource = tool(&servers, "mcp__s__read_resource");
    for wrong in [json!({ "uri": 1 }), json!({ "url": "a://b" }), json!([])] {
        assert!(resource.check(&wrong, &mut |_| {}).is_err(), "{wrong}");
    }
    let mut kinds = Vec::new();
    resource.check(&json!({}), &mut |action| kinds.push(action.kind)).unwrap();
    assert_eq!(kinds, [Kind::Other]);
}
