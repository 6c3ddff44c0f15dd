//! Logging in to servers that ask for it (OAuth).
//!
//! A person logs in once: [`LoginFlow::begin`] finds out whom the server trusts and gives an address for a browser;
//! [`LoginFlow::finish`] waits on this machine for the browser to come back. What is got goes into a file that nobody else
//! can read, and is renewed from there in silence.

mod callback;
mod token_file;

use std::path::PathBuf;

use reqwest::header::AUTHORIZATION;
use rmcp::transport::auth::{AuthError, AuthorizationManager, ClientCredentialsConfig, OAuthClientConfig};
use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError};
use tokio::net::TcpListener;

use super::connect::{self, sanitize};
use super::{HttpEndpoint, http_errors};
use crate::secret::Secret;
use token_file::TokenFile;

/// What we are called where people are asked for their consent.
const CLIENT_NAME: &str = "Brigade";
/// A scope that lets a login last.
const OFFLINE_SCOPE: &str = "offline_access";

/// How somebody is logged in to a server that asks for it.
#[derive(Debug, Clone, Default)]
pub struct LoginSettings {
    /// The file that a login is kept in. Without one nobody can log in.
    pub file: Option<PathBuf>,
    /// Who logs in.
    pub grant_type: GrantType,
    /// The client that was registered with the server before, or the address of a document about it.
    pub client: Option<OAuthClient>,
    /// What is asked for; nothing leaves that to the server.
    pub scopes: Vec<String>,
    /// What a person can do to log in, as a sentence.
    pub hint: String,
}

/// Who logs in to a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GrantType {
    /// A person, in a browser.
    #[default]
    AuthorizationCode,
    /// The client itself, with its secret.
    ClientCredentials,
}

/// A client that a server knows.
#[derive(Debug, Clone)]
pub struct OAuthClient {
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
        LoginError(format!("{what}: {}", sanitize(&error.to_string())))
    }
}

/// A login that was begun: a person has to open an address now.
pub struct LoginFlow {
    url: String,
    state: String,
    listener: TcpListener,
    manager: AuthorizationManager,
    token_file: TokenFile,
}

impl LoginFlow {
    /// Asks the server whom it trusts, and makes ourselves known there.
    pub async fn begin(endpoint: &HttpEndpoint) -> Result<LoginFlow, LoginError> {
        let login = &endpoint.login;
        let file =
            login.file.clone().ok_or_else(|| "there is no file that a login could be kept in".to_owned())?;
        let token_file = TokenFile::new(file);
        let stored = token_file.read().await?;
        let challenge = connect::challenge(endpoint).await?;
        if has_token(endpoint) {
            return Err(LoginError(match challenge {
                Some(_) => token_refused(),
                None => "the server takes the Authorization header of its entry; take that away to log in"
                    .to_owned(),
            }));
        }
        if challenge.is_none() && stored.missing_scopes.is_none() {
            return Err("the server does not ask for a login".to_owned().into());
        }
        let mut manager = discover(endpoint, challenge.as_deref()).await?;
        let scopes = match stored.missing_scopes.is_some() || !login.scopes.is_empty() {
            true => requested_scopes(login, &stored, &manager.metadata_scopes),
            false => manager.inner.select_initial_scopes(&[]).await,
        };
        let no_port = |error: std::io::Error| format!("no port can be opened on this machine: {error}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(no_port)?;
        let port = listener.local_addr().map_err(no_port)?.port();
        let redirect = format!("http://127.0.0.1:{port}{}", callback::PATH);
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let config = known_client(login, manager.accepts_client_metadata, &redirect);
        let config = match config {
            Some(config) => config,
            None => {
                manager.inner.register_client(CLIENT_NAME, &redirect, &scopes).await.map_err(|error| {
                    LoginError::new(
                        "the server does not let us register; give `clientId` of a client that it knows",
                        &error,
                    )
                })?
            }
        };
        let token_file = token_file.with_secret(config.client_secret.clone());
        let cannot = |error| LoginError::new("the login cannot begin", &error);
        manager.inner.configure_client(config).map_err(cannot)?;
        manager.inner.set_credential_store(token_file.clone());
        let url = manager.inner.get_authorization_url(&scopes).await.map_err(cannot)?;
        let state = callback::parameter(&url, "state").unwrap_or_default();
        Ok(LoginFlow { url, state, listener, manager: manager.inner, token_file })
    }

    /// What the person opens in a browser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the browser to come back, and keeps what is got. It waits as long as nobody comes.
    pub async fn finish(self) -> Result<(), LoginError> {
        let LoginFlow { state, listener, manager, token_file, .. } = &self;
        callback::wait_for_redirect(listener, state, async |answer| {
            let code = answer
                .code
                .map_err(|why| LoginError(format!("the login was refused: {}", sanitize(&why))))?;
            // Nobody renews the older login meanwhile and writes over this one.
            let lock = token_file.lock().await?;
            let exchanged =
                manager.exchange_code_for_token_with_issuer(&code, state, answer.issuer.as_deref()).await;
            exchanged.map_err(|error| LoginError::new("the login did not come about", &error))?;
            token_file.set_missing_scopes_locked(None, &lock).await?;
            Ok(())
        })
        .await
    }
}

/// Forgets a login; whether there was one.
pub async fn logout(endpoint: &HttpEndpoint) -> Result<bool, LoginError> {
    match &endpoint.login.file {
        Some(file) => Ok(TokenFile::new(file.clone()).delete().await?),
        None => Ok(false),
    }
}

/// A manager, and what of the server's description it does not tell.
struct AuthServer {
    inner: AuthorizationManager,
    metadata_scopes: Vec<String>,
    accepts_client_metadata: bool,
}

async fn discover(endpoint: &HttpEndpoint, challenge: Option<&str>) -> Result<AuthServer, LoginError> {
    let cannot = |error: AuthError| {
        let why = http_errors::redact_url(endpoint, &error.to_string());
        LoginError(format!("the server does not say who lets people in: {}", sanitize(&why)))
    };
    let mut inner = AuthorizationManager::new(endpoint.url.expose()).await.map_err(cannot)?;
    let challenge = challenge.filter(|challenge| !challenge.is_empty());
    let found = inner.resolve_metadata_from_challenge(challenge).await.map_err(cannot)?;
    let metadata_scopes = found.metadata.scopes_supported.clone().unwrap_or_default();
    let documents = found.metadata.additional_fields.get("client_id_metadata_document_supported");
    let accepts_client_metadata = documents.is_some_and(|value| value == true);
    inner.set_metadata(found.metadata);
    Ok(AuthServer { inner, metadata_scopes, accepts_client_metadata })
}

/// What the person configured, had and was found to lack.
fn requested_scopes(
    login: &LoginSettings,
    stored: &token_file::StoredLogin,
    supported: &[String],
) -> Vec<String> {
    let had = stored.credentials.iter().flat_map(|credentials| credentials.granted_scopes.iter());
    let missing_scopes = stored
        .missing_scopes
        .iter()
        .flat_map(|missing_scopes| missing_scopes.split_whitespace())
        .map(str::to_owned);
    let mut scopes: Vec<String> = Vec::new();
    for scope in login.scopes.iter().chain(had).cloned().chain(missing_scopes) {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    if supported.iter().any(|scope| scope == OFFLINE_SCOPE)
        && !scopes.iter().any(|scope| scope == OFFLINE_SCOPE)
    {
        scopes.push(OFFLINE_SCOPE.to_owned());
    }
    scopes
}

/// The client that the person named, if the server can know it. A document is only read by servers that say so.
fn known_client(
    login: &LoginSettings,
    accepts_client_metadata: bool,
    redirect: &str,
) -> Option<OAuthClientConfig> {
    let client = login.client.as_ref()?;
    if client.id.starts_with("https://") && !accepts_client_metadata {
        return None;
    }
    let config = OAuthClientConfig::new(client.id.clone(), redirect);
    Some(match &client.secret {
        Some(secret) => config.with_client_secret(secret.expose()),
        None => config,
    })
}

/// What renews and shows a login, where there is one.
pub(super) async fn manager(endpoint: &HttpEndpoint) -> Result<Option<AuthorizationManager>, String> {
    let login = &endpoint.login;
    // What stands in its entry goes before any login.
    if has_token(endpoint) {
        return Ok(None);
    }
    if login.grant_type == GrantType::ClientCredentials {
        return log_in_as_client(endpoint).await.map(Some).map_err(|error| error.to_string());
    }
    let Some(file) = &login.file else { return Ok(None) };
    let token_file = TokenFile::new(file.clone());
    let stored = token_file.read().await?;
    let Some(credentials) = stored.credentials else { return Ok(None) };
    let unusable = |error: AuthError| {
        format!(
            "its login cannot be used: {}",
            sanitize(&http_errors::redact_url(endpoint, &error.to_string()))
        )
    };
    let mut manager = AuthorizationManager::new(endpoint.url.expose()).await.map_err(unusable)?;
    manager.set_credential_store(token_file.with_secret(stored.client_secret.clone()));
    if !manager.initialize_from_store().await.map_err(unusable)? {
        return Ok(None);
    }
    if let Some(secret) = stored.client_secret {
        let config =
            OAuthClientConfig::new(credentials.client_id, endpoint.url.expose()).with_client_secret(secret);
        manager.configure_client(config).map_err(unusable)?;
    }
    Ok(Some(manager))
}

/// Logs the client itself in. What it gets is kept nowhere.
async fn log_in_as_client(endpoint: &HttpEndpoint) -> Result<AuthorizationManager, LoginError> {
    let login = &endpoint.login;
    let secret = |client: &OAuthClient| client.secret.as_ref().map(|secret| secret.expose().to_owned());
    let client = login.client.as_ref().and_then(|client| Some((client.id.clone(), secret(client)?)));
    let (client_id, client_secret) = client
        .ok_or_else(|| "a client that logs in itself needs `clientId` and `clientSecret`".to_owned())?;
    let challenge = connect::challenge(endpoint).await?;
    let AuthServer { mut inner, .. } = discover(endpoint, challenge.as_deref()).await?;
    let scopes = match login.scopes.is_empty() {
        true => inner.select_initial_scopes(&[]).await,
        false => login.scopes.clone(),
    };
    let resource = Some(endpoint.url.expose().to_owned());
    let config = ClientCredentialsConfig::ClientSecret { client_id, client_secret, scopes, resource };
    let cannot = |error| LoginError::new("the login did not come about", &error);
    inner.validate_client_credentials_metadata(&config).map_err(cannot)?;
    inner.configure_client_credentials(&config).map_err(cannot)?;
    inner.exchange_client_credentials(&config).await.map_err(cannot)?;
    Ok(inner)
}

/// Whether the entry of a server says itself who asks.
fn has_token(endpoint: &HttpEndpoint) -> bool {
    endpoint.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()))
}

fn token_refused() -> String {
    "the server refused the Authorization header of its entry (401); write a token there that it takes, or take the \
     header away where it wants a login (OAuth)"
        .to_owned()
}

/// What a person reads when a server wants to know who asks.
pub(super) fn login_required_message(endpoint: &HttpEndpoint) -> String {
    if has_token(endpoint) {
        return token_refused();
    }
    match endpoint.login.hint.as_str() {
        "" => "it asks for authorisation (OAuth); if it takes a token, give it in `headers`".to_owned(),
        how => format!("it asks you to log in (OAuth); {how}"),
    }
}

/// What a login lacks.
pub(super) enum AuthFailure {
    /// There is none, or it does not hold any more.
    LoginRequired,
    /// It does not reach far enough; what would, where the server says so.
    InsufficientScope(Option<String>),
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
pub(super) fn auth_failure(error: &(dyn std::error::Error + 'static)) -> Option<AuthFailure> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(narrow) = error.downcast_ref::<InsufficientScopeError>() {
            let scope = narrow.required_scope.as_deref().map(sanitize).filter(|scope| !scope.is_empty());
            return Some(AuthFailure::InsufficientScope(scope));
        }
        if error.downcast_ref::<AuthRequiredError>().is_some()
            || matches!(error.downcast_ref::<AuthError>(), Some(AuthError::AuthorizationRequired))
        {
            return Some(AuthFailure::LoginRequired);
        }
        cause = error.source();
    }
    None
}

/// What a person reads about it. What a login lacks is written down for the next one.
pub(super) async fn auth_failure_message(endpoint: &HttpEndpoint, failure: AuthFailure) -> String {
    match failure {
        AuthFailure::LoginRequired => login_required_message(endpoint),
        AuthFailure::InsufficientScope(scope) if has_token(endpoint) => format!(
            "the Authorization header of its entry does not reach this far{}; write a token there that does",
            scope_suffix(scope.as_deref())
        ),
        AuthFailure::InsufficientScope(scope) => {
            if let (Some(file), Some(scope)) = (&endpoint.login.file, &scope) {
                let _ = TokenFile::new(file.clone()).set_missing_scopes(Some(scope)).await;
            }
            let rights = scope_suffix(scope.as_deref());
            format!("your login does not reach this far{rights}; {}", login_hint(endpoint))
        }
    }
}

/// Rights that are lacking, where the server named them.
fn scope_suffix(scope: Option<&str>) -> String {
    scope.map_or_else(String::new, |scope| format!(" ({scope})"))
}

fn login_hint(endpoint: &HttpEndpoint) -> &str {
    match endpoint.login.hint.as_str() {
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
    fn scope_of_reads_the_scope_of_a_challenge() {
        let scope = |challenge: &str| scope_of(challenge);
        assert_eq!(scope("Bearer error=\"x\", scope=\"a b\"").as_deref(), Some("a b"));
        assert_eq!(scope("Bearer Scope=a, error=x").as_deref(), Some("a"));
        assert_eq!(scope("Bearer"), None);
        assert_eq!(scope("Bearer scope="), None);
    }
}
