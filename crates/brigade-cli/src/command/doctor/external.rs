//! Checks of external agents.

use brigade::sandbox::ServerSandbox;
use brigade_core::permission::Mode;

use super::{Finding, block_on};
use crate::error::CliError;
use crate::settings::Settings;
use crate::setup;

/// Starts each external agent and initializes a connection. Only lists them if offline.
pub(super) fn findings(settings: &Settings, offline: bool) -> Result<Vec<Finding>, CliError> {
    if settings.acp.is_empty() {
        return Ok(vec![Finding::note("none. Define them under `acp.servers` in the configuration.")]);
    }
    let (servers, _) = settings.acp_servers(&setup::guard_command()?);
    let sandbox = |name: &str| {
        let server = servers.iter().find(|server| server.name == name);
        server.map(|server| describe(&server.sandbox)).unwrap_or_default()
    };
    if offline {
        let names = settings.acp.iter().map(|server| server.name.as_str());
        return Ok(names
            .map(|name| Finding::note(format!("{name}: not started{}", sandbox(name))))
            .collect());
    }
    block_on(async {
        let (acp, problems) = setup::external_agents(settings)?;
        let fix = "Fix its entry in `acp.servers`; runs continue without it";
        let mut findings = Vec::new();
        for server in &settings.acp {
            let problem =
                problems.iter().find(|(name, _)| *name == server.name).map(|(_, what)| what.clone());
            let found = match problem {
                Some(what) => Err(what),
                None => acp.probe(&server.name).await.map_err(|error| error.to_string()),
            };
            findings.push(match found {
                Ok(title) => {
                    let title = if title.is_empty() { "responds" } else { &title };
                    Finding::ok(format!("{}: {title}{}", server.name, sandbox(&server.name)))
                }
                Err(what) => Finding::warn(format!("{}: {what}", server.name), fix),
            });
        }
        Ok(findings)
    })?
}

/// Describes the sandbox of an agent in each mode, as the end of a finding.
fn describe(sandbox: &ServerSandbox) -> String {
    let text = sandbox.description();
    let narrowed: Vec<String> = [Mode::Plan, Mode::Ask]
        .into_iter()
        .map(|mode| (mode, sandbox.for_session(mode, None).mode()))
        .filter(|(_, own)| *own != sandbox.mode())
        .map(|(mode, own)| format!("{own} in mode {mode}"))
        .collect();
    match narrowed.is_empty() {
        true => format!(", {text}"),
        false => format!(", {text} ({})", narrowed.join(", ")),
    }
}
