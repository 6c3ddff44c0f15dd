//! The server over real HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use brigade::core::Status;
use brigade_http::{Listener, Policy, Reach, Token};
use brigade_mcp::http;
use reqwest::StatusCode;
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientLifecycleMode, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientServiceExt, RoleClient, ServiceExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::support::{Client, TEST_TIMEOUT, TestServer, call, delegate, four, hangs, result_text};

const TOKEN: &str = "a-token-of-this-test";

struct HttpServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

async fn listen(test: &TestServer) -> HttpServer {
    let policy = Policy::with_token(Token::new(TOKEN).unwrap()).allow_origin("https://app.example");
    listen_with(test, policy).await
}

async fn listen_with(test: &TestServer, policy: Policy) -> HttpServer {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), Reach::Loopback).await.unwrap();
    let address = listener.address();
    let server = test.server.clone();
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        let _ = stopped.await;
    };
    let served = tokio::spawn(http::serve(listener, move || server.clone(), policy, stopped));
    HttpServer { address, stop, served }
}

fn http_client() -> reqwest::Client {
    // Clients of `reqwest` panic without a crypto provider. Another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(3 * TEST_TIMEOUT).build().unwrap()
}

impl HttpServer {
    fn url(&self) -> String {
        format!("http://{}{}", self.address, http::PATH)
    }

    fn transport(&self) -> StreamableHttpClientTransport<reqwest::Client> {
        let config = StreamableHttpClientTransportConfig::with_uri(self.url()).auth_header(TOKEN);
        StreamableHttpClientTransport::with_client(http_client(), config)
    }

    async fn client(&self) -> RunningService<RoleClient, Client> {
        Client::default().serve(self.transport()).await.unwrap()
    }

    /// Sends a request that opens a session, with these headers added or replaced.
    async fn post(&self, headers: &[(&'static str, &str)]) -> reqwest::Response {
        let mut request = http_client()
            .post(self.url())
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .body(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }
}

#[tokio::test]
async fn silent_connections_do_not_block_authenticated_clients() {
    let test = TestServer::new(four());
    let server_http = listen(&test).await;
    let client = server_http.client().await;
    let mut silent = Vec::new();
    for number in 0..300 {
        let mut connection = tokio::net::TcpStream::connect(server_http.address).await.unwrap();
        if number % 2 == 0 {
            connection.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
        }
        silent.push(connection);
    }
    let soon = std::time::Duration::from_secs(5);
    let new = tokio::time::timeout(soon, server_http.client()).await.expect("a new client is served");
    for client in [client, new] {
        let called = tokio::time::timeout(soon, client.call_tool(delegate())).await.expect("it is answered");
        assert_eq!(result_text(&called.unwrap()), "[Child]: Four.");
    }
}

#[tokio::test]
async fn clients_of_either_lifecycle_call_over_http() {
    let test = TestServer::new(four());
    let server_http = listen(&test).await;
    let client = server_http.client().await;
    assert_eq!(result_text(&client.call_tool(delegate()).await.unwrap()), "[Child]: Four.");
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let newest = Client::default().serve_with_lifecycle(server_http.transport(), lifecycle).await.unwrap();
    assert_eq!(result_text(&newest.call_tool(delegate()).await.unwrap()), "[Child]: Four.");
    server_http.stop.send(()).unwrap();
    tokio::time::timeout(TEST_TIMEOUT, server_http.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn requests_without_the_token_are_rejected() {
    let server_http = listen(&TestServer::new(four())).await;
    for headers in
        [&[][..], &[("authorization", "Bearer wrong-token-of-this")], &[("authorization", "Basic eDp5")]]
    {
        let refused = server_http.post(headers).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert!(refused.headers()["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
        assert!(!refused.text().await.unwrap().contains(TOKEN));
    }
    let right = format!("Bearer {TOKEN}");
    assert_eq!(server_http.post(&[("authorization", &right)]).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_rejected_even_with_the_token() {
    let server_http = listen(&TestServer::new(four())).await;
    let right = format!("Bearer {TOKEN}");
    for (name, value, expected) in [
        ("host", "evil.example", StatusCode::FORBIDDEN),
        ("host", "127.0.0.1.evil.example", StatusCode::FORBIDDEN),
        ("origin", "https://evil.example", StatusCode::FORBIDDEN),
        ("origin", "null", StatusCode::FORBIDDEN),
        ("origin", "http://localhost:9", StatusCode::OK),
        ("origin", "https://app.example", StatusCode::OK),
        ("host", "localhost:1", StatusCode::OK),
    ] {
        let answer = server_http.post(&[("authorization", &right), (name, value)]).await;
        assert_eq!(answer.status(), expected, "{name}: {value}");
        let readable = answer.headers().get("access-control-allow-origin").is_some();
        assert_eq!(readable, name == "origin" && expected == StatusCode::OK, "{name}: {value}");
    }
}

#[tokio::test]
async fn preflight_of_an_allowed_origin_succeeds() {
    let server_http = listen(&TestServer::new(four())).await;
    let ask = |origin: &'static str| {
        http_client().request(reqwest::Method::OPTIONS, server_http.url()).header("origin", origin).send()
    };
    let yes = ask("https://app.example").await.unwrap();
    assert_eq!(yes.status(), StatusCode::NO_CONTENT);
    assert!(yes.headers()["access-control-allow-headers"].to_str().unwrap().contains("authorization"));
    assert_eq!(ask("https://evil.example").await.unwrap().status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn oversized_and_malformed_bodies_are_rejected() {
    let server_http = listen(&TestServer::new(four())).await;
    let send = |body: String| {
        http_client()
            .post(server_http.url())
            .bearer_auth(TOKEN)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .body(body)
            .send()
    };
    // One byte over the limit. Of a longer body the server may read too little for its response to arrive.
    let body = |length: usize| {
        let frame = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":""}}"#;
        frame.replace(r#""""#, &format!(r#""{}""#, "x".repeat(length - frame.len())))
    };
    assert_eq!(send(body((4 << 20) + 1)).await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_ne!(send(body(4 << 20)).await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(send("{nonsense".to_owned()).await.unwrap().status(), StatusCode::BAD_REQUEST);
    let no_json =
        http_client().post(server_http.url()).bearer_auth(TOKEN).header("content-type", "text/plain");
    let no_json = no_json.header("accept", "application/json, text/event-stream").body("x").send();
    assert_eq!(no_json.await.unwrap().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(
        server_http.post(&[("authorization", &format!("Bearer {TOKEN}"))]).await.status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn deleted_session_stops_its_trees() {
    let test = TestServer::new(hangs());
    let server_http = listen(&test).await;
    let client = server_http.client().await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool_once(delegate()).await.is_ok() });
    let (root, child) = test.running_child().await;
    client.cancel().await.unwrap();
    assert!(matches!(test.status_of(&child).await, Status::Cancelled { .. }));
    assert!(matches!(test.status_of(&root).await, Status::Cancelled { .. }));
    assert!(!calling.await.unwrap());
}

#[tokio::test]
async fn idle_sessions_are_evicted_and_waiting_ones_kept() {
    let test = TestServer::new(hangs());
    let server_http = listen(&test).await;
    let waiting = server_http.client().await;
    let peer = waiting.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool_once(delegate()).await.is_ok() });
    let (root, _) = test.running_child().await;
    let http_client = http_client();
    let open = async |version: &'static str| {
        let answer = http_client
            .post(server_http.url())
            .bearer_auth(TOKEN)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", version)
            .body(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let session = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        // The whole response is read, so the request has ended.
        answer.text().await.unwrap();
        session
    };
    let notify = async |session: &str| {
        let request = http_client
            .post(server_http.url())
            .bearer_auth(TOKEN)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-session-id", session)
            .body(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        request.send().await.unwrap().status()
    };
    let (first, second) = (open("2025-06-18").await, open("2025-06-18").await);
    // The version without sessions is named, but a session is opened nevertheless.
    for version in ["2025-06-18", "2026-07-28"] {
        for _ in 0..126 {
            open(version).await;
        }
    }
    assert_eq!(notify(&first).await, StatusCode::ACCEPTED);
    // Two more than the limit, so the two that have been idle for the longest time are replaced.
    let last = [open("2026-07-28").await, open("2025-06-18").await, open("2025-06-18").await];
    assert_eq!(notify(&second).await, StatusCode::NOT_FOUND);
    assert_eq!(notify(&first).await, StatusCode::ACCEPTED);
    for session in &last {
        assert_eq!(notify(session).await, StatusCode::ACCEPTED);
    }
    assert!(!calling.is_finished());
    let stop = call("stop", serde_json::json!({ "session_id": root.as_str() }));
    assert_eq!(waiting.call_tool(stop).await.unwrap().is_error, Some(false));
    assert!(calling.await.unwrap());
}

#[tokio::test]
async fn silent_connections_are_closed_after_a_while() {
    let policy = Policy::with_token(Token::new(TOKEN).unwrap()).header_timeout(Duration::from_secs(2));
    let server_http = listen_with(&TestServer::new(four()), policy).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut stream = tokio::net::TcpStream::connect(server_http.address).await.unwrap();
        stream.write_all(b"POST /mcp HT").await.unwrap();
        silent.push(stream);
    }
    let right = format!("Bearer {TOKEN}");
    assert_eq!(server_http.post(&[("authorization", &right)]).await.status(), StatusCode::OK);
    // They are closed after a while.
    let mut received = Vec::new();
    let closed = tokio::time::timeout(TEST_TIMEOUT, silent[0].read_to_end(&mut received)).await;
    assert!(closed.is_ok(), "it is still open");
}
