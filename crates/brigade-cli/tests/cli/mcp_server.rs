//! `brigade mcp`: real processes, over stdio and HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use brigade_testing::{Fault, Script, fault, reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home, text};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Script of a child that replies after a delay.
fn slow_child() -> Script {
    Script::new().reply(reply("Four.").delay_ms(300).tokens(10, 5))
}

/// Script of a child that never replies.
fn hanging_child() -> Script {
    Script::new().reply(fault(Fault::Hang))
}

/// Client of a server over stdio.
struct McpClient {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<std::process::ChildStdout>,
    next: u64,
}

impl McpClient {
    fn start(home: &Home, script: Script, arguments: &[&str]) -> McpClient {
        McpClient::with_model(home, &home.script(script), arguments)
    }

    fn with_model(home: &Home, model: &str, arguments: &[&str]) -> McpClient {
        let mut all = vec!["mcp", "--model", model];
        all.extend(arguments);
        let mut child = home.command(&all).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut client = McpClient { child, input, lines: BufReader::new(output), next: 0 };
        let about = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
        let id = client.request("initialize", hello);
        assert_eq!(client.response(id)["result"]["serverInfo"]["name"], "brigade");
        client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        client
    }

    fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        id
    }

    fn call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.request(
            "tools/call",
            json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } }),
        )
    }

    fn delegate(&mut self) -> u64 {
        self.call("delegate", json!({ "role": "Child", "task": "2 + 2" }))
    }

    #[track_caller]
    fn read_message(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "the server has gone");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }

    /// Response to a request. Earlier messages are skipped.
    #[track_caller]
    fn response(&mut self, id: u64) -> Value {
        loop {
            let message = self.read_message();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Waits until an agent is running.
    #[track_caller]
    fn wait_for_agent(&mut self) {
        while !self.read_message()["params"]["message"].as_str().unwrap_or_default().contains("is thinking") {
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn disconnect(mut self) -> (Option<i32>, Duration) {
        drop(self.input.take());
        self.wait_for_exit()
    }

    fn wait_for_exit(&mut self) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), begun.elapsed());
            }
            assert!(begun.elapsed() < TIMEOUT, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Session of a completed `delegate` call.
pub(crate) fn delegated_session(home: &Home, model: &str) -> String {
    let mut client = McpClient::with_model(home, model, &[]);
    let id = client.delegate();
    let session = client.response(id)["result"]["_meta"]["brigade/session"].as_str().unwrap().to_owned();
    client.disconnect();
    session
}

fn sessions(home: &Home) -> Vec<Value> {
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]);
    list.exits_with(0).json().as_array().unwrap().clone()
}

#[test]
fn mcp_client_lists_and_calls_tools_with_progress() {
    let home = Home::new();
    let mut client = McpClient::start(&home, slow_child(), &["--faces", "delegate,subagent"]);
    let id = client.request("tools/list", json!({}));
    let listed = client.response(id);
    let tools: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        tools,
        ["delegate", "subagent", "parallel_subagent", "session_status", "tell", "stop", "read_result"]
    );
    let id = client.delegate();
    client.wait_for_agent();
    let result = client.response(id)["result"].clone();
    assert_eq!(result["content"][0]["text"], "[Child]: Four.");
    let session = result["_meta"]["brigade/session"].as_str().unwrap().to_owned();
    let (code, _) = client.disconnect();
    assert_eq!(code, Some(0));
    home.brigade(&["resume", &session]).exits_with(0).stdout_contains("[Child]: Four.");
    home.brigade(&["sessions", "tree", &session])
        .exits_with(0)
        .stdout_contains("mcp")
        .stdout_contains("Child");
    // A session that only forwards a call has no turns, and the cost includes its unit.
    let tree = home.brigade(&["sessions", "tree", &session, "--output-format", "json"]).exits_with(0).json();
    assert_eq!((&tree["agents"][0]["turns"], &tree["agents"][1]["turns"]), (&json!(0), &json!(1)), "{tree}");
    let spent = &result["_meta"]["brigade/spent"];
    assert_eq!((&spent["usd_nano"], &spent["cost_usd"]), (&spent["usd"], &json!(0.0)), "{spent}");
}

#[test]
fn cancelled_call_and_disconnected_client_stop_all_agents() {
    let home = Home::new();
    let mut client = McpClient::start(&home, hanging_child(), &[]);
    let id = client.delegate();
    client.wait_for_agent();
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    client.write(&cancelled.to_string());
    let begun = Instant::now();
    while sessions(&home)[0]["state"] != "cancelled" {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", sessions(&home));
        std::thread::sleep(Duration::from_millis(50));
    }
    client.delegate();
    client.wait_for_agent();
    let (code, _) = client.disconnect();
    assert_eq!(code, Some(0));
    let all = sessions(&home);
    assert!(all.len() == 2 && all.iter().all(|session| session["state"] == "cancelled"), "{all:?}");
}

#[test]
fn signal_stops_the_server_and_its_runs() {
    let home = Home::new();
    let mut client = McpClient::start(&home, hanging_child(), &[]);
    client.delegate();
    client.wait_for_agent();
    client.signal(Signal::TERM);
    let (code, time) = client.wait_for_exit();
    assert!(code == Some(0) && time < Duration::from_secs(10), "{code:?} {time:?}");
    assert_eq!(sessions(&home)[0]["state"], "cancelled");
}

#[test]
fn call_of_a_killed_server_is_resumed_by_the_next_server() {
    let home = Home::new();
    let mut client = McpClient::start(&home, Script::new().reply(reply("Four.").delay_ms(3000)), &[]);
    client.delegate();
    client.wait_for_agent();
    client.signal(Signal::KILL);
    client.wait_for_exit();
    let session = sessions(&home)[0]["session_id"].as_str().unwrap().to_owned();
    let mut next = McpClient::start(&home, slow_child(), &[]);
    let request = |next: &mut McpClient, tool: &str| {
        let id = next.call(tool, json!({ "session_id": session }));
        next.response(id)["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let status = request(&mut next, "session_status");
    assert!(
        status.contains("interrupted") && status.contains(&format!("brigade resume {session}")),
        "{status}"
    );
    let early = request(&mut next, "read_result");
    assert!(early.contains("no result yet"), "{early}");
    home.brigade(&["resume", &session]).exits_with(0).stdout_contains("[Child]: Four.");
    assert_eq!(request(&mut next, "read_result"), "[Child]: Four.");
}

#[test]
fn two_mcp_servers_share_a_store() {
    let home = Home::new();
    let mut one = McpClient::start(&home, slow_child(), &[]);
    let mut two = McpClient::start(&home, slow_child(), &[]);
    let ids = (one.delegate(), two.delegate());
    for (client, id) in [(&mut one, ids.0), (&mut two, ids.1)] {
        assert_eq!(client.response(id)["result"]["content"][0]["text"], "[Child]: Four.");
    }
    assert_eq!(sessions(&home).len(), 2);
}

#[test]
fn loop_through_other_processes_reaches_the_depth_limit() {
    let home = Home::new();
    let mut client = McpClient::start(&home, slow_child(), &["--set", "limits.max_depth=3"]);
    let id = client.request(
        "tools/call",
        json!({
            "name": "delegate",
            "arguments": { "role": "Child", "task": "x" },
            "_meta": { "brigade/hop": { "depth": 4, "lineage": ["above"] } }
        }),
    );
    let result = client.response(id)["result"].clone();
    assert_eq!(result["isError"], true);
    assert!(result["content"][0]["text"].as_str().unwrap().contains("depth"), "{result}");
    assert!(sessions(&home).is_empty());
}

#[test]
fn malformed_lines_do_not_stop_the_server() {
    let home = Home::new();
    let mut client = McpClient::start(&home, slow_child(), &[]);
    client.write("{ this is no JSON");
    client.write("");
    client.write("[]");
    client.write("null");
    client.write(&format!("{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"{}\"}}", "x".repeat(10 << 20)));
    client.write(&"[".repeat(100_000));
    client.input.as_mut().unwrap().write_all(&[0xff, 0xfe, 0, b'\n']).unwrap();
    for _ in 0..2000 {
        client.request("no/such/method", json!({}));
    }
    for _ in 0..200 {
        client.call("no_such_tool", json!({}));
    }
    let id = client.delegate();
    assert_eq!(client.response(id)["result"]["content"][0]["text"], "[Child]: Four.");
    // The input ends without a newline.
    client.input.as_mut().unwrap().write_all(b"{\"jsonrpc\"").unwrap();
    assert_eq!(client.disconnect().0, Some(0));
}

#[test]
fn limit_without_a_result_names_the_flag_that_raises_it() {
    let home = Home::new();
    let mut client = McpClient::start(&home, slow_child(), &["--budget-tokens", "10"]);
    let id = client.delegate();
    let result = client.response(id)["result"].clone();
    let words = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(result["isError"], true);
    assert!(words.contains("token limit") && words.contains("--budget-tokens"), "{words}");
    assert!(!words.contains("caller"), "{words}");
    let session = &result["_meta"]["brigade/session"];
    let id = client.call("read_result", json!({ "session_id": session }));
    let again = client.response(id)["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(again.contains("token limit"), "{again}");
}

#[test]
fn passthrough_session_refuses_messages() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let session = delegated_session(&home, &home.script(slow_child()));
    let shown = || home.brigade(&["sessions", "show", &session]).exits_with(0).stdout.clone();
    let before = shown();
    console.add(home.brigade(&["tell", &session, "Please count to three"]).exits_with(2));
    assert_eq!(shown(), before, "the words are on record");
    let resumed = home.brigade(&["resume", &session]);
    console.add(resumed.exits_with(0));
    assert!(!resumed.stderr.contains("brigade tell"), "{}", resumed.stderr);
    // The session of the child can be continued.
    home.brigade(&["tell", &format!("{session}.1-0"), "And 3 + 3?", "--model", &home.script(slow_child())])
        .exits_with(0);
    insta::assert_snapshot!(console.text());
}

#[test]
fn unread_output_of_a_gone_client_does_not_block_exit() {
    let home = Home::new();
    let mut client = McpClient::start(&home, slow_child(), &[]);
    // More responses than a pipe holds.
    for _ in 0..60 {
        client.request("tools/list", json!({}));
    }
    drop(client.input.take());
    let (code, time) = client.wait_for_exit();
    assert!(code == Some(0) && time < Duration::from_secs(15), "{code:?} {time:?}");
}

#[test]
fn client_disconnect_before_initialize_exits_with_success() {
    let home = Home::new();
    let model = home.script(slow_child());
    let mut command = home.command(&["mcp", "--model", &model]);
    let done = CommandResult::run(command.stdin(Stdio::null()));
    done.exits_with(0);
    assert!(done.stdout.is_empty() && done.stderr.is_empty(), "{}{}", done.stdout, done.stderr);
}

#[test]
fn calls_above_the_concurrency_limit_are_refused() {
    let home = Home::new();
    let mut client = McpClient::start(&home, hanging_child(), &[]);
    let ids: Vec<u64> = (0..80).map(|_| client.delegate()).collect();
    let mut refused = 0;
    while refused < ids.len() - 64 {
        let message = client.read_message();
        if message["id"].is_u64() {
            let words = message["result"]["content"][0]["text"].as_str().unwrap();
            assert!(words.contains("too many calls"), "{message}");
            refused += 1;
        }
    }
    // A call that is stopped before its session is recorded leaves no session.
    while sessions(&home).len() < 64 {
        std::thread::sleep(Duration::from_millis(20));
    }
    client.signal(Signal::TERM);
    client.wait_for_exit();
    let all = sessions(&home);
    assert_eq!(all.len(), 64);
    assert!(all.iter().all(|session| session["state"] == "cancelled"));
}

/// Server that listens on a port.
struct Listening {
    child: Child,
    address: String,
    said: String,
}

impl Listening {
    fn start(mut command: Command) -> Listening {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        while !said.contains("The token is") {
            said.push_str(&lines.next().unwrap().unwrap());
            said.push('\n');
        }
        let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Listening { child, address, said }
    }

    /// Sends raw bytes of one request. Returns the head of the response.
    fn send(&self, headers: &str) -> String {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\n{headers}content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn http_token_file_is_removed_with_the_server() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let model = home.script(slow_child());
    let mut listening =
        Listening::start(home.command(&["mcp", "--model", &model, "--listen", "127.0.0.1:0"]));
    let file = listening.said.split("The token is in ").nth(1).unwrap().trim().to_owned();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = text(&file);
    assert!(token.len() == 64 && !listening.said.contains(&token), "{}", listening.said);
    let host = format!("host: {}\r\n", listening.address);
    assert!(listening.send(&host).starts_with("HTTP/1.1 401 "));
    assert!(listening.send(&host).to_lowercase().contains("www-authenticate: bearer"));
    let right = format!("authorization: Bearer {token}\r\n");
    let answer = listening.send(&format!("{host}{right}"));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"name\":\"brigade\""), "{answer}");
    assert!(listening.send(&format!("host: evil.example\r\n{right}")).starts_with("HTTP/1.1 403 "));
    let page = format!("{host}{right}origin: https://evil.example\r\n");
    assert!(listening.send(&page).starts_with("HTTP/1.1 403 "));
    let pid = rustix::process::Pid::from_raw(listening.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(listening.child.wait().unwrap().success());
    assert!(!std::path::Path::new(&file).exists());
}

#[test]
fn http_token_from_a_variable_is_used_and_never_printed() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(slow_child());
    let arguments = ["mcp", "--model", &model, "--listen", "127.0.0.1:0", "--token-env", "MY_TOKEN"];
    console.add(home.brigade(&arguments).exits_with(2));
    let mut empty = home.command(&arguments);
    console.add(CommandResult::run(empty.env("MY_TOKEN", "")).exits_with(2));
    let mut short = home.command(&arguments);
    console.add(CommandResult::run(short.env("MY_TOKEN", "hush")).exits_with(2));
    let mut command = home.command(&arguments);
    command.env("MY_TOKEN", "a-token-that-is-long");
    let listening = Listening::start(command);
    assert!(!listening.said.contains("a-token-that-is-long"));
    let host = format!("host: {}\r\n", listening.address);
    let right = "authorization: Bearer a-token-that-is-long\r\n";
    assert!(listening.send(&format!("{host}{right}")).starts_with("HTTP/1.1 200 "));
    insta::assert_snapshot!(console.text());
}

#[test]
fn unusable_server_flags_are_refused_at_start() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(slow_child());
    let none = home.brigade(&["mcp"]);
    console.add(none.exits_with(2));
    assert_eq!(none.stderr.trim().lines().count(), 3, "{}", none.stderr);
    console.add(home.brigade(&["mcp", "--model", "nowhere/x"]).exits_with(2));
    console.add(home.brigade(&["mcp", "--model", &model, "-a", "x"]).exits_with(2));
    let dispatch = home.brigade(&["mcp", "--model", &model, "--faces", "dispatch"]);
    console.add(dispatch.exits_with(2));
    console.add(home.brigade(&["mcp", "--model", &model, "--faces", "zz"]).exits_with(2));
    console.add(home.brigade(&["mcp", "--listen", "localhost:4750"]).exits_with(2));
    let help = home.brigade(&["mcp", "--help"]).exits_with(0).stdout.clone();
    assert!(
        !help.contains("--agent") && !help.contains("--max-turns") && help.contains("--timeout"),
        "{help}"
    );
    console.add(home.brigade(&["mcp", "--token-env", "X"]).exits_with(2));
    let remote = home.brigade(&["mcp", "--model", &model, "--listen", "0.0.0.0:0"]);
    console.add(remote.exits_with(2));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    console.add(
        home.brigade(&["mcp", "--model", &model, "--listen", &address])
            .exits_with(1)
            .stderr_contains(&address),
    );
    insta::assert_snapshot!(console.text());
}
