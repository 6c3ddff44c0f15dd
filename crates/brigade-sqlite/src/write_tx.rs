//! Operations of a write transaction: events, the content they refer to, and leases.

use std::path::Path;
use std::sync::Arc;

use brigade_core::event::VERSION;
use brigade_core::{Cursor, Event, Hash, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::reader::SubtreeRange;
use super::schema::{FORMAT, broken};
use super::writer::{CommitEffects, WriteError};
use brigade_base::fast_map::{FastMap, FastSet};
use brigade_base::store::backend::{self, Encoded, LeaseRow};
use brigade_base::store::{Append, Appended, Expect, Lease, Owner, StoreError};

/// An encoded append for the writer.
#[derive(Debug)]
pub(super) struct AppendJob {
    pub(super) session: SessionId,
    pub(super) expect: Expect,
    pub(super) encoded: Encoded,
    pub(super) lease: Option<Lease>,
    pub(super) at: u64,
    /// The events, for followers.
    pub(super) events: Arc<Vec<Event>>,
}

impl AppendJob {
    /// Encodes events on the caller's thread.
    pub(super) fn new(place: &Path, append: Append) -> Result<AppendJob, StoreError> {
        backend::check_external(&append)?;
        let Append { session, expect, events, blobs, lease, at } = append;
        let mut encoded = Encoded::with_capacity(events.len());
        blobs.into_iter().for_each(|content| encoded.add_blob(content));
        for event in events.iter() {
            encoded.push(event).map_err(|error| broken(place, error.to_string()))?;
        }
        Ok(AppendJob { session, expect, encoded, lease, at, events })
    }
}

/// Last write times of the trees that this process runs. Appends renew the lease in the file once a second.
#[derive(Debug, Default)]
pub(super) struct LeaseTimes(FastMap<SessionId, LeaseTime>);

#[derive(Debug, Clone, Copy)]
struct LeaseTime {
    written: u64,
    last: u64,
}

/// Age in milliseconds at which an append renews the lease in the file.
const RENEW_INTERVAL_MS: u64 = 1_000;

/// An open transaction.
pub(super) struct WriteTx<'a> {
    pub(super) connection: &'a Connection,
    times: &'a mut LeaseTimes,
    cache: &'a mut WriteCache,
    next_pos: u64,
    pub(super) written: CommitEffects,
}

/// State of the file that this process has read or written, cached to avoid queries. The writer invalidates
/// them when another process commits or a transaction fails.
#[derive(Debug, Default)]
pub(super) struct WriteCache {
    last_pos: Option<u64>,
    /// The last lease that was found valid.
    lease: Option<(SessionId, u64)>,
    /// Definitions that each tree refers to.
    definitions: FastMap<SessionId, FastSet<Hash>>,
    /// Number of events per session.
    lengths: FastMap<SessionId, u64>,
    /// The last tree that started here. `lengths` contains all of its sessions that have events.
    new_tree: Option<SessionId>,
    /// Whether the file has the format of this version.
    is_format_current: bool,
}

/// Maximum number of cached sessions and definitions. Enough for the largest trees, and small compared with their
/// drivers.
const MAX_CACHED_ENTRIES: usize = 65_536;

impl WriteCache {
    /// Clears the cache when it grows too large. All of it is cleared, because entries depend on each other.
    fn bound(&mut self) {
        let definitions: usize = self.definitions.values().map(FastSet::len).sum();
        if definitions + self.lengths.len() > MAX_CACHED_ENTRIES {
            *self = WriteCache { last_pos: self.last_pos, ..WriteCache::default() };
        }
    }
}

/// Key under which the definitions of a whole tree are stored. Its sessions share them, and they are removed with
/// the last session. No session has such an id.
pub(super) fn tree_key(session: &SessionId) -> String {
    format!("{}/", session.root_id())
}

impl<'a> WriteTx<'a> {
    pub(super) fn open(
        connection: &'a Connection,
        times: &'a mut LeaseTimes,
        cache: &'a mut WriteCache,
    ) -> rusqlite::Result<WriteTx<'a>> {
        cache.bound();
        let last: u64 = match cache.last_pos {
            Some(last) => last,
            None => connection
                .prepare_cached(
                    "SELECT max(coalesce((SELECT max(pos) FROM events), 0), coalesce((SELECT pos FROM removed), 0))",
                )?
                .query_row([], |row| row.get(0))?,
        };
        Ok(WriteTx { connection, times, cache, next_pos: last + 1, written: CommitEffects::default() })
    }

    /// Position of the last event that was written.
    pub(super) fn last_pos(&self) -> Option<u64> {
        self.next_pos.checked_sub(1)
    }

    /// Ends the transaction and returns its effects.
    pub(super) fn done(self) -> CommitEffects {
        self.cache.last_pos = Some(self.next_pos - 1);
        self.written
    }

    /// Appends events. All checks come first, so that a refusal writes nothing.
    pub(super) fn append(&mut self, job: &AppendJob) -> Result<Appended, WriteError> {
        if let Some(lease) = &job.lease {
            self.check_lease(lease, &job.session)?;
        }
        let length = self.length(&job.session)?;
        job.expect.check(&job.session, length)?;
        if length == 0 && job.session.is_root() {
            self.note_new_tree(&job.session)?;
        }
        self.write_blobs(&job.session, &job.encoded)?;
        let first_pos = Cursor::new(self.next_pos);
        self.insert(&job.session, length, job.at, u64::from(VERSION), &job.encoded)?;
        match &job.lease {
            Some(lease) => self.renew_if_due(lease, job.at)?,
            None => self.written.must_notify = true,
        }
        Ok(Appended { first_seq: length, first_pos })
    }

    /// Writes events of one session starting at `seq`, at the next positions. A row is keyed by its last event.
    pub(super) fn insert(
        &mut self,
        session: &SessionId,
        seq: u64,
        at: u64,
        v: u64,
        encoded: &Encoded,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO events (pos, session, seq, at, v, outside, body, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        if !self.cache.is_format_current {
            upgrade_format(self.connection)?;
            self.cache.is_format_current = true;
        }
        let mut length = seq;
        for row in encoded.rows() {
            length += row.event_count;
            self.next_pos += row.event_count;
            let (seq, pos) = (length - 1, self.next_pos - 1);
            let sum = backend::checksum(session.as_str(), seq, at, v, row.body);
            statement.execute(params![pos, session.as_str(), seq, at, v, row.flag, row.body, sum])?;
            self.written.bytes += row.body.len() as u64 + 128;
        }
        match self.cache.lengths.get_mut(session) {
            Some(stored) => *stored = length,
            None => drop(self.cache.lengths.insert(session.clone(), length)),
        }
        Ok(())
    }

    /// Writes new content and its references.
    pub(super) fn write_blobs(&mut self, session: &SessionId, encoded: &Encoded) -> rusqlite::Result<()> {
        for (hash, content) in &encoded.blobs {
            self.connection
                .prepare_cached("INSERT OR IGNORE INTO blobs (hash, body) VALUES (?, ?)")?
                .execute(params![hash.as_bytes(), &**content])?;
            self.written.bytes += content.len() as u64;
        }
        encoded.definitions.iter().try_for_each(|hash| self.add_definition(session, hash))?;
        encoded.texts.iter().try_for_each(|hash| self.add_ref(session.as_str(), hash))
    }

    /// Records that the tree of a session refers to a definition.
    fn add_definition(&mut self, session: &SessionId, hash: &Hash) -> rusqlite::Result<()> {
        let is_new = match self.cache.definitions.get_mut(session.root_str()) {
            Some(hashes) => hashes.insert(*hash),
            None => self.cache.definitions.insert(session.root_id(), FastSet::from_iter([*hash])).is_none(),
        };
        if is_new { self.add_ref(&tree_key(session), hash) } else { Ok(()) }
    }

    fn add_ref(&self, referrer: &str, hash: &Hash) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("INSERT OR IGNORE INTO refs (session, hash) VALUES (?, ?)")?
            .execute(params![referrer, hash.as_bytes()])?;
        Ok(())
    }

    /// Clears the cache before a change that it does not cover.
    pub(super) fn invalidate_cache(&mut self) {
        *self.cache = WriteCache::default();
    }

    /// Number of events of a session.
    pub(super) fn length(&self, session: &SessionId) -> rusqlite::Result<u64> {
        if let Some(length) = self.cache.lengths.get(session) {
            return Ok(*length);
        }
        if self.cache.new_tree.as_ref().is_some_and(|root| root.contains(session)) {
            return Ok(0);
        }
        let last: Option<u64> = self
            .connection
            .prepare_cached("SELECT max(seq) FROM events WHERE session = ?")?
            .query_row([session.as_str()], |row| row.get(0))?;
        Ok(last.map_or(0, |last| last + 1))
    }

    /// Notes that a tree starts, unless sessions of an earlier tree with that id are left.
    fn note_new_tree(&mut self, root: &SessionId) -> rusqlite::Result<()> {
        if !has_events(self.connection, root)? {
            self.cache.new_tree = Some(root.clone());
        }
        Ok(())
    }

    fn check_lease(&mut self, lease: &Lease, session: &SessionId) -> Result<(), WriteError> {
        let is_known = |(root, epoch): &(SessionId, u64)| *root == lease.root && *epoch == lease.epoch;
        if lease.root.contains(session) && self.cache.lease.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        LeaseRow::check(lease_row(self.connection, &lease.root)?.as_ref(), lease, session)?;
        self.cache.lease = Some((lease.root.clone(), lease.epoch));
        Ok(())
    }

    /// Renews the lease of a running tree in the file, at most once a second.
    fn renew_if_due(&mut self, lease: &Lease, at: u64) -> rusqlite::Result<()> {
        let time = self.times.0.entry(lease.root.clone()).or_insert(LeaseTime { written: 0, last: at });
        time.last = time.last.max(at);
        if at < time.written.saturating_add(RENEW_INTERVAL_MS) {
            return Ok(());
        }
        time.written = at;
        self.write_time(lease, at)
    }

    fn write_time(&self, lease: &Lease, at: u64) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("UPDATE leases SET renewed = ?1, last_run = ?1 WHERE root = ?2 AND epoch = ?3")?
            .execute(params![at, lease.root.as_str(), lease.epoch])?;
        Ok(())
    }

    /// Takes the lease of a tree.
    pub(super) fn lease(&mut self, root: &SessionId, owner: &Owner, at: u64) -> Result<Lease, WriteError> {
        let row = lease_row(self.connection, root)?;
        let (lease, row) = LeaseRow::take(row.as_ref(), root, owner, at)?;
        self.write_lease(root, &row)?;
        self.times.0.insert(root.clone(), LeaseTime { written: at, last: at });
        Ok(lease)
    }

    /// Writes the lease row of a tree.
    pub(super) fn write_lease(&mut self, root: &SessionId, row: &LeaseRow) -> rusqlite::Result<()> {
        let owner = row.owner.as_ref();
        self.cache.lease = None;
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO leases (root, epoch, host, boot_id, pid, start_time, renewed, last_run)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                root.as_str(),
                row.epoch,
                owner.map(|owner| &owner.host),
                owner.map(|owner| &owner.boot_id),
                owner.map(|owner| owner.pid),
                owner.map(|owner| owner.start_time),
                row.renewed,
                row.last_run,
            ])?;
        Ok(())
    }

    /// Renews a lease.
    pub(super) fn renew(&mut self, lease: &Lease, at: u64) -> Result<(), WriteError> {
        self.check_lease(lease, &lease.root)?;
        self.write_time(lease, at)?;
        self.times.0.insert(lease.root.clone(), LeaseTime { written: at, last: at });
        Ok(())
    }

    /// Releases a lease unless another process holds it.
    pub(super) fn release(&mut self, lease: &Lease) -> Result<(), WriteError> {
        let Some(row) = lease_row(self.connection, &lease.root)?.filter(|row| row.admits(lease)) else {
            return Ok(());
        };
        let last = self.times.0.remove(&lease.root).map(|time| time.last);
        let released = LeaseRow { owner: None, last_run: row.last_run.max(last), ..row };
        Ok(self.write_lease(&lease.root, &released)?)
    }

    /// Removes a tree from the cache.
    pub(super) fn forget(&mut self, root: &SessionId) {
        self.times.0.remove(root);
    }
}

/// Upgrades a file of an earlier format before its first row of this format.
fn upgrade_format(connection: &Connection) -> rusqlite::Result<()> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found < FORMAT { connection.pragma_update(None, "user_version", FORMAT) } else { Ok(()) }
}

/// Whether a session or any descendant has events.
pub(super) fn has_events(connection: &Connection, root: &SessionId) -> rusqlite::Result<bool> {
    let below = SubtreeRange::of(root);
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM events
             WHERE session >= ?1 AND session < ?3 AND (+session = ?1 OR +session > ?2))",
        )?
        .query_row(params![root.as_str(), below.first, below.end], |row| row.get(0))
}

/// Reads the lease row of a tree.
pub(super) fn lease_row(connection: &Connection, root: &SessionId) -> rusqlite::Result<Option<LeaseRow>> {
    connection
        .prepare_cached(
            "SELECT epoch, host, boot_id, pid, start_time, renewed, last_run FROM leases WHERE root = ?",
        )?
        .query_row([root.as_str()], |row| {
            Ok(LeaseRow {
                epoch: row.get(0)?,
                owner: owner(row)?,
                renewed: row.get(5)?,
                last_run: row.get(6)?,
            })
        })
        .optional()
}

/// Process that runs a tree now, if any.
pub(super) fn runner(connection: &Connection, root: &SessionId) -> rusqlite::Result<Option<Owner>> {
    let Some(row) = lease_row(connection, root)?.filter(|row| row.owner.is_some()) else { return Ok(None) };
    Ok(row.runner(&Owner::this_process(), now(connection)?).cloned())
}

/// Current time in UTC milliseconds.
pub(super) fn now(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)")?
        .query_row([], |row| row.get(0))
}

fn owner(row: &Row<'_>) -> rusqlite::Result<Option<Owner>> {
    let Some(pid) = row.get(3)? else { return Ok(None) };
    Ok(Some(Owner { host: row.get(1)?, boot_id: row.get(2)?, pid, start_time: row.get(4)? }))
}
