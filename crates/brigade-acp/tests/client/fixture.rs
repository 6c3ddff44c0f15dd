//! An external agent that runs the commands in its prompt: `!say hello`, `!read a.txt`, `!hang`.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// The variable with the path of the file in which the agent records events.
pub(crate) const NOTES: &str = "FIXTURE_NOTES";
/// The variable with the start behaviour of the agent: `silent`, `no-session`, `exit`, `old`, `closes`,
/// `grumbles`.
pub(crate) const START: &str = "FIXTURE_START";

#[derive(Clone)]
struct Agent {
    output: Arc<Mutex<File>>,
    next: Arc<AtomicU64>,
    waiting: Arc<Mutex<HashMap<u64, Sender<Value>>>>,
    cancels: Arc<Mutex<HashMap<String, Sender<()>>>>,
    settings: Arc<Mutex<HashMap<String, String>>>,
    /// Whether it has stopped reading and writing.
    frozen: Arc<AtomicBool>,
}

/// Serves until the input ends. Input and output are one socket, because the harness prints to standard
/// output.
pub(crate) fn serve() {
    let output = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let agent = Agent {
        output: Arc::new(Mutex::new(output)),
        next: Arc::default(),
        waiting: Arc::default(),
        cancels: Arc::default(),
        settings: Arc::default(),
        frozen: Arc::default(),
    };
    note(&format!("start {}", std::process::id()));
    let start = std::env::var(START).unwrap_or_default();
    if start == "exit" {
        std::io::stderr().write_all(b"no licence found\n").unwrap();
        std::process::exit(4);
    }
    if start == "grumbles" {
        std::io::stderr().write_all(b"Error: the cache is cold\n").unwrap();
        // The line is read before the first message is answered, also on a busy machine.
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    let mut sessions = 0;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if agent.frozen.load(Ordering::SeqCst) {
            sleep_forever();
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        let (id, params) = (message["id"].clone(), message["params"].clone());
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        match message["method"].as_str() {
            None => {
                let waiter = agent.waiting.lock().unwrap().remove(&id.as_u64().unwrap());
                waiter.unwrap().send(message).unwrap();
            }
            Some("initialize") if start == "silent" => {}
            Some("initialize") => {
                assert_eq!(params["protocolVersion"], 1);
                note(&format!("client {}", params["clientCapabilities"]));
                let version = if start == "old" { 0 } else { 1 };
                let closes = if start == "closes" { json!({"close": {}}) } else { json!({}) };
                agent.answer(
                    &id,
                    json!({
                        "protocolVersion": version,
                        "agentInfo": {"name": "fixture", "version": "7"},
                        "agentCapabilities": {"sessionCapabilities": closes},
                    }),
                );
            }
            Some("session/new") if start == "no-session" => {}
            Some("session/new") => {
                sessions += 1;
                note(&format!("new {}", params["cwd"].as_str().unwrap()));
                let names = match start.strip_prefix("modes:") {
                    Some(names) => names.split(',').filter(|name| !name.is_empty()).collect(),
                    None => vec!["plan", "code"],
                };
                let modes: Vec<Value> =
                    names.into_iter().map(|mode| json!({"id": mode, "name": mode})).collect();
                let models = ["small", "large"].map(|model| json!({"value": model, "name": model}));
                agent.answer(
                    &id,
                    json!({
                        "sessionId": format!("s{sessions}"),
                        "modes": {"currentModeId": "plan", "availableModes": modes},
                        "configOptions": [{
                            "id": "llm", "name": "Model", "category": "model", "type": "select",
                            "currentValue": "small", "options": models,
                        }],
                    }),
                );
            }
            Some("session/set_mode") => {
                let mode = params["modeId"].as_str().unwrap().to_owned();
                note(&format!("mode {mode}"));
                agent.settings.lock().unwrap().insert(format!("{session} mode"), mode);
                agent.answer(&id, json!({}));
            }
            Some("session/set_config_option") => {
                let value = params["value"].as_str().unwrap().to_owned();
                agent.settings.lock().unwrap().insert(format!("{session} model"), value);
                agent.answer(&id, json!({"configOptions": []}));
            }
            Some("session/cancel") => {
                note(&format!("cancel {session}"));
                if let Some(cancel) = agent.cancels.lock().unwrap().remove(&session) {
                    let _ = cancel.send(());
                }
            }
            Some("session/close") => {
                note(&format!("close {session}"));
                agent.answer(&id, json!({}));
            }
            Some("session/prompt") => {
                let (sender, cancelled) = channel();
                agent.cancels.lock().unwrap().insert(session.clone(), sender);
                let prompt = Prompt { agent: agent.clone(), session, id, cancelled, params };
                std::thread::spawn(move || prompt.work());
            }
            Some(other) => panic!("an unknown method: {other}"),
        }
    }
}

/// Converts a path to an absolute one, as the protocol requires.
fn full(path: &str) -> String {
    std::env::current_dir().unwrap().join(path).display().to_string()
}

fn note(text: &str) {
    if let Some(file) = std::env::var_os(NOTES) {
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        // One write per line, so that lines of several threads are not interleaved.
        file.write_all(format!("{text}\n").as_bytes()).unwrap();
    }
}

fn sleep_forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// Waits until `count` sessions are running at once.
fn meet(count: usize) {
    note("meet");
    let here = || {
        let notes = std::fs::read_to_string(std::env::var_os(NOTES).unwrap()).unwrap();
        notes.lines().filter(|line| *line == "meet").count()
    };
    while here() < count {
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Agent {
    fn raw(&self, bytes: &[u8]) {
        let mut output = self.output.lock().unwrap();
        // The client may have closed the connection.
        if output.write_all(bytes).is_err() {
            std::process::exit(9);
        }
    }

    fn send(&self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes());
    }

    fn answer(&self, id: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn begin(&self, method: &str, params: Value) -> Receiver<Value> {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let (sender, answer) = channel();
        self.waiting.lock().unwrap().insert(id, sender);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        answer
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        self.begin(method, params).recv().unwrap()
    }
}

struct Prompt {
    agent: Agent,
    session: String,
    id: Value,
    cancelled: Receiver<()>,
    params: Value,
}

impl Prompt {
    fn update(&self, update: Value) {
        self.update_of(&self.session, update);
    }

    fn update_of(&self, session: &str, update: Value) {
        let params = json!({"sessionId": session, "update": update});
        self.agent.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    fn say(&self, text: &str) {
        let content = json!({"type": "text", "text": text});
        self.update(json!({"sessionUpdate": "agent_message_chunk", "content": content}));
    }

    fn ask(&self, method: &str, mut params: Value) -> Result<Value, String> {
        params["sessionId"] = self.session.clone().into();
        let answer = self.agent.ask(method, params);
        match answer.get("error") {
            Some(error) => Err(error["message"].as_str().unwrap().to_owned()),
            None => Ok(answer["result"].clone()),
        }
    }

    fn say_result(&self, result: Result<Value, String>) {
        match result {
            Ok(value) => self.say(&format!("ok {value}\n")),
            Err(error) => self.say(&format!("error {error}\n")),
        }
    }

    fn end(&self, reason: &str, usage: Value) {
        self.agent.answer(&self.id, json!({"stopReason": reason, "usage": usage}));
    }

    fn work(self) {
        note("prompt");
        let text = self.params["prompt"][0]["text"].as_str().unwrap().to_owned();
        let mut reason = "end_turn".to_owned();
        let mut usage = Value::Null;
        let commands: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix('!')).collect();
        if commands.is_empty() {
            self.say(&format!("You said: {text}"));
        }
        for command in commands {
            let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
            match verb {
                "say" => self.say(rest),
                "escape" => self.say("\u{1b}]0;owned\u{7}\u{1b}[31mred"),
                "think" => {
                    let content = json!({"type": "text", "text": rest});
                    self.update(json!({"sessionUpdate": "agent_thought_chunk", "content": content}));
                }
                "call" => self.update(
                    json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": rest, "kind": "read"}),
                ),
                "spend" => {
                    let cost = json!({"amount": 0.25, "currency": "USD"});
                    self.update(json!({"sessionUpdate": "usage_update", "used": 5, "size": 9, "cost": cost}));
                    let input: u64 = rest.parse().unwrap();
                    usage = json!({"totalTokens": input + 10, "inputTokens": input, "outputTokens": 10});
                }
                "stop" => reason = rest.to_owned(),
                "meta" => self.say(&self.params["_meta"].to_string()),
                "settings" => {
                    let settings = self.agent.settings.lock().unwrap();
                    let get = |key: &str| settings.get(&format!("{} {key}", self.session)).cloned();
                    let said = format!("mode {:?} model {:?}", get("mode"), get("model"));
                    drop(settings);
                    self.say(&said);
                }
                "arguments" => self.say(&format!("{:?}", std::env::args().collect::<Vec<_>>())),
                "environment" => self.say(&format!("{:?}", std::env::vars().collect::<Vec<_>>())),
                "pid" => self.say(&std::process::id().to_string()),
                "read" => self.say_result(self.ask("fs/read_text_file", json!({"path": full(rest)}))),
                // Backwards, so that nothing that looks like a key is redacted in the reply.
                "backwards" => {
                    let answer = self.ask("fs/read_text_file", json!({"path": full(rest)})).unwrap();
                    self.say(&answer["content"].as_str().unwrap().chars().rev().collect::<String>());
                }
                "line" => {
                    let part = json!({"path": full(rest), "line": 2, "limit": 1});
                    self.say_result(self.ask("fs/read_text_file", part));
                }
                "both" => {
                    // Two requests at once. The responses may arrive in any order.
                    let ask = |path: &str| {
                        let params = json!({"sessionId": self.session, "path": full(path)});
                        self.agent.begin("fs/read_text_file", params)
                    };
                    let answers: Vec<Receiver<Value>> = rest.split(' ').map(ask).collect();
                    for answer in answers {
                        self.say(&format!("{} ", answer.recv().unwrap()["result"]["content"]));
                    }
                }
                "write" => {
                    let (path, content) = rest.split_once(' ').unwrap();
                    self.say_result(
                        self.ask("fs/write_text_file", json!({"path": full(path), "content": content})),
                    );
                }
                "run" => self.run(rest),
                "terminal" => self.say_result(self.ask("terminal/create", json!({"command": rest}))),
                "permit" => self.permit(rest),
                // A raw tool call: announced, then used in a permission request.
                "tell" => {
                    let mut call: Value = serde_json::from_str(rest).unwrap();
                    call["sessionUpdate"] = "tool_call".into();
                    self.update(call);
                }
                "request" => self.request(serde_json::from_str(rest).unwrap()),
                // A raw update of this session, or of the sub-agent named first.
                "update" => self.update(serde_json::from_str(rest).unwrap()),
                "child" => {
                    let (child, update) = rest.split_once(' ').unwrap();
                    self.update_of(child, serde_json::from_str(update).unwrap());
                }
                "child-asks" => {
                    let (child, call) = rest.split_once(' ').unwrap();
                    let call = serde_json::from_str(call).unwrap();
                    let answer = self.agent.ask("session/request_permission", permission(child, call));
                    self.say(&format!("chosen {}\n", answer["result"]["outcome"]["optionId"]));
                }
                "message" => {
                    let (id, text) = rest.split_once(' ').unwrap();
                    let content = json!({"type": "text", "text": text});
                    let message =
                        json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": content});
                    self.update(message);
                }
                // Requests permission and ignores the answer.
                "ask" => {
                    let call = serde_json::from_str(rest).unwrap();
                    self.agent.ask("session/request_permission", permission(&self.session, call));
                }
                "vanish" => std::process::exit(5),
                "crowd" => {
                    let locations: Value =
                        (0..300_000).map(|index| json!({"path": format!("/{index}")})).collect();
                    self.request(json!({"toolCallId": "c", "kind": "read", "locations": locations}));
                }
                "stranger" => {
                    let answer =
                        self.agent.ask("fs/read_text_file", json!({"sessionId": "other", "path": rest}));
                    self.say(&answer["error"]["message"].to_string());
                }
                "unknown" => self.say_result(self.ask("fs/format_disk", json!({}))),
                "wait" => {
                    self.cancelled.recv().unwrap();
                    return self.end("cancelled", usage);
                }
                "sleep" => std::thread::sleep(Duration::from_millis(rest.parse().unwrap())),
                "hang" => {
                    note("hang");
                    sleep_forever();
                }
                "freeze" => {
                    self.agent.frozen.store(true, Ordering::SeqCst);
                    sleep_forever();
                }
                "shut" => {
                    let output = self.agent.output.lock().unwrap().try_clone().unwrap();
                    UnixStream::from(OwnedFd::from(output)).shutdown(Shutdown::Write).unwrap();
                    sleep_forever();
                }
                "meet" => meet(rest.parse().unwrap()),
                "strange-id" => self.agent.send(&json!({
                    "jsonrpc": "2.0", "id": "i".repeat(1000), "method": "fs/read_text_file", "params": {},
                })),
                "waits" => self.waits(rest),
                "deaf" => self.request_without_reading(),
                "die" => {
                    let secret = std::env::var("SECRET").unwrap_or_default();
                    let words = format!("out of memory, key {secret}\n");
                    std::io::stderr().write_all(words.as_bytes()).unwrap();
                    std::process::exit(3);
                }
                "fail" => {
                    let details = rest.replace("SECRET", &std::env::var("SECRET").unwrap_or_default());
                    let error =
                        json!({"code": -32603, "message": "Internal error", "data": {"details": details}});
                    return self.agent.send(&json!({"jsonrpc": "2.0", "id": self.id, "error": error}));
                }
                "twice" => self.end("end_turn", Value::Null),
                "wrong-id" => self.agent.answer(&json!(999_999), json!({"stopReason": "end_turn"})),
                "junk" => self.agent.raw(b"{\"jsonrpc\": \"2.0\", oops\n"),
                "noise" => self.agent.raw(b"Downloading 5 of 7 ...\n"),
                "long" => self.agent.raw(&[vec![b'{'; 10 << 20], vec![b'\n']].concat()),
                "endless" => loop {
                    self.agent.raw(&[b'{'; 65536]);
                },
                "flood" => loop {
                    self.say(&"again and again ".repeat(100));
                },
                other => self.say(&format!("no such order: {other}")),
            }
        }
        self.end(&reason, usage);
    }

    fn run(&self, command: &str) {
        let created = match self.ask("terminal/create", json!({"command": command})) {
            Ok(created) => created,
            Err(error) => return self.say(&format!("error {error}\n")),
        };
        let exit = self.ask("terminal/wait_for_exit", created.clone()).unwrap();
        let output = self.ask("terminal/output", created.clone()).unwrap();
        self.say(&format!("exit {} output {}\n", exit["exitCode"], output["output"]));
        self.ask("terminal/release", created.clone()).unwrap();
        assert!(self.ask("terminal/output", created).is_err());
    }

    /// Repeatedly requests a long output and reads none of the responses.
    fn request_without_reading(&self) {
        let command = json!({"command": "head -c 1000000 /dev/zero | tr '\\0' x"});
        let mut params = self.ask("terminal/create", command).unwrap();
        self.ask("terminal/wait_for_exit", params.clone()).unwrap();
        self.agent.frozen.store(true, Ordering::SeqCst);
        params["sessionId"] = self.session.clone().into();
        for _ in 0..40 {
            self.agent.begin("terminal/output", params.clone());
        }
        sleep_forever();
    }

    /// Waits for one command six times at once, and reports how many of these requests were refused.
    fn waits(&self, command: &str) {
        let mut params = self.ask("terminal/create", json!({"command": command})).unwrap();
        params["sessionId"] = self.session.clone().into();
        let waits: Vec<Receiver<Value>> =
            (0..6).map(|_| self.agent.begin("terminal/wait_for_exit", params.clone())).collect();
        let answers: Vec<Value> = waits.iter().map(|wait| wait.recv().unwrap()).collect();
        let refused = answers.iter().filter(|answer| answer.get("error").is_some()).count();
        self.say(&format!("refused {refused}"));
    }

    /// `KIND WHAT`: `WHAT` is a command for `execute`, otherwise a path.
    fn permit(&self, rest: &str) {
        let (kind, what) = rest.split_once(' ').unwrap();
        let mut call = json!({"toolCallId": "p", "kind": kind, "title": format!("Do {what}")});
        match kind {
            "execute" => call["rawInput"] = json!({"command": what}),
            _ => {
                call["locations"] = what.split(' ').map(|path| json!({"path": full(path)})).collect();
            }
        }
        self.request(call);
    }

    /// Requests permission for this tool call.
    fn request(&self, call: Value) {
        let answer = self.agent.ask("session/request_permission", permission(&self.session, call));
        self.say(&format!("chosen {}\n", answer["result"]["outcome"]["optionId"]));
    }
}

fn permission(session: &str, call: Value) -> Value {
    let options = [("always", "allow_always"), ("yes", "allow_once"), ("no", "reject_once")]
        .map(|(id, kind)| json!({"optionId": id, "name": id, "kind": kind}));
    json!({"sessionId": session, "toolCall": call, "options": options})
}
