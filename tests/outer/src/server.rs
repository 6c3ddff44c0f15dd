//! A server that records every request, and responds itself or forwards the request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// A recorded request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The request line and the headers.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Response to a request.
pub enum CannedResponse {
    /// Sends these bytes and closes the connection.
    Bytes(Vec<u8>),
    /// Sends this body to the server at this address and returns its response.
    Forward(String, Vec<u8>),
}

/// A local server that lives as long as the test.
pub struct RecordingServer {
    /// Its address, starting with `http://`.
    pub address: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl RecordingServer {
    /// Starts a server with this response function. Requests are recorded before the response.
    pub fn start(
        answer: impl Fn(&RecordedRequest) -> CannedResponse + Send + Sync + 'static,
    ) -> RecordingServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (recorded, answer) = (requests.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (recorded, answer) = (recorded.clone(), answer.clone());
                thread::spawn(move || serve(stream, &recorded, answer.as_ref()));
            }
        });
        RecordingServer { address, requests }
    }

    /// Starts a server that forwards every request unchanged.
    pub fn forwarding_to(address: &str) -> RecordingServer {
        let address = address.to_owned();
        RecordingServer::start(move |request| CannedResponse::Forward(address.clone(), request.body.clone()))
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl CannedResponse {
    /// A complete response.
    pub fn new(status: &str, kind: &str, headers: &str, body: &str) -> CannedResponse {
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
        );
        CannedResponse::Bytes(text.into_bytes())
    }

    /// The beginning of an event stream that ends too early.
    pub fn cut(events: &str) -> CannedResponse {
        let length = events.len();
        let text = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{events}\r\n"
        );
        CannedResponse::Bytes(text.into_bytes())
    }
}

impl RecordedRequest {
    /// The body as JSON, or null.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The headers with this name.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }
}

fn serve(
    mut stream: TcpStream,
    recorded: &Mutex<Vec<RecordedRequest>>,
    answer: &dyn Fn(&RecordedRequest) -> CannedResponse,
) {
    // Small chunks are forwarded at once.
    let _ = stream.set_nodelay(true);
    let Some(request) = read(&mut stream) else { return };
    recorded.lock().unwrap().push(request.clone());
    // The client may have disconnected.
    let _ = match answer(&request) {
        CannedResponse::Bytes(bytes) => stream.write_all(&bytes),
        CannedResponse::Forward(address, body) => forward(&request, &address, &body, &mut stream),
    };
}

/// Reads a request, or as much of it as was sent. `None` if nothing was sent.
fn read(stream: &mut TcpStream) -> Option<RecordedRequest> {
    let mut bytes = Vec::new();
    let mut piece = [0; 65536];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let request = RecordedRequest { head, body: bytes[end + 4..].to_vec() };
            let length = request.header("content-length").first().and_then(|length| length.parse().ok());
            if request.body.len() >= length.unwrap_or(0) {
                return Some(request);
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) if bytes.is_empty() => return None,
            Ok(0) | Err(_) => {
                return Some(RecordedRequest {
                    head: String::from_utf8_lossy(&bytes).into_owned(),
                    body: bytes,
                });
            }
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
        }
    }
}

fn forward(
    request: &RecordedRequest,
    address: &str,
    body: &[u8],
    client: &mut TcpStream,
) -> std::io::Result<()> {
    let mut upstream = TcpStream::connect(address.trim_start_matches("http://"))?;
    upstream.set_nodelay(true)?;
    let length = body.len();
    write!(upstream, "{}\r\nContent-Length: {length}\r\n\r\n", with_connection_close(&request.head))?;
    upstream.write_all(body)?;
    let (head, rest) = read_head(&mut upstream)?;
    write!(client, "{}\r\n\r\n", with_connection_close(&head))?;
    client.write_all(&rest)?;
    std::io::copy(&mut upstream, client).map(drop)
}

fn read_head(stream: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 65536];
    loop {
        let length = stream.read(&mut piece)?;
        bytes.extend_from_slice(&piece[..length]);
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end.or((length == 0).then_some(bytes.len())) {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            return Ok((head, bytes.get(end + 4..).unwrap_or_default().to_vec()));
        }
    }
}

/// Adds `Connection: close` to a head. aimock asks to keep the connection even if it was told not to.
fn with_connection_close(head: &str) -> String {
    let request = !head.starts_with("HTTP/");
    let keeps = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        let replaced = ["connection", "keep-alive"].iter().any(|own| name.eq_ignore_ascii_case(own));
        !(replaced || request && name.eq_ignore_ascii_case("content-length"))
    };
    let lines: Vec<&str> = head.lines().filter(keeps).chain(["Connection: close"]).collect();
    lines.join("\r\n")
}
