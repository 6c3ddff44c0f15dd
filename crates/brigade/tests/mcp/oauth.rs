//! Servers that require a login.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use brigade::Secret;
use brigade::mcp::oauth::{GrantType, LoginFlow, LoginSettings, OAuthClient, logout};
use brigade::mcp::{HttpEndpoint, ServerConfig, Servers, Transport};
use brigade::model::Proxies;

use super::authority::{Behaviour, OAuthServer, browse, parameter};
use super::support::McpHarness;

const LOGIN_HINT: &str = "type: login";

fn address(harness: &McpHarness, server: &OAuthServer) -> HttpEndpoint {
    let login = LoginSettings {
        file: Some(harness.root().join("logins/s.json")),
        hint: LOGIN_HINT.to_owned(),
        ..LoginSettings::default()
    };
    HttpEndpoint { url: Secret::new(server.url()), headers: Vec::new(), login, proxies: Proxies::default() }
}

async fn start(address: &HttpEndpoint) -> Servers {
    let transport = Transport::Http(address.clone());
    let time = Duration::from_secs(20);
    Servers::start(vec![ServerConfig {
        name: "s".to_owned(),
        transport,
        call_timeout: time,
        start_timeout: time,
    }])
    .await
}

/// Logs in with a browser that follows redirects.
async fn log_in(address: &HttpEndpoint) -> Result<String, String> {
    let attempt = LoginFlow::begin(address).await.map_err(|error| error.to_string())?;
    let url = attempt.url().to_owned();
    let browser = tokio::task::spawn_blocking(move || browse(&url));
    attempt.finish().await.map_err(|error| error.to_string())?;
    Ok(browser.await.unwrap())
}

async fn call_echo(harness: &McpHarness, address: &HttpEndpoint) -> String {
    let servers = start(address).await;
    assert_eq!(servers.problems(), []);
    harness.ok(&servers, "mcp__s__echo").await
}

#[tokio::test]
async fn user_logs_in_once_and_the_server_works() {
    let (harness, server) = (McpHarness::new(), OAuthServer::start(Behaviour::Good));
    let address = address(&harness, &server);
    let servers = start(&address).await;
    assert_eq!(servers.problems()[0].message, "it requires a login (OAuth); type: login");
    let page = log_in(&address).await.unwrap();
    assert!(page.contains("You are logged in"), "{page}");
    assert_eq!(call_echo(&harness, &address).await, "with read");
    assert_eq!(call_echo(&harness, &address).await, "with read");
    assert_eq!(server.grants(), ["authorization_code"]);
    let file = address.login.file.as_ref().unwrap();
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(logout(&address).await.unwrap());
    assert!(!logout(&address).await.unwrap());
    assert_eq!(start(&address).await.problems().len(), 1);
}

#[tokio::test]
async fn token_is_refreshed_or_a_new_login_requested() {
    let (harness, server) = (McpHarness::new(), OAuthServer::start(Behaviour::ShortLivedTokens));
    let address = address(&harness, &server);
    log_in(&address).await.unwrap();
    let servers = start(&address).await;
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "with read");
    assert!(server.grants().contains(&"refresh_token".to_owned()), "{:?}", server.grants());
    // The server revokes its tokens, and the next call refreshes them.
    server.revoke();
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "with read");
    server.auth_state.lock().unwrap().is_strict = true;
    server.revoke();
    let text = harness.error(&servers, "mcp__s__echo").await;
    assert!(text.contains("it requires a login (OAuth); type: login") && !text.contains("sesame"), "{text}");
}

#[tokio::test]
async fn insufficient_scope_is_requested_at_the_next_login() {
    let (harness, server) = (McpHarness::new(), OAuthServer::start(Behaviour::Good));
    let address = address(&harness, &server);
    log_in(&address).await.unwrap();
    let text = harness.error(&start(&address).await, "mcp__s__erase").await;
    assert!(text.contains("your login lacks a required scope (admin); type: login"), "{text}");
    log_in(&address).await.unwrap();
    assert_eq!(harness.ok(&start(&address).await, "mcp__s__erase").await, "with read admin");
}

#[tokio::test]
async fn refused_login_is_reported() {
    let (harness, server) = (McpHarness::new(), OAuthServer::start(Behaviour::Refuses));
    let address = address(&harness, &server);
    assert_eq!(log_in(&address).await.unwrap_err(), "the login was refused: not today");
    assert!(!address.login.file.as_ref().unwrap().exists());
}

#[tokio::test]
async fn callback_with_another_state_is_ignored() {
    let (harness, server) = (McpHarness::new(), OAuthServer::start(Behaviour::Good));
    let address = address(&harness, &server);
    let attempt = LoginFlow::begin(&address).await.unwrap();
    let (url, place) = (attempt.url().to_owned(), parameter(attempt.url(), "redirect_uri").unwrap());
    let browser = tokio::task::spawn_blocking(move || {
        let strange = browse(&format!("{place}?code=code-of-another&state=made-up"));
        (strange, browse(&url))
    });
    attempt.finish().await.unwrap();
    let (strange, own) = browser.await.unwrap();
    assert!(strange.contains("404") && strange.contains("does not match the login in progress"), "{strange}");
    assert!(own.contains("You are logged in"), "{own}");
    assert_eq!(server.grants(), ["authorization_code"]);
}

#[tokio::test]
async fn silent_connection_does_not_block_the_login() {
    let (harness, server) = (McpHarness::new(), OAuthServer::start(Behaviour::Good));
    let attempt = LoginFlow::begin(&address(&harness, &server)).await.unwrap();
    let (url, place) = (attempt.url().to_owned(), parameter(attempt.url(), "redirect_uri").unwrap());
    let host = place.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let silent = std::net::TcpStream::connect(host).unwrap();
    let browser = tokio::task::spawn_blocking(move || browse(&url));
    // The silent connection would be dropped only after ten seconds.
    tokio::time::timeout(Duration::from_secs(8), attempt.finish()).await.unwrap().unwrap();
    drop(silent);
    assert!(browser.await.unwrap().contains("You are logged in"));
}

#[tokio::test]
async fn missing_client_id_is_reported() {
    let (harness, server) = (McpHarness::new(), OAuthServer::start(Behaviour::NoRegistration));
    let mut address = address(&harness, &server);
    let why = log_in(&address).await.unwrap_err();
    assert!(why.contains("`clientId`"), "{why}");
    address.login.client = Some(OAuthClient { id: "ours".to_owned(), secret: None });
    log_in(&address).await.unwrap();
    assert_eq!(call_echo(&harness, &address).await, "with read");
}

#[tokio::test]
async fn client_credentials_log_in_again_after_expiry() {
    let (harness, server) = (McpHarness::new(), OAuthServer::start(Behaviour::Good));
    let mut address = address(&harness, &server);
    address.login.grant_type = GrantType::ClientCredentials;
    let problems = start(&address).await.problems().to_vec();
    assert!(problems[0].message.contains("`clientSecret`"), "{problems:?}");
    let client =
        |secret: &str| Some(OAuthClient { id: "robot".to_owned(), secret: Some(Secret::new(secret)) });
    address.login.client = client("wrong-secret-1");
    let problems = start(&address).await.problems().to_vec();
    assert!(problems[0].message.contains("cannot complete the login"), "{problems:?}");
    assert!(!problems[0].message.contains("wrong-secret-1"), "{problems:?}");
    address.login.client = client("robot-secret-1");
    let servers = start(&address).await;
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "with robot");
    server.revoke();
    harness.error(&servers, "mcp__s__echo").await;
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "with robot");
}
