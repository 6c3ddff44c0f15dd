//! Storage of session logs. The store is also the message bus: a message to a session is an append to its log.

pub mod memory;
#[cfg(feature = "store-testing")]
pub mod testing;

#[cfg(feature = "store-kit")]
pub mod backend;
#[cfg(not(feature = "store-kit"))]
#[expect(dead_code, unreachable_pub, unused_imports, reason = "public with the feature `store-kit`")]
mod backend;
mod blocker;
mod export;
pub(crate) mod followers;
mod owner;
pub mod retry;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use brigade_core::{Cursor, Event, Hash, Record, SessionId, Status};
use futures::future::BoxFuture;
use tokio::sync::watch;

pub use backend::{DecodeError, Totals};
pub use blocker::{Blocker, BlockerState};
pub use export::{ImportError, ImportReport, ImportedRound, PendingCall, Truncation, export, import};
pub use followers::Followers;
pub use memory::MemoryStore;
pub use owner::{Liveness, Owner};

/// Records of a session up to the first unreadable one, and the error of that one.
pub type Prefix = (Vec<Record>, Option<StoreError>);

/// Usage of a tree, or the error that occurred while reading it.
pub type TreeTotals = Result<Totals, StoreError>;

/// Precondition of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The log has exactly this many events, so that the first new one gets this `seq`.
    Length(u64),
    /// The session exists. Only external events may be appended this way.
    Exists,
}

impl Expect {
    /// Fails unless a log with this many events meets the precondition.
    pub fn check(self, session: &SessionId, length: u64) -> Result<(), StoreError> {
        match self {
            Expect::Length(expected) if expected != length => {
                Err(StoreError::Conflict { session: session.clone(), expected, actual: length })
            }
            Expect::Exists if length == 0 => Err(StoreError::UnknownSession(session.clone())),
            Expect::Length(_) | Expect::Exists => Ok(()),
        }
    }
}

/// Events to append to one session atomically.
#[derive(Debug, Clone)]
pub struct Append {
    /// The session.
    pub session: SessionId,
    /// Precondition on its log.
    pub expect: Expect,
    /// The events.
    pub events: Arc<Vec<Event>>,
    /// Definitions that the events refer to by hash. New ones are written in the same transaction.
    pub blobs: Vec<Arc<str>>,
    /// Lease of the tree. `None` only for external events.
    pub lease: Option<Lease>,
    /// Time of the append in UTC milliseconds.
    pub at: u64,
}

/// Place of appended events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// `seq` of the first event.
    pub first_seq: u64,
    /// Position of the first event. The events of one append have consecutive numbers.
    pub first_pos: Cursor,
}

impl Appended {
    /// Position of an event of the append, counted from 0.
    pub fn pos(&self, nth: u64) -> Cursor {
        Cursor::new(self.first_pos.number() + nth)
    }
}

/// Exclusive right to run one tree. A later lease of the same tree has a higher epoch and fences this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Root session of the tree.
    pub root: SessionId,
    /// Increases with every lease of this tree.
    pub epoch: u64,
    /// When the tree last ran before this lease, in UTC milliseconds.
    pub last_run: Option<u64>,
}

/// A tree in a listing. An unreadable tree is listed with its error, so that it does not hide the others.
#[derive(Debug, Clone, PartialEq)]
pub struct RootSummary {
    /// Root session.
    pub root: SessionId,
    /// First event: the task and the agent.
    pub first: Result<Record, StoreError>,
    /// Last event of the root session. This is its end, if it has ended.
    pub last: Result<Record, StoreError>,
    /// Process that runs the tree now, if any.
    pub runner: Option<Owner>,
}

/// Error of a store operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another writer appended first. Read the missed events, fold them, and retry what is still valid.
    #[error("cannot append to session {session}: its length is {actual}, but {expected} was expected")]
    Conflict {
        /// The session.
        session: SessionId,
        /// Expected number of events.
        expected: u64,
        /// Actual number of events.
        actual: u64,
    },
    /// Another runner has taken over the tree.
    #[error("cannot continue {root}: another process has taken it over")]
    Fenced {
        /// The tree.
        root: SessionId,
        /// The epoch that has ended.
        epoch: u64,
    },
    /// A live runner holds the tree.
    #[error("{root} is running in {owner}")]
    Held {
        /// The tree.
        root: SessionId,
        /// The process that holds it.
        owner: Owner,
    },
    /// The event is not an external one, so it needs a lease and an expected length.
    #[error(
        "cannot append `{kind}` to session {session}: the event requires the session's lease and an expected length"
    )]
    LeaseRequired {
        /// The session.
        session: SessionId,
        /// The kind of the event.
        kind: &'static str,
    },
    /// A session to restore already exists with other content.
    #[error("cannot import session {session}: the store already has it, and record {seq} differs")]
    Differs {
        /// The session.
        session: SessionId,
        /// The first record that differs.
        seq: u64,
    },
    /// The session does not exist.
    #[error("session {0} does not exist")]
    UnknownSession(SessionId),
    /// A record is damaged.
    #[error(
        "cannot read session {session}: record {seq} is damaged ({cause}). The records before it are intact"
    )]
    Damaged {
        /// The session.
        session: SessionId,
        /// The record.
        seq: u64,
        /// Cause of the damage.
        cause: String,
    },
    /// A record is missing.
    #[error("cannot read session {session}: record {seq} is missing. The records before it are intact")]
    MissingRecord {
        /// The session.
        session: SessionId,
        /// The first missing record.
        seq: u64,
    },
    /// A session is missing.
    #[error("session {child} is missing: {parent} delegated to it, but the store does not contain it")]
    MissingSession {
        /// The session.
        child: SessionId,
        /// The session that delegated to it.
        parent: SessionId,
    },
    /// A newer version wrote the session, so this version can only read it.
    #[error("cannot run session {session}: a newer version of Brigade wrote it (record {seq}: {what})")]
    Newer {
        /// The session.
        session: SessionId,
        /// The record.
        seq: u64,
        /// The feature that this version does not know.
        what: String,
    },
    /// A newer version wrote the store.
    #[error(
        "cannot open the store {place}: its format is {found}, and this version supports formats up to {known}"
    )]
    NewerStore {
        /// Path of the store.
        place: String,
        /// Format of the store.
        found: u32,
        /// Newest format that this version knows.
        known: u32,
    },
    /// The disk is full.
    #[error("cannot write to {place}: the disk is full")]
    Full {
        /// Path of the store.
        place: String,
    },
    /// The store cannot be written.
    #[error("cannot write to {place}: {cause}")]
    ReadOnly {
        /// Path of the store.
        place: String,
        /// Cause of the failure.
        cause: String,
    },
    /// Another process holds the lock of the store.
    #[error("cannot write to the store {place}: {} holds the lock", blocker_name(by.as_ref()))]
    Locked {
        /// Path of the store.
        place: String,
        /// The process, if it can be determined.
        by: Option<Blocker>,
    },
    /// The store cannot be reached now. Nothing was written.
    #[error("cannot reach the store {place}: {cause}")]
    Unavailable {
        /// Address of the store.
        place: String,
        /// Cause of the failure.
        cause: String,
        /// Time after which another attempt may succeed. None if only a change outside the store helps.
        retry: Option<Duration>,
    },
    /// The store cannot tell whether an append took effect, for example after a lost connection. Read the log of the
    /// session from `seq` to find out. The append may still take effect later, until another event has this `seq`.
    #[error("cannot tell whether record {seq} of session {session} was written")]
    OutcomeUnknown {
        /// The session.
        session: SessionId,
        /// `seq` that the first event of the append has, if it took effect.
        seq: u64,
    },
    /// Another failure of the store.
    #[error("cannot use {place}: {cause}")]
    Broken {
        /// Path of the store.
        place: String,
        /// Kind of the failure.
        kind: BrokenKind,
        /// Cause of the failure.
        cause: String,
    },
    /// The store was closed, or stopped on purpose in a test.
    #[error("the store is closed")]
    Closed,
}

/// Kind of a failure that makes a store unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenKind {
    /// The file belongs to another program.
    Foreign,
    /// The file is not a store, or its header is damaged.
    NotAStore,
    /// The format number of the file is damaged.
    Format,
    /// The file is damaged.
    Corrupt,
    /// The disk failed, or is full.
    Disk,
    /// Any other failure.
    Other,
}

/// A child session that has returned to its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnedChild {
    /// The session.
    pub session: SessionId,
    /// Position of the delegation. All events of the child are after it.
    pub after: Cursor,
}

/// Delegations and returns in the records of a tree, collected page by page.
#[derive(Debug, Clone, Default)]
pub struct Loans {
    delegated: HashMap<SessionId, Cursor>,
    returned: BTreeSet<SessionId>,
}

impl Loans {
    /// Adds records.
    pub fn take(&mut self, records: &[Record]) {
        for record in records {
            match &record.event {
                Event::Delegated { child, .. } => {
                    self.delegated.entry(child.clone()).or_insert(record.pos);
                }
                // A lost child may never have started.
                Event::Returned { child, outcome, .. } if !matches!(outcome.status, Status::Lost { .. }) => {
                    self.returned.insert(child.clone());
                }
                _ => {}
            }
        }
    }

    /// Children that have returned.
    pub fn returned(&self) -> Vec<ReturnedChild> {
        let child = |session: &SessionId| {
            let after = *self.delegated.get(session)?;
            Some(ReturnedChild { session: session.clone(), after })
        };
        self.returned.iter().filter_map(child).collect()
    }
}

impl ReturnedChild {
    /// Children that have returned according to these records.
    pub fn returned(records: &[Record]) -> Vec<ReturnedChild> {
        let mut loans = Loans::default();
        loans.take(records);
        loans.returned()
    }

    /// Error for a missing child.
    pub fn missing(&self) -> StoreError {
        let parent = self.session.parent().unwrap_or_else(|| self.session.clone());
        StoreError::MissingSession { child: self.session.clone(), parent }
    }
}

fn blocker_name(by: Option<&Blocker>) -> String {
    by.map_or_else(|| "an unknown process".to_owned(), Blocker::to_string)
}

/// Storage of all session logs.
///
/// # Contract
///
/// * An append is atomic: after a crash either all of its events are present or none. When it returns, they are durable.
/// * `seq` is dense per session from 0. `pos` increases in every tree and is never assigned again in that tree. A
///   reader of a tree that has seen a position has seen all events of the tree before it. Positions of different trees
///   need not be comparable.
/// * An append with a lease succeeds only while that lease is the latest of its tree, checked in the same transaction.
/// * An append without a lease contains only external events.
/// * A write may begin as soon as its method is called. If its future is dropped early, the write may or may not happen.
/// * Reading stops with an error at the first record that is damaged, missing or unknown to this version.
///   [`Store::read_prefix`] returns the records before it.
pub trait Store: Send + Sync + 'static {
    /// Appends events.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>>;

    /// Returns the events of a session starting at `from`, or none if the session does not exist.
    fn read(&self, session: &SessionId, from: u64) -> BoxFuture<'_, Result<Vec<Record>, StoreError>>;

    /// Returns the events of a session up to the first unreadable one, and the error of that one.
    fn read_prefix(&self, session: &SessionId) -> BoxFuture<'_, Result<Prefix, StoreError>>;

    /// Whether a position is after another one of the same tree. Nothing but a store compares positions.
    fn is_after(&self, position: Cursor, other: Cursor) -> bool {
        position.number() > other.number()
    }

    /// Returns up to `limit` events of a session and its descendants after a position, in store order. Events
    /// before an unreadable one are returned without an error. The next call, starting after them, returns the
    /// error.
    fn tail(
        &self,
        root: &SessionId,
        after: Cursor,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, StoreError>>;

    /// Verifies that the store has lost nothing of a session and its descendants: no event, and none of
    /// `children`, which have returned according to the log. A removed child is not lost. A read without an error
    /// is complete only if this succeeds, because the end of a log can be lost without a gap.
    fn verify(&self, root: &SessionId, children: Vec<ReturnedChild>)
    -> BoxFuture<'_, Result<(), StoreError>>;

    /// Returns the places of external events in a tree after a position, without their content.
    fn external_events(
        &self,
        root: &SessionId,
        after: Cursor,
    ) -> BoxFuture<'_, Result<Vec<(SessionId, Cursor)>, StoreError>>;

    /// Changes whenever an append without a lease, or by another process, may have happened. Appends of other processes
    /// are detected at least while a receiver exists.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Returns the followers of this store in this process. The store tells them of its commits, as their contract says.
    fn followers(&self) -> &Followers;

    /// Runs `work` while this store commits nothing, for example to stop the process. A process that is stopped
    /// during a commit would block all other writers.
    fn between_commits(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Takes the lease of a tree. A dead holder on the same host is replaced at once, one on another host after
    /// 30 seconds without a renewal. A live holder is an error.
    fn lease(&self, root: &SessionId, owner: &Owner, at: u64) -> BoxFuture<'_, Result<Lease, StoreError>>;

    /// Renews a lease.
    fn renew(&self, lease: &Lease, at: u64) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Releases a lease.
    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Returns the process that runs the tree of this root now, if any. Costs the same however many trees there are.
    fn runner(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Owner>, StoreError>>;

    /// Lists the root sessions of all trees, newest first by the time of their first event.
    fn roots(&self) -> BoxFuture<'_, Result<Vec<RootSummary>, StoreError>>;

    /// Returns the usage of trees by root session, in the requested order. An unreadable tree does not affect the
    /// others.
    fn totals(&self, roots: Vec<SessionId>) -> BoxFuture<'_, Result<Vec<TreeTotals>, StoreError>>;

    /// Returns the ids of a session and its descendants.
    fn sessions(&self, root: &SessionId) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>>;

    /// Removes a session and its descendants, except descendants that were resumed on their own and so have their
    /// own lease. A running tree cannot be removed.
    fn remove(&self, root: &SessionId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Returns a definition by its hash.
    fn blob(&self, hash: Hash) -> BoxFuture<'_, Result<Option<Arc<str>>, StoreError>>;

    /// Whether an agent left this content in a file. Edits of all sessions in this store count, including removed
    /// ones.
    fn has_edit(&self, content: Hash) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Writes events from another store. `session`, `seq`, `at` and `v` are kept, and `pos` is assigned in the
    /// given order. Existing events must be identical. The write is atomic and returns the number of new events.
    /// The tree is marked as imported in the same transaction.
    fn restore(&self, records: Vec<Record>, blobs: Vec<Arc<str>>) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Returns the position of the last record that [`Store::restore`] added to the tree of this root, if any.
    /// Records up to there grant no authority.
    fn imported(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Cursor>, StoreError>>;
}
