//! State shared by all sessions of a running tree.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use brigade_core::delegation::{Delegation, Environment};
use brigade_core::delegation_styles::{Caller, MESSAGE_TOOL, PASSTHROUGH_PREFIX, delegate, guidance};
use brigade_core::grant::{Access, Authority};
use brigade_core::message::Category;
use brigade_core::permission::Mode;
use brigade_core::state::CostModel;
use brigade_core::{
    Agent, Backend, Budget, DelegationStyle, Event, Hash, Limit, Price, Record, SessionId, State, ToolSpec,
};
use futures::channel::mpsc;
use serde_json::json;

use crate::clock;
use crate::concurrency::ConcurrencyLimiter;
use crate::environment;
use crate::event_stream::Subscribers;
use crate::external::{ExternalAgents, ExternalLimits, ExternalSessionGuard, ExternalTool};
use crate::fast_map::{FastMap, FastSet};
use crate::model::{EndpointOverride, ModelHandle, Models};
use crate::runtime::{CachedSession, ResumeOptions, SessionCache};
use crate::session::{DriverError, DriverMessage};
use crate::settings::Settings;
use crate::skills::SKILL;
use crate::store::{Lease, Owner, Pos, Store, StoreError};
use crate::task::AbortOnDrop;
use crate::tool::{AnyTool, ECHO, Files};
use crate::writes::{EarlierWrites, Writes};

/// Number of attempts to release a lease that the store rejects, and the pause between them.
const MAX_RELEASE_ATTEMPTS: u32 = 7200;
const RELEASE_PAUSE: Duration = Duration::from_millis(500);

/// Number of events per page when searching for writes.
const WRITES_PAGE_RECORDS: usize = 1000;

/// Name of the root agent unless its definition has another.
const LEAD_NAME: &str = "lead";

/// Tools that an external agent can use.
const EXTERNAL_TOOLS: [&str; 3] = ["read_file", "write_file", "shell"];

/// State shared by a runtime and all its trees.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Models,
    pub(crate) settings: Settings,
    /// Sessions that this process ran before.
    pub(crate) session_cache: Arc<SessionCache>,
}

pub(crate) struct Tree {
    pub(crate) core: Arc<Core>,
    pub(crate) root: SessionId,
    /// Sessions of other processes that this tree works for.
    pub(crate) remote_ancestors: Vec<String>,
    pub(crate) lease: Lease,
    pub(crate) slots: ConcurrencyLimiter,
    pub(crate) subscribers: Subscribers,
    /// Position up to which the root's log was read when the tree was resumed.
    pub(crate) restored_until: Pos,
    /// Position before the first event of this round.
    pub(crate) round_after: Pos,
    /// Resumes of the tree: position, and downtime before it in milliseconds.
    pub(crate) resumes: Vec<(Pos, u64)>,
    /// Model that replaces the recorded ones.
    pub(crate) model_override: Option<String>,
    /// Mode that narrows the recorded one.
    pub(crate) mode_override: Option<Mode>,
    /// Last imported position. Records up to it grant no permission.
    pub(crate) imported: Option<Pos>,
    /// Id and name of the root agent.
    lead: OnceLock<[String; 2]>,
    /// Environment information for the root agent, and its depth.
    environment: OnceLock<(u32, Box<Environment>)>,
    released: AtomicBool,
    inboxes: Mutex<FastMap<SessionId, mpsc::UnboundedSender<DriverMessage>>>,
    resolved_agents: Mutex<FastMap<(Hash, Hash, u32), Arc<ResolvedAgent>>>,
    durable_blobs: Mutex<FastSet<Hash>>,
    /// Number of the last `spawn` delegation.
    last_number: AtomicU32,
    owner: Owner,
    /// Leases of detached sessions.
    detached_leases: RwLock<Vec<Lease>>,
    /// Tasks of detached sessions.
    detached_tasks: Mutex<Vec<(SessionId, AbortOnDrop<()>)>>,
    /// Files that sessions of the tree have written.
    pub(crate) writes: Writes,
}

/// Everything derived from an agent, its authority and its depth. Identical siblings share it.
pub(crate) struct ResolvedAgent {
    pub(crate) agent: Agent,
    pub(crate) agent_hash: Hash,
    pub(crate) authority: Authority,
    pub(crate) authority_hash: Hash,
    primary: ModelOption,
    /// Fallback models, in order.
    fallbacks: Vec<ModelOption>,
    pub(crate) system: Arc<str>,
    pub(crate) specs: Arc<[ToolSpec]>,
    pub(crate) files: Files,
    /// Limits of the agent, if another program runs it.
    pub(crate) external_limits: Option<ExternalLimits>,
}

/// A model of an agent's fallback chain, with its costs.
pub(crate) struct ModelOption {
    pub(crate) name: String,
    pub(crate) model: ModelHandle,
    pub(crate) cost_model: CostModel,
    /// Whether its price is known.
    pub(crate) is_priced: bool,
}

impl Core {
    /// Returns the model of this name with the agent's own address and key, if it has any.
    pub(crate) fn model_for(&self, agent: &Agent, name: &str) -> Result<ModelHandle, String> {
        let key = match &agent.key_of {
            None => None,
            Some(id) => {
                let definition = self.settings.agents.definition(id).map_err(|error| error.to_string())?;
                let gone = || {
                    format!(
                        "cannot run the agent '{id}': its file no longer contains `api_key`. Add it again."
                    )
                };
                Some(definition.api_key.ok_or_else(gone)?)
            }
        };
        let own = EndpointOverride { base_url: agent.api_base.clone(), key };
        self.models.choose_for(name, &own).map_err(|error| error.to_string())
    }

    /// Fails if the model of an agent, or the program that runs it, does not exist.
    pub(crate) fn check_model(&self, agent: &Agent) -> Result<(), String> {
        match &agent.backend {
            Backend::Acp(place) => self.external()?.model(place).map(|_| ()),
            Backend::Here | Backend::Remote => {
                self.model_for(agent, agent.model.as_deref().unwrap_or_default()).map(|_| ())
            }
        }
    }

    /// Returns the external agents.
    fn external(&self) -> Result<&Arc<dyn ExternalAgents>, String> {
        let none = || "no external agents are configured. Add one under `[acp.servers.NAME]`.".to_owned();
        self.settings.external.as_ref().ok_or_else(none)
    }

    /// Returns a fallback model. The agent's own address and key are used only with its own provider.
    fn fallback_for(&self, agent: &Agent, name: &str) -> Option<ModelHandle> {
        let provider = |name: &str| name.split_once('/').map(|(provider, _)| provider.to_owned());
        let is_own = provider(name) == agent.model.as_deref().and_then(provider);
        // A fallback that is unavailable here is skipped.
        if is_own { self.model_for(agent, name).ok() } else { self.models.choose(name).ok() }
    }
}

impl ResolvedAgent {
    /// Refuses a budget in dollars for a model with an unknown price, because it could not be enforced.
    pub(crate) fn check_budget(&self, budget: &Budget) -> Result<(), String> {
        let mut options = std::iter::once(&self.primary).chain(&self.fallbacks);
        match options.find(|model_option| !model_option.is_priced) {
            Some(ModelOption { name, .. }) if budget.usd != Limit::Unlimited => Err(format!(
                "cannot enforce a budget in dollars: the price of the model '{name}' is unknown. Set `input` and `output`, \
                 in dollars per million tokens, under `[prices.\"{name}\"]` in your configuration, or replace \
                 `--budget-usd` and `budget.usd` with a budget in tokens."
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the model in use after this many fallbacks.
    pub(crate) fn model_option(&self, fallback_index: usize) -> &ModelOption {
        match fallback_index {
            0 => &self.primary,
            number => self.fallbacks.get(number - 1).or(self.fallbacks.last()).unwrap_or(&self.primary),
        }
    }

    /// Returns the next fallback after this many.
    pub(crate) fn next_fallback(&self, fallback_index: usize) -> Option<&ModelOption> {
        self.fallbacks.get(fallback_index)
    }
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
        options: &ResumeOptions,
    ) -> Tree {
        let swarm = &core.settings.delegation_styles.swarm;
        let slots = ConcurrencyLimiter::new(
            core.settings.limits.concurrency,
            [(DelegationStyle::Delegate, swarm.concurrency())],
        );
        Tree {
            root: lease.root.clone(),
            remote_ancestors,
            lease,
            slots,
            subscribers: Subscribers::default(),
            restored_until: 0,
            round_after: 0,
            resumes: Vec::new(),
            model_override: options.model.clone(),
            mode_override: options.mode,
            imported: None,
            lead: OnceLock::new(),
            environment: OnceLock::new(),
            released: AtomicBool::new(false),
            inboxes: Mutex::default(),
            resolved_agents: Mutex::default(),
            durable_blobs: Mutex::default(),
            last_number: AtomicU32::new(0),
            owner,
            detached_leases: RwLock::default(),
            detached_tasks: Mutex::default(),
            writes: Writes::default(),
            core,
        }
    }

    /// Releases the lease.
    pub(crate) async fn release(&self) -> Result<(), StoreError> {
        self.released.store(true, Ordering::SeqCst);
        let released = self.store().release(&self.lease).await;
        if released.is_err() {
            self.release_later();
        }
        released
    }

    /// Releases the lease as soon as the store accepts it, for example after a full disk has room again. While
    /// this process lives, no other could resume the tree before that.
    fn release_later(&self) {
        let Ok(handle) = tokio::runtime::Handle::try_current() else { return };
        let (mut store, lease) = (self.core.store.clone(), self.lease.clone());
        handle.spawn(async move {
            for _ in 0..MAX_RELEASE_ATTEMPTS {
                if store.release(&lease).await.is_ok() {
                    return;
                }
                // The store is not kept open for this.
                let weak_store = Arc::downgrade(&store);
                drop(store);
                tokio::time::sleep(RELEASE_PAUSE).await;
                match weak_store.upgrade() {
                    Some(again) => store = again,
                    None => return,
                }
            }
        });
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.core.store
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.core.settings
    }

    pub(crate) fn register(&self, session: &SessionId, inbox: mpsc::UnboundedSender<DriverMessage>) {
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

    /// Returns the lease that covers a session.
    pub(crate) fn lease_for(&self, session: &SessionId) -> Lease {
        let detached_leases = self.detached_leases.read().unwrap_or_else(PoisonError::into_inner);
        let own = detached_leases.iter().rev().find(|lease| lease.root.contains(session));
        own.unwrap_or(&self.lease).clone()
    }

    /// Takes a lease for a session that is about to be detached.
    pub(crate) async fn take_lease_for(&self, session: &SessionId) -> Result<(), StoreError> {
        let lease = self.store().lease(session, &self.owner, clock::now()).await?;
        self.detached_leases.write().unwrap_or_else(PoisonError::into_inner).push(lease);
        Ok(())
    }

    /// Keeps the task of a detached session.
    pub(crate) fn keep_detached(&self, session: SessionId, task: AbortOnDrop<()>) {
        lock(&self.detached_tasks).push((session, task));
    }

    /// Takes the tasks of all detached sessions.
    pub(crate) fn take_detached(&self) -> Vec<(SessionId, AbortOnDrop<()>)> {
        std::mem::take(&mut lock(&self.detached_tasks))
    }

    /// Renews all leases.
    pub(crate) async fn renew(&self) {
        let detached_leases = self.detached_leases.read().unwrap_or_else(PoisonError::into_inner).clone();
        let own = (!self.released.load(Ordering::SeqCst)).then(|| self.lease.clone());
        for lease in own.into_iter().chain(detached_leases) {
            // A failure appears at the next append.
            let _ = self.store().renew(&lease, clock::now()).await;
        }
    }

    /// Releases the lease of a detached session that has ended.
    pub(crate) async fn release_detached(&self, session: &SessionId) -> Result<(), StoreError> {
        let lease = self.lease_for(session);
        if lease.root == *session { self.store().release(&lease).await } else { Ok(()) }
    }

    /// Returns the number of the next `spawn` delegation.
    pub(crate) fn next_number(&self) -> u32 {
        self.last_number.fetch_add(1, Ordering::SeqCst).saturating_add(1)
    }

    /// Takes over the state of a resumed log and continues its numbering.
    pub(crate) async fn restore(&mut self, cached: &CachedSession) -> Result<(), StoreError> {
        self.restored_until = cached.last_pos;
        self.imported = cached.imported;
        self.round_after = if cached.state.is_running() { 0 } else { cached.last_pos };
        self.resumes.clone_from(&cached.resumes);
        if !self.settings().delegation_styles.has(DelegationStyle::Spawn) {
            return Ok(());
        }
        let (number, after) = cached.number;
        let records = self.store().tail(&self.root, after, usize::MAX).await?;
        let numbers = records.iter().filter_map(|record| match &record.event {
            Event::Delegated { delegation, .. } => delegation.number,
            _ => None,
        });
        *self.last_number.get_mut() = numbers.fold(number, u32::max);
        Ok(())
    }

    /// Caches the root's log for its next round, as of the event at `last_pos`. `started` is a position in its
    /// last round.
    pub(crate) fn remember(&self, state: State, started: Pos, last_pos: Pos) {
        let number = (self.last_number.load(Ordering::SeqCst), last_pos);
        let (resumes, imported) = (self.resumes.clone(), self.imported);
        let cached =
            CachedSession { state, last_pos, started, resumes, epoch: None, mode: None, imported, number };
        self.core.session_cache.put(cached);
    }

    /// Records the root agent.
    pub(crate) fn set_lead(&self, agent: &Agent) {
        // Set once, before anything runs.
        let _ = self.lead.set([agent.id.clone(), agent.name.clone()]);
    }

    /// Records the environment of the root round. Agents resolved earlier lack it and are resolved again.
    pub(crate) fn set_environment(&self, delegation: &Delegation, depth: u32) {
        if let Some(environment) = &delegation.environment {
            let _ = self.environment.set((depth, environment.clone()));
            lock(&self.resolved_agents).clear();
        }
    }

    /// Whether a role would be mistaken for the root agent.
    pub(crate) fn is_name_of_lead(&self, role: &str) -> bool {
        let names = self.lead.get().into_iter().flatten().map(String::as_str);
        names.chain([LEAD_NAME]).any(|name| delegate::looks_like(name, role))
    }

    /// Folds a log. Permanent approvals in an imported part are dropped.
    pub(crate) fn fold(&self, session: &SessionId, records: &[Record]) -> State {
        let is_imported = |record: &&Record| self.imported.is_some_and(|mark| record.pos <= mark);
        let foreign = records.iter().take_while(is_imported).count();
        let (foreign, own) = records.split_at(foreign);
        let mut state = State::fold(session.clone(), foreign.iter().map(|record| &record.event));
        state.forget_permissions();
        own.iter().for_each(|record| state.apply(&record.event));
        state
    }

    /// Total downtime of the tree since the event at `pos`, in milliseconds.
    pub(crate) fn downtime_since(&self, pos: Pos) -> u64 {
        self.resumes
            .iter()
            .filter(|(at, _)| *at > pos)
            .fold(0, |sum: u64, (_, downtime)| sum.saturating_add(*downtime))
    }

    /// Resolves an agent with this authority at this depth.
    pub(crate) fn resolve(
        &self,
        agent: Agent,
        authority: Authority,
        depth: u32,
    ) -> Result<Arc<ResolvedAgent>, String> {
        let (agent_hash, authority_hash) = (agent.hash(), authority.hash());
        let key = (agent_hash, authority_hash, depth);
        if let Some(resolved) = lock(&self.resolved_agents).get(&key) {
            return Ok(resolved.clone());
        }
        let resolved = Arc::new(match agent.backend.clone() {
            Backend::Acp(place) => self.resolve_external(agent, authority, &place)?,
            Backend::Here | Backend::Remote => self.resolve_local(agent, authority, depth)?,
        });
        lock(&self.resolved_agents).insert(key, resolved.clone());
        Ok(resolved)
    }

    /// Resolves an agent that another program runs. It has no cost here, and has its own prompt and tools.
    fn resolve_external(
        &self,
        agent: Agent,
        authority: Authority,
        place: &str,
    ) -> Result<ResolvedAgent, String> {
        let external = self.core.external()?;
        let model = ModelHandle { provider: external.model(place)?, name: place.to_owned() };
        let cost_model = CostModel { price: Price::default(), fixed_bytes: 0, max_output: 0, window: None };
        let primary = ModelOption { name: place.to_owned(), model, cost_model, is_priced: true };
        let may_ask = |spec: &ToolSpec| EXTERNAL_TOOLS.contains(&spec.name.as_str());
        let mut specs = self.settings().tools.specs(&authority);
        let is_denied = |spec: &ToolSpec| authority.permissions.denies(&spec.name);
        specs.retain(|spec| may_ask(spec) && !is_denied(spec));
        specs.retain(|spec| spec.name != "shell" || self.settings().shell.is_some());
        Ok(ResolvedAgent {
            agent_hash: agent.hash(),
            authority_hash: authority.hash(),
            primary,
            fallbacks: Vec::new(),
            system: agent.prompt.as_str().into(),
            specs: specs.into(),
            files: self.files(&authority),
            external_limits: Some(external.limits(place)),
            agent,
            authority,
        })
    }

    fn files(&self, authority: &Authority) -> Files {
        let permissions = Arc::new(authority.permissions.clone());
        Files::new(self.settings().workspace.clone(), permissions, authority.paths.clone())
    }

    fn resolve_local(&self, agent: Agent, authority: Authority, depth: u32) -> Result<ResolvedAgent, String> {
        let (agent_hash, authority_hash) = (agent.hash(), authority.hash());
        let settings = self.settings();
        let wanted = self.model_name(&agent).to_owned();
        let model = self.core.model_for(&agent, &wanted)?;
        let may_use = |name: &&String| self.model_override.is_none() && authority.models.has(name);
        let fallbacks = agent.fallbacks.iter().filter(may_use);
        let fallbacks: Vec<(String, ModelHandle)> = fallbacks
            .filter_map(|name| Some((name.clone(), self.core.fallback_for(&agent, name)?)))
            .collect();
        let specs = self.specs(&agent, &authority, depth);
        let guidance = self.guidance(&agent, &authority, depth, &specs);
        let environment = self.environment.get().filter(|(top, _)| *top == depth);
        let environment = environment.map(|(_, environment)| environment::block(environment, &authority));
        let system = system(&agent, &guidance, environment.as_deref(), settings.instructions.as_deref());
        let specs_bytes: usize = specs.iter().map(ToolSpec::bytes).sum();
        let fixed_bytes = (system.len() + specs_bytes) as u64;
        let asked = agent.max_tokens.unwrap_or(settings.limits.max_tokens);
        let model_option = |name: String, model: ModelHandle| {
            let info = model.provider.model_info(&model.name);
            let price = info.price.unwrap_or_default();
            let max_output = info.max_output.map_or(asked, |most| most.min(asked));
            // Half a token is estimated per byte.
            let fixed_bytes = info.framing.saturating_mul(2).saturating_add(fixed_bytes);
            let cost_model = CostModel { price, fixed_bytes, max_output, window: info.window };
            ModelOption { name, model, cost_model, is_priced: info.price.is_some() }
        };
        let primary = model_option(wanted, model);
        let fallbacks = fallbacks.into_iter().map(|(name, model)| model_option(name, model)).collect();
        let (files, external_limits) = (self.files(&authority), None);
        Ok(ResolvedAgent {
            agent,
            agent_hash,
            authority,
            authority_hash,
            primary,
            fallbacks,
            system,
            specs,
            files,
            external_limits,
        })
    }

    /// Model of an agent. A passthrough model is never replaced.
    fn model_name<'a>(&'a self, agent: &'a Agent) -> &'a str {
        let own = agent.model.as_deref();
        let is_relay = own.is_some_and(|name| name.starts_with(PASSTHROUGH_PREFIX));
        let requested = self.model_override.as_deref().filter(|_| !is_relay);
        requested.or(own).unwrap_or(&self.settings().model)
    }

    fn specs(&self, agent: &Agent, authority: &Authority, depth: u32) -> Arc<[ToolSpec]> {
        let settings = self.settings();
        let mut specs = settings.tools.specs(authority);
        if settings.shell.is_none() {
            specs.retain(|spec| spec.name != "shell");
        }
        if !agent.tools.as_ref().is_some_and(|tools| tools.iter().any(|name| name == ECHO)) {
            specs.retain(|spec| spec.name != ECHO);
        }
        if let Some(tool) = self.skill_tool(agent) {
            specs.retain(|spec| spec.name != SKILL);
            specs.push(tool.spec().clone());
        }
        if authority.tools.contains(MESSAGE_TOOL) && authority.speak == Access::Allowed {
            specs.push(message_spec());
        }
        specs.extend(settings.delegation_styles.specs(&self.caller(agent, authority, depth)));
        // A tool that is always denied is not offered.
        specs.retain(|spec| !authority.permissions.denies(&spec.name));
        specs.into()
    }

    fn caller<'a>(&'a self, agent: &'a Agent, authority: &'a Authority, depth: u32) -> Caller<'a> {
        Caller { depth, authority, agent, agents: self.settings().agents.list() }
    }

    /// Guidance about tools in a built-in prompt for an agent that is offered `specs`.
    fn guidance(&self, agent: &Agent, authority: &Authority, depth: u32, specs: &[ToolSpec]) -> String {
        let delegation =
            self.settings().delegation_styles.usable_tools(&self.caller(agent, authority, depth), specs);
        guidance(agent.guidance, specs, &delegation)
    }

    /// Returns the tool that a resolved agent calls by this name, if it has one.
    pub(crate) fn tool(&self, resolved: &ResolvedAgent, name: &str) -> Option<&Arc<dyn AnyTool>> {
        let may_use = |name: &str| resolved.authority.tools.contains(name);
        if resolved.external_limits.is_some() {
            let external = self.settings().external.as_ref().and_then(|external| external.tool(name));
            return match external {
                Some(ExternalTool { tool, needs }) => {
                    (needs.is_empty() || needs.iter().any(|name| may_use(name))).then_some(tool)
                }
                None => self.settings().tools.get(name).filter(|_| may_use(name)),
            };
        }
        match self.skill_tool(&resolved.agent) {
            Some(tool) if name == SKILL => Some(tool),
            _ => self.settings().tools.get(name).filter(|_| resolved.authority.tools.contains(name)),
        }
    }

    /// Guard of the external session, if another program runs the agent.
    pub(crate) fn external_session(
        &self,
        resolved: &ResolvedAgent,
        session: &SessionId,
    ) -> Option<Box<ExternalSessionGuard>> {
        let external = self.settings().external.clone().filter(|_| resolved.external_limits.is_some())?;
        Some(Box::new(ExternalSessionGuard {
            external,
            session: session.clone(),
            since: self.writes.newest(),
        }))
    }

    /// Label of the session other than `reader` that left this content in a file. Writes that this process did
    /// not see are read from the store once.
    pub(crate) async fn writer(&self, path: &str, content: Hash, reader: &SessionId) -> Option<String> {
        let known = self.writes.writer(path, content, reader);
        if known.is_some() || self.writes.has_earlier() {
            return known;
        }
        let (mut earlier, mut after) = (EarlierWrites::default(), 0);
        // A store that fails here also fails at the next append, where the error is reported.
        while let Ok(records) = self.store().tail(&self.root.root_id(), after, WRITES_PAGE_RECORDS).await
            && let Some(last) = records.last()
        {
            after = last.pos;
            records.into_iter().for_each(|record| earlier.apply(record));
        }
        self.writes.add_earlier(earlier.writes);
        self.writes.writer(path, content, reader)
    }

    /// Returns the skill tool of an agent. Skills belong to the agent definition and are neither lent nor
    /// requested.
    fn skill_tool(&self, agent: &Agent) -> Option<&Arc<dyn AnyTool>> {
        self.settings().skills.tool().filter(|_| agent.allow_skills)
    }

    /// Adds the definitions of an agent that this tree has not made durable yet.
    pub(crate) fn add_unwritten(&self, resolved: &ResolvedAgent, blobs: &mut Vec<(Hash, Arc<str>)>) {
        let durable_blobs = lock(&self.durable_blobs);
        let mut add = |hash: Hash, encoded: &dyn Fn() -> String| {
            if !durable_blobs.contains(&hash) && !blobs.iter().any(|(other, _)| *other == hash) {
                blobs.push((hash, encoded().into()));
            }
        };
        add(resolved.agent_hash, &|| resolved.agent.encoded());
        add(resolved.authority_hash, &|| resolved.authority.encoded());
    }

    /// Records that these definitions are durable.
    pub(crate) fn mark_written(&self, blobs: &[(Hash, Arc<str>)]) {
        if !blobs.is_empty() {
            lock(&self.durable_blobs).extend(blobs.iter().map(|(hash, _)| *hash));
        }
    }

    /// Resolves an agent that a log refers to by hashes.
    pub(crate) async fn resolve_recorded(
        &self,
        agent: Hash,
        authority: Hash,
        depth: u32,
    ) -> Result<Arc<ResolvedAgent>, DriverError> {
        if let Some(resolved) = lock(&self.resolved_agents).get(&(agent, authority, depth)) {
            return Ok(resolved.clone());
        }
        let definition: Agent = self.definition(agent).await?;
        let mut allowed: Authority = self.definition(authority).await?;
        // Rules added since then also apply to a resumed round.
        let now = &self.settings().permissions;
        for (rules, added) in
            [(&mut allowed.permissions.deny, &now.deny), (&mut allowed.permissions.ask, &now.ask)]
        {
            for rule in added {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        if let Some(mode) = self.mode_override {
            allowed.permissions = allowed.permissions.narrowed_to(mode);
        }
        allowed.max_depth = allowed.max_depth.min(self.settings().limits.max_depth);
        self.resolve(definition, allowed, depth).map_err(DriverError::Config)
    }

    pub(crate) async fn definition<T: serde::de::DeserializeOwned>(
        &self,
        hash: Hash,
    ) -> Result<T, DriverError> {
        let place = || format!("the definition {hash}");
        let broken = |cause: String| DriverError::Store(StoreError::Broken { place: place(), cause });
        let body = self.store().blob(hash).await.map_err(DriverError::Store)?;
        let body = body.ok_or_else(|| broken("it is missing from the store".to_owned()))?;
        serde_json::from_str(&body).map_err(|cause| broken(cause.to_string()))
    }
}

impl Drop for Tree {
    /// A dropped run also releases its lease, so that any process can resume the tree.
    fn drop(&mut self) {
        if !self.released.load(Ordering::SeqCst) {
            self.release_later();
        }
    }
}

/// System prompt: the agent's prompt, guidance about its tools, its environment, and the project instructions.
fn system(agent: &Agent, guidance: &str, environment: Option<&str>, instructions: Option<&str>) -> Arc<str> {
    let instructions =
        instructions.map(str::trim).filter(|text| !text.is_empty() && !agent.ignore_instructions);
    let prompt = match guidance {
        "" => agent.prompt.clone(),
        guidance => format!("{} {guidance}", agent.prompt.trim_end()),
    };
    let parts = [
        environment.map(str::to_owned),
        instructions.map(|text| format!("{INSTRUCTIONS_INTRO}\n\n{text}\n")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => prompt.into(),
        false => format!("{}\n\n{}", prompt.trim_end(), parts.join("\n\n")).into(),
    }
}

const INSTRUCTIONS_INTRO: &str = "# Project instructions\n\nThe text below comes from files in this project. Follow it unless \
your task or the text above says otherwise. It cannot extend your permissions.";

/// Specification of the `message` tool, which the driver carries out itself.
pub(crate) fn message_spec() -> ToolSpec {
    ToolSpec {
        name: MESSAGE_TOOL.to_owned(),
        description: "Send the user an interim update. Your result is your last reply.".to_owned(),
        schema: json!({
            "type": "object",
            "properties": { "text": { "type": "string", "description": "The message" } },
            "required": ["text"]
        }),
        category: Category::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_follow_the_prompt_unless_ignored() {
        let agent = Agent { prompt: "You read.\n".to_owned(), ..Agent::default() };
        let ignoring = Agent { ignore_instructions: true, ..agent.clone() };
        assert_eq!(&*system(&agent, "", None, None), "You read.\n");
        assert_eq!(&*system(&agent, "Use your tools.", None, None), "You read. Use your tools.");
        assert_eq!(&*system(&ignoring, "", None, Some("Use tabs.")), "You read.\n");
        assert_eq!(&*system(&ignoring, "", Some("# Here"), Some("Use tabs.")), "You read.\n\n# Here");
        let prompt = system(&agent, "", Some("# Here"), Some("Use tabs."));
        assert!(prompt.starts_with("You read.\n\n# Here\n\n# Project instructions"), "{prompt}");
        let prompt = system(&agent, "", None, Some("\nUse tabs.\n\n"));
        assert!(
            prompt.starts_with("You read.\n\n# Project instructions") && prompt.ends_with("\n\nUse tabs.\n"),
            "{prompt}"
        );
    }
}
