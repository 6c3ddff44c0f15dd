//! Sessions whose logs this process has folded. A next round reads only what was appended since, so that a long
//! conversation costs no more per round than a short one.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use brigade_core::permission::Mode;
use brigade_core::{Event, Hash, Record, SessionId, State};

use crate::maps::Map;
use crate::store::{Child, Pos, Store, StoreError};

/// Number of sessions that are remembered. A process talks in few at a time.
const MAX_REMEMBERED: usize = 16;

/// A log, folded.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) state: State,
    /// Position of its last fact.
    pub(crate) last: Pos,
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

impl Known {
    /// Reads a whole log, and checks that nothing of it is lost.
    pub(super) async fn read(store: &dyn Store, session: &SessionId) -> Result<Known, StoreError> {
        let records = store.read(session, 0).await?;
        if records.is_empty() {
            return Err(StoreError::Unknown(session.clone()));
        }
        store.verify(session, Child::returned(&records)).await?;
        let imported = store.imported(&session.root_id()).await?;
        let is_imported = |record: &&Record| imported.is_some_and(|mark| record.pos <= mark);
        let (foreign, own) = records.split_at(records.iter().take_while(is_imported).count());
        let mut known = Known {
            state: State::new(session.clone()),
            last: 0,
            started: 0,
            resumes: Vec::new(),
            epoch: None,
            mode: None,
            imported,
            number: (0, 0),
        };
        foreign.iter().for_each(|record| known.apply(record));
        if !foreign.is_empty() {
            known.state.forget_permissions();
        }
        own.iter().for_each(|record| known.apply(record));
        Ok(known)
    }

    /// Reads what was appended since. False if the log is not the one that was folded: it was removed, and another one
    /// has its name.
    pub(crate) async fn catch_up(&mut self, store: &dyn Store) -> Result<bool, StoreError> {
        let Some(last) = self.state.length().checked_sub(1) else { return Ok(false) };
        let records = store.read(self.state.session(), last).await?;
        let Some((first, new)) = records.split_first() else { return Ok(false) };
        if first.pos != self.last {
            return Ok(false);
        }
        new.iter().for_each(|record| self.apply(record));
        Ok(true)
    }

    fn apply(&mut self, record: &Record) {
        self.state.apply(&record.event);
        self.last = record.pos;
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
pub(crate) struct Memory(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    known: VecDeque<Known>,
    /// The agents of sessions, also of those that run now.
    agents: Map<SessionId, Hash>,
}

impl Memory {
    /// Folds a session as it is now. It is forgotten until it is put back.
    pub(crate) async fn take(&self, store: &dyn Store, session: &SessionId) -> Result<Known, StoreError> {
        if let Some(mut known) = self.remove(session)
            && known.catch_up(store).await?
        {
            return Ok(known);
        }
        Known::read(store, session).await
    }

    /// Remembers a session until it is asked for again.
    pub(crate) fn put(&self, known: Known) {
        let mut remembered = self.remembered();
        remembered.note_agent(&known.state);
        remembered.known.retain(|other| other.state.session() != known.state.session());
        remembered.known.push_back(known);
        while remembered.known.len() > MAX_REMEMBERED {
            remembered.known.pop_front();
        }
    }

    /// The definition of the agent of a session.
    pub(crate) async fn agent(
        &self,
        store: &dyn Store,
        session: &SessionId,
    ) -> Result<Option<Hash>, StoreError> {
        let agent = self.remembered().agents.get(session).copied();
        if agent.is_some() {
            return Ok(agent);
        }
        let known = self.take(store, session).await?;
        let agent = known.state.round().map(|round| round.agent);
        self.put(known);
        Ok(agent)
    }

    fn remove(&self, session: &SessionId) -> Option<Known> {
        let mut remembered = self.remembered();
        let at = remembered.known.iter().position(|known| known.state.session() == session)?;
        let known = remembered.known.remove(at)?;
        remembered.note_agent(&known.state);
        Some(known)
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    fn note_agent(&mut self, state: &State) {
        if self.agents.len() > 8 * MAX_REMEMBERED {
            self.agents.clear();
        }
        if let Some(round) = state.round() {
            self.agents.insert(state.session().clone(), round.agent);
        }
    }
}
