//! What may be written in a transaction: facts, what they name, and leases.

use std::path::Path;

use brigade_core::event::VERSION;
use brigade_core::{Hash, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::reader::Below;
use super::schema::{FORMAT, broken};
use super::writer::{Fault, Written};
use crate::maps::{Map, Set};
use crate::store::codec::{self, Encoded};
use crate::store::lease::{self, LeaseRow};
use crate::store::{Append, Appended, Expect, Holder, Lease, StoreError};

/// An append on its way to the writer.
#[derive(Debug)]
pub(super) struct AppendJob {
    pub(super) session: SessionId,
    pub(super) expect: Expect,
    pub(super) encoded: Encoded,
    pub(super) lease: Option<Lease>,
    pub(super) at: u64,
}

impl AppendJob {
    /// Encodes facts, on the thread of whoever appends them.
    pub(super) fn new(place: &Path, append: Append) -> Result<AppendJob, StoreError> {
        codec::check_outside(&append)?;
        let Append { session, expect, events, blobs, lease, at } = append;
        let mut encoded = Encoded::with_room(events.len());
        blobs.into_iter().for_each(|content| encoded.keep(content));
        for event in events.iter() {
            encoded.push(event).map_err(|error| broken(place, error.to_string()))?;
        }
        Ok(AppendJob { session, expect, encoded, lease, at })
    }
}

/// When the trees that this process runs were last written to. Appends renew their lease in the file once a second.
#[derive(Debug, Default)]
pub(super) struct LeaseTimes(Map<SessionId, LeaseTime>);

#[derive(Debug, Clone, Copy)]
struct LeaseTime {
    written: u64,
    last: u64,
}

/// How old the time in the file may get before an append writes it anew, in milliseconds.
const RENEW_EVERY: u64 = 1_000;

/// An open transaction.
pub(super) struct Ledger<'a> {
    pub(super) connection: &'a Connection,
    times: &'a mut LeaseTimes,
    known: &'a mut Known,
    next_pos: u64,
    pub(super) written: Written,
}

/// What this process found out about the file or wrote to it, so that it need not ask twice. It holds until somebody
/// else commits or a transaction of ours fails; the writer sees to that.
#[derive(Debug, Default)]
pub(super) struct Known {
    last_pos: Option<u64>,
    /// The lease that was looked up last and is valid.
    lease: Option<(SessionId, u64)>,
    /// The definitions that a tree names.
    defined: Map<SessionId, Set<Hash>>,
    /// How many facts a session has.
    lengths: Map<SessionId, u64>,
    /// The tree that began here last: those of its sessions that have facts are all among `lengths`.
    begun: Option<SessionId>,
    /// Whether the file says that rows may have several facts.
    says_format: bool,
}

/// How many sessions and definitions are remembered at most: enough for the largest trees, little beside their drivers.
const MOST_KNOWN: usize = 65_536;

impl Known {
    /// Forgets what was found out when it gets too much, and all of it: what one thing says may rest on another.
    fn bound(&mut self) {
        let defined: usize = self.defined.values().map(Set::len).sum();
        if defined + self.lengths.len() > MOST_KNOWN {
            *self = Known { last_pos: self.last_pos, ..Known::default() };
        }
    }
}

/// Under which name the definitions of a whole tree are kept: its sessions share them, and the last one gone takes them
/// along. No session has such an id.
pub(super) fn tree_name(session: &SessionId) -> String {
    format!("{}/", session.root_id())
}

impl<'a> Ledger<'a> {
    pub(super) fn open(
        connection: &'a Connection,
        times: &'a mut LeaseTimes,
        known: &'a mut Known,
    ) -> rusqlite::Result<Ledger<'a>> {
        known.bound();
        let last: u64 = match known.last_pos {
            Some(last) => last,
            None => connection
                .prepare_cached(
                    "SELECT max(coalesce((SELECT max(pos) FROM events), 0), coalesce((SELECT pos FROM removed), 0))",
                )?
                .query_row([], |row| row.get(0))?,
        };
        Ok(Ledger { connection, times, known, next_pos: last + 1, written: Written::default() })
    }

    /// The position of the last fact that was written.
    pub(super) fn last_pos(&self) -> Option<u64> {
        self.next_pos.checked_sub(1)
    }

    /// Ends the work, and keeps where the next one begins.
    pub(super) fn done(self) -> Written {
        self.known.last_pos = Some(self.next_pos - 1);
        self.written
    }

    /// Appends facts, after everything that can refuse them was looked at: a refusal leaves no trace.
    pub(super) fn append(&mut self, job: &AppendJob) -> Result<Appended, Fault> {
        if let Some(lease) = &job.lease {
            self.check_lease(lease, &job.session)?;
        }
        let length = self.length(&job.session)?;
        match job.expect {
            Expect::Length(expected) if expected != length => {
                return Err(
                    StoreError::Conflict { session: job.session.clone(), expected, actual: length }.into()
                );
            }
            Expect::Exists if length == 0 => return Err(StoreError::Unknown(job.session.clone()).into()),
            Expect::Length(_) | Expect::Exists => {}
        }
        if length == 0 && job.session.is_root() {
            self.begin(&job.session)?;
        }
        self.keep(&job.session, &job.encoded)?;
        let first_pos = self.next_pos;
        self.insert(&job.session, length, job.at, u64::from(VERSION), &job.encoded)?;
        match &job.lease {
            Some(lease) => self.touch(lease, job.at)?,
            None => self.written.stirs = true,
        }
        Ok(Appended { first_seq: length, first_pos })
    }

    /// Writes facts of one session from `seq` on at the next positions. A row is found by its last fact.
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
        let mut length = seq;
        for row in encoded.rows() {
            if row.facts > 1 && !self.known.says_format {
                say_format(self.connection)?;
                self.known.says_format = true;
            }
            length += row.facts;
            self.next_pos += row.facts;
            let (seq, pos) = (length - 1, self.next_pos - 1);
            let sum = codec::checksum(session.as_str(), seq, pos, at, v, row.body);
            statement.execute(params![pos, session.as_str(), seq, at, v, row.mark, row.body, sum])?;
            self.written.bytes += row.body.len() as u64 + 128;
        }
        match self.known.lengths.get_mut(session) {
            Some(known) => *known = length,
            None => drop(self.known.lengths.insert(session.clone(), length)),
        }
        Ok(())
    }

    /// Writes contents that are new, and who names which.
    pub(super) fn keep(&mut self, session: &SessionId, encoded: &Encoded) -> rusqlite::Result<()> {
        for (hash, content) in &encoded.blobs {
            self.connection
                .prepare_cached("INSERT OR IGNORE INTO blobs (hash, body) VALUES (?, ?)")?
                .execute(params![hash.as_bytes(), &**content])?;
            self.written.bytes += content.len() as u64;
        }
        encoded.definitions.iter().try_for_each(|hash| self.define(session, hash))?;
        encoded.texts.iter().try_for_each(|hash| self.name(session.as_str(), hash))
    }

    /// Notes that the tree of a session names a definition.
    fn define(&mut self, session: &SessionId, hash: &Hash) -> rusqlite::Result<()> {
        let is_new = match self.known.defined.get_mut(session.root_str()) {
            Some(known) => known.insert(*hash),
            None => self.known.defined.insert(session.root_id(), Set::from_iter([*hash])).is_none(),
        };
        if is_new { self.name(&tree_name(session), hash) } else { Ok(()) }
    }

    fn name(&self, who: &str, hash: &Hash) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("INSERT OR IGNORE INTO refs (session, hash) VALUES (?, ?)")?
            .execute(params![who, hash.as_bytes()])?;
        Ok(())
    }

    /// Forgets what was found out, because it is about to change.
    pub(super) fn ask_again(&mut self) {
        *self.known = Known::default();
    }

    /// How many facts a session has.
    pub(super) fn length(&self, session: &SessionId) -> rusqlite::Result<u64> {
        if let Some(length) = self.known.lengths.get(session) {
            return Ok(*length);
        }
        if self.known.begun.as_ref().is_some_and(|root| root.contains(session)) {
            return Ok(0);
        }
        let last: Option<u64> = self
            .connection
            .prepare_cached("SELECT max(seq) FROM events WHERE session = ?")?
            .query_row([session.as_str()], |row| row.get(0))?;
        Ok(last.map_or(0, |last| last + 1))
    }

    /// Notes that a tree begins, unless sessions of an earlier tree of that name are left.
    fn begin(&mut self, root: &SessionId) -> rusqlite::Result<()> {
        if !has_facts(self.connection, root)? {
            self.known.begun = Some(root.clone());
        }
        Ok(())
    }

    fn check_lease(&mut self, lease: &Lease, session: &SessionId) -> Result<(), Fault> {
        let is_known = |(root, epoch): &(SessionId, u64)| *root == lease.root && *epoch == lease.epoch;
        if lease.root.contains(session) && self.known.lease.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        let admitted: Option<bool> = self
            .connection
            .prepare_cached("SELECT epoch = ? AND pid IS NOT NULL FROM leases WHERE root = ?")?
            .query_row(params![lease.epoch, lease.root.as_str()], |row| row.get(0))
            .optional()?;
        if admitted == Some(true) && lease.root.contains(session) {
            self.known.lease = Some((lease.root.clone(), lease.epoch));
            Ok(())
        } else {
            Err(lease::fenced(lease).into())
        }
    }

    /// Notes that the tree of a lease runs, in the file at most once a second.
    fn touch(&mut self, lease: &Lease, at: u64) -> rusqlite::Result<()> {
        let time = self.times.0.entry(lease.root.clone()).or_insert(LeaseTime { written: 0, last: at });
        time.last = time.last.max(at);
        if at < time.written.saturating_add(RENEW_EVERY) {
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

    /// Takes the right to run a tree.
    pub(super) fn lease(&mut self, root: &SessionId, holder: &Holder, at: u64) -> Result<Lease, Fault> {
        let row = lease_row(self.connection, root)?;
        let (lease, row) = lease::take(row.as_ref(), root, holder, at)?;
        self.write_lease(root, &row)?;
        self.times.0.insert(root.clone(), LeaseTime { written: at, last: at });
        Ok(lease)
    }

    /// Writes all that is kept about the lease of a tree.
    pub(super) fn write_lease(&mut self, root: &SessionId, row: &LeaseRow) -> rusqlite::Result<()> {
        let holder = row.holder.as_ref();
        self.known.lease = None;
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO leases (root, epoch, host, boot_id, pid, start_time, renewed, last_run)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                root.as_str(),
                row.epoch,
                holder.map(|holder| &holder.host),
                holder.map(|holder| &holder.boot_id),
                holder.map(|holder| holder.pid),
                holder.map(|holder| holder.start_time),
                row.renewed,
                row.last_run,
            ])?;
        Ok(())
    }

    /// Says that the holder of a lease lives.
    pub(super) fn renew(&mut self, lease: &Lease, at: u64) -> Result<(), Fault> {
        self.check_lease(lease, &lease.root)?;
        self.write_time(lease, at)?;
        self.times.0.insert(lease.root.clone(), LeaseTime { written: at, last: at });
        Ok(())
    }

    /// Gives a lease back, unless somebody else has it.
    pub(super) fn release(&mut self, lease: &Lease) -> Result<(), Fault> {
        let Some(row) = lease_row(self.connection, &lease.root)?.filter(|row| row.admits(lease)) else {
            return Ok(());
        };
        let last = self.times.0.remove(&lease.root).map(|time| time.last);
        let released = LeaseRow { holder: None, last_run: row.last_run.max(last), ..row };
        Ok(self.write_lease(&lease.root, &released)?)
    }

    /// Forgets what was noted about a tree.
    pub(super) fn forget(&mut self, root: &SessionId) {
        self.times.0.remove(root);
    }
}

/// Has a file of an earlier format say that rows may have several facts.
fn say_format(connection: &Connection) -> rusqlite::Result<()> {
    let said: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if said < FORMAT { connection.pragma_update(None, "user_version", FORMAT) } else { Ok(()) }
}

/// Whether there are facts of a session or of any below it.
pub(super) fn has_facts(connection: &Connection, root: &SessionId) -> rusqlite::Result<bool> {
    let below = Below::of(root);
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM events
             WHERE session >= ?1 AND session < ?3 AND (+session = ?1 OR +session > ?2))",
        )?
        .query_row(params![root.as_str(), below.first, below.end], |row| row.get(0))
}

/// What is kept about the lease of a tree.
pub(super) fn lease_row(connection: &Connection, root: &SessionId) -> rusqlite::Result<Option<LeaseRow>> {
    connection
        .prepare_cached(
            "SELECT epoch, host, boot_id, pid, start_time, renewed, last_run FROM leases WHERE root = ?",
        )?
        .query_row([root.as_str()], |row| {
            Ok(LeaseRow {
                epoch: row.get(0)?,
                holder: holder(row)?,
                renewed: row.get(5)?,
                last_run: row.get(6)?,
            })
        })
        .optional()
}

fn holder(row: &Row<'_>) -> rusqlite::Result<Option<Holder>> {
    let Some(pid) = row.get(3)? else { return Ok(None) };
    Ok(Some(Holder { host: row.get(1)?, boot_id: row.get(2)?, pid, start_time: row.get(4)? }))
}
