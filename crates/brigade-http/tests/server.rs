//! A tiny server behind the policy, over real loopback TCP.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests start tasks, and fail if something is not as expected"
)]

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderValue;
use axum::routing::{get, post};
use brigade_http::{Cors, ListenError, Listener, Policy, Reach, Token};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const TOKEN: &str = "a-token-of-this-test";
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Duration of a request to `/slow`.
const SLOW: Duration = Duration::from_millis(500);
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

struct HelloServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

fn policy() -> Policy {
    Policy::with_token(Token::new(TOKEN).unwrap()).allow_origin("https://app.example")
}

async fn hello(policy: Policy) -> HelloServer {
    let slow = async || {
        tokio::time::sleep(SLOW).await;
        "hello, late"
    };
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/slow", get(slow))
        .route("/length", post(async |body: Bytes| body.len().to_string()))
        .route("/careless", post(async |body: Result<Bytes, _>| body.map_or("no body", |_: Bytes| "a body")));
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), Reach::Loopback).await.unwrap();
    let address = listener.address();
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        let _ = stopped.await;
    };
    let served = tokio::spawn(listener.serve(router, policy, stopped));
    HelloServer { address, stop, served }
}

/// Client with connections of its own.
fn client() -> Client {
    // Clients of `reqwest` panic without a crypto provider. Another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().timeout(TEST_TIMEOUT).build().unwrap()
}

impl HelloServer {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        client().request(method, format!("http://{}{path}", self.address))
    }

    async fn get(&self, headers: &[(&'static str, &str)]) -> Response {
        let request = self.request(Method::GET, "/");
        headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value))
            .send()
            .await
            .unwrap()
    }

    async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Response {
        self.request(Method::POST, path).bearer_auth(TOKEN).body(body).send().await.unwrap()
    }

    async fn connect(&self) -> Connection {
        Connection(TcpStream::connect(self.address).await.unwrap())
    }
}

/// Connection that stays open between requests.
struct Connection(TcpStream);

impl Connection {
    /// Sends a request with the token, and returns the status line and the headers of the response.
    async fn get(&mut self) -> String {
        let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
        self.0.write_all(request.as_bytes()).await.unwrap();
        let mut received = vec![0; 4096];
        let length = timeout(TEST_TIMEOUT, self.0.read(&mut received)).await.unwrap().unwrap();
        String::from_utf8_lossy(&received[..length]).to_ascii_lowercase()
    }

    /// Whether the server closes the connection within this time.
    async fn is_closed_within(&mut self, time: Duration) -> bool {
        timeout(time, self.0.read_to_end(&mut Vec::new())).await.is_ok()
    }
}

#[tokio::test]
async fn request_without_the_token_gets_401() {
    let server = hello(policy()).await;
    for (headers, challenge) in [
        (&[][..], "Bearer realm=\"brigade\""),
        (&[("authorization", "Basic eDp5")], "Bearer realm=\"brigade\""),
        (
            &[("authorization", "Bearer another-token-than-it")],
            "Bearer realm=\"brigade\", error=\"invalid_token\"",
        ),
    ] {
        let rejected = server.get(headers).await;
        assert_eq!(rejected.status(), StatusCode::UNAUTHORIZED, "{headers:?}");
        assert_eq!(rejected.headers()["www-authenticate"], challenge);
        assert!(!rejected.text().await.unwrap().contains("hello"));
    }
    let accepted = server.get(&[("authorization", &format!("Bearer {TOKEN}"))]).await;
    assert_eq!((accepted.status(), accepted.text().await.unwrap().as_str()), (StatusCode::OK, "hello"));
}

#[tokio::test]
async fn policy_without_token_serves_every_local_client() {
    let server = hello(Policy::without_token()).await;
    assert_eq!(server.get(&[]).await.status(), StatusCode::OK);
    assert_eq!(server.get(&[("host", "evil.example")]).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn foreign_host_gets_403_even_with_the_token() {
    let server = hello(policy().allow_host("agents.example")).await;
    let token = format!("Bearer {TOKEN}");
    for (host, expected) in [
        ("evil.example", StatusCode::FORBIDDEN),
        ("127.0.0.1.evil.example", StatusCode::FORBIDDEN),
        ("agents.example:8443", StatusCode::OK),
        ("localhost:1", StatusCode::OK),
    ] {
        let response = server.get(&[("authorization", &token), ("host", host)]).await;
        assert_eq!(response.status(), expected, "{host}");
    }
}

#[tokio::test]
async fn foreign_origin_gets_403_even_with_the_token() {
    let server = hello(policy()).await;
    let token = format!("Bearer {TOKEN}");
    for (origin, expected) in [
        ("https://evil.example", StatusCode::FORBIDDEN),
        ("null", StatusCode::FORBIDDEN),
        ("https://app.example", StatusCode::OK),
        ("http://localhost:9", StatusCode::OK),
    ] {
        let response = server.get(&[("authorization", &token), ("origin", origin)]).await;
        assert_eq!(response.status(), expected, "{origin}");
        let readable_by = response.headers().get("access-control-allow-origin");
        let expected = (expected == StatusCode::OK).then(|| HeaderValue::from_str(origin).unwrap());
        assert_eq!(readable_by, expected.as_ref(), "{origin}");
    }
    // A page can read why it was rejected.
    let rejected = server.get(&[("origin", "https://app.example")]).await;
    assert_eq!(rejected.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(rejected.headers()["access-control-expose-headers"], "www-authenticate");
}

#[tokio::test]
async fn preflight_of_an_allowed_origin_names_the_methods_and_headers_of_the_policy() {
    let cors = Cors {
        methods: HeaderValue::from_static("PUT"),
        request_headers: HeaderValue::from_static("authorization, x-hello"),
        ..Cors::default()
    };
    let server = hello(policy().cors(cors)).await;
    let preflight = async |origin: &str| {
        server.request(Method::OPTIONS, "/").header("origin", origin).send().await.unwrap()
    };
    let accepted = preflight("https://app.example").await;
    assert_eq!(accepted.status(), StatusCode::NO_CONTENT);
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-methods", "PUT"),
        ("access-control-allow-headers", "authorization, x-hello"),
        ("access-control-max-age", "600"),
        ("vary", "origin"),
    ] {
        assert_eq!(accepted.headers()[name], value, "{name}");
    }
    let rejected = preflight("https://evil.example").await;
    assert_eq!(rejected.status(), StatusCode::FORBIDDEN);
    assert!(rejected.headers().get("access-control-allow-methods").is_none());
}

#[tokio::test]
async fn body_over_the_limit_gets_413() {
    // The limit is above the one that extractors have by default.
    let server = hello(policy().max_body_bytes(MAX_BODY_BYTES)).await;
    let whole = server.post("/length", vec![b'x'; MAX_BODY_BYTES]).await;
    assert_eq!(whole.text().await.unwrap(), MAX_BODY_BYTES.to_string());
    // One byte over the limit. Of a longer body the server may read too little for its response to arrive.
    for path in ["/length", "/careless"] {
        let rejected = server.post(path, vec![b'x'; MAX_BODY_BYTES + 1]).await;
        assert_eq!(rejected.status(), StatusCode::PAYLOAD_TOO_LARGE, "{path}");
        let expected = format!("Payload Too Large: request body exceeds {MAX_BODY_BYTES} bytes");
        assert_eq!(rejected.text().await.unwrap(), expected, "{path}");
    }
}

#[tokio::test]
async fn body_of_unknown_length_over_the_limit_gets_413() {
    let server = hello(policy().max_body_bytes(8)).await;
    for (chunk, status) in [("9 bytes..", "413"), ("8 bytes.", "200")] {
        let mut connection = server.connect().await;
        let request = format!(
            "POST /length HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n{:x}\r\n{chunk}\r\n0\r\n\r\n",
            chunk.len()
        );
        connection.0.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        timeout(TEST_TIMEOUT, connection.0.read_to_string(&mut response)).await.unwrap().unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    }
}

#[tokio::test]
async fn authenticated_connection_over_the_limit_gets_503_until_one_closes() {
    let server = hello(policy().max_connections(2)).await;
    let mut first = server.connect().await;
    assert!(first.get().await.starts_with("http/1.1 200 "));
    let mut second = server.connect().await;
    assert!(second.get().await.starts_with("http/1.1 200 "));
    let mut third = server.connect().await;
    let rejected = third.get().await;
    assert!(rejected.starts_with("http/1.1 503 ") && rejected.contains("retry-after: 60"), "{rejected}");
    assert!(second.get().await.starts_with("http/1.1 200 "));
    drop(first);
    let accepted = async {
        while !third.get().await.starts_with("http/1.1 200 ") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, accepted).await.unwrap();
}

#[tokio::test]
async fn silent_connections_over_the_limit_close_the_oldest_silent_one_only() {
    let server = hello(policy().max_connections(2)).await;
    let mut authenticated = server.connect().await;
    assert!(authenticated.get().await.starts_with("http/1.1 200 "));
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    assert!(!first.is_closed_within(Duration::from_millis(200)).await);
    let _third = server.connect().await;
    assert!(first.is_closed_within(Duration::from_secs(5)).await);
    assert!(!second.is_closed_within(Duration::from_millis(200)).await);
    assert!(authenticated.get().await.starts_with("http/1.1 200 "));
}

#[tokio::test]
async fn connection_with_slow_headers_is_closed_after_the_time_limit() {
    let server = hello(policy().header_timeout(Duration::from_millis(300))).await;
    let mut slow = server.connect().await;
    let writing = async {
        // One byte at a time does not extend the limit.
        for byte in "GET / HTTP/1.1\r\nX: ".bytes().chain(std::iter::repeat(b'x')) {
            if slow.0.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(5), writing).await.expect("the connection is closed");
    // A handler may take longer than the headers.
    let late = server.request(Method::GET, "/slow").bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(late.text().await.unwrap(), "hello, late");
}

#[tokio::test]
async fn stopped_server_completes_open_requests_and_accepts_no_others() {
    let server = hello(policy()).await;
    let request = server.request(Method::GET, "/slow").bearer_auth(TOKEN);
    let open = tokio::spawn(async { request.send().await.unwrap().text().await.unwrap() });
    tokio::time::sleep(SLOW / 2).await;
    server.stop.send(()).unwrap();
    timeout(TEST_TIMEOUT, server.served).await.unwrap().unwrap();
    assert_eq!(open.await.unwrap(), "hello, late");
    let refused = TcpStream::connect(server.address).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn address_that_other_machines_reach_needs_the_network_reach() {
    let address = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = Listener::bind(address, Reach::Loopback).await.unwrap_err();
    assert!(matches!(refused, ListenError::Remote(refused) if refused == address), "{refused}");
    let bound = Listener::bind(address, Reach::Network).await.unwrap();
    assert_ne!(bound.address().port(), 0);
    let taken = Listener::bind(bound.address(), Reach::Network).await.unwrap_err();
    assert!(taken.to_string().starts_with(&format!("cannot listen on {}: ", bound.address())), "{taken}");
}
