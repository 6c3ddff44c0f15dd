//! What a client sees while a call runs.

use std::time::Duration;

use brigade::Live;
use brigade_core::SessionId;
use brigade_core::view::{Doing, Node, Tree};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use crate::text;

/// The shortest time between two notes.
const PACE: Duration = Duration::from_millis(250);
/// The longest note, in bytes.
const LONGEST: usize = 200;

/// Notes on one call, for a client that asked for them.
pub(crate) struct Notes {
    client: Option<(Peer<RoleServer>, ProgressToken)>,
    root: SessionId,
    tree: Tree,
    /// How much has happened: it only grows.
    count: u32,
    pending: Option<String>,
    next: Instant,
}

impl Notes {
    /// Notes for whoever gave a token.
    pub(crate) fn new(root: SessionId, peer: &Peer<RoleServer>, token: Option<ProgressToken>) -> Notes {
        let client = token.map(|token| (peer.clone(), token));
        Notes { client, root, tree: Tree::default(), count: 0, pending: None, next: Instant::now() }
    }

    /// Takes note of what happens.
    pub(crate) fn take(&mut self, live: &Live) {
        if let Live::Fact(record) = live {
            self.tree.apply(record);
        }
        if self.client.is_none() {
            return;
        }
        let (session, waits) = match live {
            Live::Fact(record) => (&record.session, None),
            Live::Waiting { session, why } => (session, Some(why)),
            Live::Delta { .. } | Live::Discarded { .. } => return,
        };
        self.count += 1;
        // What passes the call on is nobody to hear of.
        if let Some(node) = self.tree.node(session).filter(|_| *session != self.root) {
            let words = match waits {
                Some(why) => format!("{} waits: {why}", node.label),
                None => told(node),
            };
            self.pending = Some(text::line(&words, LONGEST));
        }
    }

    /// The tree, as far as it has come.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// When the next note may be sent, if there is one.
    pub(crate) async fn due(&self) {
        match &self.pending {
            Some(_) => tokio::time::sleep_until(self.next).await,
            None => std::future::pending().await,
        }
    }

    /// Sends the latest note. Those that came before it are out of date.
    pub(crate) async fn send(&mut self) {
        let Some(message) = self.pending.take() else { return };
        let Some((peer, token)) = &self.client else { return };
        self.next = Instant::now() + PACE;
        let note = ProgressNotificationParam::new(token.clone(), f64::from(self.count)).with_message(message);
        // A client that is gone has no use for it.
        let _ = peer.notify_progress(note).await;
    }
}

/// Who does what.
fn told(node: &Node) -> String {
    let label = &node.label;
    match &node.doing {
        Doing::Waiting => format!("{label} is about to begin"),
        Doing::Thinking => format!("{label} thinks (turn {})", node.turns.saturating_add(1)),
        Doing::Tool(tool) => format!("{label} uses {tool}"),
        Doing::Delegating => format!("{label} waits for {} agents", node.children.len()),
        Doing::Finishing => format!("{label} finishes"),
        Doing::Summarising => format!("{label} sums up what was said"),
        Doing::Ended(outcome) => format!("{label}: {}", outcome.status.word()),
    }
}
