//! Tools of other programs over the Model Context Protocol.
//!
//! [`Servers::start`] connects to servers, lists their tools and offers each of them as `mcp__server__tool`.
//! Resources and prompts are read by one tool each. A runtime has one set of servers, shared by all sessions
//! of its trees. Servers are untrusted: what they send is bounded in size, number and time. Their processes
//! run under a guard and end with the set, and they see only the environment variables in their definition.
//!
//! The tool definitions received on connection are the ones that agents are offered and users approve. If a
//! definition changes later, the tool can be called only after the user has seen and approved the change.
//! Tools added later are not offered.
//!
//! A server that exits is restarted on the next call, a limited number of times. [`oauth`] logs in to servers
//! that require it.

mod approved;
mod bounded_io;
mod call_timeout;
mod connect;
mod content;
mod http;
mod http_errors;
mod name;
pub mod oauth;
mod request;
mod resource_tools;
mod resources;
mod server;
mod tool;
mod tool_changes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brigade_base::Secret;
pub use brigade_base::process::StdioCommand;
use brigade_http_client::Proxies;
use brigade_tools::AnyTool;
use oauth::{LoginError, LoginSettings};
use server::Server;

/// Default timeout of a call.
pub const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Default timeout for a server to start and list its tools.
pub const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(30);

/// Configuration of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The server's name: letters, digits, `-` and single `_`. It is converted to lower case.
    pub name: String,
    /// The transport.
    pub transport: Transport,
    /// Timeout of a call.
    pub call_timeout: Duration,
    /// Timeout for the server to start and list its tools.
    pub start_timeout: Duration,
}

/// The transport of a server.
#[derive(Debug, Clone)]
pub enum Transport {
    /// The server is a child process that communicates over its standard input and output.
    Stdio(StdioCommand),
    /// The server is reached over HTTP.
    Http(HttpEndpoint),
}

/// A server that is reached over HTTP.
#[derive(Debug, Clone)]
pub struct HttpEndpoint {
    /// The URL. It may contain a key, so it is never displayed.
    pub url: Secret,
    /// Headers of every request.
    pub headers: Vec<(String, Secret)>,
    /// Login settings, for servers that require OAuth.
    pub login: LoginSettings,
    /// The proxy through which the server is reached.
    pub proxies: Proxies,
}

/// A server, or one of its tools, that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("MCP server '{server}': {message}")]
pub struct ServerProblem {
    /// The server's name in its configuration.
    pub server: String,
    /// The cause and the fix.
    pub message: String,
}

/// Reason why a server, or one of its tools, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum McpError {
    /// The configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// The server cannot be started or reached.
    #[error("{0}")]
    Connect(String),
    /// The server requires a login, or the login cannot be used.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The server violated the protocol or a limit.
    #[error("{0}")]
    Protocol(String),
    /// A request failed.
    #[error("{0}")]
    Request(String),
    /// A tool cannot be offered or called.
    #[error("{0}")]
    Tool(String),
}

/// Connected servers. They end when this value and all of its tools are dropped.
#[derive(Clone, Default)]
pub struct Servers {
    tools: Vec<Arc<dyn AnyTool>>,
    problems: Vec<ServerProblem>,
}

impl Servers {
    /// Connects to all servers at once. A server that cannot be used is reported as a problem and does not
    /// affect the others.
    pub async fn start(configs: Vec<ServerConfig>) -> Servers {
        let mut servers = Servers::default();
        let mut named: BTreeMap<String, Vec<ServerConfig>> = BTreeMap::new();
        for config in configs {
            match name::server(&config.name) {
                Ok(name) => named.entry(name).or_default().push(config),
                Err(error) => {
                    servers.problems.push(ServerProblem { server: config.name, message: error.to_string() })
                }
            }
        }
        let mut wanted = Vec::new();
        for (name, mut same) in named {
            match same.pop() {
                Some(config) if same.is_empty() => wanted.push((name, config)),
                Some(config) => servers.problems.push(ServerProblem {
                    server: config.name,
                    message: format!("several servers have the name '{name}'. Rename all but one."),
                }),
                None => {}
            }
        }
        let started = wanted.into_iter().map(|(name, config)| async move {
            let server = config.name.clone();
            (server, Server::start(name, config).await)
        });
        for (server, outcome) in futures::future::join_all(started).await {
            let problem = |message| ServerProblem { server: server.clone(), message };
            match outcome {
                Ok((offered, problems)) => {
                    servers.problems.extend(problems.into_iter().map(problem));
                    servers.tools.extend(offered);
                }
                Err(error) => servers.problems.push(problem(error.to_string())),
            }
        }
        servers
    }

    /// Returns the servers and tools that cannot be used.
    pub fn problems(&self) -> &[ServerProblem] {
        &self.problems
    }

    /// Returns the tools of all servers.
    pub fn tools(&self) -> &[Arc<dyn AnyTool>] {
        &self.tools
    }
}

impl AsRef<[Arc<dyn AnyTool>]> for Servers {
    fn as_ref(&self) -> &[Arc<dyn AnyTool>] {
        &self.tools
    }
}
