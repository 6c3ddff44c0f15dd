//! What can be watched while a tree runs: facts once they are durable, and provisional deltas that are never stored.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::{Record, SessionId};
use tokio::sync::mpsc;

/// Deltas are dropped for a watcher that is this far behind; facts never are.
const MAX_DELTA_BACKLOG: usize = 4096;

/// Something that happened just now.
#[derive(Debug, Clone)]
pub enum RunEvent {
    /// A fact, after it became durable.
    Record(Arc<Record>),
    /// More text of a reply that is not complete yet.
    Delta {
        /// The session.
        session: SessionId,
        /// The turn that it belongs to.
        turn: u32,
        /// The text.
        text: Arc<str>,
    },
    /// A request waits for its provider, or a call says how far it is.
    Waiting {
        /// The session.
        session: SessionId,
        /// What it waits for, and how long or how far that is.
        why: String,
    },
    /// The deltas of this turn came to nothing: the attempt failed.
    Discarded {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u32,
    },
}

/// A subscription to a tree.
pub struct RunEvents {
    receiver: mpsc::UnboundedReceiver<RunEvent>,
    backlog: Arc<AtomicUsize>,
}

impl RunEvents {
    /// The next thing that happens; `None` when the run is over.
    pub async fn next(&mut self) -> Option<RunEvent> {
        let event = self.receiver.recv().await;
        if event.is_some() {
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
        event
    }

    /// What has happened already and was not looked at yet.
    pub fn try_next(&mut self) -> Option<RunEvent> {
        let event = self.receiver.try_recv().ok();
        if event.is_some() {
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
        event
    }
}

struct Subscriber {
    sender: mpsc::UnboundedSender<RunEvent>,
    backlog: Arc<AtomicUsize>,
}

#[derive(Default)]
pub(crate) struct Subscribers {
    list: Mutex<Vec<Subscriber>>,
    count: AtomicUsize,
}

impl Subscribers {
    pub(crate) fn subscribe(&self) -> RunEvents {
        let (sender, receiver) = mpsc::unbounded_channel();
        let backlog = Arc::new(AtomicUsize::new(0));
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(Subscriber { sender, backlog: backlog.clone() });
        self.count.store(list.len(), Ordering::Relaxed);
        RunEvents { receiver, backlog }
    }

    /// Whether somebody watches: nothing is prepared for nobody.
    pub(crate) fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn send(&self, event: RunEvent) {
        if !self.has_any() {
            return;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|subscriber| {
            let provisional = matches!(event, RunEvent::Delta { .. } | RunEvent::Waiting { .. });
            if provisional && subscriber.backlog.load(Ordering::Relaxed) > MAX_DELTA_BACKLOG {
                return true;
            }
            subscriber.backlog.fetch_add(1, Ordering::Relaxed);
            subscriber.sender.send(event.clone()).is_ok()
        });
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&self) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.count.store(0, Ordering::Relaxed);
    }
}
