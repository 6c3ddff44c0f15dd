//! `brigade mcp`: serves the delegation tools to MCP clients.

mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use brigade::ApprovalPolicy;
use brigade::mcp::Servers;
use brigade_http::{Listener, Policy, Reach};
use brigade_mcp::{Server, http, stdio};

use crate::args::{Flags, Global};
use crate::error::{CliError, Exit};
use crate::follow::Signals;
use crate::model_hints;
use crate::output;
use crate::settings::Settings;
use crate::setup;
use crate::terminal;

const HELP: &str = "\
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

/// Serve the delegation tools over MCP
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
// They configure a lead, which `mcp` does not have. They are parsed only to explain that.
#[command(mut_arg("agent", |agent| agent.hide(true)), mut_arg("max_turns", |turns| turns.hide(true)))]
pub(crate) struct McpArgs {
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

/// Runs the command.
pub(crate) fn run(global: &Global, mcp: &McpArgs) -> Result<Exit, CliError> {
    check_flags(mcp)?;
    let settings = Arc::new(Settings::load_for_run(global, &mcp.flags)?);
    if settings.model.is_none() {
        return Err(model_hints::no_model_for(&settings, "brigade mcp"));
    }
    let runtime = setup::multi_thread_runtime()?;
    let exit = runtime.block_on(serve(mcp, &settings));
    // A thread may block on standard input forever.
    runtime.shutdown_background();
    exit
}

fn check_flags(mcp: &McpArgs) -> Result<(), CliError> {
    let named = [("--agent", mcp.flags.agent.is_some()), ("--max-turns", mcp.flags.max_turns.is_some())];
    if let Some((flag, _)) = named.iter().find(|(_, is_named)| *is_named) {
        return Err(CliError::usage(format!(
            "cannot use {flag} with brigade mcp: it applies to a lead agent, and the client takes that role here. Omit the flag."
        )));
    }
    mcp.listen.map_or(Ok(()), |address| reach(mcp).check(address)).map_err(CliError::usage)
}

fn reach(mcp: &McpArgs) -> Reach {
    if mcp.allow_remote { Reach::Network } else { Reach::Loopback }
}

async fn serve(mcp: &McpArgs, settings: &Arc<Settings>) -> Result<Exit, CliError> {
    setup::check_model(settings).map_err(|failure| {
        model_hints::unusable_model(settings, settings.model.as_deref().unwrap_or_default(), failure)
    })?;
    let store = setup::open_store(settings)?;
    let mut signals = Signals::listen(store.clone())?;
    let mut library = setup::run_settings(settings, &*store).await?;
    // No user can be asked here, unless answers come from another terminal.
    library.approval_policy =
        if settings.waits_for_answers { ApprovalPolicy::AskUser } else { ApprovalPolicy::Deny };
    let server =
        Server::new(store, library, setup::models(settings), mcp.flags.timeout).map_err(CliError::usage)?;
    let shared = settings.clone();
    let server = server.with_servers(move || Box::pin(start_servers(shared.clone())));
    match mcp.listen {
        None => {
            if terminal::stdin_is_terminal() {
                output::note(
                    "Serving MCP on standard input and output, for a client that starts this command. See brigade mcp --help. Press Ctrl-C to stop.",
                );
            }
            let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
            stdio::serve(server, input, output, signals.next())
                .await
                .map_err(|error| CliError::failed(format!("invalid message from the MCP client: {error}")))?;
        }
        Some(address) => listen(mcp, settings, server, address, &mut signals).await?,
    }
    Ok(Exit::Done)
}

/// Starts the MCP servers whose tools the agents use.
async fn start_servers(settings: Arc<Settings>) -> Servers {
    setup::start_mcp_servers(&settings).await.unwrap_or_else(|failure| {
        output::note(&format!("warning: cannot start the MCP servers: {failure}"));
        Servers::default()
    })
}

async fn listen(
    mcp: &McpArgs,
    settings: &Settings,
    server: Server,
    address: SocketAddr,
    signals: &mut Signals,
) -> Result<(), CliError> {
    let listener = Listener::bind(address, reach(mcp)).await.map_err(CliError::failed)?;
    let address = listener.address();
    let (token, token_file) = match &mcp.token_env {
        Some(name) => (token::from_variable(&settings.environment, name)?, None),
        None => {
            let (token, file) = token::generate(settings, address.port())?;
            (token, Some(file))
        }
    };
    let mut policy = Policy::with_token(token);
    for host in &mcp.host {
        policy = policy.allow_host(host);
    }
    for origin in &mcp.origin {
        policy = policy.allow_origin(origin);
    }
    output::note(&format!("Serving MCP at http://{address}{} (press Ctrl-C to stop)", http::PATH));
    match (&token_file, &mcp.token_env) {
        (Some(token_file), _) => output::note(&format!("The token is in {}", token_file.path().display())),
        (None, name) => {
            output::note(&format!("The token is the value of {}", name.as_deref().unwrap_or_default()))
        }
    }
    let factory = server.clone();
    http::serve(listener, move || factory.clone(), policy, signals.next()).await;
    server.close().await;
    Ok(())
}
