//! A tool server that runs in its own process. It is hand-written, so that it can misbehave in ways that no
//! library would.

#![expect(
    clippy::disallowed_methods,
    clippy::zombie_processes,
    reason = "this is another program: it has an environment, children and an exit code"
)]

use std::fs::File;
use std::io::{BufRead, Write};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

/// The variable that sets the server's behaviour at startup.
pub(crate) const BEHAVIOUR_VARIABLE: &str = "FIXTURE_MANNERS";
/// The variable that names a file in which the server records what it received.
pub(crate) const NOTES_VARIABLE: &str = "FIXTURE_NOTES";

/// Serves until its input ends. Standard output belongs to the test harness. The input is a socket that
/// accepts answers as well.
pub(crate) fn serve() {
    let out = File::from(rustix::stdio::stdin().try_clone_to_owned().unwrap());
    let mut server = Fixture { out, version: 1, listener: None };
    match behaviour().as_str() {
        "leaves" => {
            let token = std::env::var("TOKEN").unwrap_or_default();
            std::io::stderr().write_all(format!("this is no key: {token}\n").as_bytes()).unwrap();
            std::process::exit(7);
        }
        "grumbles" => std::io::stderr().write_all(b"Error: the cache is cold\n").unwrap(),
        "silent" => std::thread::sleep(Duration::from_secs(1000)),
        "chatters" => server.raw(b"Welcome to the server!\n\n{\"jsonrpc\":\n"),
        "renames" if std::env::var(NOTES_VARIABLE).is_ok_and(|file| std::fs::exists(file).unwrap()) => {
            server.version = 2
        }
        _ => {}
    }
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        server.handle(&message);
    }
    note("left");
    if behaviour() == "stays" {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

fn behaviour() -> String {
    std::env::var(BEHAVIOUR_VARIABLE).unwrap_or_default()
}

fn note(text: &str) {
    if let Ok(file) = std::env::var(NOTES_VARIABLE) {
        let mut file = File::options().append(true).create(true).open(file).unwrap();
        writeln!(file, "{text}").unwrap();
    }
}

struct Fixture {
    out: File,
    version: u32,
    /// The request that subscribed to changes, with the newest protocol.
    listener: Option<Value>,
}

impl Fixture {
    fn handle(&mut self, message: &Value) {
        let id = message["id"].clone();
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => self.reply(&id, json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": { "listChanged": true }, "resources": {}, "prompts": {} },
                "serverInfo": { "name": "fixture", "version": "1" },
            })),
            "server/discover" if behaviour().starts_with("modern") => self.reply(
                &id,
                json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                    "capabilities": { "tools": { "listChanged": true } } }),
            ),
            "subscriptions/listen" => {
                self.listener = Some(id);
                let params = json!({ "notifications": message["params"]["notifications"] });
                self.tell_listener("notifications/subscriptions/acknowledged", params);
                note("listens");
            }
            "tools/list" => self.list(&id, message["params"]["cursor"].as_str()),
            "tools/call" => self.call(&id, &message["params"]),
            "resources/list" if behaviour() == "bare" => self.reply(&id, json!({ "resources": [] })),
            "prompts/list" if behaviour() == "bare" => self.reply(&id, json!({ "prompts": [] })),
            "resources/list" if behaviour() == "templates" => self.reply(&id, json!({ "resources": [] })),
            "resources/templates/list" if behaviour() == "templates" => self.reply(
                &id,
                json!({ "resourceTemplates": [{ "uriTemplate": "a://{b}", "name": "letters" }] }),
            ),
            "resources/list" => self.reply(&id, json!({ "resources": [{ "uri": "a://b", "name": "letter" }] })),
            "resources/read" if message["params"]["uri"] == "a://b" => {
                self.reply(&id, json!({ "contents": [{ "uri": "a://b", "text": "dear reader" }] }));
            }
            "prompts/list" => self.reply(&id, json!({ "prompts": [
                { "name": "greet", "description": "A greeting", "arguments": [{ "name": "whom", "required": true }] },
            ] })),
            "prompts/get" => {
                let text = format!("greet {}", message["params"]["arguments"]["whom"]);
                let content = json!({ "type": "text", "text": text });
                self.reply(&id, json!({ "messages": [{ "role": "user", "content": content }] }));
            }
            "notifications/cancelled" => note("cancelled"),
            _ if id.is_null() => {}
            other => self.send(&json!({
                "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": format!("no {other} here") },
            })),
        }
    }

    fn list(&mut self, id: &Value, cursor: Option<&str>) {
        if behaviour() == "slow" && self.version > 1 && cursor.is_none() {
            std::thread::sleep(Duration::from_millis(2500));
        }
        let tool = |name: &str| {
            json!({ "name": name, "description": format!("{name}, version {}", self.version),
            "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } } })
        };
        let result = match (behaviour().as_str(), cursor) {
            ("endless", _) => json!({ "tools": [tool("echo")], "nextCursor": "again" }),
            ("many", _) => json!({ "tools": (0..300).map(|n| tool(&format!("t{n}"))).collect::<Vec<_>>() }),
            ("collides", _) => {
                json!({ "tools": [tool("Read.File"), tool("read_file"), tool("get_prompt"), tool("echo"), tool("écho"),
                tool(&"x".repeat(70)), { "name": "huge", "description": "x".repeat(40_000), "inputSchema": {} }] })
            }
            (_, None) => json!({ "tools": [tool("echo")], "nextCursor": "2" }),
            (_, Some(_)) => {
                let mut tools: Vec<Value> = [
                    "Env",
                    "fail",
                    "picture",
                    "hang",
                    "die",
                    "long_line",
                    "no_newline",
                    "twice",
                    "wrong_id",
                    "flood",
                    "change",
                    "pids",
                    "progress",
                    "meta",
                    "vanish",
                ]
                .map(tool)
                .into();
                tools.push(
                    json!({ "name": "look", "inputSchema": {}, "annotations": { "readOnlyHint": true } }),
                );
                if self.version > 1 {
                    tools.push(tool("fresh"));
                }
                json!({ "tools": tools })
            }
        };
        self.reply(id, result);
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
        match params["name"].as_str().unwrap() {
            "echo" => self.reply(id, text(params["arguments"]["text"].as_str().unwrap_or("nothing"))),
            "meta" => self.reply(id, text(&params["_meta"].to_string())),
            "Env" => {
                let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                self.reply(id, text(&names.join(" ")));
            }
            "fail" => self.reply(
                id,
                json!({ "content": [{ "type": "text", "text": "it is locked" }], "isError": true }),
            ),
            "picture" => self.reply(
                id,
                json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": "AAAA" }] }),
            ),
            "hang" => note(&format!("hang {}", std::process::id())),
            "die" => {
                note("died");
                std::io::stderr().write_all(b"out of cheese\n").unwrap();
                std::process::exit(3);
            }
            "vanish" => std::process::exit(5),
            "long_line" => {
                // It keeps writing even if the client no longer reads.
                let _ = self.out.write_all(&[b'x'; 10 << 20]);
                std::thread::sleep(Duration::from_secs(1000));
            }
            "no_newline" => loop {
                self.raw(&[b'x'; 1 << 16]);
            },
            "twice" => {
                self.reply(id, text("once"));
                self.reply(id, text("twice"));
            }
            "wrong_id" => self.reply(&json!(987_654), text("to nobody")),
            "flood" => loop {
                self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
            },
            "change" => {
                self.version += 1;
                match self.listener.take_if(|_| behaviour() == "modern, hangs up") {
                    Some(listener) => self.reply(&listener, json!({ "resultType": "complete" })),
                    None => self.tell_listener("notifications/tools/list_changed", json!({})),
                }
                self.reply(id, text("changed"));
            }
            "pids" => {
                let child = Command::new("sleep").arg("1000").spawn().unwrap();
                self.reply(id, text(&format!("{} {}", std::process::id(), child.id())));
            }
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                for step in 0..3 {
                    self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params":
                        { "progressToken": token, "progress": step, "total": 3, "message": "\u{1b}[2Jreading" } }));
                    std::thread::sleep(Duration::from_millis(
                        params["arguments"]["millis"].as_u64().unwrap_or_default(),
                    ));
                }
                self.reply(id, text("done"));
            }
            other => self.reply(id, json!({ "content": [], "structuredContent": { "tool": other } })),
        }
    }

    /// Sends a notification in the protocol version in use.
    fn tell_listener(&mut self, method: &str, mut params: Value) {
        if let Some(id) = &self.listener {
            params["_meta"] = json!({ "io.modelcontextprotocol/subscriptionId": id });
        }
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn reply(&mut self, id: &Value, result: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    fn send(&mut self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes());
    }

    /// The server exits if the client closes the connection.
    fn raw(&mut self, bytes: &[u8]) {
        if self.out.write_all(bytes).is_err() {
            std::process::exit(0);
        }
    }
}
