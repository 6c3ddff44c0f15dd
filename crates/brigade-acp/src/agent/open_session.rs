//! Sessions that the client has open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::v1::schema as acp;
use brigade::{ModeOrigin, ResumeOptions, Runtime, Task};
use brigade_core::grant::{AttenuateError, Authority};
use brigade_core::permission::Mode;
use brigade_core::{Agent, Event, Record, RemoteContext, Resources, SessionId};
use tokio::sync::watch;

use super::update_mapper::UpdateMapper;
use super::{SessionEnvironment, errors};

/// A session that the client has open.
pub(super) struct OpenSession {
    pub(super) session: SessionId,
    pub(super) environment: SessionEnvironment,
    /// The most permissive mode that the agent definition and the calling Brigade allow.
    pub(super) max_mode: Mode,
    state: Mutex<SessionState>,
}

/// Mutable state of an open session.
struct SessionState {
    mode: Mode,
    model: ModelChoice,
    /// The limits and lineage that the calling Brigade sent, minus what was used since.
    remote_context: Option<RemoteContext>,
    /// The depth at which the session started, or `None` before its first round.
    start_depth: Option<u32>,
    round: Option<ActivePrompt>,
    /// The update mapper of the last round. It knows which updates the client has received.
    mapper: Option<UpdateMapper>,
}

impl SessionState {
    fn new(
        mode: Mode,
        model: ModelChoice,
        remote_context: Option<RemoteContext>,
        start_depth: Option<u32>,
    ) -> SessionState {
        SessionState { mode, model, remote_context, start_depth, round: None, mapper: None }
    }
}

/// A model, and whether the user chose it, for this session or for all recorded ones.
struct ModelChoice {
    value: String,
    by_user: bool,
}

/// A running round.
struct ActivePrompt {
    prompt: acp::RequestId,
    stop: watch::Sender<bool>,
}

/// The exclusive right to run a round of a session. Dropping the guard releases it.
pub(super) struct PromptGuard {
    pub(super) open_session: Arc<OpenSession>,
    pub(super) stop: watch::Receiver<bool>,
}

impl Drop for PromptGuard {
    fn drop(&mut self) {
        self.open_session.state().round = None;
    }
}

/// The next round of a session.
pub(super) enum NextRound {
    /// The first round, which starts the session.
    Start(Box<Task>),
    /// A further round of a started session.
    Resume(ResumeOptions),
}

impl OpenSession {
    /// Creates a session without a first round.
    pub(super) fn new(
        session: SessionId,
        environment: SessionEnvironment,
        remote_context: Option<RemoteContext>,
    ) -> OpenSession {
        let settings = environment.runtime.settings();
        let agent = environment.agent.as_ref();
        let max_mode = max_mode(agent.unwrap_or(&settings.lead).mode, remote_context.as_ref());
        let mode = settings.permissions.mode.min(max_mode);
        let model = agent.and_then(|agent| agent.model.clone()).unwrap_or_else(|| settings.model.clone());
        let state =
            SessionState::new(mode, ModelChoice { value: model, by_user: false }, remote_context, None);
        OpenSession { session, environment, max_mode, state: Mutex::new(state) }
    }

    /// Opens a recorded session. It keeps its last model unless the user set one for all sessions. Its mode
    /// is not more permissive than its last one or the current setting.
    pub(super) async fn from_records(
        session: SessionId,
        environment: SessionEnvironment,
        records: &[Record],
    ) -> OpenSession {
        let settings = environment.runtime.settings();
        let started = records.iter().rev().find_map(|record| match &record.event {
            Event::Started { grant, agent, depth, delegation, .. } => {
                Some((grant.authority, *agent, *depth, delegation.remote_context.as_deref()))
            }
            _ => None,
        });
        let (mut mode, mut model, mut start_depth) = (settings.permissions.mode, settings.model.clone(), 0);
        let mut max_mode = Mode::Auto;
        if let Some((authority, agent, depth, remote_context)) = started {
            let store = environment.runtime.store();
            let blob = async |hash| store.blob(hash).await.ok().flatten();
            let authority =
                blob(authority).await.and_then(|body| serde_json::from_str::<Authority>(&body).ok());
            let agent = blob(agent).await.and_then(|body| serde_json::from_str::<Agent>(&body).ok());
            mode = authority.map_or(mode, |authority| authority.permissions.mode.min(mode));
            max_mode = self::max_mode(agent.as_ref().and_then(|agent| agent.mode), remote_context);
            model = agent.and_then(|agent| agent.model).unwrap_or(model);
            start_depth = depth;
        }
        let by_user = environment.model.is_some();
        let value = environment.model.clone().unwrap_or(model);
        let state =
            SessionState::new(mode.min(max_mode), ModelChoice { value, by_user }, None, Some(start_depth));
        OpenSession { session, environment, max_mode, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the update mapper of the last round, if one ran in this process.
    pub(super) fn take_mapper(&self) -> Option<UpdateMapper> {
        self.state().mapper.take()
    }

    /// Keeps the update mapper for the next round.
    pub(super) fn keep_mapper(&self, mapper: UpdateMapper) {
        self.state().mapper = Some(mapper);
    }

    /// The mode of the next round.
    pub(super) fn mode(&self) -> Mode {
        self.state().mode
    }

    /// The model of the next round.
    pub(super) fn model(&self) -> String {
        self.state().model.value.clone()
    }

    /// Sets the mode of the next round.
    pub(super) fn set_mode(&self, mode: Mode) {
        self.state().mode = mode;
    }

    /// Sets the model of the next round.
    pub(super) fn set_model(&self, model: &str) {
        self.state().model = ModelChoice { value: model.to_owned(), by_user: true };
    }

    /// Whether the first round has started.
    pub(super) fn is_started(&self) -> bool {
        self.state().start_depth.is_some()
    }

    /// Starts a prompt, unless another one is running.
    pub(super) fn begin_prompt(
        self: &Arc<OpenSession>,
        prompt: &acp::RequestId,
    ) -> Result<PromptGuard, acp::Error> {
        let mut state = self.state();
        if state.round.is_some() {
            return Err(errors::request(
                "the session is running. Wait for it to end, cancel it, or send a message to one of its agents with \
                 `/tell AGENT TEXT`.",
            ));
        }
        let (sender, stop) = watch::channel(false);
        state.round = Some(ActivePrompt { prompt: prompt.clone(), stop: sender });
        drop(state);
        Ok(PromptGuard { open_session: self.clone(), stop })
    }

    /// Requests the running round to stop, if there is one.
    pub(super) fn stop(&self) -> bool {
        let state = self.state();
        state.round.as_ref().is_some_and(|round| round.stop.send(true).is_ok())
    }

    /// Requests the running round to stop if this prompt started it.
    pub(super) fn stop_prompt(&self, prompt: &acp::RequestId) {
        let state = self.state();
        if let Some(round) = state.round.as_ref().filter(|round| round.prompt == *prompt) {
            let _ = round.stop.send(true);
        }
    }

    /// Whether a round is running.
    pub(super) fn is_busy(&self) -> bool {
        self.state().round.is_some()
    }

    /// The runtime of the next round, with the current mode and model.
    pub(super) fn runtime(&self) -> Runtime {
        let state = self.state();
        let mut settings = self.environment.runtime.settings().clone();
        if settings.permissions.mode != state.mode {
            settings.permissions.mode = state.mode;
            settings.mode_origin = ModeOrigin::Choice;
        }
        if state.model.by_user {
            settings.model.clone_from(&state.model.value);
            settings.fallbacks.clear();
        }
        self.environment.runtime.with_settings(settings)
    }

    /// Prepares the next round for a message with this remote context, within the limits of both that context
    /// and the session's own. The depth at which a session started is fixed, so a caller at a greater depth
    /// cannot resume it.
    pub(super) fn next_round(
        &self,
        text: &str,
        remote_context: Option<RemoteContext>,
    ) -> Result<NextRound, acp::Error> {
        let state = self.state();
        let remote_context = match (&state.remote_context, remote_context) {
            (Some(first), Some(remote_context)) => Some(first.intersect(&remote_context)),
            (first, remote_context) => remote_context.or_else(|| first.clone()),
        };
        let Some(depth) = state.start_depth else {
            let mut task = Task::new(text).session(self.session.clone()).remote_context(remote_context);
            if let Some(timeout) = self.environment.timeout {
                task = task.timeout(timeout);
            }
            if let Some(agent) = &self.environment.agent {
                let mut agent = agent.clone();
                if state.model.by_user {
                    agent.model = Some(state.model.value.clone());
                    agent.fallbacks.clear();
                }
                task = task.agent(agent);
            }
            return Ok(NextRound::Start(Box::new(task)));
        };
        if let Some(remote_context) = &remote_context {
            check_depth(remote_context, depth)?;
        }
        let settings = self.environment.runtime.settings();
        Ok(NextRound::Resume(ResumeOptions {
            budget: Some(settings.budget),
            turns: Some(settings.limits.lead_turns),
            timeout: self.environment.timeout,
            model: state.model.by_user.then(|| state.model.value.clone()),
            mode: remote_context
                .as_ref()
                .and_then(|remote_context| remote_context.mode)
                .into_iter()
                .chain([state.mode])
                .min(),
            remote_context,
            continue_cancelled: false,
        }))
    }

    /// Subtracts the usage of a round from the remaining limits of the session.
    pub(super) fn charge(&self, used: Resources) {
        let mut state = self.state();
        state.remote_context = state.remote_context.as_ref().map(|remote_context| remote_context.minus(used));
    }

    /// Marks the session as started at this depth.
    pub(super) fn set_started(&self, depth: u32) {
        self.state().start_depth.get_or_insert(depth);
    }
}

/// The most permissive mode that both an agent definition and a remote context allow.
fn max_mode(agent_mode: Option<Mode>, remote_context: Option<&RemoteContext>) -> Mode {
    agent_mode
        .into_iter()
        .chain(remote_context.and_then(|remote_context| remote_context.mode))
        .min()
        .unwrap_or(Mode::Auto)
}

/// Checks whether a session at this depth may resume for a remote caller. Called before the message is
/// recorded.
fn check_depth(remote_context: &RemoteContext, depth: u32) -> Result<(), acp::Error> {
    if remote_context.depth > depth {
        return Err(errors::request(format!(
            "cannot resume the session at depth {}: it was started at depth {depth}. Open a new session.",
            remote_context.depth
        )));
    }
    match remote_context.max_depth {
        Some(max_depth) if max_depth < depth => {
            Err(errors::request(AttenuateError::Depth { max_depth }.to_string()))
        }
        Some(_) | None => Ok(()),
    }
}
