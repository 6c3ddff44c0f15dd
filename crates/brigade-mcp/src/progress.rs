//! What a client sees while a call runs.

use std::time::Duration;

use brigade::RunEvent;
use brigade_core::SessionId;
use brigade_core::view::{Activity, Node, Tree};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use crate::text;

/// The shortest time between two notes.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// The longest note, in bytes.
const MAX_NOTE_BYTES: usize = 200;

/// Notes on one call, for a client that asked for them.
pub(crate) struct ProgressNotes {
    client: Option<(Peer<RoleServer>, ProgressToken)>,
    root: SessionId,
    tree: Tree,
    /// How much has happened: it only grows.
    count: u32,
    pending: Option<String>,
    next: Instant,
}

impl ProgressNotes {
    /// Notes for whoever gave a token.
    pub(crate) fn new(
        root: SessionId,
        peer: &Peer<RoleServer>,
        token: Option<ProgressToken>,
    ) -> ProgressNotes {
        let client = token.map(|token| (peer.clone(), token));
        ProgressNotes { client, root, tree: Tree::default(), count: 0, pending: None, next: Instant::now() }
    }

    /// Takes note of what happens.
    pub(crate) fn take(&mut self, live: &RunEvent) {
        if let RunEvent::Record(record) = live {
            self.tree.apply(record);
        }
        if self.client.is_none() {
            return;
        }
        let (session, waits) = match live {
            RunEvent::Record(record) => (&record.session, None),
            RunEvent::Waiting { session, why } => (session, Some(why)),
            RunEvent::Delta { .. } | RunEvent::Discarded { .. } => return,
        };
        self.count += 1;
        // What passes the call on is nobody to hear of.
        if let Some(node) = self.tree.node(session).filter(|_| *session != self.root) {
            let text = match waits {
                Some(why) => format!("{} waits: {why}", node.label),
                None => describe(node),
            };
            self.pending = Some(text::one_line(&text, MAX_NOTE_BYTES));
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
        self.next = Instant::now() + MIN_INTERVAL;
        let note = ProgressNotificationParam::new(token.clone(), f64::from(self.count)).with_message(message);
        // A client that is gone has no use for it.
        let _ = peer.notify_progress(note).await;
    }
}

/// Who does what.
fn describe(node: &Node) -> String {
    let label = &node.label;
    match &node.activity {
        Activity::Pending => format!("{label} is about to begin"),
        Activity::Thinking => format!("{label} thinks (turn {})", node.turns.saturating_add(1)),
        Activity::Tool(tool) => format!("{label} uses {tool}"),
        Activity::Delegating => format!("{label} waits for {} agents", node.children.len()),
        Activity::WrappingUp => format!("{label} finishes"),
        Activity::Compacting => format!("{label} sums up what was said"),
        Activity::Ended(outcome) => format!("{label}: {}", outcome.status.as_str()),
    }
}
