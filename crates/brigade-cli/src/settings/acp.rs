//! Section `acp`: external agents.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use brigade::Secret;
use brigade::external::ExternalLimits;
use brigade::sandbox::ServerOrigin;
use brigade_acp::client::{AgentOptions, AgentServer, DEFAULT_MAX_SESSIONS, DEFAULT_START_TIMEOUT};
use brigade_core::Limit;
use brigade_core::delegation_styles::DelegationStyles;
use brigade_sandbox::GuardCommand;
use schemars::JsonSchema;
use serde::Deserialize;

use super::server_sandbox::{RawServerSandbox, ServerEntry, ServerKind};
use super::servers::{expand_variables, passed_variables, variable};
use super::values::{MaxDollars, Time, Tokens};
use super::{Settings, layers};
use crate::error::CliError;

/// Maximum length of the name of a server, which is part of tool names.
const MAX_NAME_BYTES: usize = 32;

/// Section `acp`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAcp {
    /// ACP servers by name.
    servers: BTreeMap<String, RawServer>,
}

/// Entry of a server.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RawServer {
    /// Program to start.
    command: Option<String>,
    /// Arguments of the program.
    args: Vec<String>,
    /// Environment variables of the program.
    env: BTreeMap<String, String>,
    /// Mode of its sessions, by the name that the server uses.
    mode: Option<String>,
    /// Model of its sessions, by the name that the server uses.
    model: Option<String>,
    /// Whether one process serves several sessions; otherwise each session has its own process.
    pool: Option<bool>,
    /// Maximum concurrent sessions of one process; by default 256.
    max_sessions: Option<NonZeroU32>,
    /// Timeout for starting the program and opening a session; by default 1m.
    start_timeout: Option<Time>,
    /// Timeout of a session.
    timeout: Option<Time>,
    /// Maximum number of requests that a session may send to Brigade.
    turns: Option<NonZeroU32>,
    /// Maximum tokens of the budget that a session may use; by default 0, and reported tokens are not counted.
    tokens: Option<Tokens>,
    /// Maximum dollars of the budget that a session may use; by default 0, and the reported cost is not counted.
    usd: Option<MaxDollars>,
    /// Maximum number of sub-agents of a session, if the program is another Brigade; by default 0.
    max_agents: u32,
    /// Whether to start the program in plan mode even if none of its modes is known to be read-only.
    allow_in_plan: bool,
    /// Sandbox of the program in modes edit and auto. In mode plan it is read-only, and in mode ask too unless `mode` is set.
    sandbox: RawServerSandbox,
    /// Agents of the server by name.
    agents: BTreeMap<String, RawAgent>,
}

/// Omits values that may contain keys.
impl std::fmt::Debug for RawServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Entry of an agent.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RawAgent {
    /// Mode of the agent.
    mode: Option<String>,
    /// Model of the agent.
    model: Option<String>,
    /// Additional arguments of the program.
    args: Vec<String>,
}

/// Server whose variables are not expanded yet.
#[derive(Debug)]
pub(crate) struct AcpServer {
    pub(crate) name: String,
    raw: RawServer,
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
        let is_from_project = layers.is_from_project(&["acp", "servers", &name]);
        Ok(AcpServer { name, raw, is_from_project })
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
                "{key}: unknown server `acp.servers.{name}`. Known servers: {known}."
            )));
        };
        if !agent.is_empty() && !server.raw.agents.contains_key(agent) {
            let known = list(server.raw.agents.keys().map(String::as_str).collect());
            // The name of the server is right, so the mistake is in the key of the agent.
            let key = if key == "spawn.server" { "spawn.agent" } else { key.as_str() };
            return Err(CliError::usage(format!(
                "{key}: unknown agent `acp.servers.{name}.agents.{agent}`. Known agents: {known}."
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
                Err(problem) => problems.push((server.name.clone(), problem.to_string())),
            }
        }
        (servers, problems)
    }
}

impl AcpServer {
    fn expand_variables(&self, settings: &Settings, guard: &GuardCommand) -> Result<AgentServer, CliError> {
        let RawServer {
            command,
            args,
            env,
            mode,
            model,
            pool,
            max_sessions,
            start_timeout,
            timeout,
            turns,
            tokens,
            usd,
            max_agents,
            allow_in_plan,
            sandbox,
            agents,
        } = &self.raw;
        let expanded_secrets = RefCell::new(Vec::new());
        let fill = |text: &str| {
            expand_variables(text, |name| {
                let value = variable(name, self.is_from_project, settings)?;
                expanded_secrets.borrow_mut().extend(value.iter().map(Secret::new));
                Ok(value)
            })
        };
        let all = |words: &[String]| words.iter().map(|word| fill(word)).collect::<Result<Vec<_>, _>>();
        let command = command.as_deref().filter(|command| !command.is_empty());
        let command = command
            .ok_or_else(|| CliError::usage("`command` is missing. Set it to the program to start."))?;
        let mut environment = passed_variables(settings, env);
        for (name, value) in env {
            environment.push((name.clone(), Secret::new(fill(value)?)));
        }
        let agent = |(name, agent): (&String, &RawAgent)| {
            let RawAgent { mode, model, args } = agent;
            let options = AgentOptions { mode: mode.clone(), model: model.clone(), arguments: all(args)? };
            Ok((name.clone(), options))
        };
        let agents = agents.iter().map(agent).collect::<Result<_, CliError>>()?;
        let (command, arguments) = (fill(command)?, all(args)?);
        let origin = if self.is_from_project { ServerOrigin::Project } else { ServerOrigin::User };
        let entry = ServerEntry { kind: ServerKind::Agent, origin, command: &command, guard };
        let sandbox = sandbox.resolve(entry, settings)?;
        Ok(AgentServer {
            name: self.name.clone(),
            guard: guard.clone(),
            workspace: settings.folder.canonicalize().unwrap_or_else(|_| settings.folder.clone()),
            command,
            arguments,
            environment,
            expanded_secrets: expanded_secrets.into_inner(),
            max_sessions: match (pool, max_sessions) {
                (Some(false), _) => 1,
                (_, Some(most)) => most.get() as usize,
                (_, None) => DEFAULT_MAX_SESSIONS,
            },
            options: AgentOptions { mode: mode.clone(), model: model.clone(), arguments: Vec::new() },
            agents,
            terms: ExternalLimits {
                turns: turns.map(NonZeroU32::get),
                timeout: timeout.map(|Time(time)| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
                tokens: tokens.map_or(0, |Tokens(count)| count),
                usd: match usd {
                    None => 0,
                    Some(MaxDollars(Limit::AtMost(nano))) => *nano,
                    Some(MaxDollars(Limit::Unlimited)) => u64::MAX,
                },
                agents: u64::from(*max_agents),
            },
            start_timeout: start_timeout.map_or(DEFAULT_START_TIMEOUT, |Time(time)| time),
            sandbox,
            allow_in_plan: *allow_in_plan,
        })
    }
}
