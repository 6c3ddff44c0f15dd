//! Following a tree: its records in order and without gaps, whichever process runs it.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use brigade_core::{Cursor, Event, Record, SessionId};
use futures::Stream;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::event_stream::RunEvent;
use crate::store::followers::{CommittedAppend, Item, Queue, Subscription};
use crate::store::{Store, StoreError, retry};

/// Number of records in a page that is read from the store.
const PAGE_RECORDS: usize = 1_000;

/// Records of a session and its descendants after a position, and the live events of those that this process runs.
///
/// Every record is delivered once, in the order of the store. Records that this process writes are delivered from memory;
/// those of other processes, and those of a follower that is too slow, are read from the store. Deltas and other live
/// events come only from trees that this process runs. A delta never comes after the reply that contains it.
///
/// The stream does not end, since a session can always have another round. After an error the next call reads again from
/// the same position.
#[must_use = "a stream does nothing unless it is read"]
pub struct Follow {
    store: Arc<dyn Store>,
    subscription: Subscription,
    /// While it exists, the store detects appends of other processes.
    _changes: watch::Receiver<u64>,
    cursor: Cursor,
    read: ReadState,
    /// Records that come next.
    ready: VecDeque<Record>,
    /// Turns whose replies were read from the store. Their deltas may still be in the queue.
    replied_turns: HashMap<SessionId, u32>,
}

type Page = Result<Vec<Record>, StoreError>;

enum ReadState {
    /// All records before the next item of the queue were delivered.
    Complete,
    Due,
    /// The mutex only makes the stream `Sync`. It is never locked.
    Reading(Mutex<BoxFuture<'static, Page>>),
}

impl Follow {
    /// Follows a session and its descendants after a position. [`Cursor::START`] is before the first record. A session
    /// that does not exist yet is waited for.
    pub fn new(store: Arc<dyn Store>, session: &SessionId, after: Cursor) -> Follow {
        let follow = Follow::from_now(store, session, after);
        Follow { read: ReadState::Due, ..follow }
    }

    /// Follows from now on. `cursor` is a position at or before the end of the tree.
    pub fn from_now(store: Arc<dyn Store>, root: &SessionId, cursor: Cursor) -> Follow {
        let (subscription, changes) = (store.followers().subscribe(root), store.changes());
        let (ready, replied_turns) = (VecDeque::new(), HashMap::new());
        Follow {
            store,
            subscription,
            _changes: changes,
            cursor,
            read: ReadState::Complete,
            ready,
            replied_turns,
        }
    }

    /// Returns the position of the last record that was delivered. [`Follow::new`] continues
    /// after it.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Waits for the next event. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<RunEvent, StoreError> {
        let next = std::future::poll_fn(|context| self.poll(context)).await;
        // Only the stream of a run is closed.
        next.unwrap_or(Err(StoreError::Closed))
    }

    /// Returns the queue, whose end is the end of the stream.
    pub(crate) fn queue(&self) -> Weak<Queue> {
        Arc::downgrade(&self.subscription.queue)
    }

    /// Continues after another position, also of records that were delivered.
    pub(crate) fn rewind(&mut self, cursor: Cursor) {
        (self.cursor, self.read) = (cursor, ReadState::Due);
        self.ready.clear();
    }

    /// Continues with what is in memory, although the store could not be read.
    pub(crate) fn skip_read(&mut self) {
        self.read = ReadState::Complete;
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RunEvent, StoreError>>> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                self.cursor = record.pos;
                return Poll::Ready(Some(Ok(RunEvent::Record(Arc::new(record)))));
            }
            match &mut self.read {
                ReadState::Complete => match ready!(self.poll_queue(context)) {
                    None => return Poll::Ready(None),
                    Some(Item::Appended(append)) => self.take_append(append),
                    Some(Item::Changed) => self.read = ReadState::Due,
                    Some(Item::Live(event)) if self.is_outdated(&event) => {}
                    Some(Item::Live(event)) => return Poll::Ready(Some(Ok(event))),
                },
                ReadState::Due => self.read = ReadState::Reading(Mutex::new(self.read_page())),
                ReadState::Reading(page) => {
                    let page = page.get_mut().unwrap_or_else(PoisonError::into_inner);
                    let page = ready!(page.as_mut().poll(context));
                    self.read = ReadState::Due;
                    match page {
                        Ok(records) => self.take_page(records),
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
            }
        }
    }

    fn poll_queue(&mut self, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let item = self.subscription.poll(context);
        if item.is_pending() {
            // Deltas that are sent from now on belong to later turns.
            self.replied_turns.clear();
        }
        item
    }

    fn read_page(&self) -> BoxFuture<'static, Page> {
        let (store, root, cursor) = (self.store.clone(), self.subscription.root().clone(), self.cursor);
        Box::pin(async move { retry::while_unavailable(|| store.tail(&root, cursor, PAGE_RECORDS)).await })
    }

    /// Takes a page of the store. Only an empty one is the last, because a page also ends before a damaged record.
    fn take_page(&mut self, records: Vec<Record>) {
        if records.is_empty() {
            self.read = ReadState::Complete;
        }
        for record in &records {
            if let Event::Replied { turn, .. } = &record.event {
                self.replied_turns.insert(record.session.clone(), *turn);
            }
        }
        self.ready = records.into();
    }

    /// Takes an append of this process, unless it was read from the store before.
    fn take_append(&mut self, append: CommittedAppend) {
        let is_new = |record: &Record| self.store.is_after(record.pos, self.cursor);
        self.ready = append.into_records().filter(is_new).collect();
    }

    /// Whether the reply that contains this delta was already delivered.
    fn is_outdated(&self, event: &RunEvent) -> bool {
        match event {
            RunEvent::Delta { session, turn, .. } | RunEvent::Discarded { session, turn } => {
                self.replied_turns.get(session).is_some_and(|replied| replied >= turn)
            }
            RunEvent::Record(_) | RunEvent::Waiting { .. } => false,
        }
    }
}

impl Stream for Follow {
    type Item = Result<RunEvent, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}
