//! A store outside the crate: encoded rows in a map, with positions that each tree counts by itself. It uses only the
//! public interface, as a store in a crate of its own would.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use brigade::store::backend::{
    self, DecodeError, EXTERNAL, Encoded, EndedRounds, LISTED, LeaseRow, OpenRound, ancestors,
};
use brigade::store::{
    Append, Appended, BrokenKind, Followers, Lease, Owner, Prefix, ReturnedChild, RootSummary, Store,
    StoreError, TreeTotals,
};
use brigade::{Models, ResumeOptions, Runtime, Settings, Task, Workspace};
use brigade_core::event::VERSION;
use brigade_core::{Cursor, Event, Hash, Record, SessionId};
use brigade_testing::{Script, delegate};
use futures::future::{BoxFuture, ready};
use tokio::sync::watch;

async fn new_store() -> (MapStore, ()) {
    (MapStore { map: Mutex::default(), changes: watch::Sender::new(0), followers: Followers::default() }, ())
}

brigade::store_laws!(new_store);

#[tokio::test]
async fn trees_run_and_continue_on_a_store_that_orders_each_tree_by_itself() {
    let script = Script::new().agent("lead", [delegate("Helper", "help").turn(1)]).reply("done");
    let folder = crate::store::support::folder();
    let models = || Models::default().with("script", script.model());
    let settings = || Settings::new("script", Workspace::open(folder.path()).unwrap());
    let store = Arc::new(new_store().await.0);
    let mut lengths = Vec::new();
    for _ in 0..3 {
        let runtime = Runtime::new(store.clone(), settings(), models());
        let root = runtime.start(Task::new("task")).await.unwrap().result().await.unwrap().session;
        runtime.tell(&root, "more").await.unwrap();
        // A process that has not seen the first round.
        let next = Runtime::new(store.clone(), settings(), models());
        let run = next.resume(&root, ResumeOptions::default()).await.unwrap();
        assert_eq!(run.result().await.unwrap().outcome.text.as_str(), "done");
        let tree = store.tail(&root, Cursor::START, usize::MAX).await.unwrap();
        let positions: Vec<u64> = tree.iter().map(|record| record.pos.number()).collect();
        assert_eq!(positions, (1..=tree.len() as u64).collect::<Vec<_>>(), "each tree begins at 1");
        lengths.push((tree.len(), store.sessions(&root).await.unwrap().len()));
    }
    assert_eq!(lengths[0].1, 2);
    assert!(lengths.iter().all(|lengths_of_tree| *lengths_of_tree == lengths[0]), "{lengths:?}");
}

struct MapStore {
    map: Mutex<Map>,
    changes: watch::Sender<u64>,
    followers: Followers,
}

/// Encoded events that were appended together.
struct StoredRow {
    /// Number of the first event in the order of its tree.
    first_pos: u64,
    count: u64,
    at: u64,
    v: u64,
    flag: u64,
    body: Vec<u8>,
    sum: [u8; 8],
}

#[derive(Default)]
struct Map {
    /// Rows by session and the `seq` of the first event.
    rows: BTreeMap<(SessionId, u64), StoredRow>,
    blobs: BTreeMap<Hash, Arc<str>>,
    /// Content by referrer: a session for its texts, a tree for its definitions.
    texts: BTreeMap<SessionId, BTreeSet<Hash>>,
    definitions: BTreeMap<SessionId, BTreeSet<Hash>>,
    leases: BTreeMap<SessionId, LeaseRow>,
    /// Last position of each tree, also of removed ones.
    last_pos: HashMap<SessionId, u64>,
    /// Highest removed position of each tree.
    removed: HashMap<SessionId, u64>,
    imported: HashMap<SessionId, u64>,
    removed_edits: BTreeSet<Hash>,
    now: u64,
}

fn unusable(error: impl ToString) -> StoreError {
    StoreError::Broken { place: "the map".into(), kind: BrokenKind::Other, cause: error.to_string() }
}

impl Map {
    fn rows_of(&self, session: &SessionId) -> impl Iterator<Item = (u64, &StoredRow)> {
        let range = (session.clone(), 0)..=(session.clone(), u64::MAX);
        self.rows.range(range).map(|((_, first), row)| (*first, row))
    }

    fn length(&self, session: &SessionId) -> u64 {
        self.rows_of(session).last().map_or(0, |(first, row)| first + row.count)
    }

    fn below(&self, root: &SessionId) -> BTreeSet<SessionId> {
        self.rows
            .keys()
            .map(|(session, _)| session)
            .filter(|session| root.contains(session))
            .cloned()
            .collect()
    }

    fn decode(&self, session: &SessionId, first: u64, row: &StoredRow) -> Result<Vec<Record>, StoreError> {
        let last = first + row.count - 1;
        if row.sum != backend::checksum(session.as_str(), last, row.at, row.v, &row.body) {
            return Err(DecodeError::Damaged("its checksum does not match".into()).of(session, first));
        }
        let lines = backend::lines(&row.body).map_err(|error| error.of(session, first))?;
        let record = |(line, nth): (&str, u64)| {
            let seq = first + nth;
            let mut event = backend::decode(line, row.v).map_err(|error| error.of(session, seq))?;
            let find = &mut |hash: Hash| Ok::<_, DecodeError>(self.blobs.get(&hash).cloned());
            backend::hydrate(&mut event, find).map_err(|error| error.of(session, seq))?;
            let pos = Cursor::new(row.first_pos + nth);
            Ok(Record { session: session.clone(), seq, pos, at: row.at, v: VERSION, event })
        };
        lines.zip(0..).map(record).collect()
    }

    fn read(&self, session: &SessionId, from: u64) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for (first, row) in self.rows_of(session).filter(|(first, row)| first + row.count > from) {
            records.extend(self.decode(session, first, row)?.into_iter().filter(|record| record.seq >= from));
        }
        Ok(records)
    }

    fn tail(&self, root: &SessionId, after: Cursor) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for session in self.below(root) {
            records.extend(self.read(&session, 0)?);
        }
        records.retain(|record| record.pos.number() > after.number());
        records.sort_by_key(|record| record.pos.number());
        Ok(records)
    }

    fn write(&mut self, session: &SessionId, seq: u64, at: u64, v: u64, encoded: &Encoded) -> Cursor {
        let tree = session.root_id();
        self.blobs.extend(encoded.blobs.iter().cloned());
        self.texts.entry(session.clone()).or_default().extend(&encoded.texts);
        self.definitions.entry(tree.clone()).or_default().extend(&encoded.definitions);
        let last_pos = self.last_pos.entry(tree).or_default();
        let (written, mut seq) = (Cursor::new(*last_pos + 1), seq);
        for row in encoded.rows() {
            let (first_pos, count, body) = (*last_pos + 1, row.event_count, row.body.to_vec());
            let sum = backend::checksum(session.as_str(), seq + count - 1, at, v, &body);
            let stored = StoredRow { first_pos, count, at, v, flag: row.flag, body, sum };
            self.rows.insert((session.clone(), seq), stored);
            seq += count;
            *last_pos += count;
        }
        written
    }

    fn append(&mut self, append: Append) -> Result<Appended, StoreError> {
        backend::check_external(&append)?;
        if let Some(lease) = &append.lease {
            LeaseRow::check(self.leases.get(&lease.root), lease, &append.session)?;
        }
        let first_seq = self.length(&append.session);
        append.expect.check(&append.session, first_seq)?;
        let mut encoded = Encoded::with_capacity(append.events.len());
        append.blobs.into_iter().for_each(|content| encoded.add_blob(content));
        append.events.iter().try_for_each(|event| encoded.push(event)).map_err(unusable)?;
        let first_pos = self.write(&append.session, first_seq, append.at, u64::from(VERSION), &encoded);
        self.now = self.now.max(append.at);
        if let Some(row) = append.lease.and_then(|lease| self.leases.get_mut(&lease.root)) {
            row.renew(append.at);
        }
        Ok(Appended { first_seq, first_pos })
    }

    fn runner(&self, root: &SessionId) -> Option<Owner> {
        self.leases.get(root)?.runner(&Owner::this_process(), self.now).cloned()
    }

    fn check_idle(&self, session: &SessionId) -> Result<(), StoreError> {
        let held = ancestors(session).find_map(|root| Some((self.runner(&root)?, root)));
        held.map_or(Ok(()), |(owner, root)| Err(StoreError::Held { root, owner }))
    }

    fn remove(&mut self, root: &SessionId) -> Result<(), StoreError> {
        self.check_idle(root)?;
        let has_run = |own: &SessionId| self.leases.get(own).is_some_and(|row| row.last_run.is_some());
        let is_spared = |session: &SessionId| {
            ancestors(session).take_while(|above| above != root).any(|above| has_run(&above))
        };
        let removed: Vec<SessionId> =
            self.below(root).into_iter().filter(|session| !is_spared(session)).collect();
        if removed.is_empty() {
            return Err(StoreError::UnknownSession(root.clone()));
        }
        let tree = root.root_id();
        for session in removed {
            let records = self.read(&session, 0)?;
            self.removed_edits.extend(records.iter().filter_map(|record| backend::edit(&record.event)));
            let last = records.last().map_or(0, |record| record.pos.number());
            let highest = self.removed.entry(tree.clone()).or_default();
            *highest = last.max(*highest);
            self.rows.retain(|(other, _), _| *other != session);
            self.texts.remove(&session);
            if let Some(row) = self.leases.get_mut(&session) {
                *row = row.tombstone();
            }
        }
        if self.below(&tree).is_empty() {
            self.definitions.remove(&tree);
            self.imported.remove(&tree);
        }
        let used: BTreeSet<&Hash> = self.texts.values().chain(self.definitions.values()).flatten().collect();
        self.blobs.retain(|hash, _| used.contains(hash));
        Ok(())
    }

    fn restore(&mut self, records: Vec<Record>, blobs: Vec<Arc<str>>) -> Result<u64, StoreError> {
        let mut lengths: HashMap<SessionId, u64> = HashMap::new();
        let mut new = Vec::new();
        for record in records {
            let length = self.length(&record.session);
            let next = lengths.entry(record.session.clone()).or_insert(length);
            let (session, seq) = (record.session.clone(), record.seq);
            if seq > *next {
                return Err(StoreError::MissingRecord { session, seq: *next });
            }
            if seq == *next {
                self.check_idle(&session)?;
                *next += 1;
                new.push(record);
            } else if self
                .read(&session, seq)?
                .first()
                .is_none_or(|own| Record { pos: own.pos, ..record } != *own)
            {
                return Err(StoreError::Differs { session, seq });
            }
        }
        let mut blobs = Some(blobs);
        for record in &new {
            let mut encoded = Encoded::default();
            blobs.take().into_iter().flatten().for_each(|content| encoded.add_blob(content));
            encoded.push(&record.event).map_err(unusable)?;
            let written = self.write(&record.session, record.seq, record.at, u64::from(record.v), &encoded);
            self.imported.insert(record.session.root_id(), written.number());
        }
        for child in ReturnedChild::returned(&new) {
            let tree = child.session.root_id();
            if self.length(&child.session) == 0 {
                self.removed.insert(tree.clone(), self.last_pos.get(&tree).copied().unwrap_or_default());
            }
        }
        Ok(new.len() as u64)
    }

    fn roots(&self) -> Result<Vec<RootSummary>, StoreError> {
        let sessions: BTreeSet<&SessionId> = self.rows.keys().map(|(session, _)| session).collect();
        let is_listed = |session: &SessionId| {
            session.is_root()
                || self.rows_of(session).next().is_some_and(|(_, row)| row.flag == LISTED)
                || self.leases.get(session).is_some_and(|row| row.last_run.is_some())
        };
        let mut roots = Vec::new();
        for root in sessions.into_iter().filter(|session| is_listed(session)) {
            let records = self.read(root, 0)?;
            let (Some(first), Some(last)) = (records.first().cloned(), records.last().cloned()) else {
                continue;
            };
            let summary = RootSummary {
                root: root.clone(),
                first: Ok(first),
                last: Ok(last),
                runner: self.runner(root),
            };
            roots.push((records[0].at, summary));
        }
        roots.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Ok(roots.into_iter().map(|(_, summary)| summary).collect())
    }

    fn totals(&self, root: &SessionId) -> TreeTotals {
        let log = self.read(root, 0)?;
        if log.is_empty() {
            return Err(StoreError::UnknownSession(root.clone()));
        }
        let (mut ended, mut open) = (EndedRounds::default(), OpenRound::default());
        let mut until = Cursor::START;
        for record in &log {
            ended.take(&record.event);
            if matches!(record.event, Event::Ended { .. }) {
                until = record.pos;
            }
        }
        self.tail(root, until)?.iter().for_each(|record| open.take(record));
        Ok(ended.with(root, &open, self.below(root).len() as u64))
    }

    fn verify(&self, root: &SessionId, children: &[ReturnedChild]) -> Result<(), StoreError> {
        let was_run = ancestors(root).any(|above| self.leases.contains_key(&above));
        let removed = self.removed.get(&root.root_id()).copied().unwrap_or_default();
        let is_lost =
            |child: &&ReturnedChild| removed < child.after.number() && self.length(&child.session) == 0;
        children.iter().find(is_lost).filter(|_| was_run).map_or(Ok(()), |child| Err(child.missing()))
    }
}

impl MapStore {
    fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Map) -> T) -> BoxFuture<'_, T> {
        let answer = work(&mut self.map.lock().unwrap());
        Box::pin(ready(answer))
    }

    fn signal(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Store for MapStore {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        if append.lease.is_none() {
            self.signal();
        }
        let (session, at, events) = (append.session.clone(), append.at, append.events.clone());
        self.with(|map| {
            let appended = map.append(append)?;
            self.followers.appended(&session, appended, at, &events);
            Ok(appended)
        })
    }

    fn read(&self, session: &SessionId, from: u64) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        self.with(|map| map.read(session, from))
    }

    fn read_prefix(&self, session: &SessionId) -> BoxFuture<'_, Result<Prefix, StoreError>> {
        self.with(|map| Ok((map.read(session, 0)?, None)))
    }

    fn tail(
        &self,
        root: &SessionId,
        after: Cursor,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        self.with(|map| Ok(map.tail(root, after)?.into_iter().take(limit).collect()))
    }

    fn verify(
        &self,
        root: &SessionId,
        children: Vec<ReturnedChild>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.with(|map| map.verify(root, &children))
    }

    fn external_events(
        &self,
        root: &SessionId,
        after: Cursor,
    ) -> BoxFuture<'_, Result<Vec<(SessionId, Cursor)>, StoreError>> {
        self.with(|map| {
            let mut found: Vec<(SessionId, Cursor)> = Vec::new();
            for ((session, _), row) in map.rows.iter().filter(|(_, row)| row.flag == EXTERNAL) {
                if root.contains(session) && row.first_pos > after.number() {
                    found.push((session.clone(), Cursor::new(row.first_pos)));
                }
            }
            found.sort_by_key(|(_, pos)| pos.number());
            Ok(found)
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn followers(&self) -> &Followers {
        &self.followers
    }

    fn lease(&self, root: &SessionId, owner: &Owner, at: u64) -> BoxFuture<'_, Result<Lease, StoreError>> {
        self.with(|map| {
            let (lease, row) = LeaseRow::take(map.leases.get(root), root, owner, at)?;
            map.now = map.now.max(at);
            map.leases.insert(root.clone(), row);
            Ok(lease)
        })
    }

    fn renew(&self, lease: &Lease, at: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        self.with(|map| {
            let row = map.leases.get_mut(&lease.root);
            LeaseRow::check(row.as_deref(), lease, &lease.root)?;
            row.into_iter().for_each(|row| row.renew(at));
            map.now = map.now.max(at);
            Ok(())
        })
    }

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<(), StoreError>> {
        self.with(|map| {
            let row = map.leases.get_mut(&lease.root).filter(|row| row.admits(lease));
            row.into_iter().for_each(|row| row.owner = None);
            Ok(())
        })
    }

    fn runner(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Owner>, StoreError>> {
        self.with(|map| Ok(map.runner(root)))
    }

    fn roots(&self) -> BoxFuture<'_, Result<Vec<RootSummary>, StoreError>> {
        self.with(|map| map.roots())
    }

    fn totals(&self, roots: Vec<SessionId>) -> BoxFuture<'_, Result<Vec<TreeTotals>, StoreError>> {
        self.with(|map| Ok(roots.iter().map(|root| map.totals(root)).collect()))
    }

    fn sessions(&self, root: &SessionId) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>> {
        self.with(|map| Ok(map.below(root).into_iter().collect()))
    }

    fn remove(&self, root: &SessionId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.signal();
        self.with(|map| map.remove(root))
    }

    fn blob(&self, hash: Hash) -> BoxFuture<'_, Result<Option<Arc<str>>, StoreError>> {
        self.with(|map| Ok(map.blobs.get(&hash).cloned()))
    }

    fn has_edit(&self, content: Hash) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.with(|map| {
            let mut is_known = map.removed_edits.contains(&content);
            for ((session, first), row) in &map.rows {
                let records = map.decode(session, *first, row)?;
                is_known |= records.iter().any(|record| backend::edit(&record.event) == Some(content));
            }
            Ok(is_known)
        })
    }

    fn restore(&self, records: Vec<Record>, blobs: Vec<Arc<str>>) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.signal();
        self.with(|map| {
            let restored = map.restore(records, blobs);
            self.followers.changed();
            restored
        })
    }

    fn imported(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Cursor>, StoreError>> {
        self.with(|map| Ok(map.imported.get(root).copied().map(Cursor::new)))
    }
}
