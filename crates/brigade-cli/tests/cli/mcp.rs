//! Tools of MCP servers through the command line. The server is this test binary.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use brigade_testing::{Script, TestProgram, call, reply};
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{BackgroundRun, Home};

#[path = "../../../brigade/tests/mcp/authority.rs"]
mod authority;
#[path = "../../../brigade/tests/mcp/fixture.rs"]
mod fixture;

use authority::{Behaviour, OAuthServer};

pub(crate) const SERVER: TestProgram = TestProgram::new(module_path!(), "server_entry");

#[test]
#[ignore = "the entry point of a server, not a test"]
fn server_entry() {
    if SERVER.is_running() {
        fixture::serve();
    }
}

/// Server entry in the format of other programs.
pub(crate) fn servers(home: &Home, more: serde_json::Value) -> String {
    let (command, arguments) = SERVER.command();
    let mut server = json!({ "command": command, "args": arguments });
    server["env"] = json!({ fixture::NOTES_VARIABLE: home.work().join("notes"), "SECRET": "${A_KEY:-none}" });
    for (key, value) in more.as_object().unwrap() {
        server[key] = value.clone();
    }
    json!({ "mcpServers": { "fix": server } }).to_string()
}

pub(crate) fn calling_script(tool: &str) -> Script {
    Script::new()
        .turns([call(&format!("mcp__fix__{tool}"), json!({ "text": "round trip" })), reply("{results}")])
}

#[test]
fn mcp_call_runs_only_with_permission() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.json", &servers(&home, json!({})));
    let refused = home.run(calling_script("echo"), &["--mode", "ask"]);
    console.add(refused.exits_with(0));
    assert!(!refused.stdout.contains("round trip"), "{}", refused.stdout);
    let rule = "permissions.allow=[\"mcp__fix__*\"]";
    home.run(calling_script("echo"), &["--mode", "ask", "--set", rule])
        .exits_with(0)
        .stdout_contains("round trip");
    insta::assert_snapshot!(console.text());
}

#[test]
fn mcp_server_gets_only_its_own_variables() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    let model = home.script(calling_script("env"));
    let mut command = home.command(&["run", "--mode", "auto", "--model", &model, "the task"]);
    let output = command.env("ANTHROPIC_API_KEY", "k-1").env("A_KEY", "k-2").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("SECRET") && text.contains("PATH"), "{text}");
    assert!(!text.contains("ANTHROPIC") && !text.contains("A_KEY") && !text.contains("BRIGADE"), "{text}");
}

#[test]
fn mcp_server_that_cannot_start_is_reported_and_the_run_continues() {
    let home = Home::new();
    home.write("home/config.json", r#"{"mcpServers": {"lost": {"command": "no-such-program"}, "old": {"type": "sse", "url": "http://127.0.0.1:1/"}}}"#);
    home.run(Script::new().reply("fine"), &[])
        .exits_with(0)
        .stdout_contains("fine")
        .stderr_contains("warning: MCP server 'lost': cannot start the server: it exited with code 127")
        .stderr_contains("warning: MCP server 'old': the SSE transport is not supported");
    home.brigade(&["doctor"]).stdout_contains("MCP server 'lost'");
}

#[test]
fn unreachable_mcp_server_error_names_address_and_cause() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write(
        "home/config.json",
        r#"{"mcpServers": {"w": {"url": "http://127.0.0.1:1/mcp?key=sesame"}, "f": {"url": "ftp://x"}}}"#,
    );
    let refused =
        "MCP server 'w': cannot connect to http://127.0.0.1:1: connection refused. Check that it is running";
    let done = home.run(Script::new().reply("fine"), &[]);
    console.add(done.exits_with(0).stderr_contains(refused));
    assert!(!done.stderr.contains("sesame") && !done.stderr.contains("::"), "{}", done.stderr);
    home.brigade(&["doctor"]).stdout_contains(refused);
    console.add(home.brigade(&["tools", "login", "w"]).exits_with(1));
    insta::assert_snapshot!(console.text());
}

#[test]
fn refused_token_is_not_reported_as_missing_login() {
    let (home, server) = (Home::new(), OAuthServer::start(Behaviour::Good));
    let headers = json!({ "authorization": "Bearer wrong-one" });
    let config = json!({ "mcpServers": { "fix": { "url": server.url(), "headers": headers } } });
    home.write("home/config.json", &config.to_string());
    let refused = "the server rejected the Authorization header in its configuration (401)";
    let done = home.run(Script::new().reply("fine"), &[]);
    done.exits_with(0).stderr_contains(refused);
    assert!(!done.stderr.contains("tools login") && !done.stderr.contains("wrong-one"), "{}", done.stderr);
    home.brigade(&["doctor"]).stdout_contains(refused);
    home.brigade(&["tools", "login", "fix"]).exits_with(1).stderr_contains(refused);
}

/// Server entry with keys that only other programs use.
fn with_foreign_keys() -> serde_json::Value {
    json!({ "autoApprove": ["echo"], "alwaysAllow": [], "description": "A fixture", "timeout": 60000, "enabled": true })
}

#[test]
fn mcp_config_of_another_tool_can_be_pasted() {
    let home = Home::new();
    let mut file: serde_json::Value = serde_json::from_str(&servers(&home, with_foreign_keys())).unwrap();
    file["$schema"] = json!("https://x.example/schema.json");
    file["inputs"] = json!([]);
    home.write("home/config.json", &file.to_string());
    home.run(calling_script("echo"), &["--mode", "auto"]).exits_with(0).stdout_contains("round trip");
    // Auto-approvals of another program grant nothing here.
    let asked = home.run(calling_script("echo"), &["--mode", "ask"]);
    assert!(!asked.stdout.contains("round trip"), "{}", asked.stdout);
    let schema = home.brigade(&["config", "schema"]).exits_with(0).json();
    assert!(jsonschema::draft202012::new(&schema).unwrap().is_valid(&file));
    let slip = "unknown key `mcpServers.fix.comand`. Did you mean `mcpServers.fix.command`?";
    let file = servers(&home, json!({ "comand": "x" }));
    home.write("home/config.json", &file);
    home.brigade(&["tools", "list"]).exits_with(2).stderr_contains(slip);
    home.write("home/config.json", "{}");
    home.write("work/.mcp.json", &file);
    home.brigade(&["trust", "--yes"]).exits_with(2).stderr_contains(slip);
}

#[test]
fn timeout_number_means_the_same_in_toml_and_json() {
    let home = Home::new().with_test_program();
    let mut console = Console::new(&home);
    // One and a half seconds; if it were read as seconds, it would outlast the test.
    let file = servers(&home, json!({ "timeout": 1500 }));
    home.write("home/config.json", &file);
    let run = || home.run(calling_script("hang"), &["--mode", "auto"]);
    console.add(run().exits_with(0));
    home.write("home/config.json", "{}");
    home.write("work/.mcp.json", &file);
    home.brigade(&["trust", "--yes"]).exits_with(0);
    console.add(run().exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn disabled_mcp_server_is_not_started() {
    let home = Home::new();
    let file = servers(&home, json!({ "disabled": true }));
    let is_left_alone = || {
        let done = home.run(calling_script("echo"), &["--mode", "auto"]);
        done.exits_with(0).stdout_contains("Unknown tool");
        assert!(!done.stderr.contains("MCP server"), "{}", done.stderr);
        let said = "Tools of an MCP server that is disabled";
        let listed = home.brigade(&["tools", "list", "--servers"]);
        listed.exits_with(0).stdout_contains("mcp__fix__*").stdout_contains(said);
        assert!(!listed.stdout.contains("mcp__fix__echo"), "{}", listed.stdout);
        for more in [&["doctor"][..], &["doctor", "--offline"]] {
            home.brigade(more).stdout_contains("fix: disabled, not started");
        }
    };
    home.write("home/config.json", &file);
    is_left_alone();
    home.run(calling_script("echo"), &["--mode", "auto", "--set", "mcpServers.fix.disabled=false"])
        .exits_with(0)
        .stdout_contains("round trip");
    home.write("home/config.json", "{}");
    home.write("work/.mcp.json", &file);
    home.brigade(&["trust", "--yes"]).exits_with(0);
    is_left_alone();
}

#[test]
fn mcp_server_starts_in_its_configured_folder() {
    let home = Home::new();
    let mut console = Console::new(&home);
    std::fs::create_dir(home.work().join("inner")).unwrap();
    let script = "echo \"in $(pwd)\" >&2; exit 3";
    let server = json!({ "command": "/bin/sh", "args": ["-c", script], "cwd": "inner" });
    home.write("home/config.json", &json!({ "mcpServers": { "fix": server } }).to_string());
    console.add(home.run(Script::new().reply("fine"), &[]).exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn slow_mcp_server_start_is_announced() {
    let home = Home::new();
    home.write("home/config.json", r#"{"mcpServers": {"slow": {"command": "sleep", "args": ["4"]}}}"#);
    let waits = "waiting up to 30 seconds for MCP servers to start: slow";
    home.run(Script::new().reply("fine"), &[]).exits_with(0).stderr_contains(waits);
    home.write("home/config.json", r#"{"mcpServers": {"quick": {"command": "true"}}}"#);
    let quick = home.run(Script::new().reply("fine"), &[]);
    assert!(!quick.exits_with(0).stderr.contains("waiting for"), "{}", quick.stderr);
}

#[test]
fn rule_for_an_undefined_mcp_server_is_reported() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    let doctor = |rule: &str| {
        let rule = format!("permissions.allow=[\"{rule}\"]");
        home.brigade(&["doctor", "--offline", "--set", &rule]).stdout
    };
    let warning =
        |rule: &str| format!("permissions.allow: the MCP server in the rule `{rule}` is not defined here");
    for rule in ["mcp__nope__*", "mcp__fixed__echo", "mcp__fi__*"] {
        let said = doctor(rule);
        assert!(said.contains(&warning(rule)), "{said}");
        assert!(said.contains(", 1 rule\n"), "{said}");
    }
    for rule in ["mcp__fix__*", "mcp__fix__echo", "mcp__f*", "mcp__*"] {
        let said = doctor(rule);
        assert!(!said.contains("is not defined here"), "{said}");
    }
}

#[test]
fn tools_list_keeps_its_columns() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    let list = home.brigade(&["tools", "list", "--servers"]);
    let column = |name: &str| {
        let line = list.stdout.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        line.len() - line[name.len()..].trim_start().len()
    };
    assert_eq!(column("mcp__fix__echo"), column("read_file"), "{}", list.stdout);
    assert_eq!(column("mcp__fix__read_resource"), column("read_file"), "{}", list.stdout);
}

#[test]
fn project_mcp_servers_need_trust() {
    let home = Home::new().with_test_program();
    let mut console = Console::new(&home);
    home.write("work/.mcp.json", &servers(&home, json!({ "disabled": false })));
    let run = || home.run(calling_script("echo"), &["--mode", "auto"]);
    console.add(&run());
    let trusted = home.brigade(&["trust", "--yes"]);
    console.add(trusted.exits_with(0));
    console.add(run().exits_with(0));
    home.write("work/.mcp.json", &servers(&home, json!({ "timeout": 5000 })));
    console.add(&run());
    insta::assert_snapshot!(console.text());
}

#[test]
fn project_gets_no_user_keys_and_no_user_servers() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("work/.mcp.json", &servers(&home, json!({ "env": { "K": "${ANTHROPIC_API_KEY}" } })));
    home.brigade(&["trust", "--yes"]).exits_with(0);
    let run = || home.run(calling_script("echo"), &["--mode", "auto"]);
    console.add(&run());
    // The user's own server with the same name is used unchanged.
    home.write("home/config.json", &servers(&home, json!({})));
    console.add(&run());
    insta::assert_snapshot!(console.text());
}

#[test]
fn tools_list_starts_servers_only_with_the_flag() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    home.brigade(&["tools", "list"]).exits_with(0).stdout_contains("mcp__fix__*");
    home.brigade(&["tools", "list", "--servers"])
        .exits_with(0)
        .stdout_contains("mcp__fix__echo")
        .stdout_contains("echo, version 1");
    let shown = home.brigade(&["config", "show"]);
    assert!(!shown.exits_with(0).stdout.contains("A_KEY"), "{}", shown.stdout);
}

#[test]
fn mcp_server_dies_with_a_killed_runner() {
    let home = Home::new();
    // The server reports its process id, which is another one in a sandbox.
    home.write("home/config.json", &servers(&home, json!({ "sandbox": { "mode": "off" } })));
    let running = BackgroundRun::start(&home, calling_script("hang"), &["--mode", "auto"]);
    let notes = || std::fs::read_to_string(home.work().join("notes")).unwrap_or_default();
    wait_until("the call is under way", || notes().contains("hang "));
    let pid: u32 = notes().trim().trim_start_matches("hang ").parse().unwrap();
    let lives = || std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(lives());
    running.signal(rustix::process::Signal::KILL);
    wait_until("the server is gone", || !lives());
}

/// Logs in with a browser. Returns its last page, the last note of the command and its output.
fn log_in(home: &Home, server: &str) -> (String, String, String) {
    let mut login = home.command(&["tools", "login", server]).spawn().unwrap();
    let mut said = BufReader::new(login.stderr.take().unwrap()).lines().map(Result::unwrap);
    let url = said.find(|line| line.trim().starts_with("http")).unwrap();
    let page = authority::browse(url.trim());
    let last = said.last().unwrap_or_default();
    let done = login.wait_with_output().unwrap();
    (page, last, String::from_utf8(done.stdout).unwrap())
}

#[test]
fn tools_login_and_logout_of_a_server() {
    let (home, server) = (Home::new(), OAuthServer::start(Behaviour::Good));
    let mut console = Console::new(&home);
    let config = json!({ "mcpServers": { "fix": { "url": server.url() }, "here": { "command": "true" } } });
    home.write("home/config.json", &config.to_string());
    let run = || home.run(calling_script("echo"), &["--mode", "auto"]);
    console.add(&run());
    let (page, _, printed) = log_in(&home, "FIX");
    assert!(page.contains("You are logged in"), "{page}");
    assert_eq!(printed, "Logged in to FIX.\n");
    console.add(run().exits_with(0));
    server.revoke();
    console.add(run().exits_with(0));
    assert_eq!(server.grants(), ["authorization_code", "refresh_token"]);
    for file in home.files() {
        let holds_token = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).contains("sesame");
        let is_login = file.to_string_lossy().contains("/logins/") && file.extension().unwrap() == "json";
        assert_eq!(holds_token, is_login, "{}", file.display());
    }
    console.add(home.brigade(&["tools", "logout", "fix"]).exits_with(0));
    console.add(home.brigade(&["tools", "logout", "fix"]).exits_with(0));
    console.add(&run());
    console.add(home.brigade(&["tools", "login", "other"]).exits_with(2));
    console.add(home.brigade(&["tools", "login", "here"]).exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn refused_login_is_reported() {
    let (home, server) = (Home::new(), OAuthServer::start(Behaviour::Refuses));
    let config = json!({ "mcpServers": { "fix": { "url": server.url() } } });
    home.write("home/config.json", &config.to_string());
    let (page, last, printed) = log_in(&home, "fix");
    assert!(page.contains("The login failed"), "{page}");
    assert!(last.contains("cannot log in to fix: the login was refused: not today"), "{last}");
    assert_eq!(printed, "");
}

#[test]
fn changed_tool_is_refused_without_a_user_to_ask() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.json", &servers(&home, json!({})));
    let script = Script::new().turns([
        call("mcp__fix__change", json!({})),
        call("mcp__fix__echo", json!({ "text": "round trip" })),
        reply("{results}"),
    ]);
    let done = home.run(script, &["--mode", "auto"]);
    console.add(done.exits_with(0));
    assert!(!done.stdout.contains("round trip"), "{}", done.stdout);
    insta::assert_snapshot!(console.text());
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
