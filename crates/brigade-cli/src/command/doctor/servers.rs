//! Checks of MCP servers.

use std::collections::BTreeMap;

use brigade::mcp::{ServerConfig, Transport};

use super::{Finding, block_on};
use crate::error::CliError;
use crate::settings::{McpServer, Settings};
use crate::setup;
use crate::units;

/// Starts each server and counts its tools. Only lists them if offline.
pub(super) fn findings(settings: &Settings, offline: bool) -> Result<Vec<Finding>, CliError> {
    if settings.servers.is_empty() {
        return Ok(vec![Finding::note(
            "none. Define them under `mcpServers` in the configuration, or in the .mcp.json file of a project.",
        )]);
    }
    let (disabled, wanted): (Vec<&McpServer>, Vec<&McpServer>) =
        settings.servers.iter().partition(|server| server.is_disabled);
    let disabled =
        disabled.into_iter().map(|server| Finding::note(format!("{}: disabled, not started", server.name)));
    let sandboxes = sandboxes(settings)?;
    let sandbox = |name: &str| sandboxes.get(&name.to_ascii_lowercase()).cloned().unwrap_or_default();
    if offline {
        let named = wanted
            .iter()
            .map(|server| Finding::note(format!("{}: not started{}", server.name, sandbox(&server.name))));
        return Ok(named.chain(disabled).collect());
    }
    let (servers, problems) = block_on(setup::try_start_mcp_servers(settings))??;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for tool in servers.tools() {
        let server = tool.spec().name.split("__").nth(1).unwrap_or_default();
        *counts.entry(server.to_owned()).or_default() += 1;
    }
    let found = |(name, tools): (String, usize)| {
        Finding::ok(format!("{name}: {}{}", units::count::<usize>(tools, "tool"), sandbox(&name)))
    };
    let mut findings: Vec<Finding> = counts.into_iter().map(found).collect();
    findings.extend(disabled);
    findings.extend(problems.iter().map(|problem| {
        Finding::warn(problem.to_string(), "Fix its entry in `mcpServers`; runs continue without it")
    }));
    Ok(findings)
}

/// Sandboxes of the servers that are programs, as the end of a finding, by name in lower case.
fn sandboxes(settings: &Settings) -> Result<BTreeMap<String, String>, CliError> {
    let (definitions, _) = settings.mcp_definitions(&setup::guard_command()?);
    let sandbox = |definition: ServerConfig| match definition.transport {
        Transport::Stdio(program) => {
            Some((definition.name.to_ascii_lowercase(), format!(", {}", program.sandbox.description())))
        }
        Transport::Http(_) => None,
    };
    Ok(definitions.into_iter().filter_map(sandbox).collect())
}
