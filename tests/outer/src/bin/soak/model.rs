//! The model of the soak test: a separate process that speaks Chat Completions, with a fault in one of a
//! hundred replies.
//!
//! The reply to `tree N` contains the calls of a lead: one child writes a file, one delegates, and the others
//! reply at once. Each reply depends on its request alone.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Number of children of a lead.
pub(crate) const CHILDREN: usize = 5;
/// One in this many replies is a fault.
const FAULT_EVERY: u64 = 100;
/// Duration of a slow reply.
const SLOW: Duration = Duration::from_millis(1_500);

/// The faults, used in turn.
pub(crate) const FAULTS: [&str; 6] = ["429", "500", "disconnect", "cut", "malformed", "slow"];

/// Number of requests, and of faults by kind.
#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    faults: [AtomicU64; FAULTS.len()],
}

/// Serves until the process is killed. The first line of standard output is the port.
pub(crate) async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut output = std::io::stdout();
    writeln!(output, "{port}").unwrap();
    output.flush().unwrap();
    let counts = Arc::new(Counts::default());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(connection(stream, counts.clone()));
    }
}

async fn connection(mut stream: TcpStream, counts: Arc<Counts>) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let (head, body) = request(&mut stream, &mut bytes).await?;
        if head.starts_with("GET /figures") {
            stream.write_all(&http_response("200 OK", "application/json", &figures(&counts))).await.ok()?;
            continue;
        }
        let number = counts.requests.fetch_add(1, Ordering::Relaxed);
        let body: Value = serde_json::from_slice(&body).ok()?;
        let reply = http_response("200 OK", "text/event-stream", &reply(&body));
        let fault = usize::try_from(number / FAULT_EVERY).unwrap_or_default() % FAULTS.len();
        if number % FAULT_EVERY != FAULT_EVERY / 2 {
            stream.write_all(&reply).await.ok()?;
            continue;
        }
        counts.faults[fault].fetch_add(1, Ordering::Relaxed);
        match FAULTS[fault] {
            "429" => {
                let body = r#"{"error":{"message":"slow down"}}"#;
                let answer =
                    http_response("429 Too Many Requests\r\nretry-after-ms: 20", "application/json", body);
                stream.write_all(&answer).await.ok()?;
            }
            "500" => {
                let body = r#"{"error":{"message":"it broke"}}"#;
                stream
                    .write_all(&http_response("500 Internal Server Error", "application/json", body))
                    .await
                    .ok()?;
            }
            "disconnect" => return None,
            "cut" => {
                stream.write_all(&reply[..reply.len() - 30]).await.ok()?;
                return None;
            }
            "malformed" => {
                let answer =
                    http_response("200 OK", "text/event-stream", "data: {\"choices\":[{\"delta\":{oops\n\n");
                stream.write_all(&answer).await.ok()?;
            }
            _ => {
                tokio::time::sleep(SLOW).await;
                stream.write_all(&reply).await.ok()?;
            }
        }
    }
}

fn figures(counts: &Counts) -> String {
    let faults = counts.faults.each_ref().map(|count| count.load(Ordering::Relaxed));
    json!({ "requests": counts.requests.load(Ordering::Relaxed), "faults": faults }).to_string()
}

fn http_response(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Reads the head and body of the next request.
async fn request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let length = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let end = head + length.unwrap_or(0);
    while bytes.len() < end {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = bytes[head..end].to_vec();
    bytes.drain(..end);
    Some((text, body))
}

/// The events of a reply.
fn reply(body: &Value) -> String {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let results: Vec<&str> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| message["content"].as_str())
        .collect();
    let task = messages.iter().find(|message| message["role"] == "user");
    let task = task.and_then(|message| message["content"].as_str()).unwrap_or_default();
    let (kind, rest) = task.split_once(' ').unwrap_or((task, ""));
    match kind {
        "tree" if results.is_empty() => {
            let delegate = |n| call(n, "delegate", &json!({ "role": "Cook", "task": child_task(n, rest) }));
            call_reply(&(0..CHILDREN).map(delegate).collect::<Vec<_>>())
        }
        "tree" => {
            let done = results.iter().filter(|result| result.contains("did the part")).count();
            text_reply(&format!("{done} parts of {rest}"))
        }
        "write" if results.is_empty() => {
            call_reply(&[call(0, "write_file", &json!({ "path": format!("{rest}.txt"), "content": rest }))])
        }
        "nest" if results.is_empty() => {
            call_reply(&[call(0, "delegate", &json!({ "role": "Helper", "task": format!("answer {rest}") }))])
        }
        _ => text_reply(&format!("did the part of {rest}")),
    }
}

fn child_task(child: usize, tree: &str) -> String {
    let kind = ["write", "nest"].get(child).copied().unwrap_or("answer");
    format!("{kind} {tree}")
}

fn call(index: usize, tool: &str, arguments: &Value) -> Value {
    let function = json!({ "name": tool, "arguments": arguments.to_string() });
    json!({ "index": index, "id": format!("call_{index}"), "type": "function", "function": function })
}

fn text_reply(text: &str) -> String {
    stream(&json!({ "content": text }), "stop")
}

fn call_reply(calls: &[Value]) -> String {
    stream(&json!({ "tool_calls": calls }), "tool_calls")
}

fn stream(delta: &Value, finish: &str) -> String {
    let choice = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 2_000, "completion_tokens": 60 } });
    format!("data: {choice}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
}
