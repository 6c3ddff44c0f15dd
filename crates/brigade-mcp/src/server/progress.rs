//! Progress notifications of a running call.

use std::time::Duration;

use brigade_base::event_stream::RunEvent;
use brigade_core::SessionId;
use brigade_core::view::{Activity, Node, Tree};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use crate::server::text;

/// Minimum time between two notifications.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum length of a message.
const MAX_NOTE_BYTES: usize = 200;

/// Progress of one call, for a client that requested it.
pub(crate) struct ProgressNotes {
    client: Option<(Peer<RoleServer>, ProgressToken)>,
    root: SessionId,
    tree: Tree,
    /// The progress value, which has to increase.
    count: u32,
    pending: Option<String>,
    next: Instant,
}

impl ProgressNotes {
    /// Creates progress notes, if the client sent a progress token.
    pub(crate) fn new(
        root: SessionId,
        peer: &Peer<RoleServer>,
        token: Option<ProgressToken>,
    ) -> ProgressNotes {
        let client = token.map(|token| (peer.clone(), token));
        ProgressNotes { client, root, tree: Tree::default(), count: 0, pending: None, next: Instant::now() }
    }

    /// Records a run event.
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
        // The root session only forwards the call and is not shown.
        if let Some(node) = self.tree.node(session).filter(|_| *session != self.root) {
            let text = match waits {
                Some(why) => format!("{}: {why}", node.label),
                None => describe(node),
            };
            self.pending = Some(text::one_line(&text, MAX_NOTE_BYTES));
        }
    }

    /// The tree as of the last event.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Waits until the next notification may be sent. Waits forever if there is none.
    pub(crate) async fn due(&self) {
        match &self.pending {
            Some(_) => tokio::time::sleep_until(self.next).await,
            None => std::future::pending().await,
        }
    }

    /// Sends the latest message. Older ones are outdated.
    pub(crate) async fn send(&mut self) {
        let Some(message) = self.pending.take() else { return };
        let Some((peer, token)) = &self.client else { return };
        self.next = Instant::now() + MIN_INTERVAL;
        let note = ProgressNotificationParam::new(token.clone(), f64::from(self.count)).with_message(message);
        // The client may have disconnected.
        let _ = peer.notify_progress(note).await;
    }
}

/// Describes the activity of an agent.
fn describe(node: &Node) -> String {
    let label = &node.label;
    match &node.activity {
        Activity::Pending => format!("{label} is starting"),
        Activity::Thinking => format!("{label} is thinking (turn {})", node.turns.saturating_add(1)),
        Activity::Tool(tool) => format!("{label} is calling {tool}"),
        Activity::Delegating => format!("{label} is waiting for its sub-agents"),
        Activity::WrappingUp => format!("{label} is wrapping up"),
        Activity::Compacting => format!("{label} is compacting the conversation"),
        Activity::Ended(outcome) => format!("{label}: {}", outcome.status.as_str()),
    }
}
