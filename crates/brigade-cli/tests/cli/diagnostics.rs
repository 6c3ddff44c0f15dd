//! Diagnostics of `BRIGADE_LOG`.

use std::os::unix::fs::PermissionsExt;

use brigade_testing::Script;
use serde_json::json;

use crate::cli::redaction::redacted;
use crate::cli::support::{CommandResult, Home, text};
use crate::cli::{acp, mcp, models};

/// Checks that the diagnostics contain these parts, in this order.
#[track_caller]
fn assert_in_order(diagnostics: &str, parts: &[&str]) {
    let mut rest = diagnostics;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` in the rest of: {diagnostics}"));
        rest = &rest[at + part.len()..];
    }
}

/// Checks that the diagnostics contain no key, no header and no body.
#[track_caller]
fn assert_no_secrets(diagnostics: &str) {
    let lines = diagnostics.lines().filter(|line| line.contains("brigade::"));
    let lines: String = lines.map(str::to_lowercase).collect();
    assert!(!lines.is_empty(), "{diagnostics}");
    for secret in [models::KEY, "bearer", "authorization", "the task", "hello", "wrong key", "/v1"] {
        assert!(!lines.contains(secret), "`{secret}` in {diagnostics}");
    }
}

fn run(home: &Home, variables: &[(&str, &str)]) -> CommandResult {
    let mut command = home.command(&["run", "the task"]);
    CommandResult::run(command.env("MY_KEY", models::KEY).envs(variables.iter().copied()))
}

#[test]
fn diagnostics_of_a_refused_request_contain_every_send_and_no_secrets() {
    let home = models::configured(&models::refuses_once("retry-after-ms: 200\r\n"));
    let done = run(&home, &[("BRIGADE_LOG", "trace")]);
    done.exits_with(0).stdout_contains("hello");
    assert_in_order(
        &done.stderr,
        &[
            "DEBUG brigade::model: calling model session=",
            "model=\"small\" turn=1 attempt=1",
            "DEBUG brigade::http: sending request provider=\"mine\" send=1",
            "DEBUG brigade::http: connected host=\"127.0.0.1\" port=",
            "DEBUG brigade::http: response received provider=\"mine\" status=429 elapsed_ms=",
            "DEBUG brigade::rate_limit: limits changed provider=\"mine\" concurrency=4",
            "DEBUG brigade::http: request is retried provider=\"mine\" status=429 wait_ms=2",
            "DEBUG brigade::rate_limit: request waits provider=\"mine\" reason=RetryAfter(",
            "DEBUG brigade::http: sending request provider=\"mine\" send=2",
            "DEBUG brigade::http: response received provider=\"mine\" status=200 elapsed_ms=",
            "DEBUG brigade::http: reply complete provider=\"mine\" bytes=",
        ],
    );
    assert_no_secrets(&done.stderr);
    let shown = done.stderr.lines().filter(|line| line.contains(" DEBUG ") || line.contains(" TRACE "));
    for line in shown {
        assert!(line.contains(" brigade::"), "a line of another library: {line}");
    }
}

#[test]
fn diagnostics_of_a_failed_request_do_not_quote_the_response() {
    let server = models::serve("401 Unauthorized", models::DENIED);
    let done = run(&models::configured(&server.url("/v1")), &[("BRIGADE_LOG", "debug")]);
    assert_eq!(server.request_count(), 1);
    let done = done.exits_with(1);
    assert_in_order(&done.stderr, &["status=401", "request failed provider=\"mine\" kind=\"fatal\""]);
    assert_no_secrets(&done.stderr);
}

#[test]
fn run_without_a_level_has_no_diagnostics() {
    let home = Home::new();
    let script = Script::new().reply("hi");
    let expected = redacted(&home.run(&script, &[]).exits_with(0).stderr);
    let model = home.script(&script);
    let run = |variables: &[(&str, &str)]| {
        let mut command = home.command(&["run", "--model", &model, "the task"]);
        redacted(&CommandResult::run(command.envs(variables.iter().copied())).exits_with(0).stderr)
    };
    assert!(!expected.contains("brigade::"), "{expected}");
    assert_eq!(run(&[("BRIGADE_LOG", "")]), expected);
    assert_eq!(run(&[("BRIGADE_LOG_FILE", "unused.log")]), expected);
    assert!(!home.work().join("unused.log").exists());
    let file = home.work().join("used.log");
    assert_eq!(run(&[("BRIGADE_LOG", "debug"), ("BRIGADE_LOG_FILE", "used.log")]), expected);
    assert!(text(&file).contains("DEBUG brigade::model: calling model"), "{}", text(&file));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let once = text(&file).lines().count();
    run(&[("BRIGADE_LOG", "DEBUG"), ("BRIGADE_LOG_FILE", "used.log")]);
    assert_eq!(text(&file).lines().count(), 2 * once, "the file is appended to");
    run(&[("BRIGADE_LOG", "error"), ("BRIGADE_LOG_FILE", "used.log")]);
    assert_eq!(text(&file).lines().count(), 2 * once, "the level counts");
}

#[test]
fn invalid_log_variable_is_refused() {
    let home = Home::new();
    for (variables, message) in [
        (
            vec![("BRIGADE_LOG", "verbose")],
            "brigade: cannot use BRIGADE_LOG=verbose: unknown log level. Choose one of error, warn, info, debug, trace.\n",
        ),
        (
            vec![("BRIGADE_LOG", "debug"), ("BRIGADE_LOG_FILE", "missing/log")],
            "brigade: cannot write diagnostics to missing/log: No such file or directory (os error 2). Set BRIGADE_LOG_FILE to another path.\n",
        ),
    ] {
        let done = CommandResult::run(home.command(&["sessions", "list"]).envs(variables.iter().copied()));
        assert_eq!(done.exits_with(2).stderr, message);
        // The version does not depend on the environment.
        let done = CommandResult::run(home.command(&["--version"]).envs(variables.iter().copied()));
        assert_eq!(done.exits_with(0).stderr, "");
    }
}

#[test]
fn diagnostics_of_an_mcp_server_contain_its_start_handshake_and_end() {
    let home = Home::new();
    home.write("home/config.json", &mcp::servers(&home, json!({})));
    let model = home.script(mcp::calling_script("die"));
    let rule = "permissions.allow=[\"mcp__fix__*\"]";
    let mut command = home.command(&["run", "--model", &model, "--set", rule, "the task"]);
    let done = CommandResult::run(command.env("A_KEY", models::KEY).env("BRIGADE_LOG", "debug"));
    assert_in_order(
        &done.exits_with(0).stderr,
        &[
            "DEBUG brigade::mcp: connecting server=\"fix\" transport=\"stdio\"",
            "DEBUG brigade::process: starting process server=\"mcp:fix\"",
            "DEBUG brigade::mcp: handshake complete server=\"fix\" protocol=\"",
            "DEBUG brigade::mcp: connected server=\"fix\" tools=",
            "DEBUG brigade::process: process ended server=\"mcp:fix\" reason=Exited(",
        ],
    );
    assert_no_secrets(&done.stderr);
}

#[test]
fn diagnostics_of_an_external_agent_contain_its_handshake_and_prompts() {
    let home = Home::new();
    home.write("home/config.json", &acp::config(&home, json!({})));
    let model = home.script(acp::delegating_script("Count to three"));
    let mut command = home.command(&["run", "--model", &model, "the task"]);
    let done = CommandResult::run(command.env("A_KEY", models::KEY).env("BRIGADE_LOG", "debug"));
    assert_in_order(
        &done.exits_with(0).stderr,
        &[
            "DEBUG brigade::process: starting process server=\"acp:fix\"",
            "DEBUG brigade::acp: handshake complete server=\"fix\"",
            "DEBUG brigade::acp: session opened server=\"fix\" session=",
            "DEBUG brigade::acp: prompt sent server=\"fix\" session=",
        ],
    );
    assert_no_secrets(&done.stderr);
}

#[test]
fn diagnostics_of_servers_leave_standard_output_to_the_protocol() {
    let home = Home::new();
    let model = home.script(Script::new().reply("hi"));
    let acp_hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": 1, "clientCapabilities": {}}});
    let mcp_hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    for (command, input, parts) in [
        (
            "acp",
            format!("{acp_hello}\n"),
            ["brigade::acp: request received method=\"initialize\"", "brigade::acp: connection ends"],
        ),
        (
            "mcp",
            format!("{mcp_hello}\n{initialized}\n"),
            ["brigade::mcp: client initialized protocol=\"2025-06-18\"", "brigade::mcp: client disconnected"],
        ),
    ] {
        let arguments = [command, "--model", &model];
        let done = CommandResult::with_input(home.command(&arguments).env("BRIGADE_LOG", "debug"), &input);
        assert_in_order(&done.exits_with(0).stderr, &parts);
        assert!(done.lines().iter().all(|line| line["jsonrpc"] == "2.0"), "{}", done.stdout);
    }
}
