//! Cache of folded session logs. A next round reads only the events appended since, so that a round in a long
//! conversation costs no more than one in a short conversation.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use brigade_core::permission::Mode;
use brigade_core::{Cursor, Event, Hash, Record, SessionId, State};

use crate::fast_map::FastMap;
use crate::store::{ReturnedChild, Store, StoreError};

/// Number of cached sessions. A process is active in few sessions at a time.
const MAX_CACHED_SESSIONS: usize = 16;

/// A folded log.
#[derive(Debug)]
pub(crate) struct CachedSession {
    pub(crate) state: State,
    /// Position of the last event.
    pub(crate) last_pos: Cursor,
    /// Position of the first event of the last round, if it was read here.
    pub(crate) started: Cursor,
    /// Positions at which the session was resumed, with the downtime before each in milliseconds.
    pub(crate) resumes: Vec<(Cursor, u64)>,
    /// Epoch of the runner that resumed the session last.
    pub(crate) epoch: Option<u64>,
    /// Mode that the user chose when resuming the last round.
    pub(crate) mode: Option<Mode>,
    /// Position of the last event imported into the tree.
    pub(crate) imported: Option<Cursor>,
    /// Highest number of a numbered delegation in the tree, and the position up to which the log was searched for
    /// it.
    pub(crate) number: (u32, Cursor),
}

impl CachedSession {
    /// Reads and folds a whole log, and verifies that the store lost nothing of it.
    pub(super) async fn read(store: &dyn Store, session: &SessionId) -> Result<CachedSession, StoreError> {
        let records = store.read(session, 0).await?;
        if records.is_empty() {
            return Err(StoreError::UnknownSession(session.clone()));
        }
        store.verify(session, ReturnedChild::returned(&records)).await?;
        let imported = store.imported(&session.root_id()).await?;
        let is_imported = |record: &&Record| imported.is_some_and(|mark| !store.is_after(record.pos, mark));
        let (foreign, own) = records.split_at(records.iter().take_while(is_imported).count());
        let mut cached = CachedSession {
            state: State::new(session.clone()),
            last_pos: Cursor::START,
            started: Cursor::START,
            resumes: Vec::new(),
            epoch: None,
            mode: None,
            imported,
            number: (0, Cursor::START),
        };
        foreign.iter().for_each(|record| cached.apply(record));
        if !foreign.is_empty() {
            cached.state.forget_permissions();
        }
        own.iter().for_each(|record| cached.apply(record));
        Ok(cached)
    }

    /// Applies the events appended since. Returns false if the log was removed and another one has its id.
    pub(crate) async fn catch_up(&mut self, store: &dyn Store) -> Result<bool, StoreError> {
        let Some(last) = self.state.length().checked_sub(1) else { return Ok(false) };
        let records = store.read(self.state.session(), last).await?;
        let Some((first, new)) = records.split_first() else { return Ok(false) };
        if first.pos != self.last_pos {
            return Ok(false);
        }
        new.iter().for_each(|record| self.apply(record));
        Ok(true)
    }

    fn apply(&mut self, record: &Record) {
        self.state.apply(&record.event);
        self.last_pos = record.pos;
        match &record.event {
            Event::Started { .. } => {
                self.started = record.pos;
                self.mode = None;
            }
            Event::Resumed { epoch, downtime, mode } => {
                self.resumes.push((record.pos, *downtime));
                self.epoch = Some(*epoch);
                self.mode = mode.or(self.mode);
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct SessionCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    cached: VecDeque<CachedSession>,
    /// Agents of sessions, including those running now.
    agents: FastMap<SessionId, Hash>,
}

impl SessionCache {
    /// Returns the session folded up to now and removes it from the cache until it is put back.
    pub(crate) async fn take(
        &self,
        store: &dyn Store,
        session: &SessionId,
    ) -> Result<CachedSession, StoreError> {
        if let Some(mut cached) = self.remove(session)
            && cached.catch_up(store).await?
        {
            return Ok(cached);
        }
        CachedSession::read(store, session).await
    }

    /// Caches a session.
    pub(crate) fn put(&self, cached: CachedSession) {
        let mut cache = self.lock();
        cache.note_agent(&cached.state);
        cache.cached.retain(|other| other.state.session() != cached.state.session());
        cache.cached.push_back(cached);
        while cache.cached.len() > MAX_CACHED_SESSIONS {
            cache.cached.pop_front();
        }
    }

    /// Returns the hash of the agent definition of a session.
    pub(crate) async fn agent(
        &self,
        store: &dyn Store,
        session: &SessionId,
    ) -> Result<Option<Hash>, StoreError> {
        let agent = self.lock().agents.get(session).copied();
        if agent.is_some() {
            return Ok(agent);
        }
        let cached = self.take(store, session).await?;
        let agent = cached.state.round().map(|round| round.agent);
        self.put(cached);
        Ok(agent)
    }

    fn remove(&self, session: &SessionId) -> Option<CachedSession> {
        let mut cache = self.lock();
        let at = cache.cached.iter().position(|cached| cached.state.session() == session)?;
        let cached = cache.cached.remove(at)?;
        cache.note_agent(&cached.state);
        Some(cached)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn note_agent(&mut self, state: &State) {
        if self.agents.len() > 8 * MAX_CACHED_SESSIONS {
            self.agents.clear();
        }
        if let Some(round) = state.round() {
            self.agents.insert(state.session().clone(), round.agent);
        }
    }
}
