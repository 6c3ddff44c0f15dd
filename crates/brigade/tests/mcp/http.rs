//! Servers that are reached over HTTP.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade::Secret;
use brigade::mcp::oauth::{LoginFlow, LoginSettings};
use brigade::mcp::{HttpEndpoint, ServerConfig, Servers, Transport};
use brigade::model::Proxies;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::support::{McpHarness, names, tool, until};

/// Placeholder for a response that is never sent: the connection is closed instead.
const CLOSE_CONNECTION: &str = "breaks";

/// A local server, and the headers of all requests that it received.
struct TestServer {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl TestServer {
    /// Starts a server. `answer` returns the status line with headers, and the body, for each message.
    #[expect(clippy::disallowed_methods, reason = "the server is a task beside the test")]
    async fn start(answer: impl Fn(&Value) -> (String, String) + Send + Sync + 'static) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/mcp", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let task = tokio::task::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = exchange(stream, &answer, &seen).await;
            }
        });
        TestServer { address, requests, task }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn exchange(
    stream: TcpStream,
    answer: &impl Fn(&Value) -> (String, String),
    requests: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    requests.lock().unwrap().push(head);
    let (head, body) = answer(&serde_json::from_slice(&body).unwrap_or_default());
    if head == CLOSE_CONNECTION {
        return stream.shutdown().await;
    }
    let length = body.len();
    let text = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

/// An older server, which requires the initialize handshake first.
fn legacy_server(message: &Value) -> (String, String) {
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
            "serverInfo": { "name": "old", "version": "1" },
        }),
        Some("tools/list") => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        Some("tools/call") if message["params"]["arguments"]["text"] == "hi" => {
            json!({ "content": [{ "type": "text", "text": "hi" }] })
        }
        Some("tools/call") => return ("500 Broken".to_owned(), "sorry".to_owned()),
        Some("server/discover") => return ("400 Bad Request".to_owned(), "greet me".to_owned()),
        Some(_) => return ("202 Accepted".to_owned(), String::new()),
        None => return ("405 Method Not Allowed".to_owned(), String::new()),
    };
    let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    ("200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: one".to_owned(), body)
}

fn definition(url: &str) -> ServerConfig {
    with_headers(url, vec![("Authorization".to_owned(), Secret::new("Bearer sesame-7"))])
}

fn with_headers(url: &str, headers: Vec<(String, Secret)>) -> ServerConfig {
    ServerConfig {
        name: "s".to_owned(),
        transport: Transport::Http(HttpEndpoint {
            url: Secret::new(url),
            headers,
            login: LoginSettings::default(),
            proxies: Proxies::default(),
        }),
        call_timeout: Duration::from_secs(5),
        start_timeout: Duration::from_secs(20),
    }
}

async fn problem(url: &str) -> String {
    problem_of(definition(url)).await
}

async fn problem_of(definition: ServerConfig) -> String {
    let servers = Servers::start(vec![definition]).await;
    assert!(servers.tools().is_empty());
    servers.problems()[0].message.clone()
}

#[tokio::test]
async fn legacy_server_is_initialized_with_the_headers() {
    let server = TestServer::start(legacy_server).await;
    let harness = McpHarness::new();
    let servers = Servers::start(vec![definition(&server.address)]).await;
    assert_eq!(servers.problems(), []);
    assert_eq!(names(&servers), ["mcp__s__echo"]);
    assert!(tool(&servers, "mcp__s__echo").network());
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
    let output = harness.call(&servers, "mcp__s__echo", json!({})).await;
    assert!(
        output.is_error() && output.text.as_str().contains("outcome unknown: it returned HTTP 500."),
        "{}",
        output.text
    );
    assert!(!output.text.as_str().contains(&server.address), "{}", output.text);
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
    let requests = server.requests();
    assert!(requests.iter().all(|head| head.contains("Bearer sesame-7")), "{requests:?}");
}

/// Returns the output of a call whose request gets this response.
async fn call_with_response(head: &'static str, body: &'static str) -> String {
    let server = TestServer::start(move |message| match message["method"] == "tools/call" {
        true => (head.to_owned(), body.to_owned()),
        false => legacy_server(message),
    })
    .await;
    let servers = Servers::start(vec![definition(&server.address)]).await;
    assert_eq!(servers.problems(), []);
    McpHarness::new().error(&servers, "mcp__s__echo").await
}

#[tokio::test]
async fn call_broken_after_sending_has_an_unknown_outcome() {
    let events = "200 OK\r\nContent-Type: text/event-stream\r\nMcp-Session-Id: one";
    for (head, body, why) in [
        (CLOSE_CONNECTION, "", "the connection was lost after the request was sent ("),
        (events, "", "the connection is closed"),
        ("200 OK\r\nContent-Type: application/json", "{\"jsonrpc\":", "its answer is not a valid message"),
        ("200 OK\r\nContent-Type: text/html", "<p>", "it answered with text/html"),
        ("502 Bad Gateway", "", "it returned HTTP 502"),
    ] {
        let text = call_with_response(head, body).await;
        assert!(text.contains(&format!("outcome unknown: {why}")), "{head}: {text}");
        assert!(text.ends_with("Check whether the call took effect before you repeat it."), "{head}: {text}");
        assert!(!text.contains("was not delivered") && !text.contains("try again"), "{head}: {text}");
    }
}

#[tokio::test]
async fn refused_call_had_no_effect() {
    for (head, why) in [
        ("429 Slow Down", "it returned HTTP 429. Try again later."),
        ("405 Method Not Allowed", "it returned HTTP 405. Check `url` in its configuration."),
    ] {
        let text = call_with_response(head, "").await;
        assert!(text.ends_with(&format!("the request was refused: {why}")), "{head}: {text}");
    }
}

#[tokio::test]
async fn server_that_needs_authorization_is_reported() {
    let challenge = "401 Unauthorized\r\nWWW-Authenticate: Bearer resource_metadata=\"https://x.example/\"";
    let server = TestServer::start(|_| (challenge.to_owned(), String::new())).await;
    let what = problem_of(with_headers(&server.address, Vec::new())).await;
    assert!(what.contains("it requires authorization (OAuth)") && what.contains("`headers`"), "{what}");
}

#[tokio::test]
async fn refused_token_is_not_a_missing_login() {
    let server = TestServer::start(|_| ("401 Unauthorized".to_owned(), String::new())).await;
    let header = vec![("authorization".to_owned(), Secret::new("Bearer sesame-7"))];
    let mut definition = with_headers(&server.address, header);
    let Transport::Http(address) = &mut definition.transport else { unreachable!() };
    let folder = McpHarness::new();
    address.login.hint = "type: login".to_owned();
    address.login.file = Some(folder.root().join("logins/s.json"));
    let begun = LoginFlow::begin(address).await.map(|_| ()).unwrap_err().to_string();
    let refused = "the server rejected the Authorization header in its configuration (401). ";
    assert!(begun.starts_with(refused), "{begun}");
    let what = problem_of(definition).await;
    assert!(what.starts_with(refused) && !what.contains("type: login"), "{what}");
}

#[tokio::test]
async fn token_with_insufficient_scope_is_reported() {
    let server = TestServer::start(|message| match message["method"] == "tools/call" {
        true => {
            let narrow =
                "403 Forbidden\r\nWWW-Authenticate: Bearer error=\"insufficient_scope\", scope=\"write\"";
            (narrow.to_owned(), String::new())
        }
        false => legacy_server(message),
    })
    .await;
    let harness = McpHarness::new();
    let mut definition = definition(&server.address);
    let Transport::Http(address) = &mut definition.transport else { unreachable!() };
    address.login.file = Some(harness.root().join("logins/s.json"));
    let address = address.clone();
    let servers = Servers::start(vec![definition]).await;
    let text = harness.error(&servers, "mcp__s__echo").await;
    assert!(
        text.contains("the Authorization header in its configuration lacks a required scope (write)"),
        "{text}"
    );
    let begun = LoginFlow::begin(&address).await.map(|_| ()).unwrap_err().to_string();
    assert!(begun.contains("already accepts the configured Authorization header"), "{begun}");
}

#[tokio::test]
async fn redirect_to_another_host_is_not_followed() {
    let other = TestServer::start(legacy_server).await;
    let location = format!("307 Temporary Redirect\r\nLocation: {}", other.address);
    let server = TestServer::start(move |_| (location.clone(), String::new())).await;
    let what = problem(&server.address).await;
    assert!(what.contains("cannot connect to "), "{what}");
    assert_eq!(other.requests(), Vec::<String>::new());
    assert!(!server.requests().is_empty());
}

#[tokio::test]
async fn oversized_response_is_not_read_to_its_end() {
    for (kind, before) in [("application/json", ""), ("text/event-stream", "data: ")] {
        let server =
            TestServer::start(move |message| match message["params"]["arguments"]["text"].as_str() {
                Some("hi") => {
                    let head = format!("200 OK\r\nContent-Type: {kind}\r\nMcp-Session-Id: one");
                    (head, format!("{before}{}", "x".repeat(10 << 20)))
                }
                _ => legacy_server(message),
            })
            .await;
        let harness = McpHarness::new();
        let servers = Servers::start(vec![definition(&server.address)]).await;
        assert_eq!(servers.problems(), []);
        let text = harness.error(&servers, "mcp__s__echo").await;
        assert!(text.contains("larger than 4 MiB"), "{kind}: {text}");
    }
}

#[tokio::test]
async fn event_flood_is_not_read_to_its_end() {
    let flood = || {
        let news = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
        let head = "200 OK\r\nContent-Type: text/event-stream\r\nMcp-Session-Id: one";
        (head.to_owned(), format!("data: {news}\n\n").repeat(20_000))
    };
    let server = TestServer::start(move |message| match message["params"]["arguments"]["text"].as_str() {
        Some("hi") => flood(),
        _ => legacy_server(message),
    })
    .await;
    let harness = McpHarness::new();
    let servers = Servers::start(vec![definition(&server.address)]).await;
    let text = harness.error(&servers, "mcp__s__echo").await;
    assert!(text.contains("it sent more than 2000 messages within a second"), "{text}");
    // Unsolicited messages count as well.
    let server = TestServer::start(move |message| match message.is_null() {
        true => flood(),
        false => legacy_server(message),
    })
    .await;
    let _servers = Servers::start(vec![definition(&server.address)]).await;
    let gets = || server.requests().iter().filter(|head| head.starts_with("GET")).count();
    until("it is listened to", || gets() > 0).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(gets(), 1, "nobody listens to it again");
}

#[tokio::test]
async fn url_with_a_secret_is_not_shown() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for written in [
        format!("http://{free}/mcp?key=sesame-7"),
        format!("HTTP://{free}?key=sesame-7"),
        format!("http://me:sesame-7@{free}/s/sesame-7/mcp#sesame-7"),
    ] {
        let what = problem(&written).await;
        let expected = format!(
            "cannot connect to http://{free}: connection refused. Check that it is running and that `url` in its \
             configuration is correct."
        );
        assert_eq!(what, expected);
    }
}

#[tokio::test]
async fn invalid_url_names_the_cause() {
    for (written, said) in [
        (
            "ftp://x/sesame-7",
            "the scheme `ftp:` is not supported. Use a `url` that starts with http:// or https://.",
        ),
        (
            "localhost:7/sesame-7",
            "the scheme `localhost:` is not supported. Use a `url` that starts with http:// or https://.",
        ),
        (
            "sesame-7/mcp",
            "`url` is not a valid URL (relative URL without a base). Use a URL such as https://host/path.",
        ),
    ] {
        assert_eq!(problem(written).await, format!("cannot connect: {said}"));
    }
}

#[tokio::test]
async fn non_mcp_response_is_described() {
    let said = async |head: &'static str, body: &'static str| {
        let server = TestServer::start(move |_| (head.to_owned(), body.to_owned())).await;
        let what = problem(&server.address.replace("/mcp", "/sesame-7")).await;
        what.split_once(": ").map(|(_, said)| said.to_owned()).unwrap_or(what)
    };
    let check = "Check `url` in its configuration.";
    let missing = said("404 Not Found", "Cannot POST /sesame-7\n").await;
    assert_eq!(missing, format!("it returned HTTP 404: Cannot POST /…. {check}"));
    let page = said("200 OK\r\nContent-Type: text/html", "<p>Hello").await;
    assert_eq!(page, format!("it answered with text/html, which is not an MCP response. {check}"));
    assert_eq!(said("503 Busy", "").await, "it returned HTTP 503. Try again later.");
}

#[tokio::test]
async fn url_with_a_secret_is_not_shown_in_call_errors() {
    let server = TestServer::start(legacy_server).await;
    let written = server.address.replace("/mcp", "?key=sesame-7");
    let harness = McpHarness::new();
    let servers = Servers::start(vec![definition(&written)]).await;
    assert_eq!(servers.problems(), []);
    drop(server);
    let text = harness.error(&servers, "mcp__s__echo").await;
    assert!(text.contains("was not delivered") && !text.contains("sesame"), "{text}");
}
