//! Resolution of agents: models, tools, system prompt and limits of an agent with its authority at its depth.

use std::sync::{Arc, Mutex, OnceLock};

use brigade_core::delegation::{Delegation, Environment};
use brigade_core::delegation_styles::{Caller, MESSAGE_TOOL, PASSTHROUGH_PREFIX, guidance, looks_like};
use brigade_core::grant::{Access, Authority};
use brigade_core::permission::{Mode, Permissions};
use brigade_core::state::CostModel;
use brigade_core::{Agent, Backend, Hash, Price, ToolSpec};

use super::core::Core;
use super::lock;
use super::system_prompt::{message_spec, system};
use crate::environment;
use crate::external::ExternalTool;
use crate::fast_map::{FastMap, FastSet};
use crate::model::ModelHandle;
use crate::resolved_agent::{AgentKind, ExternalAgent, LocalAgent, ModelOption, ResolveError, ResolvedAgent};
use crate::sandbox::TreeSandbox;
use crate::session::DriverError;
use crate::settings::Settings;
use crate::skills::SKILL;
use crate::store::{BrokenKind, StoreError};
use crate::tool::{AnyTool, ECHO, FileGuard, Files};

/// Name of the root agent unless its definition has another.
const LEAD_NAME: &str = "lead";

/// Tools that an external agent can use.
const EXTERNAL_TOOLS: [&str; 3] = ["read_file", "write_file", "shell"];

/// Values of the user that replace recorded ones.
#[derive(Default)]
pub(crate) struct Overrides {
    /// Model that replaces the recorded ones.
    pub(crate) model: Option<String>,
    /// Mode that narrows the recorded one.
    pub(crate) mode: Option<Mode>,
}

/// Resolves the agents of a tree, each definition once.
pub(crate) struct AgentResolution {
    core: Arc<Core>,
    overrides: Overrides,
    /// State that the sandboxes of the tree share.
    sandbox: Arc<TreeSandbox>,
    /// Id and name of the root agent.
    lead: OnceLock<[String; 2]>,
    /// Environment information for the root agent, and its depth.
    environment: OnceLock<(u32, Box<Environment>)>,
    resolved_agents: Mutex<FastMap<(Hash, Hash, u32), Arc<ResolvedAgent>>>,
    durable_blobs: Mutex<FastSet<Hash>>,
}

impl AgentResolution {
    pub(super) fn new(core: Arc<Core>, overrides: Overrides, sandbox: Arc<TreeSandbox>) -> AgentResolution {
        AgentResolution {
            core,
            overrides,
            sandbox,
            lead: OnceLock::new(),
            environment: OnceLock::new(),
            resolved_agents: Mutex::default(),
            durable_blobs: Mutex::default(),
        }
    }

    fn settings(&self) -> &Settings {
        &self.core.settings
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
        names.chain([LEAD_NAME]).any(|name| looks_like(name, role))
    }

    /// Resolves an agent with this authority at this depth.
    pub(crate) fn resolve(
        &self,
        agent: Agent,
        authority: Authority,
        depth: u32,
    ) -> Result<Arc<ResolvedAgent>, ResolveError> {
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
    ) -> Result<ResolvedAgent, ResolveError> {
        let external = self.core.external()?;
        let model = ModelHandle { provider: external.model(place)?, name: place.to_owned() };
        let cost_model = CostModel { price: Price::default(), fixed_bytes: 0, max_output: 0, window: None };
        let model = ModelOption { name: place.to_owned(), model, cost_model, is_priced: true };
        let (limits, agents) = (external.limits(place), external.clone());
        let may_ask = |spec: &ToolSpec| EXTERNAL_TOOLS.contains(&spec.name.as_str());
        let mut specs = self.settings().tools.specs(&authority);
        let is_denied = |spec: &ToolSpec| authority.permissions.denies(&spec.name);
        specs.retain(|spec| may_ask(spec) && !is_denied(spec));
        specs.retain(|spec| spec.name != "shell" || self.settings().shell.is_some());
        Ok(ResolvedAgent {
            agent_hash: agent.hash(),
            authority_hash: authority.hash(),
            system: agent.prompt.as_str().into(),
            specs: specs.into(),
            files: self.files(&authority),
            kind: AgentKind::External(ExternalAgent { model, limits, agents }),
            agent,
            authority,
        })
    }

    fn files(&self, authority: &Authority) -> Files {
        let permissions = Arc::new(authority.permissions.clone());
        let workspace = self.settings().workspace.clone();
        let guard = FileGuard::new(&workspace, &self.settings().sandbox);
        let files = Files::new(workspace, permissions, authority.paths.clone()).guarded(Arc::new(guard));
        match self.settings().sandbox.confines(authority) {
            true => files.with_temporary(self.sandbox.temporary()),
            false => files,
        }
    }

    fn resolve_local(
        &self,
        agent: Agent,
        authority: Authority,
        depth: u32,
    ) -> Result<ResolvedAgent, ResolveError> {
        let (agent_hash, authority_hash) = (agent.hash(), authority.hash());
        let settings = self.settings();
        let wanted = self.model_name(&agent).to_owned();
        let model = self.core.model_for(&agent, &wanted)?;
        let may_use = |name: &&String| self.overrides.model.is_none() && authority.models.has(name);
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
        let files = self.files(&authority);
        Ok(ResolvedAgent {
            agent,
            agent_hash,
            authority,
            authority_hash,
            system,
            specs,
            files,
            kind: AgentKind::Local(LocalAgent { primary, fallbacks }),
        })
    }

    /// Model of an agent. A passthrough model is never replaced.
    fn model_name<'a>(&'a self, agent: &'a Agent) -> &'a str {
        let own = agent.model.as_deref();
        let is_relay = own.is_some_and(|name| name.starts_with(PASSTHROUGH_PREFIX));
        let requested = self.overrides.model.as_deref().filter(|_| !is_relay);
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
    pub(crate) fn tool<'a>(
        &'a self,
        resolved: &'a ResolvedAgent,
        name: &str,
    ) -> Option<&'a Arc<dyn AnyTool>> {
        let may_use = |name: &str| resolved.authority.tools.contains(name);
        if let AgentKind::External(external) = &resolved.kind {
            return match external.agents.tool(name) {
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
        add_restrictions(&mut allowed.permissions, &self.settings().permissions);
        if let Some(mode) = self.overrides.mode {
            allowed.permissions = allowed.permissions.narrowed_to(mode);
        }
        allowed.max_depth = allowed.max_depth.min(self.settings().limits.max_depth);
        self.resolve(definition, allowed, depth).map_err(|error| DriverError::Config(error.to_string()))
    }

    pub(crate) async fn definition<T: serde::de::DeserializeOwned>(
        &self,
        hash: Hash,
    ) -> Result<T, DriverError> {
        let place = || format!("the definition {hash}");
        let broken = |cause: String| {
            DriverError::Store(StoreError::Broken { place: place(), kind: BrokenKind::Other, cause })
        };
        let body = self.core.store.blob(hash).await.map_err(DriverError::Store)?;
        let body = body.ok_or_else(|| broken("it is missing from the store".to_owned()))?;
        serde_json::from_str(&body).map_err(|cause| broken(cause.to_string()))
    }
}

/// Adds the `deny` and `ask` rules of other permissions.
pub(crate) fn add_restrictions(permissions: &mut Permissions, others: &Permissions) {
    for (rules, added) in [(&mut permissions.deny, &others.deny), (&mut permissions.ask, &others.ask)] {
        for rule in added {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
}
