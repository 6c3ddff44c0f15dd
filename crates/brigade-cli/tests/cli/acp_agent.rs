//! `brigade acp` as an editor uses it: the real process, JSON lines and folder settings.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use brigade_testing::{Script, call, delegate, reply};
use serde_json::{Value, json};

use crate::cli::console::Console;
use crate::cli::mcp::SERVER;
use crate::cli::support::Home;

struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    last_id: u64,
    messages: Vec<Value>,
}

impl Editor {
    fn open(home: &Home, arguments: &[&str]) -> Editor {
        let mut child = home
            .command(&[&["acp"], arguments].concat())
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut editor = Editor { child, input, lines, last_id: 0, messages: Vec::new() };
        let hello =
            editor.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).unwrap();
        assert_eq!(hello["protocolVersion"], 1);
        editor
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Reads a message. Every line of standard output must be one.
    fn read_until(&mut self, is_match: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "it ended before that: {:?}",
                self.messages
            );
            let message: Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(message["jsonrpc"], "2.0");
            self.messages.push(message.clone());
            if is_match(&message) {
                return message;
            }
        }
    }

    fn response(&mut self, id: u64) -> Result<Value, Value> {
        let message = self.read_until(|message| message["id"] == id && message.get("method").is_none());
        message.get("error").map_or_else(|| Ok(message["result"].clone()), |error| Err(error.clone()))
    }

    fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.response(id)
    }

    fn session(&mut self, folder: &Path) -> String {
        let opened = self.call("session/new", json!({"cwd": folder, "mcpServers": []})).unwrap();
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    fn start(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    fn agent_text(&self) -> String {
        let updates = self.messages.iter().map(|message| &message["params"]["update"]);
        updates
            .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
            .map(|update| update["content"]["text"].as_str().unwrap())
            .collect()
    }

    /// Closes the input and waits for the end.
    fn disconnect(mut self) -> (i32, Duration) {
        drop(self.input.take());
        let since = Instant::now();
        let status = self.child.wait().unwrap();
        (status.code().unwrap(), since.elapsed())
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shell_below() -> Script {
    Script::new()
        .agent("lead", [reply("I hand it on. ").delegate("Middle", "see to it").turn(1)])
        .agent("Middle", [delegate("Deep", "do it").turn(1)])
        .agent("Deep", [call("shell", json!({ "command": "echo deep >> done.txt" })).turn(1)])
        .agent("lead", [reply("All done.")])
        .reply("Done.")
}

#[test]
fn editor_prompts_approves_a_grandchild_call_and_reloads_the_session() {
    let home = Home::new();
    let model = home.script(shell_below());
    let arguments = ["--model", model.as_str(), "--set", "swarm.max_depth=2"];
    let mut editor = Editor::open(&home, &arguments);
    let session = editor.session(&home.work());
    let id = editor.start(&session, "Do it");
    let question = editor.read_until(|message| message["method"] == "session/request_permission");
    assert_eq!(question["params"]["toolCall"]["title"], "[Deep] `echo deep >> done.txt`");
    let yes = json!({"outcome": {"outcome": "selected", "optionId": "once"}});
    editor.write(&json!({"jsonrpc": "2.0", "id": question["id"], "result": yes}));
    assert_eq!(editor.response(id).unwrap()["stopReason"], "end_turn");
    assert_eq!(editor.agent_text(), "I hand it on. All done.");
    assert_eq!(std::fs::read_to_string(home.work().join("done.txt")).unwrap(), "deep\n");
    assert_eq!(editor.disconnect().0, 0);
    // It is stored like any other session.
    home.brigade(&["sessions", "show", &session]).exits_with(0).stdout_contains("All done.");

    let mut editor = Editor::open(&home, &arguments);
    let listed = editor.call("session/list", json!({"cwd": home.work()})).unwrap();
    assert_eq!(listed["sessions"][0]["sessionId"], json!(session));
    let load = json!({"sessionId": session, "cwd": home.work(), "mcpServers": []});
    editor.call("session/load", load).unwrap();
    assert_eq!(editor.agent_text(), "I hand it on. All done.");
    let id = editor.start(&session, "And now?");
    assert_eq!(editor.response(id).unwrap()["stopReason"], "end_turn");
    assert_eq!(editor.disconnect().0, 0);
}

#[test]
fn approval_answered_from_a_terminal_is_withdrawn_in_the_editor() {
    let home = Home::new();
    let model = home
        .script(Script::new().turns([call("shell", json!({ "command": "echo x > x.txt" })), reply("end")]));
    let mut editor = Editor::open(&home, &["--model", &model]);
    let session = editor.session(&home.work());
    let id = editor.start(&session, "go");
    let question = editor.read_until(|message| message["method"] == "session/request_permission");
    home.brigade(&["answer", &session, "yes"]).exits_with(0);
    let withdrawn = editor.read_until(|message| message["method"] == "$/cancel_request");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    editor.response(id).unwrap();
    assert!(home.work().join("x.txt").exists());
}

/// Script whose command sleeps. The directory of the test is part of its command line.
fn sleeps(home: &Home) -> Script {
    let command = format!("echo x > started; sleep 600; : {}", home.work().display());
    Script::new().turns([call("shell", json!({ "command": command })), reply("end")])
}

/// Waits until the command runs. Returns a check whether it is still running.
fn sleeper(home: &Home) -> impl Fn() -> bool + use<> {
    let (file, mark) = (home.work().join("started"), format!("sleep 600; : {}", home.work().display()));
    let since = Instant::now();
    while !file.exists() {
        assert!(since.elapsed() < Duration::from_secs(60), "no command began");
        std::thread::sleep(Duration::from_millis(10));
    }
    move || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let command_line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
        processes.filter_map(command_line).any(|line| String::from_utf8_lossy(&line).contains(&mark))
    }
}

#[test]
fn session_cancel_stops_running_commands() {
    let home = Home::new();
    let model = home.script(sleeps(&home));
    let mut editor = Editor::open(&home, &["--mode", "auto", "--model", &model]);
    let session = editor.session(&home.work());
    let id = editor.start(&session, "sleep");
    let is_there = sleeper(&home);
    assert!(is_there());
    editor.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}));
    assert_eq!(editor.response(id).unwrap()["stopReason"], "cancelled");
    assert!(!is_there());
    assert_eq!(editor.disconnect().0, 0);
}

#[test]
fn editor_disconnect_stops_all_agents() {
    let home = Home::new();
    let model = home.script(sleeps(&home));
    let mut editor = Editor::open(&home, &["--mode", "auto", "--model", &model]);
    let session = editor.session(&home.work());
    editor.start(&session, "sleep");
    let is_there = sleeper(&home);
    let (code, took) = editor.disconnect();
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert!(!is_there());
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]);
    list.exits_with(0).stdout_contains("cancelled");
}

#[test]
fn unread_output_of_a_gone_editor_does_not_block_exit() {
    let home = Home::new();
    let mut editor = Editor::open(&home, &[]);
    // More responses than a pipe holds.
    let method = "x".repeat(400);
    for _ in 0..250 {
        editor.send(&method, json!({}));
    }
    let (code, time) = editor.disconnect();
    assert!(code == 0 && time < Duration::from_secs(12), "{code} {time:?}");
}

#[test]
fn passthrough_session_loads_and_refuses_prompts() {
    let home = Home::new();
    let model = home.script(Script::new().reply("Four."));
    let session = crate::cli::mcp_server::delegated_session(&home, &model);
    let mut editor = Editor::open(&home, &["--model", &model]);
    let load = json!({"sessionId": session, "cwd": home.work(), "mcpServers": []});
    editor.call("session/load", load).unwrap();
    let id = editor.start(&session, "Please count to three");
    let error = editor.response(id).unwrap_err();
    assert!(
        error["message"].as_str().unwrap().contains("it only forwards a call from another program"),
        "{error}"
    );
    assert!(!editor.agent_text().contains("count to three"), "{}", editor.agent_text());
}

#[test]
fn signal_stops_the_agent_like_a_disconnect() {
    let home = Home::new();
    let model = home.script(sleeps(&home));
    let mut editor = Editor::open(&home, &["--mode", "auto", "--model", &model]);
    let session = editor.session(&home.work());
    editor.start(&session, "sleep");
    let is_there = sleeper(&home);
    let pid = rustix::process::Pid::from_raw(editor.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    // The input is still open; the process must not wait for it.
    assert_eq!(editor.child.wait().unwrap().code(), Some(0));
    assert!(!is_there());
}

#[test]
fn mcp_servers_of_the_editor_provide_tools() {
    let home = Home::new();
    let model = home.script(
        Script::new().turns([call("mcp__fix__echo", json!({ "text": "round trip" })), reply("{results}")]),
    );
    let (command, arguments) = SERVER.command();
    let notes = home.work().join("notes");
    let server = json!({
        "name": "fix",
        "command": command,
        "args": arguments,
        "env": [{"name": "FIXTURE_NOTES", "value": notes}],
    });
    let lost = json!({"name": "lost", "command": "/no/such/program", "args": [], "env": []});
    let mut editor = Editor::open(&home, &["--mode", "auto", "--model", &model]);
    let opened =
        editor.call("session/new", json!({"cwd": home.work(), "mcpServers": [server, lost]})).unwrap();
    let id = editor.start(opened["sessionId"].as_str().unwrap(), "call it");
    editor.response(id).unwrap();
    assert!(editor.agent_text().contains("round trip"), "{}", editor.agent_text());
}

#[test]
fn each_folder_uses_its_own_trusted_settings() {
    let home = Home::new();
    let (mine, project) = (home.script(Script::new().reply("mine")), home.work().join("project"));
    std::fs::create_dir_all(project.join(".brigade")).unwrap();
    let theirs = home.write("theirs.toml", &Script::new().reply("theirs").to_string());
    let config = format!("model = \"script:{}\"\n[permissions]\nmode = \"plan\"\n", theirs.display());
    std::fs::write(project.join(".brigade/config.toml"), config).unwrap();
    home.write("home/config.toml", &format!("model = \"{mine}\"\n"));
    let mut editor = Editor::open(&home, &[]);
    let opened = |editor: &mut Editor, folder: &Path| {
        let opened = editor.call("session/new", json!({"cwd": folder, "mcpServers": []})).unwrap();
        (
            opened["modes"]["currentModeId"].as_str().unwrap().to_owned(),
            opened["sessionId"].as_str().unwrap().to_owned(),
        )
    };
    let untrusted = opened(&mut editor, &project);
    assert_eq!(untrusted.0, "ask");
    home.brigade(&["trust", "--yes", project.to_str().unwrap()]).exits_with(0);
    let trusted = opened(&mut editor, &project);
    assert_eq!(trusted.0, "plan");
    let elsewhere = opened(&mut editor, &home.work());
    assert_eq!(elsewhere.0, "ask");
    // At the same time.
    let ids: Vec<u64> =
        [&untrusted, &trusted, &elsewhere].iter().map(|(_, session)| editor.start(session, "who?")).collect();
    for _ in &ids {
        editor.read_until(|message| {
            message.get("result").is_some_and(|result| result["stopReason"] == "end_turn")
        });
    }
    let agent_text = |session: &str| -> String {
        let mine = editor
            .messages
            .iter()
            .map(|message| &message["params"])
            .filter(|params| params["sessionId"] == session);
        mine.filter_map(|params| params["update"]["content"]["text"].as_str()).collect()
    };
    assert_eq!(
        (agent_text(&untrusted.1), agent_text(&trusted.1), agent_text(&elsewhere.1)),
        ("mine".into(), "theirs".into(), "mine".into())
    );
}

#[test]
fn missing_model_error_reaches_the_editor() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let mut editor = Editor::open(&home, &[]);
    let refused = editor.call("session/new", json!({"cwd": home.work(), "mcpServers": []})).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("model"), "{refused}");
    console.add(home.brigade(&["acp", "--cwd", "."]).exits_with(2));
    home.brigade(&["acp", "--help"]).exits_with(0).stdout_contains("agent_servers");
    insta::assert_snapshot!(console.text());
}
