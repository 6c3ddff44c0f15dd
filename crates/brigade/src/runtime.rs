//! Starting, resuming, telling and cancelling trees.

mod imported;
mod known;
mod task;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brigade_core::alias;
use brigade_core::event::{Answer, Speaker};
use brigade_core::faces::delegate::Keep;
use brigade_core::faces::{Caller, DELEGATION_TOOLS, MESSAGE, settle_model};
use brigade_core::grant::{Access, Authority, Grant, Refusal};
use brigade_core::permission::{Mode, Rule, RuleError};
use brigade_core::state::{CallProgress, Round};
use brigade_core::{
    Agent, CallId, Delegation, Event, Face, Hop, Limit, Place, Record, SessionId, State, Status, ToolSpec,
};
use tokio::task::JoinHandle;

use crate::clock;
use crate::environment;
use crate::live::Watch;
use crate::model::{About, Models, relay};
use crate::session::{Driver, Fatal, RoundEnd};
use crate::settings::Settings;
use crate::store::memory::MemoryStore;
use crate::store::{Append, Expect, Holder, Lease, Pos, Store, StoreError};
use crate::task::{AbortOnDrop, spawn};
use crate::tree::{Core, Kit, Tree};
use imported::Last;
pub(crate) use known::{Known, Memory};
pub use task::{Detached, Ending, More, RunError, Task};

/// How often a runner says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);

const CONTINUE_WORDS: &str = "Continue the task where you left off and finish it.";

/// The most of a failure that the model is told.
const MAX_CAUSE_CHARS: usize = 300;

/// Runs trees of agents over a store.
#[derive(Clone)]
pub struct Runtime {
    core: Arc<Core>,
    holder: Holder,
}

/// A tree that is ready to run, for whoever wants to see it from its first fact on.
pub struct Prepared {
    session: SessionId,
    tree: Arc<Tree>,
    work: Work,
}

enum Work {
    Drive(Box<Driver>),
    AlreadyOver(Box<Result<Ending, RunError>>),
}

/// The purpose of continuing a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// Words of the user, or work that is left.
    Continue,
    /// The user asked for a shorter conversation.
    Compact,
}

impl Prepared {
    /// The session at the top.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// All that will happen.
    pub fn watch(&self) -> Watch {
        self.tree.watchers.subscribe()
    }

    /// Starts it in the background.
    pub fn start(self) -> Run {
        let Prepared { session, tree, work } = self;
        let running = tree.clone();
        let task = match work {
            Work::Drive(driver) => spawn(run_tree(running, driver)),
            Work::AlreadyOver(ending) => spawn(async move {
                running.release().await?;
                running.watchers.close();
                *ending
            }),
        };
        Run { session, tree, task }
    }
}

/// A tree that is running. Dropping it stops the runner, not the tree: it can be resumed.
pub struct Run {
    session: SessionId,
    tree: Arc<Tree>,
    task: JoinHandle<Result<Ending, RunError>>,
}

impl Run {
    /// The session at the top.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// What happens from now on.
    pub fn watch(&self) -> Watch {
        self.tree.watchers.subscribe()
    }

    /// Waits for the end.
    pub async fn ending(mut self) -> Result<Ending, RunError> {
        match (&mut self.task).await {
            Ok(ending) => ending,
            Err(error) => Err(RunError::Bug(error.to_string())),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Runtime {
    /// A runtime over a store.
    pub fn new(store: Arc<dyn Store>, settings: Settings, models: Models) -> Runtime {
        let memory = Arc::default();
        Runtime { core: Arc::new(Core { store, models, settings, memory }), holder: Holder::this_process() }
    }

    /// A runtime that forgets everything when it is dropped.
    pub fn in_memory(settings: Settings, models: Models) -> Runtime {
        Runtime::new(Arc::new(MemoryStore::new()), settings, models)
    }

    /// The same runtime under another name in leases; for tests of takeovers.
    pub fn held_by(self, holder: Holder) -> Runtime {
        Runtime { holder, ..self }
    }

    /// The same store and models with other settings: another mode, or more tools.
    pub fn with_settings(&self, settings: Settings) -> Runtime {
        let Core { store, models, memory, .. } = &*self.core;
        let core = Core { store: store.clone(), models: models.clone(), settings, memory: memory.clone() };
        Runtime { core: Arc::new(core), holder: self.holder.clone() }
    }

    /// What is known of a model, where there is one of this name.
    pub fn about(&self, model: &str) -> Option<About> {
        self.core.models.choose(model).ok().map(|chosen| chosen.provider.about(&chosen.name))
    }

    /// An id that no session has, for [`Task::session`].
    pub fn new_session(&self) -> Result<SessionId, RunError> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|error| RunError::Setup(format!("no randomness: {error}")))?;
        Ok(SessionId::root(u128::from_le_bytes(bits)))
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.core.store
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }

    /// Starts a task in a tree of its own. The run goes on in the background.
    pub async fn start(&self, task: Task) -> Result<Run, RunError> {
        Ok(self.prepare(task).await?.start())
    }

    /// Makes a task ready to start, so that it can be watched from the beginning.
    pub async fn prepare(&self, task: Task) -> Result<Prepared, RunError> {
        if task.text.trim().is_empty() {
            return Err(RunError::EmptyTask);
        }
        let session = match task.session {
            Some(session) => self.unused(session).await?,
            None => self.new_session()?,
        };
        let (budget, turns, timeout) = (task.budget, task.turns, task.timeout);
        let more = More { budget, turns, timeout, hop: task.hop, ..More::default() };
        let mut agent = task.agent.unwrap_or_else(|| self.core.settings.lead.clone());
        let settings = &self.core.settings;
        let usual = Agent {
            model: Some(settings.model.clone()),
            fallbacks: settings.fallbacks.clone(),
            ..Agent::default()
        };
        settle_model(&mut agent, &usual);
        let delegation = Delegation {
            agent: Some(agent.id.clone()),
            task: task.text.into(),
            hop: more.hop.clone().map(Box::new),
            configured_mode: self.configured_mode(),
            environment: settings.environment.clone().filter(|_| environment::is_told(&agent)).map(Box::new),
            schema: task.schema.map(|schema| schema.as_str().into()),
            ..Delegation::default()
        };
        let depth = depth_at_top(&delegation);
        let authority = self.root_authority(&agent, &delegation);
        refuse_depth(depth, &authority)?;
        // The model is looked up before anything is written: a wrong name leaves no session behind.
        self.core.check_model(&agent).map_err(RunError::Setup)?;
        let lease = self.core.store.lease(&session, &self.holder, clock::now()).await?;
        let tree =
            Arc::new(Tree::new(self.core.clone(), self.holder.clone(), lease, lineage(&delegation), &more));
        tree.set_environment(&delegation, depth);
        let kit = tree.kit(agent, authority, depth).map_err(RunError::Setup)?;
        let round = self.root_round(delegation, &kit, &more);
        kit.can_keep(&round.grant.budget).map_err(RunError::Unpriced)?;
        let driver = Driver::begin(tree.clone(), session, round, kit, None);
        Ok(prepared(tree, driver))
    }

    /// The id, unless there is a session of this name already, or it is that of a child.
    async fn unused(&self, session: SessionId) -> Result<SessionId, RunError> {
        if session.parent().is_some() || !self.core.store.read(&session, 0).await?.is_empty() {
            return Err(RunError::Setup(format!("{session} cannot be the name of a new session")));
        }
        Ok(session)
    }

    /// Goes on with a tree: an open round is finished; an ended one gets a next round if there is something to do.
    pub async fn resume(&self, session: &SessionId, more: More) -> Result<Run, RunError> {
        Ok(self.prepare_resume(session, more).await?.start())
    }

    /// Makes a tree ready to go on, so that it can be watched from there.
    pub async fn prepare_resume(&self, session: &SessionId, more: More) -> Result<Prepared, RunError> {
        self.prepare_again(session, more, Reason::Continue).await
    }

    /// Makes a round ready in which the model summarises the conversation of a session, so that later requests are
    /// shorter. Its last turn stays as it is. Refused while a round is open.
    pub async fn prepare_compact(&self, session: &SessionId, more: More) -> Result<Prepared, RunError> {
        self.prepare_again(session, more, Reason::Compact).await
    }

    async fn prepare_again(
        &self,
        session: &SessionId,
        more: More,
        reason: Reason,
    ) -> Result<Prepared, RunError> {
        let now = clock::now();
        let known = self.core.memory.take(&*self.core.store, session).await?;
        if reason == Reason::Compact
            && let Err(error) = can_compact(&known.state)
        {
            self.core.memory.put(known);
            return Err(error);
        }
        self.refuse_child_of_open_tree(session).await?;
        let lease = match self.core.store.lease(session, &self.holder, now).await {
            Ok(lease) => lease,
            Err(error) => {
                self.core.memory.put(known);
                return Err(error.into());
            }
        };
        match self.take_up(known, lease.clone(), more, now, reason).await {
            Ok(prepared) => Ok(prepared),
            Err(error) => {
                let _ = self.core.store.release(&lease).await;
                Err(error)
            }
        }
    }

    async fn take_up(
        &self,
        mut known: Known,
        lease: Lease,
        more: More,
        now: u64,
        reason: Reason,
    ) -> Result<Prepared, RunError> {
        let store = &*self.core.store;
        let session = known.state.session().clone();
        let gone = || RunError::Store(StoreError::Unknown(session.clone()));
        known.catch_up(store).await?.then_some(()).ok_or_else(gone)?;
        if known.imported != self.close_imported(&session, &lease, &known, now).await? {
            known = Known::read(store, &session).await?;
        }
        known.catch_up(store).await?.then_some(()).ok_or_else(gone)?;
        // Words from outside may come in between; then it is tried again.
        while known.state.is_running() && known.epoch != Some(lease.epoch) {
            let downtime = lease.last_run.map_or(0, |last| now.saturating_sub(last));
            let resumed = Event::Resumed { epoch: lease.epoch, downtime, mode: more.mode };
            let append = Append {
                session: session.clone(),
                expect: Expect::Length(known.state.length()),
                events: Arc::new(vec![resumed]),
                blobs: Vec::new(),
                lease: Some(lease.clone()),
                at: now,
            };
            match store.append(append).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            known.catch_up(store).await?.then_some(()).ok_or_else(gone)?;
        }
        let above = known.state.round().map(|round| lineage(&round.delegation)).unwrap_or_default();
        let mut tree = Tree::new(self.core.clone(), self.holder.clone(), lease, above, &more);
        tree.mode_override = self.mode_of_open_round(&known, &more);
        tree.take_up(&known).await?;
        self.continue_tree(Arc::new(tree), known.state, known.started, more, reason).await
    }

    async fn continue_tree(
        &self,
        tree: Arc<Tree>,
        state: State,
        started: Pos,
        more: More,
        reason: Reason,
    ) -> Result<Prepared, RunError> {
        let Some(round) = state.round().cloned() else {
            return Err(StoreError::Unknown(state.session().clone()).into());
        };
        if state.is_running() {
            tree.set_environment(&round.delegation, round.depth);
            let kit = tree.recorded_kit(round.agent, round.grant.authority, round.depth).await?;
            kit.can_keep(&round.grant.budget).map_err(RunError::Unpriced)?;
            let driver = Driver::go_on(tree.clone(), state, kit, started);
            return Ok(prepared(tree, driver));
        }
        let goes_on = state.has_unheard_words()
            || reason == Reason::Compact
            || match state.ended().map(|outcome| &outcome.status) {
                Some(Status::Incomplete { .. } | Status::Failed { .. } | Status::Lost { .. }) => true,
                Some(Status::Cancelled { .. }) => more.continue_cancelled,
                Some(Status::Done | Status::Detached) | None => false,
            };
        if !goes_on {
            return Ok(self.already_over(tree, state, started));
        }
        let is_imported = tree.imported.is_some_and(|mark| started <= mark);
        let Last { mut agent, authority: then } = self.last_round(&tree, &round, is_imported, &more).await?;
        // A model that the user names for a next round is remembered with it.
        let is_fixed = matches!(agent.place, Place::Acp(_))
            || agent.model.as_deref().is_some_and(|name| name.starts_with(relay::PROVIDER));
        if reason == Reason::Compact && is_fixed {
            return Err(cannot_compact(&state, "another program holds its conversation"));
        }
        if let Some(model) = more.model.as_ref().filter(|_| !is_fixed) {
            agent.model = Some(model.clone());
            agent.fallbacks = Vec::new();
        }
        agent.model.get_or_insert_with(|| self.core.settings.model.clone());
        let mut delegation =
            Delegation { task: "".into(), warnings: Vec::new(), ..Arc::unwrap_or_clone(round.delegation) };
        if reason == Reason::Compact {
            // The round has no result of its own that could fit.
            delegation.schema = None;
        }
        delegation.hop = within_both(delegation.hop, more.hop.as_ref());
        if state.session().is_root() && environment::is_told(&agent) {
            let now = self.core.settings.environment.as_ref();
            delegation.environment = environment::of_next_round(delegation.environment, now, is_imported);
        }
        // The schema is for the task. New words of the user are answered in whatever form they ask for.
        if state.is_told() {
            delegation.schema = None;
        }
        let mode = self.mode_of_next_round(&then, delegation.configured_mode, is_imported, &more);
        delegation.configured_mode = match (more.mode, delegation.configured_mode) {
            (None, Some(_)) => self.configured_mode(),
            (None, None) if is_imported => self.configured_mode(),
            (None, None) | (Some(_), _) => None,
        };
        let mut authority = self.root_authority(&agent, &delegation);
        // What the definition or another process holds it to binds it in every round.
        let bounds = [agent.mode, delegation.hop.as_ref().and_then(|hop| hop.mode)].into_iter().flatten();
        authority.permissions.mode = bounds.fold(mode, Mode::min);
        if state.session().parent().is_some() || is_imported {
            // A child that goes on by itself keeps to what it was lent, an imported session to what it had.
            authority.network = authority.network.min(then.network);
            authority.speak = authority.speak.min(then.speak);
            authority.tools.retain(|tool| then.tools.contains(tool));
            authority.lend.retain(|tool| then.lend.contains(tool));
            // What its caller's definition forbade stands in no settings of now.
            let (now, then) = (&mut authority.permissions, &then.permissions);
            for (rules, bound) in [(&mut now.deny, &then.deny), (&mut now.ask, &then.ask)] {
                let more: Vec<_> = bound.iter().filter(|rule| !rules.contains(rule)).cloned().collect();
                rules.extend(more);
            }
        }
        let depth = depth_at_top(&delegation);
        refuse_depth(depth, &authority)?;
        tree.set_environment(&delegation, depth);
        let kit = tree.kit(agent, authority, depth).map_err(RunError::Setup)?;
        let next = self.root_round(delegation, &kit, &more);
        kit.can_keep(&next.grant.budget).map_err(RunError::Unpriced)?;
        let has_reason = state.has_unheard_words() || reason == Reason::Compact;
        let words = (!has_reason).then(|| match is_imported {
            true => imported::WORDS.to_owned(),
            false => resume_words(&state),
        });
        let mut driver = Driver::next_round(tree.clone(), state, kit, next, words.as_deref());
        if reason == Reason::Compact {
            driver.compact();
        }
        Ok(prepared(tree, driver))
    }

    fn already_over(&self, tree: Arc<Tree>, state: State, started: Pos) -> Prepared {
        let session = state.session().clone();
        let ending = match state.ended() {
            Some(outcome) => Ok(Ending {
                session: session.clone(),
                outcome: outcome.clone(),
                spent: state.ledger().spent(),
                detached: Detached::none(),
            }),
            None => Err(RunError::Bug(format!("{session} has no end"))),
        };
        tree.remember(state, started, tree.known_until);
        Prepared { session, tree, work: Work::AlreadyOver(Box::new(ending)) }
    }

    /// Says something to a session, whoever runs it. After its end it asks for a next round.
    pub async fn tell(&self, session: &SessionId, text: &str) -> Result<(), RunError> {
        self.tell_as(Speaker::Person, session, text).await
    }

    /// The same for whoever is no person: what an agent says must not be heard as a person's words.
    pub async fn tell_as(&self, from: Speaker, session: &SessionId, text: &str) -> Result<(), RunError> {
        if text.trim().is_empty() {
            return Err(RunError::EmptyTask);
        }
        let store = &*self.core.store;
        if let Some(agent) = self.core.memory.agent(store, session).await?
            && relay::is_relay(store, agent).await?
        {
            return Err(RunError::OneCall(session.clone()));
        }
        self.outside_word(session, Event::Heard { from, text: text.into() }).await
    }

    /// Whether something was said to a session after the end of its last round, so that there is reason for a next one.
    pub async fn has_unheard_words(&self, session: &SessionId) -> Result<bool, RunError> {
        let known = self.core.memory.take(&*self.core.store, session).await?;
        let has_words = known.state.ended().is_some() && known.state.has_unheard_words();
        self.core.memory.put(known);
        Ok(has_words)
    }

    /// Asks a session to stop, whoever runs it.
    pub async fn cancel(&self, session: &SessionId, by: &str) -> Result<(), RunError> {
        self.outside_word(session, Event::CancelAsked { by: by.to_owned() }).await
    }

    /// Answers a question of a session, whoever runs it. The first answer counts.
    pub async fn answer(
        &self,
        session: &SessionId,
        call: CallId,
        answer: Answer,
        by: &str,
    ) -> Result<(), RunError> {
        let state = fold(session, &self.core.store.read(session, 0).await?);
        if state.call(call).is_none_or(|state| state.progress != CallProgress::Asked) || !state.is_running() {
            return Err(RunError::NotAsked { session: session.clone(), call });
        }
        if let Answer::Always(rule) = &answer {
            let rule: Rule = rule.parse().map_err(|error: RuleError| RunError::Rule(error.to_string()))?;
            let tool = state.tool_call(call).map_or("", |call| call.name.as_str());
            if !rule.names(tool) {
                return Err(RunError::Rule(format!(
                    "`{rule}` is no rule for {tool}, which is what is asked about"
                )));
            }
        }
        self.outside_word(session, Event::Answered { call, answer, by: by.to_owned() }).await
    }

    async fn outside_word(&self, session: &SessionId, event: Event) -> Result<(), RunError> {
        let append = Append {
            session: session.clone(),
            expect: Expect::Exists,
            events: Arc::new(vec![event]),
            blobs: Vec::new(),
            lease: None,
            at: clock::now(),
        };
        self.core.store.append(append).await?;
        Ok(())
    }

    /// A session that one above it may still work with cannot have a second runner.
    async fn refuse_child_of_open_tree(&self, session: &SessionId) -> Result<(), RunError> {
        let mut above = session.parent();
        while let Some(root) = above {
            if fold(&root, &self.core.store.read(&root, 0).await?).is_running() {
                return Err(RunError::NotOver { child: session.clone(), root });
            }
            above = root.parent();
        }
        Ok(())
    }

    /// The tools that delegate, as an agent at the top is told about them.
    pub fn faces(&self, agent: &Agent) -> Vec<ToolSpec> {
        let authority = self.root_authority(agent, &Delegation::default());
        let agents = self.core.settings.agents.list();
        self.core.settings.faces.specs(&Caller { depth: 0, authority: &authority, agent, agents })
    }

    /// What the person's settings allow the agent at the top: narrower than what it may lend, where it says so.
    fn root_authority(&self, agent: &Agent, delegation: &Delegation) -> Authority {
        let settings = &self.core.settings;
        let mut all: BTreeSet<String> = settings.tools.iter().map(|tool| tool.spec().name.clone()).collect();
        all.insert(MESSAGE.to_owned());
        all.extend(DELEGATION_TOOLS.map(str::to_owned));
        let only = |names: &Option<Vec<String>>| match names {
            None => all.clone(),
            Some(names) => {
                let is_named = |tool: &String| {
                    let by = |name: &String| {
                        let name = alias::canonical(name);
                        name == *tool || alias::pattern(&name).is_some_and(|start| tool.starts_with(start))
                    };
                    names.iter().any(by)
                };
                all.iter().filter(|tool| is_named(tool)).cloned().collect()
            }
        };
        // Whom a root can call in follows from the faces, not from its tools.
        let mut tools = only(&agent.tools);
        tools.extend(DELEGATION_TOOLS.map(str::to_owned));
        let mut permissions =
            settings.permissions.narrowed_to(agent.mode.unwrap_or(settings.permissions.mode));
        permissions.deny.extend(agent.deny.iter().cloned());
        let own = Authority {
            tools,
            lend: only(&agent.lend),
            permissions,
            deepest: settings.limits.max_depth,
            agents: brigade_core::grant::Names::Any,
            models: settings.models.clone(),
            workspace: settings.workspace.root().to_string_lossy().into_owned(),
            paths: BTreeSet::from([String::new()]),
            network: Access::Allowed,
            speak: Access::Allowed,
        };
        match &delegation.hop {
            Some(hop) => hop.narrow(own),
            None => own,
        }
    }

    /// A round at the top. What the person says counts more than what the agent's definition does.
    fn root_round(&self, delegation: Delegation, kit: &Kit, more: &More) -> Round {
        let settings = &self.core.settings;
        let own_time = kit.agent.timeout.map(Duration::from_millis);
        let own_turns = kit.agent.max_turns;
        let mut budget = more.budget.unwrap_or(settings.budget);
        if let Some(own) = kit.agent.budget {
            budget = budget.min(own);
        }
        let (timeout, turns) = match &kit.terms {
            None => (more.timeout.or(own_time), more.turns.or(own_turns)),
            Some(terms) => {
                // It may be silent for as long as it likes, so there is always a time and a number that end it.
                let usual = terms.timeout.map_or(settings.limits.child_timeout, Duration::from_millis);
                budget = budget.min(terms.budget());
                let turns = own_turns.or(terms.turns);
                (more.timeout.or(own_time).or(Some(usual)), more.turns.into_iter().chain(turns).min())
            }
        };
        let mut deadline = match timeout {
            Some(timeout) => {
                let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                Limit::AtMost(clock::now().saturating_add(millis))
            }
            None => Limit::Unlimited,
        };
        // The limits that another process set when it handed on earlier work are not those of this round.
        if let Some(hop) = &more.hop {
            budget = hop.within(budget);
            deadline = deadline.min(hop.deadline.map_or(Limit::Unlimited, Limit::AtMost));
        }
        let turns = turns.unwrap_or(settings.limits.lead_turns);
        let grant = Grant { authority: kit.authority_hash, budget, turns, deadline };
        let depth = depth_at_top(&delegation);
        Round { delegation: delegation.into(), agent: kit.agent_hash, grant, parent: None, depth }
    }
}

/// Refuses to summarise a conversation that is not complete, or that has no older part.
fn can_compact(state: &State) -> Result<(), RunError> {
    let cause = if state.is_running() {
        "its last round is not over. Resume it first"
    } else if state.has_unheard_words() {
        "it was told something that it has not answered. Resume it first"
    } else if !state.can_compact() {
        "it has no older part yet that a summary could replace"
    } else {
        return Ok(());
    };
    Err(cannot_compact(state, cause))
}

fn cannot_compact(state: &State, cause: &str) -> RunError {
    RunError::Setup(format!("cannot compact {}: {cause}.", state.session()))
}

/// The reason why a next round begins without words of the user, for the model.
fn resume_words(state: &State) -> String {
    let cause = match state.ended().map(|outcome| &outcome.status) {
        Some(Status::Incomplete { limit }) => {
            format!("Your last round reached its {}. You have a new limit now. ", limit.phrase())
        }
        Some(Status::Failed { cause }) => {
            let cause: String = cause.chars().take(MAX_CAUSE_CHARS).collect();
            format!("Your last round failed: {cause}. This is a retry. ")
        }
        Some(Status::Lost { .. }) => {
            "Your last round was interrupted, and the outcome of its last step is unknown. Check it first. "
                .to_owned()
        }
        Some(Status::Cancelled { .. }) => "Your last round was stopped before it was finished. ".to_owned(),
        Some(Status::Done | Status::Detached) | None => String::new(),
    };
    format!("{cause}{CONTINUE_WORDS}")
}

/// How deep a session at the top is: where another process handed the work on, as deep as it says.
fn depth_at_top(delegation: &Delegation) -> u32 {
    delegation.hop.as_ref().map_or(0, |hop| hop.depth)
}

/// The sessions of other processes that a delegation comes from.
fn lineage(delegation: &Delegation) -> Vec<String> {
    delegation.hop.as_ref().map(|hop| hop.lineage.clone()).unwrap_or_default()
}

/// The hop of a next round: how deep and how free it may be was settled when the work was first handed on, and can only
/// be narrowed.
fn within_both(first: Option<Box<Hop>>, now: Option<&Hop>) -> Option<Box<Hop>> {
    match (first, now) {
        (Some(first), Some(now)) => Some(Box::new(first.and(now))),
        (first, now) => first.or_else(|| now.cloned().map(Box::new)),
    }
}

fn refuse_depth(depth: u32, authority: &Authority) -> Result<(), RunError> {
    let deepest = authority.deepest;
    if depth > deepest { Err(RunError::Setup(Refusal::Depth { deepest }.to_string())) } else { Ok(()) }
}

fn prepared(tree: Arc<Tree>, driver: Box<Driver>) -> Prepared {
    tree.set_lead(driver.agent());
    Prepared { session: tree.root.clone(), tree, work: Work::Drive(driver) }
}

/// Runs a tree to the end of its round and gives its lease back.
async fn run_tree(tree: Arc<Tree>, driver: Box<Driver>) -> Result<Ending, RunError> {
    let listener = AbortOnDrop(spawn(listen(tree.clone())));
    let heartbeat = AbortOnDrop(spawn(beat(tree.clone())));
    // The driver is a task of its own: it ends with this one, and a panic in it is seen here.
    let mut driving = AbortOnDrop(spawn(driver.drive()));
    let end = match (&mut driving.0).await {
        Ok(end) => end,
        Err(error) => Err(Fatal::Bug(error.to_string())),
    };
    let left = tree.take_adopted();
    let released = tree.release().await;
    tree.watchers.close();
    let RoundEnd { outcome, spent } = end?;
    released?;
    remove_children(&tree).await?;
    let detached = Detached::of(&left);
    let session = tree.root.clone();
    if !left.is_empty() {
        spawn(keep_running(tree, left, detached.clone(), (listener, heartbeat)));
    }
    Ok(Ending { session, outcome, spent, detached })
}

/// Sees to sessions that were left to themselves until each of them has ended.
async fn keep_running(
    tree: Arc<Tree>,
    left: Vec<(SessionId, AbortOnDrop<()>)>,
    detached: Detached,
    _ears_and_heart: (AbortOnDrop<()>, AbortOnDrop<()>),
) {
    for (session, mut task) in left {
        // How it ended stands in its log; where that could not be written, it can be resumed.
        let _ = (&mut task.0).await;
        let _ = tree.release_handed_over(&session).await;
    }
    detached.all_ended();
}

/// Removes the sessions below the root that the settings keep no longer than it runs. One that has others below it
/// which are kept stays as well.
async fn remove_children(tree: &Tree) -> Result<(), StoreError> {
    let faces = &tree.settings().faces;
    let is_kept = |face: Face| match face {
        Face::Delegate => faces.swarm.keep == Keep::Root,
        Face::Subagent => faces.subagent().keep == Keep::Root,
        Face::Run | Face::Dispatch | Face::Spawn => true,
    };
    if is_kept(Face::Delegate) && is_kept(Face::Subagent) {
        return Ok(());
    }
    // Those of earlier rounds were removed when these ended.
    let records = tree.store().tail(&tree.root, tree.round_after, usize::MAX).await?;
    let (mut kept, mut rest) = (Vec::new(), Vec::new());
    for record in &records {
        if let Event::Started { delegation, .. } = &record.event {
            let list = if is_kept(delegation.face) { &mut kept } else { &mut rest };
            list.push(&record.session);
        }
    }
    // Those further down go first: what is above them goes only when nothing below it stays.
    rest.sort_by_key(|session| (std::cmp::Reverse(session.as_str().len()), *session));
    // One that was continued by itself has begun more than once.
    rest.dedup();
    for session in rest {
        let is_left_to_itself = tree.lease_for(session).root != tree.root;
        if !is_left_to_itself && !kept.iter().any(|other| session.contains(other)) {
            tree.store().remove(session).await?;
        }
    }
    Ok(())
}

fn fold(session: &SessionId, records: &[Record]) -> State {
    State::fold(session.clone(), records.iter().map(|record| &record.event))
}

/// Tells sessions of words from outside, wherever they were said.
async fn listen(tree: Arc<Tree>) {
    let mut stirred = tree.store().stirred();
    let mut after = tree.known_until;
    // Words that came while the tree lay are in the logs that the drivers read first.
    loop {
        stirred.mark_unchanged();
        if let Ok(words) = tree.store().words(&tree.root, after).await {
            after = words.iter().map(|(_, pos)| *pos).max().unwrap_or(after);
            tree.nudge(words.iter().map(|(session, _)| session));
        }
        if stirred.changed().await.is_err() {
            return;
        }
    }
}

/// Says from time to time that this runner is alive.
async fn beat(tree: Arc<Tree>) {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        tree.renew().await;
    }
}
