//! A small test server, and helpers for requests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade::Secret;
use brigade::core::message::Category;
use brigade::core::{Message, Purpose, Reply, SessionId, ToolSpec, Usage};
use brigade::model::anthropic::Anthropic;
use brigade::model::gemini::Gemini;
use brigade::model::openai::OpenAi;
use brigade::model::responses::Responses;
use brigade::model::{Endpoint, Ingest, Model, ModelError, Request};
use futures::StreamExt;
use serde_json::{Value, json};

/// The key in every test.
pub(super) const KEY: &str = "sk-planted-0123456789abcdef";
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A server that passes every connection, with the request received on it, to a function.
pub(super) struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(mut stream), seen, answer) = (stream, seen.clone(), answer.clone()) else { break };
                std::thread::spawn(move || {
                    let request = request_text(&mut stream);
                    seen.lock().unwrap().push(request.clone());
                    answer(&request, &mut stream);
                });
            }
        });
        Server { port, requests }
    }

    /// A server that answers every request with the same stream.
    pub(super) fn streaming(stream: &str) -> Server {
        let whole = events(stream);
        Server::start(move |_, connection| send(connection, &whole))
    }

    /// A server that always fails in the same way.
    pub(super) fn failing(status: &'static str, headers: &'static str, body: &'static str) -> Server {
        Server::start(move |_, connection| send(connection, &reply(status, headers, body.as_bytes())))
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the requests received.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the body of the only request.
    pub(super) fn body(&self) -> Value {
        let requests = self.requests();
        assert_eq!(requests.len(), 1);
        body(&requests[0])
    }

    pub(super) fn endpoint(&self, path: &str) -> Endpoint {
        Endpoint::new("mock", &self.url(path), Some(Secret::new(KEY))).unwrap()
    }

    pub(super) fn openai(&self) -> OpenAi {
        OpenAi::compatible(self.endpoint("/v1"))
    }

    pub(super) fn anthropic(&self) -> Anthropic {
        Anthropic::new(self.endpoint(""))
    }

    pub(super) fn responses(&self) -> Responses {
        Responses::compatible(self.endpoint("/v1"))
    }

    pub(super) fn gemini(&self) -> Gemini {
        Gemini::new(self.endpoint("/v1beta"))
    }
}

/// Parses the JSON body of a request.
pub(super) fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn request_text(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_lowercase()
                .split_once("content-length: ")
                .map_or(0, |(_, rest)| rest.lines().next().unwrap_or_default().trim().parse().unwrap_or(0));
            if body.len() >= length {
                return text;
            }
        }
        match stream.read(&mut piece) {
            Ok(length) if length > 0 => bytes.extend_from_slice(&piece[..length]),
            _ => return text,
        }
    }
}

/// A complete HTTP response.
pub(super) fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A complete event stream as an HTTP response.
pub(super) fn events(stream: &str) -> Vec<u8> {
    reply("200 OK", "Content-Type: text/event-stream\r\n", stream.as_bytes())
}

/// Sends as much as the peer accepts.
pub(super) fn send(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    let _ = stream.flush();
}

/// A request that uses every feature.
pub(super) fn request(messages: Vec<Message>) -> Request {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        schema: json!({ "type": "object", "properties": { "path": { "type": "string" } } }),
        category: Category::Read,
    };
    Request {
        session: SessionId::root(7),
        agent: "lead".to_owned(),
        role: None,
        turn: 1,
        attempt: 1,
        purpose: Purpose::Turn,
        model: "small".to_owned(),
        system: "You help.".into(),
        tools: [tool("read"), tool("write")].into(),
        messages,
        max_tokens: 321,
        temperature: Some(0.5),
        remote_context: None,
    }
}

pub(super) fn question() -> Request {
    request(vec![Message::User("What is in it?".into())])
}

/// Sends a request and assembles the reply as the driver does.
pub(super) async fn ask(model: &impl Model, request: Request) -> Result<(Reply, Usage), ModelError> {
    let mut stream = model.stream(request);
    let mut ingest = Ingest::default();
    let whole = async {
        while let Some(chunk) = stream.next().await {
            ingest.take(chunk?)?;
        }
        ingest.finish()
    };
    tokio::time::timeout(TEST_TIMEOUT, whole).await.expect("the stream hangs")
}

/// Sends a request to a server that answers with this stream.
pub(super) async fn reply_from(stream: &str) -> Result<(Reply, Usage), ModelError> {
    ask(&Server::streaming(stream).openai(), question()).await
}

/// Returns the calls of a reply: name, arguments and id.
pub(super) fn calls(reply: &Reply) -> Vec<(&str, &str, Option<&str>)> {
    let calls = reply.calls.iter();
    calls.map(|call| (call.name.as_str(), call.arguments.as_str(), call.provider_id.as_deref())).collect()
}
