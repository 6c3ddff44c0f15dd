//! Checks of external agents.

use super::{Finding, block_on};
use crate::error::CliError;
use crate::settings::Settings;
use crate::setup;

/// Starts each external agent and initializes a connection. Only lists them if offline.
pub(super) fn findings(settings: &Settings, offline: bool) -> Result<Vec<Finding>, CliError> {
    if settings.acp.is_empty() {
        return Ok(vec![Finding::note("none. Define them under `acp.servers` in the configuration.")]);
    }
    if offline {
        let names = settings.acp.iter().map(|server| server.name.as_str());
        return Ok(names.map(|name| Finding::note(format!("{name}: not started"))).collect());
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
                Ok(title) if title.is_empty() => Finding::ok(format!("{}: responds", server.name)),
                Ok(title) => Finding::ok(format!("{}: {title}", server.name)),
                Err(what) => Finding::warn(format!("{}: {what}", server.name), fix),
            });
        }
        Ok(findings)
    })?
}
