//! Starting, resuming, messaging and cancelling session trees.

mod imported;
mod run;
mod session_cache;
mod session_info;
mod task;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brigade_core::approval::AnswerError;
use brigade_core::delegation_styles::{Caller, DELEGATION_TOOLS, MESSAGE_TOOL, resolve_model};
use brigade_core::event::{Answer, Speaker};
use brigade_core::grant::{Access, AttenuateError, Authority, Grant, narrower};
use brigade_core::permission::Mode;
use brigade_core::state::RoundSpec;
use brigade_core::tool_names;
use brigade_core::{
    Agent, Backend, Cursor, Delegation, Event, Limit, QuestionId, Record, SessionId, State, Status, ToolSpec,
};

use crate::clock;
use crate::environment;
use crate::model::{ModelInfo, Models, passthrough};
use crate::remote;
use crate::resolved_agent::{AgentKind, ResolvedAgent};
use crate::session::Driver;
use crate::settings::Settings;
use crate::store::memory::MemoryStore;
use crate::store::{Append, Expect, Lease, Owner, Store, StoreError, retry};
use crate::tree::{Core, Overrides, Tree, add_restrictions};
use brigade_base::Follow;
use imported::LastRound;
pub use run::Run;
use run::RunWork;
pub(crate) use run::{RunTask, join};
pub(crate) use session_cache::{CachedSession, SessionCache};
pub use session_info::SessionInfo;
pub use task::{Detached, ResumeOptions, RunError, RunResult, Task};

const CONTINUE_MESSAGE: &str = "Continue the task where you left off, and finish it.";

/// Maximum length of a failure cause in a message to the model.
const MAX_CAUSE_CHARS: usize = 300;

/// Runs trees of agents over a store.
#[derive(Clone)]
pub struct Runtime {
    core: Arc<Core>,
    owner: Owner,
}

/// Purpose of a round in an existing session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// A message from the user, or unfinished work.
    Continue,
    /// The user asked for a summary of the conversation.
    Compact,
}

impl Runtime {
    /// Creates a runtime on a store.
    pub fn new(store: Arc<dyn Store>, settings: Settings, models: Models) -> Runtime {
        let session_cache = Arc::default();
        Runtime {
            core: Arc::new(Core { store, models, settings, session_cache }),
            owner: Owner::this_process(),
        }
    }

    /// Creates a runtime on an in-memory store. Its sessions are lost when it is dropped.
    pub fn in_memory(settings: Settings, models: Models) -> Runtime {
        Runtime::new(Arc::new(MemoryStore::new()), settings, models)
    }

    /// Returns the same runtime with another lease owner, for takeover tests.
    pub fn with_owner(self, owner: Owner) -> Runtime {
        Runtime { owner, ..self }
    }

    /// Returns a runtime with the same store and models but other settings, such as another mode or more tools.
    pub fn with_settings(&self, settings: Settings) -> Runtime {
        let Core { store, models, session_cache, .. } = &*self.core;
        let core = Core {
            store: store.clone(),
            models: models.clone(),
            settings,
            session_cache: session_cache.clone(),
        };
        Runtime { core: Arc::new(core), owner: self.owner.clone() }
    }

    /// Returns the properties of a model, or `None` if the name is unknown.
    pub fn model_info(&self, model: &str) -> Option<ModelInfo> {
        self.core.models.choose(model).ok().map(|chosen| chosen.provider.model_info(&chosen.name))
    }

    /// Generates an unused session id for [`Task::session`].
    pub fn new_session(&self) -> Result<SessionId, RunError> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .map_err(|error| RunError::Config(format!("cannot generate a session id: {error}")))?;
        Ok(SessionId::root(u128::from_le_bytes(bits)))
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.core.store
    }

    /// Follows a session and its descendants after a position, whichever process runs them.
    pub fn follow(&self, session: &SessionId, after: Cursor) -> Follow {
        Follow::new(self.core.store.clone(), session, after)
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }

    /// Starts a task in a new tree. Returns once the session is durable. The run continues in the background.
    pub async fn start(&self, task: Task) -> Result<Run, RunError> {
        if task.text.trim().is_empty() {
            return Err(RunError::EmptyTask);
        }
        let session = match task.session {
            Some(session) => self.check_unused(session).await?,
            None => self.new_session()?,
        };
        let (budget, turns, timeout) = (task.budget, task.turns, task.timeout);
        let options = ResumeOptions {
            budget,
            turns,
            timeout,
            remote_context: task.remote_context,
            ..ResumeOptions::default()
        };
        let mut agent = task.agent.unwrap_or_else(|| self.core.settings.lead.clone());
        let settings = &self.core.settings;
        let usual = Agent {
            model: Some(settings.model.clone()),
            fallbacks: settings.fallbacks.clone(),
            ..Agent::default()
        };
        resolve_model(&mut agent, &usual);
        let delegation = Delegation {
            agent: Some(agent.id.clone()),
            task: task.text.into(),
            remote_context: options.remote_context.clone().map(Box::new),
            configured_mode: self.configured_mode(),
            environment: settings
                .environment
                .clone()
                .filter(|_| environment::applies_to(&agent))
                .map(Box::new),
            schema: task.schema.map(|schema| schema.as_str().into()),
            ..Delegation::default()
        };
        let depth = remote::depth(&delegation);
        let authority = self.root_authority(&agent, &delegation);
        check_depth(depth, &authority)?;
        // The model is resolved before anything is written, so that an unknown name leaves no session behind.
        self.core.check_model(&agent)?;
        let lease = self.core.store.lease(&session, &self.owner, clock::now()).await?;
        let tree = Arc::new(Tree::new(
            self.core.clone(),
            self.owner.clone(),
            lease,
            remote::ancestors(&delegation),
            Overrides::default(),
        ));
        tree.agents.set_environment(&delegation, depth);
        let resolved = tree.agents.resolve(agent, authority, depth)?;
        let round = self.root_round(delegation, &resolved, &options);
        resolved.check_budget(&round.grant.budget)?;
        let driver = Driver::begin(tree.clone(), session, round, resolved, None);
        self.drive(tree, driver).await
    }

    /// Returns the id if no session has it and it is not the id of a child.
    async fn check_unused(&self, session: SessionId) -> Result<SessionId, RunError> {
        if session.parent().is_some() || !self.core.store.read(&session, 0).await?.is_empty() {
            return Err(RunError::Config(format!(
                "cannot start session {session}: the id is already in use or belongs to a sub-agent. Choose another id."
            )));
        }
        Ok(session)
    }

    /// Resumes a tree. An open round is finished. An ended session starts its next round if there is work to do.
    pub async fn resume(&self, session: &SessionId, options: ResumeOptions) -> Result<Run, RunError> {
        self.start_round(session, options, Reason::Continue).await
    }

    /// Starts a round in which the model summarizes the conversation of a session, so that later requests are
    /// shorter. The last turn is kept verbatim. Fails while a round is open.
    pub async fn compact(&self, session: &SessionId, options: ResumeOptions) -> Result<Run, RunError> {
        self.start_round(session, options, Reason::Compact).await
    }

    async fn start_round(
        &self,
        session: &SessionId,
        options: ResumeOptions,
        reason: Reason,
    ) -> Result<Run, RunError> {
        let now = clock::now();
        let cached = self.core.session_cache.take(&*self.core.store, session).await?;
        if reason == Reason::Compact
            && let Err(error) = can_compact(&cached.state)
        {
            self.core.session_cache.put(cached);
            return Err(error);
        }
        self.check_tree_ended(session).await?;
        let lease = match self.core.store.lease(session, &self.owner, now).await {
            Ok(lease) => lease,
            Err(error) => {
                self.core.session_cache.put(cached);
                return Err(error.into());
            }
        };
        match self.restore(cached, lease.clone(), options, now, reason).await {
            Ok(run) => Ok(run),
            Err(error) => {
                let _ = self.core.store.release(&lease).await;
                Err(error)
            }
        }
    }

    async fn restore(
        &self,
        mut cached: CachedSession,
        lease: Lease,
        options: ResumeOptions,
        now: u64,
        reason: Reason,
    ) -> Result<Run, RunError> {
        let store = &*self.core.store;
        let session = cached.state.session().clone();
        let gone = || RunError::Store(StoreError::UnknownSession(session.clone()));
        cached.catch_up(store).await?.then_some(()).ok_or_else(gone)?;
        if cached.imported != self.close_imported(&session, &lease, &cached, now).await? {
            cached = CachedSession::read(store, &session).await?;
        }
        cached.catch_up(store).await?.then_some(()).ok_or_else(gone)?;
        // A message from outside may be appended in between. The append is then retried.
        while cached.state.is_running() && cached.epoch != Some(lease.epoch) {
            let downtime = lease.last_run.map_or(0, |last| now.saturating_sub(last));
            let resumed = Event::Resumed { epoch: lease.epoch, downtime, mode: options.mode };
            let append = Append {
                session: session.clone(),
                expect: Expect::Length(cached.state.length()),
                events: Arc::new(vec![resumed]),
                blobs: Vec::new(),
                lease: Some(lease.clone()),
                at: now,
            };
            match retry::append(store, || append.clone()).await {
                Ok(appended) => {
                    let Append { session, events, at, .. } = append;
                    self.core.settings.observers.observe_append(&session, events, &appended, at);
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            cached.catch_up(store).await?.then_some(()).ok_or_else(gone)?;
        }
        let above =
            cached.state.round().map(|round| remote::ancestors(&round.delegation)).unwrap_or_default();
        let mode = self.mode_of_open_round(&cached, &options);
        let overrides = Overrides { model: options.model.clone(), mode };
        let mut tree = Tree::new(self.core.clone(), self.owner.clone(), lease, above, overrides);
        tree.restore(&cached).await?;
        self.continue_run(Arc::new(tree), cached.state, cached.started, options, reason).await
    }

    async fn continue_run(
        &self,
        tree: Arc<Tree>,
        state: State,
        started: Cursor,
        options: ResumeOptions,
        reason: Reason,
    ) -> Result<Run, RunError> {
        let Some(round) = state.round().cloned() else {
            return Err(StoreError::UnknownSession(state.session().clone()).into());
        };
        if state.is_running() {
            tree.agents.set_environment(&round.delegation, round.depth);
            let resolved =
                tree.agents.resolve_recorded(round.agent, round.grant.authority, round.depth).await?;
            resolved.check_budget(&round.grant.budget)?;
            let driver = Driver::resume(tree.clone(), state, resolved, started);
            return self.drive(tree, driver).await;
        }
        let continues = state.has_unread_input()
            || reason == Reason::Compact
            || match state.ended().map(|outcome| &outcome.status) {
                Some(Status::Incomplete { .. } | Status::Failed { .. } | Status::Lost { .. }) => true,
                Some(Status::Cancelled { .. }) => options.continue_cancelled,
                Some(Status::Done | Status::Detached) | None => false,
            };
        if !continues {
            return self.already_ended(tree, state, started).await;
        }
        let is_imported = tree.history.is_imported(tree.store(), started);
        let LastRound { mut agent, authority: then } =
            self.last_round(&tree, &round, is_imported, &options).await?;
        // A model that the user chooses for the next round is recorded with it.
        let is_fixed = matches!(agent.backend, Backend::Acp(_))
            || agent.model.as_deref().is_some_and(|name| name.starts_with(passthrough::PROVIDER));
        if reason == Reason::Compact && is_fixed {
            return Err(cannot_compact(&state, "its conversation is kept by an external program"));
        }
        if let Some(model) = options.model.as_ref().filter(|_| !is_fixed) {
            agent.model = Some(model.clone());
            agent.fallbacks = Vec::new();
        }
        agent.model.get_or_insert_with(|| self.core.settings.model.clone());
        let mut delegation =
            Delegation { task: "".into(), warnings: Vec::new(), ..Arc::unwrap_or_clone(round.delegation) };
        if reason == Reason::Compact {
            // The round has no result of its own to validate.
            delegation.schema = None;
        }
        delegation.remote_context =
            remote::for_next_round(delegation.remote_context, options.remote_context.as_ref());
        if state.session().is_root() && environment::applies_to(&agent) {
            let now = self.core.settings.environment.as_ref();
            delegation.environment = environment::for_next_round(delegation.environment, now, is_imported);
        }
        // The schema applies to the task. A new user message may ask for any form.
        if state.has_user_input() {
            delegation.schema = None;
        }
        let mode = self.mode_of_next_round(&then, delegation.configured_mode, is_imported, &options);
        delegation.configured_mode = match (options.mode, delegation.configured_mode) {
            (None, Some(_)) => self.configured_mode(),
            (None, None) if is_imported => self.configured_mode(),
            (None, None) | (Some(_), _) => None,
        };
        let mut authority = self.root_authority(&agent, &delegation);
        // Restrictions from the definition or from a remote caller apply in every round.
        let bounds = [agent.mode, remote::max_mode(&delegation)].into_iter().flatten();
        authority.permissions.mode = bounds.fold(mode, Mode::min);
        if state.session().parent().is_some() || is_imported {
            // A detached child keeps the authority it was lent. An imported session keeps the authority it had.
            authority.network = authority.network.min(then.network);
            authority.speak = authority.speak.min(then.speak);
            authority.sandbox = narrower(authority.sandbox, then.sandbox);
            authority.tools.retain(|tool| then.tools.contains(tool));
            authority.lend.retain(|tool| then.lend.contains(tool));
            // The current settings do not contain what the caller's definition denied.
            add_restrictions(&mut authority.permissions, &then.permissions);
        }
        let depth = remote::depth(&delegation);
        check_depth(depth, &authority)?;
        tree.agents.set_environment(&delegation, depth);
        let resolved = tree.agents.resolve(agent, authority, depth)?;
        let next = self.root_round(delegation, &resolved, &options);
        resolved.check_budget(&next.grant.budget)?;
        let has_reason = state.has_unread_input() || reason == Reason::Compact;
        let message = (!has_reason).then(|| match is_imported {
            true => imported::RESUME_IMPORTED_MESSAGE.to_owned(),
            false => resume_message(&state),
        });
        let mut driver = Driver::next_round(tree.clone(), state, resolved, next, message.as_deref());
        if reason == Reason::Compact {
            driver.compact();
        }
        self.drive(tree, driver).await
    }

    async fn drive(&self, tree: Arc<Tree>, driver: Box<Driver>) -> Result<Run, RunError> {
        tree.agents.set_lead(driver.agent());
        Run::start(self.clone(), tree, RunWork::Drive(driver)).await
    }

    async fn already_ended(&self, tree: Arc<Tree>, state: State, started: Cursor) -> Result<Run, RunError> {
        let session = state.session().clone();
        let result = match state.ended() {
            Some(outcome) => Ok(RunResult {
                session: session.clone(),
                outcome: outcome.clone(),
                spent: state.ledger().spent(),
                detached: Detached::none(),
            }),
            None => Err(RunError::Bug(format!("session {session} ended without an outcome"))),
        };
        tree.remember(state, started, tree.history.restored_until);
        Run::start(self.clone(), tree, RunWork::AlreadyEnded(Box::new(result))).await
    }

    /// Sends a user message to a session, regardless of which process runs it. If the session has ended, this
    /// requests a next round.
    pub async fn tell(&self, session: &SessionId, text: &str) -> Result<(), RunError> {
        self.tell_as(Speaker::Person, session, text).await
    }

    /// Sends a message from a sender other than the user. A message from an agent must not be read as the user's.
    pub async fn tell_as(&self, from: Speaker, session: &SessionId, text: &str) -> Result<(), RunError> {
        if text.trim().is_empty() {
            return Err(RunError::EmptyTask);
        }
        let store = &*self.core.store;
        if let Some(agent) = self.core.session_cache.agent(store, session).await?
            && passthrough::is_passthrough_agent(store, agent).await?
        {
            return Err(RunError::Passthrough(session.clone()));
        }
        self.append_external_event(session, Event::Heard { from, text: text.into() }).await
    }

    /// Whether a session received a message after its last round ended, which calls for a next round.
    pub async fn has_unread_input(&self, session: &SessionId) -> Result<bool, RunError> {
        let cached = self.core.session_cache.take(&*self.core.store, session).await?;
        let has_input = cached.state.ended().is_some() && cached.state.has_unread_input();
        self.core.session_cache.put(cached);
        Ok(has_input)
    }

    /// Cancels a session, regardless of which process runs it.
    pub async fn cancel(&self, session: &SessionId, by: &str) -> Result<(), RunError> {
        self.append_external_event(session, Event::CancelAsked { by: by.to_owned() }).await
    }

    /// Answers an approval request of a session, regardless of which process runs it. The first answer counts. A
    /// [`CallId`](brigade_core::CallId) names the request of a call that has not started.
    pub async fn answer(
        &self,
        session: &SessionId,
        question: impl Into<QuestionId>,
        answer: Answer,
        by: &str,
    ) -> Result<(), RunError> {
        let question = question.into();
        let state = fold(session, &self.core.store.read(session, 0).await?);
        state.check_answer(question.clone(), &answer).map_err(|error| match error {
            AnswerError::NotOpen => {
                RunError::NoSuchApproval { session: session.clone(), question: question.clone() }
            }
            AnswerError::InvalidRule(_) | AnswerError::OtherHost { .. } | AnswerError::OtherTool { .. } => {
                RunError::Rule(error.to_string())
            }
        })?;
        let (QuestionId { call, host }, by) = (question, by.to_owned());
        let event = match host {
            Some(host) => Event::HostAnswered { call, host, answer, by },
            None => Event::Answered { call, answer, by },
        };
        self.append_external_event(session, event).await
    }

    async fn append_external_event(&self, session: &SessionId, event: Event) -> Result<(), RunError> {
        retry::append_external(&*self.core.store, session, event).await?;
        Ok(())
    }

    /// Fails if an ancestor of the session may still be working with it, because a session cannot have two
    /// runners.
    async fn check_tree_ended(&self, session: &SessionId) -> Result<(), RunError> {
        let mut above = session.parent();
        while let Some(root) = above {
            if fold(&root, &self.core.store.read(&root, 0).await?).is_running() {
                return Err(RunError::TreeRunning { child: session.clone(), root });
            }
            above = root.parent();
        }
        Ok(())
    }

    /// Returns the delegation tools that a root agent is offered.
    pub fn delegation_tools(&self, agent: &Agent) -> Vec<ToolSpec> {
        let authority = self.root_authority(agent, &Delegation::default());
        let agents = self.core.settings.agents.list();
        self.core.settings.delegation_styles.specs(&Caller { depth: 0, authority: &authority, agent, agents })
    }

    /// Authority of a root agent under the user's settings. An agent definition can narrow the tools it uses
    /// below what it may lend.
    fn root_authority(&self, agent: &Agent, delegation: &Delegation) -> Authority {
        let settings = &self.core.settings;
        let mut all: BTreeSet<String> = settings.tools.iter().map(|tool| tool.spec().name.clone()).collect();
        all.insert(MESSAGE_TOOL.to_owned());
        all.extend(DELEGATION_TOOLS.map(str::to_owned));
        let only = |names: &Option<Vec<String>>| match names {
            None => all.clone(),
            Some(names) => {
                let is_named = |tool: &String| {
                    let by = |name: &String| {
                        let name = tool_names::canonical(name);
                        name == *tool
                            || tool_names::mcp_prefix(&name).is_some_and(|start| tool.starts_with(start))
                    };
                    names.iter().any(by)
                };
                all.iter().filter(|tool| is_named(tool)).cloned().collect()
            }
        };
        // The delegation styles decide which agents a root can call, not its tool list.
        let mut tools = only(&agent.tools);
        tools.extend(DELEGATION_TOOLS.map(str::to_owned));
        let mut permissions =
            settings.permissions.narrowed_to(agent.mode.unwrap_or(settings.permissions.mode));
        permissions.deny.extend(agent.deny.iter().cloned());
        let own = Authority {
            tools,
            lend: only(&agent.lend),
            permissions,
            max_depth: settings.limits.max_depth,
            agents: brigade_core::grant::Names::Any,
            models: settings.models.clone(),
            workspace: settings.workspace.root().to_string_lossy().into_owned(),
            paths: BTreeSet::from([String::new()]),
            network: Access::Allowed,
            speak: Access::Allowed,
            sandbox: Some(agent.sandbox.map_or(settings.sandbox.mode, |own| own.min(settings.sandbox.mode))),
        };
        remote::narrow(delegation, own)
    }

    /// Builds a root round. The user's limits take precedence over those of the agent definition.
    fn root_round(
        &self,
        delegation: Delegation,
        resolved: &ResolvedAgent,
        options: &ResumeOptions,
    ) -> RoundSpec {
        let settings = &self.core.settings;
        let mut budget = options.budget.unwrap_or(settings.budget);
        if let Some(own) = resolved.agent.budget {
            budget = budget.min(own);
        }
        let timeout = options.timeout.or(resolved.timeout().map(Duration::from_millis));
        let (timeout, turns) = match &resolved.kind {
            AgentKind::Local(_) => (timeout, options.turns.or(resolved.max_turns())),
            AgentKind::External(external) => {
                // An external agent has no silence timeout, so a time limit and a turn limit always apply.
                let timeout = timeout.unwrap_or(settings.limits.child_timeout);
                budget = budget.min(external.limits.budget());
                (Some(timeout), options.turns.into_iter().chain(resolved.max_turns()).min())
            }
        };
        let deadline = match timeout {
            Some(timeout) => {
                let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                Limit::AtMost(clock::now().saturating_add(millis))
            }
            None => Limit::Unlimited,
        };
        // Limits that a remote caller set for earlier work do not apply to this round.
        let (budget, deadline) = remote::cap(options.remote_context.as_ref(), budget, deadline);
        let turns = turns.unwrap_or(settings.limits.lead_turns);
        let grant = Grant { authority: resolved.authority_hash, budget, turns, deadline };
        let depth = remote::depth(&delegation);
        RoundSpec { delegation: delegation.into(), agent: resolved.agent_hash, grant, parent: None, depth }
    }
}

/// Fails if the conversation is incomplete or has no older part to summarize.
fn can_compact(state: &State) -> Result<(), RunError> {
    let cause = if state.is_running() {
        "it has not ended. Resume it first"
    } else if state.has_unread_input() {
        "it has not replied to the last message. Resume it first"
    } else if !state.can_compact() {
        "it has no older messages to summarize yet"
    } else {
        return Ok(());
    };
    Err(cannot_compact(state, cause))
}

fn cannot_compact(state: &State, cause: &str) -> RunError {
    RunError::Config(format!("cannot compact {}: {cause}.", state.session()))
}

/// Message to the model for a next round that starts without a user message.
fn resume_message(state: &State) -> String {
    let cause = match state.ended().map(|outcome| &outcome.status) {
        Some(Status::Incomplete { limit }) => {
            format!("Your last run reached its {}. You now have a new limit. ", limit.label())
        }
        Some(Status::Failed { cause }) => {
            let cause: String = cause.chars().take(MAX_CAUSE_CHARS).collect();
            format!("Your last run failed: {}. This is a retry. ", cause.trim_end_matches('.'))
        }
        Some(Status::Lost { .. }) => {
            "Your last run was interrupted, and the outcome of its last step is unknown. Check that step first. "
                .to_owned()
        }
        Some(Status::Cancelled { .. }) => "Your last run was cancelled before it finished. ".to_owned(),
        Some(Status::Done | Status::Detached) | None => String::new(),
    };
    format!("{cause}{CONTINUE_MESSAGE}")
}

fn check_depth(depth: u32, authority: &Authority) -> Result<(), RunError> {
    let max_depth = authority.max_depth;
    if depth > max_depth {
        Err(RunError::Config(AttenuateError::Depth { max_depth }.to_string()))
    } else {
        Ok(())
    }
}

fn fold(session: &SessionId, records: &[Record]) -> State {
    State::fold(session.clone(), records.iter().map(|record| &record.event))
}
