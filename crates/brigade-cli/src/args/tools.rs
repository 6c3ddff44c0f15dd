//! Arguments of `tools`.

use clap::Subcommand;

/// Examples of `tools`.
pub(super) const HELP: &str = "\
Examples:
  brigade tools list --servers                          all tools, including those of MCP servers
  brigade tools add files -- npx -y @modelcontextprotocol/server-filesystem .
  brigade tools add tickets --env 'TOKEN=${TICKETS_TOKEN}' -- tickets-mcp --stdio
  brigade tools add tickets --url https://tickets.example.com/mcp
  brigade tools remove tickets

`add` and `remove` edit `mcpServers` in your config.toml and leave the rest unchanged.
Write ${NAME} for the value of an environment variable, to keep keys out of the file.";

/// Arguments of `tools`.
#[derive(Debug, clap::Args)]
pub(crate) struct Tools {
    #[command(subcommand)]
    pub(crate) command: ToolsCommand,
}

/// Subcommands of `tools`.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List the tools of the lead agent
    List {
        /// Start the MCP servers and list their tools too
        #[arg(long)]
        servers: bool,
    },
    /// Add an MCP server to your configuration
    #[command(after_help = HELP)]
    Add(ToolsAdd),
    /// Remove an MCP server from your configuration
    #[command(alias = "rm")]
    Remove {
        /// Name of the server in `mcpServers`
        #[arg(value_name = "NAME")]
        server: String,
    },
    /// Log in to an MCP server with OAuth, in a browser
    Login {
        /// Name of the server in `mcpServers`
        server: String,
    },
    /// Remove the stored login of an MCP server
    Logout {
        /// Name of the server in `mcpServers`
        server: String,
    },
}

/// Arguments of `tools add`.
#[derive(Debug, clap::Args)]
pub(crate) struct ToolsAdd {
    /// Name of the server; its tools are named mcp__NAME__TOOL
    #[arg(value_name = "NAME")]
    pub(crate) server: String,
    /// URL of a remote server (streamable HTTP)
    #[arg(long, value_name = "URL", conflicts_with_all = ["env", "command"])]
    pub(crate) url: Option<String>,
    /// Environment variable for the command (repeatable)
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Command that starts the server, after `--`
    #[arg(value_name = "CMD", last = true, required_unless_present = "url")]
    pub(crate) command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
