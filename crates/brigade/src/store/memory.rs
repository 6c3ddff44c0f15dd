//! In-memory store for tests and for embedders that persist nothing. Its contract is that of the store on disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_core::event::VERSION;
use brigade_core::{Cursor, Event, Hash, Record, SessionId};
use futures::future::{BoxFuture, ready};
use tokio::sync::watch;

use super::backend::{self, EndedRounds, LeaseRow, OpenRound, ancestors};
use super::{
    Append, Appended, Followers, Lease, Owner, Prefix, ReturnedChild, RootSummary, Store, StoreError,
    TreeTotals,
};

/// Session logs that are lost when the process ends.
#[derive(Debug, Default)]
pub struct MemoryStore {
    logs: Mutex<Logs>,
    followers: Followers,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Logs {
    sessions: BTreeMap<SessionId, Vec<Record>>,
    order: BTreeMap<u64, (SessionId, u64)>,
    last_pos: u64,
    blobs: HashMap<Hash, Arc<str>>,
    /// Content that each session refers to.
    refs: HashMap<SessionId, HashSet<Hash>>,
    leases: BTreeMap<SessionId, LeaseRow>,
    /// Highest position that was ever removed.
    removed: u64,
    /// Imported trees, and the position of the last imported record of each.
    imported: HashMap<SessionId, u64>,
    /// Content that edits of removed sessions led to.
    removed_edits: HashSet<Hash>,
    /// Latest time passed by a caller. There is no other clock.
    now: u64,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    fn logs(&self) -> MutexGuard<'_, Logs> {
        // Every change is validated before it begins, so the data is consistent even after a panic.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn with_logs<T: Send + 'static>(&self, work: impl FnOnce(&mut Logs) -> T) -> BoxFuture<'_, T> {
        let answer = work(&mut self.logs());
        Box::pin(ready(answer))
    }
}

impl Logs {
    fn append(&mut self, append: Append) -> Result<Appended, StoreError> {
        backend::check_external(&append)?;
        if let Some(lease) = &append.lease {
            LeaseRow::check(self.leases.get(&lease.root), lease, &append.session)?;
        }
        let length = self.length(&append.session);
        append.expect.check(&append.session, length)?;
        self.now = self.now.max(append.at);
        self.add_blobs(&append.session, append.blobs);
        let first_pos = Cursor::new(self.last_pos + 1);
        for (event, seq) in append.events.iter().cloned().zip(length..) {
            let session = append.session.clone();
            self.push(Record { session, seq, pos: Cursor::START, at: append.at, v: VERSION, event });
        }
        if let Some(row) = append.lease.and_then(|lease| self.leases.get_mut(&lease.root)) {
            row.renew(append.at);
        }
        Ok(Appended { first_seq: length, first_pos })
    }

    fn push(&mut self, record: Record) {
        self.last_pos += 1;
        let record = Record { pos: Cursor::new(self.last_pos), ..record };
        let named = backend::definitions(&record.event);
        self.refs.entry(record.session.clone()).or_default().extend(named);
        self.order.insert(self.last_pos, (record.session.clone(), record.seq));
        self.sessions.entry(record.session.clone()).or_default().push(record);
    }

    fn add_blobs(&mut self, session: &SessionId, blobs: Vec<Arc<str>>) {
        for content in blobs {
            let hash = Hash::of(content.as_bytes());
            self.refs.entry(session.clone()).or_default().insert(hash);
            self.blobs.insert(hash, content);
        }
    }

    fn length(&self, session: &SessionId) -> u64 {
        self.sessions.get(session).map_or(0, |records| records.len() as u64)
    }

    fn runner(&self, root: &SessionId) -> Option<Owner> {
        let row = self.leases.get(root).filter(|row| row.owner.is_some())?;
        row.runner(&Owner::this_process(), self.now).cloned()
    }

    fn check_idle(&self, session: &SessionId) -> Result<(), StoreError> {
        for root in ancestors(session) {
            if let Some(owner) = self.runner(&root) {
                return Err(StoreError::Held { root, owner });
            }
        }
        Ok(())
    }

    fn below<'a>(&'a self, root: &'a SessionId) -> impl Iterator<Item = &'a SessionId> {
        self.sessions.keys().filter(|session| root.contains(session))
    }

    fn remove(&mut self, root: &SessionId) -> Result<(), StoreError> {
        self.check_idle(root)?;
        let leases = self.leases.iter().filter(|(own, row)| *own != root && row.last_run.is_some());
        let own: Vec<&SessionId> = leases.map(|(own, _)| own).filter(|own| root.contains(own)).collect();
        let spared = |session: &SessionId| own.iter().any(|own| own.contains(session));
        let removed_sessions: Vec<SessionId> =
            self.below(root).filter(|session| !spared(session)).cloned().collect();
        if removed_sessions.is_empty() {
            return Err(StoreError::UnknownSession(root.clone()));
        }
        for session in &removed_sessions {
            let log = self.sessions.remove(session).unwrap_or_default();
            self.removed = self.removed.max(log.last().map_or(0, |record| record.pos.number()));
            self.removed_edits.extend(log.iter().filter_map(|record| backend::edit(&record.event)));
            self.refs.remove(session);
            if let Some(row) = self.leases.get_mut(session) {
                *row = row.tombstone();
            }
        }
        self.order.retain(|_, (session, _)| self.sessions.contains_key(session));
        self.imported.retain(|root, _| self.sessions.keys().any(|session| root.contains(session)));
        self.blobs.retain(|hash, _| self.refs.values().any(|names| names.contains(hash)));
        Ok(())
    }

    fn restore(&mut self, records: Vec<Record>, blobs: Vec<Arc<str>>) -> Result<u64, StoreError> {
        let mut lengths: HashMap<SessionId, u64> = HashMap::new();
        let mut new = Vec::new();
        for record in records {
            let known = lengths.get(&record.session).copied();
            let length = known.unwrap_or_else(|| self.length(&record.session));
            let (session, seq) = (record.session.clone(), record.seq);
            if seq > length {
                return Err(StoreError::MissingRecord { session, seq: length });
            }
            if seq == length {
                self.check_idle(&session)?;
                new.push(record);
                lengths.insert(session, length + 1);
                continue;
            }
            let existing = self.sessions.get(&session).and_then(|log| log.get(usize::try_from(seq).ok()?));
            if existing.is_none_or(|existing| Record { pos: existing.pos, ..record } != *existing) {
                return Err(StoreError::Differs { session, seq });
            }
            lengths.insert(session, length);
        }
        if let Some(first) = new.first() {
            let session = first.session.clone();
            self.add_blobs(&session, blobs);
        }
        let count = new.len() as u64;
        let children = ReturnedChild::returned(&new);
        for record in new {
            let root = record.session.root_id();
            self.push(record);
            self.imported.insert(root, self.last_pos);
        }
        if children.iter().any(|child| !self.sessions.contains_key(&child.session)) {
            // Those sessions were removed in the store that the tree comes from.
            self.removed = self.last_pos;
        }
        Ok(count)
    }

    fn roots(&self) -> Vec<RootSummary> {
        let observer = Owner::this_process();
        let is_listed = |session: &SessionId, records: &[Record]| {
            session.is_root()
                || records.first().is_some_and(|first| backend::flag(&first.event) == backend::LISTED)
                || self.leases.get(session).is_some_and(|row| row.last_run.is_some())
        };
        let tops = self.sessions.iter().filter(|(session, records)| is_listed(session, records));
        let summary = |(root, records): (&SessionId, &Vec<Record>)| {
            let runner = self.leases.get(root).and_then(|row| row.runner(&observer, self.now)).cloned();
            let (first, last) = (records.first()?.clone(), records.last()?.clone());
            Some((
                (first.at, first.pos.number()),
                RootSummary { root: root.clone(), first: Ok(first), last: Ok(last), runner },
            ))
        };
        let mut found: Vec<((u64, u64), RootSummary)> = tops.filter_map(summary).collect();
        found.sort_by_key(|(started, _)| std::cmp::Reverse(*started));
        found.into_iter().map(|(_, summary)| summary).collect()
    }

    fn totals(&self, root: &SessionId) -> TreeTotals {
        let log = self.sessions.get(root).ok_or_else(|| StoreError::UnknownSession(root.clone()))?;
        let (mut ended, mut open) = (EndedRounds::default(), OpenRound::default());
        log.iter().for_each(|record| ended.take(&record.event));
        let mut ends = log.iter().rev().filter(|record| matches!(record.event, Event::Ended { .. }));
        let until = ends.next().map_or(Cursor::START, |record| record.pos);
        self.tail(root, until, usize::MAX).iter().for_each(|record| open.take(record));
        Ok(ended.with(root, &open, self.below(root).count() as u64))
    }

    fn verify(&self, root: &SessionId, children: &[ReturnedChild]) -> Result<(), StoreError> {
        let was_run = ancestors(root).any(|above| self.leases.contains_key(&above));
        let is_lost = |child: &&ReturnedChild| {
            self.removed < child.after.number() && !self.sessions.contains_key(&child.session)
        };
        children.iter().find(is_lost).filter(|_| was_run).map_or(Ok(()), |child| Err(child.missing()))
    }

    fn read(&self, session: &SessionId, from: u64) -> Vec<Record> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        self.sessions.get(session).and_then(|log| log.get(from..)).unwrap_or_default().to_vec()
    }

    fn tail(&self, root: &SessionId, after: Cursor, limit: usize) -> Vec<Record> {
        let places = self
            .order
            .range(after.number().saturating_add(1)..)
            .filter(|(_, (session, _))| root.contains(session));
        let record = |(_, (session, seq)): (&u64, &(SessionId, u64))| {
            self.sessions.get(session)?.get(usize::try_from(*seq).ok()?).cloned()
        };
        places.filter_map(record).take(limit).collect()
    }
}

impl Store for MemoryStore {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let is_external = append.lease.is_none();
        let (session, at, events) = (append.session.clone(), append.at, append.events.clone());
        let mut logs = self.logs();
        let appended = logs.append(append);
        if let Ok(appended) = appended {
            // Followers get appends in the order in which they happen.
            self.followers.appended(&session, appended, at, &events);
        }
        drop(logs);
        if is_external && appended.is_ok() {
            self.notify();
        }
        Box::pin(ready(appended))
    }

    fn read(&self, session: &SessionId, from: u64) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        self.with_logs(|logs| Ok(logs.read(session, from)))
    }

    fn read_prefix(&self, session: &SessionId) -> BoxFuture<'_, Result<Prefix, StoreError>> {
        self.with_logs(|logs| Ok((logs.read(session, 0), None)))
    }

    fn tail(
        &self,
        root: &SessionId,
        after: Cursor,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        self.with_logs(|logs| Ok(logs.tail(root, after, limit)))
    }

    fn verify(
        &self,
        root: &SessionId,
        children: Vec<ReturnedChild>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.with_logs(|logs| logs.verify(root, &children))
    }

    fn external_events(
        &self,
        root: &SessionId,
        after: Cursor,
    ) -> BoxFuture<'_, Result<Vec<(SessionId, Cursor)>, StoreError>> {
        self.with_logs(|logs| {
            let records = logs.tail(root, after, usize::MAX).into_iter();
            let words = records.filter(|record| record.event.is_external());
            Ok(words.map(|record| (record.session, record.pos)).collect())
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn followers(&self) -> &Followers {
        &self.followers
    }

    fn lease(&self, root: &SessionId, owner: &Owner, at: u64) -> BoxFuture<'_, Result<Lease, StoreError>> {
        self.with_logs(|logs| {
            let (lease, row) = LeaseRow::take(logs.leases.get(root), root, owner, at)?;
            logs.now = logs.now.max(at);
            logs.leases.insert(root.clone(), row);
            Ok(lease)
        })
    }

    fn renew(&self, lease: &Lease, at: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        self.with_logs(|logs| {
            logs.now = logs.now.max(at);
            let row = logs.leases.get_mut(&lease.root);
            LeaseRow::check(row.as_deref(), lease, &lease.root)?;
            row.into_iter().for_each(|row| row.renew(at));
            Ok(())
        })
    }

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<(), StoreError>> {
        self.with_logs(|logs| {
            if let Some(row) = logs.leases.get_mut(&lease.root).filter(|row| row.admits(lease)) {
                row.owner = None;
            }
            Ok(())
        })
    }

    fn runner(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Owner>, StoreError>> {
        self.with_logs(|logs| Ok(logs.runner(root)))
    }

    fn roots(&self) -> BoxFuture<'_, Result<Vec<RootSummary>, StoreError>> {
        self.with_logs(|logs| Ok(logs.roots()))
    }

    fn totals(&self, roots: Vec<SessionId>) -> BoxFuture<'_, Result<Vec<TreeTotals>, StoreError>> {
        self.with_logs(|logs| Ok(roots.iter().map(|root| logs.totals(root)).collect()))
    }

    fn sessions(&self, root: &SessionId) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>> {
        self.with_logs(|logs| Ok(logs.below(root).cloned().collect()))
    }

    fn remove(&self, root: &SessionId) -> BoxFuture<'_, Result<(), StoreError>> {
        let result = self.logs().remove(root);
        self.notify();
        Box::pin(ready(result))
    }

    fn blob(&self, hash: Hash) -> BoxFuture<'_, Result<Option<Arc<str>>, StoreError>> {
        self.with_logs(|logs| Ok(logs.blobs.get(&hash).cloned()))
    }

    fn has_edit(&self, content: Hash) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.with_logs(|logs| {
            let mut events = logs.sessions.values().flatten().map(|record| &record.event);
            Ok(logs.removed_edits.contains(&content)
                || events.any(|event| backend::edit(event) == Some(content)))
        })
    }

    fn restore(&self, records: Vec<Record>, blobs: Vec<Arc<str>>) -> BoxFuture<'_, Result<u64, StoreError>> {
        let mut logs = self.logs();
        let result = logs.restore(records, blobs);
        self.followers.changed();
        drop(logs);
        self.notify();
        Box::pin(ready(result))
    }

    fn imported(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Cursor>, StoreError>> {
        self.with_logs(|logs| Ok(logs.imported.get(root).copied().map(Cursor::new)))
    }
}
