//! A tool server that requires login, combined with its authorization server. It is hand-written, so that it
//! can misbehave in ways that no library would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// Behaviour of the server.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Behaviour {
    #[default]
    Good,
    /// It denies every login.
    Refuses,
    /// Its tokens expire after a moment.
    ShortLivedTokens,
    /// It does not allow client registration.
    NoRegistration,
}

/// Issued codes and tokens, and received requests.
#[derive(Default)]
pub(crate) struct AuthState {
    /// Valid tokens with their scopes.
    pub(crate) tokens: Vec<(String, String)>,
    pub(crate) refresh: Option<String>,
    pub(crate) codes: Vec<(String, String, String)>,
    pub(crate) count: usize,
    pub(crate) grants: Vec<String>,
    /// Whether it rejects refresh tokens.
    pub(crate) is_strict: bool,
}

/// The server.
pub(crate) struct OAuthServer {
    pub(crate) base: String,
    pub(crate) auth_state: Arc<Mutex<AuthState>>,
    is_over: Arc<AtomicBool>,
}

impl OAuthServer {
    pub(crate) fn start(behaviour: Behaviour) -> OAuthServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (auth_state, is_over): (Arc<Mutex<AuthState>>, Arc<AtomicBool>) = Default::default();
        let (own_base, seen, over) = (base.clone(), auth_state.clone(), is_over.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let _ = exchange(stream.unwrap(), &own_base, behaviour, &seen);
            }
        });
        OAuthServer { base, auth_state, is_over }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.base)
    }

    /// Revokes all tokens issued so far.
    pub(crate) fn revoke(&self) {
        self.auth_state.lock().unwrap().tokens.clear();
    }

    /// Returns the grant types that were used.
    pub(crate) fn grants(&self) -> Vec<String> {
        self.auth_state.lock().unwrap().grants.clone()
    }
}

impl Drop for OAuthServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.base.trim_start_matches("http://"));
    }
}

struct Request {
    line: String,
    token: Option<String>,
    body: String,
}

fn read(stream: &TcpStream) -> std::io::Result<Request> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length, mut token) = (String::new(), 0, None);
    reader.read_line(&mut line)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "authorization" => token = value.trim().strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Request { line, token, body: String::from_utf8(body).unwrap() })
}

/// Returns a parameter of a URL or a form.
pub(crate) fn parameter(text: &str, name: &str) -> Option<String> {
    let query = text.split(['?', ' ']).find(|part| part.contains('='))?;
    let (_, value) =
        query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?;
    Some(value.replace("%3A", ":").replace("%2F", "/").replace("%20", " ").replace('+', " "))
}

fn exchange(
    mut stream: TcpStream,
    base: &str,
    behaviour: Behaviour,
    auth_state: &Mutex<AuthState>,
) -> std::io::Result<()> {
    let request = read(&stream)?;
    let mut parts = request.line.split(' ');
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let mut auth_state = auth_state.lock().unwrap();
    let (head, body) = match (method, path) {
        ("POST", "/mcp") => tools(&request, base, &auth_state),
        ("GET", "/.well-known/oauth-protected-resource/mcp") => ok(json!({
            "resource": format!("{base}/mcp"), "authorization_servers": [base], "scopes_supported": ["read"],
        })),
        ("GET", "/.well-known/oauth-authorization-server") => ok(json!({
            "issuer": base, "authorization_endpoint": format!("{base}/authorize"),
            "token_endpoint": format!("{base}/token"), "registration_endpoint": format!("{base}/register"),
            "code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
        })),
        ("POST", "/register") if behaviour == Behaviour::NoRegistration => {
            ("403 Forbidden".to_owned(), "{}".to_owned())
        }
        ("POST", "/register") => {
            let asked: Value = serde_json::from_str(&request.body).unwrap();
            ok(json!({ "client_id": "client-1", "redirect_uris": asked["redirect_uris"] }))
        }
        ("GET", "/authorize") => authorize(target, behaviour, &mut auth_state),
        ("POST", "/token") => issue_token(&request.body, behaviour, &mut auth_state),
        _ => ("404 Not Found".to_owned(), String::new()),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

fn ok(body: Value) -> (String, String) {
    ("200 OK\r\nContent-Type: application/json".to_owned(), body.to_string())
}

/// The tool server's answers: one tool for any login, and another for a wider scope.
fn tools(request: &Request, base: &str, auth_state: &AuthState) -> (String, String) {
    let known = auth_state.tokens.iter().find(|(token, _)| Some(token) == request.token.as_ref());
    let Some((_, scope)) = known else {
        let place = format!("{base}/.well-known/oauth-protected-resource/mcp");
        let head = format!(
            "401 Unauthorized\r\nWWW-Authenticate: Bearer resource_metadata=\"{place}\", scope=\"read\""
        );
        return (head, String::new());
    };
    let message: Value = serde_json::from_str(&request.body).unwrap();
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
            "serverInfo": { "name": "guarded", "version": "1" },
        }),
        Some("tools/list") => json!({ "tools": [tool("echo"), tool("erase")] }),
        Some("tools/call") if message["params"]["name"] == "erase" && !scope.contains("admin") => {
            let head =
                "403 Forbidden\r\nWWW-Authenticate: Bearer error=\"insufficient_scope\", scope=\"admin\"";
            return (head.to_owned(), String::new());
        }
        Some("tools/call") => json!({ "content": [{ "type": "text", "text": format!("with {scope}") }] }),
        Some("server/discover") => return ("400 Bad Request".to_owned(), "greet me".to_owned()),
        _ => return ("202 Accepted".to_owned(), String::new()),
    };
    ok(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

fn authorize(target: &str, behaviour: Behaviour, auth_state: &mut AuthState) -> (String, String) {
    let value = |name: &str| parameter(target, name).unwrap_or_default();
    assert_eq!(value("code_challenge_method"), "S256");
    let (place, state) = (value("redirect_uri"), value("state"));
    let answer = match behaviour {
        Behaviour::Refuses => "error=access_denied&error_description=not%20today".to_owned(),
        _ => {
            let code = format!("code-{}", auth_state.codes.len());
            auth_state.codes.push((code.clone(), value("scope"), value("code_challenge")));
            format!("code={code}")
        }
    };
    (format!("302 Found\r\nLocation: {place}?{answer}&state={state}"), String::new())
}

fn issue_token(form: &str, behaviour: Behaviour, auth_state: &mut AuthState) -> (String, String) {
    let value = |name: &str| parameter(form, name).unwrap_or_default();
    let wrong = (
        "400 Bad Request\r\nContent-Type: application/json".to_owned(),
        r#"{"error":"invalid_grant"}"#.to_owned(),
    );
    let grant = value("grant_type");
    auth_state.grants.push(grant.clone());
    let scope = match grant.as_str() {
        "authorization_code" => {
            let found = auth_state
                .codes
                .iter()
                .position(|(code, _, challenge)| *code == value("code") && !challenge.is_empty());
            // The conformance suite checks that the verifier matches the challenge.
            let Some(found) = found.filter(|_| value("code_verifier").len() >= 43) else { return wrong };
            auth_state.codes.remove(found).1
        }
        "refresh_token" if !auth_state.is_strict && Some(value("refresh_token")) == auth_state.refresh => {
            "read".to_owned()
        }
        "client_credentials" if value("client_secret") == "robot-secret-1" => "robot".to_owned(),
        _ => return wrong,
    };
    auth_state.count += 1;
    let (token, refresh) =
        (format!("token-{}-sesame", auth_state.count), format!("refresh-{}-sesame", auth_state.count));
    auth_state.tokens.push((token.clone(), scope.clone()));
    let mut answer = json!({ "access_token": token, "token_type": "Bearer", "scope": scope,
        "expires_in": if behaviour == Behaviour::ShortLivedTokens { 1 } else { 3600 } });
    if grant != "client_credentials" {
        answer["refresh_token"] = json!(refresh);
        auth_state.refresh = Some(refresh);
    }
    ok(answer)
}

/// Opens a URL like a browser and follows redirects. Returns the last page.
pub(crate) fn browse(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    match answer.lines().find_map(|line| line.strip_prefix("Location: ")) {
        Some(next) => browse(next),
        None => answer,
    }
}
