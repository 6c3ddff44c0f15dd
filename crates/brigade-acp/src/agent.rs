//! ACP agent: serves Brigade sessions to editors and other clients.
//!
//! [`serve`] speaks the Agent Client Protocol over a pair of streams. An ACP session is a Brigade session
//! with the same id, and each prompt is one round of it. Logged events are sent as session updates while they
//! happen. An approval requested by any agent of the tree becomes a permission request. All sessions end with
//! the connection.

mod calls;
mod commands;
mod config_options;
mod connection;
mod errors;
mod open_session;
mod peer;
mod permission_requests;
mod prompt;
mod round;
mod servers;
mod session_list;
mod timestamp;
mod update_mapper;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brigade::model::Proxies;
use brigade::process::{BoundedLine, BoundedLines};
use brigade::{Runtime, Store};
use brigade_core::Agent;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tracing::debug;

use crate::MAX_LINE_BYTES;
use connection::ClientConnection;
use peer::{Incoming, Peer};

/// Time that running rounds have to stop after the client disconnects.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Time that a disconnecting client has to read the remaining messages.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Program that embeds the agent. It provides the store and the environment of each directory.
pub trait Host: Send + Sync + 'static {
    /// The store that contains all sessions.
    fn store(&self) -> Arc<dyn Store>;

    /// Returns the environment of a session in this directory, or the reason why no session can run there.
    fn environment<'a>(
        &'a self,
        folder: &'a Path,
    ) -> BoxFuture<'a, Result<SessionEnvironment, EnvironmentError>>;

    /// Reports a message to the user that the protocol has no update for.
    fn note(&self, text: &str);
}

/// Reason why no session can run in a directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EnvironmentError(pub String);

/// Environment of a session in its directory.
#[derive(Clone)]
pub struct SessionEnvironment {
    /// The runtime with the settings of the directory. Approvals have to be enabled in these settings.
    pub runtime: Runtime,
    /// The agent that receives the first prompt, or `None` for the configured lead.
    pub agent: Option<Agent>,
    /// The models that the user may choose from, in addition to the current one.
    pub models: Vec<String>,
    /// The model that replaces the recorded one when a session is loaded, if the user set one for all
    /// sessions.
    pub model: Option<String>,
    /// Time limit of a round, if one is set.
    pub timeout: Option<Duration>,
    /// Proxies for the MCP servers that the client configures.
    pub proxies: Proxies,
}

/// Serves sessions until the client disconnects or `stop` is ready, then cancels all running rounds and waits
/// for them to end.
pub async fn serve(
    host: Arc<dyn Host>,
    reader: impl AsyncRead + Unpin + Send,
    writer: impl AsyncWrite + Unpin + Send + 'static,
    stop: impl Future<Output = ()> + Send,
) {
    let (peer, lines) = Peer::new();
    let mut writing = JoinSet::new();
    writing.spawn(peer::write(lines, writer));
    let connection = Arc::new(ClientConnection::new(host, peer.clone()));
    let mut tasks = JoinSet::new();
    tokio::select! {
        () = listen(&connection, reader, &mut tasks) => {}
        () = stop => {}
        // The client no longer reads its messages.
        _ = writing.join_next() => {}
    }
    debug!(target: "brigade::acp", "connection ends");
    connection.stop_all();
    // A round that waits for the client to read could not stop.
    peer.set_send_deadline(FLUSH_TIMEOUT);
    let all_ended = async { while tasks.join_next().await.is_some() {} };
    // A round that has not stopped by then ends with the process, as after a crash, and can be resumed.
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, all_ended).await;
    drop((tasks, connection, peer));
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, writing.join_next()).await;
}

/// Handles messages of the client until its stream ends.
async fn listen(connection: &Arc<ClientConnection>, reader: impl AsyncRead + Unpin, tasks: &mut JoinSet<()>) {
    let mut lines = BoundedLines::new(reader, MAX_LINE_BYTES);
    loop {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) | Err(_) => return,
        };
        while tasks.try_join_next().is_some() {}
        let incoming = match line {
            BoundedLine::TooLong => {
                let message = format!("the message exceeds the limit of {MAX_LINE_BYTES} bytes");
                Err(Box::new((agent_client_protocol_schema::v1::RequestId::Null, errors::request(message))))
            }
            BoundedLine::Unterminated(_) => return,
            BoundedLine::Complete(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
            BoundedLine::Complete(line) => peer::parse(&line),
        };
        match incoming {
            Ok(Incoming::Request { id, method, params }) => {
                connection.request(id, method, params, tasks).await
            }
            Ok(Incoming::Notification { method, params }) => connection.notification(&method, params).await,
            Ok(Incoming::Response { id, result }) => connection.peer().handle_response(&id, result),
            Err(invalid) => {
                let (id, error) = *invalid;
                connection.peer().respond::<()>(&id, Err(error)).await;
            }
        }
    }
}
