//! Tools of MCP servers through the command. The server is this test binary.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Home, Running};

#[path = "../../../brigade/tests/mcp/authority.rs"]
mod authority;
#[path = "../../../brigade/tests/mcp/fixture.rs"]
mod fixture;

use authority::{Authority, Manners};

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
fn a_server_that_cannot_be_reached_says_where_and_why() {
    let home = Home::new();
    home.write(
        "home/config.json",
        r#"{"mcpServers": {"w": {"url": "http://127.0.0.1:1/mcp?key=sesame"}, "f": {"url": "ftp://x"}}}"#,
    );
    let refused =
        "MCP server 'w': it cannot be reached at http://127.0.0.1:1: connection refused; check that it runs";
    let done = home.run("[[reply]]\ntext = 'fine'\n", &[]);
    done.exits(0).says(refused).says("MCP server 'f': it cannot be reached: `ftp:` is no way to a server");
    assert!(!done.stderr.contains("sesame") && !done.stderr.contains("::"), "{}", done.stderr);
    home.brigade(&["doctor"]).prints(refused);
    home.brigade(&["tools", "login", "w"]).exits(1).says("it cannot be reached at http://127.0.0.1:1: ");
}

#[test]
fn a_token_that_is_refused_is_not_taken_for_a_login_that_is_missing() {
    let (home, server) = (Home::new(), Authority::start(Manners::Good));
    let headers = json!({ "authorization": "Bearer wrong-one" });
    let config = json!({ "mcpServers": { "fix": { "url": server.url(), "headers": headers } } });
    home.write("home/config.json", &config.to_string());
    let refused = "the server refused the Authorization header of its entry (401)";
    let done = home.run("[[reply]]\ntext = 'fine'\n", &[]);
    done.exits(0).says(refused);
    assert!(!done.stderr.contains("tools login") && !done.stderr.contains("wrong-one"), "{}", done.stderr);
    home.brigade(&["doctor"]).prints(refused);
    home.brigade(&["tools", "login", "fix"]).exits(1).says(refused);
}

/// What other programs write beside the keys that are ours too.
fn with_foreign_keys() -> serde_json::Value {
    json!({ "autoApprove": ["echo"], "alwaysAllow": [], "description": "A fixture", "timeout": 60000, "enabled": true })
}

#[test]
fn a_file_of_another_program_can_be_pasted() {
    let home = Home::new();
    let mut file: serde_json::Value = serde_json::from_str(&servers(&home, with_foreign_keys())).unwrap();
    file["$schema"] = json!("https://x.example/schema.json");
    file["inputs"] = json!([]);
    home.write("home/config.json", &file.to_string());
    home.run(&calling("echo"), &["--mode", "auto"]).exits(0).prints("round trip");
    // What another program may do unasked is no leave here.
    let asked = home.run(&calling("echo"), &["--mode", "ask"]);
    assert!(!asked.stdout.contains("round trip"), "{}", asked.stdout);
    let schema = home.brigade(&["config", "schema"]).exits(0).json();
    assert!(jsonschema::draft202012::new(&schema).unwrap().is_valid(&file));
    let slip = "unknown key `mcpServers.fix.comand`; the nearest known key is `mcpServers.fix.command`";
    let file = servers(&home, json!({ "comand": "x" }));
    home.write("home/config.json", &file);
    home.brigade(&["tools", "list"]).exits(2).says(slip);
    home.write("home/config.json", "{}");
    home.write("work/.mcp.json", &file);
    home.brigade(&["trust", "--yes"]).exits(2).says(slip);
}

#[test]
fn a_plain_number_of_a_timeout_means_the_same_in_both_files() {
    let home = Home::new();
    // A second and a half; as seconds it would outlast the test.
    let file = servers(&home, json!({ "timeout": 1500 }));
    home.write("home/config.json", &file);
    let run = || home.run(&calling("hang"), &["--mode", "auto"]);
    run().exits(0).prints("no answer within 1500 ms");
    home.write("home/config.json", "{}");
    home.write("work/.mcp.json", &file);
    home.brigade(&["trust", "--yes"]).exits(0);
    run().exits(0).prints("no answer within 1500 ms");
}

#[test]
fn a_server_that_is_disabled_is_not_started() {
    let home = Home::new();
    let file = servers(&home, json!({ "disabled": true }));
    let is_left_alone = || {
        let done = home.run(&calling("echo"), &["--mode", "auto"]);
        done.exits(0).prints("There is no tool");
        assert!(!done.stderr.contains("MCP server"), "{}", done.stderr);
        let said = "Tools of an MCP server that is disabled in its entry";
        let listed = home.brigade(&["tools", "list", "--servers"]);
        listed.exits(0).prints("mcp__fix__*").prints(said);
        assert!(!listed.stdout.contains("mcp__fix__echo"), "{}", listed.stdout);
        for more in [&["doctor"][..], &["doctor", "--offline"]] {
            home.brigade(more).prints("fix: disabled in its entry, so it is not started");
        }
    };
    home.write("home/config.json", &file);
    is_left_alone();
    home.run(&calling("echo"), &["--mode", "auto", "--set", "mcpServers.fix.disabled=false"])
        .exits(0)
        .prints("round trip");
    home.write("home/config.json", "{}");
    home.write("work/.mcp.json", &file);
    home.brigade(&["trust", "--yes"]).exits(0);
    is_left_alone();
}

#[test]
fn a_server_starts_in_the_folder_that_its_entry_names() {
    let home = Home::new();
    std::fs::create_dir(home.work().join("inner")).unwrap();
    let script = "echo \"in $(pwd)\" >&2; exit 3";
    let server = json!({ "command": "/bin/sh", "args": ["-c", script], "cwd": "inner" });
    home.write("home/config.json", &json!({ "mcpServers": { "fix": server } }).to_string());
    home.run("[[reply]]\ntext = 'fine'\n", &[]).exits(0).says("/inner");
}

#[test]
fn a_server_that_is_slow_to_start_is_said_to_be_waited_for() {
    let home = Home::new();
    home.write("home/config.json", r#"{"mcpServers": {"slow": {"command": "sleep", "args": ["4"]}}}"#);
    let waits = "waiting for MCP servers to start, 30 seconds at most: slow";
    home.run("[[reply]]\ntext = 'fine'\n", &[]).exits(0).says(waits);
    home.write("home/config.json", r#"{"mcpServers": {"quick": {"command": "true"}}}"#);
    let quick = home.run("[[reply]]\ntext = 'fine'\n", &[]);
    assert!(!quick.exits(0).stderr.contains("waiting for"), "{}", quick.stderr);
}

#[test]
fn a_rule_for_a_server_that_is_not_there_is_told_of() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    let doctor = |rule: &str| {
        let rule = format!("permissions.allow=[\"{rule}\"]");
        home.brigade(&["doctor", "--offline", "--set", &rule]).stdout
    };
    let warning = "is for an MCP server that is not defined here";
    for rule in ["mcp__nope__*", "mcp__fixed__echo", "mcp__fi__*"] {
        let said = doctor(rule);
        assert!(said.contains(&format!("permissions.allow: `{rule}` {warning}")), "{said}");
        assert!(!said.contains("all for tools that there are"), "{said}");
    }
    for rule in ["mcp__fix__*", "mcp__fix__echo", "mcp__f*", "mcp__*"] {
        let said = doctor(rule);
        assert!(!said.contains(warning), "{said}");
    }
}

#[test]
fn the_list_of_tools_keeps_its_columns() {
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

/// Logs in with a browser: its last page, the last line that the command said, and what it printed.
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
fn a_person_logs_in_to_a_server_and_out_again() {
    let (home, server) = (Home::new(), Authority::start(Manners::Good));
    let config = json!({ "mcpServers": { "fix": { "url": server.url() }, "here": { "command": "true" } } });
    home.write("home/config.json", &config.to_string());
    let run = || home.run(&calling("echo"), &["--mode", "auto"]);
    run().says("MCP server 'fix': it asks you to log in (OAuth); type: brigade tools login fix");
    let (page, _, printed) = log_in(&home, "FIX");
    assert!(page.contains("You are logged in"), "{page}");
    assert_eq!(printed, "You are logged in to FIX.\n");
    run().exits(0).prints("with read");
    server.revoke();
    run().exits(0).prints("with read");
    assert_eq!(server.grants(), ["authorization_code", "refresh_token"]);
    for file in home.files() {
        let holds_token = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).contains("sesame");
        let is_login = file.to_string_lossy().contains("/logins/") && file.extension().unwrap() == "json";
        assert_eq!(holds_token, is_login, "{}", file.display());
    }
    home.brigade(&["tools", "logout", "fix"]).exits(0).prints("The login to fix is forgotten.");
    home.brigade(&["tools", "logout", "fix"]).exits(0).prints("There was no login to fix.");
    run().says("it asks you to log in");
    home.brigade(&["tools", "login", "other"])
        .exits(2)
        .says("mcpServers has no server 'other'; there are fix, here");
    home.brigade(&["tools", "login", "here"]).exits(2).says("it is started here, so there is no login to it");
}

#[test]
fn a_login_that_is_refused_is_said() {
    let (home, server) = (Home::new(), Authority::start(Manners::Refuses));
    let config = json!({ "mcpServers": { "fix": { "url": server.url() } } });
    home.write("home/config.json", &config.to_string());
    let (page, last, printed) = log_in(&home, "fix");
    assert!(page.contains("The login did not come about"), "{page}");
    assert!(last.contains("no login to fix: the login was refused: not today"), "{last}");
    assert_eq!(printed, "");
}

#[test]
fn a_tool_that_changed_is_refused_where_nobody_can_be_asked() {
    let home = Home::new();
    home.write("home/config.json", &servers(&home, json!({})));
    let script = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'mcp__fix__change'\narguments = {}\n\
                  [[reply]]\nturn = 2\n[[reply.call]]\ntool = 'mcp__fix__echo'\narguments = { text = 'round trip' }\n\
                  [[reply]]\ntext = '{results}'\n";
    let done = home.run(script, &["--mode", "auto"]);
    done.exits(0).prints("its definition has changed since it was approved, and nobody can be asked here");
    assert!(!done.stdout.contains("round trip"), "{}", done.stdout);
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
