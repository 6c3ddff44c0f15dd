//! Delegation loops through other processes: the limits of the tree apply everywhere.

use std::time::{Duration, Instant};

use brigade_testing::{Reply, Script, call, delegate, reply};
use serde_json::{Value, json};

use crate::cli::support::Home;

const MAX_DEPTH: u32 = 5;

/// Configuration in which this program starts itself as a server.
fn configure(home: &Home, more: Value) {
    let mut config = json!({ "limits": { "max_depth": MAX_DEPTH }, "swarm": { "max_depth": 9 } });
    let (into, more) = (config.as_object_mut().unwrap(), more.as_object().unwrap().clone());
    for (section, value) in more {
        match into.get_mut(&section).and_then(Value::as_object_mut) {
            Some(there) => there.extend(value.as_object().unwrap().clone()),
            None => drop(into.insert(section, value)),
        }
    }
    home.write("home/config.json", &config.to_string());
}

/// Server entry that starts this program.
fn self_server(home: &Home, command: &str, model: &str) -> Value {
    let home = home.home().display().to_string();
    json!({
        "command": env!("CARGO_BIN_EXE_brigade"),
        "args": [command, "--model", model, "--mode", "auto"],
        "env": { "BRIGADE_HOME": home },
    })
}

/// The same entry as an external agent with this many agents in its budget.
fn with_agents(mut server: Value, agents: u64) -> Value {
    server["max_agents"] = agents.into();
    server
}

/// Depth of every session in the store, roots and children.
fn depths(home: &Home) -> Vec<u64> {
    let listed = home.brigade(&["--output-format", "json", "sessions", "list"]).exits_with(0).json();
    let mut depths = Vec::new();
    for root in listed.as_array().unwrap() {
        let id = root["session_id"].as_str().unwrap();
        let log = home.brigade(&["sessions", "export", id, "--format", "jsonl"]);
        for line in log.exits_with(0).lines() {
            if line["event"]["type"] == "started" {
                depths.push(line["event"]["depth"].as_u64().unwrap());
            }
        }
    }
    depths.sort_unstable();
    depths
}

/// Number of processes that were started for this home.
fn processes(home: &Home) -> usize {
    let home = home.home().display().to_string();
    let is_ours = |entry: std::io::Result<std::fs::DirEntry>| {
        let environment = std::fs::read(entry.unwrap().path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&home)
    };
    std::fs::read_dir("/proc").unwrap().map(is_ours).filter(|ours| *ours).count()
}

#[track_caller]
fn assert_no_processes_left(home: &Home) {
    let begun = Instant::now();
    while processes(home) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "processes are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn mcp_loop_ends_at_the_depth_limit_of_the_tree() {
    let home = Home::new();
    let script = Script::new().turns([
        call("mcp__self__delegate", json!({ "role": "Far", "task": "go on" })),
        reply("heard: {result:0}"),
    ]);
    let model = home.script(&script);
    configure(&home, json!({ "mcpServers": { "self": self_server(&home, "mcp", &model) } }));
    let done = home.run(&script, &["--mode", "auto"]);
    assert!(done.exits_with(0).stdout.contains("limits.max_depth"), "{}", done.stdout);
    // The lead. Then, for each loop, the call at the depth of its caller, and the agent for it. The last one is
    // refused.
    assert_eq!(depths(&home), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    assert_no_processes_left(&home);
}

/// Total usage in the logs of all sessions, and the number of agents.
fn total_usage(home: &Home) -> (u64, usize) {
    let listed = home.brigade(&["--output-format", "json", "sessions", "list"]).exits_with(0).json();
    let (mut tokens, mut agents) = (0, 0);
    for root in listed.as_array().unwrap() {
        let id = root["session_id"].as_str().unwrap();
        let log = home.brigade(&["sessions", "export", id, "--format", "jsonl"]);
        for line in log.exits_with(0).lines() {
            let event = &line["event"];
            match event["type"].as_str() {
                Some("replied") => {
                    let usage = &event["spent"]["usage"];
                    tokens += usage["input"].as_u64().unwrap() + usage["output"].as_u64().unwrap();
                }
                Some("delegated") => agents += 1,
                _ => {}
            }
        }
    }
    (tokens, agents)
}

#[test]
fn remote_work_is_charged_to_the_originating_tree() {
    let home = Home::new();
    let calls = call("mcp__self__delegate", json!({ "role": "Far", "task": "go on" })).repeat(6);
    let script =
        Script::new().agent("lead", [calls, reply("heard: {results}")]).reply(reply("done").tokens(700, 300));
    let model = home.script(&script);
    configure(&home, json!({ "mcpServers": { "self": self_server(&home, "mcp", &model) } }));
    let options = ["--mode", "auto", "--max-agents", "4", "--budget-tokens", "400000"];
    let done = home.run(&script, &[&options[..], &["--output-format", "json"]].concat());
    let report = done.exits_with(0).json();
    // Each external process could start that many agents by its own settings, but the whole tree may start only four.
    let (tokens, agents) = total_usage(&home);
    assert_eq!(agents, 4, "{report}");
    assert_eq!(report["result"].as_str().unwrap().matches("[Far]: done").count(), 4, "{report}");
    assert_eq!(
        report["result"].as_str().unwrap().matches("remaining budget (agents) does not cover").count(),
        2,
        "{report}"
    );
    let usage = &report["usage"];
    let reported = usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap();
    assert_eq!(reported, tokens, "{report}");
    assert_no_processes_left(&home);
}

#[test]
fn external_brigade_starts_only_the_agents_it_was_lent() {
    let home = Home::new();
    let lead = |calls: Reply| Script::new().agent("lead", [calls, reply("heard: {results}")]).reply("done");
    let far = home.write("far.toml", &lead(delegate("Near", "go on").repeat(3)).to_string());
    let far = format!("script:{}", far.display());
    configure(
        &home,
        json!({
            "acp": { "servers": { "self": with_agents(self_server(&home, "acp", &far), 2) } },
            "swarm": { "roles": { "Far": { "acp": "self" } } },
        }),
    );
    let done = home.run(lead(delegate("Far", "go on")), &["--max-agents", "9"]);
    assert_eq!(done.exits_with(0).stdout.matches("[Near]: done").count(), 2, "{}", done.stdout);
    assert_eq!(done.stdout.matches("remaining budget (agents) does not cover").count(), 1, "{}", done.stdout);
    // Its agents are charged to the loan: the external agent and its two children.
    let listed = home.brigade(&["--output-format", "json", "sessions", "list"]).exits_with(0).json();
    let agents = |root: &Value| {
        let id = root["session_id"].as_str().unwrap();
        let log = home.brigade(&["sessions", "export", id, "--format", "jsonl"]);
        let ended = |line: &Value| line["event"]["type"] == "ended" && line["session"] == id;
        let lines = log.exits_with(0).lines();
        lines.iter().find(|line| ended(line)).unwrap()["event"]["spent"]["agents"].as_u64()
    };
    let mut booked: Vec<_> = listed.as_array().unwrap().iter().map(agents).collect();
    booked.sort_unstable();
    assert_eq!(booked, [Some(2), Some(3)]);
    assert_no_processes_left(&home);
}

#[test]
fn acp_loop_ends_at_the_depth_limit_of_the_tree() {
    let home = Home::new();
    let script = Script::new().turns([delegate("Far", "go on"), reply("heard: {result:0}")]);
    let model = home.script(&script);
    configure(
        &home,
        json!({
            "acp": { "servers": { "self": with_agents(self_server(&home, "acp", &model), 20) } },
            "swarm": { "roles": { "Far": { "acp": "self" } } },
        }),
    );
    let done = home.run(&script, &[]);
    assert!(done.exits_with(0).stdout.contains("limits.max_depth"), "{}", done.stdout);
    // The lead. Then each agent twice: as our child, and in the process that runs it.
    assert_eq!(depths(&home), [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    assert_no_processes_left(&home);
}

#[test]
fn loop_of_external_lead_agents_ends() {
    let home = Home::new();
    let model = home.script(Script::new().reply("never asked"));
    let mut server = self_server(&home, "acp", &model);
    server["args"] = json!(["acp", "--agent", "again", "--model", model]);
    configure(&home, json!({ "acp": { "servers": { "self": server } } }));
    std::fs::create_dir_all(home.home().join("agents")).unwrap();
    home.write("home/agents/again.md", "---\nname: again\ndescription: Goes round\nacp: self\n---\nGo on.\n");
    let done = home.brigade(&["run", "--agent", "again", "--model", &model, "go"]);
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(said.contains("the maximum depth (5) is reached"), "{said}");
    assert_eq!(depths(&home), [0, 1, 2, 3, 4, 5]);
    assert_no_processes_left(&home);
}

#[test]
fn remote_brigade_works_with_default_settings() {
    let home = Home::new();
    let script = |tool: &str| {
        Script::new()
            .agent("lead", [call(tool, json!({ "role": "Far", "task": "go on" })), reply("heard: {results}")])
            .reply("done")
    };
    let plain = home.write("far.toml", &Script::new().reply("done").to_string()).display().to_string();
    let far = format!("script:{plain}");
    let config = json!({
        "mcpServers": { "self": self_server(&home, "mcp", &far) },
        "acp": { "servers": { "self": self_server(&home, "acp", &far) } },
        "swarm": { "roles": { "Far": { "acp": "self" } } },
    });
    home.write("home/config.json", &config.to_string());
    home.run(script("delegate"), &["--mode", "auto"]).exits_with(0).stdout_contains("heard: [Far]: done");
    let config = json!({ "mcpServers": { "self": self_server(&home, "mcp", &far) } });
    home.write("home/config.json", &config.to_string());
    home.run(script("mcp__self__delegate"), &["--mode", "auto"])
        .exits_with(0)
        .stdout_contains("heard: [Far]: done");
    assert_no_processes_left(&home);
}
