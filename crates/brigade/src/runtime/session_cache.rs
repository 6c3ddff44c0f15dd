//! Sessions whose logs this process has folded. A next round reads only what was appended since, so that a long
//! conversation costs no more per round than a short one.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use brigade_core::permission::Mode;
use brigade_core::{Event, Hash, Record, SessionId, State};

use crate::fast_map::FastMap;
use crate::store::{Pos, ReturnedChild, Store, StoreError};

/// Number of sessions that are remembered. A process talks in few at a time.
const MAX_CACHED_SESSIONS: usize = 16;

/// A log, folded.
#[derive(Debug)]
pub(crate) struct CachedSession {
    pub(crate) state: State,
    /// Position of its last fact.
    pub(crate) last_pos: Pos,
    /// Position of the first fact of its last round, if that was read here.
    pub(crate) started: Pos,
    /// Positions at which it was resumed, and for how long nobody had run it.
    pub(crate) resumes: Vec<(Pos, u64)>,
    /// Epoch of the runner that resumed it last.
    pub(crate) epoch: Option<u64>,
    /// Mode that the user chose for its last round when it was resumed.
    pub(crate) mode: Option<Mode>,
    /// Position of the last fact that was imported into its tree.
    pub(crate) imported: Option<Pos>,
    /// Highest rank of a face-D delegation in its tree, and the position up to which ranks were looked for.
    pub(crate) number: (u32, Pos),
}

impl CachedSession {
    /// Reads a whole log, and checks that nothing of it is lost.
    pub(super) async fn read(store: &dyn Store, session: &SessionId) -> Result<CachedSession, StoreError> {
        let records = store.read(session, 0).await?;
        if records.is_empty() {
            return Err(StoreError::UnknownSession(session.clone()));
        }
        store.verify(session, ReturnedChild::returned(&records)).await?;
        let imported = store.imported(&session.root_id()).await?;
        let is_imported = |record: &&Record| imported.is_some_and(|import_pos| record.pos <= import_pos);
        let (foreign, own) = records.split_at(records.iter().take_while(is_imported).count());
        let mut cached = CachedSession {
            state: State::new(session.clone()),
            last_pos: 0,
            started: 0,
            resumes: Vec::new(),
            epoch: None,
            mode: None,
            imported,
            number: (0, 0),
        };
        foreign.iter().for_each(|record| cached.apply(record));
        if !foreign.is_empty() {
            cached.state.forget_permissions();
        }
        own.iter().for_each(|record| cached.apply(record));
        Ok(cached)
    }

    /// Reads what was appended since. False if the log is not the one that was folded: it was removed, and another one
    /// has its name.
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

/// The sessions that are remembered.
#[derive(Debug, Default)]
pub(crate) struct SessionCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    cached: VecDeque<CachedSession>,
    /// The agents of sessions, also of those that run now.
    agents: FastMap<SessionId, Hash>,
}

impl SessionCache {
    /// Folds a session as it is now. It is forgotten until it is put back.
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

    /// Remembers a session until it is asked for again.
    pub(crate) fn put(&self, cached: CachedSession) {
        let mut cache = self.lock();
        cache.note_agent(&cached.state);
        cache.cached.retain(|other| other.state.session() != cached.state.session());
        cache.cached.push_back(cached);
        while cache.cached.len() > MAX_CACHED_SESSIONS {
            cache.cached.pop_front();
        }
    }

    /// The definition of the agent of a session.
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
