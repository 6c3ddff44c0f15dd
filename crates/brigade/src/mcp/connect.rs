//! Getting hold of a server.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::text;
use brigade_sandbox::{End, Finished, Job, ResourceLimits};
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

use super::fate::Fate;
use super::line::{Bounded, LONGEST};
use super::login::{self, Who};
use super::news::{Attentive, News, listen};
use super::patience::Listeners;
use super::unreachable::Lost;
use super::wire::{self, Wire};
use super::{Address, Program, Way, unreachable};
use crate::secret::Secret;
use crate::task::{AbortOnDrop, spawn};

/// How much of what a server says on standard error is kept.
const ERRORS: usize = 4096;

/// A server that answers. Dropping it ends the server's processes.
pub(super) struct Connection {
    service: RunningService<RoleClient, Client>,
    pub(super) fate: Fate,
    /// Where it is, if it is not a process of ours.
    address: Option<Address>,
    /// Who hears how far their calls are.
    pub(super) listeners: Listeners,
    _tasks: Vec<AbortOnDrop<()>>,
}

impl Connection {
    /// The server.
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Whether nothing can be asked of it any more.
    pub(super) fn is_over(&self) -> bool {
        self.service.is_closed() || self.peer().is_transport_closed() || self.fate.reason().is_some()
    }

    /// Reason why a request has no answer.
    pub(super) async fn lost(&self, error: &ServiceError) -> Lost {
        let Some(address) = &self.address else { return Lost::Sent(self.fate.last_words().await) };
        match error {
            ServiceError::TransportSend(cause) => {
                if let Some(lack) = login::lack(cause.error.as_ref()) {
                    let lacking = login::lacking(address, lack).await;
                    if address.login.who == Who::Client {
                        // The next call logs in anew.
                        self.fate.seal(lacking.clone());
                    }
                    return Lost::Unsent(lacking);
                }
                unreachable::unanswered(address, cause.error.as_ref())
            }
            _ => Lost::Sent(self.fate.reason().unwrap_or("the connection is closed").to_owned()),
        }
    }

    /// Connects. Failure is in words for a person.
    pub(super) async fn open(name: &str, way: &Way, news: &Arc<News>) -> Result<Connection, String> {
        match way {
            Way::Program(program) => start(name, program, news).await,
            Way::Http(address) => reach(address, news).await,
        }
    }

    async fn ready(
        service: RunningService<RoleClient, Client>,
        fate: Fate,
        news: &Arc<News>,
        address: Option<Address>,
        mut tasks: Vec<AbortOnDrop<()>>,
    ) -> Connection {
        fate.connected();
        let listeners = service.service().listeners.clone();
        let peer = service.peer().clone();
        // What a server says now counts, not what it said for how long its last answer would hold.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let listens = peer.peer_info().is_some_and(|info| {
            let tools = info.capabilities.tools.as_ref();
            !info.protocol_version.has_initialize()
                && tools.is_some_and(|tools| tools.list_changed == Some(true))
        });
        if listens {
            tasks.push(AbortOnDrop(spawn(listen(peer, news.clone()))));
        }
        Connection { service, fate, address, listeners, _tasks: tasks }
    }
}

/// What we are to a server: somebody who calls tools, and no more.
#[derive(Default)]
pub(super) struct Client {
    listeners: Listeners,
}

impl ClientHandler for Client {
    async fn on_progress(&self, news: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.listeners.hear(&news);
    }

    fn get_info(&self) -> ClientConfig {
        let version = env!("CARGO_PKG_VERSION");
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("brigade", version))
    }
}

/// The newest protocol first; a server that does not know it is greeted as older ones are.
fn newest_first() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    }
}

async fn start(name: &str, program: &Program, news: &Arc<News>) -> Result<Connection, String> {
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
            Ok(finished) => end(&finished, &secrets, ending.since_last_message()),
            Err(error) => error.to_string(),
        });
    }));
    let (reader, writer) = stream.into_split();
    let inner = AsyncRwTransport::new_client(Bounded::new(reader, fate.clone()), writer);
    let transport = Attentive { inner, news: news.clone(), fate: fate.clone() };
    match Client::default().serve_with_lifecycle(transport, newest_first()).await {
        Ok(service) => Ok(Connection::ready(service, fate, news, None, vec![process]).await),
        Err(ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. }) => {
            Err(format!("it did not start: {}", fate.last_words().await))
        }
        Err(error) => Err(format!("it did not start: {}", short(&error.to_string()))),
    }
}

async fn reach(address: &Address, news: &Arc<News>) -> Result<Connection, String> {
    let fate = Fate::default();
    let wire = Wire::new(address, fate.clone()).await?;
    match login::manager(address).await? {
        Some(manager) => greet(AuthClient::new(wire, manager), address, fate, news).await,
        None => greet(wire, address, fate, news).await,
    }
}

async fn greet<C>(client: C, address: &Address, fate: Fate, news: &Arc<News>) -> Result<Connection, String>
where
    C: StreamableHttpClient + Sync,
{
    match greeted(client, address, news).await? {
        Ok(service) => Ok(Connection::ready(service, fate, news, Some(address.clone()), Vec::new()).await),
        Err(error) if error.is_authorization_required() => Err(login::required(address)),
        Err(error) => Err(unreachable::greeting(address, &error)),
    }
}

type Greeted = Result<RunningService<RoleClient, Client>, ClientInitializeError>;

async fn greeted<C>(client: C, address: &Address, news: &Arc<News>) -> Result<Greeted, String>
where
    C: StreamableHttpClient + Sync,
{
    unreachable::checked(address)?;
    let headers = wire::headers(&address.headers)?;
    let attempt = |lifecycle| {
        let config = StreamableHttpClientTransportConfig::with_uri(address.url.expose())
            .custom_headers(headers.clone())
            .max_sse_event_size(LONGEST);
        let inner = StreamableHttpClientTransport::with_client(client.clone(), config);
        // Nothing that it writes beside its answers is read, so no message needs to be dated.
        let transport = Attentive { inner, news: news.clone(), fate: Fate::default() };
        Client::default().serve_with_lifecycle(transport, lifecycle)
    };
    match attempt(newest_first()).await {
        // Older servers refuse whatever is not the first message that they know.
        Err(error) if !error.is_authorization_required() => {
            Ok(attempt(ClientLifecycleMode::Initialize).await)
        }
        outcome => Ok(outcome),
    }
}

/// What a server says to somebody whom it does not know, where it wants to know them: its challenge, which may be empty.
pub(super) async fn challenge(address: &Address) -> Result<Option<String>, String> {
    let wire = Wire::new(address, Fate::default()).await?;
    match greeted(wire, address, &Arc::default()).await? {
        Ok(service) => match service.peer().list_tools(None).await {
            Err(ServiceError::TransportSend(cause)) => Ok(login::challenge(cause.error.as_ref())),
            _ => Ok(None),
        },
        Err(error) if error.is_authorization_required() => {
            Ok(Some(error.auth_challenge().unwrap_or_default().to_owned()))
        }
        Err(error) => Err(unreachable::greeting(address, &error)),
    }
}

/// How a process ended, and what it said about it since it was sent its last message: older lines are no cause.
fn end(finished: &Finished, secrets: &[(String, Secret)], since: Option<Duration>) -> String {
    let how = match finished.end {
        End::Exited(code) => format!("it ended with exit code {code}"),
        End::Signalled(signal) => format!("it was ended by signal {signal}"),
        End::TimedOut | End::Cancelled => "it was ended".to_owned(),
    };
    let said = since.map_or(finished.output.as_slice(), |since| finished.output_within(since));
    let said = String::from_utf8_lossy(said);
    let Some(complaint) = text::complaint(&said) else { return how };
    let mut said = complaint.to_owned();
    for (_, secret) in secrets {
        // Short values, such as a number, are everywhere and no keys.
        if secret.expose().len() >= 6 {
            said = said.replace(secret.expose(), "(hidden)");
        }
    }
    format!("{how}: {}", short(&said))
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
