//! Sessions that a front end has open.
//!
//! A terminal, an editor protocol or a server opens sessions here and sends prompts to them. This module decides how
//! many sessions may be open, that a session runs one prompt at a time, and how a prompt is stopped. A front end maps
//! its protocol to these calls.
//!
//! # Contract
//!
//! * A session is busy from [`OpenSession::begin_prompt`] until every clone of the permit and the run are dropped.
//! * A stop that is requested before the run exists takes effect as soon as it does.
//! * Dropping the [`Run`](crate::Run) of a prompt stops its runner, and the session can be resumed.
//!   [`PromptPermit::run_in_background`] runs a prompt to its end instead.

mod prompt;
mod runner_exit;
mod session;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use brigade_core::SessionId;

use crate::runtime::RunError;
use crate::store::StoreError;
pub use prompt::{BackgroundPrompt, PromptError, PromptPermit, Resumed};
pub use runner_exit::RunnerExit;
pub use session::{OpenSession, SessionOptions};

/// Limits of a front end.
#[derive(Debug, Clone, Copy)]
pub struct OpenLimits {
    /// Maximum number of open sessions.
    pub max_open: usize,
    /// Time that a stopped prompt has to end before its runner is aborted. Without it, there is no limit.
    pub stop_timeout: Option<Duration>,
}

/// Reason why a session is not opened or a prompt is not started.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The maximum number of sessions is open.
    #[error("cannot open another session: too many sessions are open. Close one first.")]
    Full,
    /// The front end is stopping.
    #[error("cannot open a session: the server is stopping.")]
    Closed,
    /// The session runs a prompt.
    #[error("cannot start a prompt: the session is running. Wait for it to end, or stop it.")]
    Busy,
    /// The store has no such session.
    #[error("cannot open the session: {0} does not exist.")]
    Unknown(SessionId),
    /// The session could not be read or created.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> OpenError {
        OpenError::Run(error.into())
    }
}

/// Open sessions of a front end, each with data of the front end. Clones share their state.
pub struct OpenSessions<T = ()> {
    registry: Arc<Registry<T>>,
}

struct Registry<T> {
    limits: OpenLimits,
    state: Mutex<RegistryState<T>>,
}

struct RegistryState<T> {
    sessions: HashMap<SessionId, Arc<OpenSession<T>>>,
    is_closed: bool,
}

impl<T> Clone for OpenSessions<T> {
    fn clone(&self) -> OpenSessions<T> {
        OpenSessions { registry: self.registry.clone() }
    }
}

impl<T> Registry<T> {
    fn lock(&self) -> MutexGuard<'_, RegistryState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, session: &SessionId) {
        self.lock().sessions.remove(session);
    }
}

impl<T: Send + Sync + 'static> OpenSessions<T> {
    /// Creates an empty set.
    pub fn new(limits: OpenLimits) -> OpenSessions<T> {
        let state = RegistryState { sessions: HashMap::new(), is_closed: false };
        OpenSessions { registry: Arc::new(Registry { limits, state: Mutex::new(state) }) }
    }

    /// Opens a session that does not exist yet. Its first prompt starts it.
    pub fn open_new(&self, options: SessionOptions, data: T) -> Result<Arc<OpenSession<T>>, OpenError> {
        let session = options.runtime.new_session()?;
        self.insert(OpenSession::new(session, None, options, data, self.weak()))
    }

    /// Opens a session that does not exist yet, for one prompt. It closes with that prompt.
    pub fn open_once(&self, options: SessionOptions, data: T) -> Result<PromptPermit<T>, OpenError> {
        let session = options.runtime.new_session()?;
        let open = OpenSession::new(session, None, options, data, self.weak()).closing_with_prompt();
        self.insert(open)?.begin_prompt()
    }

    /// Opens a stored session, or opens it again with other options. A busy session is not opened again.
    pub async fn open_stored(
        &self,
        session: SessionId,
        options: SessionOptions,
        data: T,
    ) -> Result<Arc<OpenSession<T>>, OpenError> {
        let info = options.runtime.session_info(&session).await?;
        let info = info.ok_or_else(|| OpenError::Unknown(session.clone()))?;
        self.insert(OpenSession::new(session, Some(&info), options, data, self.weak()))
    }

    fn weak(&self) -> Weak<Registry<T>> {
        Arc::downgrade(&self.registry)
    }

    fn insert(&self, open: OpenSession<T>) -> Result<Arc<OpenSession<T>>, OpenError> {
        let mut state = self.registry.lock();
        if state.is_closed {
            return Err(OpenError::Closed);
        }
        match state.sessions.get(open.id()) {
            Some(other) if other.is_busy() => return Err(OpenError::Busy),
            None if state.sessions.len() >= self.registry.limits.max_open => return Err(OpenError::Full),
            Some(_) | None => {}
        }
        let open = Arc::new(open);
        state.sessions.insert(open.id().clone(), open.clone());
        Ok(open)
    }

    /// Returns an open session.
    pub fn get(&self, session: &SessionId) -> Option<Arc<OpenSession<T>>> {
        self.registry.lock().sessions.get(session).cloned()
    }

    /// Returns the open session whose tree contains this session.
    pub fn containing(&self, session: &SessionId) -> Option<Arc<OpenSession<T>>> {
        self.list().into_iter().find(|open| open.id().contains(session))
    }

    /// Returns all open sessions.
    pub fn list(&self) -> Vec<Arc<OpenSession<T>>> {
        self.registry.lock().sessions.values().cloned().collect()
    }

    /// Requests all prompts to stop.
    pub fn stop_all(&self, by: &str) {
        for open in self.list() {
            open.stop(by);
        }
    }

    /// Stops the prompt of a session, waits until it has ended, and closes the session. Returns false if it is not
    /// open.
    pub async fn close(&self, session: &SessionId, by: &str) -> bool {
        let Some(open) = self.get(session) else { return false };
        loop {
            open.stop(by);
            open.idle().await;
            let mut state = self.registry.lock();
            // Another prompt may have begun in between.
            if !open.is_busy() {
                if state.sessions.get(session).is_some_and(|other| Arc::ptr_eq(other, &open)) {
                    state.sessions.remove(session);
                }
                return true;
            }
        }
    }

    /// Closes a session if it is idle. Returns false if it is busy.
    pub fn close_idle(&self, session: &SessionId) -> bool {
        let mut state = self.registry.lock();
        let is_idle = state.sessions.get(session).is_none_or(|open| !open.is_busy());
        if is_idle {
            state.sessions.remove(session);
        }
        is_idle
    }

    /// Refuses further prompts, stops all that are running, and waits until none is.
    pub async fn close_all(&self, by: &str) {
        self.registry.lock().is_closed = true;
        self.stop_all(by);
        for open in self.list() {
            open.idle().await;
        }
    }
}
