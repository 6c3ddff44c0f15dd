//! State shared by all sessions of a running tree.

mod agent_resolution;
mod core;
mod history;
mod leases;
mod system_prompt;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::{Cursor, Event, Hash, Record, SessionId, State};

pub(crate) use self::core::Core;
use crate::concurrency::ConcurrencyLimiter;
use crate::event_stream::{RunEvent, RunStreams};
use crate::external::ExternalSessionGuard;
use crate::fast_map::FastMap;
use crate::observer::Observers;
use crate::resolved_agent::{AgentKind, ResolvedAgent};
use crate::runtime::CachedSession;
use crate::sandbox::TreeSandbox;
use crate::session::{DriverMessage, DriverSender};
use crate::settings::Settings;
use crate::store::{Lease, Owner, Store, StoreError, retry};
use crate::task::AbortOnDrop;
use crate::writes::{EarlierWrites, Writes};
pub(crate) use agent_resolution::{AgentResolution, Overrides, add_restrictions};
pub(crate) use history::TreeHistory;
pub(crate) use leases::Leases;

/// Number of events per page when searching for writes.
const WRITES_PAGE_RECORDS: usize = 1000;

pub(crate) struct Tree {
    pub(crate) core: Arc<Core>,
    pub(crate) history: TreeHistory,
    /// Sessions of other processes that this tree works for.
    pub(crate) remote_ancestors: Vec<String>,
    pub(crate) leases: Leases,
    pub(crate) agents: AgentResolution,
    pub(crate) slots: ConcurrencyLimiter,
    pub(crate) streams: RunStreams,
    inboxes: Mutex<FastMap<SessionId, DriverSender>>,
    /// Tasks of detached sessions.
    detached_tasks: Mutex<Vec<(SessionId, AbortOnDrop<()>)>>,
    /// Number of the last numbered delegation.
    last_number: AtomicU32,
    /// Files that sessions of the tree have written.
    pub(crate) writes: Writes,
    /// State that the sandboxes of the sessions share.
    pub(crate) sandbox: Arc<TreeSandbox>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tree {
    pub(crate) fn new(
        core: Arc<Core>,
        owner: Owner,
        lease: Lease,
        remote_ancestors: Vec<String>,
        overrides: Overrides,
    ) -> Tree {
        let slots = ConcurrencyLimiter::new(
            core.settings.limits.concurrency,
            core.settings.delegation_styles.max_active(),
        );
        let temporary = core.settings.sandbox.temporary.as_deref();
        let sandbox = Arc::new(TreeSandbox::below(temporary, lease.root.as_str()));
        Tree {
            agents: AgentResolution::new(core.clone(), overrides, sandbox.clone()),
            sandbox,
            history: TreeHistory::default(),
            remote_ancestors,
            leases: Leases::new(core.store.clone(), owner, lease),
            slots,
            streams: RunStreams::default(),
            inboxes: Mutex::default(),
            detached_tasks: Mutex::default(),
            last_number: AtomicU32::new(0),
            writes: Writes::default(),
            core,
        }
    }

    /// Returns the root session.
    pub(crate) fn root(&self) -> &SessionId {
        self.leases.root()
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.core.store
    }

    /// Delivers an event that is not stored to the followers of its session and to the observers of the runtime.
    pub(crate) fn publish(&self, mut event: RunEvent) {
        if let RunEvent::Waiting { why, .. } = &mut event
            && let Cow::Owned(redacted) = self.settings().redactor.redact(why)
        {
            *why = redacted;
        }
        self.observers().observe_event(&event);
        self.store().followers().send_live(event);
    }

    /// Whether anyone receives the events of a session. If not, no delta is prepared.
    pub(crate) fn is_followed(&self, session: &SessionId) -> bool {
        !self.observers().is_empty() || self.store().followers().has(session)
    }

    /// Returns the observers of the runtime.
    pub(crate) fn observers(&self) -> &Observers {
        &self.settings().observers
    }

    /// Reads a log from `from`. Retries while the store cannot be reached.
    pub(crate) async fn read(&self, session: &SessionId, from: u64) -> Result<Vec<Record>, StoreError> {
        retry::while_unavailable(|| self.store().read(session, from)).await
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.core.settings
    }

    pub(crate) fn register(&self, session: &SessionId, inbox: DriverSender) {
        lock(&self.inboxes).insert(session.clone(), inbox);
    }

    pub(crate) fn unregister(&self, session: &SessionId) {
        lock(&self.inboxes).remove(session);
    }

    /// Notifies sessions that their logs may have changed.
    pub(crate) fn notify<'a>(&self, sessions: impl IntoIterator<Item = &'a SessionId>) {
        let inboxes = lock(&self.inboxes);
        for session in sessions {
            if let Some(inbox) = inboxes.get(session) {
                // A session that has just ended no longer reads its inbox. The message waits in the log for its
                // next round.
                let _ = inbox.unbounded_send(DriverMessage::LogChanged);
            }
        }
    }

    /// Keeps the task of a detached session.
    pub(crate) fn keep_detached(&self, session: SessionId, task: AbortOnDrop<()>) {
        lock(&self.detached_tasks).push((session, task));
    }

    /// Takes the tasks of all detached sessions.
    pub(crate) fn take_detached(&self) -> Vec<(SessionId, AbortOnDrop<()>)> {
        std::mem::take(&mut lock(&self.detached_tasks))
    }

    /// Returns the number of the next numbered delegation.
    pub(crate) fn next_number(&self) -> u32 {
        self.last_number.fetch_add(1, Ordering::SeqCst).saturating_add(1)
    }

    /// Takes over the state of a resumed log and continues its numbering.
    pub(crate) async fn restore(&mut self, cached: &CachedSession) -> Result<(), StoreError> {
        self.history = TreeHistory::of(cached);
        if !self.settings().delegation_styles.is_any_numbered() {
            return Ok(());
        }
        let (number, after) = cached.number;
        let records = self.store().tail(self.root(), after, usize::MAX).await?;
        let numbers = records.iter().filter_map(|record| match &record.event {
            Event::Delegated { delegation, .. } => delegation.number,
            _ => None,
        });
        *self.last_number.get_mut() = numbers.fold(number, u32::max);
        Ok(())
    }

    /// Caches the root's log for its next round, as of the event at `last_pos`. `started` is a position in its
    /// last round.
    pub(crate) fn remember(&self, state: State, started: Cursor, last_pos: Cursor) {
        let number = (self.last_number.load(Ordering::SeqCst), last_pos);
        let (resumes, imported) = (self.history.resumes.clone(), self.history.imported);
        let cached =
            CachedSession { state, last_pos, started, resumes, epoch: None, mode: None, imported, number };
        self.core.session_cache.put(cached);
    }

    /// Folds a log. Permanent approvals in an imported part are dropped.
    pub(crate) fn fold(&self, session: &SessionId, records: &[Record]) -> State {
        let is_imported = |record: &&Record| self.history.is_imported(self.store(), record.pos);
        let foreign = records.iter().take_while(is_imported).count();
        let (foreign, own) = records.split_at(foreign);
        let mut state = State::fold(session.clone(), foreign.iter().map(|record| &record.event));
        state.forget_permissions();
        own.iter().for_each(|record| state.apply(&record.event));
        state
    }

    /// Guard of the external session, if another program runs the agent.
    pub(crate) fn external_session(
        &self,
        resolved: &ResolvedAgent,
        session: &SessionId,
    ) -> Option<Box<ExternalSessionGuard>> {
        let AgentKind::External(external) = &resolved.kind else { return None };
        Some(Box::new(ExternalSessionGuard {
            external: external.agents.clone(),
            session: session.clone(),
            since: self.writes.newest(),
            is_lost: false,
        }))
    }

    /// Label of the session other than `reader` that left this content in a file. Writes that this process did
    /// not see are read from the store once.
    pub(crate) async fn writer(&self, path: &str, content: Hash, reader: &SessionId) -> Option<String> {
        let known = self.writes.writer(path, content, reader);
        if known.is_some() || self.writes.has_earlier() {
            return known;
        }
        let (mut earlier, mut after) = (EarlierWrites::default(), Cursor::START);
        // A store that fails here also fails at the next append, where the error is reported.
        while let Ok(records) = self.store().tail(&self.root().root_id(), after, WRITES_PAGE_RECORDS).await
            && let Some(last) = records.last()
        {
            after = last.pos;
            records.into_iter().for_each(|record| earlier.apply(record));
        }
        self.writes.add_earlier(earlier.writes);
        self.writes.writer(path, content, reader)
    }
}
