//! `brigade tools`: lists the tools of the lead, edits MCP servers and handles their logins.

mod edit;
mod login;

use brigade_core::delegation_styles::{Caller, DELEGATION_TOOLS, MESSAGE_TOOL};
use brigade_core::grant::Names;
use brigade_core::{Authority, ToolSpec};
use serde_json::json;

use crate::args::{Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::output;
use crate::render::{fit, pad};
use crate::sanitize;
use crate::settings::{McpServer, Settings};
use crate::setup;

const HELP: &str = "\
Examples:
  brigade tools list --servers                          all tools, including those of MCP servers
  brigade tools add files -- npx -y @modelcontextprotocol/server-filesystem .
  brigade tools add tickets --env 'TOKEN=${TICKETS_TOKEN}' -- tickets-mcp --stdio
  brigade tools add tickets --url https://tickets.example.com/mcp
  brigade tools remove tickets

`add` and `remove` edit `mcpServers` in your config.toml and leave the rest unchanged.
Write ${NAME} for the value of an environment variable, to keep keys out of the file.";

/// List the tools of agents; add and remove MCP servers
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ToolsArgs {
    #[command(subcommand)]
    pub(crate) command: ToolsCommand,
}

/// Subcommands of `tools`.
#[derive(Debug, clap::Subcommand)]
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

/// Minimum width of the name column.
const MIN_NAME_COLUMNS: usize = 17;

/// Runs the command.
pub(crate) fn run(global: &Global, tools: &ToolsArgs) -> Result<Exit, CliError> {
    let settings = || Settings::load(global);
    match &tools.command {
        ToolsCommand::List { servers } => list(global, &settings()?, *servers),
        ToolsCommand::Add(add) => edit::add(global, add),
        ToolsCommand::Remove { server } => edit::remove(global, server),
        ToolsCommand::Login { server } => login::login(&settings()?, server),
        ToolsCommand::Logout { server } => login::logout(&settings()?, server),
    }
}

fn list(global: &Global, settings: &Settings, servers: bool) -> Result<Exit, CliError> {
    let library = setup::library_settings(settings)?;
    let mut offered: Vec<(String, String, serde_json::Value)> =
        library.tools.iter().chain(library.skills.tool()).map(|tool| entry(tool.spec())).collect();
    if servers {
        let servers = setup::current_thread_runtime()?.block_on(setup::start_mcp_servers(settings))?;
        offered.extend(servers.tools().iter().map(|tool| entry(tool.spec())));
    }
    let unstarted = settings.servers.iter().filter(|server| server.is_disabled || !servers);
    offered.extend(unstarted.map(not_started));
    offered.push((
        MESSAGE_TOOL.to_owned(),
        "Send the user a short message now, and continue working".to_owned(),
        json!({ "category": "other" }),
    ));
    let authority = Authority {
        tools: DELEGATION_TOOLS.map(str::to_owned).into(),
        max_depth: settings.limits.max_depth,
        agents: Names::Any,
        ..Authority::default()
    };
    let caller =
        Caller { depth: 0, authority: &authority, agent: &library.lead, agents: library.agents.list() };
    offered.extend(library.delegation_styles.specs(&caller).iter().map(entry));
    offered.sort_by(|a, b| a.0.cmp(&b.0));
    match global.output_format {
        OutputFormat::Text => {
            // Tool names of MCP servers are long, so the column is as wide as the longest name.
            let names = offered.iter().map(|(name, ..)| sanitize::line(name).chars().count());
            let column = names.max().unwrap_or_default().max(MIN_NAME_COLUMNS);
            let lines: Vec<String> = offered
                .iter()
                .map(|(name, description, _)| {
                    let sentence = description.split(". ").next().unwrap_or_default();
                    format!(
                        "{} {}",
                        pad(&sanitize::line(name), column),
                        fit(&sanitize::line(sentence.trim_end_matches('.')), 110)
                    )
                })
                .collect();
            output::text(&lines.join("\n"))?;
        }
        OutputFormat::Json | OutputFormat::StreamJson => {
            let all: Vec<serde_json::Value> = offered
                .into_iter()
                .map(|(name, description, mut rest)| {
                    rest["name"] = json!(name);
                    rest["description"] = json!(description);
                    rest
                })
                .collect();
            output::json(&all)?;
        }
    }
    Ok(Exit::Done)
}

/// Placeholder for the tools of a server that is not started.
fn not_started(server: &McpServer) -> (String, String, serde_json::Value) {
    let about = match server.is_disabled {
        true => "Tools of an MCP server that is disabled",
        false => "Tools of an MCP server that is not started (use --servers to start it)",
    };
    let rest = json!({ "category": "other", "disabled": server.is_disabled });
    (format!("mcp__{}__*", server.name.to_lowercase()), about.to_owned(), rest)
}

fn entry(spec: &ToolSpec) -> (String, String, serde_json::Value) {
    let rest = json!({ "category": spec.category, "schema": spec.schema });
    (spec.name.clone(), spec.description.clone(), rest)
}
