//! MCP servers that a client configures.

use agent_client_protocol_schema::v1 as acp;
use brigade::mcp::oauth::LoginSettings;
use brigade::mcp::{
    DEFAULT_CALL_TIMEOUT, DEFAULT_START_TIMEOUT, HttpEndpoint, ServerConfig, Servers, StdioCommand, Transport,
};
use brigade::model::Proxies;
use brigade::sandbox::{Network, ServerAccess, ServerSandbox};
use brigade::{Secret, Settings};
use brigade_core::text;

use super::{Host, SessionEnvironment, errors};

/// Variables that every server inherits.
const INHERITED_VARIABLES: [&str; 2] = ["PATH", "HOME"];

/// Maximum length of a server name in a message.
const MAX_NAME_BYTES: usize = 80;

/// Adds the tools of these servers to the environment. A server that fails to start is reported and skipped.
pub(super) async fn add(
    environment: SessionEnvironment,
    servers: Vec<acp::McpServer>,
    host: &dyn Host,
) -> Result<SessionEnvironment, acp::Error> {
    if servers.is_empty() {
        return Ok(environment);
    }
    let mut settings = environment.runtime.settings().clone();
    let definitions: Vec<ServerConfig> = servers
        .into_iter()
        .map(|server| definition(server, &settings, &environment.proxies))
        .collect::<Result<_, _>>()?;
    let started = Servers::start(definitions).await;
    for problem in started.problems() {
        host.note(&format!("warning: {problem}"));
    }
    for tool in started.tools() {
        let name = &tool.spec().name;
        if settings.tools.get(name).is_some() {
            return Err(errors::params(format!(
                "cannot add the tool `{name}`: it already exists, because a configured MCP server has the same name. Rename your server."
            )));
        }
    }
    settings.tools = settings.tools.with_servers(&started);
    Ok(SessionEnvironment { runtime: environment.runtime.with_settings(settings), ..environment })
}

/// Sandbox of a server that the client's user configured.
fn sandbox(settings: &Settings) -> ServerSandbox {
    let workspace = settings.workspace.root().to_path_buf();
    let access = ServerAccess { network: Network::On, ..ServerAccess::default() };
    ServerSandbox::new(settings.sandbox.clone(), workspace, settings.permissions.clone(), access)
}

fn definition(
    server: acp::McpServer,
    settings: &Settings,
    proxies: &Proxies,
) -> Result<ServerConfig, acp::Error> {
    let (name, transport) = match server {
        acp::McpServer::Stdio(server) => {
            let Some(shell) = &settings.shell else {
                return Err(errors::params(
                    "cannot use stdio MCP servers: starting programs is disabled here",
                ));
            };
            let is_set = |name: &str| server.env.iter().any(|variable| variable.name == name);
            let inherited = shell.environment.iter();
            let inherited =
                inherited.filter(|(name, _)| INHERITED_VARIABLES.contains(&name.as_str()) && !is_set(name));
            let mut environment: Vec<_> =
                inherited.map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect();
            environment.extend(server.env.into_iter().map(|pair| (pair.name, Secret::new(pair.value))));
            let program = StdioCommand {
                guard: shell.guard.clone(),
                directory: shell.directory.clone(),
                command: server.command.to_string_lossy().into_owned(),
                arguments: server.args,
                environment,
                sandbox: sandbox(settings),
            };
            (server.name, Transport::Stdio(program))
        }
        acp::McpServer::Http(server) => {
            let headers =
                server.headers.into_iter().map(|pair| (pair.name, Secret::new(pair.value))).collect();
            let (url, login) = (Secret::new(server.url), LoginSettings::default());
            (server.name, Transport::Http(HttpEndpoint { url, headers, login, proxies: proxies.clone() }))
        }
        other => {
            let name = match &other {
                acp::McpServer::Sse(server) => {
                    format!("MCP server '{}'", text::truncate_bytes(&server.name, MAX_NAME_BYTES))
                }
                _ => "an MCP server".to_owned(),
            };
            return Err(errors::params(format!(
                "cannot use {name}: only the stdio and streamable HTTP transports are supported. Use its streamable HTTP \
                 URL, or remove it."
            )));
        }
    };
    Ok(ServerConfig {
        name,
        transport,
        call_timeout: DEFAULT_CALL_TIMEOUT,
        start_timeout: DEFAULT_START_TIMEOUT,
    })
}
