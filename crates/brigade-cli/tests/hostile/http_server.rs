//! Requests to `brigade mcp --listen` from web pages and other programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::Duration;

use brigade_testing::{Script, reply};

use crate::cli::support::Home;

const TOKEN: &str = "a-token-that-is-long";

/// Head of a request, and the status of the response. `@HOST` is the address of the server.
const REQUESTS: [(u8, &str, &str); 40] = [
    // A request without the token, from a web page or a program.
    (28, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\n", "401"),
    (28, "GET /mcp HTTP/1.1\r\nHost: @HOST\r\n", "401"),
    (28, "DELETE /mcp HTTP/1.1\r\nHost: @HOST\r\n", "401"),
    (28, "GET / HTTP/1.1\r\nHost: @HOST\r\n", "4"),
    (28, "GET /mcp/../mcp HTTP/1.1\r\nHost: @HOST\r\n", "4"),
    (28, "GET /%6dcp HTTP/1.1\r\nHost: @HOST\r\n", "4"),
    (28, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nOrigin: https://evil.example\r\n", "4"),
    (28, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nOrigin: null\r\n@AUTH", "403"),
    (28, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nOrigin: https://evil.example\r\n@AUTH", "403"),
    (28, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nOrigin: http://@HOST.evil.example\r\n@AUTH", "403"),
    (28, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nOrigin: file://\r\n@AUTH", "403"),
    (
        28,
        "OPTIONS /mcp HTTP/1.1\r\nHost: @HOST\r\nOrigin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n",
        "4",
    ),
    (
        28,
        "GET /mcp HTTP/1.1\r\nHost: @HOST\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n",
        "401",
    ),
    // Names that lead to this machine.
    (29, "POST /mcp HTTP/1.1\r\nHost: evil.example\r\n@AUTH", "403"),
    (29, "POST /mcp HTTP/1.1\r\nHost: localhost.evil.example\r\n@AUTH", "403"),
    (29, "POST /mcp HTTP/1.1\r\nHost: @HOST.evil.example\r\n@AUTH", "4"),
    (29, "POST /mcp HTTP/1.1\r\nHost: evil.example@@HOST\r\n@AUTH", "4"),
    (29, "POST /mcp HTTP/1.1\r\n@AUTH", "4"),
    (29, "POST /mcp HTTP/1.1\r\nHost:\r\n@AUTH", "4"),
    (29, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nHost: evil.example\r\n@AUTH", "4"),
    (29, "POST http://evil.example/mcp HTTP/1.1\r\nHost: @HOST\r\n@AUTH", "4"),
    (29, "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: @HOST\r\n@AUTH", "403"),
    // Tokens that are not the token.
    (30, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nAuthorization: Bearer x\r\n", "401"),
    (30, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nAuthorization: Bearer\r\n", "401"),
    (30, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nAuthorization: Bearer a-token-that-is-lon\r\n", "401"),
    (30, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nAuthorization: Bearer a-token-that-is-longer\r\n", "401"),
    (30, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nAuthorization: Bearer A-TOKEN-THAT-IS-LONG\r\n", "401"),
    (30, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nAuthorization: Basic a-token-that-is-long\r\n", "401"),
    (30, "POST /mcp?token=a-token-that-is-long HTTP/1.1\r\nHost: @HOST\r\n", "401"),
    (30, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nCookie: token=a-token-that-is-long\r\n", "401"),
    (30, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nX-Scopes: admin\r\nX-User: root\r\n", "401"),
    (
        30,
        "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nAuthorization: Bearer x\r\nAuthorization: Bearer a-token-that-is-long\r\n",
        "4",
    ),
    // Simple requests, which a page may send without asking.
    (32, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nContent-Type: text/plain\r\n", "401"),
    (32, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nContent-Type: text/plain\r\n@AUTH", "4"),
    (
        32,
        "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nContent-Type: application/x-www-form-urlencoded\r\n@AUTH",
        "4",
    ),
    (32, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nContent-Type: multipart/form-data\r\n@AUTH", "4"),
    // Requests that take resources.
    (33, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nContent-Length: 99999999999\r\n@AUTH", "4"),
    (33, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nContent-Length: -1\r\n@AUTH", "4"),
    (
        33,
        "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n@AUTH",
        "4",
    ),
    (33, "POST /mcp HTTP/1.1\r\nHost: @HOST\r\nX: @LONG\r\n@AUTH", "4"),
];

pub(crate) fn inputs() -> Vec<u8> {
    REQUESTS.iter().map(|(family, _, _)| *family).collect()
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(home: &Home) -> Server {
        let model = home.script(Script::new().reply(reply("done")));
        let mut command =
            home.command(&["mcp", "--model", &model, "--listen", "127.0.0.1:0", "--token-env", "MY_TOKEN"]);
        let mut child = command.env("MY_TOKEN", TOKEN).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines
            .find_map(|line| line.unwrap().split_once("http://").map(|(_, rest)| rest.to_owned()))
            .unwrap();
        let address = line.split('/').next().unwrap().to_owned();
        Server { child, address }
    }

    fn send(&self, head: &str) -> String {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let mut head = head
            .replace("@HOST", &self.address)
            .replace("@AUTH", &format!("Authorization: Bearer {TOKEN}\r\n"))
            .replace("@LONG", &"x".repeat(1_000_000));
        for (name, line) in [
            ("content-length", format!("Content-Length: {}\r\n", body.len())),
            ("content-type", "Content-Type: application/json\r\n".to_owned()),
        ] {
            if !head.to_lowercase().contains(name) {
                head += &line;
            }
        }
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request =
            format!("{head}Accept: application/json, text/event-stream\r\nConnection: close\r\n\r\n{body}");
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn h28_to_h33_requests_of_strangers_are_refused() {
    let home = Home::new();
    let server = Server::start(&home);
    let own = "POST /mcp HTTP/1.1\r\nHost: @HOST\r\n@AUTH";
    assert!(server.send(own).starts_with("HTTP/1.1 200 "), "{}", server.send(own));
    let mut found = Vec::new();
    for (family, head, status) in REQUESTS {
        let answer = server.send(head);
        let line = answer.lines().next().unwrap_or("no answer").to_owned();
        let is_refused = line.strip_prefix("HTTP/1.1 ").is_some_and(|line| line.starts_with(status));
        let leaks =
            answer.to_lowercase().contains("access-control-allow-origin: *") || answer.contains(TOKEN);
        if !is_refused || leaks {
            found.push(format!("H{family}: {head:?}: {line}"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(server.send(own).starts_with("HTTP/1.1 200 "), "the server still serves its user");
}

/// Connections that send nothing do not keep others out.
#[test]
fn h33_idle_connections_do_not_block_others() {
    let home = Home::new();
    let server = Server::start(&home);
    let idle: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow: ").unwrap();
            stream
        })
        .collect();
    assert!(server.send("POST /mcp HTTP/1.1\r\nHost: @HOST\r\n@AUTH").starts_with("HTTP/1.1 200 "));
    drop(idle);
}
