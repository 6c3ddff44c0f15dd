//! Arguments of `mcp`.

use std::net::SocketAddr;

use super::Flags;

/// Examples of `mcp`.
pub(super) const HELP: &str = "\
Examples:
  brigade mcp                                    for a client that starts it and speaks over its input and output
  brigade mcp --faces delegate,subagent          these faces as tools, whatever the configuration offers
  brigade mcp --model ollama/qwen3 --mode plan   agents that only read
  brigade mcp --listen 127.0.0.1:4748            streamable HTTP at http://127.0.0.1:4748/mcp
  brigade mcp --listen 127.0.0.1:4748 --token-env MY_TOKEN

For Claude Code: claude mcp add brigade -- brigade mcp --cwd /path/to/project
For others, in the file where the client keeps its servers:

  { \"mcpServers\": { \"brigade\": { \"command\": \"brigade\", \"args\": [\"mcp\", \"--cwd\", \"/path/to/project\"] } } }

The client gets the faces (delegate, subagent, subagent_dispatch, subagent_spawn) and
session_status, tell, stop and read_result. Each call is a session with the limits
of run, which brigade sessions shows and brigade resume goes on with. Nobody is
asked: what would ask is refused, with the flag that permits it, such as --mode auto.

Over HTTP a token is always needed. Without --token-env one is made, and written to
a file that only you can read; its path is said on standard error.";

/// Arguments of `mcp`.
#[derive(Debug, clap::Args)]
// They configure a lead, which `mcp` does not have. They are parsed only to explain that.
#[command(mut_arg("agent", |agent| agent.hide(true)), mut_arg("max_turns", |turns| turns.hide(true)))]
pub(crate) struct Mcp {
    /// Serve streamable HTTP at this address, path /mcp, and not standard input and output
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The variable that holds the token that clients have to send, of at least 16 characters; without it one is made
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub(crate) token_env: Option<String>,
    /// Another name that clients reach this server by, such as agents.example or agents.example:8443 (repeatable)
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub(crate) host: Vec<String>,
    /// Take requests of pages from here too: scheme and host, as the address bar has them (repeatable)
    #[arg(long, value_name = "URL", requires = "listen")]
    pub(crate) origin: Vec<String>,
    /// Listen where other machines can reach it; the way there is not encrypted, so put a proxy with TLS before it
    #[arg(long, requires = "listen")]
    pub(crate) allow_remote: bool,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:4748".to_owned())
}
