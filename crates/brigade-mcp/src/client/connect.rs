//! Connecting to an MCP server.

use std::sync::Arc;

use brigade_sandbox::ExitReason;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext,
    RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::auth::AuthClient;
use rmcp::transport::streamable_http_client::{StreamableHttpClient, StreamableHttpClientTransportConfig};
use rmcp::{ClientHandler, Peer, RoleClient, ServiceError};

use super::bounded_io::BoundedReader;
use super::call_timeout::ProgressListeners;
use super::http::{self, HttpClient};
use super::http_errors::LostRequest;
use super::oauth::{self, GrantType, LoginError};
use super::tool_changes::{NotifyingTransport, ToolChanges, listen};
use super::{HttpEndpoint, McpError, StdioCommand, Transport, http_errors};
use brigade_base::process::{CloseReason, Redactor, start_server};
use brigade_base::task::{AbortOnDrop, spawn};

/// Reason of a connection that ended without one.
pub(super) const CLOSED: &str = "it closed the connection";

/// A connection to a server. Dropping it ends the server's processes.
pub(super) struct Connection {
    service: RunningService<RoleClient, McpClient>,
    pub(super) close_reason: CloseReason,
    /// The endpoint, if the server is not a child process.
    endpoint: Option<HttpEndpoint>,
    /// Progress listeners of its calls.
    pub(super) listeners: ProgressListeners,
    _tasks: Vec<AbortOnDrop<()>>,
}

impl Connection {
    /// Returns the peer for requests to the server.
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Whether the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.peer().is_transport_closed() || self.close_reason.reason().is_some()
    }

    /// Returns the reason why a request has no answer.
    pub(super) async fn lost_request(&self, error: &ServiceError) -> LostRequest {
        let Some(endpoint) = &self.endpoint else {
            return LostRequest::MaybeExecuted(self.close_reason.wait_for_reason(CLOSED).await);
        };
        match error {
            ServiceError::TransportSend(cause) => {
                if let Some(failure) = oauth::auth_failure(cause.error.as_ref()) {
                    let message = oauth::auth_failure_message(endpoint, failure).await;
                    if endpoint.login.grant_type == GrantType::ClientCredentials {
                        // The next call logs in again.
                        self.close_reason.set(message.clone());
                    }
                    return LostRequest::NotExecuted(message);
                }
                http_errors::request_error(endpoint, cause.error.as_ref())
            }
            _ => LostRequest::MaybeExecuted(
                self.close_reason.reason().unwrap_or("the connection is closed").to_owned(),
            ),
        }
    }

    /// Connects to a server.
    pub(super) async fn open(
        name: &str,
        transport: &Transport,
        changes: &Arc<ToolChanges>,
    ) -> Result<Connection, McpError> {
        match transport {
            Transport::Stdio(program) => start_process(name, program, changes).await,
            Transport::Http(endpoint) => connect_http(endpoint, changes).await,
        }
    }

    async fn ready(
        service: RunningService<RoleClient, McpClient>,
        close_reason: CloseReason,
        changes: &Arc<ToolChanges>,
        endpoint: Option<HttpEndpoint>,
        mut tasks: Vec<AbortOnDrop<()>>,
    ) -> Connection {
        close_reason.connected();
        let listeners = service.service().listeners.clone();
        let peer = service.peer().clone();
        // The server's current answers count, regardless of the cache lifetime it gave to earlier ones.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let listens = peer.peer_info().is_some_and(|info| {
            let tools = info.capabilities.tools.as_ref();
            !info.protocol_version.has_initialize()
                && tools.is_some_and(|tools| tools.list_changed == Some(true))
        });
        if listens {
            tasks.push(AbortOnDrop(spawn(listen(peer, changes.clone()))));
        }
        Connection { service, close_reason, endpoint, listeners, _tasks: tasks }
    }
}

/// The MCP client. It only calls tools.
#[derive(Default)]
pub(super) struct McpClient {
    listeners: ProgressListeners,
}

impl ClientHandler for McpClient {
    async fn on_progress(
        &self,
        notification: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.listeners.notify(&notification);
    }

    fn get_info(&self) -> ClientConfig {
        let version = env!("CARGO_PKG_VERSION");
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("brigade", version))
    }
}

/// Tries the newest protocol first and falls back to the older handshake.
fn newest_first() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    }
}

async fn start_process(
    name: &str,
    program: &StdioCommand,
    changes: &Arc<ToolChanges>,
) -> Result<Connection, McpError> {
    let close_reason = CloseReason::default();
    let redactor = Redactor::new(program.environment.iter().map(|(_, value)| value), sanitize);
    let tag = format!("mcp:{name}");
    let (stream, exit) = start_server(tag, program.clone(), close_reason.clone(), exit_status, redactor)
        .await
        .map_err(|error| McpError::Connect(format!("cannot start the server: {error}")))?;
    let process = AbortOnDrop(spawn(exit));
    let (reader, writer) = stream.into_split();
    let inner = AsyncRwTransport::new_client(BoundedReader::new(reader, close_reason.clone()), writer);
    let transport =
        NotifyingTransport { inner, changes: changes.clone(), close_reason: close_reason.clone() };
    match McpClient::default().serve_with_lifecycle(transport, newest_first()).await {
        Ok(service) => Ok(Connection::ready(service, close_reason, changes, None, vec![process]).await),
        Err(ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. }) => {
            Err(McpError::Connect(format!(
                "cannot start the server: {}",
                close_reason.wait_for_reason(CLOSED).await
            )))
        }
        Err(error) => {
            Err(McpError::Connect(format!("cannot start the server: {}", sanitize(&error.to_string()))))
        }
    }
}

async fn connect_http(endpoint: &HttpEndpoint, changes: &Arc<ToolChanges>) -> Result<Connection, McpError> {
    let close_reason = CloseReason::default();
    let http_client = HttpClient::new(endpoint, close_reason.clone()).await?;
    match oauth::manager(endpoint).await? {
        Some(manager) => {
            handshake(AuthClient::new(http_client, manager), endpoint, close_reason, changes).await
        }
        None => handshake(http_client, endpoint, close_reason, changes).await,
    }
}

async fn handshake<C>(
    client: C,
    endpoint: &HttpEndpoint,
    close_reason: CloseReason,
    changes: &Arc<ToolChanges>,
) -> Result<Connection, McpError>
where
    C: StreamableHttpClient + Sync,
{
    match try_handshake(client, endpoint, changes).await? {
        Ok(service) => {
            Ok(Connection::ready(service, close_reason, changes, Some(endpoint.clone()), Vec::new()).await)
        }
        Err(error) if error.is_authorization_required() => {
            Err(LoginError::from(oauth::login_required_message(endpoint)).into())
        }
        Err(error) => Err(McpError::Connect(http_errors::connect_error(endpoint, &error))),
    }
}

type Handshake = Result<RunningService<RoleClient, McpClient>, ClientInitializeError>;

async fn try_handshake<C>(
    client: C,
    endpoint: &HttpEndpoint,
    changes: &Arc<ToolChanges>,
) -> Result<Handshake, McpError>
where
    C: StreamableHttpClient + Sync,
{
    http_errors::check_url(endpoint)?;
    let headers = http::headers(&endpoint.headers)?;
    let attempt = |lifecycle| {
        let config = StreamableHttpClientTransportConfig::with_uri(endpoint.url.expose())
            .custom_headers(headers.clone());
        let inner = StreamableHttpClientTransport::with_client(client.clone(), config);
        // An HTTP server has no standard error to read, so messages need no timestamps.
        let transport =
            NotifyingTransport { inner, changes: changes.clone(), close_reason: CloseReason::default() };
        McpClient::default().serve_with_lifecycle(transport, lifecycle)
    };
    match attempt(newest_first()).await {
        // Older servers reject any first message other than the handshake they know.
        Err(error) if !error.is_authorization_required() => {
            Ok(attempt(ClientLifecycleMode::Initialize).await)
        }
        outcome => Ok(outcome),
    }
}

/// Returns the challenge that a server sends to an unauthenticated client, which may be empty. Returns `None`
/// if the server requires no login.
pub(super) async fn challenge(endpoint: &HttpEndpoint) -> Result<Option<String>, McpError> {
    let http_client = HttpClient::new(endpoint, CloseReason::default()).await?;
    match try_handshake(http_client, endpoint, &Arc::default()).await? {
        Ok(service) => match service.peer().list_tools(None).await {
            Err(ServiceError::TransportSend(cause)) => Ok(oauth::challenge(cause.error.as_ref())),
            _ => Ok(None),
        },
        Err(error) if error.is_authorization_required() => {
            Ok(Some(error.auth_challenge().unwrap_or_default().to_owned()))
        }
        Err(error) => Err(McpError::Connect(http_errors::connect_error(endpoint, &error))),
    }
}

fn exit_status(end: ExitReason) -> String {
    match end {
        ExitReason::Exited(code) => format!("it exited with code {code}"),
        ExitReason::Signalled(signal) => format!("it was killed by signal {signal}"),
        ExitReason::TimedOut | ExitReason::Cancelled => "it was stopped".to_owned(),
        ExitReason::OverLimit(limit) => format!("it was killed: {limit}"),
    }
}

/// Shortens untrusted text and removes control characters.
pub(super) fn sanitize(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect();
    if shown.len() < text.len() && text.chars().count() > MAX_CHARS {
        shown.push('…');
    }
    shown
}
