//! Checks of the options of a builder.

use std::collections::BTreeSet;

use brigade_core::Agent;
use brigade_core::delegation_styles::spawn::SpawnConfig;
use brigade_core::delegation_styles::subagent::SubagentConfig;
use brigade_core::delegation_styles::{DELEGATION_TOOLS, MESSAGE_TOOL, resolve_model};
use brigade_core::permission::{Permissions, Rule};
use brigade_core::tool_names;

use super::BuildError;
use crate::agents::is_id;
use crate::skills::SKILL;
use crate::{Models, Settings, Toolbox};

/// Prefixes of the tools of MCP servers and external agents.
const SERVER_PREFIXES: [&str; 2] = ["mcp__", "acp__"];

/// Tools that the runtime offers to agents with children.
const CHILD_TOOLS: [&str; 3] = ["tell", "stop", "read_result"];

/// Returns the names of all tools that definitions and rules can name: those of a toolbox, the delegation tools, and
/// built-in tools that may be disabled.
pub fn known_tools(tools: &Toolbox) -> BTreeSet<&str> {
    let mut known: BTreeSet<&str> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
    known.extend([MESSAGE_TOOL, SKILL].iter().chain(&DELEGATION_TOOLS));
    #[cfg(feature = "web")]
    known.insert(<crate::tool::WebSearch as crate::Tool>::NAME);
    #[cfg(feature = "memory")]
    known.extend(crate::tool::memory::TOOLS);
    known
}

fn list_of(tools: &BTreeSet<&str>) -> String {
    tools.iter().copied().collect::<Vec<_>>().join(", ")
}

/// Returns the first rule that names no tool, and its list. Rules match names exactly, so a rule with a misspelled name,
/// or with the name that another program uses, would protect nothing.
pub fn unmatched_rule<'a>(permissions: &'a Permissions, tools: &Toolbox) -> Option<(&'static str, &'a Rule)> {
    let known = known_tools(tools);
    let is_known = |name: &str| {
        known.contains(name)
            || tool_names::BUILTIN.contains(&name)
            || SERVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let lists = [("allow", &permissions.allow), ("ask", &permissions.ask), ("deny", &permissions.deny)];
    lists
        .into_iter()
        .find_map(|(list, rules)| rules.iter().find(|rule| !is_known(rule.tool())).map(|rule| (list, rule)))
}

/// Whether an own tool can have this name.
pub(super) fn is_tool_name(name: &str) -> bool {
    let is_reserved = name == MESSAGE_TOOL
        || name == SKILL
        || DELEGATION_TOOLS.contains(&name)
        || CHILD_TOOLS.contains(&name)
        || SERVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    !is_reserved && (1..=64).contains(&name.len()) && name.bytes().all(is_valid)
}

/// Checks an agent before it is added to the settings.
pub(super) fn check_agent(agent: &Agent, settings: &Settings, models: &Models) -> Result<(), BuildError> {
    let id = &agent.id;
    if !is_id(id) {
        return Err(BuildError::AgentId(id.clone()));
    }
    if *id == settings.lead.id || settings.agents.list().iter().any(|other| other.id == *id) {
        return Err(BuildError::DuplicateAgent(id.clone()));
    }
    check_tools_and_model(agent, settings, models)
}

/// Checks everything that refers to tools or models by name.
pub(super) fn check_settings(settings: &Settings, models: &Models) -> Result<(), BuildError> {
    check_tools_and_model(&settings.lead, settings, models)?;
    for fallback in &settings.fallbacks {
        let unusable = |cause| BuildError::Model { user: "the fallbacks".to_owned(), cause };
        models.choose(fallback).map_err(unusable)?;
    }
    if let Some((list, rule)) = unmatched_rule(&settings.permissions, &settings.tools) {
        return Err(BuildError::UnknownTool {
            user: format!("the {list} rules"),
            tool: rule.tool().to_owned(),
            known: rule.builtin_equivalent().unwrap_or_else(|| list_of(&known_tools(&settings.tools))),
        });
    }
    let styles = &settings.delegation_styles;
    let problem = styles.swarm.problem();
    let problem = problem.or_else(|| styles.subagent.as_ref().and_then(SubagentConfig::problem));
    match problem.or_else(|| styles.spawn.as_ref().and_then(SpawnConfig::problem)) {
        Some(problem) => Err(BuildError::Delegation(problem)),
        None => Ok(()),
    }
}

fn check_tools_and_model(agent: &Agent, settings: &Settings, models: &Models) -> Result<(), BuildError> {
    let user = format!("the agent '{}'", agent.id);
    let lists = [agent.tools.as_ref(), agent.lend.as_ref()];
    let names = lists.into_iter().flatten().flatten().map(String::as_str);
    check_tool_names(names, &user, &settings.tools)?;
    let usual = Agent { model: Some(settings.model.clone()), ..Agent::default() };
    let mut resolved = agent.clone();
    resolve_model(&mut resolved, &usual);
    let names = resolved.model.iter().chain(&resolved.fallbacks);
    for name in names {
        models.choose(name).map_err(|cause| BuildError::Model { user: user.clone(), cause })?;
    }
    Ok(())
}

/// Fails if a tool does not exist. A list with a misspelled name would silently grant nothing.
fn check_tool_names<'a>(
    names: impl Iterator<Item = &'a str>,
    user: &str,
    tools: &Toolbox,
) -> Result<(), BuildError> {
    let known = known_tools(tools);
    for name in names {
        let canonical = tool_names::canonical(name.trim());
        let exists = known.contains(&*canonical)
            || !tool_names::resolve(name).is_empty()
            || SERVER_PREFIXES.iter().any(|prefix| canonical.starts_with(prefix));
        if !exists {
            return Err(BuildError::UnknownTool {
                user: user.to_owned(),
                tool: name.to_owned(),
                known: list_of(&known),
            });
        }
    }
    Ok(())
}
