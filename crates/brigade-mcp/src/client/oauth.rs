//! OAuth login to servers that require it.
//!
//! The user logs in once. [`LoginFlow::begin`] discovers the authorization server and returns a URL for a
//! browser. [`LoginFlow::finish`] waits on this machine for the redirect. The tokens are stored in a file
//! that only the user can read, and are refreshed automatically.

mod callback;
mod token_file;

use std::path::PathBuf;

use reqwest::header::AUTHORIZATION;
use rmcp::transport::auth::{AuthError, AuthorizationManager, ClientCredentialsConfig, OAuthClientConfig};
use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError};
use tokio::net::TcpListener;

use super::connect::{self, sanitize};
use super::{HttpEndpoint, McpError, http_errors};
use brigade_base::Secret;
use brigade_http_client::tls;
use token_file::TokenFile;

/// The client name that users see on the consent page.
const CLIENT_NAME: &str = "Brigade";
/// The scope that requests a refresh token.
const OFFLINE_SCOPE: &str = "offline_access";

/// Login settings of a server.
#[derive(Debug, Clone, Default)]
pub struct LoginSettings {
    /// The file that stores the login. Without one, login is not possible.
    pub file: Option<PathBuf>,
    /// The OAuth grant type.
    pub grant_type: GrantType,
    /// The pre-registered client, or the URL of a client metadata document.
    pub client: Option<OAuthClient>,
    /// Requested scopes. If empty, the server decides.
    pub scopes: Vec<String>,
    /// Instruction that tells the user how to log in, as a sentence.
    pub hint: String,
}

/// The party that logs in to a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GrantType {
    /// The user, in a browser.
    #[default]
    AuthorizationCode,
    /// The client itself, with its secret.
    ClientCredentials,
}

/// A registered OAuth client.
#[derive(Debug, Clone)]
pub struct OAuthClient {
    /// The client id.
    pub id: String,
    /// The client secret, if it has one.
    pub secret: Option<Secret>,
}

/// Error of a failed login.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(String);

impl From<String> for LoginError {
    fn from(why: String) -> LoginError {
        LoginError(why)
    }
}

impl From<McpError> for LoginError {
    fn from(error: McpError) -> LoginError {
        LoginError(error.to_string())
    }
}

impl LoginError {
    fn new(what: &str, error: &AuthError) -> LoginError {
        LoginError(format!("{what}: {}", sanitize(&error.to_string())))
    }
}

/// A login in progress. The user has to open its URL.
pub struct LoginFlow {
    url: String,
    state: String,
    listener: TcpListener,
    manager: AuthorizationManager,
    token_file: TokenFile,
}

impl LoginFlow {
    /// Discovers the authorization server and registers the client there.
    pub async fn begin(endpoint: &HttpEndpoint) -> Result<LoginFlow, LoginError> {
        let login = &endpoint.login;
        let file = login
            .file
            .clone()
            .ok_or_else(|| "cannot store the login: no token file is configured".to_owned())?;
        let token_file = TokenFile::new(file);
        let stored = token_file.read().await?;
        let challenge = connect::challenge(endpoint).await?;
        if has_token(endpoint) {
            return Err(LoginError(match challenge {
                Some(_) => token_refused(),
                None => "the server already accepts the configured Authorization header. To use OAuth login instead, remove the header."
                    .to_owned(),
            }));
        }
        if challenge.is_none() && stored.missing_scopes.is_none() {
            return Err("the server does not require a login".to_owned().into());
        }
        let mut manager = discover(endpoint, challenge.as_deref()).await?;
        let scopes = match stored.missing_scopes.is_some() || !login.scopes.is_empty() {
            true => requested_scopes(login, &stored, &manager.metadata_scopes),
            false => manager.inner.select_initial_scopes(&[]).await,
        };
        let no_port = |error: std::io::Error| format!("cannot open a local port: {error}");
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
                        "cannot register a client (set `clientId` to use an existing one)",
                        &error,
                    )
                })?
            }
        };
        let token_file = token_file.with_secret(config.client_secret.clone());
        let cannot = |error| LoginError::new("cannot start the login", &error);
        manager.inner.configure_client(config).map_err(cannot)?;
        manager.inner.set_credential_store(token_file.clone());
        let url = manager.inner.get_authorization_url(&scopes).await.map_err(cannot)?;
        let state = callback::parameter(&url, "state").unwrap_or_default();
        Ok(LoginFlow { url, state, listener, manager: manager.inner, token_file })
    }

    /// Returns the URL that the user opens in a browser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the redirect from the browser, without a time limit, and stores the tokens.
    pub async fn finish(self) -> Result<(), LoginError> {
        let LoginFlow { state, listener, manager, token_file, .. } = &self;
        callback::wait_for_redirect(listener, state, async |answer| {
            let code = answer
                .code
                .map_err(|why| LoginError(format!("the login was refused: {}", sanitize(&why.0))))?;
            // The lock prevents a concurrent refresh of the older login from overwriting this one.
            let lock = token_file.lock().await?;
            let exchanged =
                manager.exchange_code_for_token_with_issuer(&code, state, answer.issuer.as_deref()).await;
            exchanged.map_err(|error| LoginError::new("cannot complete the login", &error))?;
            token_file.set_missing_scopes_locked(None, &lock).await?;
            Ok(())
        })
        .await
    }
}

/// Deletes a stored login. Returns whether there was one.
pub async fn logout(endpoint: &HttpEndpoint) -> Result<bool, LoginError> {
    match &endpoint.login.file {
        Some(file) => Ok(TokenFile::new(file.clone()).delete().await?),
        None => Ok(false),
    }
}

/// An authorization manager, and server metadata that it does not expose.
struct AuthServer {
    inner: AuthorizationManager,
    metadata_scopes: Vec<String>,
    accepts_client_metadata: bool,
}

async fn discover(endpoint: &HttpEndpoint, challenge: Option<&str>) -> Result<AuthServer, LoginError> {
    let cannot = |error: AuthError| {
        let why = http_errors::redact_url(endpoint, &error.to_string());
        LoginError(format!("cannot discover the authorization server: {}", sanitize(&why)))
    };
    let mut inner = new_manager(endpoint).await.map_err(cannot)?;
    let challenge = challenge.filter(|challenge| !challenge.is_empty());
    let found = inner.resolve_metadata_from_challenge(challenge).await.map_err(cannot)?;
    let metadata_scopes = found.metadata.scopes_supported.clone().unwrap_or_default();
    let documents = found.metadata.additional_fields.get("client_id_metadata_document_supported");
    let accepts_client_metadata = documents.is_some_and(|value| value == true);
    inner.set_metadata(found.metadata);
    Ok(AuthServer { inner, metadata_scopes, accepts_client_metadata })
}

/// Returns the scopes that are configured, already granted or known to be missing.
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

/// Returns the configured client, if the server can know it. Only servers that announce support read a
/// metadata document.
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

/// Returns the manager that presents and refreshes a login, if there is one.
pub(super) async fn manager(endpoint: &HttpEndpoint) -> Result<Option<AuthorizationManager>, LoginError> {
    let login = &endpoint.login;
    // A configured Authorization header takes precedence over a login.
    if has_token(endpoint) {
        return Ok(None);
    }
    if login.grant_type == GrantType::ClientCredentials {
        return log_in_as_client(endpoint).await.map(Some);
    }
    let Some(file) = &login.file else { return Ok(None) };
    let token_file = TokenFile::new(file.clone());
    let stored = token_file.read().await?;
    let Some(credentials) = stored.credentials else { return Ok(None) };
    let unusable = |error: AuthError| {
        let why = sanitize(&http_errors::redact_url(endpoint, &error.to_string()));
        LoginError(format!("cannot use the stored login: {why}"))
    };
    let mut manager = new_manager(endpoint).await.map_err(unusable)?;
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

/// Creates a manager without a login.
#[expect(clippy::disallowed_methods, reason = "the provider is installed first")]
async fn new_manager(endpoint: &HttpEndpoint) -> Result<AuthorizationManager, AuthError> {
    tls::provider();
    AuthorizationManager::new(endpoint.url.expose()).await
}

/// Logs in with the client's own credentials. The tokens are not stored.
async fn log_in_as_client(endpoint: &HttpEndpoint) -> Result<AuthorizationManager, LoginError> {
    let login = &endpoint.login;
    let secret = |client: &OAuthClient| client.secret.as_ref().map(|secret| secret.expose().to_owned());
    let client = login.client.as_ref().and_then(|client| Some((client.id.clone(), secret(client)?)));
    let (client_id, client_secret) = client
        .ok_or_else(|| "the client credentials grant requires `clientId` and `clientSecret`".to_owned())?;
    let challenge = connect::challenge(endpoint).await?;
    let AuthServer { mut inner, .. } = discover(endpoint, challenge.as_deref()).await?;
    let scopes = match login.scopes.is_empty() {
        true => inner.select_initial_scopes(&[]).await,
        false => login.scopes.clone(),
    };
    let resource = Some(endpoint.url.expose().to_owned());
    let config = ClientCredentialsConfig::ClientSecret { client_id, client_secret, scopes, resource };
    let cannot = |error| LoginError::new("cannot complete the login", &error);
    inner.validate_client_credentials_metadata(&config).map_err(cannot)?;
    inner.configure_client_credentials(&config).map_err(cannot)?;
    inner.exchange_client_credentials(&config).await.map_err(cannot)?;
    Ok(inner)
}

/// Whether the server's configuration has an Authorization header.
fn has_token(endpoint: &HttpEndpoint) -> bool {
    endpoint.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()))
}

fn token_refused() -> String {
    "the server rejected the Authorization header in its configuration (401). Set a valid token, or remove the \
     header to log in (OAuth)."
        .to_owned()
}

/// Message for the user about a server that requires authorization.
pub(super) fn login_required_message(endpoint: &HttpEndpoint) -> String {
    if has_token(endpoint) {
        return token_refused();
    }
    match endpoint.login.hint.as_str() {
        "" => {
            "it requires authorization (OAuth). If it accepts a token, set the token in `headers`.".to_owned()
        }
        how => format!("it requires a login (OAuth); {how}"),
    }
}

/// Kinds of authorization failure.
pub(super) enum AuthFailure {
    /// There is no login, or it is no longer valid.
    LoginRequired,
    /// The login lacks a scope, which is given if the server names it.
    InsufficientScope(Option<String>),
}

/// Returns the challenge in an error.
pub(super) fn challenge(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let required = http_errors::causes(error).find_map(|error| error.downcast_ref::<AuthRequiredError>());
    required.map(|required| required.www_authenticate_header.clone())
}

/// Returns the authorization failure in an error.
pub(super) fn auth_failure(error: &(dyn std::error::Error + 'static)) -> Option<AuthFailure> {
    http_errors::causes(error).find_map(|error| {
        if let Some(narrow) = error.downcast_ref::<InsufficientScopeError>() {
            let scope = narrow.required_scope.as_deref().map(sanitize).filter(|scope| !scope.is_empty());
            return Some(AuthFailure::InsufficientScope(scope));
        }
        if error.downcast_ref::<AuthRequiredError>().is_some()
            || matches!(error.downcast_ref::<AuthError>(), Some(AuthError::AuthorizationRequired))
        {
            return Some(AuthFailure::LoginRequired);
        }
        None
    })
}

/// Message for the user about an authorization failure. Missing scopes are stored for the next login.
pub(super) async fn auth_failure_message(endpoint: &HttpEndpoint, failure: AuthFailure) -> String {
    match failure {
        AuthFailure::LoginRequired => login_required_message(endpoint),
        AuthFailure::InsufficientScope(scope) if has_token(endpoint) => format!(
            "the Authorization header in its configuration lacks a required scope{}. Set a token that has it.",
            scope_suffix(scope.as_deref())
        ),
        AuthFailure::InsufficientScope(scope) => {
            if let (Some(file), Some(scope)) = (&endpoint.login.file, &scope) {
                let _ = TokenFile::new(file.clone()).set_missing_scopes(Some(scope)).await;
            }
            let rights = scope_suffix(scope.as_deref());
            format!("your login lacks a required scope{rights}; {}", login_hint(endpoint))
        }
    }
}

/// Formats the missing scopes, if the server named them.
fn scope_suffix(scope: Option<&str>) -> String {
    scope.map_or_else(String::new, |scope| format!(" ({scope})"))
}

fn login_hint(endpoint: &HttpEndpoint) -> &str {
    match endpoint.login.hint.as_str() {
        "" => "set a token with this scope in `headers`",
        how => how,
    }
}

/// Parses the `scope` of a challenge.
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
