//! Event stream of a running tree: events once they are durable, and provisional deltas that are never stored.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use brigade_core::{Cursor, Record, SessionId};
use futures::{FutureExt, Stream};

use crate::follow::Follow;
use crate::store::followers::Queue;

/// Event of a run: a durable event of the log, or a provisional one.
///
/// A [`RunEvent::Record`] contains an [`Event`](brigade_core::Event), the session that it belongs to, and its time.
///
/// ```
/// # mod brigade { pub use {brigade_base::event_stream::RunEvent, brigade_core::Event}; }
/// use brigade::{Event, RunEvent};
///
/// fn line(event: &RunEvent) -> Option<String> {
///     match event {
///         RunEvent::Delta { text, .. } => Some(text.to_string()),
///         RunEvent::Waiting { why, .. } => Some(format!("waiting: {why}")),
///         RunEvent::Discarded { .. } => None,
///         RunEvent::Record(record) => match &record.event {
///             Event::Said { text, .. } => Some(format!("message: {text}")),
///             Event::Delegated { child, delegation, .. } => Some(format!("{child} starts: {}", delegation.task)),
///             Event::Asked { what, .. } => Some(format!("approval needed: {what}")),
///             Event::Ended { outcome, .. } => Some(format!("{} ended: {}", record.session, outcome.status.as_str())),
///             _ => None,
///         },
///     }
/// }
/// ```
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

impl RunEvent {
    /// Returns the session of the event.
    pub fn session(&self) -> &SessionId {
        match self {
            RunEvent::Record(record) => &record.session,
            RunEvent::Delta { session, .. }
            | RunEvent::Waiting { session, .. }
            | RunEvent::Discarded { session, .. } => session,
        }
    }
}

/// Events of a run: a [`Stream`] like [`Follow`] that ends when the run is over.
///
/// If the store cannot be read, the records of other processes are left out. The result of the run has the error.
pub struct RunEvents {
    /// None once the stream has ended.
    follow: Option<Follow>,
    /// First event, if it was awaited but not yet delivered.
    first: Option<RunEvent>,
}

impl RunEvents {
    /// Stream without events.
    pub fn ended() -> RunEvents {
        RunEvents { follow: None, first: None }
    }

    /// Waits for the next event. Returns `None` when the run is over.
    pub async fn next(&mut self) -> Option<RunEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Returns the next event if one is already queued.
    pub fn try_next(&mut self) -> Option<RunEvent> {
        self.next().now_or_never().flatten()
    }

    /// Waits until there is an event to deliver. Returns false if the run ends without one.
    pub async fn wait_for_first(&mut self) -> bool {
        self.first = self.next().await;
        self.first.is_some()
    }

    /// Whether the first event of the run was not delivered yet.
    pub fn is_unread(&self) -> bool {
        self.first.is_some()
    }

    /// Continues after another position, also of earlier events.
    pub fn rewind(&mut self, cursor: Cursor) {
        // If it is after the position, it is read again.
        self.first.take_if(|first| matches!(first, RunEvent::Record(_)));
        if let Some(follow) = &mut self.follow {
            follow.rewind(cursor);
        }
    }

    /// Discards all events.
    pub fn close(&mut self) {
        *self = RunEvents::ended();
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        loop {
            let Some(follow) = &mut self.follow else { return Poll::Ready(None) };
            match ready!(follow.poll(context)) {
                Some(Ok(event)) => return Poll::Ready(Some(event)),
                Some(Err(_)) => follow.skip_read(),
                None => self.follow = None,
            }
        }
    }
}

impl Stream for RunEvents {
    type Item = RunEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        self.poll(context)
    }
}

/// Streams that end with a run.
#[derive(Default)]
pub struct RunStreams(Mutex<RunState>);

enum RunState {
    Running(Vec<Weak<Queue>>),
    Ended,
}

impl Default for RunState {
    fn default() -> RunState {
        RunState::Running(Vec::new())
    }
}

impl RunStreams {
    /// Turns a follower into a stream that ends with the run.
    pub fn add(&self, follow: Follow) -> RunEvents {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            RunState::Running(queues) => queues.push(follow.queue()),
            RunState::Ended => close(&follow.queue()),
        }
        RunEvents { follow: Some(follow), first: None }
    }

    /// Ends all streams.
    pub fn end(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let RunState::Running(queues) = std::mem::replace(&mut *state, RunState::Ended) {
            queues.iter().for_each(close);
        }
    }
}

fn close(queue: &Weak<Queue>) {
    if let Some(queue) = queue.upgrade() {
        queue.close();
    }
}
