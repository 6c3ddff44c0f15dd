//! `brigade mcp`: the faces as tools of other programs.

mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use brigade::Asks;
use brigade::mcp::Servers;
use brigade_mcp::http::{self, Checks};
use brigade_mcp::{Server, stdio};
use tokio::net::TcpListener;

use crate::args::{Global, Mcp};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::follow::Interrupts;
use crate::output;
use crate::settings::Settings;
use crate::suggest;
use crate::terminal;

/// Runs it.
pub(crate) fn run(global: &Global, mcp: &Mcp) -> Result<Exit, Failure> {
    refuse_what_has_no_meaning(mcp)?;
    let settings = Arc::new(Settings::for_run(global, &mcp.flags)?);
    if settings.model.is_none() {
        return Err(suggest::no_model_for(&settings, "brigade mcp"));
    }
    let runtime = engine::many_threads()?;
    let exit = runtime.block_on(serve(mcp, &settings));
    // Whoever reads standard input may wait there for ever.
    runtime.shutdown_background();
    exit
}

fn refuse_what_has_no_meaning(mcp: &Mcp) -> Result<(), Failure> {
    let named = [("--agent", mcp.flags.agent.is_some()), ("--max-turns", mcp.flags.max_turns.is_some())];
    if let Some((flag, _)) = named.iter().find(|(_, is_named)| *is_named) {
        return Err(Failure::usage(format!(
            "{flag} is about the lead agent, and brigade mcp has none: the client leads; leave it out"
        )));
    }
    match mcp.listen {
        Some(address) if !address.ip().is_loopback() && !mcp.allow_remote => Err(Failure::usage(format!(
            "{address} can be reached from other machines; listen on 127.0.0.1, or say --allow-remote"
        ))),
        _ => Ok(()),
    }
}

async fn serve(mcp: &Mcp, settings: &Arc<Settings>) -> Result<Exit, Failure> {
    engine::check_model(settings).map_err(|failure| {
        failure.hint(suggest::instead(settings, settings.model.as_deref().unwrap_or_default()))
    })?;
    let store = engine::store(settings)?;
    let mut interrupts = Interrupts::listen(store.clone())?;
    let mut library = engine::settings_to_run(settings, &*store).await?;
    // Nobody is there to be asked, unless answers come from elsewhere.
    library.asks = if settings.waits_for_answers { Asks::Person } else { Asks::Nobody };
    let server =
        Server::new(store, library, engine::models(settings), mcp.flags.timeout).map_err(Failure::usage)?;
    let shared = settings.clone();
    let server = server.with_servers(move || Box::pin(tools(shared.clone())));
    match mcp.listen {
        None => {
            if terminal::types_input() {
                output::note(
                    "This speaks MCP on standard input and output: a client starts it, see brigade mcp --help. Ctrl-C ends it.",
                );
            }
            let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
            stdio::serve(server, input, output, interrupts.next())
                .await
                .map_err(|error| Failure::failed(format!("invalid message from the MCP client: {error}")))?;
        }
        Some(address) => listen(mcp, settings, server, address, &mut interrupts).await?,
    }
    Ok(Exit::Done)
}

/// The servers whose tools the agents are to have.
async fn tools(settings: Arc<Settings>) -> Servers {
    engine::servers(&settings).await.unwrap_or_else(|failure| {
        output::note(&format!("warning: no server of tools can be started: {failure}"));
        Servers::default()
    })
}

async fn listen(
    mcp: &Mcp,
    settings: &Settings,
    server: Server,
    address: SocketAddr,
    interrupts: &mut Interrupts,
) -> Result<(), Failure> {
    let refused = |error| Failure::failed(format!("nothing can listen on {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let (token, kept) = match &mcp.token_env {
        Some(name) => (token::of_variable(&settings.environment, name)?, None),
        None => {
            let (token, file) = token::made(settings, address.port())?;
            (token, Some(file))
        }
    };
    let mut checks = Checks::with_token(token);
    for host in &mcp.host {
        checks = checks.allow_host(host);
    }
    for origin in &mcp.origin {
        checks = checks.allow_origin(origin);
    }
    output::note(&format!("MCP at http://{address}{}; Ctrl-C ends it", http::PATH));
    match (&kept, &mcp.token_env) {
        (Some(kept), _) => output::note(&format!("the token is in {}", kept.path().display())),
        (None, name) => {
            output::note(&format!("the token is that of {}", name.as_deref().unwrap_or_default()))
        }
    }
    let makes = server.clone();
    let router = http::router(move || makes.clone(), checks);
    let ended = http::serve(listener, router, interrupts.next()).await;
    server.close().await;
    ended.map_err(refused)
}
