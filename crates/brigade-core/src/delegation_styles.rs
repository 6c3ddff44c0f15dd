//! Delegation styles, one file per contract: JSON to [`Delegation`], [`Outcome`] to text. This file registers them
//! and decides which of them an agent is offered.

mod child_model;
mod config;
pub mod delegate;
pub mod dispatch;
mod extra_parameters;
mod guidance;
mod results;
pub mod spawn;
mod style;
pub mod subagent;
mod titles;

use crate::agent::{Agent, Backend};
use crate::delegation::{Delegation, DelegationStyle, Outcome};
use crate::message::{Refusal, ToolOutput, ToolSpec};
use child_model::provider;
pub use child_model::{PASSTHROUGH_PREFIX, resolve_model};
pub use config::{DelegationConfig, EnabledStyles};
use delegate::{Retention, SwarmConfig};
pub use extra_parameters::ExtraParameter;
pub use guidance::guidance;
pub use results::failure_cause;
use spawn::SpawnConfig;
pub use style::{Caller, ChildResult, ChildSpec, DelegationPlan, ParallelTool, Style, StyleInfo};
use subagent::SubagentConfig;
pub use titles::looks_like;

/// Names of all delegation tools. At its depth limit an agent has none that works, whatever its whitelist contains.
pub const DELEGATION_TOOLS: [&str; 6] = [
    delegate::NAME,
    subagent::NAME,
    subagent::PARALLEL_NAME,
    dispatch::NAME,
    spawn::NAME,
    spawn::DELEGATE_NAME,
];

/// Tool that sends a message to the user.
pub const MESSAGE_TOOL: &str = "message";

/// Configuration of all delegation styles.
///
/// Planning a call starts no agent, so a delegation tool can be tested on its own:
///
/// ```
/// use brigade_core::delegation_styles::{Caller, DelegationStyles};
/// use brigade_core::{Agent, Authority};
///
/// let authority = Authority { tools: ["delegate".to_owned()].into(), max_depth: 3, ..Authority::default() };
/// let caller = Caller { depth: 0, authority: &authority, agent: &Agent::default(), agents: &[] };
/// let styles = DelegationStyles::default();
/// let plan = styles.plan("delegate", &caller, r#"{"role":"Critic","task":"Find the flaw."}"#)?;
/// assert_eq!(plan.delegations[0].role.as_deref(), Some("Critic"));
/// assert!(styles.plan("delegate", &caller, r#"{"role":"Critic"}"#).is_err());
/// # Ok::<(), brigade_core::message::Refusal>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegationStyles {
    /// Section `swarm` (style A, `delegate`).
    pub swarm: SwarmConfig,
    /// Section `subagent` (style B), if present.
    pub subagent: Option<SubagentConfig>,
    /// Section `spawn` (style D), if present.
    pub spawn: Option<SpawnConfig>,
    /// Section `delegation`: the styles to offer.
    pub delegation: DelegationConfig,
}

/// Exactly these styles, with default settings.
impl<const N: usize> From<[DelegationStyle; N]> for DelegationStyles {
    fn from(styles: [DelegationStyle; N]) -> DelegationStyles {
        let delegation = DelegationConfig { styles: styles.into(), ..DelegationConfig::default() };
        DelegationStyles { delegation, ..DelegationStyles::default() }
    }
}

impl DelegationStyles {
    /// Returns all styles, in the order in which their tools are offered.
    fn all(&self) -> [&dyn Style; 4] {
        let subagent = self.subagent.as_ref().unwrap_or(&subagent::DEFAULT);
        let spawn = self.spawn.as_ref().unwrap_or(&spawn::DEFAULT);
        [&self.swarm, subagent, &dispatch::Dispatch, spawn]
    }

    /// Returns the style of a delegation. A session that the user started has none and counts as style A.
    pub fn of(&self, delegation: &Delegation) -> &dyn Style {
        self.all().into_iter().find(|style| style.info().id == delegation.style).unwrap_or(&self.swarm)
    }

    /// Returns the style that a delegation tool belongs to.
    fn of_tool(&self, tool: &str) -> Option<&dyn Style> {
        self.all().into_iter().find(|style| style.info().tools.contains(&tool))
    }

    /// Returns the styles that are enabled.
    fn enabled(&self) -> impl Iterator<Item = &dyn Style> {
        self.all().into_iter().filter(|style| self.is_selected(style.info().id) && style.info().is_enabled)
    }

    /// Whether the section `delegation` selects a style.
    fn is_selected(&self, id: DelegationStyle) -> bool {
        match (&self.delegation.styles, id) {
            (EnabledStyles::Only(styles), _) => styles.contains(&id),
            (EnabledStyles::Auto, DelegationStyle::Subagent) => self.subagent.is_some(),
            (EnabledStyles::Auto, DelegationStyle::Spawn) => self.spawn.is_some(),
            (EnabledStyles::Auto, DelegationStyle::Delegate | DelegationStyle::Dispatch) => true,
            (EnabledStyles::Auto, DelegationStyle::Run) => false,
        }
    }

    /// Returns warnings for the user about sections whose style is not offered.
    pub fn warnings(&self) -> Vec<String> {
        let sections = [
            ("subagent", DelegationStyle::Subagent, self.subagent.is_some()),
            ("spawn", DelegationStyle::Spawn, self.spawn.is_some()),
            ("swarm", DelegationStyle::Delegate, self.swarm != SwarmConfig::default()),
        ];
        let EnabledStyles::Only(listed) = &self.delegation.styles else { return Vec::new() };
        let unused = sections.into_iter().filter(|(_, style, is_there)| *is_there && !listed.contains(style));
        unused
            .map(|(section, style, _)| {
                format!(
                    "the section [{section}] has no effect: `delegation.faces` does not include `{style}`"
                )
            })
            .collect()
    }

    /// Returns the tool as one that starts several children, if it does.
    pub fn parallel(&self, tool: &str) -> Option<&dyn ParallelTool> {
        self.of_tool(tool)?.parallel(tool)
    }

    /// Whether an enabled style numbers its delegations.
    pub fn is_any_numbered(&self) -> bool {
        self.enabled().any(|style| style.info().is_numbered)
    }

    /// Returns the maximum number of active sessions of each style that has one.
    pub fn max_active(&self) -> impl Iterator<Item = (DelegationStyle, usize)> {
        self.all().map(Style::info).into_iter().filter_map(|info| Some((info.id, info.max_active?)))
    }

    /// Returns the styles whose sessions are removed when their root ends.
    pub fn unkept(&self) -> Vec<DelegationStyle> {
        let infos = self.all().map(Style::info).into_iter();
        infos.filter(|info| info.retention == Retention::None).map(|info| info.id).collect()
    }

    /// Returns the specs of the delegation tools for the caller's model.
    pub fn specs(&self, caller: &Caller<'_>) -> Vec<ToolSpec> {
        let is_held = |tool: &str| caller.authority.tools.contains(tool);
        let mut offered = Vec::new();
        for style in self.enabled() {
            let info = style.info();
            let is_visible = style.may_start(caller) || info.keeps_tools_at_limit;
            if !is_visible || !info.tools.iter().any(|tool| is_held(tool)) {
                continue;
            }
            for mut spec in style.specs(caller).into_iter().filter(|spec| is_held(&spec.name)) {
                let name = spec.name.as_str();
                if !info.tools_without_extras.contains(&name) && style.parallel(name).is_none() {
                    extra_parameters::add_to(&mut spec.schema, &self.delegation.extras);
                }
                offered.push(spec);
            }
        }
        offered
    }

    /// Returns the tools among `offered` that start an agent for this caller: all delegation tools except those
    /// that refuse at their depth limit.
    pub fn usable_tools<'a>(&self, caller: &Caller<'_>, offered: &'a [ToolSpec]) -> Vec<&'a str> {
        let starts = |name: &&str| self.of_tool(name).is_some_and(|style| style.may_start(caller));
        offered.iter().map(|spec| spec.name.as_str()).filter(starts).collect()
    }

    /// Parses a call of the delegation tool `tool`.
    pub fn plan(&self, tool: &str, caller: &Caller<'_>, arguments: &str) -> Result<DelegationPlan, Refusal> {
        let style = self.of_tool(tool).filter(|style| self.is_selected(style.info().id));
        let style = style.ok_or_else(|| not_available(tool))?;
        let mut plan = style.plan(tool, caller, arguments)?;
        if !caller.authority.tools.contains(tool) {
            return Err(not_available(tool));
        }
        if let [delegation] = plan.delegations.as_mut_slice()
            && !style.info().tools_without_extras.contains(&tool)
        {
            extra_parameters::parse_into(delegation, &self.delegation.extras, arguments)?;
        }
        Ok(plan)
    }

    /// Builds the agent of one delegation and the authority it requests, before it is attenuated to what the caller
    /// may lend. `definition` is the definition that the delegation names by id.
    pub fn prepare_child(
        &self,
        delegation: &Delegation,
        caller: &Caller<'_>,
        definition: Option<Agent>,
    ) -> ChildSpec {
        let style = self.of(delegation);
        let (mut agent, mut request) = style.child(delegation, caller, definition);
        let info = style.info();
        request.max_depth = info.max_child_depth;
        let at_the_limit = caller.depth + 1 >= request.max_depth.min(caller.authority.max_depth);
        if at_the_limit {
            let kept = if info.keeps_tools_at_limit { info.tools } else { &[] };
            let excluded = DELEGATION_TOOLS.into_iter().filter(|name| !kept.contains(name));
            request.excluded.extend(excluded.map(str::to_owned));
        }
        if matches!(agent.backend, Backend::Acp(_)) {
            // An external program chooses its own model and has its own keys.
            return (agent, request);
        }
        resolve_model(&mut agent, caller.agent);
        // A base URL and its API key belong together and stay with their provider.
        let is_same_provider = agent.api_base.is_none() && provider(&agent) == provider(caller.agent);
        if is_same_provider {
            agent.api_base.clone_from(&caller.agent.api_base);
        }
        if is_same_provider && agent.key_of.is_none() {
            agent.key_of.clone_from(&caller.agent.key_of);
        }
        request.model = agent.model.clone().filter(|model| Some(model) != caller.agent.model.as_ref());
        (agent, request)
    }

    /// Renders the result for the caller's model when the only child of a call has ended.
    pub fn render(
        &self,
        delegation: &Delegation,
        outcome: &Outcome,
        limit: usize,
        handle: &str,
    ) -> ToolOutput {
        self.of(delegation).render(delegation, outcome, limit, handle)
    }
}

fn not_available(tool: &str) -> Refusal {
    format!("`{tool}` is not available (recursion limit or configuration). Do the task yourself.").into()
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests;
