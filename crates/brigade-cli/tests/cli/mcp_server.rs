//! `brigade mcp`: real processes, spoken to line by line and over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Done, Home, text};

const LIMIT: Duration = Duration::from_secs(20);

/// A child that answers after a while.
const FOUR: &str = "[[reply]]\ntext = 'Four.'\ndelay_ms = 300\nusage = { input = 10, output = 5 }\n";
/// A child that never answers.
const HANGS: &str = "[[reply]]\nfault = 'hang'\n";

/// A server that is spoken to over its input and output.
struct Spoken {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<std::process::ChildStdout>,
    next: u64,
}

impl Spoken {
    fn start(home: &Home, script: &str, arguments: &[&str]) -> Spoken {
        Spoken::with_model(home, &home.script(script), arguments)
    }

    fn with_model(home: &Home, model: &str, arguments: &[&str]) -> Spoken {
        let mut all = vec!["mcp", "--model", model];
        all.extend(arguments);
        let mut child = home.command(&all).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut spoken = Spoken { child, input, lines: BufReader::new(output), next: 0 };
        let about = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
        let id = spoken.ask("initialize", hello);
        assert_eq!(spoken.answer(id)["result"]["serverInfo"]["name"], "brigade");
        spoken.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        spoken
    }

    fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        id
    }

    fn call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } }),
        )
    }

    fn delegate(&mut self) -> u64 {
        self.call("delegate", json!({ "role": "Child", "task": "2 + 2" }))
    }

    #[track_caller]
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "the server has gone");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }

    /// The answer to a request, whatever is said before.
    #[track_caller]
    fn answer(&mut self, id: u64) -> Value {
        loop {
            let heard = self.hear();
            if heard["id"] == id {
                return heard;
            }
        }
    }

    /// Waits until an agent is at work.
    #[track_caller]
    fn at_work(&mut self) {
        while !self.hear()["params"]["message"].as_str().unwrap_or_default().contains("thinks") {}
    }

    fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn leave(mut self) -> (Option<i32>, Duration) {
        drop(self.input.take());
        self.ended()
    }

    fn ended(&mut self) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), begun.elapsed());
            }
            assert!(begun.elapsed() < LIMIT, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Spoken {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The session of a call of `delegate` that is over.
pub(crate) fn called(home: &Home, model: &str) -> String {
    let mut spoken = Spoken::with_model(home, model, &[]);
    let id = spoken.delegate();
    let session = spoken.answer(id)["result"]["_meta"]["brigade/session"].as_str().unwrap().to_owned();
    spoken.leave();
    session
}

fn sessions(home: &Home) -> Vec<Value> {
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]);
    list.exits(0).json().as_array().unwrap().clone()
}

#[test]
fn a_client_lists_calls_and_hears_of_progress() {
    let home = Home::new();
    let mut spoken = Spoken::start(&home, FOUR, &["--faces", "delegate,subagent"]);
    let id = spoken.ask("tools/list", json!({}));
    let listed = spoken.answer(id);
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
    let id = spoken.delegate();
    spoken.at_work();
    let result = spoken.answer(id)["result"].clone();
    assert_eq!(result["content"][0]["text"], "[Child]: Four.");
    let session = result["_meta"]["brigade/session"].as_str().unwrap().to_owned();
    let (code, _) = spoken.leave();
    assert_eq!(code, Some(0));
    home.brigade(&["resume", &session]).exits(0).prints("[Child]: Four.");
    home.brigade(&["sessions", "tree", &session]).exits(0).prints("mcp").prints("Child");
    // A session that only forwards a call counts no turns, and money says its unit.
    let tree = home.brigade(&["sessions", "tree", &session, "--output-format", "json"]).exits(0).json();
    assert_eq!((&tree["agents"][0]["turns"], &tree["agents"][1]["turns"]), (&json!(0), &json!(1)), "{tree}");
    let spent = &result["_meta"]["brigade/spent"];
    assert_eq!((&spent["usd_nano"], &spent["cost_usd"]), (&spent["usd"], &json!(0.0)), "{spent}");
}

#[test]
fn a_call_that_is_cancelled_and_a_client_that_leaves_let_nothing_run() {
    let home = Home::new();
    let mut spoken = Spoken::start(&home, HANGS, &[]);
    let id = spoken.delegate();
    spoken.at_work();
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    spoken.write(&cancelled.to_string());
    let begun = Instant::now();
    while sessions(&home)[0]["state"] != "cancelled" {
        assert!(begun.elapsed() < LIMIT, "{:?}", sessions(&home));
        std::thread::sleep(Duration::from_millis(50));
    }
    spoken.delegate();
    spoken.at_work();
    let (code, _) = spoken.leave();
    assert_eq!(code, Some(0));
    let all = sessions(&home);
    assert!(all.len() == 2 && all.iter().all(|session| session["state"] == "cancelled"), "{all:?}");
}

#[test]
fn a_signal_ends_the_server_and_its_trees() {
    let home = Home::new();
    let mut spoken = Spoken::start(&home, HANGS, &[]);
    spoken.delegate();
    spoken.at_work();
    spoken.signal(Signal::TERM);
    let (code, time) = spoken.ended();
    assert!(code == Some(0) && time < Duration::from_secs(10), "{code:?} {time:?}");
    assert_eq!(sessions(&home)[0]["state"], "cancelled");
}

#[test]
fn a_call_whose_server_was_killed_is_resumed_and_read_by_the_next() {
    let home = Home::new();
    let mut spoken = Spoken::start(&home, "[[reply]]\ntext = 'Four.'\ndelay_ms = 3000\n", &[]);
    spoken.delegate();
    spoken.at_work();
    spoken.signal(Signal::KILL);
    spoken.ended();
    let session = sessions(&home)[0]["session_id"].as_str().unwrap().to_owned();
    let mut next = Spoken::start(&home, FOUR, &[]);
    let ask = |next: &mut Spoken, tool: &str| {
        let id = next.call(tool, json!({ "session_id": session }));
        next.answer(id)["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let status = ask(&mut next, "session_status");
    assert!(
        status.contains("interrupted") && status.contains(&format!("brigade resume {session}")),
        "{status}"
    );
    let early = ask(&mut next, "read_result");
    assert!(early.contains("no result yet"), "{early}");
    home.brigade(&["resume", &session]).exits(0).prints("[Child]: Four.");
    assert_eq!(ask(&mut next, "read_result"), "[Child]: Four.");
}

#[test]
fn two_servers_share_a_store() {
    let home = Home::new();
    let mut one = Spoken::start(&home, FOUR, &[]);
    let mut two = Spoken::start(&home, FOUR, &[]);
    let ids = (one.delegate(), two.delegate());
    for (spoken, id) in [(&mut one, ids.0), (&mut two, ids.1)] {
        assert_eq!(spoken.answer(id)["result"]["content"][0]["text"], "[Child]: Four.");
    }
    assert_eq!(sessions(&home).len(), 2);
}

#[test]
fn a_loop_through_other_programs_meets_the_depth_limit() {
    let home = Home::new();
    let mut spoken = Spoken::start(&home, FOUR, &["--set", "limits.max_depth=3"]);
    let id = spoken.ask(
        "tools/call",
        json!({
            "name": "delegate",
            "arguments": { "role": "Child", "task": "x" },
            "_meta": { "brigade/hop": { "depth": 4, "lineage": ["above"] } }
        }),
    );
    let result = spoken.answer(id)["result"].clone();
    assert_eq!(result["isError"], true);
    assert!(result["content"][0]["text"].as_str().unwrap().contains("depth"), "{result}");
    assert!(sessions(&home).is_empty());
}

#[test]
fn hostile_lines_harm_nobody() {
    let home = Home::new();
    let mut spoken = Spoken::start(&home, FOUR, &[]);
    spoken.write("{ this is no JSON");
    spoken.write("");
    spoken.write("[]");
    spoken.write("null");
    spoken.write(&format!("{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"{}\"}}", "x".repeat(10 << 20)));
    spoken.write(&"[".repeat(100_000));
    spoken.input.as_mut().unwrap().write_all(&[0xff, 0xfe, 0, b'\n']).unwrap();
    for _ in 0..2000 {
        spoken.ask("no/such/method", json!({}));
    }
    for _ in 0..200 {
        spoken.call("no_such_tool", json!({}));
    }
    let id = spoken.delegate();
    assert_eq!(spoken.answer(id)["result"]["content"][0]["text"], "[Child]: Four.");
    // An end without a line end.
    spoken.input.as_mut().unwrap().write_all(b"{\"jsonrpc\"").unwrap();
    assert_eq!(spoken.leave().0, Some(0));
}

#[test]
fn a_limit_that_leaves_no_result_is_named_with_what_raises_it() {
    let home = Home::new();
    let mut spoken = Spoken::start(&home, FOUR, &["--budget-tokens", "10"]);
    let id = spoken.delegate();
    let result = spoken.answer(id)["result"].clone();
    let words = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(result["isError"], true);
    assert!(words.contains("token limit") && words.contains("--budget-tokens"), "{words}");
    assert!(!words.contains("caller"), "{words}");
    let session = &result["_meta"]["brigade/session"];
    let id = spoken.call("read_result", json!({ "session_id": session }));
    let again = spoken.answer(id)["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(again.contains("token limit"), "{again}");
}

#[test]
fn nothing_can_be_said_to_what_stands_for_a_call() {
    let home = Home::new();
    let session = called(&home, &home.script(FOUR));
    let shown = || home.brigade(&["sessions", "show", &session]).exits(0).stdout.clone();
    let before = shown();
    home.brigade(&["tell", &session, "Please count to three"]).exits(2).says("one call of another program");
    assert_eq!(shown(), before, "the words are on record");
    let resumed = home.brigade(&["resume", &session]);
    resumed.exits(0).prints("[Child]: Four.").says("To look closer");
    assert!(!resumed.stderr.contains("brigade tell"), "{}", resumed.stderr);
    // Who thought there can go on.
    home.brigade(&["tell", &format!("{session}.1-0"), "And 3 + 3?", "--model", &home.script(FOUR)]).exits(0);
}

#[test]
fn a_client_that_reads_nothing_and_leaves_keeps_nothing_alive() {
    let home = Home::new();
    let mut spoken = Spoken::start(&home, FOUR, &[]);
    // More answers than a pipe holds.
    for _ in 0..60 {
        spoken.ask("tools/list", json!({}));
    }
    drop(spoken.input.take());
    let (code, time) = spoken.ended();
    assert!(code == Some(0) && time < Duration::from_secs(15), "{code:?} {time:?}");
}

#[test]
fn a_client_that_leaves_without_a_word_is_no_failure() {
    let home = Home::new();
    let model = home.script(FOUR);
    let mut command = home.command(&["mcp", "--model", &model]);
    let done = Done::of(command.stdin(Stdio::null()).output().unwrap());
    done.exits(0);
    assert!(done.stdout.is_empty() && done.stderr.is_empty(), "{}{}", done.stdout, done.stderr);
}

#[test]
fn too_many_calls_at_once_are_refused_and_the_rest_goes_on() {
    let home = Home::new();
    let mut spoken = Spoken::start(&home, HANGS, &[]);
    let ids: Vec<u64> = (0..80).map(|_| spoken.delegate()).collect();
    let mut refused = 0;
    while refused < ids.len() - 64 {
        let heard = spoken.hear();
        if heard["id"].is_u64() {
            let words = heard["result"]["content"][0]["text"].as_str().unwrap();
            assert!(words.contains("too many calls"), "{heard}");
            refused += 1;
        }
    }
    spoken.signal(Signal::TERM);
    spoken.ended();
    let all = sessions(&home);
    assert_eq!(all.len(), 64);
    assert!(all.iter().all(|session| session["state"] == "cancelled"));
}

/// A server that listens.
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
        while !said.contains("the token is") {
            said.push_str(&lines.next().unwrap().unwrap());
            said.push('\n');
        }
        let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Listening { child, address, said }
    }

    /// One request, as bytes; the head of the answer.
    fn send(&self, headers: &str) -> String {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
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
fn over_http_the_token_is_in_a_file_that_goes_with_the_server() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let model = home.script(FOUR);
    let mut listening =
        Listening::start(home.command(&["mcp", "--model", &model, "--listen", "127.0.0.1:0"]));
    let file = listening.said.split("the token is in ").nth(1).unwrap().trim().to_owned();
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
fn the_token_of_a_variable_is_used_and_never_said() {
    let home = Home::new();
    let model = home.script(FOUR);
    let arguments = ["mcp", "--model", &model, "--listen", "127.0.0.1:0", "--token-env", "MY_TOKEN"];
    home.brigade(&arguments).exits(2).says("MY_TOKEN is not set");
    let mut empty = home.command(&arguments);
    Done::of(empty.env("MY_TOKEN", "").output().unwrap()).exits(2).says("MY_TOKEN is empty");
    let mut short = home.command(&arguments);
    Done::of(short.env("MY_TOKEN", "hush").output().unwrap()).exits(2).says("at least 16 characters");
    let mut command = home.command(&arguments);
    command.env("MY_TOKEN", "a-token-that-is-long");
    let listening = Listening::start(command);
    assert!(!listening.said.contains("a-token-that-is-long"));
    let host = format!("host: {}\r\n", listening.address);
    let right = "authorization: Bearer a-token-that-is-long\r\n";
    assert!(listening.send(&format!("{host}{right}")).starts_with("HTTP/1.1 200 "));
}

#[test]
fn what_cannot_be_served_is_said_at_the_start() {
    let home = Home::new();
    let model = home.script(FOUR);
    let none = home.brigade(&["mcp"]);
    none.exits(2).says("no model is set").says("brigade mcp --model ollama/qwen3");
    assert_eq!(none.stderr.trim().lines().count(), 3, "{}", none.stderr);
    home.brigade(&["mcp", "--model", "nowhere/x"]).exits(2).says("nowhere");
    home.brigade(&["mcp", "--model", &model, "-a", "x"]).exits(2).says("the client leads");
    let dispatch = home.brigade(&["mcp", "--model", &model, "--faces", "dispatch"]);
    dispatch.exits(2).says("no face is offered").says("brigade agents new");
    home.brigade(&["mcp", "--model", &model, "--faces", "zz"]).exits(2).says("--faces").says("no face 'zz'");
    home.brigade(&["mcp", "--listen", "localhost:4750"]).exits(2).says("such as 127.0.0.1:4748");
    let help = home.brigade(&["mcp", "--help"]).exits(0).stdout.clone();
    assert!(
        !help.contains("--agent") && !help.contains("--max-turns") && help.contains("--timeout"),
        "{help}"
    );
    home.brigade(&["mcp", "--token-env", "X"]).exits(2).says("--listen");
    let remote = home.brigade(&["mcp", "--model", &model, "--listen", "0.0.0.0:0"]);
    remote.exits(2).says("--allow-remote");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    home.brigade(&["mcp", "--model", &model, "--listen", &address]).exits(1).says(&address).says("in use");
}
