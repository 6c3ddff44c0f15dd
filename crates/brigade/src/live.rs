//! What can be watched while a tree runs: facts once they are durable, and provisional deltas that are never stored.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::{Record, SessionId};
use tokio::sync::mpsc;

/// Deltas are dropped for a watcher that is this far behind; facts never are.
const BACKLOG: usize = 4096;

/// Something that happened just now.
#[derive(Debug, Clone)]
pub enum Live {
    /// A fact, after it became durable.
    Fact(Arc<Record>),
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
pub struct Watch {
    receiver: mpsc::UnboundedReceiver<Live>,
    backlog: Arc<AtomicUsize>,
}

impl Watch {
    /// The next thing that happens; `None` when the run is over.
    pub async fn next(&mut self) -> Option<Live> {
        let live = self.receiver.recv().await;
        if live.is_some() {
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
        live
    }

    /// What has happened already and was not looked at yet.
    pub fn try_next(&mut self) -> Option<Live> {
        let live = self.receiver.try_recv().ok();
        if live.is_some() {
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
        live
    }
}

struct Watcher {
    sender: mpsc::UnboundedSender<Live>,
    backlog: Arc<AtomicUsize>,
}

#[derive(Default)]
pub(crate) struct Watchers {
    list: Mutex<Vec<Watcher>>,
    count: AtomicUsize,
}

impl Watchers {
    pub(crate) fn subscribe(&self) -> Watch {
        let (sender, receiver) = mpsc::unbounded_channel();
        let backlog = Arc::new(AtomicUsize::new(0));
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(Watcher { sender, backlog: backlog.clone() });
        self.count.store(list.len(), Ordering::Relaxed);
        Watch { receiver, backlog }
    }

    /// Whether somebody watches: nothing is prepared for nobody.
    pub(crate) fn are_there(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn send(&self, live: Live) {
        if !self.are_there() {
            return;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|watcher| {
            let provisional = matches!(live, Live::Delta { .. } | Live::Waiting { .. });
            if provisional && watcher.backlog.load(Ordering::Relaxed) > BACKLOG {
                return true;
            }
            watcher.backlog.fetch_add(1, Ordering::Relaxed);
            watcher.sender.send(live.clone()).is_ok()
        });
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&self) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.count.store(0, Ordering::Relaxed);
    }
}
