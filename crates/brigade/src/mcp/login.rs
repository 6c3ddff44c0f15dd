//! Logging in to servers that ask for it (OAuth).
//!
//! A person logs in once: [`Attempt::begin`] finds out whom the server trusts and gives an address for a browser;
//! [`Attempt::finish`] waits on this machine for the browser to come back. What is got goes into a file that nobody else
//! can read, and is renewed from there in silence.

mod callback;
mod keyring;

use std::path::PathBuf;

use reqwest::header::AUTHORIZATION;
use rmcp::transport::auth::{AuthError, AuthorizationManager, ClientCredentialsConfig, OAuthClientConfig};
use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError};
use tokio::net::TcpListener;

use super::connect::{self, short};
use super::{Address, unreachable};
use crate::secret::Secret;
use keyring::Keyring;

/// What we are called where people are asked for their consent.
const NAME: &str = "Brigade";
/// A scope that lets a login last.
const OFFLINE: &str = "offline_access";

/// How somebody is logged in to a server that asks for it.
#[derive(Debug, Clone, Default)]
pub struct Login {
    /// The file that a login is kept in. Without one nobody can log in.
    pub file: Option<PathBuf>,
    /// Who logs in.
    pub who: Who,
    /// The client that was registered with the server before, or the address of a document about it.
    pub client: Option<Client>,
    /// What is asked for; nothing leaves that to the server.
    pub scopes: Vec<String>,
    /// What a person can do to log in, as a sentence.
    pub how: String,
}

/// Who logs in to a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Who {
    /// A person, in a browser.
    #[default]
    Person,
    /// The client itself, with its secret.
    Client,
}

/// A client that a server knows.
#[derive(Debug, Clone)]
pub struct Client {
    /// Its name there.
    pub id: String,
    /// Its secret, where it has one.
    pub secret: Option<Secret>,
}

/// Why a login did not come about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(String);

impl From<String> for LoginError {
    fn from(why: String) -> LoginError {
        LoginError(why)
    }
}

impl LoginError {
    fn new(what: &str, error: &AuthError) -> LoginError {
        LoginError(format!("{what}: {}", short(&error.to_string())))
    }
}

/// A login that was begun: a person has to open an address now.
pub struct Attempt {
    url: String,
    state: String,
    listener: TcpListener,
    manager: AuthorizationManager,
    keyring: Keyring,
}

impl Attempt {
    /// Asks the server whom it trusts, and makes ourselves known there.
    pub async fn begin(address: &Address) -> Result<Attempt, LoginError> {
        let login = &address.login;
        let file =
            login.file.clone().ok_or_else(|| "there is no file that a login could be kept in".to_owned())?;
        let keyring = Keyring::at(file);
        let kept = keyring.read().await?;
        let challenge = connect::challenge(address).await?;
        if has_token(address) {
            return Err(LoginError(match challenge {
                Some(_) => token_refused(),
                None => "the server takes the Authorization header of its entry; take that away to log in"
                    .to_owned(),
            }));
        }
        if challenge.is_none() && kept.wanted.is_none() {
            return Err("the server does not ask for a login".to_owned().into());
        }
        let mut manager = discovered(address, challenge.as_deref()).await?;
        let scopes = match kept.wanted.is_some() || !login.scopes.is_empty() {
            true => widened(login, &kept, &manager.metadata_scopes),
            false => manager.inner.select_initial_scopes(&[]).await,
        };
        let no_port = |error: std::io::Error| format!("no port can be opened on this machine: {error}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(no_port)?;
        let port = listener.local_addr().map_err(no_port)?.port();
        let redirect = format!("http://127.0.0.1:{port}{}", callback::PATH);
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let config = known_client(login, manager.takes_documents, &redirect);
        let config = match config {
            Some(config) => config,
            None => manager.inner.register_client(NAME, &redirect, &scopes).await.map_err(|error| {
                LoginError::new(
                    "the server does not let us register; give `clientId` of a client that it knows",
                    &error,
                )
            })?,
        };
        let keyring = keyring.with_secret(config.client_secret.clone());
        let cannot = |error| LoginError::new("the login cannot begin", &error);
        manager.inner.configure_client(config).map_err(cannot)?;
        manager.inner.set_credential_store(keyring.clone());
        let url = manager.inner.get_authorization_url(&scopes).await.map_err(cannot)?;
        let state = callback::parameter(&url, "state").unwrap_or_default();
        Ok(Attempt { url, state, listener, manager: manager.inner, keyring })
    }

    /// What the person opens in a browser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the browser to come back, and keeps what is got. It waits as long as nobody comes.
    pub async fn finish(self) -> Result<(), LoginError> {
        let Attempt { state, listener, manager, keyring, .. } = &self;
        callback::take(listener, state, async |answer| {
            let code =
                answer.code.map_err(|why| LoginError(format!("the login was refused: {}", short(&why))))?;
            // Nobody renews the older login meanwhile and writes over this one.
            let lock = keyring.lock().await?;
            let exchanged =
                manager.exchange_code_for_token_with_issuer(&code, state, answer.issuer.as_deref()).await;
            exchanged.map_err(|error| LoginError::new("the login did not come about", &error))?;
            keyring.want_locked(None, &lock).await?;
            Ok(())
        })
        .await
    }
}

/// Forgets a login; whether there was one.
pub async fn logout(address: &Address) -> Result<bool, LoginError> {
    match &address.login.file {
        Some(file) => Ok(Keyring::at(file.clone()).forget().await?),
        None => Ok(false),
    }
}

/// A manager, and what of the server's description it does not tell.
struct Discovered {
    inner: AuthorizationManager,
    metadata_scopes: Vec<String>,
    takes_documents: bool,
}

async fn discovered(address: &Address, challenge: Option<&str>) -> Result<Discovered, LoginError> {
    let cannot = |error: AuthError| {
        let why = unreachable::hidden(address, &error.to_string());
        LoginError(format!("the server does not say who lets people in: {}", short(&why)))
    };
    let mut inner = AuthorizationManager::new(address.url.expose()).await.map_err(cannot)?;
    let challenge = challenge.filter(|challenge| !challenge.is_empty());
    let found = inner.resolve_metadata_from_challenge(challenge).await.map_err(cannot)?;
    let metadata_scopes = found.metadata.scopes_supported.clone().unwrap_or_default();
    let documents = found.metadata.additional_fields.get("client_id_metadata_document_supported");
    let takes_documents = documents.is_some_and(|value| value == true);
    inner.set_metadata(found.metadata);
    Ok(Discovered { inner, metadata_scopes, takes_documents })
}

/// What the person configured, had and was found to lack.
fn widened(login: &Login, kept: &keyring::Kept, supported: &[String]) -> Vec<String> {
    let had = kept.credentials.iter().flat_map(|credentials| credentials.granted_scopes.iter());
    let wanted = kept.wanted.iter().flat_map(|wanted| wanted.split_whitespace()).map(str::to_owned);
    let mut scopes: Vec<String> = Vec::new();
    for scope in login.scopes.iter().chain(had).cloned().chain(wanted) {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    if supported.iter().any(|scope| scope == OFFLINE) && !scopes.iter().any(|scope| scope == OFFLINE) {
        scopes.push(OFFLINE.to_owned());
    }
    scopes
}

/// The client that the person named, if the server can know it. A document is only read by servers that say so.
fn known_client(login: &Login, takes_documents: bool, redirect: &str) -> Option<OAuthClientConfig> {
    let client = login.client.as_ref()?;
    if client.id.starts_with("https://") && !takes_documents {
        return None;
    }
    let config = OAuthClientConfig::new(client.id.clone(), redirect);
    Some(match &client.secret {
        Some(secret) => config.with_client_secret(secret.expose()),
        None => config,
    })
}

/// What renews and shows a login, where there is one.
pub(super) async fn manager(address: &Address) -> Result<Option<AuthorizationManager>, String> {
    let login = &address.login;
    // What stands in its entry goes before any login.
    if has_token(address) {
        return Ok(None);
    }
    if login.who == Who::Client {
        return as_client(address).await.map(Some).map_err(|error| error.to_string());
    }
    let Some(file) = &login.file else { return Ok(None) };
    let keyring = Keyring::at(file.clone());
    let kept = keyring.read().await?;
    let Some(credentials) = kept.credentials else { return Ok(None) };
    let words = |error: AuthError| {
        format!("its login cannot be used: {}", short(&unreachable::hidden(address, &error.to_string())))
    };
    let mut manager = AuthorizationManager::new(address.url.expose()).await.map_err(words)?;
    manager.set_credential_store(keyring.with_secret(kept.client_secret.clone()));
    if !manager.initialize_from_store().await.map_err(words)? {
        return Ok(None);
    }
    if let Some(secret) = kept.client_secret {
        let config =
            OAuthClientConfig::new(credentials.client_id, address.url.expose()).with_client_secret(secret);
        manager.configure_client(config).map_err(words)?;
    }
    Ok(Some(manager))
}

/// Logs the client itself in. What it gets is kept nowhere.
async fn as_client(address: &Address) -> Result<AuthorizationManager, LoginError> {
    let login = &address.login;
    let secret = |client: &Client| client.secret.as_ref().map(|secret| secret.expose().to_owned());
    let client = login.client.as_ref().and_then(|client| Some((client.id.clone(), secret(client)?)));
    let (client_id, client_secret) = client
        .ok_or_else(|| "a client that logs in itself needs `clientId` and `clientSecret`".to_owned())?;
    let challenge = connect::challenge(address).await?;
    let Discovered { mut inner, .. } = discovered(address, challenge.as_deref()).await?;
    let scopes = match login.scopes.is_empty() {
        true => inner.select_initial_scopes(&[]).await,
        false => login.scopes.clone(),
    };
    let resource = Some(address.url.expose().to_owned());
    let config = ClientCredentialsConfig::ClientSecret { client_id, client_secret, scopes, resource };
    let cannot = |error| LoginError::new("the login did not come about", &error);
    inner.validate_client_credentials_metadata(&config).map_err(cannot)?;
    inner.configure_client_credentials(&config).map_err(cannot)?;
    inner.exchange_client_credentials(&config).await.map_err(cannot)?;
    Ok(inner)
}

/// Whether the entry of a server says itself who asks.
fn has_token(address: &Address) -> bool {
    address.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()))
}

fn token_refused() -> String {
    "the server refused the Authorization header of its entry (401); write a token there that it takes, or take the \
     header away where it wants a login (OAuth)"
        .to_owned()
}

/// What a person reads when a server wants to know who asks.
pub(super) fn required(address: &Address) -> String {
    if has_token(address) {
        return token_refused();
    }
    match address.login.how.as_str() {
        "" => "it asks for authorisation (OAuth); if it takes a token, give it in `headers`".to_owned(),
        how => format!("it asks you to log in (OAuth); {how}"),
    }
}

/// What a login lacks.
pub(super) enum Lack {
    /// There is none, or it does not hold any more.
    Login,
    /// It does not reach far enough; what would, where the server says so.
    Rights(Option<String>),
}

/// The challenge in an error.
pub(super) fn challenge(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(required) = error.downcast_ref::<AuthRequiredError>() {
            return Some(required.www_authenticate_header.clone());
        }
        cause = error.source();
    }
    None
}

/// What an error says about a login.
pub(super) fn lack(error: &(dyn std::error::Error + 'static)) -> Option<Lack> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(narrow) = error.downcast_ref::<InsufficientScopeError>() {
            let scope = narrow.required_scope.as_deref().map(short).filter(|scope| !scope.is_empty());
            return Some(Lack::Rights(scope));
        }
        if error.downcast_ref::<AuthRequiredError>().is_some()
            || matches!(error.downcast_ref::<AuthError>(), Some(AuthError::AuthorizationRequired))
        {
            return Some(Lack::Login);
        }
        cause = error.source();
    }
    None
}

/// What a person reads about it. What a login lacks is written down for the next one.
pub(super) async fn lacking(address: &Address, lack: Lack) -> String {
    match lack {
        Lack::Login => required(address),
        Lack::Rights(scope) if has_token(address) => format!(
            "the Authorization header of its entry does not reach this far{}; write a token there that does",
            named(scope.as_deref())
        ),
        Lack::Rights(scope) => {
            if let (Some(file), Some(scope)) = (&address.login.file, &scope) {
                let _ = Keyring::at(file.clone()).want(Some(scope)).await;
            }
            let rights = named(scope.as_deref());
            format!("your login does not reach this far{rights}; {}", again(address))
        }
    }
}

/// Rights that are lacking, where the server named them.
fn named(scope: Option<&str>) -> String {
    scope.map_or_else(String::new, |scope| format!(" ({scope})"))
}

fn again(address: &Address) -> &str {
    match address.login.how.as_str() {
        "" => "a token with more rights can be given in `headers`",
        how => how,
    }
}

/// The `scope` of a challenge.
pub(super) fn scope_of(challenge: &str) -> Option<String> {
    let start = challenge.to_ascii_lowercase().find("scope=")? + "scope=".len();
    let rest = challenge.get(start..)?;
    let scope = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split([',', ';', ' ']).next(),
    };
    scope.filter(|scope| !scope.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_a_challenge_is_read() {
        let scope = |challenge: &str| scope_of(challenge);
        assert_eq!(scope("Bearer error=\"x\", scope=\"a b\"").as_deref(), Some("a b"));
        assert_eq!(scope("Bearer Scope=a, error=x").as_deref(), Some("a"));
        assert_eq!(scope("Bearer"), None);
        assert_eq!(scope("Bearer scope="), None);
    }
}
