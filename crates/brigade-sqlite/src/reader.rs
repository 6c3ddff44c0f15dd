//! Read queries: own connections, one snapshot per query, every record verified.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::{Cursor, Hash, Record, SessionId};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use super::Pos;
use super::access::ReadAccess;
use super::batch::{Batch, BatchEvent, ExpectedSeq};
use super::schema::{broken, store_error};
use super::write_tx::{lease_row, now, runner};
use brigade_base::store::backend::DecodeError;
use brigade_base::store::{Owner, Prefix, RootSummary, StoreError};

/// Maximum number of idle connections.
const MAX_IDLE_CONNECTIONS: usize = 4;
/// Maximum number of positions after the cursor for which `tail` scans the store. Beyond that it uses the index
/// of the tree.
const MAX_SCANNED_POSITIONS: u64 = 20_000;

/// Pool of read connections.
#[derive(Debug)]
pub(super) struct Reader {
    place: Arc<Path>,
    access: ReadAccess,
    idle: Mutex<Vec<Connection>>,
}

impl Reader {
    pub(super) fn new(place: Arc<Path>, access: ReadAccess) -> Reader {
        Reader { place, access, idle: Mutex::default() }
    }

    /// Runs a query on one snapshot of the store.
    pub(super) fn with<T>(
        &self,
        work: impl Fn(&Snapshot<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.access.connect(&self.place)?,
        };
        let explain = |error| store_error(&self.place, error);
        let transaction = connection.unchecked_transaction().map_err(explain)?;
        let result = work(&Snapshot { place: &self.place, connection: &transaction });
        transaction.finish().map_err(explain)?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if result.is_ok() && idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(connection);
        }
        result
    }
}

/// The store at one moment.
pub(super) struct Snapshot<'a> {
    place: &'a Path,
    pub(super) connection: &'a Connection,
}

/// Columns that [`Snapshot::batch`] expects, in order.
macro_rules! columns {
    ($rest:literal) => {
        concat!("SELECT pos, session, seq, at, v, outside, body, sum FROM events ", $rest)
    };
}
pub(super) use columns;

/// Range of the ids of a session's descendants in id order. `.` is followed by `/`, and ids between the session
/// and its first descendant belong to siblings.
pub(super) struct SubtreeRange {
    /// First descendant id.
    pub(super) first: String,
    /// First id after all descendants.
    pub(super) end: String,
}

impl SubtreeRange {
    pub(super) fn of(root: &SessionId) -> SubtreeRange {
        SubtreeRange { first: format!("{root}."), end: format!("{root}/") }
    }
}

impl Snapshot<'_> {
    pub(super) fn explain(&self, error: rusqlite::Error) -> StoreError {
        store_error(self.place, error)
    }

    /// Events of a session starting at `from`, up to the first unreadable one.
    pub(super) fn session(&self, session: &SessionId, from: u64) -> Result<Prefix, StoreError> {
        let sql = columns!("WHERE session = ? AND seq >= ? ORDER BY seq");
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| self.explain(error))?;
        let mut rows =
            statement.query(params![session.as_str(), from]).map_err(|error| self.explain(error))?;
        let mut records: Vec<Record> = Vec::new();
        let fault = loop {
            let next = from + records.len() as u64;
            let expected =
                if records.is_empty() { ExpectedSeq::Covering(next) } else { ExpectedSeq::Exact(next) };
            let row = match rows.next() {
                Ok(None) => break None,
                Ok(Some(row)) => row,
                Err(error) => break Some(self.unreadable(session, next, error)?),
            };
            let read = self.batch(session, expected, row).and_then(|batch| {
                let mut event_lines = batch.events().filter(|event_line| event_line.seq >= from);
                event_lines.try_for_each(|event_line| {
                    records.push(self.record(session, &batch, event_line)?);
                    Ok(())
                })
            });
            if let Err(fault) = read {
                break Some(fault);
            }
        };
        Ok((records, fault))
    }

    pub(super) fn exists(&self, session: &SessionId) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE session = ?)";
        self.query_one(sql, params![session.as_str()], |row| row.get(0)).map(|found| found.unwrap_or(false))
    }

    pub(super) fn query_one<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let query = || self.connection.prepare_cached(sql)?.query_row(parameters, read).optional();
        query().map_err(|error| self.explain(error))
    }

    /// Returns everything that a query finds.
    pub(super) fn query_all<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let query =
            || self.connection.prepare_cached(sql)?.query_map(parameters, read)?.collect::<Result<_, _>>();
        query().map_err(|error| self.explain(error))
    }

    /// Converts an SQLite failure to find a record into an error about its session.
    fn unreadable(
        &self,
        session: &SessionId,
        seq: u64,
        error: rusqlite::Error,
    ) -> Result<StoreError, StoreError> {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt) => Ok(DecodeError::Damaged(error.to_string()).of(session, seq)),
            _ => Err(self.explain(error)),
        }
    }

    pub(super) fn content(&self, hash: Hash) -> rusqlite::Result<Option<Arc<str>>> {
        let sql = "SELECT body FROM blobs WHERE hash = ?";
        self.connection.prepare_cached(sql)?.query_row([hash.as_bytes()], |row| row.get(0)).optional()
    }

    /// Returns a definition by its hash.
    pub(super) fn blob(&self, hash: Hash) -> Result<Option<Arc<str>>, StoreError> {
        match self.content(hash) {
            Ok(Some(content)) if Hash::of(content.as_bytes()) != hash => {
                Err(broken(self.place, format!("the content {hash} was altered")))
            }
            Ok(content) => Ok(content),
            Err(cause) => Err(broken(self.place, cause.to_string())),
        }
    }

    /// Events of a tree after a position.
    pub(super) fn tail(&self, root: &SessionId, after: Pos, limit: usize) -> Result<Vec<Record>, StoreError> {
        let last =
            self.query_one("SELECT coalesce(max(pos), 0) FROM events", [], |row| row.get::<_, u64>(0))?;
        // The `+` keeps the planner from using the index on sessions for a scan by position.
        let sql = if last.unwrap_or_default().saturating_sub(after) <= MAX_SCANNED_POSITIONS {
            columns!(
                "WHERE pos > ?1 AND +session >= ?2 AND +session < ?4 AND (session = ?2 OR +session > ?3)
                 ORDER BY pos LIMIT ?5"
            )
        } else {
            columns!(
                "WHERE pos IN (
                    SELECT pos FROM events INDEXED BY events_by_session
                    WHERE session >= ?2 AND session < ?4 AND (+session = ?2 OR +session > ?3) AND pos > ?1
                    ORDER BY pos LIMIT ?5
                ) ORDER BY pos"
            )
        };
        let below = SubtreeRange::of(root);
        // A row has at least one event.
        let rows = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters =
            params![i64::try_from(after).unwrap_or(i64::MAX), root.as_str(), below.first, below.end, rows];
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| self.explain(error))?;
        let mut rows = statement.query(parameters).map_err(|error| self.explain(error))?;
        let mut page = TailPage::default();
        while page.records.len() < limit {
            let fault = match rows.next() {
                Ok(None) => break,
                Ok(Some(row)) => page.push(self, after, limit, row).err(),
                Err(error) => Some(self.explain(error)),
            };
            match fault {
                None => {}
                Some(fault) if page.records.is_empty() => return Err(fault),
                Some(_) => break,
            }
        }
        Ok(page.records)
    }

    /// Places of external events in a tree after a position.
    pub(super) fn external_events(
        &self,
        root: &SessionId,
        after: Pos,
    ) -> Result<Vec<(SessionId, Cursor)>, StoreError> {
        let sql = "SELECT session, pos FROM events INDEXED BY events_outside
            WHERE outside = 1 AND session >= ?2 AND session < ?4 AND (+session = ?2 OR +session > ?3) AND pos > ?1
            ORDER BY pos";
        let below = SubtreeRange::of(root);
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let parameters = params![after, root.as_str(), below.first, below.end];
        let found = self.query_all(sql, parameters, |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
        found.into_iter().map(|(session, pos)| Ok((self.id(&session)?, Cursor::new(pos)))).collect()
    }

    pub(super) fn id(&self, text: &str) -> Result<SessionId, StoreError> {
        text.parse().map_err(|error| broken(self.place, format!("a record is damaged: {error}")))
    }

    /// First id after `after` and before `end` that has events. Skipping from id to id keeps listings cheap.
    fn next_session(&self, after: &str, end: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT min(session) FROM events WHERE session > ? AND session < ?";
        let found: Option<String> = self.query_one(sql, params![after, end], |row| row.get(0))?.flatten();
        match found {
            Some(found) if *found <= *after => Err(broken(self.place, "its index is damaged".into())),
            found => Ok(found),
        }
    }

    /// Ids of a session and its descendants.
    pub(super) fn sessions(&self, root: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        let mut sessions = Vec::new();
        if self.exists(root)? {
            sessions.push(root.clone());
        }
        let mut below = SubtreeRange::of(root);
        while let Some(found) = self.next_session(&below.first, &below.end)? {
            sessions.push(self.id(&found)?);
            below.first = found;
        }
        Ok(sessions)
    }

    pub(super) fn runner(&self, root: &SessionId) -> Result<Option<Owner>, StoreError> {
        runner(self.connection, root).map_err(|error| self.explain(error))
    }

    /// All trees, newest first.
    pub(super) fn roots(&self) -> Result<Vec<RootSummary>, StoreError> {
        let now = now(self.connection).map_err(|error| self.explain(error))?;
        let observer = Owner::this_process();
        let mut listed = Vec::new();
        let mut after = String::new();
        while let Some(next) = self.next_session(&after, "~")? {
            let session = self.id(&next)?;
            let root = session.root_id();
            after = SubtreeRange::of(&root).end;
            if session == root {
                listed.push(root);
            }
        }
        listed.extend(self.listed_below()?);
        let mut found = Vec::new();
        for root in listed {
            let row = lease_row(self.connection, &root).map_err(|error| self.explain(error))?;
            let runner = row.and_then(|row| row.runner(&observer, now).cloned());
            // Also of a damaged row, and so without a check.
            let started: Option<(i64, u64)> = self.query_one(
                "SELECT at, pos FROM events WHERE session = ? ORDER BY seq LIMIT 1",
                params![root.as_str()],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            let (first, last) = (self.first_of(&root), self.last_of(&root));
            found.push((started, RootSummary { root, first, last, runner }));
        }
        found.sort_by_key(|(started, _)| std::cmp::Reverse(*started));
        Ok(found.into_iter().map(|(_, summary)| summary).collect())
    }

    /// Descendant sessions that are listed by themselves: dispatched ones, and ones that were resumed on their
    /// own.
    fn listed_below(&self) -> Result<BTreeSet<SessionId>, StoreError> {
        let sql = "SELECT session FROM events WHERE outside = 2
            UNION SELECT root FROM leases WHERE last_run IS NOT NULL AND instr(root, '.') > 0
                AND EXISTS (SELECT 1 FROM events WHERE session = root)";
        let ids = self.query_all(sql, [], |row| row.get::<_, String>(0))?;
        ids.iter().map(|id| self.id(id)).collect()
    }

    fn first_of(&self, root: &SessionId) -> Result<Record, StoreError> {
        let sql = columns!("WHERE session = ? ORDER BY seq LIMIT 1");
        self.edge_record(root, ExpectedSeq::Exact(0), sql, |batch| batch.events().next())
    }

    pub(super) fn last_of(&self, root: &SessionId) -> Result<Record, StoreError> {
        let sql = columns!("WHERE session = ? ORDER BY seq DESC LIMIT 1");
        self.edge_record(root, ExpectedSeq::Any, sql, |batch| batch.events().last())
    }

    fn edge_record(
        &self,
        root: &SessionId,
        expected: ExpectedSeq,
        sql: &str,
        choose: impl for<'b> Fn(&Batch<'b>) -> Option<BatchEvent<'b>>,
    ) -> Result<Record, StoreError> {
        let unknown = || StoreError::UnknownSession(root.clone());
        let read = |row: &Row<'_>| {
            let batch = self.batch(root, expected, row)?;
            self.record(root, &batch, choose(&batch).ok_or_else(unknown)?)
        };
        self.query_one(sql, params![root.as_str()], |row| Ok(read(row)))?.ok_or_else(unknown)?
    }
}

/// Records of a `tail` query so far.
#[derive(Default)]
struct TailPage {
    records: Vec<Record>,
    /// Next expected event of each session on the page.
    expected: std::collections::HashMap<SessionId, u64>,
}

impl TailPage {
    /// Adds the events of a row after a position, up to a limit.
    fn push(
        &mut self,
        snapshot: &Snapshot<'_>,
        after: Pos,
        limit: usize,
        row: &Row<'_>,
    ) -> Result<(), StoreError> {
        let id = row.get_ref(1).ok().and_then(|value| value.as_str().ok()).unwrap_or_default();
        let session = match self.records.last() {
            Some(last) if last.session.as_str() == id => last.session.clone(),
            _ => snapshot.id(id)?,
        };
        let expected =
            self.expected.get(&session).map_or(ExpectedSeq::Any, |expected| ExpectedSeq::Exact(*expected));
        let batch = snapshot.batch(&session, expected, row)?;
        if let ExpectedSeq::Any = expected {
            let end = snapshot.end_before(&session, batch.first)?;
            if end < batch.first {
                return Err(StoreError::MissingRecord { session, seq: end });
            }
        }
        for event_line in
            batch.events().filter(|event_line| event_line.pos > after).take(limit - self.records.len())
        {
            self.records.push(snapshot.record(&session, &batch, event_line)?);
        }
        self.expected.insert(session, batch.events().count() as u64 + batch.first);
        Ok(())
    }
}
