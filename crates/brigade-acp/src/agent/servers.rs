//! MCP servers that a client brings along.

use agent_client_protocol::v1::schema as acp;
use brigade::mcp::login::Login;
use brigade::mcp::{Address, CALL_TIME, Definition, Program, START_TIME, Servers, Way};
use brigade::model::Proxies;
use brigade::{Secret, Settings};
use brigade_core::text;

use super::{Desk, Host, refusal};

/// Variables that a server sees without being given them.
const PASSED: [&str; 2] = ["PATH", "HOME"];

/// How much of a name is shown.
const SHOWN: usize = 80;

/// The desk with the tools of these servers. One that cannot be used is noted, and the others are.
pub(super) async fn add(
    desk: Desk,
    servers: Vec<acp::McpServer>,
    host: &dyn Host,
) -> Result<Desk, acp::Error> {
    if servers.is_empty() {
        return Ok(desk);
    }
    let mut settings = desk.runtime.settings().clone();
    let definitions: Vec<Definition> = servers
        .into_iter()
        .map(|server| definition(server, &settings, &desk.proxies))
        .collect::<Result<_, _>>()?;
    let started = Servers::start(definitions).await;
    for problem in started.problems() {
        host.note(&format!("warning: {problem}"));
    }
    for tool in started.tools() {
        let name = &tool.spec().name;
        if settings.tools.get(name).is_some() {
            return Err(refusal::params(format!(
                "there is a tool {name} already: a server of the configuration has the same name; rename yours"
            )));
        }
    }
    settings.tools = settings.tools.with_servers(&started);
    Ok(Desk { runtime: desk.runtime.with_settings(settings), ..desk })
}

fn definition(
    server: acp::McpServer,
    settings: &Settings,
    proxies: &Proxies,
) -> Result<Definition, acp::Error> {
    let (name, way) = match server {
        acp::McpServer::Stdio(server) => {
            let Some(shell) = &settings.shell else {
                return Err(refusal::params(
                    "no programs can be started here, so no stdio servers can be used",
                ));
            };
            let given = |name: &str| server.env.iter().any(|variable| variable.name == name);
            let passed = shell.environment.iter();
            let passed = passed.filter(|(name, _)| PASSED.contains(&name.as_str()) && !given(name));
            let mut environment: Vec<_> =
                passed.map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect();
            environment.extend(server.env.into_iter().map(|pair| (pair.name, Secret::new(pair.value))));
            let program = Program {
                guard: shell.guard.clone(),
                directory: shell.directory.clone(),
                command: server.command.to_string_lossy().into_owned(),
                arguments: server.args,
                environment,
            };
            (server.name, Way::Program(program))
        }
        acp::McpServer::Http(server) => {
            let headers =
                server.headers.into_iter().map(|pair| (pair.name, Secret::new(pair.value))).collect();
            let (url, login) = (Secret::new(server.url), Login::default());
            (server.name, Way::Http(Address { url, headers, login, proxies: proxies.clone() }))
        }
        other => {
            let name = match &other {
                acp::McpServer::Sse(server) => format!("MCP server '{}'", text::cut(&server.name, SHOWN)),
                _ => "an MCP server".to_owned(),
            };
            return Err(refusal::params(format!(
                "{name} cannot be used: servers are reached by stdio or streamable HTTP, not by the older SSE or another \
                 way; give its streamable HTTP address, or leave it out"
            )));
        }
    };
    Ok(Definition { name, way, call_time: CALL_TIME, start_time: START_TIME })
}
