//! Section `acp`: external agents.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use brigade::Secret;
use brigade::external::ExternalLimits;
use brigade_acp::client::{AgentOptions, AgentServer, DEFAULT_MAX_SESSIONS, DEFAULT_START_TIMEOUT};
use brigade_core::delegation_styles::DelegationStyles;
use brigade_sandbox::GuardCommand;
use serde::Deserialize;
use toml::Value;

use super::servers::{expand_variables, passed_variables, variable};
use super::{Settings, duration, keys, layers};
use crate::error::CliError;

/// Maximum length of the name of a server, which is part of tool names.
const MAX_NAME_BYTES: usize = 32;

/// Raw section.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawAcp {
    servers: BTreeMap<String, RawServer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawServer {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    mode: Option<String>,
    model: Option<String>,
    pool: Option<bool>,
    max_sessions: Option<usize>,
    start_timeout: Option<Value>,
    timeout: Option<Value>,
    turns: Option<u32>,
    tokens: Option<u64>,
    usd: Option<Value>,
    max_agents: u64,
    allow_in_plan: bool,
    agents: BTreeMap<String, RawAgent>,
}

/// Omits values that may contain keys.
impl std::fmt::Debug for RawServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawAgent {
    mode: Option<String>,
    model: Option<String>,
    args: Vec<String>,
}

/// Server whose variables are not expanded yet.
#[derive(Debug)]
pub(crate) struct AcpServer {
    pub(crate) name: String,
    raw: RawServer,
    start_timeout: Duration,
    terms: ExternalLimits,
    /// Whether any part of it comes from a project.
    is_from_project: bool,
}

/// Resolves the section.
pub(super) fn resolve(raw: RawAcp, layers: &layers::Layers) -> Result<Vec<AcpServer>, CliError> {
    let server = |(name, raw): (String, RawServer)| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.chars().all(is_plain) || name.contains("__") {
            return Err(CliError::usage(format!(
                "acp.servers: '{}' is not a valid name. Use 1 to {MAX_NAME_BYTES} letters, digits, `-` and `_`, without `__`",
                name.escape_debug()
            )));
        }
        let some_time = |key: &str, value: &Option<Value>, usual: Duration| {
            let time = duration(value.as_ref(), usual)?;
            match time.is_zero() {
                true => Err(CliError::usage(format!("`acp.servers.{name}.{key}` must be greater than 0"))),
                false => Ok(time),
            }
        };
        let start_timeout = some_time("start_timeout", &raw.start_timeout, DEFAULT_START_TIMEOUT)?;
        let timeout = match &raw.timeout {
            None => None,
            Some(_) => Some(some_time("timeout", &raw.timeout, DEFAULT_START_TIMEOUT)?),
        };
        let usd = match &raw.usd {
            None => 0,
            Some(Value::String(word)) if word == keys::UNLIMITED => u64::MAX,
            Some(value) => keys::dollars(value).map_err(CliError::usage)?,
        };
        let terms = ExternalLimits {
            turns: raw.turns,
            timeout: timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            tokens: raw.tokens.unwrap_or(0),
            usd,
            agents: raw.max_agents,
        };
        let is_from_project = layers.is_from_project(&["acp", "servers", &name]);
        Ok(AcpServer { name, raw, start_timeout, terms, is_from_project })
    };
    raw.servers.into_iter().map(server).collect()
}

/// Checks the names of servers and agents, so that a mistake is found before a run.
pub(super) fn check_names(
    delegation_styles: &DelegationStyles,
    servers: &[AcpServer],
) -> Result<(), CliError> {
    let roles = delegation_styles.swarm.roles.iter().filter_map(|(role, preset)| {
        Some((format!("swarm.roles.{role}.acp"), preset.acp.as_deref()?.to_owned()))
    });
    let spawn = delegation_styles.spawn.iter().filter_map(|spawn| {
        let server = spawn.server.as_deref()?;
        let place = spawn.agent.as_ref().map_or(server.to_owned(), |agent| format!("{server}/{agent}"));
        Some(("spawn.server".to_owned(), place))
    });
    for (key, place) in roles.chain(spawn) {
        let (name, agent) = place.split_once('/').unwrap_or((&place, ""));
        let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let Some(server) = servers.iter().find(|server| server.name == name) else {
            let known = list(servers.iter().map(|server| server.name.as_str()).collect());
            return Err(CliError::usage(format!(
                "{key}: unknown server `acp.servers.{name}`. Known servers: {known}"
            )));
        };
        if !agent.is_empty() && !server.raw.agents.contains_key(agent) {
            let known = list(server.raw.agents.keys().map(String::as_str).collect());
            // The name of the server is right, so the mistake is in the key of the agent.
            let key = if key == "spawn.server" { "spawn.agent" } else { key.as_str() };
            return Err(CliError::usage(format!(
                "{key}: unknown agent `acp.servers.{name}.agents.{agent}`. Known agents: {known}"
            )));
        }
    }
    Ok(())
}

impl Settings {
    /// External agents that can be started, and the problems of the others by name.
    pub(crate) fn acp_servers(&self, guard: &GuardCommand) -> (Vec<AgentServer>, Vec<(String, String)>) {
        let (mut servers, mut problems) = (Vec::new(), Vec::new());
        for server in &self.acp {
            match server.expand_variables(self, guard) {
                Ok(server) => servers.push(server),
                Err(what) => problems.push((server.name.clone(), what)),
            }
        }
        (servers, problems)
    }
}

impl AcpServer {
    fn expand_variables(&self, settings: &Settings, guard: &GuardCommand) -> Result<AgentServer, String> {
        let raw = &self.raw;
        let expanded_secrets = RefCell::new(Vec::new());
        let fill = |text: &str| {
            expand_variables(text, |name| {
                let value = variable(name, self.is_from_project, settings)?;
                expanded_secrets.borrow_mut().extend(value.iter().map(Secret::new));
                Ok(value)
            })
        };
        let all = |words: &[String]| words.iter().map(|word| fill(word)).collect::<Result<Vec<_>, _>>();
        let command = raw.command.as_deref().filter(|command| !command.is_empty());
        let command = command.ok_or("`command` is missing. Set it to the program to start")?;
        let mut environment = passed_variables(settings, &raw.env);
        for (name, value) in &raw.env {
            environment.push((name.clone(), Secret::new(fill(value)?)));
        }
        let mut agents = BTreeMap::new();
        for (name, agent) in &raw.agents {
            let arguments = all(&agent.args)?;
            let options = AgentOptions { mode: agent.mode.clone(), model: agent.model.clone(), arguments };
            agents.insert(name.clone(), options);
        }
        let options =
            AgentOptions { mode: raw.mode.clone(), model: raw.model.clone(), arguments: Vec::new() };
        let (command, arguments) = (fill(command)?, all(&raw.args)?);
        Ok(AgentServer {
            name: self.name.clone(),
            guard: guard.clone(),
            workspace: settings.folder.canonicalize().unwrap_or_else(|_| settings.folder.clone()),
            command,
            arguments,
            environment,
            expanded_secrets: expanded_secrets.into_inner(),
            max_sessions: if raw.pool == Some(false) {
                1
            } else {
                raw.max_sessions.unwrap_or(DEFAULT_MAX_SESSIONS)
            },
            options,
            agents,
            terms: self.terms,
            start_timeout: self.start_timeout,
            allow_in_plan: raw.allow_in_plan,
        })
    }
}
