//! Delegation styles, one file per contract: JSON to [`Delegation`], [`Outcome`] to text. This file contains their
//! common parts and decides which of them an agent is offered.

pub mod delegate;
pub mod dispatch;
mod guidance;
pub mod spawn;
pub mod subagent;

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::agent::{Agent, Backend};
use crate::amount;
use crate::delegation::{Delegation, DelegationStyle, Execution, Outcome, Status};
use crate::grant::{Authority, AuthorityRequest, Budget};
use crate::message::{ToolOutput, ToolSpec};
use crate::text::{Text, truncate_bytes};
use crate::tool_names;
use delegate::SwarmConfig;
pub use guidance::guidance;
use spawn::SpawnConfig;
use subagent::SubagentConfig;

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

/// Prefix of the name of a pass-through model; the rest names the model for children.
pub const PASSTHROUGH_PREFIX: &str = "relay/";

/// Configuration of all delegation styles.
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

/// Section `delegation` of the config.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DelegationConfig {
    /// Styles to offer.
    #[serde(rename = "faces")]
    pub styles: EnabledStyles,
    /// Optional parameters beyond the contracts.
    pub extras: BTreeSet<ExtraParameter>,
}

/// Selection of delegation styles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum EnabledStyles {
    /// `delegate` if it is enabled, `dispatch` if another agent exists, the others if their section is present.
    #[default]
    Auto,
    /// Exactly these styles.
    Only(BTreeSet<DelegationStyle>),
}

/// Parameter beyond the contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtraParameter {
    /// Lets the caller continue while the child works.
    Background,
    /// Requires a result that matches a JSON Schema.
    Schema,
    /// Limits the tokens of the child.
    Tokens,
    /// Limits the dollars of the child.
    Usd,
}

impl Serialize for EnabledStyles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            EnabledStyles::Auto => serializer.serialize_str("auto"),
            EnabledStyles::Only(styles) => serializer.collect_seq(styles),
        }
    }
}

impl<'de> Deserialize<'de> for EnabledStyles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EnabledStyles, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RawStyles {
            Name(String),
            List(Vec<String>),
        }
        let names = match RawStyles::deserialize(deserializer)? {
            RawStyles::Name(word) if word == "auto" => return Ok(EnabledStyles::Auto),
            RawStyles::Name(word) => word.split(',').map(|name| name.trim().to_owned()).collect(),
            RawStyles::List(names) => names,
        };
        names
            .iter()
            .map(|name| parse_style(name))
            .collect::<Result<_, _>>()
            .map(EnabledStyles::Only)
            .map_err(serde::de::Error::custom)
    }
}

fn parse_style(name: &str) -> Result<DelegationStyle, String> {
    let styles = [
        DelegationStyle::Delegate,
        DelegationStyle::Subagent,
        DelegationStyle::Dispatch,
        DelegationStyle::Spawn,
    ];
    styles.into_iter().find(|style| style.name() == name).ok_or_else(|| {
        format!(
            "unknown delegation style '{}'. Use `auto`, or a list of `delegate`, `subagent`, `dispatch` and `spawn`.",
            sanitize_title(name, 32)
        )
    })
}

/// Returns the style of a delegation tool.
fn style_of_tool(tool: &str) -> Option<DelegationStyle> {
    match tool {
        delegate::NAME => Some(DelegationStyle::Delegate),
        subagent::NAME | subagent::PARALLEL_NAME => Some(DelegationStyle::Subagent),
        dispatch::NAME => Some(DelegationStyle::Dispatch),
        spawn::NAME | spawn::DELEGATE_NAME => Some(DelegationStyle::Spawn),
        _ => None,
    }
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
    fn one(delegation: Delegation) -> DelegationPlan {
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

impl DelegationStyles {
    /// Whether a style is enabled.
    pub fn has(&self, style: DelegationStyle) -> bool {
        let enabled = style != DelegationStyle::Delegate || self.swarm.enabled;
        match &self.delegation.styles {
            EnabledStyles::Only(styles) => enabled && styles.contains(&style),
            EnabledStyles::Auto => match style {
                DelegationStyle::Run => false,
                DelegationStyle::Delegate => enabled,
                DelegationStyle::Dispatch => true,
                DelegationStyle::Subagent => self.subagent.is_some(),
                DelegationStyle::Spawn => self.spawn.is_some(),
            },
        }
    }

    /// Returns warnings for the user about sections whose style is not offered.
    pub fn warnings(&self) -> Vec<String> {
        let sections = [
            ("subagent", DelegationStyle::Subagent, self.subagent.is_some()),
            ("spawn", DelegationStyle::Spawn, self.spawn.is_some()),
            ("swarm", DelegationStyle::Delegate, self.swarm != SwarmConfig::default()),
        ];
        let unused = sections.into_iter().filter(|(_, style, is_there)| *is_there && !self.is_listed(*style));
        unused
            .map(|(section, style, _)| {
                format!(
                    "the section [{section}] has no effect: `delegation.faces` does not include `{style}`"
                )
            })
            .collect()
    }

    fn is_listed(&self, style: DelegationStyle) -> bool {
        match &self.delegation.styles {
            EnabledStyles::Auto => true,
            EnabledStyles::Only(styles) => styles.contains(&style),
        }
    }

    /// Returns the settings of style B.
    pub fn subagent(&self) -> SubagentConfig {
        self.subagent.clone().unwrap_or_default()
    }

    /// Returns the settings of style D.
    pub fn spawn(&self) -> SpawnConfig {
        self.spawn.clone().unwrap_or_default()
    }

    /// Returns the maximum depth of a child that a style starts.
    pub fn max_child_depth(&self, style: DelegationStyle) -> u32 {
        match style {
            DelegationStyle::Run | DelegationStyle::Dispatch => u32::MAX,
            DelegationStyle::Delegate => self.swarm.max_depth,
            DelegationStyle::Subagent => self.subagent().max_depth.saturating_sub(1),
            DelegationStyle::Spawn => self.spawn().max_depth,
        }
    }

    /// Whether the caller may start a child through this style. This is the only predicate about depth.
    pub fn may_start(&self, style: DelegationStyle, caller: &Caller<'_>) -> bool {
        caller.depth < self.max_child_depth(style).min(caller.authority.max_depth)
    }

    /// Returns the specs of the delegation tools for the caller's model.
    pub fn specs(&self, caller: &Caller<'_>) -> Vec<ToolSpec> {
        let has = |name: &str| caller.authority.tools.contains(name);
        let mut specs = Vec::new();
        if self.has(DelegationStyle::Delegate)
            && self.may_start(DelegationStyle::Delegate, caller)
            && has(delegate::NAME)
        {
            specs.push(self.swarm.spec(&caller.callable_agents()));
        }
        // This style stays visible at its limit and refuses the call.
        if self.has(DelegationStyle::Subagent) {
            let config = self.subagent();
            specs.extend(has(subagent::NAME).then(|| config.spec()));
            specs.extend(has(subagent::PARALLEL_NAME).then(|| config.parallel_spec()));
        }
        if self.has(DelegationStyle::Dispatch)
            && self.may_start(DelegationStyle::Dispatch, caller)
            && has(dispatch::NAME)
        {
            specs.extend(dispatch::spec(&caller.callable_agents()));
        }
        if self.has(DelegationStyle::Spawn) && self.may_start(DelegationStyle::Spawn, caller) {
            specs.extend(has(spawn::NAME).then(|| spawn::spec(&self.spawn())));
            specs.extend(has(spawn::DELEGATE_NAME).then(spawn::delegate_spec));
        }
        for spec in &mut specs {
            if spec.name != subagent::PARALLEL_NAME && spec.name != spawn::DELEGATE_NAME {
                self.add_extra_parameters(&mut spec.schema);
            }
        }
        specs
    }

    /// Returns the tools among `offered` that start an agent for this caller: all delegation tools except those
    /// that refuse at their depth limit.
    pub fn usable_tools<'a>(&self, caller: &Caller<'_>, offered: &'a [ToolSpec]) -> Vec<&'a str> {
        let starts = |name: &&str| style_of_tool(name).is_some_and(|style| self.may_start(style, caller));
        offered.iter().map(|spec| spec.name.as_str()).filter(starts).collect()
    }

    fn add_extra_parameters(&self, schema: &mut Value) {
        let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
        for extra in &self.delegation.extras {
            match extra {
                ExtraParameter::Background => properties.insert(
                    "background".to_owned(),
                    json!({
                        "enum": [false, true, "detach"],
                        "description": "`true`: continue at once; the result arrives later, and your run waits for \
                                        it. Use `tell` and `stop` meanwhile. `detach`: your run does not wait"
                    }),
                ),
                ExtraParameter::Schema => properties.insert(
                    "schema".to_owned(),
                    json!({ "type": "object", "description": "JSON Schema of the result" }),
                ),
                ExtraParameter::Tokens => properties.insert(
                    "tokens".to_owned(),
                    json!({
                        "type": "integer",
                        "minimum": 1,
                        "description": "Token budget of the sub-agent, input and output"
                    }),
                ),
                ExtraParameter::Usd => properties.insert(
                    "usd".to_owned(),
                    json!({
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "description": "Cost budget of the sub-agent, in dollars"
                    }),
                ),
            };
        }
    }

    /// Parses a call of the delegation tool `tool`.
    pub fn plan(&self, tool: &str, caller: &Caller<'_>, arguments: &str) -> Result<DelegationPlan, String> {
        let mut plan = match tool {
            delegate::NAME if self.is_listed(DelegationStyle::Delegate) => {
                DelegationPlan::one(self.swarm.parse(caller.depth, caller.authority, arguments)?)
            }
            subagent::NAME if self.has(DelegationStyle::Subagent) => {
                DelegationPlan::one(self.subagent().parse(
                    caller,
                    self.may_start(DelegationStyle::Subagent, caller),
                    arguments,
                )?)
            }
            subagent::PARALLEL_NAME if self.has(DelegationStyle::Subagent) => self
                .subagent()
                .parse_parallel(caller, self.may_start(DelegationStyle::Subagent, caller), arguments)?,
            dispatch::NAME if self.has(DelegationStyle::Dispatch) => {
                self.check_depth(DelegationStyle::Dispatch, caller)?;
                DelegationPlan::one(dispatch::parse(caller, arguments)?)
            }
            spawn::NAME if self.has(DelegationStyle::Spawn) => {
                self.check_depth(DelegationStyle::Spawn, caller)?;
                DelegationPlan::one(self.spawn().parse(arguments)?)
            }
            spawn::DELEGATE_NAME if self.has(DelegationStyle::Spawn) => {
                self.check_depth(DelegationStyle::Spawn, caller)?;
                DelegationPlan::one(self.spawn().parse_delegate(arguments)?)
            }
            _ => return Err(not_available(tool)),
        };
        if !caller.authority.tools.contains(tool) {
            return Err(not_available(tool));
        }
        if let [delegation] = plan.delegations.as_mut_slice()
            && tool != spawn::DELEGATE_NAME
        {
            self.parse_extra_parameters(delegation, arguments)?;
        }
        Ok(plan)
    }

    fn check_depth(&self, style: DelegationStyle, caller: &Caller<'_>) -> Result<(), String> {
        if self.may_start(style, caller) {
            return Ok(());
        }
        let settings = match style {
            DelegationStyle::Run | DelegationStyle::Dispatch => "`limits.max_depth`".to_owned(),
            DelegationStyle::Delegate => "`swarm.max_depth` or `limits.max_depth`".to_owned(),
            DelegationStyle::Subagent | DelegationStyle::Spawn => {
                format!("`{style}.max_depth` or `limits.max_depth`")
            }
        };
        Err(format!(
            "Delegation refused: the maximum depth ({}) is reached (recursion limit). Do the task yourself. The user can \
             raise the limit with {settings}.",
            caller.depth
        ))
    }

    fn parse_extra_parameters(&self, delegation: &mut Delegation, arguments: &str) -> Result<(), String> {
        if self.delegation.extras.is_empty() {
            return Ok(());
        }
        let value = crate::json::parse(arguments).map_err(|cause| cause.to_string())?;
        let (mut tokens, mut usd) = (None, None);
        for extra in &self.delegation.extras {
            match (extra, value.get(extra.name())) {
                (_, None | Some(Value::Null)) => {}
                (ExtraParameter::Background, Some(Value::Bool(true))) => {
                    delegation.execution = Execution::Background
                }
                (ExtraParameter::Background, Some(Value::Bool(false))) => {}
                (ExtraParameter::Background, Some(Value::String(word))) if word == "detach" => {
                    delegation.execution = Execution::Detachable;
                }
                (ExtraParameter::Background, Some(_)) => {
                    return Err(
                        "Invalid 'background' argument: expected true, false or \"detach\"".to_owned()
                    );
                }
                (ExtraParameter::Schema, Some(schema @ Value::Object(_))) => {
                    delegation.schema = Some(Text::from(schema.to_string()));
                }
                (ExtraParameter::Schema, Some(_)) => {
                    return Err("Invalid 'schema' argument: expected a JSON Schema object".to_owned());
                }
                (ExtraParameter::Tokens, Some(value)) => {
                    let invalid = |cause| format!("Invalid 'tokens' argument: {cause}");
                    tokens = Some(amount::tokens_from_value(value).map_err(invalid)?);
                }
                (ExtraParameter::Usd, Some(value)) => {
                    let invalid = |cause| format!("Invalid 'usd' argument: {cause}");
                    usd = Some(amount::dollars_from_value(value).map_err(invalid)?);
                }
            }
        }
        delegation.budget = Budget::of(tokens, usd).or(delegation.budget);
        Ok(())
    }

    /// Builds the agent of one delegation and the authority it requests, before it is attenuated to what the caller
    /// may lend. `definition` is the definition that the delegation names by id.
    pub fn prepare_child(
        &self,
        delegation: &Delegation,
        caller: &Caller<'_>,
        definition: Option<Agent>,
    ) -> (Agent, AuthorityRequest) {
        let (mut agent, mut request) = match (delegation.style, definition) {
            (DelegationStyle::Delegate, None) => {
                (self.swarm.agent(delegation), self.swarm.authority_request(delegation, caller.authority))
            }
            (DelegationStyle::Subagent, _) => subagent::prepare_child(delegation, caller),
            (DelegationStyle::Spawn, _) => self.spawn().prepare_child(delegation, caller),
            (_, definition) => dispatch::prepare_child(delegation, caller, definition.unwrap_or_default()),
        };
        request.max_depth = self.max_child_depth(delegation.style);
        let at_the_limit = caller.depth + 1 >= request.max_depth.min(caller.authority.max_depth);
        if at_the_limit {
            let own_tools = if delegation.style == DelegationStyle::Subagent {
                &[subagent::NAME, subagent::PARALLEL_NAME][..]
            } else {
                &[]
            };
            let excluded = DELEGATION_TOOLS.into_iter().filter(|name| !own_tools.contains(name));
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
        match delegation.style {
            DelegationStyle::Run | DelegationStyle::Delegate => {
                delegate::render(delegation, outcome, limit, handle)
            }
            DelegationStyle::Subagent => self.subagent().render(delegation, outcome, limit, handle),
            DelegationStyle::Dispatch => dispatch::render(delegation, outcome, limit, handle),
            DelegationStyle::Spawn => spawn::render(delegation, outcome, limit, handle),
        }
    }
}

impl ExtraParameter {
    /// Returns the name of the parameter.
    pub fn name(self) -> &'static str {
        match self {
            ExtraParameter::Background => "background",
            ExtraParameter::Schema => "schema",
            ExtraParameter::Tokens => "tokens",
            ExtraParameter::Usd => "usd",
        }
    }
}

impl<'a> Caller<'a> {
    /// Returns the definitions that the caller may name: all but itself.
    pub fn callable_agents(&self) -> Vec<&'a Agent> {
        let may_name = |agent: &&Agent| agent.id != self.agent.id && self.authority.agents.has(&agent.id);
        self.agents.iter().filter(may_name).collect()
    }
}

/// Resolves the models of an agent to full names, with the caller's model as the default.
pub fn resolve_model(agent: &mut Agent, parent: &Agent) {
    if agent.model.is_none() && agent.provider.is_none() && agent.fallbacks.is_empty() {
        agent.fallbacks.clone_from(&parent.fallbacks);
    }
    agent.model = choose_model(agent, parent);
    agent.provider = None;
    let usual = Agent { model: agent.model.clone(), ..Agent::default() };
    for fallback in &mut agent.fallbacks {
        let named = Agent { model: Some(std::mem::take(fallback)), ..Agent::default() };
        *fallback = choose_model(&named, &usual).unwrap_or_default();
    }
}

/// Combines the definition and the caller's model into `provider/model`.
fn choose_model(agent: &Agent, parent: &Agent) -> Option<String> {
    // A pass-through model cannot serve a child, which uses the model behind it.
    let inherited = parent.model.as_deref().map(|name| name.strip_prefix(PASSTHROUGH_PREFIX).unwrap_or(name));
    // A name such as `script:/path` consists of the provider only, whatever its path looks like.
    let parts = |name: &str| {
        let parts = name.split_once('/').filter(|(provider, _)| !provider.contains(':'));
        parts.map(|(provider, model)| (provider.to_owned(), model.to_owned()))
    };
    let model_of = |name: &str| parts(name).map_or_else(|| name.to_owned(), |(_, model)| model);
    let provider_of = |name: &str| parts(name).map(|(provider, _)| provider);
    match (&agent.provider, &agent.model) {
        (None, None) => inherited.map(str::to_owned),
        (Some(provider), Some(model)) if !model.starts_with(&format!("{provider}/")) => {
            Some(format!("{provider}/{model}"))
        }
        (Some(provider), None) => Some(match inherited.map(model_of) {
            Some(model) if model != *provider => format!("{provider}/{model}"),
            _ => provider.clone(),
        }),
        // A model without a provider belongs to the caller's provider, if that has a name of its own.
        (None, Some(model)) if !model.contains('/') => match inherited.and_then(provider_of) {
            Some(provider) => Some(format!("{provider}/{model}")),
            None => Some(model.clone()),
        },
        (_, Some(model)) => Some(model.clone()),
    }
}

/// Returns the provider in the name of an agent's model.
fn provider(agent: &Agent) -> Option<&str> {
    agent.model.as_deref().map(|model| model.split_once('/').map_or(model, |(provider, _)| provider))
}

fn not_available(tool: &str) -> String {
    format!("`{tool}` is not available (recursion limit or configuration). Do the task yourself.")
}

/// Maximum length of a title that is not shortened, in characters.
const MAX_TITLE_CHARS: usize = 64;

/// Label or description that a model wrote.
struct Title {
    /// Title on one line: control characters and brackets escaped, shortened with `…`.
    display: String,
    /// Title as written, if the display form differs.
    original: Option<Text>,
}

impl Title {
    /// Creates a title from a text; `None` if it is blank.
    fn of(text: &str) -> Option<Title> {
        let text = text.trim();
        let mut display: Vec<char> = Vec::new();
        // Last position at which the title can be cut to make room for the mark.
        let mut end = 0;
        for c in text.chars() {
            match c {
                '[' | ']' => display.extend(['\\', c]),
                _ if delegate::is_plain(c) => display.push(c),
                _ => display.extend(c.escape_default()),
            }
            if display.len() > MAX_TITLE_CHARS {
                display.truncate(end);
                display.push('…');
                break;
            }
            if display.len() < MAX_TITLE_CHARS {
                end = display.len();
            }
        }
        let display: String = display.into_iter().collect();
        let original = (display != text).then(|| Text::from(text));
        (!text.is_empty()).then_some(Title { display, original })
    }
}

/// Formats a model's title for display: one line that cannot imitate a prefix of the runtime.
fn sanitize_title(text: &str, length: usize) -> String {
    let plain = |c: char| if delegate::is_plain(c) { c } else { ' ' };
    let line: String = text.chars().map(plain).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(length).collect()
}

/// Cuts a text on a character boundary and adds a last line with the handle of the full text.
fn truncate_with_handle(text: &str, limit: usize, handle: &str) -> String {
    let mut truncated = truncate_bytes(text, limit).to_owned();
    if text.len() > limit {
        truncated.push_str(&format!(
            "\n(truncated after {limit} bytes; read the rest with `read_result`, handle {handle})"
        ));
    }
    truncated
}

/// Returns the cause of an unsuccessful outcome.
pub fn failure_cause(status: &Status) -> Option<String> {
    match status {
        Status::Done | Status::Incomplete { .. } | Status::Detached => None,
        Status::Failed { cause } => Some(cause.clone()),
        Status::Cancelled { by } => Some(format!("cancelled by {by}")),
        Status::Lost { cause } => Some(format!("outcome unknown: {cause}")),
    }
}

/// Formats the partial result of a failed child for the model.
fn partial_result(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("\nPartial result:\n{text}") }
}

/// Resolves the tools that a whitelist names, by any of their names. A name that cannot be lent stays as written,
/// so that it is reported.
fn resolve_tool_names(list: &[String], lend: &BTreeSet<String>) -> Vec<String> {
    let mut tools: Vec<String> = Vec::new();
    for requested in list {
        let known = tool_names::resolve(requested).into_iter().filter(|name| lend.contains(*name));
        let mut known: Vec<String> = known.map(str::to_owned).collect();
        let name = tool_names::canonical(requested.trim());
        if let Some(start) = tool_names::mcp_prefix(&name) {
            known = lend.iter().filter(|name| name.starts_with(start)).cloned().collect();
        } else if lend.contains(&*name) {
            known = vec![name.into_owned()];
        }
        if known.is_empty() || lend.contains(requested) {
            known = vec![requested.clone()];
        }
        known.retain(|name| !tools.contains(name));
        tools.append(&mut known);
    }
    tools
}

#[cfg(test)]
mod testing;
