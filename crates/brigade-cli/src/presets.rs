//! Checks of the presets in `swarm.roles`.

use brigade::{Toolbox, known_tools};
use brigade_core::tool_names;

use crate::settings::{Settings, did_you_mean};

/// Messages about unknown tools in presets. A tool of an MCP server is known if its server is defined.
pub(crate) fn unknown_tools(settings: &Settings, tools: &Toolbox) -> Vec<String> {
    let known = known_tools(tools);
    let is_of_server = |name: &str| {
        let mut prefixes =
            settings.servers.iter().map(|server| format!("mcp__{}__", server.name.to_lowercase()));
        prefixes.any(|prefix| name.starts_with(&prefix))
    };
    let exists = |name: &str| {
        let name = name.trim();
        known.contains(name)
            || !tool_names::resolve(name).is_empty()
            || is_of_server(&tool_names::canonical(name))
    };
    let mut unknown = Vec::new();
    for (role, preset) in &settings.delegation_styles.swarm.roles {
        let lists = [("tools", Some(&preset.tools)), ("lend", preset.lend.as_ref())];
        for (list, names) in lists {
            for name in names.into_iter().flatten().filter(|name| !exists(name)) {
                let near = did_you_mean(name, known.iter().copied());
                let near = near.map_or_else(String::new, |near| format!(". Did you mean '{near}'?"));
                unknown.push(format!("swarm.roles.{role}.{list}: unknown tool '{name}'{near}"));
            }
        }
    }
    unknown
}
