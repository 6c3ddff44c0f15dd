//! External agents through the command. The agent is this test binary.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Home;

#[path = "../../../brigade-acp/tests/client/fixture.rs"]
mod fixture;

const AGENT_ENTRY: &str = "acp::agent_entry";

#[test]
#[ignore = "the entry point of an agent, not a test"]
fn agent_entry() {
    if std::env::args().any(|argument| argument == AGENT_ENTRY) {
        fixture::serve();
    }
}

/// The configuration with the agent as the server `fix`.
fn config(home: &Home, more: Value) -> String {
    let script =
        format!("exec >/dev/null; exec \"$0\" --ignored --exact {AGENT_ENTRY} --test-threads=1 --nocapture");
    let binary = std::env::current_exe().unwrap();
    let mut server = json!({ "command": "/bin/sh", "args": ["-c", script, binary] });
    server["env"] = json!({ fixture::NOTES: home.work().join("notes"), "SECRET": "${A_KEY:-a-secret-key}" });
    let mut config = json!({ "acp": { "servers": { "fix": server } }, "spawn": {} });
    merge(&mut config, more);
    config.to_string()
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// A lead that makes one call and repeats what came of it.
fn calling(tool: &str, arguments: &Value) -> String {
    let mut script = format!(
        "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = '{tool}'\n[reply.call.arguments]\n"
    );
    for (key, value) in arguments.as_object().unwrap() {
        script.push_str(&format!("{key} = {value}\n"));
    }
    script.push_str("[[reply]]\nagent = 'lead'\ntext = '{results}'\n[[reply]]\ntext = 'the model answers'\n");
    script
}

fn delegating(task: &str) -> String {
    let arguments = json!({ "task": task, "description": "Ask it", "serverName": "fix" });
    calling("subagent_delegate", &arguments)
}

fn notes(home: &Home) -> String {
    std::fs::read_to_string(home.work().join("notes")).unwrap_or_default()
}

/// Whether the agents that noted their beginning are there.
fn lives(home: &Home) -> bool {
    let notes = notes(home);
    let mut pids = notes.lines().filter_map(|line| line.strip_prefix("start "));
    pids.any(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()))
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An ACP server in config; `subagent_delegate` to it; an unknown server is a clear error; no process left.
#[test]
fn story_13_a_task_goes_to_an_external_agent() {
    let home = Home::new();
    home.write("home/config.json", &config(&home, json!({})));
    let report = home.report(&delegating("Count to three"), &[]);
    assert_eq!(report["result"], "You said: Count to three", "{report}");
    assert_eq!(notes(&home).lines().filter(|line| line.starts_with("start ")).count(), 1);
    until("the agent is gone", || !lives(&home));
    let unknown = json!({ "task": "x", "description": "d", "serverName": "nobody" });
    home.run(&calling("subagent_delegate", &unknown), &[])
        .exits(0)
        .prints("unknown server 'nobody'")
        .prints("fix");
}

#[test]
fn point_73_the_call_overrides_the_config_and_without_both_the_model_answers() {
    let home = Home::new();
    let asked = |call: Value| {
        let mut arguments = json!({ "task": "!settings", "description": "d" });
        merge(&mut arguments, call);
        home.run(&calling("subagent_delegate", &arguments), &[])
    };
    let agents = json!({ "slow": { "mode": "code" }, "fast": { "model": "large", "args": ["--quick"] } });
    home.write(
        "home/config.json",
        &config(&home, json!({ "acp": { "servers": { "fix": { "agents": agents } } } })),
    );
    asked(json!({})).exits(0).prints("the model answers");
    asked(json!({ "serverName": "fix" })).prints("mode None model None");
    asked(json!({ "serverName": "fix", "agentId": "slow" })).prints("mode Some(\"code\") model None");
    asked(json!({ "serverName": "fix", "agentId": "none" }))
        .prints("unknown agent 'none'")
        .prints("fast, slow");
    let spawn = json!({ "server": "fix", "agent": "fast" });
    let with_spawn = json!({ "acp": { "servers": { "fix": { "agents": agents } } }, "spawn": spawn });
    home.write("home/config.json", &config(&home, with_spawn));
    asked(json!({})).prints("mode None model Some(\"large\")");
    asked(json!({ "agentId": "slow" })).prints("mode Some(\"code\") model None");
    let lost = config(&home, json!({ "spawn": { "server": "elsewhere" } }));
    home.write("home/config.json", &lost);
    asked(json!({})).exits(2).says("spawn.server: there is no acp.servers.elsewhere; there are: fix");
}
