//! The built command against the MCP reference servers.

#![expect(clippy::unwrap_used, reason = "tests")]

use brigade_outer_tests::{CommandOutput, Everything, TestEnv, mcp_server, node, processes_with};
use brigade_testing::{Script, call, reply};
use serde_json::{Value, json};

const ALLOW: &str = "permissions.allow=[\"mcp__everything__*\"]";
const FILES: &str = "permissions.allow=[\"mcp__files__*\"]";

/// An environment with both servers, which the command starts.
fn test_env() -> TestEnv {
    let env = TestEnv::new("");
    let server = |name: &str, server: &str, argument: &str| {
        let (node, server) = (node(), mcp_server(server));
        let (node, server) = (node.display(), server.display());
        format!("[mcpServers.{name}]\ncommand = '{node}'\nargs = ['{server}', '{argument}']\n")
    };
    let work = env.path("work").display().to_string();
    let config = server("everything", "everything", "stdio") + &server("files", "filesystem", &work);
    std::fs::write(env.path("home/config.toml"), config).unwrap();
    std::fs::write(env.path("work/note.txt"), "written before\n").unwrap();
    env
}

/// Runs a script in mode `ask`, without a user to ask.
fn run(env: &TestEnv, script: &Script, more: &[&str]) -> CommandOutput {
    std::fs::write(env.path("script.toml"), script.to_string()).unwrap();
    let model = format!("script:{}", env.path("script.toml").display());
    let mut words = vec!["run", "--model", &model, "--mode", "ask", "--output-format", "json", "go"];
    words.extend(more);
    env.brigade(&words)
}

/// A script with one call that returns its result.
fn calling(tool: &str, arguments: Value) -> Script {
    Script::new().turns([call(tool, arguments), reply("{results}")])
}

fn result(output: &CommandOutput) -> String {
    output.report()["result"].as_str().unwrap_or_default().to_owned()
}

fn wait_until_no_process_is_left(env: &TestEnv) {
    // The arguments of the filesystem server contain the directory.
    let work = env.path("work").display().to_string();
    let started = std::time::Instant::now();
    while !processes_with(&work).is_empty() {
        assert!(started.elapsed().as_secs() < 10, "{:?}", processes_with(&work));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn call_needs_permission_and_succeeds_with_it() {
    let env = test_env();
    let echo = calling("mcp__everything__echo", json!({ "message": "there and back" }));
    let refused = result(&run(&env, &echo, &[]));
    assert!(refused.contains("mcp__everything__echo") && !refused.contains("there and back"), "{refused}");
    let echoed = result(&run(&env, &echo, &["--set", ALLOW]));
    assert!(echoed.contains("Echo: there and back"), "{echoed}");
    wait_until_no_process_is_left(&env);
}

#[test]
fn all_content_types_are_understood() {
    let env = test_env();
    let script = Script::new().turns([
        call("mcp__everything__get-sum", json!({ "a": 20, "b": 22 }))
            .call("mcp__everything__get-tiny-image", json!({}))
            .call("mcp__everything__trigger-long-running-operation", json!({ "duration": 1, "steps": 3 }))
            .call("mcp__everything__get-env", json!({}))
            .call("mcp__everything__read_resource", json!({}))
            .call("mcp__everything__get_prompt", json!({ "name": "simple-prompt" }))
            .call("mcp__everything__get-sum", json!({ "a": "x" })),
        reply("{results}"),
    ]);
    let text = result(&run(&env, &script, &["--set", ALLOW]));
    for words in
        ["42", "(image, image/png", "Long running operation completed", "PATH", "demo://resource", "user: "]
    {
        assert!(text.contains(words), "no {words} in {text}");
    }
    assert!(!text.contains("BRIGADE_HOME"), "{text}");
    wait_until_no_process_is_left(&env);
}

#[test]
fn filesystem_server_reads_a_file() {
    let env = test_env();
    let path = env.path("work/note.txt").display().to_string();
    let script = calling("mcp__files__read_text_file", json!({ "path": path }));
    let text = result(&run(&env, &script, &["--set", FILES]));
    assert!(text.contains("written before"), "{text}");
    let outside = calling("mcp__files__read_text_file", json!({ "path": "/etc/passwd" }));
    let text = result(&run(&env, &outside, &["--set", FILES]));
    assert!(text.contains("Access denied"), "{text}");
}

#[test]
fn child_has_server_tools_only_if_lent() {
    let env = test_env();
    let lending = |tools: &[&str]| {
        let arguments = json!({ "role": "helper", "task": "say it", "tools": tools });
        Script::new()
            .agent("lead", [call("delegate", arguments), reply("{results}")])
            .turns([call("mcp__everything__echo", json!({ "message": "from below" })), reply("{results}")])
    };
    let lent = result(&run(&env, &lending(&["mcp__everything__*"]), &["--set", ALLOW]));
    assert!(lent.contains("Echo: from below"), "{lent}");
    let kept = result(&run(&env, &lending(&["read_file", "mcp__files__*"]), &["--set", ALLOW]));
    assert!(kept.contains("Unknown tool `mcp__everything__echo`"), "{kept}");
}

#[test]
fn server_over_http_works_the_same() {
    let server = Everything::start();
    let env = TestEnv::new(&format!("[mcpServers.everything]\nurl = '{}'\n", server.address));
    let echo = calling("mcp__everything__echo", json!({ "message": "over the wire" }));
    let text = result(&run(&env, &echo, &["--set", ALLOW]));
    assert!(text.contains("Echo: over the wire"), "{text}");
}
