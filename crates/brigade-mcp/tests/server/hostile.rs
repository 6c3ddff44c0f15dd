//! Invalid lines in any order. None of them ends the server.

use std::time::Duration;

use brigade_mcp::stdio;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::support::{TEST_TIMEOUT, TestServer, four};

fn lines() -> Vec<Vec<u8>> {
    let meta = |version: &str| {
        json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        })
    };
    let about = json!({ "name": "x", "version": "1" });
    let hello = |id: Value, version: Value| {
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": about });
        json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": params })
    };
    let request = |id: Value, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let note = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "method": method, "params": params });
    let messages = [
        hello(json!(1), json!("2025-06-18")),
        hello(json!(1), json!("1999-01-01")),
        hello(json!("1"), json!(7)),
        hello(Value::Null, json!("2025-06-18")),
        hello(json!(1e300), json!("2026-07-28")),
        request(json!(1), "initialize", json!({})),
        request(json!(1), "ping", json!({})),
        request(json!(1), "ping", json!({ "_meta": 7 })),
        request(json!(2), "tools/list", json!({})),
        request(json!(2), "tools/list", json!({ "_meta": meta("2026-07-28") })),
        request(json!(2), "tools/list", json!({ "_meta": meta("2030-01-01") })),
        request(json!(2), "tools/list", json!({ "_meta": meta("") })),
        request(json!(2), "tools/list", json!({ "cursor": "\u{202e}\u{0}" })),
        request(json!(3), "server/discover", json!({ "_meta": meta("2026-07-28") })),
        request(json!(3), "server/discover", json!({})),
        request(json!(u64::MAX), "ping", json!({})),
        request(json!(i64::MIN), "ping", json!({})),
        request(json!("x".repeat(10_000)), "ping", json!({})),
        request(json!(4), "tools/call", json!({ "name": "nothing", "arguments": {} })),
        request(json!(4), "tools/call", json!({ "name": "delegate", "arguments": { "task": 7 } })),
        request(json!(5), "completion/complete", json!({})),
        request(json!(5), "resources/subscribe", json!({ "uri": "x:y" })),
        request(json!(5), "logging/setLevel", json!({ "level": "loud" })),
        request(json!(5), "tasks/get", json!({ "taskId": "x" })),
        note("notifications/initialized", json!({})),
        note("notifications/cancelled", json!({ "requestId": 1 })),
        note("notifications/cancelled", json!({ "requestId": null })),
        note("notifications/progress", json!({ "progressToken": 1, "progress": 1e308 })),
        note("notifications/roots/list_changed", json!(null)),
        note("no/such/note", json!([])),
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 99, "result": { "roots": [] } }),
        json!({ "jsonrpc": "2.0", "id": 99, "error": { "code": -1, "message": "no" } }),
        json!({ "jsonrpc": "2.0", "id": null, "error": { "code": 1e9, "message": null } }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "result": {} }),
        json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }),
        json!([{ "jsonrpc": "2.0", "id": 1, "method": "ping" }]),
        json!([]),
        json!({}),
        json!(null),
        json!("initialize"),
    ];
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{}}}}}"#, nested(5_000));
    let mut lines: Vec<Vec<u8>> = messages.iter().map(|message| message.to_string().into_bytes()).collect();
    lines.extend([nested(100_000).into_bytes(), deep.into_bytes()]);
    lines.extend(
        [&b"\xff\xfe\x00{}"[..], b"{", b"\0", b"\xef\xbb\xbf{}", b"", b"NaN", b"{\"id\":1}{\"id\":1}"]
            .map(<[u8]>::to_vec),
    );
    lines.push(br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"initialize"}"#.to_vec());
    lines.push(br#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"ping"}"#.to_vec());
    lines
}

/// Writes lines, then sends a ping, and returns the result of the server after the client has disconnected.
async fn survive(lines: &[&[u8]]) -> std::io::Result<()> {
    let test = TestServer::new(four());
    let (here, there) = tokio::io::duplex(1 << 20);
    let (input, output) = tokio::io::split(there);
    let served = tokio::spawn(stdio::serve(test.server.clone(), input, output, std::future::pending()));
    let (input, mut output) = tokio::io::split(here);
    let mut input = BufReader::new(input);
    let write = async {
        for line in lines {
            output.write_all(line).await.unwrap();
            output.write_all(b"\n").await.unwrap();
        }
        output.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"ping\"}\n").await.unwrap();
        output.shutdown().await.unwrap();
    };
    let read = async {
        let mut answers = Vec::new();
        let mut line = String::new();
        while input.read_line(&mut line).await.unwrap() > 0 {
            answers.push(serde_json::from_str::<Value>(&line).unwrap());
            line.clear();
        }
        answers
    };
    let both = async { tokio::join!(write, read).1 };
    let answers = tokio::time::timeout(TEST_TIMEOUT, both).await.unwrap();
    let shown: Vec<_> =
        lines.iter().map(|line| String::from_utf8_lossy(&line[..line.len().min(120)])).collect();
    assert!(answers.iter().any(|answer| answer["id"] == "last"), "no response after {shown:#?}");
    tokio::time::timeout(TEST_TIMEOUT + Duration::from_secs(5), served).await.unwrap().unwrap()
}

#[tokio::test]
async fn no_hostile_line_ends_the_server() {
    for line in lines() {
        survive(&[&line]).await.unwrap();
    }
}

#[tokio::test]
async fn no_sequence_of_hostile_lines_ends_the_server() {
    let lines = lines();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..200 {
        let mut sequence: Vec<&[u8]> = Vec::new();
        for _ in 0..12 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            sequence.push(&lines[(random % lines.len() as u64) as usize]);
        }
        survive(&sequence).await.unwrap();
    }
}
