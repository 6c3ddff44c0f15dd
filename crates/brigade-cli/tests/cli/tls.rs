//! Connections over TLS to a server on loopback.
//!
//! The certificate in `tls` is for `127.0.0.1`, `localhost` and `models.example`. `SSL_CERT_FILE` makes its authority
//! trusted.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use brigade_testing::{Script, call, reply};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use crate::cli::support::{CommandResult, Home};

const CERTIFICATE: &[u8] = include_bytes!("tls/server.der");
const KEY: &[u8] = include_bytes!("tls/server-key.der");
const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A server with TLS. It gives all requests the same answer.
pub(crate) struct TlsServer {
    pub(crate) address: String,
    /// First line of each request.
    requests: Receiver<String>,
}

impl TlsServer {
    /// Starts a server on a free port of this address.
    fn start(address: &str, status: &'static str, media_type: &'static str, body: &'static str) -> TlsServer {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let config = server_config();
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut tls = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
                let Some(request) = read_request(&mut tls) else { continue };
                let _ = sender.send(request.lines().next().unwrap_or_default().to_owned());
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\nConnection: close"
                );
                let _ = write!(tls, "{head}\r\n\r\n{body}").and_then(|()| tls.flush());
            }
        });
        TlsServer { address, requests }
    }

    /// Starts a model provider that says hello.
    pub(crate) fn provider() -> TlsServer {
        TlsServer::provider_at("127.0.0.1")
    }

    fn provider_at(address: &str) -> TlsServer {
        TlsServer::start(address, "200 OK", "text/event-stream", HELLO)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.try_iter().collect()
    }
}

fn server_config() -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivatePkcs8KeyDer::from(KEY).into();
    let config = config.with_no_client_auth().with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key);
    Arc::new(config.unwrap())
}

/// Reads a request with its body. Returns `None` if the client closes the connection first.
fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut request = Vec::new();
    let mut piece = [0; 65536];
    loop {
        match stream.read(&mut piece) {
            Ok(length) if length > 0 => request.extend_from_slice(&piece[..length]),
            _ => return None,
        }
        let request = String::from_utf8_lossy(&request);
        if is_whole(&request) {
            return Some(request.into_owned());
        }
    }
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let head = head.to_lowercase();
    let Some((_, length)) = head.split_once("content-length: ") else { return true };
    body.len() >= length.lines().next().unwrap().trim().parse().unwrap()
}

/// Certificate authority of the servers.
pub(crate) fn authority() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/tls/authority.pem")
}

/// Runs a command that trusts the authority.
fn trusting(home: &Home, arguments: &[&str]) -> CommandResult {
    CommandResult::run(home.command(arguments).env("SSL_CERT_FILE", authority()))
}

fn home_with_provider(address: &str) -> Home {
    let home = Home::new();
    home.write(
        "home/config.toml",
        &format!(
            "model = 'far/small'\n[providers.far]\nkind = 'openai'\nbase_url = 'https://{address}/v1'\n\
             [limits]\nretry_pause = '1ms'\n"
        ),
    );
    home
}

#[test]
fn model_provider_is_reached_over_tls() {
    let server = TlsServer::provider();
    let home = home_with_provider(&server.address);
    trusting(&home, &["run", "hi"]).exits_with(0).stdout_contains("hello");
    assert_eq!(server.requests(), ["POST /v1/chat/completions HTTP/1.1"]);
}

#[test]
fn model_provider_without_a_trusted_certificate_is_refused() {
    let server = TlsServer::provider();
    let home = home_with_provider(&server.address);
    home.brigade(&["run", "hi"]).exits_with(1).stderr_contains("certificate");
    let other_host = TlsServer::provider_at("127.0.0.2");
    let home = home_with_provider(&other_host.address);
    trusting(&home, &["run", "hi"]).exits_with(1).stderr_contains("certificate not valid for name");
    assert!(server.requests().is_empty() && other_host.requests().is_empty());
}

/// Runs a script that fetches this page, and returns the result of the call.
fn fetch(address: &str, trust: bool) -> String {
    let home = Home::new();
    let model =
        home.script(Script::new().turns([
            call("web_fetch", json!({ "url": format!("https://{address}/page") })),
            reply("{results}"),
        ]));
    let arguments = ["run", "x", "--mode", "plan", "--model", &model, "--set", "web.allow_loopback=true"];
    let done = match trust {
        true => trusting(&home, &arguments),
        false => home.brigade(&arguments),
    };
    done.exits_with(0).stdout.clone()
}

#[test]
fn page_is_fetched_over_tls() {
    let server = TlsServer::start("127.0.0.1", "200 OK", "text/html", "<h1>inside</h1>");
    let result = fetch(&server.address, true);
    assert!(result.contains("# inside"), "{result}");
    assert_eq!(server.requests(), ["GET /page HTTP/1.1"]);
    let result = fetch(&server.address, false);
    assert!(result.contains("certificate") && !result.contains("inside"), "{result}");
    assert!(server.requests().is_empty());
}

#[test]
fn mcp_server_and_its_login_are_reached_over_tls() {
    let server = TlsServer::start("127.0.0.1", "401 Unauthorized", "text/plain", "who are you?");
    let home = Home::new();
    home.write("home/config.toml", &format!("[mcpServers.far]\nurl = 'https://{}/mcp'\n", server.address));
    trusting(&home, &["tools", "list", "--servers"]).stderr_contains("requires a login (OAuth)");
    assert_eq!(server.requests(), ["POST /mcp HTTP/1.1"]);
    // The server refuses all requests of the login.
    trusting(&home, &["tools", "login", "far"])
        .exits_with(1)
        .stderr_contains("HTTP 401 Unauthorized: who are you?");
    let requests = server.requests();
    let metadata = "GET /.well-known/oauth-protected-resource";
    assert!(requests.iter().any(|request| request.starts_with(metadata)), "{requests:?}");
}
