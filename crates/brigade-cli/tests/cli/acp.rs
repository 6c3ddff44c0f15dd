//! External agents through the command line. The agent is this test binary.

use std::time::{Duration, Instant};

use brigade_testing::{Script, TestProgram, call, reply};
use serde_json::{Value, json};

use crate::cli::console::Console;
use crate::cli::support::{BackgroundRun, Home};

#[path = "../../../brigade-acp/tests/client/fixture.rs"]
mod fixture;

const AGENT: TestProgram = TestProgram::new(module_path!(), "agent_entry");

#[test]
#[ignore = "the entry point of an agent, not a test"]
fn agent_entry() {
    if AGENT.is_running() {
        fixture::serve();
    }
}

/// Configuration with the agent as the server `fix`.
pub(crate) fn config(home: &Home, more: Value) -> String {
    let (command, arguments) = AGENT.command();
    let mut server = json!({ "command": command, "args": arguments });
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

/// Script of a lead that makes one call and repeats its result.
fn calling_script(tool: &str, arguments: Value) -> Script {
    Script::new().agent("lead", [call(tool, arguments), reply("{results}")]).reply("the model answers")
}

pub(crate) fn delegating_script(task: &str) -> Script {
    let arguments = json!({ "task": task, "description": "Ask it", "serverName": "fix" });
    calling_script("subagent_delegate", arguments)
}

fn notes(home: &Home) -> String {
    std::fs::read_to_string(home.work().join("notes")).unwrap_or_default()
}

/// Whether the agents that recorded their start are still running.
fn is_alive(home: &Home) -> bool {
    let notes = notes(home);
    let mut pids = notes.lines().filter_map(|line| line.strip_prefix("start "));
    pids.any(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()))
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Delegation to an ACP server in the configuration: the result, a clear error for an unknown server, and no process
/// left behind.
#[test]
fn story_13_task_runs_in_an_external_agent() {
    let home = Home::new();
    home.write("home/config.json", &config(&home, json!({})));
    let report = home.report(delegating_script("Count to three"), &[]);
    assert_eq!(report["result"], "You said: Count to three", "{report}");
    assert_eq!(notes(&home).lines().filter(|line| line.starts_with("start ")).count(), 1);
    wait_until("the agent is gone", || !is_alive(&home));
    let unknown = json!({ "task": "x", "description": "d", "serverName": "nobody" });
    home.run(calling_script("subagent_delegate", unknown), &[])
        .exits_with(0)
        .stdout_contains("unknown server 'nobody'")
        .stdout_contains("fix");
}

#[test]
fn tool_calls_of_an_external_agent_are_shown() {
    let home = Home::new();
    home.write("home/config.json", &config(&home, json!({})));
    let report = home.report(delegating_script("!think first of all\n!call Look around\n!say fine"), &[]);
    let (session, child) = (report["session_id"].as_str().unwrap(), &report["agents"][1]["session_id"]);
    for arguments in [
        vec!["sessions", "show", child.as_str().unwrap()],
        vec!["sessions", "export", session, "--format", "md"],
        vec!["sessions", "export", session, "--format", "html"],
    ] {
        let shown = home.brigade(&arguments);
        shown
            .exits_with(0)
            .stdout_contains("thought: first of all")
            .stdout_contains("tool call: Look around (read)");
    }
}

#[test]
fn reported_sub_agents_are_shown_and_counted() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.json", &config(&home, json!({})));
    let announced = |id: &str, title: &str| {
        let update = json!({ "sessionUpdate": "subagent_update", "sessionId": id, "title": title,
            "description": "look around", "state": { "state": "running" } });
        format!("!update {update}\n")
    };
    let orders = format!("{}{}!spend 90\n!say fine", announced("c1", "Scout"), announced("c2", "Reader"));
    let report = home.report(delegating_script(&orders), &[]);
    let (session, child) = (report["session_id"].as_str().unwrap(), &report["agents"][1]);
    assert_eq!(child["usage"]["reported_agents"], 2, "{report}");
    assert_eq!(report["agents"][0]["usage"].get("reported_agents"), None, "{report}");
    let said = "reported by external agents: 100 tokens, $0.2500 and 2 sub-agents";
    home.brigade(&["sessions", "tree", session]).exits_with(0).stdout_contains(said);
    console.add(home.brigade(&["sessions", "show", child["session_id"].as_str().unwrap()]).exits_with(0));
    let stream = home.run(delegating_script(&orders), &["--output-format", "stream-json"]);
    stream.exits_with(0).stdout_contains(r#""why":"sub-agent Scout: look around (running)""#);
    insta::assert_snapshot!(console.text());
}

#[test]
fn external_agent_that_stops_after_a_denial_is_incomplete() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.json", &config(&home, json!({ "permissions": { "mode": "edit" } })));
    std::fs::create_dir(home.home().join("agents")).unwrap();
    home.write(
        "home/agents/outside.md",
        "---\nname: Outside\ndescription: Works.\nacp: fix\n---\nBe brief.\n",
    );
    let call = json!({ "toolCallId": "1", "title": "Build", "kind": "execute", "rawInput": { "command": "make it so" } });
    let task = format!("!say I build it now.\n!ask {call}\n!stop cancelled");
    let done = home.brigade(&["run", "-a", "outside", &task]);
    console.add(done.exits_with(3));
    insta::assert_snapshot!(console.text());
}

#[test]
fn reported_usage_is_shown_separately() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.json", &config(&home, json!({})));
    let report = home.report(delegating_script("!spend 90\n!say fine"), &[]);
    assert_eq!(report["usage"]["reported_tokens"], 100, "{report}");
    let (session, child) = (report["session_id"].as_str().unwrap(), &report["agents"][1]);
    assert_eq!(
        (&child["usage"]["reported_tokens"], &child["usage"]["output_tokens"]),
        (&json!(100), &json!(0))
    );
    console.add(home.brigade(&["sessions", "tree", session]).exits_with(0));
    console.add(home.brigade(&["sessions", "show", child["session_id"].as_str().unwrap()]).exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn unreported_cost_is_not_shown_as_zero() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.json", &config(&home, json!({})));
    let silent = home.report(delegating_script("!say fine"), &[]);
    assert_eq!(silent["agents"][1]["usage"]["cost_not_reported"], true, "{silent}");
    assert_eq!(silent["usage"]["cost_not_reported"], true, "{silent}");
    let session = silent["session_id"].as_str().unwrap();
    console.add(home.brigade(&["sessions", "tree", session]).exits_with(0));
    let child = silent["agents"][1]["session_id"].as_str().unwrap();
    console.add(home.brigade(&["sessions", "show", child]).exits_with(0));
    let spoken = home.report(delegating_script("!spend 90\n!say fine"), &[]);
    assert_eq!(spoken["usage"].get("cost_not_reported"), None, "{spoken}");
    insta::assert_snapshot!(console.text());
}

#[test]
fn point_73_call_overrides_config_and_without_both_the_model_answers() {
    let home = Home::new();
    let asked = |call: Value| {
        let mut arguments = json!({ "task": "!settings", "description": "d" });
        merge(&mut arguments, call);
        home.run(calling_script("subagent_delegate", arguments), &[])
    };
    let agents = json!({ "slow": { "mode": "code" }, "fast": { "model": "large", "args": ["--quick"] } });
    home.write(
        "home/config.json",
        &config(&home, json!({ "acp": { "servers": { "fix": { "agents": agents } } } })),
    );
    asked(json!({})).exits_with(0).stdout_contains("the model answers");
    asked(json!({ "serverName": "fix" })).stdout_contains("mode None model None");
    asked(json!({ "serverName": "fix", "agentId": "slow" }))
        .stdout_contains("mode Some(\"code\") model None");
    asked(json!({ "serverName": "fix", "agentId": "none" }))
        .stdout_contains("unknown agent 'none'")
        .stdout_contains("fast, slow");
    let spawn = json!({ "server": "fix", "agent": "fast" });
    let with_spawn = json!({ "acp": { "servers": { "fix": { "agents": agents } } }, "spawn": spawn });
    home.write("home/config.json", &config(&home, with_spawn));
    asked(json!({})).stdout_contains("mode None model Some(\"large\")");
    asked(json!({ "agentId": "slow" })).stdout_contains("mode Some(\"code\") model None");
    let lost = config(&home, json!({ "spawn": { "server": "elsewhere" } }));
    home.write("home/config.json", &lost);
    asked(json!({}))
        .exits_with(2)
        .stderr_contains("spawn.server: unknown server `acp.servers.elsewhere`. Known servers: fix");
}

#[test]
fn approval_of_an_external_agent_reaches_the_user() {
    let home = Home::new();
    let more = json!({
        "swarm": { "roles": { "Helper": { "acp": "fix" } } },
        "permissions": { "questions": "wait", "mode": "edit" },
    });
    home.write("home/config.json", &config(&home, more));
    let script =
        calling_script("delegate", json!({ "role": "Helper", "task": "!permit execute make it so" }));
    for (answer, chosen) in [("yes", "chosen \"yes\""), ("no", "chosen \"no\"")] {
        let mut running = BackgroundRun::start(&home, &script, &[]);
        let asked = running.read_until(|line| {
            line.to_string().contains("acp__fix__execute") && line.to_string().contains("asked")
        });
        assert!(asked.to_string().contains("make it so"), "{asked}");
        let session = running.session.clone();
        home.brigade(&["answer", &session, answer]).exits_with(0);
        let (code, lines, _) = running.end();
        assert_eq!(code, 0);
        let told = lines.iter().any(|line| line.to_string().replace('\\', "").contains(chosen));
        assert!(told, "{lines:?}");
    }
}

#[test]
fn agent_file_can_name_an_external_agent() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.json", &config(&home, json!({})));
    std::fs::create_dir(home.home().join("agents")).unwrap();
    let file = "---\nname: Outside\ndescription: Works outside.\nacp: fix\n---\nBe brief.\n";
    home.write("home/agents/outside.md", file);
    let done = home.brigade(&["run", "-a", "outside", "Count"]);
    console.add(done.exits_with(0));
    let dispatch = calling_script("subagent_dispatch", json!({ "agent_id": "outside", "task": "Sing" }));
    home.run(&dispatch, &[]).exits_with(0).stdout_contains("Sing");
    home.write("home/agents/outside.md", &file.replace("acp: fix", "acp: elsewhere"));
    console.add(&home.brigade(&["run", "-a", "outside", "Count"]));
    insta::assert_snapshot!(console.text());
}

#[test]
fn doctor_initializes_external_agents() {
    let home = Home::new();
    let lost = json!({ "acp": { "servers": { "lost": { "command": "no-such-program" }, "empty": { "args": ["x"] } } } });
    home.write("home/config.json", &config(&home, lost));
    let done = home.brigade(&["doctor"]);
    done.stdout_contains("fix: fixture 7")
        .stdout_contains("lost: cannot initialize the agent: command not found");
    done.stdout_contains("empty: `command` is missing");
    home.brigade(&["doctor", "--offline"]).stdout_contains("fix: not started");
}

#[test]
fn external_agent_dies_with_a_killed_runner_and_is_not_retried() {
    let home = Home::new();
    let mut console = Console::new(&home);
    // The agent reports its process id, which is another one in a sandbox.
    let open = json!({ "acp": { "servers": { "fix": { "sandbox": { "mode": "off" } } } } });
    home.write("home/config.json", &config(&home, open));
    let running = BackgroundRun::start(&home, delegating_script("!hang"), &[]);
    wait_until("it hangs", || notes(&home).contains("hang"));
    assert!(is_alive(&home));
    let session = running.session.clone();
    running.signal(rustix::process::Signal::KILL);
    wait_until("the agent is gone", || !is_alive(&home));
    console.add(home.brigade(&["resume", &session]).exits_with(0));
    assert_eq!(notes(&home).matches("prompt").count(), 1);
    insta::assert_snapshot!(console.text());
}

#[test]
fn cancel_from_another_process_stops_the_external_agent() {
    let home = Home::new();
    home.write("home/config.json", &config(&home, json!({})));
    let running = BackgroundRun::start(&home, delegating_script("!wait"), &[]);
    wait_until("it is asked", || notes(&home).contains("prompt"));
    home.brigade(&["cancel", &running.session]).exits_with(0);
    running.end();
    wait_until("the agent is gone", || !is_alive(&home));
    assert_eq!(notes(&home).matches("cancel").count(), 1);
}

#[test]
fn secrets_reach_only_their_own_agent() {
    let home = Home::new();
    home.write("home/config.json", &config(&home, json!({})));
    let model = home.script(delegating_script("!environment"));
    let mut command = home.command(&["run", "--model", &model, "the task"]);
    let output = command.env("ANTHROPIC_API_KEY", "k-1").env("A_KEY", "k-2-long").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // The agent has the key. Its result does not show it.
    assert!(
        text.contains("(\"SECRET\", \"[redacted: configured secret]\")") && text.contains("PATH"),
        "{text}"
    );
    assert!(!text.contains("k-2-long"), "{text}");
    assert!(!text.contains("ANTHROPIC") && !text.contains("BRIGADE"), "{text}");
    let died = home.run(delegating_script("!die"), &[]);
    died.exits_with(0).stdout_contains("out of memory, key [redacted: configured secret]");
    assert!(!home.brigade(&["config", "show"]).stdout.contains("a-secret-key"));
}
