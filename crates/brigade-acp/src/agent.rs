//! Our sessions for editors and other clients.
//!
//! [`serve`] speaks the Agent Client Protocol over a pair of streams. A session of the protocol is a session of ours,
//! under the same id; a prompt is a round of it. What the log says is told as updates while it happens, and a question
//! of any agent of the tree becomes a permission request. All sessions end with the connection.

mod calls;
mod choices;
mod clock;
mod commands;
mod listing;
mod narrator;
mod office;
mod peer;
mod prompt;
mod questions;
mod refusal;
mod round;
mod seat;
mod servers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brigade::model::Proxies;
use brigade::{Runtime, Store};
use brigade_core::Agent;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use crate::line::{LONGEST, Line, Lines};
use office::Office;
use peer::{Incoming, Peer};

/// How long rounds may take to stop when the client has gone.
const LAST_RESPECTS: Duration = Duration::from_secs(20);

/// How long a client that has gone may take to read what was said to it last.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Who embeds the agent: what is known of folders, and where sessions are kept.
pub trait Host: Send + Sync + 'static {
    /// The store that all sessions are kept in.
    fn store(&self) -> Arc<dyn Store>;

    /// What a session in this folder works with, or why none can work there.
    fn desk<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, Result<Desk, String>>;

    /// What the person should know and the protocol has no place for.
    fn note(&self, text: &str);
}

/// What a session works with in its folder.
#[derive(Clone)]
pub struct Desk {
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
    let office = Arc::new(Office::new(host, peer.clone()));
    let mut tasks = JoinSet::new();
    tokio::select! {
        () = listen(&office, reader, &mut tasks) => {}
        () = stop => {}
        // Nobody reads what is said any more.
        _ = writing.join_next() => {}
    }
    office.stop_all();
    // A round that waits for a reader could not stop.
    peer.wait_no_longer_than(LAST_WORDS);
    let all_ended = async { while tasks.join_next().await.is_some() {} };
    // What does not stop by then ends with the process, as after a crash, and can be resumed.
    let _ = tokio::time::timeout(LAST_RESPECTS, all_ended).await;
    drop((tasks, office, peer));
    let _ = tokio::time::timeout(LAST_WORDS, writing.join_next()).await;
}

/// Hears the client until it has nothing more to say.
async fn listen(office: &Arc<Office>, reader: impl AsyncRead + Unpin, tasks: &mut JoinSet<()>) {
    let mut lines = Lines::new(reader);
    loop {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) | Err(_) => return,
        };
        while tasks.try_join_next().is_some() {}
        let incoming = match line {
            Line::TooLong => {
                let words = format!("a message may have {} bytes at most", LONGEST);
                Err(Box::new((agent_client_protocol::v1::schema::RequestId::Null, refusal::request(words))))
            }
            Line::Whole(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Line::Whole(line) => peer::read(&line),
        };
        match incoming {
            Ok(Incoming::Request { id, method, params }) => office.request(id, method, params, tasks).await,
            Ok(Incoming::Notice { method, params }) => office.notice(&method, params).await,
            Ok(Incoming::Answer { id, result }) => office.peer().take(&id, result),
            Err(unreadable) => {
                let (id, error) = *unreadable;
                office.peer().answer::<()>(&id, Err(error)).await;
            }
        }
    }
}
