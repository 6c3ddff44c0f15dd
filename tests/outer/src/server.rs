//! A server that keeps every byte it is sent, and answers by itself or hands the request on.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The request line and the headers.
    pub head: String,
    /// What follows.
    pub body: Vec<u8>,
}

/// What becomes of a request.
pub enum Answer {
    /// These bytes, and the end of the connection.
    Bytes(Vec<u8>),
    /// What the server at this address answers to this body.
    From(String, Vec<u8>),
}

/// A server on this machine, for as long as the test runs.
pub struct Server {
    /// Where it is, beginning with `http://`.
    pub address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Starts one that answers like this. A request is kept before it is answered.
    pub fn start(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (asked.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (kept.clone(), answer.clone());
                thread::spawn(move || serve(stream, &kept, answer.as_ref()));
            }
        });
        Server { address, asked }
    }

    /// Hands every request on to a server, as it is.
    pub fn before(address: &str) -> Server {
        let address = address.to_owned();
        Server::start(move |asked| Answer::From(address.clone(), asked.body.clone()))
    }

    /// Whatever was sent up to now.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Answer {
    /// A whole answer.
    pub fn new(status: &str, kind: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
        );
        Answer::Bytes(text.into_bytes())
    }

    /// The beginning of a stream of events that promises more than comes.
    pub fn cut(events: &str) -> Answer {
        let length = events.len();
        let text = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{events}\r\n"
        );
        Answer::Bytes(text.into_bytes())
    }
}

impl Asked {
    /// The body as JSON, or null.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The headers of this name.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }
}

fn serve(mut stream: TcpStream, kept: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked) -> Answer) {
    // Small pieces go on at once, as they came.
    let _ = stream.set_nodelay(true);
    let Some(asked) = read(&mut stream) else { return };
    kept.lock().unwrap().push(asked.clone());
    // Whoever asked may be gone already.
    let _ = match answer(&asked) {
        Answer::Bytes(bytes) => stream.write_all(&bytes),
        Answer::From(address, body) => hand_on(&asked, &address, &body, &mut stream),
    };
}

/// A request, or as much of it as came. Nothing where nothing came.
fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut piece = [0; 65536];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let asked = Asked { head, body: bytes[end + 4..].to_vec() };
            let length = asked.header("content-length").first().and_then(|length| length.parse().ok());
            if asked.body.len() >= length.unwrap_or(0) {
                return Some(asked);
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) if bytes.is_empty() => return None,
            Ok(0) | Err(_) => {
                return Some(Asked { head: String::from_utf8_lossy(&bytes).into_owned(), body: bytes });
            }
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
        }
    }
}

fn hand_on(asked: &Asked, address: &str, body: &[u8], back: &mut TcpStream) -> std::io::Result<()> {
    let mut there = TcpStream::connect(address.trim_start_matches("http://"))?;
    there.set_nodelay(true)?;
    let length = body.len();
    write!(there, "{}\r\nContent-Length: {length}\r\n\r\n", for_one_exchange(&asked.head))?;
    there.write_all(body)?;
    let (head, rest) = read_head(&mut there)?;
    write!(back, "{}\r\n\r\n", for_one_exchange(&head))?;
    back.write_all(&rest)?;
    std::io::copy(&mut there, back).map(drop)
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

/// The head, for a connection that is closed afterwards. aimock asks to keep it even where it was told not to.
fn for_one_exchange(head: &str) -> String {
    let request = !head.starts_with("HTTP/");
    let keeps = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        let replaced = ["connection", "keep-alive"].iter().any(|own| name.eq_ignore_ascii_case(own));
        !(replaced || request && name.eq_ignore_ascii_case("content-length"))
    };
    let lines: Vec<&str> = head.lines().filter(keeps).chain(["Connection: close"]).collect();
    lines.join("\r\n")
}
