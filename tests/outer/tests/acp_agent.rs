//! `brigade acp` with acpx, a third-party client. All messages are recorded, and those that we sent are
//! validated against the protocol schema.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brigade_outer_tests::{
    AcpSchema, CommandOutput, Side, TestEnv, WireLine, WireLog, acpx, methods, processes_with,
};
use brigade_testing::{Script, call, delegate, reply};
use serde_json::{Value, json};

fn writes() -> Script {
    Script::new().turns([
        reply("I write.").call("write_file", json!({ "path": "note.txt", "content": "hello" })),
        reply("It is done: {results}"),
    ])
}

/// An environment with a scripted model.
fn test_env(script: Script) -> TestEnv {
    let env = TestEnv::new("");
    std::fs::write(env.path("script.toml"), script.to_string()).unwrap();
    let config = format!("model = 'script:{}'\n", env.path("script.toml").display());
    std::fs::write(env.path("home/config.toml"), config).unwrap();
    env
}

/// The acpx command with these flags.
fn client(env: &TestEnv, flags: &[&str]) -> Command {
    let agent_command = env.command(&["acp"]);
    let wire = WireLog::new(&env.path("wire"));
    let mut arguments = vec!["/usr/bin/env".to_owned(), "-i".to_owned()];
    let pairs = agent_command.get_envs().filter_map(|(key, value)| Some((key.to_str()?, value?.to_str()?)));
    arguments.extend(pairs.map(|(key, value)| format!("{key}={value}")));
    let program = [agent_command.get_program().to_str().unwrap().to_owned()];
    arguments.extend(
        program.into_iter().chain(agent_command.get_args().map(|word| word.to_str().unwrap().to_owned())),
    );
    let arguments = wire.wrap_command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    std::fs::create_dir_all(env.path("acpx")).unwrap();
    let mut command = acpx(&env.path("acpx"));
    command.args(flags).args(["--format", "json", "--timeout", "60", "--agent", &arguments.join(" ")]);
    command.args(["exec", "go on"]).current_dir(env.path("work"));
    command
}

fn run(env: &TestEnv, flags: &[&str]) -> CommandOutput {
    env.finish(env.start(&mut client(env, flags)))
}

/// The recorded lines, after validation of those that we sent.
fn checked_lines(env: &TestEnv) -> Vec<WireLine> {
    let mut lines = WireLog::new(&env.path("wire")).recorded();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let lines = lines.remove(0);
    assert_eq!(AcpSchema::load().violations(&lines, Side::Agent), Vec::<String>::new());
    lines
}

/// The stop reason of the prompt.
fn stop_reason(lines: &[WireLine]) -> String {
    let ours = lines.iter().filter(|line| line.from == Side::Agent).map(WireLine::message);
    let reasons: Vec<Value> = ours.map(|message| message["result"]["stopReason"].clone()).collect();
    reasons.iter().find_map(Value::as_str).unwrap_or_default().to_owned()
}

/// The whole text that was sent to the user.
fn agent_text(lines: &[WireLine]) -> String {
    let updates = lines.iter().map(WireLine::message).map(|message| message["params"]["update"].clone());
    let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| Some(chunk["content"]["text"].as_str()?.to_owned())).collect()
}

fn wait_until_no_process_is_left(env: &TestEnv) {
    let wire = env.path("wire").display().to_string();
    wait_until("everything ended", || processes_with(&wire).is_empty());
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(30), "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn task_with_approved_permissions_completes() {
    let env = test_env(writes());
    let output = run(&env, &["--approve-all"]);
    assert_eq!(output.code, 0, "{output:?}");
    let lines = checked_lines(&env);
    assert_eq!(stop_reason(&lines), "end_turn");
    assert!(agent_text(&lines).contains("It is done"), "{lines:?}");
    assert!(methods(&lines, Side::Agent).contains(&"session/request_permission".to_owned()), "{lines:?}");
    assert_eq!(std::fs::read_to_string(env.path("work/note.txt")).unwrap(), "hello");
    wait_until_no_process_is_left(&env);
}

#[test]
fn denied_permission_blocks_the_call_and_is_reported() {
    let env = test_env(writes());
    let output = run(&env, &["--deny-all"]);
    // The exit code of acpx for a denied permission.
    assert_eq!(output.code, 5, "{output:?}");
    let lines = checked_lines(&env);
    assert_eq!(stop_reason(&lines), "end_turn");
    assert!(agent_text(&lines).contains("The user denied this `write_file` call."), "{lines:?}");
    assert!(!env.path("work/note.txt").exists());
    wait_until_no_process_is_left(&env);
}

#[test]
fn child_updates_reach_the_client() {
    let env = test_env(
        Script::new()
            .agent("lead", [delegate("Helper", "say it"), reply("Heard: {results}")])
            .reply("I am the helper."),
    );
    let output = run(&env, &["--approve-all"]);
    assert_eq!(output.code, 0, "{output:?}");
    let lines = checked_lines(&env);
    assert!(
        agent_text(&lines).contains("Heard:") && agent_text(&lines).contains("I am the helper."),
        "{lines:?}"
    );
    let calls: Vec<Value> = lines.iter().map(WireLine::message).collect();
    let of_helper = |message: &Value| message["params"]["update"].to_string().contains("Helper");
    assert!(calls.iter().any(of_helper), "{lines:?}");
    wait_until_no_process_is_left(&env);
}

#[test]
fn cancel_ends_running_commands() {
    let env =
        test_env(Script::new().turns([call("shell", json!({ "command": "sleep 471" })), reply("never")]));
    let child: Child = env.start(client(&env, &["--approve-all"]).stdin(Stdio::null()));
    let sleeping = || processes_with("sleep\u{0}471").len();
    wait_until("the command runs", || sleeping() > 0);
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    env.finish(child);
    let lines = checked_lines(&env);
    assert_eq!(stop_reason(&lines), "cancelled");
    assert!(methods(&lines, Side::Client).contains(&"session/cancel".to_owned()));
    wait_until("the command ended", || sleeping() == 0);
    wait_until_no_process_is_left(&env);
}
