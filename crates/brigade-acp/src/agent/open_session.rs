//! A session that the client has open.

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
    /// The freest mode that the definition of the agent allows, and whoever hands work on.
    pub(super) max_mode: Mode,
    state: Mutex<SessionState>,
}

/// What of it changes.
struct SessionState {
    mode: Mode,
    model: ModelChoice,
    /// Where the session comes from, and what is left for it there.
    remote_context: Option<RemoteContext>,
    /// The depth that the session has in any case, once it has begun.
    start_depth: Option<u32>,
    round: Option<ActivePrompt>,
    /// The update mapper of the last round; it knows which updates the client has.
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

/// A model, and whether the person chose it: here, or for all sessions on record.
struct ModelChoice {
    value: String,
    by_user: bool,
}

/// A round that is going on.
struct ActivePrompt {
    prompt: acp::RequestId,
    stop: watch::Sender<bool>,
}

/// The right to run a round of a session. It is given back when this is dropped.
pub(super) struct PromptGuard {
    pub(super) open_session: Arc<OpenSession>,
    pub(super) stop: watch::Receiver<bool>,
}

impl Drop for PromptGuard {
    fn drop(&mut self) {
        self.open_session.state().round = None;
    }
}

/// How a round begins.
pub(super) enum NextRound {
    /// The session has to be started.
    Start(Box<Task>),
    /// It goes on.
    Resume(ResumeOptions),
}

impl OpenSession {
    /// A session that is yet to begin.
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

    /// A session that is on record, with the model that it had last, unless the person names another for all; and no
    /// freer than it was last, or than sessions are now.
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

    /// The update mapper of the last round, if one ran in this process.
    pub(super) fn take_mapper(&self) -> Option<UpdateMapper> {
        self.state().mapper.take()
    }

    /// Keeps what told a round for the next one.
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

    /// The mode from the next round on.
    pub(super) fn set_mode(&self, mode: Mode) {
        self.state().mode = mode;
    }

    /// The model from the next round on.
    pub(super) fn set_model(&self, model: &str) {
        self.state().model = ModelChoice { value: model.to_owned(), by_user: true };
    }

    /// Whether the session has begun.
    pub(super) fn is_started(&self) -> bool {
        self.state().start_depth.is_some()
    }

    /// Takes the right to run a round, if nobody has it.
    pub(super) fn begin_prompt(
        self: &Arc<OpenSession>,
        prompt: &acp::RequestId,
    ) -> Result<PromptGuard, acp::Error> {
        let mut state = self.state();
        if state.round.is_some() {
            return Err(errors::request(
                "the session is at work: wait for its end, cancel it, or say something to an agent of it with \
                 /tell AGENT TEXT",
            ));
        }
        let (sender, stop) = watch::channel(false);
        state.round = Some(ActivePrompt { prompt: prompt.clone(), stop: sender });
        drop(state);
        Ok(PromptGuard { open_session: self.clone(), stop })
    }

    /// Asks the round to stop, if there is one.
    pub(super) fn stop(&self) -> bool {
        let state = self.state();
        state.round.as_ref().is_some_and(|round| round.stop.send(true).is_ok())
    }

    /// Asks the round to stop if it was begun by this prompt.
    pub(super) fn stop_prompt(&self, prompt: &acp::RequestId) {
        let state = self.state();
        if let Some(round) = state.round.as_ref().filter(|round| round.prompt == *prompt) {
            let _ = round.stop.send(true);
        }
    }

    /// Whether a round is going on.
    pub(super) fn is_busy(&self) -> bool {
        self.state().round.is_some()
    }

    /// The runtime of the next round: with the mode and the model of now.
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

    /// How the next round begins, for words that come with this hop: within that and within what the session came with.
    /// The depth that a session began at stays, so a hop from further down cannot go on with it.
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
            let mut task = Task::new(text).session(self.session.clone()).hop(remote_context);
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

    /// Takes what a round has used up from what is left for the session.
    pub(super) fn charge(&self, used: Resources) {
        let mut state = self.state();
        state.remote_context = state.remote_context.as_ref().map(|remote_context| remote_context.minus(used));
    }

    /// The session is on record now, at this depth.
    pub(super) fn set_started(&self, depth: u32) {
        self.state().start_depth.get_or_insert(depth);
    }
}

/// The freest mode that a definition and a hop allow together.
fn max_mode(agent_mode: Option<Mode>, remote_context: Option<&RemoteContext>) -> Mode {
    agent_mode
        .into_iter()
        .chain(remote_context.and_then(|remote_context| remote_context.mode))
        .min()
        .unwrap_or(Mode::Auto)
}

/// Whether a session of this depth may go on for a hop. It is asked before the words are on record.
fn check_depth(remote_context: &RemoteContext, depth: u32) -> Result<(), acp::Error> {
    if remote_context.depth > depth {
        return Err(errors::request(format!(
            "the session was begun at depth {depth} and cannot go on at depth {}; open a new one",
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
