//! The stories of the contracts.

use std::io::{BufRead, BufReader};

use brigade_testing::{Script, call, delegate, reply};
use serde_json::json;

use crate::cli::support::{CommandResult, Home};

const PRESETS: &str = r#"
[swarm.roles.researcher]
system_prompt = "You are a meticulous researcher."
tools = ["grep", "read_file"]
[swarm.roles.writer]
system_prompt = "You write clearly."
tools = ["read_file", "write_file", "edit_file"]
"#;

#[test]
fn s01_presets_are_used_and_results_are_passed_on() {
    let home = Home::new();
    home.write("home/config.toml", PRESETS);
    home.write("work/trends.txt", "agents delegate");
    let report = home.report(
        Script::new()
            .agent(
                "lead",
                [
                    delegate("Researcher", "find trends"),
                    delegate("Writer", "summarise: {result:0}"),
                    reply("Synthesis: {result:0}").turn(3),
                ],
            )
            .agent(
                "researcher",
                [
                    call("read_file", json!({ "path": "trends.txt" }))
                        .call("shell", json!({ "command": "true" })),
                    reply("I found: {result:0} / {result:1}").turn(2),
                ],
            )
            .agent("writer", [reply("In short ({task})")]),
        &[],
    );
    let result = report["result"].as_str().unwrap();
    assert!(
        result.starts_with("Synthesis: [Writer]: In short (summarise: [Researcher]: I found: "),
        "{result}"
    );
    assert!(result.contains("agents delegate"), "{result}");
    assert!(result.contains("shell"), "the preset has no shell: {result}");
    let agents: Vec<&str> =
        report["agents"].as_array().unwrap().iter().map(|a| a["agent"].as_str().unwrap()).collect();
    assert_eq!(agents, ["lead", "Researcher", "Writer"]);
    let id = report["session_id"].as_str().unwrap();
    home.brigade(&["sessions", "export", id])
        .exits_with(0)
        .stdout_contains("You are a meticulous researcher.");
}

#[test]
fn s02_role_without_a_preset_gets_its_own_prompt() {
    let home = Home::new();
    home.write("work/app.txt", "password = secret");
    let report = home.report(
        Script::new()
            .agent("lead", [delegate("Security Auditor", "check app.txt"), reply("{result:0}").turn(2)])
            .agent(
                "Security Auditor",
                [call("read_file", json!({ "path": "app.txt" })), reply("A password in plain text.").turn(2)],
            ),
        &[],
    );
    assert_eq!(report["result"], "[Security Auditor]: A password in plain text.");
    let id = report["session_id"].as_str().unwrap();
    home.brigade(&["sessions", "export", id]).exits_with(0).stdout_contains("You are Security Auditor");
    let child = format!("{id}.1-0");
    home.brigade(&["sessions", "show", &child])
        .exits_with(0)
        .stdout_contains("check app.txt")
        .stdout_contains("password = secret");
}

fn nested() -> Script {
    Script::new()
        .agent("lead", [delegate("Middle", "go deeper"), reply("{result:0}").turn(2)])
        .agent("Middle", [delegate("Deep", "be deep"), reply("below: {result:0}").turn(2)])
        .agent("Deep", [reply("deep words")])
}

#[test]
fn s03_delegation_can_be_disabled_and_limited_in_depth() {
    let home = Home::new();
    home.brigade(&["tools", "list"]).exits_with(0).stdout_contains("delegate");
    let without = home.brigade(&["tools", "list", "--set", "swarm.enabled=false"]);
    assert!(!without.exits_with(0).stdout.contains("delegate"), "{}", without.stdout);

    let refused = home.run(nested(), &[]);
    refused.exits_with(0).stdout_contains("[Middle]: below: ").stdout_contains("recursion");
    let allowed = home.run(nested(), &["--set", "swarm.max_depth=2"]);
    assert_eq!(allowed.exits_with(0).stdout, "[Middle]: below: [Deep]: deep words\n");
    let disabled = home.run(nested(), &["--set", "swarm.enabled=false"]);
    disabled.exits_with(0).stdout_contains("Delegation is disabled in configuration");
}

fn message() -> Script {
    Script::new().agent("lead", [delegate("Reader", "read"), reply("over").turn(2)]).agent(
        "Reader",
        [call("message", json!({ "text": "half way" })), reply("read").turn(2).delay_ms(700)],
    )
}

#[test]
fn s04_message_is_shown_before_the_run_ends() {
    let home = Home::new();
    home.write("home/config.toml", "[swarm.roles.reader]\ntools = [\"read_file\"]\n");
    let model = home.script(message());
    let mut child = home.command(&["run", "--model", &model, "the task"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let seen = lines.by_ref().map(Result::unwrap).find(|line| line == "[Reader]: half way");
    assert!(seen.is_some());
    assert!(child.try_wait().unwrap().is_none(), "the message came after the end");
    lines.for_each(drop);
    CommandResult::of(child.wait_with_output().unwrap()).exits_with(0);

    let report = home.report(message(), &[]);
    assert_eq!(report["messages"][0]["text"], "[Reader]: half way");
    assert_eq!(report["messages"][0]["role"], "Reader");
    assert_eq!(report["result"], "over");
}
