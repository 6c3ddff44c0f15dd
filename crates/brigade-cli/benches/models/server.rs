//! A model that answers at once, or after a pause that the path names: `/200/v1/chat/completions`.
//!
//! `FANOUT n` is answered with n calls of `delegate`, results with a final reply, `STREAM n` with n tokens, and everything else with
//! `done`. The last bodies of a child, of a lead and of a client that wants a long reply can be fetched, so that a bare client can
//! send the same.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The last bodies: of a child, of a lead that has its results, and of a client that wants a long reply.
#[derive(Default)]
struct LastRequests {
    child: Vec<u8>,
    lead: Vec<u8>,
    stream: Vec<u8>,
}

pub(crate) fn serve() {
    crate::threads().block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // A thousand connections may be opened at once. Those that find no room here are tried again by the kernel after a
        // second, which says nothing about who opened them.
        let listener = socket.listen(4_096).unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        std::io::stdout().flush().unwrap();
        let last = Arc::new(Mutex::new(LastRequests::default()));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(connection(stream, last.clone()));
        }
    });
}

async fn connection(mut stream: TcpStream, last: Arc<Mutex<LastRequests>>) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let (path, body) = request(&mut stream, &mut bytes).await?;
        let mut parts = path.trim_start_matches('/').splitn(2, '/');
        let delay = parts.next().unwrap_or_default().parse().unwrap_or(0);
        let answer = match parts.next() {
            Some("child") => whole(&last.lock().unwrap().child),
            Some("lead") => whole(&last.lock().unwrap().lead),
            Some("stream") => whole(&last.lock().unwrap().stream),
            _ => reply(&body, &last),
        };
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        stream.write_all(&answer).await.ok()?;
    }
}

/// The path and body of the next request.
async fn request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head = loop {
        if let Some(end) = find(bytes, b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok()).unwrap_or(0);
    let path = text.split(' ').nth(1)?.to_owned();
    while bytes.len() < head + length {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = bytes[head..head + length].to_vec();
    bytes.drain(..head + length);
    Some((path, body))
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn number_after(body: &[u8], word: &[u8]) -> Option<usize> {
    let rest = &body[find(body, word)? + word.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

fn whole(body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn reply(body: &[u8], last: &Mutex<LastRequests>) -> Vec<u8> {
    let mut stream = Stream::new();
    let is_lead = find(body, b"FANOUT ").and_then(|_| number_after(body, b"FANOUT "));
    match is_lead {
        Some(_) if find(body, b"\"role\":\"tool\"").is_some() => {
            last.lock().unwrap().lead = body.to_vec();
            stream.text("all done");
            stream.end("stop");
        }
        Some(children) => {
            for number in 0..children {
                stream.delta(&format!(
                    r#"{{"tool_calls":[{{"index":{number},"id":"call_{number}","type":"function","function":{{"name":"delegate","arguments":""}}}}]}}"#
                ));
                stream.delta(&format!(
                    r#"{{"tool_calls":[{{"index":{number},"function":{{"arguments":"{{\"role\":\"Child\",\"task\":\"CHILD {number}\"}}"}}}}]}}"#
                ));
            }
            stream.end("tool_calls");
        }
        None => {
            let tokens = number_after(body, b"STREAM ");
            match tokens {
                None => last.lock().unwrap().child = body.to_vec(),
                Some(_) => last.lock().unwrap().stream = body.to_vec(),
            }
            for _ in 1..tokens.unwrap_or(1) {
                stream.text("token ");
            }
            stream.text("done");
            stream.end("stop");
        }
    }
    stream.0
}

/// A stream of events, each in a chunk of its own.
struct Stream(Vec<u8>);

impl Stream {
    fn new() -> Stream {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut stream = Stream(head.as_bytes().to_vec());
        stream.delta(r#"{"role":"assistant","content":""}"#);
        stream
    }

    fn event(&mut self, data: &str) {
        let event = format!("data: {data}\n\n");
        self.0.extend_from_slice(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
    }

    fn delta(&mut self, delta: &str) {
        self.event(&format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#
        ));
    }

    fn text(&mut self, text: &str) {
        self.delta(&format!(r#"{{"content":"{text}"}}"#));
    }

    fn end(&mut self, reason: &str) {
        self.event(&format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#
        ));
        self.event(
            r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":5,"total_tokens":105}}"#,
        );
        self.event("[DONE]");
        self.0.extend_from_slice(b"0\r\n\r\n");
    }
}
