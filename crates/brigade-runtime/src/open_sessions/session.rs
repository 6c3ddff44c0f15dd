//! One open session: its settings, its approvals and whether it is busy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use brigade_core::event::Answer;
use brigade_core::grant::AttenuateError;
use brigade_core::permission::Mode;
use brigade_core::view::{PendingApproval, Tree};
use brigade_core::{Agent, Cursor, QuestionId, RemoteContext, Resources, SessionId};
use tokio::sync::watch;

use super::prompt::{Next, PromptError, PromptPermit};
use super::{OpenError, Registry};
use crate::runtime::{ResumeOptions, RunError, Runtime, SessionInfo, Task};
use crate::settings::ModeOrigin;
use crate::store::StoreError;

/// Options of an open session.
#[derive(Clone)]
pub struct SessionOptions {
    /// Runtime with the settings of the session.
    pub runtime: Runtime,
    /// Agent of the first prompt. Without it, the lead of the settings receives the prompt.
    pub agent: Option<Agent>,
    /// Time limit of a prompt.
    pub timeout: Option<Duration>,
    /// Mode that the user chose. Without it, the session keeps its own.
    pub mode: Option<Mode>,
    /// Model that the user chose. Without it, the session keeps its own.
    pub model: Option<String>,
    /// Limits and lineage that another process sent for the session.
    pub remote_context: Option<RemoteContext>,
}

impl SessionOptions {
    /// Creates options without choices of the user.
    pub fn new(runtime: Runtime) -> SessionOptions {
        SessionOptions { runtime, agent: None, timeout: None, mode: None, model: None, remote_context: None }
    }
}

/// A session that a front end has open.
pub struct OpenSession<T = ()> {
    session: SessionId,
    data: T,
    /// Most permissive mode that the agent definition and a remote caller allow.
    max_mode: Mode,
    /// Mode and model of the session, if the user chooses none.
    own: (Mode, String),
    state: Mutex<SessionState>,
    activity: watch::Sender<Activity>,
    registry: Weak<Registry<T>>,
    closes_with_prompt: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Activity {
    Idle,
    /// A prompt is starting or running.
    Running,
    /// The prompt was requested to stop.
    Stopping {
        by: String,
    },
}

struct SessionState {
    /// Options. The remote context is reduced by what each prompt used.
    options: SessionOptions,
    /// Depth at which the session started, or `None` before its first prompt.
    start_depth: Option<u32>,
}

impl<T: Send + Sync + 'static> OpenSession<T> {
    /// Opens a session that is stored, or a new one.
    pub(super) fn new(
        session: SessionId,
        stored: Option<&SessionInfo>,
        options: SessionOptions,
        data: T,
        registry: Weak<Registry<T>>,
    ) -> OpenSession<T> {
        let settings = options.runtime.settings();
        let (agent, remote_context) = match stored {
            Some(info) => (info.agent.as_ref(), info.delegation.remote_context.as_deref()),
            None => (options.agent.as_ref(), options.remote_context.as_ref()),
        };
        let lead = stored.is_none().then_some(&settings.lead);
        let max_mode = max_mode(agent.or(lead).and_then(|agent| agent.mode), remote_context);
        let mode = stored.and_then(SessionInfo::mode).unwrap_or(settings.permissions.mode).min(max_mode);
        let model = agent.and_then(|agent| agent.model.clone()).unwrap_or_else(|| settings.model.clone());
        let start_depth = stored.map(|info| info.depth);
        OpenSession {
            session,
            data,
            max_mode,
            own: (mode, model),
            state: Mutex::new(SessionState { options, start_depth }),
            activity: watch::Sender::new(Activity::Idle),
            registry,
            closes_with_prompt: false,
        }
    }

    pub(super) fn closing_with_prompt(self) -> OpenSession<T> {
        OpenSession { closes_with_prompt: true, ..self }
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session id.
    pub fn id(&self) -> &SessionId {
        &self.session
    }

    /// Returns the data of the front end.
    pub fn data(&self) -> &T {
        &self.data
    }

    /// Most permissive mode that may be set.
    pub fn max_mode(&self) -> Mode {
        self.max_mode
    }

    /// Mode of the next prompt.
    pub fn mode(&self) -> Mode {
        self.state().options.mode.unwrap_or(self.own.0)
    }

    /// Model of the next prompt.
    pub fn model(&self) -> String {
        self.state().options.model.clone().unwrap_or_else(|| self.own.1.clone())
    }

    /// Sets the mode from the next prompt on. Returns false if it is more permissive than allowed.
    pub fn set_mode(&self, mode: Mode) -> bool {
        let is_allowed = mode <= self.max_mode;
        if is_allowed {
            self.state().options.mode = Some(mode);
        }
        is_allowed
    }

    /// Sets the model from the next prompt on. Returns false if the runtime does not know it.
    pub fn set_model(&self, model: &str) -> bool {
        let mut state = self.state();
        let is_known = state.options.runtime.model_info(model).is_some();
        if is_known {
            state.options.model = Some(model.to_owned());
        }
        is_known
    }

    /// Replaces all options from the next prompt on.
    pub fn set_options(&self, options: SessionOptions) {
        self.state().options = options;
    }

    /// Whether the first prompt was started.
    pub fn is_started(&self) -> bool {
        self.state().start_depth.is_some()
    }

    /// Whether a prompt is running.
    pub fn is_busy(&self) -> bool {
        *self.activity.borrow() != Activity::Idle
    }

    /// Whether a prompt is running that was requested to stop.
    pub fn is_stopping(&self) -> bool {
        matches!(&*self.activity.borrow(), Activity::Stopping { .. })
    }

    /// Waits until no prompt is running.
    pub async fn idle(&self) {
        // The sender is part of this value, so the channel cannot be closed.
        let _ = self.activity.subscribe().wait_for(|activity| *activity == Activity::Idle).await;
    }

    /// Reserves the session for a prompt.
    pub fn begin_prompt(self: &Arc<Self>) -> Result<PromptPermit<T>, OpenError> {
        let registry = self.registry.upgrade().ok_or(OpenError::Closed)?;
        // The lock is held, so that a set that is being closed waits for this prompt or refuses it.
        let state = registry.lock();
        if state.is_closed {
            return Err(OpenError::Closed);
        }
        let begins = self.replace_activity(Activity::Running, |activity| *activity == Activity::Idle);
        drop(state);
        if begins { Ok(PromptPermit::new(self.clone(), registry.limits)) } else { Err(OpenError::Busy) }
    }

    pub(super) fn end_prompt(&self) {
        if self.closes_with_prompt
            && let Some(registry) = self.registry.upgrade()
        {
            registry.remove(&self.session);
        }
        self.activity.send_replace(Activity::Idle);
    }

    fn replace_activity(&self, next: Activity, is_allowed: impl FnOnce(&Activity) -> bool) -> bool {
        self.activity.send_if_modified(|activity| {
            let is_allowed = is_allowed(activity);
            if is_allowed {
                *activity = next;
            }
            is_allowed
        })
    }

    /// Requests the running prompt to stop. Returns false if none is running.
    pub fn stop(&self, by: &str) -> bool {
        let stopping = Activity::Stopping { by: by.to_owned() };
        self.replace_activity(stopping, |activity| *activity == Activity::Running);
        self.is_busy()
    }

    /// Waits for a stop request, and returns its actor.
    pub(super) async fn stop_requested(&self) -> String {
        let mut activity = self.activity.subscribe();
        loop {
            if let Activity::Stopping { by } = &*activity.borrow_and_update() {
                return by.clone();
            }
            // The sender is part of this value, so the channel cannot be closed.
            let _ = activity.changed().await;
        }
    }

    /// Runtime without the mode and model that were chosen.
    pub(super) fn base_runtime(&self) -> Runtime {
        self.state().options.runtime.clone()
    }

    /// Runtime of the next prompt, with the mode and model that were chosen.
    pub fn runtime(&self) -> Runtime {
        let options = &self.state().options;
        let mut settings = options.runtime.settings().clone();
        if let Some(mode) = options.mode.filter(|mode| *mode != settings.permissions.mode) {
            settings.permissions.mode = mode;
            settings.mode_origin = ModeOrigin::Choice;
        }
        if let Some(model) = &options.model {
            settings.model.clone_from(model);
            settings.fallbacks.clear();
        }
        options.runtime.with_settings(settings)
    }

    /// Next prompt within the limits of both this remote context and the session's own. The depth at which a session
    /// started is fixed, so a caller at a greater depth cannot resume it.
    pub(super) fn next(
        &self,
        text: &str,
        remote_context: Option<RemoteContext>,
    ) -> Result<Next, PromptError> {
        let state = self.state();
        let options = &state.options;
        let remote_context = match (&options.remote_context, remote_context) {
            (Some(first), Some(remote_context)) => Some(first.intersect(&remote_context)),
            (first, remote_context) => remote_context.or_else(|| first.clone()),
        };
        let Some(depth) = state.start_depth else {
            let mut task = Task::new(text).remote_context(remote_context);
            if let Some(timeout) = options.timeout {
                task = task.timeout(timeout);
            }
            if let Some(mut agent) = options.agent.clone() {
                if let Some(model) = &options.model {
                    agent.model = Some(model.clone());
                    agent.fallbacks.clear();
                }
                task = task.agent(agent);
            }
            return Ok(Next::Start(Box::new(task)));
        };
        if let Some(remote_context) = &remote_context {
            check_depth(remote_context, depth)?;
        }
        let settings = options.runtime.settings();
        let bound = remote_context.as_ref().and_then(|remote_context| remote_context.mode);
        Ok(Next::Resume(ResumeOptions {
            budget: Some(settings.budget),
            turns: Some(settings.limits.lead_turns),
            timeout: options.timeout,
            model: options.model.clone(),
            mode: bound.into_iter().chain(options.mode).min(),
            remote_context,
            continue_cancelled: false,
        }))
    }

    pub(super) fn set_started(&self, depth: u32) {
        self.state().start_depth.get_or_insert(depth);
    }

    /// Subtracts the usage of a prompt from the remaining limits of the session.
    pub(super) fn charge(&self, used: Resources) {
        let remaining = &mut self.state().options.remote_context;
        *remaining = remaining.as_ref().map(|remote_context| remote_context.minus(used));
    }

    /// Reads the tree of the session.
    pub async fn tree(&self) -> Result<Tree, StoreError> {
        let runtime = self.base_runtime();
        Ok(Tree::fold(&runtime.store().tail(&self.session, Cursor::START, usize::MAX).await?))
    }

    /// Reads the approval requests of the tree that have no answer, in the order of the requests.
    pub async fn pending_approvals(&self) -> Result<Vec<PendingApproval>, StoreError> {
        Ok(self.tree().await?.pending_approvals().cloned().collect())
    }

    /// Answers an approval request of the tree. [`State::check_answer`](brigade_core::State::check_answer) decides
    /// whether the answer counts; the first one does.
    pub async fn answer(
        &self,
        session: &SessionId,
        question: impl Into<QuestionId>,
        answer: Answer,
        by: &str,
    ) -> Result<(), RunError> {
        if !self.session.contains(session) {
            return Err(RunError::NoSuchApproval { session: session.clone(), question: question.into() });
        }
        self.base_runtime().answer(session, question, answer, by).await
    }
}

/// Most permissive mode that both an agent definition and a remote context allow.
fn max_mode(agent_mode: Option<Mode>, remote_context: Option<&RemoteContext>) -> Mode {
    let remote_mode = remote_context.and_then(|remote_context| remote_context.mode);
    agent_mode.into_iter().chain(remote_mode).min().unwrap_or(Mode::Auto)
}

/// Checks whether a session at this depth may resume for a remote caller. Called before the message is recorded.
fn check_depth(remote_context: &RemoteContext, depth: u32) -> Result<(), PromptError> {
    let caller = remote_context.depth;
    if caller > depth {
        return Err(PromptError::CallerTooDeep { depth, caller });
    }
    match remote_context.max_depth {
        Some(max_depth) if max_depth < depth => Err(AttenuateError::Depth { max_depth }.into()),
        Some(_) | None => Ok(()),
    }
}
