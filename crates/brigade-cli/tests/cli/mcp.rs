//! Tools of MCP servers through the command. The server is this test binary.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Home, Running};

#[path = "../../../brigade/tests/mcp/fixture.rs"]
mod fixture;

const SERVER_ENTRY: &str = "mcp::server_entry";

#[test]
#[ignore = "the entry point of a server, not a test"]
fn server_entry() {
    if std::env::args().any(|argument| argument == SERVER_ENTRY) {
        fixture::serve();
    }
}

/// The server as other programs write it down.
fn servers(home: &Home, more: serde_json::Value) -> String {
    let script = format!(
        "exec 3>&1 >/dev/null; exec \"$0\" --ignored --exact {SERVER_ENTRY} --test-threads=1 --nocapture"
    );
    let binary = std::env::current_exe().unwrap();
    let mut server = json!({ "command": "/bin/sh", "args": ["-c", script, binary] });
    server["env"] = json!({ fixture::NOTES: home.work().join("notes"), "SECRET": "${A_KEY:-none}" });
    for (key, value) in more.as_object().unwrap() {
        server[key] = value.clone();
    }
    json!({ "mcpServers": { "fix": server } }).to_string()
}

fn calling(tool: &str) -> String {
    format!(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'mcp__fix__{tool}'\narguments = {{ text = 'round trip' }}\n\
         [[reply]]\ntext = '{{results}}'\n"
    )
}

#[test]
fn a_call_to_a_server_needs_leave_and_then_goes_through() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    let refused = home.run(&calling("echo"), &["--mode", "ask"]);
    refused.exits(0).prints("mcp__fix__echo");
    assert!(!refused.stdout.contains("round trip"), "{}", refused.stdout);
    let rule = "permissions.allow=[\"mcp__fix__*\"]";
    home.run(&calling("echo"), &["--mode", "ask", "--set", rule]).exits(0).prints("round trip");
}

#[test]
fn a_server_is_given_its_variables_and_no_others() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    let model = home.script(&calling("env"));
    let mut command = home.command(&["run", "--mode", "auto", "--model", &model, "the task"]);
    let output = command.env("ANTHROPIC_API_KEY", "k-1").env("A_KEY", "k-2").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("SECRET") && text.contains("PATH"), "{text}");
    assert!(!text.contains("ANTHROPIC") && !text.contains("A_KEY") && !text.contains("BRIGADE"), "{text}");
}

#[test]
fn a_server_that_cannot_start_is_said_and_the_run_goes_on() {
    let home = Home::new();
    home.write("home/config.json", r#"{"mcpServers": {"lost": {"command": "no-such-program"}, "old": {"type": "sse", "url": "http://127.0.0.1:1/"}}}"#);
    home.run("[[reply]]\ntext = 'fine'\n", &[])
        .exits(0)
        .prints("fine")
        .says("warning: MCP server 'lost': it did not start: it ended with exit code 127")
        .says("warning: MCP server 'old': servers that speak the older SSE are not supported");
    home.brigade(&["doctor"]).prints("MCP server 'lost'");
}

#[test]
fn servers_of_a_project_count_once_it_is_trusted() {
    let home = Home::new();
    home.write("work/.mcp.json", &servers(&home, json!({ "disabled": false })));
    let run = || home.run(&calling("echo"), &["--mode", "auto"]);
    run().says("are ignored: they are not trusted").prints("There is no tool");
    let trusted = home.brigade(&["trust", "--yes"]);
    trusted.exits(0).says("mcpServers.fix.command = \"/bin/sh\"").says(".mcp.json");
    run().exits(0).prints("round trip");
    home.write("work/.mcp.json", &servers(&home, json!({ "timeout": 5000 })));
    run().says("they have changed since they were trusted").prints("There is no tool");
}

#[test]
fn a_project_gets_no_key_of_the_person_and_no_server_of_theirs() {
    let home = Home::new();
    home.write("work/.mcp.json", &servers(&home, json!({ "env": { "K": "${ANTHROPIC_API_KEY}" } })));
    home.brigade(&["trust", "--yes"]).exits(0);
    let run = || home.run(&calling("echo"), &["--mode", "auto"]);
    run().says("a project may not give it ANTHROPIC_API_KEY").prints("There is no tool");
    // The person's own server of the same name is taken as it is.
    home.write("home/config.json", &servers(&home, json!({})));
    run().prints("round trip");
}

#[test]
fn the_list_of_tools_starts_servers_only_when_asked_to() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    home.brigade(&["tools", "list"]).exits(0).prints("mcp__fix__*");
    home.brigade(&["tools", "list", "--servers"]).exits(0).prints("mcp__fix__echo").prints("echo, version 1");
    let shown = home.brigade(&["config", "show"]);
    assert!(!shown.exits(0).stdout.contains("A_KEY"), "{}", shown.stdout);
}

#[test]
fn a_server_dies_with_a_runner_that_is_killed() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    let running = Running::start(&home, &calling("hang"), &["--mode", "auto"]);
    let notes = || std::fs::read_to_string(home.work().join("notes")).unwrap_or_default();
    until("the call is under way", || notes().contains("hang "));
    let pid: u32 = notes().trim().trim_start_matches("hang ").parse().unwrap();
    let lives = || std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(lives());
    running.signal(rustix::process::Signal::KILL);
    until("the server is gone", || !lives());
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
