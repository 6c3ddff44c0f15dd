//! Style D: `subagent_spawn`, a nested loop, and `subagent_delegate`, a single generation.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::delegate::fold;
use super::results::{render_helper, truncate_with_handle};
use super::style::{Caller, ChildSpec, DelegationPlan, Style, StyleInfo, check_depth};
use super::titles::{Title, sanitize_title};
use crate::agent::{Agent, Backend, Guidance};
use crate::delegation::{Delegation, DelegationStyle, Outcome};
use crate::grant::AuthorityRequest;
use crate::json;
use crate::message::{Refusal, ToolOutput, ToolSpec};
use crate::text::Text;

/// Tool that runs a nested loop.
pub const NAME: &str = "subagent_spawn";
/// Tool that runs one generation.
pub const DELEGATE_NAME: &str = "subagent_delegate";

const SYSTEM_PROMPT: &str = "You are a sub-agent with one task. Do it and check your work. Your last reply is all that your caller sees: return the \
     result.";

/// Section `spawn` of the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SpawnConfig {
    /// Maximum depth; at this depth the tools are absent.
    pub max_depth: u32,
    /// Default maximum number of model calls of a sub-agent.
    #[cfg_attr(feature = "schemars", schemars(range(min = 1)))]
    pub default_max_turns: u32,
    /// Default server of `subagent_delegate`, by its name in `acp.servers`. `subagent_spawn` always runs a local loop.
    pub server: Option<String>,
    /// Default agent of that server.
    pub agent: Option<String>,
    /// Default system prompt of `subagent_spawn`.
    pub system_prompt: Option<String>,
}

/// Settings of a style without a section.
pub(super) static DEFAULT: SpawnConfig =
    SpawnConfig { max_depth: 2, default_max_turns: 10, server: None, agent: None, system_prompt: None };

impl Default for SpawnConfig {
    fn default() -> SpawnConfig {
        DEFAULT.clone()
    }
}

impl SpawnConfig {
    /// Returns the problem of the section for the user, if it has one.
    pub fn problem(&self) -> Option<String> {
        if self.default_max_turns == 0 {
            return Some("`spawn.default_max_turns` must be at least 1".to_owned());
        }
        (self.agent.is_some() && self.server.is_none()).then(|| {
            "`spawn.agent` requires `spawn.server`, which is not set. Set it, or remove `spawn.agent`"
                .to_owned()
        })
    }

    /// Parses a call of `subagent_spawn`.
    fn parse(&self, arguments: &str) -> Result<Delegation, Refusal> {
        let value = json::parse(arguments).map_err(|cause| format!("Invalid {NAME} input: {cause}"))?;
        let turns = match value.get("maxTurns").and_then(number) {
            None => self.default_max_turns,
            Some(turns) => positive_integer(&turns).ok_or("`maxTurns` must be an integer greater than 0")?,
        };
        // Anything but a string falls back to the configured prompt.
        let prompt = value.get("systemPrompt").and_then(Value::as_str).map(str::trim);
        let prompt = prompt.filter(|prompt| !prompt.is_empty()).map(str::to_owned);
        let prompt = prompt.or_else(|| self.system_prompt.clone());
        Ok(Delegation {
            turns: Some(turns),
            system_prompt: prompt.map(Text::from),
            ..parse_common(&value, "Subagent task")?
        })
    }

    /// Parses a call of `subagent_delegate`.
    fn parse_delegate(&self, arguments: &str) -> Result<Delegation, Refusal> {
        let value =
            json::parse(arguments).map_err(|cause| format!("Invalid {DELEGATE_NAME} input: {cause}"))?;
        let delegation = parse_common(&value, "Delegated task")?;
        let (server, agent) = (optional_text(&value, "serverName")?, optional_text(&value, "agentId")?);
        let external = self.external(server, agent)?;
        Ok(Delegation { turns: Some(1), tools: Some(Vec::new()), single: true, external, ..delegation })
    }

    /// Returns the external agent of a call: from the call, else from the section, else none. An agent belongs to
    /// its server, so the section's agent counts only for the section's server.
    fn external(&self, server: Option<String>, agent: Option<String>) -> Result<Option<String>, Refusal> {
        let configured = server.is_none() || server == self.server;
        let agent = agent.or_else(|| self.agent.clone().filter(|_| configured));
        let Some(server) = server.or_else(|| self.server.clone()) else {
            return match agent {
                Some(agent) => Err(format!(
                    "`agentId` '{}' requires a server. Set `serverName`, or `spawn.server` in the configuration.",
                    sanitize_title(&agent, 64)
                ).into()),
                None => Ok(None),
            };
        };
        if server.contains('/') {
            return Err(format!(
                "Invalid `serverName` '{}': a server name cannot contain `/`",
                sanitize_title(&server, 64)
            )
            .into());
        }
        Ok(Some(match agent {
            Some(agent) => format!("{server}/{agent}"),
            None => server,
        }))
    }
}

/// Converts a value to a number. A number in a string counts, so that a call never gets more turns than it names;
/// other types count as absent.
fn number(value: &Value) -> Option<Value> {
    match value {
        Value::Number(_) => Some(value.clone()),
        Value::String(text) => text.trim().parse().ok().map(Value::Number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses an integer of at least one, even if it is written as `5.0`.
fn positive_integer(value: &Value) -> Option<u32> {
    let number = value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&number)).then_some(number as u64)
    })?;
    u32::try_from(number).ok().filter(|number| *number > 0)
}

fn optional_text(value: &Value, key: &str) -> Result<Option<String>, Refusal> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("Invalid '{key}' argument: expected a string").into()),
    }
}

fn parse_common(value: &Value, untitled: &str) -> Result<Delegation, Refusal> {
    let task = optional_text(value, "task")?.ok_or("Missing 'task' argument")?;
    // A description only names the task, so any value is converted to text.
    let description = match value.get("description") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Title::of(text),
        Some(other) => Title::of(&other.to_string()),
    };
    let description = description.unwrap_or_else(|| Title { display: untitled.to_owned(), original: None });
    Ok(Delegation {
        style: DelegationStyle::Spawn,
        role: Some(description.display),
        title: description.original,
        task: Text::from(task),
        ..Delegation::default()
    })
}

/// Returns the spec of `subagent_spawn` for the model.
fn spec(config: &SpawnConfig) -> ToolSpec {
    let default_turns = config.default_max_turns;
    let description = "Run a sub-agent with your tools and get its final text. Use it for large or separable work, with \
several calls in one reply to run in parallel; do small tasks yourself.";
    let schema = json!({
        "type": "object",
        "properties": {
            "task": { "type": "string", "description": "Complete briefing: the sub-agent sees nothing of this conversation" },
            "description": { "type": "string", "description": "Short title, shown to the user" },
            "maxTurns": {
                "type": "number",
                "default": default_turns,
                "description": format!("Maximum number of replies (default: {default_turns})")
            },
            "systemPrompt": { "type": "string", "description": "Replaces the default system prompt" }
        },
        "required": ["task", "description"]
    });
    ToolSpec::delegation(NAME, description, schema)
}

/// Returns the spec of `subagent_delegate` for the model.
fn delegate_spec() -> ToolSpec {
    let description =
        "Get one answer, without tools, from an external agent, or from the model if no agent is named.";
    let schema = json!({
        "type": "object",
        "properties": {
            "task": { "type": "string", "description": "Complete question: the agent sees nothing of this conversation" },
            "description": { "type": "string", "description": "Short title, shown to the user" },
            "serverName": { "type": "string", "description": "Server of the external agent" },
            "agentId": { "type": "string", "description": "Agent on that server" }
        },
        "required": ["task", "description"]
    });
    ToolSpec::delegation(DELEGATE_NAME, description, schema)
}

impl Style for SpawnConfig {
    fn info(&self) -> StyleInfo {
        StyleInfo {
            tools_without_extras: &[DELEGATE_NAME],
            extends_titles: true,
            is_numbered: true,
            ..StyleInfo::new(DelegationStyle::Spawn, &[NAME, DELEGATE_NAME], self.max_depth)
        }
    }

    fn specs(&self, _caller: &Caller<'_>) -> Vec<ToolSpec> {
        vec![spec(self), delegate_spec()]
    }

    fn plan(&self, tool: &str, caller: &Caller<'_>, arguments: &str) -> Result<DelegationPlan, Refusal> {
        check_depth(self, caller, "`spawn.max_depth` or `limits.max_depth`")?;
        let is_single = tool == DELEGATE_NAME;
        let delegation = if is_single { self.parse_delegate(arguments) } else { self.parse(arguments) };
        delegation.map(DelegationPlan::one)
    }

    /// A sub-agent requests all that its caller may use, or nothing for a single generation.
    fn child(&self, delegation: &Delegation, caller: &Caller<'_>, _definition: Option<Agent>) -> ChildSpec {
        let name = delegation.role.clone().unwrap_or_default();
        let backend = delegation.external.clone().map_or(Backend::Here, Backend::Acp);
        let (prompt, guidance) = match (&backend, &delegation.system_prompt) {
            (_, Some(prompt)) => (prompt.to_string(), Guidance::None),
            // An external agent has its own system prompt.
            (Backend::Acp(_), None) => (String::new(), Guidance::None),
            (Backend::Here | Backend::Remote, None) => (SYSTEM_PROMPT.to_owned(), Guidance::Helper),
        };
        let agent = Agent { id: fold(&name), name, prompt, guidance, backend, ..Agent::default() };
        let tools =
            if delegation.single { Vec::new() } else { caller.authority.own_tools().into_iter().collect() };
        (agent, AuthorityRequest { tools: Some(tools), ..AuthorityRequest::default() })
    }

    fn render(&self, delegation: &Delegation, outcome: &Outcome, limit: usize, handle: &str) -> ToolOutput {
        let description = delegation.role.as_deref().unwrap_or_default();
        let text = truncate_with_handle(outcome.text.as_str(), limit, handle);
        render_helper(description, outcome, &text, handle)
    }

    fn mode(&self, delegation: &Delegation) -> &'static str {
        if delegation.single { "delegate" } else { DelegationStyle::Spawn.name() }
    }
}

#[cfg(test)]
mod tests;
