//! Getting hold of a server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade_sandbox::{End, Finished, Job, ResourceLimits};
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion, SubscriptionFilter};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext,
    RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, Peer, RoleClient, ServiceError};

use super::fate::Fate;
use super::line::{Bounded, LONGEST};
use super::{Address, Program, Way};
use crate::secret::Secret;
use crate::task::{AbortOnDrop, spawn};

/// How much of what a server says on standard error is kept.
const ERRORS: usize = 4096;
/// How long connecting to a server elsewhere may take.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// A server that answers. Dropping it ends the server's processes.
pub(super) struct Connection {
    service: RunningService<RoleClient, Client>,
    pub(super) fate: Fate,
    /// Where it is, if it is not a process of ours.
    address: Option<Secret>,
    /// Whether the server said that its tools changed.
    pub(super) changed: Arc<AtomicBool>,
    _tasks: Vec<AbortOnDrop<()>>,
}

impl Connection {
    /// The server.
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Why a message did not come through.
    pub(super) async fn lost(&self, error: &ServiceError) -> String {
        let Some(address) = &self.address else {
            let why = self.fate.last_words().await;
            return format!("{why}; its tools cannot be used any more in this run");
        };
        match error {
            ServiceError::TransportSend(cause) => {
                let cause = cause.to_string().replace(address.expose(), "its address");
                format!("the request did not come through: {}", short(&cause))
            }
            _ => "the connection is closed; its tools cannot be used any more in this run".to_owned(),
        }
    }

    /// Connects. Failure is in words for a person.
    pub(super) async fn open(name: &str, way: &Way) -> Result<Connection, String> {
        match way {
            Way::Program(program) => start(name, program).await,
            Way::Http(address) => reach(address).await,
        }
    }

    async fn ready(
        service: RunningService<RoleClient, Client>,
        fate: Fate,
        address: Option<Secret>,
        mut tasks: Vec<AbortOnDrop<()>>,
    ) -> Connection {
        let changed = service.service().changed.clone();
        let peer = service.peer().clone();
        // What a server says now counts, not what it said for how long its last answer would hold.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let listens = peer.peer_info().is_some_and(|info| {
            let tools = info.capabilities.tools.as_ref();
            !info.protocol_version.has_initialize()
                && tools.is_some_and(|tools| tools.list_changed == Some(true))
        });
        if listens {
            tasks.push(AbortOnDrop(spawn(listen(peer, changed.clone()))));
        }
        Connection { service, fate, address, changed, _tasks: tasks }
    }
}

/// What we are to a server: somebody who calls tools, and no more.
pub(super) struct Client {
    changed: Arc<AtomicBool>,
}

impl Client {
    fn new() -> Client {
        Client { changed: Arc::default() }
    }
}

impl ClientHandler for Client {
    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::SeqCst);
    }

    fn get_info(&self) -> ClientConfig {
        let version = env!("CARGO_PKG_VERSION");
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("brigade", version))
    }
}

/// Hears of changes where the protocol wants to be asked about them.
async fn listen(peer: Peer<RoleClient>, changed: Arc<AtomicBool>) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let Ok(mut subscription) = peer.listen(filter).await else { return };
    while let Ok(Some(_)) = subscription.next().await {
        changed.store(true, Ordering::SeqCst);
    }
}

/// The newest protocol first; a server that does not know it is greeted as older ones are.
fn newest_first() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    }
}

async fn start(name: &str, program: &Program) -> Result<Connection, String> {
    let words = std::iter::once(&program.command).chain(&program.arguments);
    let words: Vec<String> = words.map(|word| quoted(word)).collect();
    let exposed = |(name, value): &(String, Secret)| (name.clone(), value.expose().to_owned());
    let job = Job {
        command: format!("exec {}", words.join(" ")),
        directory: program.directory.clone(),
        environment: program.environment.iter().map(exposed).collect(),
        time_limit: Duration::MAX,
        output_limit: ERRORS,
        limits: ResourceLimits::default(),
        mark: format!("mcp:{name}"),
    };
    let fate = Fate::default();
    let doomed = fate.clone();
    let (stream, run) =
        brigade_sandbox::serve(program.guard.clone(), job, async move { doomed.sealed().await })
            .map_err(|error| format!("it cannot be started: {error}"))?;
    let (ending, secrets) = (fate.clone(), program.environment.clone());
    let process = AbortOnDrop(spawn(async move {
        ending.seal(match run.await {
            Ok(finished) => end(&finished, &secrets),
            Err(error) => error.to_string(),
        });
    }));
    let (reader, writer) = stream.into_split();
    let transport = AsyncRwTransport::new_client(Bounded::new(reader, fate.clone()), writer);
    match Client::new().serve_with_lifecycle(transport, newest_first()).await {
        Ok(service) => Ok(Connection::ready(service, fate, None, vec![process]).await),
        Err(ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. }) => {
            Err(format!("it did not start: {}", fate.last_words().await))
        }
        Err(error) => Err(format!("it did not start: {}", short(&error.to_string()))),
    }
}

async fn reach(address: &Address) -> Result<Connection, String> {
    let url = address.url.expose();
    let mut headers = HashMap::new();
    for (name, value) in &address.headers {
        let wrong = || format!("the header '{}' is none that can be sent", short(name));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    // Building a client reads the certificates of the system.
    let client = tokio::task::spawn_blocking(client).await.map_err(|error| error.to_string())??;
    let attempt = |lifecycle| {
        let config = StreamableHttpClientTransportConfig::with_uri(url)
            .custom_headers(headers.clone())
            .max_sse_event_size(LONGEST);
        let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
        Client::new().serve_with_lifecycle(transport, lifecycle)
    };
    let mut outcome = attempt(newest_first()).await;
    if outcome.as_ref().is_err_and(|error| !error.is_authorization_required()) {
        // Older servers refuse whatever is not the first message that they know.
        outcome = attempt(ClientLifecycleMode::Initialize).await;
    }
    match outcome {
        Ok(service) => {
            Ok(Connection::ready(service, Fate::default(), Some(address.url.clone()), Vec::new()).await)
        }
        Err(error) if error.is_authorization_required() => {
            Err("it asks for authorisation (OAuth), which is \
             not supported yet; if it takes a token, give it in `headers`"
                .to_owned())
        }
        Err(error) => {
            Err(format!("it cannot be reached: {}", short(&error.to_string().replace(url, "its address"))))
        }
    }
}

/// A client without proxies and cookies. It follows a redirect only to the same host, and only one that keeps the
/// message.
fn client() -> Result<reqwest::Client, String> {
    let policy = reqwest::redirect::Policy::custom(|attempt| {
        let from = attempt.previous().last().map(|url| url.origin());
        let keeps_message = matches!(attempt.status().as_u16(), 307 | 308);
        match keeps_message && from == Some(attempt.url().origin()) && attempt.previous().len() <= 5 {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    });
    let builder = reqwest::Client::builder().no_proxy().referer(false).redirect(policy);
    builder.connect_timeout(CONNECT_TIME).build().map_err(|error| error.to_string())
}

/// How a process ended, and the last that it said about it.
fn end(finished: &Finished, secrets: &[(String, Secret)]) -> String {
    let how = match finished.end {
        End::Exited(code) => format!("it ended with exit code {code}"),
        End::Signalled(signal) => format!("it was ended by signal {signal}"),
        End::TimedOut | End::Cancelled => "it was ended".to_owned(),
    };
    let said = String::from_utf8_lossy(&finished.output);
    let Some(last) = said.lines().rev().map(str::trim).find(|line| !line.is_empty()) else { return how };
    let mut last = last.to_owned();
    for (_, secret) in secrets {
        // Short values, such as a number, are everywhere and no keys.
        if secret.expose().len() >= 6 {
            last = last.replace(secret.expose(), "(hidden)");
        }
    }
    format!("{how}: {}", short(&last))
}

/// A few plain words of a stranger.
pub(super) fn short(text: &str) -> String {
    const MOST: usize = 300;
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(MOST).collect();
    if shown.len() < text.len() && text.chars().count() > MOST {
        shown.push('…');
    }
    shown
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
