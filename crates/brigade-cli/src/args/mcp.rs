//! Arguments of `mcp`.

use std::net::SocketAddr;

use super::Flags;

/// Examples of `mcp`.
pub(super) const HELP: &str = "\
Examples:
  brigade mcp                                    stdio, for a client that starts this command
  brigade mcp --faces delegate,subagent          only these delegation styles
  brigade mcp --model ollama/qwen3 --mode plan   read-only agents
  brigade mcp --listen 127.0.0.1:4748            streamable HTTP at http://127.0.0.1:4748/mcp
  brigade mcp --listen 127.0.0.1:4748 --token-env MY_TOKEN

For Claude Code: claude mcp add brigade -- brigade mcp --cwd /path/to/project
For other clients, in their MCP configuration:

  { \"mcpServers\": { \"brigade\": { \"command\": \"brigade\", \"args\": [\"mcp\", \"--cwd\", \"/path/to/project\"] } } }

The client gets the delegation tools (delegate, subagent, subagent_dispatch,
subagent_spawn) and session_status, tell, stop and read_result. Each call is a session
with the same limits as a run. Show it with brigade sessions, and continue it with brigade
resume.
Calls that need approval are denied; the message names the flag that permits them, such
as --mode auto.

HTTP always requires a token. Without --token-env, one is generated and written to a
file that only you can read; the path is printed to standard error.";

/// Arguments of `mcp`.
#[derive(Debug, clap::Args)]
// They configure a lead, which `mcp` does not have. They are parsed only to explain that.
#[command(mut_arg("agent", |agent| agent.hide(true)), mut_arg("max_turns", |turns| turns.hide(true)))]
pub(crate) struct Mcp {
    /// Serve streamable HTTP at this address, path /mcp, instead of standard input and output
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Environment variable with the token that clients must send, at least 16 characters (default: generate a token)
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub(crate) token_env: Option<String>,
    /// Additional host name of this server, such as agents.example or agents.example:8443 (repeatable)
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub(crate) host: Vec<String>,
    /// Also accept requests from web pages with this origin, such as https://app.example:8443 (repeatable)
    #[arg(long, value_name = "URL", requires = "listen")]
    pub(crate) origin: Vec<String>,
    /// Allow an address that other machines can reach; connections are not encrypted, so put a TLS proxy in front
    #[arg(long, requires = "listen")]
    pub(crate) allow_remote: bool,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:4748".to_owned())
}
