//! Arguments of `tools`.

use clap::Subcommand;

/// Examples of `tools`.
pub(super) const HELP: &str = "\
Examples:
  brigade tools list --servers                          all tools, those of MCP servers too
  brigade tools add files -- npx -y @modelcontextprotocol/server-filesystem .
  brigade tools add tickets --env 'TOKEN=${TICKETS_TOKEN}' -- tickets-mcp --stdio
  brigade tools add tickets --url https://tickets.example.com/mcp
  brigade tools remove tickets

add and remove edit mcpServers in your config.toml and keep everything else in it as it is.
${NAME} stands for a variable of your environment, so that no key has to be in the file.";

/// Arguments of `tools`.
#[derive(Debug, clap::Args)]
pub(crate) struct Tools {
    #[command(subcommand)]
    pub(crate) command: ToolsCommand,
}

/// Subcommands of `tools`.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// The tools that the lead is offered
    List {
        /// Start the MCP servers and list their tools as well
        #[arg(long)]
        servers: bool,
    },
    /// Add an MCP server to your configuration
    #[command(after_help = HELP)]
    Add(ToolsAdd),
    /// Remove an MCP server from your configuration
    #[command(alias = "rm")]
    Remove {
        /// The server, by its name in `mcpServers`
        #[arg(value_name = "NAME")]
        server: String,
    },
    /// Log in to an MCP server that asks for it, in a browser
    Login {
        /// The server, by its name in `mcpServers`
        server: String,
    },
    /// Forget the login to an MCP server
    Logout {
        /// The server, by its name in `mcpServers`
        server: String,
    },
}

/// Arguments of `tools add`.
#[derive(Debug, clap::Args)]
pub(crate) struct ToolsAdd {
    /// The name of the server; its tools are called mcp__NAME__TOOL
    #[arg(value_name = "NAME")]
    pub(crate) server: String,
    /// Address of a server that is not started here, over streamable HTTP
    #[arg(long, value_name = "URL", conflicts_with_all = ["env", "command"])]
    pub(crate) url: Option<String>,
    /// Variable for the command (repeatable)
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// The command that starts the server, after `--`
    #[arg(value_name = "CMD", last = true, required_unless_present = "url")]
    pub(crate) command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}
