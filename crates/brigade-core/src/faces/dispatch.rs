//! Face C: `subagent_dispatch`, a task for an agent that is defined in a file.

use serde_json::{Value, json};

use super::delegate::is_role;
use super::{Caller, MESSAGE, failure, inert, names, shown, so_far};
use crate::agent::{Agent, normalised_id};
use crate::delegation::{Delegation, Face, Outcome, Status};
use crate::grant::Wish;
use crate::json;
use crate::message::{Category, ToolOutput, ToolSpec};
use crate::text::Text;

/// The tool's name.
pub const NAME: &str = "subagent_dispatch";

/// How much of an agent's description its callers read, in characters.
const LISTED_DESCRIPTION: usize = 160;

/// What the model is told about the tool; nothing where there is nobody to dispatch to.
pub fn spec(others: &[&Agent]) -> Option<ToolSpec> {
    if others.is_empty() {
        return None;
    }
    let agent = |agent: &&Agent| {
        let description = inert_line(&agent.description);
        format!("<agent id=\"{}\">{}</agent>", escape(&agent.id), escape(&description))
    };
    let listed: Vec<String> = others.iter().map(agent).collect();
    let ids: Vec<&str> = others.iter().map(|agent| agent.id.as_str()).collect();
    Some(ToolSpec {
        name: NAME.to_owned(),
        description: format!(
            "Dispatch a task to a specialized subagent. It works in a session of its own that can be continued later; \
             the result comes back as JSON with `result` and `session_id`.\n<available_agents>\n{}\n</available_agents>",
            listed.join("\n")
        ),
        schema: json!({
            "type": "object",
            "properties": {
                "agent_id": { "type": "string", "enum": ids, "description": "Who is to do it" },
                "task": { "type": "string", "description": "What to do" },
                "context": { "type": "string", "default": "", "description": "What to know for it" }
            },
            "required": ["agent_id", "task"]
        }),
        category: Category::Subagent,
    })
}

fn inert_line(description: &str) -> String {
    let line = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    match line.char_indices().nth(LISTED_DESCRIPTION) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Reads a call. Whether the definition can be loaded is seen when it is.
pub fn parse(caller: &Caller<'_>, arguments: &str) -> Result<Delegation, String> {
    let value = json::parse(arguments).map_err(|cause| format!("Invalid {NAME} input: {cause}"))?;
    let text =
        |key: &str| value.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let id = text("agent_id").ok_or("Missing 'agent_id' argument")?;
    let task = text("task").ok_or("Missing 'task' argument")?;
    // A folder may be named otherwise than the id that it has: `My Agent` is `my-agent`.
    let known = |id: &str| caller.agents.iter().map(|agent| agent.id.as_str()).find(|known| *known == id);
    let id = known(id).or_else(|| known(&normalised_id(id)?)).unwrap_or(id);
    if id == caller.agent.id || !caller.authority.agents.has(id) || !is_role(id) {
        return Err(not_found(id));
    }
    let context = match value.get("context") {
        None | Some(Value::Null) => None,
        Some(Value::String(context)) => Some(context).filter(|context| !context.trim().is_empty()),
        Some(_) => return Err("Invalid 'context' argument: expected a string".to_owned()),
    };
    Ok(Delegation {
        face: Face::Dispatch,
        agent: Some(id.to_owned()),
        task: Text::from(task),
        context: context.map(|context| Text::from(context.as_str())),
        ..Delegation::default()
    })
}

/// What the caller reads about an id that nobody has.
pub fn not_found(id: &str) -> String {
    format!("Agent '{}' not found", inert(id, 64))
}

/// The definition and what it is to be given. It is always locked: a call can only narrow it.
pub(super) fn equip(part: &Delegation, caller: &Caller<'_>, definition: Agent) -> (Agent, Wish) {
    let named = |list: &[String]| names(list, &caller.authority.lend);
    let own = definition.tools.as_deref().map(named);
    let mut lacking = Vec::new();
    let tools = match (&part.tools, &own) {
        (Some(asked), Some(own)) => {
            let (kept, rest) = asked.iter().cloned().partition(|name| own.contains(name));
            lacking = rest;
            Some(kept)
        }
        (Some(asked), None) => Some(asked.clone()),
        (None, own) => own.clone(),
    };
    // An agent of this face speaks to the person only where its definition says so.
    let speaks = tools.as_ref().is_some_and(|tools: &Vec<String>| tools.iter().any(|tool| tool == MESSAGE));
    let never = if speaks || part.face != Face::Dispatch { Vec::new() } else { vec![MESSAGE.to_owned()] };
    let lend = definition.lend.as_deref().map(named);
    let (defined, mode, deny) = (own.unwrap_or_default(), definition.mode, definition.deny.clone());
    let wish = Wish { tools, defined, lacking, lend, mode, deny, never, ..Wish::default() };
    (definition, wish)
}

/// What the caller's model reads when the agent has ended.
pub fn render(part: &Delegation, outcome: &Outcome, limit: usize, handle: &str) -> ToolOutput {
    let id = part.agent.as_deref().unwrap_or_default();
    let text = shown(outcome.text.as_str(), limit, handle);
    let note = outcome.note().map(|note| format!("\n{note}")).unwrap_or_default();
    match failure(&outcome.status) {
        Some(cause) => {
            let so_far = so_far(if outcome.text.is_empty() { "" } else { &text });
            ToolOutput::error(format!("Agent '{id}' failed: {cause}{so_far}{note}"))
        }
        None => {
            let text = if outcome.status == Status::Detached { "goes on by itself".to_owned() } else { text };
            ToolOutput::ok(json!({ "result": format!("{text}{note}"), "session_id": handle }).to_string())
        }
    }
}

#[cfg(test)]
mod tests;
