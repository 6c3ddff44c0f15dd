//! Style A: `delegate`, a role and a task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use unicode_normalization::UnicodeNormalization;

use super::dispatch;
use super::results::{last_line, render_failure, truncate_with_handle};
use super::style::{Caller, ChildSpec, DelegationPlan, Style, StyleInfo};
use super::titles::{is_plain, sanitize_title};
use crate::agent::{Agent, Backend, Guidance};
use crate::amount;
use crate::delegation::{Delegation, DelegationStyle, Outcome, Status};
use crate::grant::{Authority, AuthorityRequest, Budget};
use crate::json;
use crate::message::{Refusal, ToolOutput, ToolSpec};
use crate::sandbox::SandboxMode;
use crate::text::Text;
use crate::tool_names::resolve_list;

/// Name of the tool.
pub const NAME: &str = "delegate";

/// Maximum length of a role, in characters.
const MAX_ROLE_CHARS: usize = 64;
/// Maximum number of roles in the description.
const MAX_LISTED_ROLES: usize = 40;
/// Example roles in the description.
const EXAMPLE_ROLES: &str = "Researcher, Writer or Security Auditor";

/// Section `swarm` of the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SwarmConfig {
    /// Whether agents have the tool `delegate`.
    pub enabled: bool,
    /// Maximum depth of delegation; 1: only the lead delegates, 0: no agent does.
    pub max_depth: u32,
    /// Maximum concurrent sub-agents of `delegate`; 0 counts as 1.
    pub max_concurrent: u32,
    /// Role presets by name.
    pub roles: BTreeMap<String, SwarmRole>,
    /// System prompt of roles without a preset; {role} is replaced by the role.
    pub adhoc_prompt: Option<String>,
    /// Retention of sub-agent sessions: as long as the root session (root), or only until it ends (none).
    pub keep: Retention,
    /// Model of sub-agents; by default the parent's.
    pub model: Option<String>,
}

/// Retention of sub-agent sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Retention {
    /// Kept as long as their root.
    #[default]
    Root,
    /// Removed when their root ends.
    None,
}

/// Preset of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SwarmRole {
    /// System prompt of the role; by default the prompt of roles without a preset.
    pub system_prompt: String,
    /// Tools of the role; by default those of its parent.
    pub tools: Vec<String>,
    /// Whether a call may narrow the tools but not widen them.
    pub locked: bool,
    /// Tools that the role may pass on to its own sub-agents; by default its own.
    pub lend: Option<Vec<String>>,
    /// Widest sandbox of the role's commands; by default that of its parent.
    pub sandbox: Option<SandboxMode>,
    /// Model of the role; by default `swarm.model`, then the parent's.
    pub model: Option<String>,
    /// External agent for the role: SERVER or SERVER/AGENT from `acp.servers`.
    pub acp: Option<String>,
    /// Maximum tokens of the role, including its sub-agents.
    #[serde(deserialize_with = "amount::deserialize_tokens")]
    #[cfg_attr(feature = "schemars", schemars(schema_with = "amount::tokens_schema"))]
    pub tokens: Option<u64>,
    /// Maximum cost of the role in dollars, including its sub-agents.
    // Stored in nano-dollars.
    #[serde(deserialize_with = "amount::deserialize_dollars", skip_serializing)]
    #[cfg_attr(feature = "schemars", schemars(schema_with = "amount::dollars_schema"))]
    pub usd: Option<u64>,
}

impl Default for SwarmConfig {
    fn default() -> SwarmConfig {
        SwarmConfig {
            enabled: true,
            max_depth: 1,
            max_concurrent: 3,
            roles: BTreeMap::new(),
            adhoc_prompt: None,
            keep: Retention::default(),
            model: None,
        }
    }
}

/// Normalises a role for comparison.
pub fn fold(role: &str) -> String {
    role.trim().nfc().collect::<String>().to_lowercase().nfc().collect()
}

/// Whether a text is a valid role: one line of 1 to 64 characters that cannot imitate a prefix of the runtime.
pub fn is_role(role: &str) -> bool {
    (1..=MAX_ROLE_CHARS).contains(&role.chars().count()) && role.chars().all(is_plain)
}

impl SwarmConfig {
    /// Returns the maximum number of active sub-agents, at least one.
    pub fn concurrency(&self) -> usize {
        self.max_concurrent.max(1) as usize
    }

    /// Returns the problem of the section for the user, if it has one.
    pub fn problem(&self) -> Option<String> {
        let mut seen: BTreeMap<String, &String> = BTreeMap::new();
        for (role, preset) in &self.roles {
            if preset.acp.is_some() && preset.model.is_some() {
                return Some(format!(
                    "swarm.roles.{role}: `model` cannot be combined with `acp`. Remove it, and set the model of the \
                     external agent in `acp.servers`"
                ));
            }
            if !is_role(role.trim()) {
                return Some(format!(
                    "swarm.roles: '{}' is not a valid role. Use 1 to 64 characters on one line, without brackets",
                    role.escape_debug()
                ));
            }
            if let Some(other) = seen.insert(fold(role), role) {
                return Some(format!("swarm.roles: '{other}' and '{role}' are the same role. Keep only one"));
            }
        }
        None
    }

    /// Returns the preset of a role.
    pub fn preset(&self, role: &str) -> Option<&SwarmRole> {
        let wanted = fold(role);
        self.roles.iter().find(|(name, _)| fold(name) == wanted).map(|(_, preset)| preset)
    }

    /// Returns the spec of the tool for the model. Callable agents are listed next to the presets.
    pub fn spec(&self, agents: &[&Agent]) -> ToolSpec {
        let presets = self.roles.keys().map(|role| role.trim().to_owned());
        let agents = agents.iter().map(|agent| sanitize_title(&agent.id, MAX_ROLE_CHARS));
        let mut listed: Vec<String> = presets.collect();
        listed.extend(agents.filter(|id| self.preset(id).is_none()));
        listed.truncate(MAX_LISTED_ROLES);
        let roles = if listed.is_empty() {
            format!("Use any role, e.g. {EXAMPLE_ROLES}.")
        } else {
            let listed = listed.join(", ");
            format!("Predefined roles: {listed}. Any other role works too, e.g. {EXAMPLE_ROLES}.")
        };
        let description = format!(
            "Delegate a self-contained task to a sub-agent and get its result. Use it for work that is large, needs \
a specialist, or can run in parallel (several calls in one reply run at once); do small tasks \
yourself. {roles}"
        );
        let schema = json!({
            "type": "object",
            "properties": {
                "role": { "type": "string", "description": "Role of the sub-agent" },
                "task": { "type": "string", "description": "Complete briefing: the sub-agent sees nothing of this conversation" },
                "tools": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Allowed tools (default: the role's, else yours)"
                }
            },
            "required": ["role", "task"]
        });
        ToolSpec::delegation(NAME, description, schema)
    }

    /// Parses a call. The checks follow the order of the contract: the recursion check precedes the arguments.
    pub fn parse(&self, depth: u32, authority: &Authority, arguments: &str) -> Result<Delegation, Refusal> {
        let limit = self.max_depth.min(authority.max_depth);
        if depth == 0 && limit == 0 {
            let setting = if self.max_depth == 0 { "swarm.max_depth" } else { "limits.max_depth" };
            return Err(format!("Delegation is disabled in configuration (`{setting}` is 0)").into());
        }
        if depth >= limit {
            return Err(
                "Cannot delegate from within a delegated task (recursion limit). Do the task yourself. \
                        The user can raise the limit with `swarm.max_depth` or `limits.max_depth`."
                    .into(),
            );
        }
        if !self.enabled {
            return Err("Delegation is disabled in configuration (`swarm.enabled` is false)".into());
        }
        let value = json::parse(arguments).map_err(|cause| format!("Invalid delegate input: {cause}"))?;
        let text =
            |key: &str| value.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let role = text("role").ok_or("Missing 'role' argument")?;
        let task = text("task").ok_or("Missing 'task' argument")?;
        if !is_role(role) {
            return Err(
                "Invalid 'role' argument: expected one line of 1 to 64 characters without brackets".into()
            );
        }
        let tools = whitelist(&value, authority)?;
        Ok(Delegation {
            style: DelegationStyle::Delegate,
            role: Some(role.to_owned()),
            task: Text::from(task),
            tools,
            ..Delegation::default()
        })
    }

    /// Builds the agent of the delegation's role.
    pub fn agent(&self, delegation: &Delegation) -> Agent {
        let role = delegation.role.as_deref().unwrap_or_default();
        let preset = self.preset(role);
        let prompt = preset.map(|preset| preset.system_prompt.clone()).filter(|prompt| !prompt.is_empty());
        let (id, name) = (fold(role), role.to_owned());
        let budget = preset.and_then(|preset| Budget::of(preset.tokens, preset.usd));
        if let Some(external) = preset.and_then(|preset| preset.acp.clone()) {
            let (prompt, backend) = (prompt.unwrap_or_default(), Backend::Acp(external));
            return Agent { id, name, prompt, backend, budget, ..Agent::default() };
        }
        let (prompt, guidance) =
            prompt.map_or_else(|| self.adhoc_prompt(role), |prompt| (prompt, Guidance::None));
        Agent { id, name, prompt, guidance, model: self.model_of(preset), budget, ..Agent::default() }
    }

    fn model_of(&self, preset: Option<&SwarmRole>) -> Option<String> {
        preset.and_then(|preset| preset.model.clone()).or_else(|| self.model.clone())
    }

    /// Builds the prompt of a role without one. A prompt from the config is used as it is.
    fn adhoc_prompt(&self, role: &str) -> (String, Guidance) {
        match &self.adhoc_prompt {
            Some(prompt) => (prompt.replace("{role}", role), Guidance::None),
            None => {
                let prompt = format!(
                    "You are {role}, a sub-agent. Do the task thoroughly and check your work. Your last reply is all that \
                     your caller sees: return the result, with evidence, changed files and open problems."
                );
                (prompt, Guidance::Role)
            }
        }
    }

    /// Returns the authority that the child requests, before it is attenuated to what the parent may lend.
    fn authority_request(&self, delegation: &Delegation, authority: &Authority) -> AuthorityRequest {
        let preset = delegation.role.as_deref().and_then(|role| self.preset(role));
        let defined = preset.map(|preset| resolve_list(&preset.tools, &authority.lend)).unwrap_or_default();
        let has_tools = !defined.is_empty();
        let locked = has_tools && preset.is_some_and(|preset| preset.locked);
        let mut not_in_definition = Vec::new();
        let tools = match &delegation.tools {
            Some(asked) if locked => {
                // A name that the parent cannot lend stays in the request, so that it is reported like any unknown
                // one.
                let stays = |name: &String| defined.contains(name) || !authority.lend.contains(name);
                let (allowed, rest) = asked.iter().cloned().partition(stays);
                not_in_definition = rest;
                Some(allowed)
            }
            Some(asked) => Some(asked.clone()),
            None => has_tools.then(|| defined.clone()),
        };
        let lend =
            preset.and_then(|preset| preset.lend.as_deref().map(|lend| resolve_list(lend, &authority.lend)));
        let sandbox = preset.and_then(|preset| preset.sandbox);
        AuthorityRequest { tools, defined, not_in_definition, lend, sandbox, ..AuthorityRequest::default() }
    }
}

impl Style for SwarmConfig {
    fn info(&self) -> StyleInfo {
        StyleInfo {
            is_enabled: self.enabled,
            max_active: Some(self.concurrency()),
            retention: self.keep,
            always_lends_message: true,
            ..StyleInfo::new(DelegationStyle::Delegate, &[NAME], self.max_depth)
        }
    }

    fn specs(&self, caller: &Caller<'_>) -> Vec<ToolSpec> {
        vec![self.spec(&caller.callable_agents())]
    }

    fn plan(&self, _tool: &str, caller: &Caller<'_>, arguments: &str) -> Result<DelegationPlan, Refusal> {
        self.parse(caller.depth, caller.authority, arguments).map(DelegationPlan::one)
    }

    /// A role without a preset can name a definition, which is then used like a dispatched one.
    fn definition(&self, delegation: &Delegation, caller: &Caller<'_>) -> Option<String> {
        let role = delegation.role.as_deref().filter(|role| self.preset(role).is_none())?;
        let wanted = fold(role);
        let is_meant = |agent: &&Agent| fold(&agent.id) == wanted || fold(&agent.name) == wanted;
        caller.callable_agents().into_iter().find(is_meant).map(|agent| agent.id.clone())
    }

    fn child(&self, delegation: &Delegation, caller: &Caller<'_>, definition: Option<Agent>) -> ChildSpec {
        match definition {
            Some(definition) => dispatch::defined_child(delegation, caller, definition),
            None => (self.agent(delegation), self.authority_request(delegation, caller.authority)),
        }
    }

    fn render(&self, delegation: &Delegation, outcome: &Outcome, limit: usize, handle: &str) -> ToolOutput {
        render(delegation, outcome, limit, handle)
    }

    /// Differs from the name of the style, because `delegate` is the single generation of style D.
    fn mode(&self, _delegation: &Delegation) -> &'static str {
        "role"
    }
}

/// Parses a whitelist. A malformed one is an error, so that it never counts as absent.
fn whitelist(value: &Value, authority: &Authority) -> Result<Option<Vec<String>>, Refusal> {
    const REFUSAL: &str = "Invalid 'tools' argument: expected an array of strings";
    match value.get("tools") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => {
            let names: Option<Vec<String>> =
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            names.map(|names| Some(resolve_list(&names, &authority.lend))).ok_or_else(|| REFUSAL.into())
        }
        Some(_) => Err(REFUSAL.into()),
    }
}

/// Renders the result for the caller's model. `handle` names the source of the full text.
pub fn render(delegation: &Delegation, outcome: &Outcome, limit: usize, handle: &str) -> ToolOutput {
    let role = delegation.role.as_deref().unwrap_or_default();
    let text = truncate_with_handle(outcome.text.as_str(), limit, handle);
    let failure = render_failure(&format!("Sub-agent '{role}'"), outcome, &text);
    failure.unwrap_or_else(|| {
        let text = match outcome.status {
            Status::Detached => format!("still running in the background as session {handle}"),
            _ => text,
        };
        ToolOutput::ok(format!("[{role}]: {text}{}", last_line(outcome)))
    })
}

#[cfg(test)]
mod tests;
