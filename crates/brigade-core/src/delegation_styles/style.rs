//! The trait that all delegation styles implement, and the values it exchanges with the driver.

use std::sync::Arc;

use super::delegate::Retention;
use crate::agent::Agent;
use crate::delegation::{Delegation, DelegationStyle, Outcome};
use crate::grant::{Authority, AuthorityRequest};
use crate::message::{Refusal, ToolOutput, ToolSpec};

/// Agent of a child, and the authority that it requests.
pub type ChildSpec = (Agent, AuthorityRequest);

/// Contract of one delegation style. The driver and the runtime call the styles only through it.
///
/// # Contract
///
/// * A refusal and a result are texts for the caller's model, in the words of the style.
/// * A child requests authority. The driver attenuates the request to what the caller may lend.
pub trait Style: Sync {
    /// Returns its identity, its limits, and the differences between the styles that the runtime acts on.
    fn info(&self) -> StyleInfo;

    /// Returns the specs of its tools for the caller's model.
    fn specs(&self, caller: &Caller<'_>) -> Vec<ToolSpec>;

    /// Parses a call of one of its tools.
    fn plan(&self, tool: &str, caller: &Caller<'_>, arguments: &str) -> Result<DelegationPlan, Refusal>;

    /// Builds the agent of a delegation and the authority it requests.
    fn child(&self, delegation: &Delegation, caller: &Caller<'_>, definition: Option<Agent>) -> ChildSpec;

    /// Renders the result of a child for the caller's model. `handle` names the source of the full text.
    fn render(&self, delegation: &Delegation, outcome: &Outcome, limit: usize, handle: &str) -> ToolOutput;

    /// Whether the caller may start a child. This is the only predicate about depth.
    fn may_start(&self, caller: &Caller<'_>) -> bool {
        caller.depth < self.info().max_child_depth.min(caller.authority.max_depth)
    }

    /// Returns the tool as one that starts several children, if it does.
    fn parallel(&self, _tool: &str) -> Option<&dyn ParallelTool> {
        None
    }

    /// Returns the id of the definition that a delegation names.
    fn definition(&self, _delegation: &Delegation, _caller: &Caller<'_>) -> Option<String> {
        None
    }

    /// Returns the mode of a child in lifecycle events.
    fn mode(&self, _delegation: &Delegation) -> &'static str {
        self.info().id.name()
    }
}

/// Identity of a style and its differences from the others.
pub struct StyleInfo {
    /// Style that is recorded with its delegations.
    pub id: DelegationStyle,
    /// Names of its tools.
    pub tools: &'static [&'static str],
    /// Tools that do not accept the extra parameters of the config.
    pub tools_without_extras: &'static [&'static str],
    /// Whether a caller at its depth limit keeps the tools, which then refuse its calls.
    pub keeps_tools_at_limit: bool,
    /// Whether its own section enables it.
    pub is_enabled: bool,
    /// Maximum depth of a child.
    pub max_child_depth: u32,
    /// Maximum number of its sessions that are active in a tree.
    pub max_active: Option<usize>,
    /// Retention of its sessions.
    pub retention: Retention,
    /// Whether its agents are resolved again for each call, because a definition may have changed.
    pub always_resolves: bool,
    /// Whether a child has the `message` tool even under a whitelist, if the caller may lend the tool.
    pub always_lends_message: bool,
    /// Whether a title that looks like the name of the lead is extended instead of refused.
    pub extends_titles: bool,
    /// Whether its delegations are numbered within a tree.
    pub is_numbered: bool,
}

impl StyleInfo {
    pub(super) fn new(
        id: DelegationStyle,
        tools: &'static [&'static str],
        max_child_depth: u32,
    ) -> StyleInfo {
        StyleInfo {
            id,
            tools,
            tools_without_extras: &[],
            keeps_tools_at_limit: false,
            is_enabled: true,
            max_child_depth,
            max_active: None,
            retention: Retention::Root,
            always_resolves: false,
            always_lends_message: false,
            extends_titles: false,
            is_numbered: false,
        }
    }
}

/// Delegation tool that starts several children with one call.
pub trait ParallelTool {
    /// Renders the results of the children, in the order of their tasks.
    fn render_parallel(
        &self,
        results: &[(Arc<Delegation>, ChildResult)],
        total_ms: u64,
        limit: usize,
    ) -> ToolOutput;
}

/// Delegating agent.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Depth in the tree.
    pub depth: u32,
    /// Authority of the caller.
    pub authority: &'a Authority,
    /// Definition of the caller.
    pub agent: &'a Agent,
    /// Available agent definitions.
    pub agents: &'a [Agent],
}

/// Parsed call of a delegation tool.
#[derive(Debug, Clone, PartialEq)]
pub struct DelegationPlan {
    /// Delegations, one child each.
    pub delegations: Vec<Delegation>,
    /// Maximum number of children that run at once.
    pub max_concurrent: usize,
    /// Whether the first failure cancels the others.
    pub fail_fast: bool,
}

impl DelegationPlan {
    pub(super) fn one(delegation: Delegation) -> DelegationPlan {
        DelegationPlan { delegations: vec![delegation], max_concurrent: 1, fail_fast: false }
    }
}

/// Result of one child of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildResult {
    /// Outcome of the child.
    pub outcome: Outcome,
    /// Tokens that the child and its descendants used.
    pub tokens: u64,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

impl<'a> Caller<'a> {
    /// Returns the definitions that the caller may name: all but itself.
    pub fn callable_agents(&self) -> Vec<&'a Agent> {
        let may_name = |agent: &&Agent| agent.id != self.agent.id && self.authority.agents.has(&agent.id);
        self.agents.iter().filter(may_name).collect()
    }
}

/// Refuses a call at the depth limit. `settings` names the settings that raise it.
pub(super) fn check_depth(style: &dyn Style, caller: &Caller<'_>, settings: &str) -> Result<(), Refusal> {
    if style.may_start(caller) {
        return Ok(());
    }
    let text = format!(
        "Delegation refused: the maximum depth ({}) is reached (recursion limit). Do the task yourself. The user can \
         raise the limit with {settings}.",
        caller.depth
    );
    Err(text.into())
}
