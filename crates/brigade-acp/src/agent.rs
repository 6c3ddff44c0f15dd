//! Our sessions for editors and other clients.
//!
//! [`serve`] speaks the Agent Client Protocol over a pair of streams. A session of the protocol is a session of ours,
//! under the same id; a prompt is a round of it. What the log says is told as updates while it happens, and a question
//! of any agent of the tree becomes a permission request. All sessions end with the connection.

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
use brigade::{Runtime, Store};
use brigade_core::Agent;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use crate::line::{BoundedLine, BoundedLines, MAX_LINE_BYTES};
use connection::ClientConnection;
use peer::{Incoming, Peer};

/// How long rounds may take to stop when the client has gone.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a client that has gone may take to read what was said to it last.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Who embeds the agent: what is known of folders, and where sessions are kept.
pub trait Host: Send + Sync + 'static {
    /// The store that all sessions are kept in.
    fn store(&self) -> Arc<dyn Store>;

    /// What a session in this folder works with, or why none can work there.
    fn environment<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, Result<SessionEnvironment, String>>;

    /// What the person should know and the protocol has no place for.
    fn note(&self, text: &str);
}

/// What a session works with in its folder.
#[derive(Clone)]
pub struct SessionEnvironment {
    /// The runtime, with the settings of the folder. They say that a person is asked.
    pub runtime: Runtime,
    /// The agent that takes the first prompt; none for the lead of the settings.
    pub agent: Option<Agent>,
    /// The models that the person may choose from, beside the one in use.
    pub models: Vec<String>,
    /// The model that takes the place of the one that a session on record had, where the person names one for all.
    pub model: Option<String>,
    /// How long a round may take, where there is a limit.
    pub timeout: Option<Duration>,
    /// Proxies for MCP servers that the client names.
    pub proxies: Proxies,
}

/// Serves sessions until the client has gone or `stop` is ready. Then everything that runs is cancelled and waited for.
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
        // Nobody reads what is said any more.
        _ = writing.join_next() => {}
    }
    connection.stop_all();
    // A round that waits for a reader could not stop.
    peer.set_send_deadline(FLUSH_TIMEOUT);
    let all_ended = async { while tasks.join_next().await.is_some() {} };
    // What does not stop by then ends with the process, as after a crash, and can be resumed.
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, all_ended).await;
    drop((tasks, connection, peer));
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, writing.join_next()).await;
}

/// Hears the client until it has nothing more to say.
async fn listen(connection: &Arc<ClientConnection>, reader: impl AsyncRead + Unpin, tasks: &mut JoinSet<()>) {
    let mut lines = BoundedLines::new(reader);
    loop {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) | Err(_) => return,
        };
        while tasks.try_join_next().is_some() {}
        let incoming = match line {
            BoundedLine::TooLong => {
                let message = format!("a message may have {} bytes at most", MAX_LINE_BYTES);
                Err(Box::new((agent_client_protocol::v1::schema::RequestId::Null, errors::request(message))))
            }
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
