//! Event stream of a running tree: events once they are durable, and provisional deltas that are never stored.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use brigade_core::{Record, SessionId};
use futures::Stream;
use tokio::sync::mpsc;

/// Number of undelivered events beyond which a subscriber loses deltas. Durable events are never dropped.
const MAX_DELTA_BACKLOG: usize = 4096;

/// Run event.
#[derive(Debug, Clone)]
pub enum RunEvent {
    /// A durable event.
    Record(Arc<Record>),
    /// More text of an incomplete reply.
    Delta {
        /// The session.
        session: SessionId,
        /// The turn of the reply.
        turn: u32,
        /// The new text.
        text: Arc<str>,
    },
    /// A request waits for its provider, or a call reports its progress.
    Waiting {
        /// The session.
        session: SessionId,
        /// Reason for the wait, or the progress.
        why: String,
    },
    /// The attempt failed, so the deltas of this turn are void.
    Discarded {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u32,
    },
}

/// Subscription to a tree: a [`Stream`] that ends when the run is over.
pub struct RunEvents {
    receiver: mpsc::UnboundedReceiver<RunEvent>,
    backlog: Arc<AtomicUsize>,
    /// First event, if it was awaited but not yet delivered.
    first: Option<RunEvent>,
}

impl RunEvents {
    /// Stream without events.
    pub(crate) fn ended() -> RunEvents {
        RunEvents { receiver: mpsc::unbounded_channel().1, backlog: Arc::default(), first: None }
    }

    /// Waits for the next event. Returns `None` when the run is over.
    pub async fn next(&mut self) -> Option<RunEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Returns the next event if one is already queued.
    pub fn try_next(&mut self) -> Option<RunEvent> {
        let event = self.first.take().or_else(|| self.receiver.try_recv().ok())?;
        self.backlog.fetch_sub(1, Ordering::Relaxed);
        Some(event)
    }

    /// Waits until there is an event to deliver. Returns false if the run ends without one.
    pub(crate) async fn wait_for_first(&mut self) -> bool {
        if self.first.is_none() {
            self.first = self.receiver.recv().await;
        }
        self.first.is_some()
    }

    /// Discards all events.
    pub(crate) fn close(&mut self) {
        self.receiver.close();
        while self.try_next().is_some() {}
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        let event = match self.first.take() {
            Some(first) => Some(first),
            None => std::task::ready!(self.receiver.poll_recv(context)),
        };
        if event.is_some() {
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
        Poll::Ready(event)
    }
}

impl Stream for RunEvents {
    type Item = RunEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        self.poll(context)
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
        RunEvents { receiver, backlog, first: None }
    }

    /// Whether there is a subscriber. Without one, no event is prepared.
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
