//! Where logs are kept. The store is also the bus: whoever wants to say something to a session appends it.

pub mod memory;
pub mod sqlite;

mod blocker;
mod codec;
mod export;
mod lease;
mod owner;
mod totals;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use brigade_core::{Event, Hash, Record, SessionId, Status};
use futures::future::BoxFuture;
use tokio::sync::watch;

pub use blocker::{Blocker, BlockerState};
pub use codec::DecodeError;
pub use export::{ImportError, ImportReport, ImportedRound, PendingCall, Truncation, export, import};
pub use memory::MemoryStore;
pub use owner::{Liveness, Owner};
pub use sqlite::{HealthCheck, Integrity, SqliteStore};
pub use totals::Totals;

/// A place in the store: increasing, with gaps.
pub type Pos = u64;

/// The records of a session up to the first that cannot be read, and why it can't.
pub type Prefix = (Vec<Record>, Option<StoreError>);

/// What a tree has used up, or why that cannot be read.
pub type TreeTotals = Result<Totals, StoreError>;

/// What the log of a session has to look like for an append to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It has exactly this many facts, so that the first new one gets this `seq`.
    Length(u64),
    /// It exists. Only outside words may be appended blindly.
    Exists,
}

/// Facts to append to one session, all or none.
#[derive(Debug, Clone)]
pub struct Append {
    /// The session.
    pub session: SessionId,
    /// What its log has to look like.
    pub expect: Expect,
    /// The facts.
    pub events: Arc<Vec<Event>>,
    /// Definitions that the facts name by hash: written in the same transaction, where they are new.
    pub blobs: Vec<Arc<str>>,
    /// The right to run the tree. `None` only for outside words.
    pub lease: Option<Lease>,
    /// When it happens, in UTC milliseconds.
    pub at: u64,
}

/// Where appended facts stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The `seq` of the first.
    pub first_seq: u64,
    /// The place of the first; those of one append follow each other without a gap.
    pub first_pos: Pos,
}

/// The right to run one tree. A later lease of the same tree has a higher epoch and fences this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The session at the top of the tree.
    pub root: SessionId,
    /// Increases with every lease of this tree.
    pub epoch: u64,
    /// When the tree was last run before, in UTC milliseconds, where it was.
    pub last_run: Option<u64>,
}

/// A tree in a listing. One that cannot be read is listed all the same, with the reason: it must not hide the others.
#[derive(Debug, Clone, PartialEq)]
pub struct RootSummary {
    /// The session at the top.
    pub root: SessionId,
    /// The first fact: the task and the agent.
    pub first: Result<Record, StoreError>,
    /// The last fact of the top session: its end, if it has one.
    pub last: Result<Record, StoreError>,
    /// Who runs it now, if somebody does.
    pub runner: Option<Owner>,
}

/// Why the store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else appended first. Read what was missed, fold, and try what is still true.
    #[error("session {session} has {actual} facts, not the expected {expected}")]
    Conflict {
        /// The session.
        session: SessionId,
        /// What was expected.
        expected: u64,
        /// What there is.
        actual: u64,
    },
    /// Another runner has taken over the tree.
    #[error("another runner has taken over {root}; this one stops (epoch {epoch} is over)")]
    Fenced {
        /// The tree.
        root: SessionId,
        /// The epoch that is over.
        epoch: u64,
    },
    /// A living runner holds the tree.
    #[error("{root} is being run by {owner}; wait for it, or stop it with `brigade cancel {root}`")]
    Held {
        /// The tree.
        root: SessionId,
        /// Who holds it.
        owner: Owner,
    },
    /// The fact is no outside word, and so needs a lease and an expected length.
    #[error(
        "only the runner of session {session} may append `{kind}` to it, under its lease and at a known length"
    )]
    LeaseRequired {
        /// The session.
        session: SessionId,
        /// The kind of the fact.
        kind: &'static str,
    },
    /// A session that is to be restored is already there, and is another one.
    #[error("session {session} is already in this store and differs at record {seq}; remove it there first")]
    Differs {
        /// The session.
        session: SessionId,
        /// The first record that differs.
        seq: u64,
    },
    /// There is no such session.
    #[error("there is no session {0}; `brigade sessions list` shows those there are")]
    UnknownSession(SessionId),
    /// A record is damaged.
    #[error("session {session}: the record {seq} is damaged ({cause}); the records before it are whole")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The record.
        seq: u64,
        /// What is wrong with it.
        cause: String,
    },
    /// A record is missing.
    #[error("session {session}: the record {seq} is missing; the records before it are whole")]
    MissingRecord {
        /// The session.
        session: SessionId,
        /// The first that is missing.
        seq: u64,
    },
    /// A session is missing.
    #[error(
        "session {child} is missing: {parent} delegated to it, but the store does not contain it. Restore the store from a backup."
    )]
    MissingSession {
        /// The session.
        child: SessionId,
        /// The session that delegated to it.
        parent: SessionId,
    },
    /// The session was written by a newer version and is read-only for this one.
    #[error("session {session} was written by a newer brigade (record {seq}: {what}); upgrade to run it")]
    Newer {
        /// The session.
        session: SessionId,
        /// The record.
        seq: u64,
        /// What this version does not know.
        what: String,
    },
    /// The whole store was made by a newer version.
    #[error(
        "the store {place} has format {found}, and this brigade knows formats up to {known}; upgrade brigade"
    )]
    NewerStore {
        /// Where it is.
        place: String,
        /// Its format.
        found: u32,
        /// The newest that this version knows.
        known: u32,
    },
    /// There is no room.
    #[error("the disk of {place} is full; make room and run `brigade resume`: nothing recorded is lost")]
    Full {
        /// Where.
        place: String,
    },
    /// The store can't be written.
    #[error("{place} cannot be written: {cause}; use --store to name another place")]
    ReadOnly {
        /// Where.
        place: String,
        /// Why.
        cause: String,
    },
    /// Another process keeps the store locked.
    #[error("cannot write to the store {place}: {}", lock_owner_hint(by.as_ref()))]
    Locked {
        /// Where it is.
        place: String,
        /// The process, if it can be seen from here.
        by: Option<Blocker>,
    },
    /// Something else went wrong with the file.
    #[error("the store {place}: {cause}")]
    Broken {
        /// Where.
        place: String,
        /// What.
        cause: String,
    },
    /// The store was closed, or fell over on purpose in a test.
    #[error("the store is closed")]
    Closed,
}

/// Session that another one delegated to and got back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnedChild {
    /// The session.
    pub session: SessionId,
    /// Position of the delegation. All facts of the session are after it.
    pub after: Pos,
}

/// Delegations and returns in the records of a tree, taken page by page.
#[derive(Debug, Clone, Default)]
pub struct Loans {
    delegated: HashMap<SessionId, Pos>,
    returned: BTreeSet<SessionId>,
}

impl Loans {
    /// Takes records into account.
    pub fn take(&mut self, records: &[Record]) {
        for record in records {
            match &record.event {
                Event::Delegated { child, .. } => {
                    self.delegated.entry(child.clone()).or_insert(record.pos);
                }
                // One that nobody knows anything of may never have begun.
                Event::Returned { child, outcome, .. } if !matches!(outcome.status, Status::Lost { .. }) => {
                    self.returned.insert(child.clone());
                }
                _ => {}
            }
        }
    }

    /// The children that have returned.
    pub fn returned(&self) -> Vec<ReturnedChild> {
        let child = |session: &SessionId| {
            let after = *self.delegated.get(session)?;
            Some(ReturnedChild { session: session.clone(), after })
        };
        self.returned.iter().filter_map(child).collect()
    }
}

impl ReturnedChild {
    /// The children that have returned, as these records say.
    pub fn returned(records: &[Record]) -> Vec<ReturnedChild> {
        let mut loans = Loans::default();
        loans.take(records);
        loans.returned()
    }

    /// Error that says that it is missing.
    fn missing(&self) -> StoreError {
        let parent = self.session.parent().unwrap_or_else(|| self.session.clone());
        StoreError::MissingSession { child: self.session.clone(), parent }
    }
}

fn lock_owner_hint(by: Option<&Blocker>) -> String {
    by.map_or_else(
        || {
            "an unknown process holds the lock. \
             Check the other containers and machines that use this store."
                .to_owned()
        },
        Blocker::to_string,
    )
}

/// The log of every session.
///
/// # Contract
///
/// * An append is atomic: after a crash either all of its facts are there or none. When it returns, they are durable.
/// * `seq` is dense per session from 0. `pos` increases over the whole store; a reader that has seen a position has
///   seen all facts before it.
/// * An append with a lease happens only while that lease is the latest of its tree, checked in the same transaction.
/// * An append without a lease carries outside words only.
/// * What writes may begin when it is called. Whether it happens when its future is dropped before it is ready is open.
/// * Reading stops with an error at the first record that is damaged, missing or not understood. What was read before
///   can be had with [`Store::read_prefix`].
pub trait Store: Send + Sync + 'static {
    /// Appends facts.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>>;

    /// The facts of a session from `from` on. There are none where there is no such session.
    fn read(&self, session: &SessionId, from: u64) -> BoxFuture<'_, Result<Vec<Record>, StoreError>>;

    /// The facts of a session up to the first that cannot be read, and why it can't.
    fn read_prefix(&self, session: &SessionId) -> BoxFuture<'_, Result<Prefix, StoreError>>;

    /// The facts of a session and all below it after a position, in the order of the store, at most `limit`. Those
    /// before one that cannot be read are returned as they are; the next call, after them, returns the error.
    fn tail(
        &self,
        root: &SessionId,
        after: Pos,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, StoreError>>;

    /// Checks that the store has lost nothing of a session and all below it: neither a fact nor one of `children`, which
    /// are those that facts say have returned. A child that was removed is not lost. What was read without an error is
    /// whole only if this finds nothing: the end of a log can be lost without a gap.
    fn verify(&self, root: &SessionId, children: Vec<ReturnedChild>)
    -> BoxFuture<'_, Result<(), StoreError>>;

    /// The outside words in a tree after a position: where to look, not what was said.
    fn external_events(
        &self,
        root: &SessionId,
        after: Pos,
    ) -> BoxFuture<'_, Result<Vec<(SessionId, Pos)>, StoreError>>;

    /// Changes whenever somebody without a lease, or another process, may have appended something.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Does something while this store commits nothing, such as stopping the process: a process that is stopped in the
    /// middle of a commit would keep all others from writing.
    fn between_commits(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Takes the right to run a tree. A dead holder on the same host is replaced at once, one on another host when it
    /// has not renewed for 30 seconds; a living one is an error.
    fn lease(&self, root: &SessionId, owner: &Owner, at: u64) -> BoxFuture<'_, Result<Lease, StoreError>>;

    /// Says that the holder is alive.
    fn renew(&self, lease: &Lease, at: u64) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Gives the right back.
    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<(), StoreError>>;

    /// All sessions at the top of a tree, newest first.
    fn roots(&self) -> BoxFuture<'_, Result<Vec<RootSummary>, StoreError>>;

    /// What trees have used up, each with its session at the top, in the order in which they are asked for. One that
    /// cannot be read hides none of the others.
    fn totals(&self, roots: Vec<SessionId>) -> BoxFuture<'_, Result<Vec<TreeTotals>, StoreError>>;

    /// The ids of a session and all below it.
    fn sessions(&self, root: &SessionId) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>>;

    /// Removes a session and all below it, but not what was continued on its own below it: a session with a lease of
    /// its own. A tree that is being run cannot be removed.
    fn remove(&self, root: &SessionId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// A definition by its hash.
    fn blob(&self, hash: Hash) -> BoxFuture<'_, Result<Option<Arc<str>>, StoreError>>;

    /// Whether an agent left this content in a file: an edit of any session in this store leads to it, also of a session that
    /// was removed since.
    fn has_edit(&self, content: Hash) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Writes facts as another store had them: `session`, `seq`, `at` and `v` are kept, `pos` is new, in the given
    /// order. What is already there has to be the same. All or none; returns how many were not there yet. A tree that
    /// gets records this way is marked as imported in the same transaction.
    fn restore(&self, records: Vec<Record>, blobs: Vec<Arc<str>>) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// The position of the last record that [`Store::restore`] added to the tree with this root; none if it never did.
    /// Records up to there bring no authority.
    fn imported(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Pos>, StoreError>>;
}
