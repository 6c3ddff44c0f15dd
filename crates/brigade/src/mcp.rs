//! Tools of other programs, by the Model Context Protocol.
//!
//! [`Servers::start`] connects to servers, asks each for its tools and makes one tool of ours from each of theirs, called
//! `mcp__server__tool`; resources and prompts are read by a tool each. A runtime has one set of servers, which all sessions of its trees share. A server is a stranger:
//! what it sends is bounded in length, number and time, its processes run under a guard and end with the set, and it
//! sees no variable that its definition does not give it.
//!
//! What a server said about a tool when it was connected is what agents were told and people approved. A tool that is
//! described differently later is used once a person has seen the difference; one that is new is not used by this set.
//!
//! A server that ends is started again for the next call, a few times. Servers that ask for a login are logged in to by
//! [`oauth`].

mod approved;
mod bounded_io;
mod call_timeout;
mod close_reason;
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
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brigade_sandbox::GuardCommand;

use crate::model::Proxies;
use crate::secret::Secret;
use crate::tool::{AnyTool, Toolbox};
use oauth::LoginSettings;
use server::Server;

/// How long a call may take where a definition does not say.
pub const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may take to start and to list its tools where a definition does not say.
pub const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(30);

/// A server that is to be used.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Its name: letters, digits, `-` and single `_`. Capital letters are read as small ones.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// How long a call may take.
    pub call_timeout: Duration,
    /// How long it may take to start and to list its tools.
    pub start_timeout: Duration,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// It is started here, and spoken to over its standard input and output.
    Stdio(StdioCommand),
    /// It is somewhere else, and spoken to over HTTP.
    Http(HttpEndpoint),
}

/// A server that is started here.
#[derive(Debug, Clone)]
pub struct StdioCommand {
    /// The program that guards it.
    pub guard: GuardCommand,
    /// The folder that it starts in.
    pub directory: PathBuf,
    /// The program, by its path or by its name in `PATH`.
    pub command: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Exactly the environment that it gets.
    pub environment: Vec<(String, Secret)>,
}

/// A server that is somewhere else.
#[derive(Debug, Clone)]
pub struct HttpEndpoint {
    /// Where it is. It may hold a key, so it is not shown.
    pub url: Secret,
    /// Headers of every request.
    pub headers: Vec<(String, Secret)>,
    /// How somebody is logged in, where it asks for that.
    pub login: LoginSettings,
    /// Proxy that the server is reached through.
    pub proxies: Proxies,
}

/// Something that a server offers and that cannot be used, or a server that cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerProblem {
    /// The server, as its definition calls it.
    pub server: String,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl fmt::Display for ServerProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MCP server '{}': {}", self.server, self.message)
    }
}

/// Servers that are connected. They end when this and all tools of it are dropped.
#[derive(Clone, Default)]
pub struct Servers {
    tools: Vec<Arc<dyn AnyTool>>,
    problems: Vec<ServerProblem>,
}

impl Servers {
    /// Connects to all of them at once. A server that cannot be used is a problem; the others go on.
    pub async fn start(configs: Vec<ServerConfig>) -> Servers {
        let mut servers = Servers::default();
        let mut named: BTreeMap<String, Vec<ServerConfig>> = BTreeMap::new();
        for config in configs {
            match name::server(&config.name) {
                Ok(name) => named.entry(name).or_default().push(config),
                Err(message) => servers.problems.push(ServerProblem { server: config.name, message }),
            }
        }
        let mut wanted = Vec::new();
        for (name, mut same) in named {
            match same.pop() {
                Some(config) if same.is_empty() => wanted.push((name, config)),
                Some(config) => servers.problems.push(ServerProblem {
                    server: config.name,
                    message: format!("several servers would be called '{name}'; rename all but one"),
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
                Err(message) => servers.problems.push(problem(message)),
            }
        }
        servers
    }

    /// What cannot be used.
    pub fn problems(&self) -> &[ServerProblem] {
        &self.problems
    }

    /// The tools of all servers.
    pub fn tools(&self) -> &[Arc<dyn AnyTool>] {
        &self.tools
    }
}

impl Toolbox {
    /// Adds the tools of servers.
    pub fn with_servers(self, servers: &Servers) -> Toolbox {
        servers.tools.iter().cloned().fold(self, Toolbox::with_any)
    }
}
