//! Style C: `subagent_dispatch`, a task for an agent that is defined in a file.

use serde_json::{Value, json};

use super::MESSAGE_TOOL;
use super::delegate::is_role;
use super::results::{last_line, render_failure, truncate_with_handle};
use super::style::{Caller, ChildSpec, DelegationPlan, Style, StyleInfo, check_depth};
use super::titles::sanitize_title;
use crate::agent::{Agent, normalised_id};
use crate::delegation::{Delegation, DelegationStyle, Outcome, Status};
use crate::grant::AuthorityRequest;
use crate::json;
use crate::message::{Refusal, ToolOutput, ToolSpec};
use crate::text::Text;
use crate::tool_names::resolve_list;

/// Name of the tool.
pub const NAME: &str = "subagent_dispatch";

/// The style. It has no settings of its own.
pub(super) struct Dispatch;

/// Maximum length of an agent's description for its callers, in characters.
const MAX_DESCRIPTION_CHARS: usize = 160;

/// Returns the spec of the tool for the model; `None` if there is no agent to dispatch to.
fn spec(agents: &[&Agent]) -> Option<ToolSpec> {
    if agents.is_empty() {
        return None;
    }
    let agent = |agent: &&Agent| {
        let description = sanitize_description(&agent.description);
        format!("<agent id=\"{}\">{}</agent>", escape(&agent.id), escape(&description))
    };
    let listed: Vec<String> = agents.iter().map(agent).collect();
    let ids: Vec<&str> = agents.iter().map(|agent| agent.id.as_str()).collect();
    let description = format!(
        "Dispatch a task to a specialized subagent. It works in its own session, which the user can resume later. Returns \
             JSON with `result` and `session_id`. Do small tasks yourself.\n<available_agents>\n{}\n</available_agents>",
        listed.join("\n")
    );
    let schema = json!({
        "type": "object",
        "properties": {
            "agent_id": { "type": "string", "enum": ids, "description": "Agent to run" },
            "task": { "type": "string", "description": "Complete briefing: the agent sees nothing of this conversation" },
            "context": { "type": "string", "default": "", "description": "Background that the task needs" }
        },
        "required": ["agent_id", "task"]
    });
    Some(ToolSpec::delegation(NAME, description, schema))
}

fn sanitize_description(description: &str) -> String {
    let line = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    match line.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Parses a call. The definition is loaded later.
fn parse(caller: &Caller<'_>, arguments: &str) -> Result<Delegation, Refusal> {
    let value = json::parse(arguments).map_err(|cause| format!("Invalid {NAME} input: {cause}"))?;
    let text =
        |key: &str| value.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let id = text("agent_id").ok_or("Missing 'agent_id' argument")?;
    let task = text("task").ok_or("Missing 'task' argument")?;
    // A folder name may differ from its id: `My Agent` is `my-agent`.
    let known = |id: &str| caller.agents.iter().map(|agent| agent.id.as_str()).find(|known| *known == id);
    let id = known(id).or_else(|| known(&normalised_id(id)?)).unwrap_or(id);
    if id == caller.agent.id || !caller.authority.agents.has(id) || !is_role(id) {
        return Err(not_found(id).into());
    }
    let context = match value.get("context") {
        None | Some(Value::Null) => None,
        Some(Value::String(context)) => Some(context).filter(|context| !context.trim().is_empty()),
        Some(_) => return Err("Invalid 'context' argument: expected a string".into()),
    };
    Ok(Delegation {
        style: DelegationStyle::Dispatch,
        agent: Some(id.to_owned()),
        task: Text::from(task),
        context: context.map(|context| Text::from(context.as_str())),
        ..Delegation::default()
    })
}

/// Error for the caller about an unknown id.
pub fn not_found(id: &str) -> String {
    format!("Agent '{}' not found", sanitize_title(id, 64))
}

/// Returns a definition and the authority it requests. It is always locked: a call can only narrow it.
pub(super) fn defined_child(delegation: &Delegation, caller: &Caller<'_>, definition: Agent) -> ChildSpec {
    let named = |list: &[String]| resolve_list(list, &caller.authority.lend);
    let defined_tools = definition.tools.as_deref().map(named);
    let mut not_in_definition = Vec::new();
    let tools = match (&delegation.tools, &defined_tools) {
        (Some(asked), Some(defined_tools)) => {
            let (allowed, rest) = asked.iter().cloned().partition(|name| defined_tools.contains(name));
            not_in_definition = rest;
            Some(allowed)
        }
        (Some(asked), None) => Some(asked.clone()),
        (None, defined_tools) => defined_tools.clone(),
    };
    let lend = definition.lend.as_deref().map(named);
    let (defined, mode, deny) = (defined_tools.unwrap_or_default(), definition.mode, definition.deny.clone());
    let request = AuthorityRequest {
        tools,
        defined,
        not_in_definition,
        lend,
        mode,
        sandbox: definition.sandbox,
        deny,
        ..AuthorityRequest::default()
    };
    (definition, request)
}

impl Style for Dispatch {
    fn info(&self) -> StyleInfo {
        let info = StyleInfo::new(DelegationStyle::Dispatch, &[NAME], u32::MAX);
        StyleInfo { always_resolves: true, ..info }
    }

    fn specs(&self, caller: &Caller<'_>) -> Vec<ToolSpec> {
        spec(&caller.callable_agents()).into_iter().collect()
    }

    fn plan(&self, _tool: &str, caller: &Caller<'_>, arguments: &str) -> Result<DelegationPlan, Refusal> {
        check_depth(self, caller, "`limits.max_depth`")?;
        parse(caller, arguments).map(DelegationPlan::one)
    }

    fn definition(&self, delegation: &Delegation, _caller: &Caller<'_>) -> Option<String> {
        delegation.agent.clone()
    }

    fn child(&self, delegation: &Delegation, caller: &Caller<'_>, definition: Option<Agent>) -> ChildSpec {
        let (agent, mut request) = defined_child(delegation, caller, definition.unwrap_or_default());
        // An agent of this style can message the user only if its definition lists the tool.
        if !request.tools.as_ref().is_some_and(|tools| tools.iter().any(|tool| tool == MESSAGE_TOOL)) {
            request.excluded.push(MESSAGE_TOOL.to_owned());
        }
        (agent, request)
    }

    fn render(&self, delegation: &Delegation, outcome: &Outcome, limit: usize, handle: &str) -> ToolOutput {
        let id = delegation.agent.as_deref().unwrap_or_default();
        let text = truncate_with_handle(outcome.text.as_str(), limit, handle);
        render_failure(&format!("Agent '{id}'"), outcome, &text).unwrap_or_else(|| {
            let text = match outcome.status {
                Status::Detached => "still running in the background".to_owned(),
                _ => text,
            };
            let result = format!("{text}{}", last_line(outcome));
            ToolOutput::ok(json!({ "result": result, "session_id": handle }).to_string())
        })
    }
}

#[cfg(test)]
mod tests;
