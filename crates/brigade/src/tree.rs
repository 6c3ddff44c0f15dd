//! What all sessions of one running tree share.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use brigade_core::delegation::{Delegation, Environment};
use brigade_core::faces::{Caller, MESSAGE, RELAY, delegate, guidance};
use brigade_core::grant::{Access, Authority};
use brigade_core::message::Category;
use brigade_core::permission::Mode;
use brigade_core::state::Meter;
use brigade_core::{
    Agent, Budget, Event, Face, Hash, Limit, Place, Price, Record, SessionId, State, ToolSpec,
};
use futures::channel::mpsc;
use serde_json::json;

use crate::clock;
use crate::environment;
use crate::external::{External, ExternalTool, Seat, Terms};
use crate::live::Watchers;
use crate::maps::{Map, Set};
use crate::model::{ChosenModel, Models, Own};
use crate::runtime::{Known, Memory, More};
use crate::session::{Fatal, Inbox};
use crate::settings::Settings;
use crate::skills::SKILL;
use crate::slots::Slots;
use crate::store::{Holder, Lease, Pos, Store, StoreError};
use crate::task::AbortOnDrop;
use crate::tool::{AnyTool, Files};
use crate::writes::{Earlier, Writes};

/// How often a lease that the store does not take back is offered again, and the pause before that.
const MOST_RELEASES: u32 = 7200;
const RELEASE_PAUSE: Duration = Duration::from_millis(500);

/// How many facts are read at once in search of writes.
const WRITES_PAGE: usize = 1000;

/// The name that the agent at the top goes by unless it is another.
const LEAD: &str = "lead";

/// The tools that an external agent can ask for.
const EXTERNAL_TOOLS: [&str; 3] = ["read_file", "write_file", "shell"];

/// What a runtime and all its trees share.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Models,
    pub(crate) settings: Settings,
    /// Sessions that were run here before.
    pub(crate) memory: Arc<Memory>,
}

/// What all sessions of one running tree share.
pub(crate) struct Tree {
    pub(crate) core: Arc<Core>,
    pub(crate) root: SessionId,
    /// The sessions of other processes that this tree works for.
    pub(crate) above: Vec<String>,
    pub(crate) lease: Lease,
    pub(crate) slots: Slots,
    pub(crate) watchers: Watchers,
    /// Position up to which the log of the root was read when the tree was taken up.
    pub(crate) known_until: Pos,
    /// Position after which the facts of this round are.
    pub(crate) round_after: Pos,
    /// When the tree was taken up again, and how long it had lain: (position, milliseconds).
    pub(crate) resumes: Vec<(Pos, u64)>,
    /// A model that takes the place of the recorded ones.
    pub(crate) model_override: Option<String>,
    /// A mode that narrows what was recorded.
    pub(crate) mode_override: Option<Mode>,
    /// The last position of the tree that was imported: nothing up to there permits anything.
    pub(crate) imported: Option<Pos>,
    /// The id and the name of the agent at the top.
    lead: OnceLock<[String; 2]>,
    /// Environment that the agent at the top is told of, and the depth of that agent.
    environment: OnceLock<(u32, Box<Environment>)>,
    released: AtomicBool,
    inboxes: Mutex<Map<SessionId, mpsc::UnboundedSender<Inbox>>>,
    kits: Mutex<Map<(Hash, Hash, u32), Arc<Kit>>>,
    written: Mutex<Set<Hash>>,
    /// The rank of the last face-D delegation.
    last_number: AtomicU32,
    holder: Holder,
    /// The leases of sessions that were left to themselves.
    handed_over: RwLock<Vec<Lease>>,
    /// What runs them.
    adopted: Mutex<Vec<(SessionId, AbortOnDrop<()>)>>,
    /// The files that sessions of the tree have written.
    pub(crate) writes: Writes,
}

/// What follows from an agent, its authority and its depth: equal for equal siblings, and shared by them.
pub(crate) struct Kit {
    pub(crate) agent: Agent,
    pub(crate) agent_hash: Hash,
    pub(crate) authority: Authority,
    pub(crate) authority_hash: Hash,
    first: Link,
    /// Who takes over, one after the other.
    rest: Vec<Link>,
    pub(crate) system: Arc<str>,
    pub(crate) specs: Arc<[ToolSpec]>,
    pub(crate) files: Files,
    /// What the agent is lent, where another program runs it.
    pub(crate) terms: Option<Terms>,
}

/// A model of an agent's chain, and what calls of it cost.
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) model: ChosenModel,
    pub(crate) meter: Meter,
    /// Whether anybody knows what it costs.
    pub(crate) is_priced: bool,
}

impl Core {
    /// The model of this name as the agent reaches it: by its own address and key, where it has such.
    pub(crate) fn model_for(&self, agent: &Agent, name: &str) -> Result<ChosenModel, String> {
        let key = match &agent.key_of {
            None => None,
            Some(id) => {
                let definition = self.settings.agents.definition(id).map_err(|error| error.to_string())?;
                let gone = || format!("the file of the agent '{id}' has no api_key any more; put it back");
                Some(definition.api_key.ok_or_else(gone)?)
            }
        };
        let own = Own { base_url: agent.api_base.clone(), key };
        self.models.choose_for(name, &own).map_err(|error| error.to_string())
    }

    /// Whether the model of an agent, or the program that runs it, is one that there is.
    pub(crate) fn check_model(&self, agent: &Agent) -> Result<(), String> {
        match &agent.place {
            Place::Acp(place) => self.external()?.model(place).map(|_| ()),
            Place::Here | Place::Remote => {
                self.model_for(agent, agent.model.as_deref().unwrap_or_default()).map(|_| ())
            }
        }
    }

    /// The agents that other programs run.
    fn external(&self) -> Result<&Arc<dyn External>, String> {
        let none = || "no external agents are configured ([acp.servers.NAME])".to_owned();
        self.settings.external.as_ref().ok_or_else(none)
    }

    /// A model that may take over. An address and a key that the agent has of its own stay with its own provider.
    fn fallback_for(&self, agent: &Agent, name: &str) -> Option<ChosenModel> {
        let provider = |name: &str| name.split_once('/').map(|(provider, _)| provider.to_owned());
        let is_own = provider(name) == agent.model.as_deref().and_then(provider);
        // One that cannot be used here takes over for nobody.
        if is_own { self.model_for(agent, name).ok() } else { self.models.choose(name).ok() }
    }
}

impl Kit {
    /// Refuses a budget in dollars for a model whose price nobody knows: it could not be kept.
    pub(crate) fn can_keep(&self, budget: &Budget) -> Result<(), String> {
        let mut links = std::iter::once(&self.first).chain(&self.rest);
        match links.find(|link| !link.is_priced) {
            Some(Link { name, .. }) if budget.usd != Limit::Unlimited => Err(format!(
                "the price of the model '{name}' is not known, so a budget in dollars cannot be kept; write `input` \
                 and `output`, in dollars for a million tokens, beneath [prices.\"{name}\"] in your configuration, \
                 or leave out --budget-usd and budget.usd and set a budget in tokens"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// The model that is asked after so many were given up.
    pub(crate) fn link(&self, given_up: usize) -> &Link {
        match given_up {
            0 => &self.first,
            number => self.rest.get(number - 1).or(self.rest.last()).unwrap_or(&self.first),
        }
    }

    /// Who takes over after so many were given up.
    pub(crate) fn next_link(&self, given_up: usize) -> Option<&Link> {
        self.rest.get(given_up)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tree {
    pub(crate) fn new(
        core: Arc<Core>,
        holder: Holder,
        lease: Lease,
        above: Vec<String>,
        more: &More,
    ) -> Tree {
        let swarm = &core.settings.faces.swarm;
        let slots = Slots::new(core.settings.limits.concurrency, [(Face::Delegate, swarm.concurrency())]);
        Tree {
            root: lease.root.clone(),
            above,
            lease,
            slots,
            watchers: Watchers::default(),
            known_until: 0,
            round_after: 0,
            resumes: Vec::new(),
            model_override: more.model.clone(),
            mode_override: more.mode,
            imported: None,
            lead: OnceLock::new(),
            environment: OnceLock::new(),
            released: AtomicBool::new(false),
            inboxes: Mutex::default(),
            kits: Mutex::default(),
            written: Mutex::default(),
            last_number: AtomicU32::new(0),
            holder,
            handed_over: RwLock::default(),
            adopted: Mutex::default(),
            writes: Writes::default(),
            core,
        }
    }

    /// Gives the lease back.
    pub(crate) async fn release(&self) -> Result<(), StoreError> {
        self.released.store(true, Ordering::SeqCst);
        let released = self.store().release(&self.lease).await;
        if released.is_err() {
            self.release_later();
        }
        released
    }

    /// Gives the lease back as soon as the store takes it, such as when a full disk has room again: nobody could go on
    /// with the tree before that, as long as this process lives.
    fn release_later(&self) {
        let Ok(handle) = tokio::runtime::Handle::try_current() else { return };
        let (mut store, lease) = (self.core.store.clone(), self.lease.clone());
        handle.spawn(async move {
            for _ in 0..MOST_RELEASES {
                if store.release(&lease).await.is_ok() {
                    return;
                }
                // It is not kept open for this.
                let there = Arc::downgrade(&store);
                drop(store);
                tokio::time::sleep(RELEASE_PAUSE).await;
                match there.upgrade() {
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

    pub(crate) fn enter(&self, session: &SessionId, inbox: mpsc::UnboundedSender<Inbox>) {
        lock(&self.inboxes).insert(session.clone(), inbox);
    }

    pub(crate) fn leave(&self, session: &SessionId) {
        lock(&self.inboxes).remove(session);
    }

    /// Tells sessions to look at their logs.
    pub(crate) fn nudge<'a>(&self, sessions: impl IntoIterator<Item = &'a SessionId>) {
        let inboxes = lock(&self.inboxes);
        for session in sessions {
            if let Some(inbox) = inboxes.get(session) {
                // A session that has just ended does not look any more; the words wait for its next round.
                let _ = inbox.unbounded_send(Inbox::Look);
            }
        }
    }

    /// The lease under which a session is written.
    pub(crate) fn lease_for(&self, session: &SessionId) -> Lease {
        let handed_over = self.handed_over.read().unwrap_or_else(PoisonError::into_inner);
        let own = handed_over.iter().rev().find(|lease| lease.root.contains(session));
        own.unwrap_or(&self.lease).clone()
    }

    /// Takes a lease for a session that is to be left to itself.
    pub(crate) async fn hand_over(&self, session: &SessionId) -> Result<(), StoreError> {
        let lease = self.store().lease(session, &self.holder, clock::now()).await?;
        self.handed_over.write().unwrap_or_else(PoisonError::into_inner).push(lease);
        Ok(())
    }

    /// Keeps the task of a session that was left to itself.
    pub(crate) fn adopt(&self, session: SessionId, task: AbortOnDrop<()>) {
        lock(&self.adopted).push((session, task));
    }

    /// The tasks of sessions that were left to themselves.
    pub(crate) fn take_adopted(&self) -> Vec<(SessionId, AbortOnDrop<()>)> {
        std::mem::take(&mut lock(&self.adopted))
    }

    /// Says that the holder of all leases is alive.
    pub(crate) async fn renew(&self) {
        let handed_over = self.handed_over.read().unwrap_or_else(PoisonError::into_inner).clone();
        let own = (!self.released.load(Ordering::SeqCst)).then(|| self.lease.clone());
        for lease in own.into_iter().chain(handed_over) {
            // A failure shows at the next append.
            let _ = self.store().renew(&lease, clock::now()).await;
        }
    }

    /// Gives the lease of a session back that was left to itself and has ended.
    pub(crate) async fn release_handed_over(&self, session: &SessionId) -> Result<(), StoreError> {
        let lease = self.lease_for(session);
        if lease.root == *session { self.store().release(&lease).await } else { Ok(()) }
    }

    /// The rank of the next face-D delegation.
    pub(crate) fn next_number(&self) -> u32 {
        self.last_number.fetch_add(1, Ordering::SeqCst).saturating_add(1)
    }

    /// Takes over what is known of the log that it goes on with, and counts on where an earlier runner stopped.
    pub(crate) async fn take_up(&mut self, known: &Known) -> Result<(), StoreError> {
        self.known_until = known.last;
        self.imported = known.imported;
        self.round_after = if known.state.is_running() { 0 } else { known.last };
        self.resumes.clone_from(&known.resumes);
        if !self.settings().faces.has(Face::Spawn) {
            return Ok(());
        }
        let (number, after) = known.number;
        let records = self.store().tail(&self.root, after, usize::MAX).await?;
        let numbers = records.iter().filter_map(|record| match &record.event {
            Event::Delegated { delegation, .. } => delegation.number,
            _ => None,
        });
        *self.last_number.get_mut() = numbers.fold(number, u32::max);
        Ok(())
    }

    /// Remembers the log of the root for its next round, as it was when the fact at `last` was written. `started` is a
    /// position in its last round.
    pub(crate) fn remember(&self, state: State, started: Pos, last: Pos) {
        let number = (self.last_number.load(Ordering::SeqCst), last);
        let (resumes, imported) = (self.resumes.clone(), self.imported);
        let known = Known { state, last, started, resumes, epoch: None, mode: None, imported, number };
        self.core.memory.put(known);
    }

    /// Notes who leads the tree.
    pub(crate) fn set_lead(&self, agent: &Agent) {
        // It is set once, before anything runs.
        let _ = self.lead.set([agent.id.clone(), agent.name.clone()]);
    }

    /// Notes the environment that the round at the top records. Kits that were made before do not know of it, and are made
    /// anew.
    pub(crate) fn set_environment(&self, delegation: &Delegation, depth: u32) {
        if let Some(environment) = &delegation.environment {
            let _ = self.environment.set((depth, environment.clone()));
            lock(&self.kits).clear();
        }
    }

    /// Whether a role would be taken for the agent at the top.
    pub(crate) fn is_name_of_lead(&self, role: &str) -> bool {
        let names = self.lead.get().into_iter().flatten().map(String::as_str);
        names.chain([LEAD]).any(|name| delegate::looks_like(name, role))
    }

    /// Folds a log. What an imported part of it permitted for good is forgotten.
    pub(crate) fn fold(&self, session: &SessionId, records: &[Record]) -> State {
        let is_imported = |record: &&Record| self.imported.is_some_and(|mark| record.pos <= mark);
        let foreign = records.iter().take_while(is_imported).count();
        let (foreign, own) = records.split_at(foreign);
        let mut state = State::fold(session.clone(), foreign.iter().map(|record| &record.event));
        state.forget_permissions();
        own.iter().for_each(|record| state.apply(&record.event));
        state
    }

    /// The milliseconds that nobody ran the tree since the fact at `pos` was written.
    pub(crate) fn downtime_since(&self, pos: Pos) -> u64 {
        self.resumes
            .iter()
            .filter(|(at, _)| *at > pos)
            .fold(0, |sum: u64, (_, downtime)| sum.saturating_add(*downtime))
    }

    /// The kit for an agent with this authority at this depth.
    pub(crate) fn kit(&self, agent: Agent, authority: Authority, depth: u32) -> Result<Arc<Kit>, String> {
        let (agent_hash, authority_hash) = (agent.hash(), authority.hash());
        let key = (agent_hash, authority_hash, depth);
        if let Some(kit) = lock(&self.kits).get(&key) {
            return Ok(kit.clone());
        }
        let kit = Arc::new(match agent.place.clone() {
            Place::Acp(place) => self.external_kit(agent, authority, &place)?,
            Place::Here | Place::Remote => self.own_kit(agent, authority, depth)?,
        });
        lock(&self.kits).insert(key, kit.clone());
        Ok(kit)
    }

    /// The kit of an agent that another program runs: it costs us nothing, and brings a prompt and tools of its own.
    fn external_kit(&self, agent: Agent, authority: Authority, place: &str) -> Result<Kit, String> {
        let external = self.core.external()?;
        let model = ChosenModel { provider: external.model(place)?, name: place.to_owned() };
        let meter = Meter { price: Price::default(), fixed_bytes: 0, max_output: 0, window: None };
        let first = Link { name: place.to_owned(), model, meter, is_priced: true };
        let may_ask = |spec: &ToolSpec| EXTERNAL_TOOLS.contains(&spec.name.as_str());
        let mut specs = self.settings().tools.specs(&authority);
        let is_denied = |spec: &ToolSpec| authority.permissions.denies(&spec.name);
        specs.retain(|spec| may_ask(spec) && !is_denied(spec));
        specs.retain(|spec| spec.name != "shell" || self.settings().shell.is_some());
        Ok(Kit {
            agent_hash: agent.hash(),
            authority_hash: authority.hash(),
            first,
            rest: Vec::new(),
            system: agent.prompt.as_str().into(),
            specs: specs.into(),
            files: self.files(&authority),
            terms: Some(external.terms(place)),
            agent,
            authority,
        })
    }

    fn files(&self, authority: &Authority) -> Files {
        let permissions = Arc::new(authority.permissions.clone());
        Files::new(self.settings().workspace.clone(), permissions, authority.paths.clone())
    }

    fn own_kit(&self, agent: Agent, authority: Authority, depth: u32) -> Result<Kit, String> {
        let (agent_hash, authority_hash) = (agent.hash(), authority.hash());
        let settings = self.settings();
        let wanted = self.wanted_model(&agent).to_owned();
        let model = self.core.model_for(&agent, &wanted)?;
        let may_use = |name: &&String| self.model_override.is_none() && authority.models.has(name);
        let others = agent.fallbacks.iter().filter(may_use);
        let others: Vec<(String, ChosenModel)> =
            others.filter_map(|name| Some((name.clone(), self.core.fallback_for(&agent, name)?))).collect();
        let specs = self.specs(&agent, &authority, depth);
        let guidance = self.guidance(&agent, &authority, depth, &specs);
        let environment = self.environment.get().filter(|(top, _)| *top == depth);
        let environment = environment.map(|(_, environment)| environment::block(environment, &authority));
        let system = system(&agent, &guidance, environment.as_deref(), settings.instructions.as_deref());
        let specs_bytes: usize = specs.iter().map(ToolSpec::bytes).sum();
        let fixed_bytes = (system.len() + specs_bytes) as u64;
        let asked = agent.max_tokens.unwrap_or(settings.limits.max_tokens);
        let link = |name: String, model: ChosenModel| {
            let about = model.provider.about(&model.name);
            let price = about.price.unwrap_or_default();
            let max_output = about.max_output.map_or(asked, |most| most.min(asked));
            // Half a token is reckoned for each byte.
            let fixed_bytes = about.framing.saturating_mul(2).saturating_add(fixed_bytes);
            let meter = Meter { price, fixed_bytes, max_output, window: about.window };
            Link { name, model, meter, is_priced: about.price.is_some() }
        };
        let first = link(wanted, model);
        let rest = others.into_iter().map(|(name, model)| link(name, model)).collect();
        let (files, terms) = (self.files(&authority), None);
        Ok(Kit { agent, agent_hash, authority, authority_hash, first, rest, system, specs, files, terms })
    }

    /// The model of an agent. One that only passes a call on is never replaced.
    fn wanted_model<'a>(&'a self, agent: &'a Agent) -> &'a str {
        let own = agent.model.as_deref();
        let is_relay = own.is_some_and(|name| name.starts_with(RELAY));
        let instead = self.model_override.as_deref().filter(|_| !is_relay);
        instead.or(own).unwrap_or(&self.settings().model)
    }

    fn specs(&self, agent: &Agent, authority: &Authority, depth: u32) -> Arc<[ToolSpec]> {
        let settings = self.settings();
        let mut specs = settings.tools.specs(authority);
        if settings.shell.is_none() {
            specs.retain(|spec| spec.name != "shell");
        }
        if let Some(tool) = self.skill_tool(agent) {
            specs.retain(|spec| spec.name != SKILL);
            specs.push(tool.spec().clone());
        }
        if authority.tools.contains(MESSAGE) && authority.speak == Access::Allowed {
            specs.push(message_spec());
        }
        specs.extend(settings.faces.specs(&self.caller(agent, authority, depth)));
        // A tool that never may be called is not offered.
        specs.retain(|spec| !authority.permissions.denies(&spec.name));
        specs.into()
    }

    fn caller<'a>(&'a self, agent: &'a Agent, authority: &'a Authority, depth: u32) -> Caller<'a> {
        Caller { depth, authority, agent, agents: self.settings().agents.list() }
    }

    /// The sentences about tools that a built-in prompt has for an agent that is offered `specs`.
    fn guidance(&self, agent: &Agent, authority: &Authority, depth: u32, specs: &[ToolSpec]) -> String {
        let delegation = self.settings().faces.usable(&self.caller(agent, authority, depth), specs);
        guidance(agent.guidance, specs, &delegation)
    }

    /// The tool that an agent of this kit calls by this name, if it has one.
    pub(crate) fn tool(&self, kit: &Kit, name: &str) -> Option<&Arc<dyn AnyTool>> {
        let may_use = |name: &str| kit.authority.tools.contains(name);
        if kit.terms.is_some() {
            let external = self.settings().external.as_ref().and_then(|external| external.tool(name));
            return match external {
                Some(ExternalTool { tool, needs }) => {
                    (needs.is_empty() || needs.iter().any(|name| may_use(name))).then_some(tool)
                }
                None => self.settings().tools.get(name).filter(|_| may_use(name)),
            };
        }
        match self.skill_tool(&kit.agent) {
            Some(tool) if name == SKILL => Some(tool),
            _ => self.settings().tools.get(name).filter(|_| kit.authority.tools.contains(name)),
        }
    }

    /// What ends with the session, where another program runs it.
    pub(crate) fn seat(&self, kit: &Kit, session: &SessionId) -> Option<Box<Seat>> {
        let external = self.settings().external.clone().filter(|_| kit.terms.is_some())?;
        Some(Box::new(Seat { external, session: session.clone(), since: self.writes.newest() }))
    }

    /// The label of the session other than `reader` that left this content in a file. What this process did not see
    /// itself is looked for in the store, once.
    pub(crate) async fn writer(&self, path: &str, content: Hash, reader: &SessionId) -> Option<String> {
        let known = self.writes.writer(path, content, reader);
        if known.is_some() || self.writes.has_earlier() {
            return known;
        }
        let (mut earlier, mut after) = (Earlier::default(), 0);
        // A store that fails here fails the next append too, and says so there.
        while let Ok(records) = self.store().tail(&self.root.root_id(), after, WRITES_PAGE).await
            && let Some(last) = records.last()
        {
            after = last.pos;
            records.into_iter().for_each(|record| earlier.apply(record));
        }
        self.writes.add_earlier(earlier.writes);
        self.writes.writer(path, content, reader)
    }

    /// Skills belong to the definition of an agent: they are neither lent nor asked for.
    fn skill_tool(&self, agent: &Agent) -> Option<&Arc<dyn AnyTool>> {
        self.settings().skills.tool().filter(|_| agent.allow_skills)
    }

    /// Adds the definitions of a kit that no append of this tree has made durable yet.
    pub(crate) fn add_unwritten(&self, kit: &Kit, blobs: &mut Vec<(Hash, Arc<str>)>) {
        let written = lock(&self.written);
        let mut add = |hash: Hash, encoded: &dyn Fn() -> String| {
            if !written.contains(&hash) && !blobs.iter().any(|(other, _)| *other == hash) {
                blobs.push((hash, encoded().into()));
            }
        };
        add(kit.agent_hash, &|| kit.agent.encoded());
        add(kit.authority_hash, &|| kit.authority.encoded());
    }

    /// Remembers that these definitions are durable.
    pub(crate) fn mark_written(&self, blobs: &[(Hash, Arc<str>)]) {
        if !blobs.is_empty() {
            lock(&self.written).extend(blobs.iter().map(|(hash, _)| *hash));
        }
    }

    /// The kit that a log names by hashes.
    pub(crate) async fn recorded_kit(
        &self,
        agent: Hash,
        authority: Hash,
        depth: u32,
    ) -> Result<Arc<Kit>, Fatal> {
        if let Some(kit) = lock(&self.kits).get(&(agent, authority, depth)) {
            return Ok(kit.clone());
        }
        let definition: Agent = self.definition(agent).await?;
        let mut allowed: Authority = self.definition(authority).await?;
        // Rules that were added since bind what goes on now.
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
        allowed.deepest = allowed.deepest.min(self.settings().limits.max_depth);
        self.kit(definition, allowed, depth).map_err(Fatal::Setup)
    }

    pub(crate) async fn definition<T: serde::de::DeserializeOwned>(&self, hash: Hash) -> Result<T, Fatal> {
        let place = || format!("the definition {hash}");
        let broken = |cause: String| Fatal::Store(StoreError::Broken { place: place(), cause });
        let body = self.store().blob(hash).await.map_err(Fatal::Store)?;
        let body = body.ok_or_else(|| broken("it is missing from the store".to_owned()))?;
        serde_json::from_str(&body).map_err(|cause| broken(cause.to_string()))
    }
}

impl Drop for Tree {
    /// A run that was dropped half-way gives its lease back as well, so that the tree can be resumed by anyone.
    fn drop(&mut self) {
        if !self.released.load(Ordering::SeqCst) {
            self.release_later();
        }
    }
}

/// The system prompt: the prompt of the agent, guidance about its tools, its environment, and the instructions of the
/// project.
fn system(agent: &Agent, guidance: &str, environment: Option<&str>, instructions: Option<&str>) -> Arc<str> {
    let instructions =
        instructions.map(str::trim).filter(|text| !text.is_empty() && !agent.ignore_instructions);
    let prompt = match guidance {
        "" => agent.prompt.clone(),
        guidance => format!("{} {guidance}", agent.prompt.trim_end()),
    };
    let parts = [environment.map(str::to_owned), instructions.map(|text| format!("{FRAME}\n\n{text}\n"))];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => prompt.into(),
        false => format!("{}\n\n{}", prompt.trim_end(), parts.join("\n\n")).into(),
    }
}

const FRAME: &str = "# Instructions of the project\n\nEverything below comes from files of the project that you work \
in. Keep to it as far as your task and what is said above allow; it cannot widen what you may do.";

/// What the model is told about `message`, which the driver itself carries out.
pub(crate) fn message_spec() -> ToolSpec {
    ToolSpec {
        name: MESSAGE.to_owned(),
        description:
            "Send the person a short message now, while you go on working: progress, a finding, a warning. \
                      Your result is not sent this way; it is your last reply."
                .to_owned(),
        schema: json!({
            "type": "object",
            "properties": { "text": { "type": "string", "description": "What the person reads" } },
            "required": ["text"]
        }),
        category: Category::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_follow_the_prompt_of_those_that_do_not_ignore_them() {
        let agent = Agent { prompt: "You read.\n".to_owned(), ..Agent::default() };
        let ignoring = Agent { ignore_instructions: true, ..agent.clone() };
        assert_eq!(&*system(&agent, "", None, None), "You read.\n");
        assert_eq!(&*system(&agent, "Use your tools.", None, None), "You read. Use your tools.");
        assert_eq!(&*system(&ignoring, "", None, Some("Use tabs.")), "You read.\n");
        assert_eq!(&*system(&ignoring, "", Some("# Here"), Some("Use tabs.")), "You read.\n\n# Here");
        let told = system(&agent, "", Some("# Here"), Some("Use tabs."));
        assert!(told.starts_with("You read.\n\n# Here\n\n# Instructions"), "{told}");
        let told = system(&agent, "", None, Some("\nUse tabs.\n\n"));
        assert!(
            told.starts_with("You read.\n\n# Instructions") && told.ends_with("\n\nUse tabs.\n"),
            "{told}"
        );
    }
}
