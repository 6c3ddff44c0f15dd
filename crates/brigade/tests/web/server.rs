//! Small test server, and helpers that call the tools.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brigade::tool::{Files, SearchEngine, ToolContext, Toolbox, WebSettings, Workspace};
use brigade_core::permission::{Permissions, Rule};
use brigade_core::{CallId, SessionId, ToolOutput};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Timeout of a call in these tests.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);
/// Time within which every call must end.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(10);

/// Server that passes each connection, with its request, to a function.
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
                    let request = request(&mut stream);
                    seen.lock().unwrap().push(request.clone());
                    answer(&request, &mut stream);
                });
            }
        });
        Server { port, requests }
    }

    /// Creates a server that always returns the same response.
    pub(super) fn page(content_type: &str, body: impl AsRef<[u8]>) -> Server {
        let whole = reply("200 OK", &format!("Content-Type: {content_type}\r\n"), body.as_ref());
        Server::start(move |_, stream| send(stream, &whole))
    }

    /// Creates a server that always redirects.
    pub(super) fn redirect(location: impl Into<String>) -> Server {
        let location = location.into();
        Server::start(move |_, stream| {
            send(stream, &reply("302 Found", &format!("Location: {location}\r\n"), b""));
        })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the requests that were received.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
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

/// Builds a complete response.
pub(super) fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Sends as much as the other side accepts.
pub(super) fn send(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    let _ = stream.flush();
}

/// Returns settings that permit access to the test servers.
pub(super) fn settings() -> WebSettings {
    WebSettings { allow_loopback: true, timeout: TIMEOUT, ..WebSettings::default() }
}

pub(super) fn searching(search: SearchEngine) -> WebSettings {
    WebSettings { search: Some(search), timeout: TIMEOUT, ..WebSettings::default() }
}

/// Calls a tool with these deny rules.
pub(super) fn call(settings: &WebSettings, deny: &[&str], tool: &str, arguments: Value) -> ToolOutput {
    run(settings, Permissions { deny: rules(deny), ..Permissions::default() }, tool, arguments)
}

/// Calls a tool with these ask rules.
pub(super) fn call_asking(settings: &WebSettings, ask: &[&str], tool: &str, arguments: Value) -> ToolOutput {
    run(settings, Permissions { ask: rules(ask), ..Permissions::default() }, tool, arguments)
}

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|rule| rule.parse().unwrap()).collect()
}

/// Calls a tool as the driver does once it is permitted. The call has to end soon in every case.
fn run(settings: &WebSettings, rules: Permissions, tool: &str, arguments: Value) -> ToolOutput {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let context = ToolContext {
        session: SessionId::root(7),
        call: CallId { turn: 1, index: 0 },
        files: Files::new(workspace, Arc::new(rules), BTreeSet::new()),
        shell: None,
        confinement: brigade_sandbox::Confinement::none(),
        stop: watch::channel(false).1,
        remote_context: brigade_core::RemoteContext::default(),
        loan: brigade::tool::RemoteLoan::default(),
        progress: brigade::tool::ProgressReporter::default(),
        seen: brigade::tool::SeenSlot::default(),
    };
    let toolbox = Toolbox::new().with_web(settings.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    let output = runtime.block_on(toolbox.get(tool).unwrap().run(arguments, &context));
    assert!(begun.elapsed() < MAX_WAIT, "it took {:?}: {}", begun.elapsed(), output.text);
    output
}

/// Fetches a page and expects success.
pub(super) fn fetch(url: &str) -> String {
    let output = call(&settings(), &[], "web_fetch", json!({ "url": url }));
    assert!(!output.is_error(), "{}", output.text);
    output.text.to_string()
}

/// Fetches a page and expects an error.
pub(super) fn fetch_error(settings: &WebSettings, url: &str) -> String {
    let output = call(settings, &[], "web_fetch", json!({ "url": url }));
    assert!(output.is_error(), "{}", output.text);
    output.text.to_string()
}
