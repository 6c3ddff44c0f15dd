//! Writing of records from another store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use brigade_core::{Record, SessionId};
use rusqlite::{OptionalExtension, params};

use super::write_tx::WriteTx;
use super::writer::WriteError;
use brigade_base::store::backend::{self, Encoded};
use brigade_base::store::{ReturnedChild, StoreError};

/// Encoded records for the writer.
#[derive(Debug)]
pub(super) struct RestoreJob {
    entries: Vec<RestoreEntry>,
    /// Children that must be present unless they were removed in the store that the records come from.
    children: Vec<ReturnedChild>,
}

#[derive(Debug)]
struct RestoreEntry {
    session: SessionId,
    seq: u64,
    at: u64,
    v: u64,
    encoded: Encoded,
}

impl RestoreJob {
    pub(super) fn new(records: Vec<Record>, blobs: Vec<Arc<str>>) -> Result<RestoreJob, serde_json::Error> {
        let children = ReturnedChild::returned(&records);
        let mut blobs = Some(blobs);
        let entry = |record: Record| {
            let mut encoded = Encoded::default();
            encoded.push(&record.event)?;
            // Definitions are added with the first record of the tree, which lives as long as all references to
            // them.
            blobs.take().into_iter().flatten().for_each(|content| encoded.add_blob(content));
            let Record { session, seq, at, v, .. } = record;
            Ok(RestoreEntry { session, seq, at, v: u64::from(v), encoded })
        };
        Ok(RestoreJob { entries: records.into_iter().map(entry).collect::<Result<_, _>>()?, children })
    }
}

impl WriteTx<'_> {
    /// Writes the records that are not present yet. All of them are checked first, so that a refusal writes
    /// nothing.
    pub(super) fn restore(&mut self, job: &RestoreJob) -> Result<u64, WriteError> {
        let mut lengths: HashMap<&SessionId, u64> = HashMap::new();
        let mut new = Vec::new();
        for entry in &job.entries {
            let length = match lengths.get(&entry.session) {
                Some(length) => *length,
                None => self.length(&entry.session)?,
            };
            if entry.seq < length {
                self.check_same(entry)?;
                lengths.insert(&entry.session, length);
                continue;
            }
            if entry.seq > length {
                return Err(StoreError::MissingRecord { session: entry.session.clone(), seq: length }.into());
            }
            lengths.insert(&entry.session, length + 1);
            new.push(entry);
        }
        let growing: HashSet<&SessionId> = new.iter().map(|entry| &entry.session).collect();
        growing.into_iter().try_for_each(|session| self.check_idle(session))?;
        for entry in &new {
            self.write_blobs(&entry.session, &entry.encoded)?;
            self.insert(&entry.session, entry.seq, entry.at, entry.v, &entry.encoded)?;
        }
        if !new.is_empty() {
            self.note_removed(&job.children)?;
        }
        if let Some(last) = self.last_pos().filter(|_| !new.is_empty()) {
            let grown: HashSet<SessionId> = new.iter().map(|entry| entry.session.root_id()).collect();
            grown.iter().try_for_each(|root| self.mark_imported(root, last))?;
        }
        self.written.must_notify |= !new.is_empty();
        self.written.restored |= !new.is_empty();
        Ok(new.len() as u64)
    }

    /// Notes that missing children were removed in the store that the records come from.
    fn note_removed(&self, children: &[ReturnedChild]) -> rusqlite::Result<()> {
        let mut is_there =
            self.connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM events WHERE session = ?)")?;
        for child in children {
            if !is_there.query_row([child.session.as_str()], |row| row.get::<_, bool>(0))? {
                let sql = "INSERT OR REPLACE INTO removed (only, pos) SELECT 0, max(pos) FROM events";
                return self.connection.execute(sql, []).map(drop);
            }
        }
        Ok(())
    }

    fn check_same(&self, entry: &RestoreEntry) -> Result<(), WriteError> {
        let sql = "SELECT seq, at, v, body FROM events WHERE session = ? AND seq >= ? ORDER BY seq LIMIT 1";
        let found: Option<(u64, u64, u64, Vec<u8>)> = self
            .connection
            .prepare_cached(sql)?
            .query_row(params![entry.session.as_str(), entry.seq], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()?;
        let same = found.is_some_and(|(last, at, v, body)| {
            let theirs = nth_last(&body, last - entry.seq);
            let same_fact = |ours: &str| {
                theirs.is_some_and(|theirs| {
                    theirs == ours || backend::decode(theirs, v) == backend::decode(ours, entry.v)
                })
            };
            let mut ours = entry.encoded.rows().flat_map(|row| backend::lines(row.body)).flatten();
            at == entry.at && v == entry.v && ours.all(same_fact)
        });
        if same {
            return Ok(());
        }
        Err(StoreError::Differs { session: entry.session.clone(), seq: entry.seq }.into())
    }
}

/// Event of a row with this many events after it.
fn nth_last(body: &[u8], following: u64) -> Option<&str> {
    backend::lines(body).ok()?.nth_back(usize::try_from(following).ok()?)
}
