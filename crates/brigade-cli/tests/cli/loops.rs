//! Loops that leave the process and come back: the limits of the tree hold on the whole way.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Home;

const DEEPEST: u32 = 5;

/// A configuration by which this program reaches itself.
fn configured(home: &Home, more: Value) {
    let mut config = json!({ "limits": { "max_depth": DEEPEST }, "swarm": { "max_depth": 9 } });
    let (into, more) = (config.as_object_mut().unwrap(), more.as_object().unwrap().clone());
    for (section, value) in more {
        match into.get_mut(&section).and_then(Value::as_object_mut) {
            Some(there) => there.extend(value.as_object().unwrap().clone()),
            None => drop(into.insert(section, value)),
        }
    }
    home.write("home/config.json", &config.to_string());
}

/// How this program is started as a server of itself.
fn itself(home: &Home, command: &str, model: &str) -> Value {
    let home = home.home().display().to_string();
    json!({
        "command": env!("CARGO_BIN_EXE_brigade"),
        "args": [command, "--model", model, "--mode", "auto"],
        "env": { "BRIGADE_HOME": home },
    })
}

/// Every session of the store with its depth, roots and children.
fn depths(home: &Home) -> Vec<u64> {
    let listed = home.brigade(&["--output-format", "json", "sessions", "list"]).exits(0).json();
    let mut depths = Vec::new();
    for root in listed.as_array().unwrap() {
        let id = root["session_id"].as_str().unwrap();
        let log = home.brigade(&["sessions", "export", id, "--format", "jsonl"]);
        for line in log.exits(0).lines() {
            if line["event"]["type"] == "started" {
                depths.push(line["event"]["depth"].as_u64().unwrap());
            }
        }
    }
    depths.sort_unstable();
    depths
}

/// Processes that were started for this home.
fn processes(home: &Home) -> usize {
    let home = home.home().display().to_string();
    let is_ours = |entry: std::io::Result<std::fs::DirEntry>| {
        let environment = std::fs::read(entry.unwrap().path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&home)
    };
    std::fs::read_dir("/proc").unwrap().map(is_ours).filter(|ours| *ours).count()
}

#[track_caller]
fn nothing_is_left(home: &Home) {
    let begun = Instant::now();
    while processes(home) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "processes are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_loop_through_mcp_ends_at_the_depth_of_the_tree() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'mcp__self__delegate'\n\
                  arguments = { role = 'Far', task = 'go on' }\n[[reply]]\ntext = 'heard: {result:0}'\n";
    let model = home.script(script);
    configured(&home, json!({ "mcpServers": { "self": itself(&home, "mcp", &model) } }));
    let done = home.run(script, &["--mode", "auto"]);
    assert!(done.exits(0).stdout.contains("limits.max_depth"), "{}", done.stdout);
    // The lead; then, for each way around, the call that came in and the agent that it was for. The last is refused.
    assert_eq!(depths(&home), [0, 1, 2, 3, 4, 5]);
    nothing_is_left(&home);
}

#[test]
fn a_loop_through_acp_ends_at_the_depth_of_the_tree() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
                  arguments = { role = 'Far', task = 'go on' }\n[[reply]]\ntext = 'heard: {result:0}'\n";
    let model = home.script(script);
    configured(
        &home,
        json!({
            "acp": { "servers": { "self": itself(&home, "acp", &model) } },
            "swarm": { "roles": { "Far": { "acp": "self" } } },
        }),
    );
    let done = home.run(script, &[]);
    assert!(done.exits(0).stdout.contains("depth 5"), "{}", done.stdout);
    // An agent of ours, then the session of the one that another program runs, which is an agent of ours again.
    assert_eq!(depths(&home), [0, 1, 2, 3, 4, 5]);
    nothing_is_left(&home);
}
