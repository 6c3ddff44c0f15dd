//! Delivery of appends to the followers in this process.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use brigade_core::{Event, Record, SessionId};
use futures::task::AtomicWaker;

use super::Appended;
use crate::event_stream::RunEvent;

/// Number of undelivered items beyond which a follower loses deltas, and reads records from the store instead.
const MAX_BACKLOG: usize = 4096;

/// Followers of the trees of a store, in this process. Clones share the same followers.
///
/// # Contract
///
/// A store has one value and returns it from [`Store::followers`](super::Store::followers).
///
/// * After each commit of its own, it calls [`Followers::appended`] for each append, in the order of the positions and
///   before the append returns.
/// * If events may have been written otherwise, by another process or by a restore, it calls [`Followers::changed`]. It
///   does so before it calls `appended` for an event with a later position in the same tree. Followers then read the
///   store.
/// * A store that does not know the order may call `changed` for every append instead.
#[derive(Debug, Clone, Default)]
pub struct Followers(Arc<Registry>);

#[derive(Debug, Default)]
struct Registry {
    count: AtomicUsize,
    /// Queues by the root of the tree.
    queues: Mutex<HashMap<SessionId, Vec<Arc<Queue>>>>,
}

impl Followers {
    /// Delivers the events of an append. Costs nothing if there is no follower.
    pub fn appended(&self, session: &SessionId, appended: Appended, at: u64, events: &Arc<Vec<Event>>) {
        if events.is_empty() {
            return;
        }
        self.each(session, |queue| {
            let (session, events) = (session.clone(), events.clone());
            queue.push_append(CommittedAppend { session, appended, at, events });
        });
    }

    /// Tells all followers that the store may contain events that [`Followers::appended`] was not called for.
    pub fn changed(&self) {
        if self.has_any() {
            self.queues().values().flatten().for_each(|queue| queue.push_changed());
        }
    }

    /// Delivers an event that is not stored.
    pub(crate) fn send_live(&self, event: RunEvent) {
        let session = event.session().clone();
        self.each(&session, |queue| queue.push_live(event.clone()));
    }

    /// Whether the events of a session have a follower. Without one, no delta is prepared.
    pub(crate) fn has(&self, session: &SessionId) -> bool {
        let mut has_follower = false;
        self.each(session, |_| has_follower = true);
        has_follower
    }

    /// Adds a follower of a session and its descendants. A commit after this call is delivered.
    pub(crate) fn subscribe(&self, root: &SessionId) -> Subscription {
        let queue =
            Arc::new(Queue { root: root.clone(), state: Mutex::default(), waker: AtomicWaker::new() });
        self.queues().entry(root.root_id()).or_default().push(queue.clone());
        self.0.count.fetch_add(1, Ordering::SeqCst);
        Subscription { followers: self.clone(), queue }
    }

    fn has_any(&self) -> bool {
        self.0.count.load(Ordering::SeqCst) > 0
    }

    fn each(&self, session: &SessionId, mut deliver: impl FnMut(&Queue)) {
        if !self.has_any() {
            return;
        }
        let queues = self.queues();
        let of_tree = queues.get(session.root_str()).into_iter().flatten();
        of_tree.filter(|queue| queue.root.contains(session)).for_each(|queue| deliver(queue));
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<SessionId, Vec<Arc<Queue>>>> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unsubscribe(&self, queue: &Arc<Queue>) {
        let mut queues = self.queues();
        if let Some(of_tree) = queues.get_mut(queue.root.root_str()) {
            of_tree.retain(|other| !Arc::ptr_eq(other, queue));
            if of_tree.is_empty() {
                queues.remove(queue.root.root_str());
            }
        }
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Events of one append that was committed.
#[derive(Debug)]
pub(crate) struct CommittedAppend {
    session: SessionId,
    appended: Appended,
    at: u64,
    events: Arc<Vec<Event>>,
}

impl CommittedAppend {
    pub(crate) fn into_records(self) -> impl Iterator<Item = Record> {
        self.appended.records(self.session, self.at, self.events)
    }
}

/// Undelivered item of a follower.
#[derive(Debug)]
pub(crate) enum Item {
    /// Events of this process, which come next in the tree unless the follower has them already.
    Appended(CommittedAppend),
    /// The store has to be read.
    Changed,
    /// An event that is not stored.
    Live(RunEvent),
}

/// Undelivered items of one follower.
#[derive(Debug)]
pub(crate) struct Queue {
    root: SessionId,
    state: Mutex<QueueState>,
    waker: AtomicWaker,
}

#[derive(Debug, Default)]
struct QueueState {
    items: VecDeque<Item>,
    /// Whether appends were left out. The queue then contains [`Item::Changed`].
    is_behind: bool,
    is_closed: bool,
}

impl Queue {
    fn push_append(&self, append: CommittedAppend) {
        self.push(|state| {
            if state.items.len() < MAX_BACKLOG {
                state.items.push_back(Item::Appended(append));
            } else if !state.is_behind {
                state.is_behind = true;
                state.items.push_back(Item::Changed);
            }
        });
    }

    fn push_changed(&self) {
        self.push(|state| {
            if !matches!(state.items.back(), Some(Item::Changed)) {
                state.items.push_back(Item::Changed);
            }
        });
    }

    fn push_live(&self, event: RunEvent) {
        let is_provisional = matches!(event, RunEvent::Delta { .. } | RunEvent::Waiting { .. });
        self.push(|state| {
            if !is_provisional || state.items.len() < MAX_BACKLOG {
                state.items.push_back(Item::Live(event));
            }
        });
    }

    fn push(&self, add: impl FnOnce(&mut QueueState)) {
        let mut state = self.state();
        if !state.is_closed {
            add(&mut state);
            drop(state);
            self.waker.wake();
        }
    }

    /// Ends the queue. What it contains is still delivered.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.waker.wake();
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A follower's end of its queue. Dropping it removes the follower.
#[derive(Debug)]
pub(crate) struct Subscription {
    followers: Followers,
    pub(crate) queue: Arc<Queue>,
}

impl Subscription {
    pub(crate) fn root(&self) -> &SessionId {
        &self.queue.root
    }

    /// Takes the next item. Returns none after the queue was closed.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Item>> {
        self.queue.waker.register(context.waker());
        let mut state = self.queue.state();
        let item = state.items.pop_front();
        if matches!(item, Some(Item::Changed)) {
            // Everything that was left out is in the store, which the follower reads next.
            state.is_behind = false;
        }
        if item.is_none() && !state.is_closed { Poll::Pending } else { Poll::Ready(item) }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.followers.unsubscribe(&self.queue);
    }
}
