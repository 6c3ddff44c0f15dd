//! `brigade acp`: serves sessions to editors and other clients over standard input and output.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade::mcp::Servers;
use brigade::{ApprovalPolicy, Store};
use brigade_acp::agent::{self, EnvironmentError, Host, SessionEnvironment};
use brigade_core::permission::Mode;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::fs::File;
use tokio::sync::Mutex;

use super::run::selected_agent;
use crate::args::{Flags, Global};
use crate::error::{CliError, Exit};
use crate::follow::Signals;
use crate::model_hints;
use crate::output;
use crate::sanitize;
use crate::settings::{ApiKey, Settings};
use crate::setup;

const HELP: &str = "\
Your editor starts this command; configure it once. In Zed, in the file that
`zed: open settings` opens:

  \"agent_servers\": {
    \"Brigade\": { \"type\": \"custom\", \"command\": \"brigade\", \"args\": [\"acp\"] }
  }

Other editors use the same command and argument. Flags go after it:

  brigade acp --mode edit --budget-usd 2     mode and budget of each prompt
  brigade acp -a reviewer                    an agent other than the lead

The editor chooses the directory of a session. The configuration of that directory applies
only if you trust it: brigade trust DIR. Approval requests appear in the editor and can
also be answered from a terminal: brigade answer ID. Sessions are stored like all
others: brigade sessions list. Standard output contains only the protocol; warnings go
to standard error, which editors show in their logs.";

/// Serve sessions to an editor or another client over the Agent Client Protocol (ACP)
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct AcpArgs {
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Runs the command.
pub(crate) fn run(global: Global, acp: AcpArgs) -> Result<Exit, CliError> {
    if acp.flags.cwd.is_some() {
        return Err(CliError::usage(
            "cannot use --cwd with brigade acp: the client chooses the directory of each session. Omit the flag.",
        ));
    }
    let settings = Settings::load_user_only(&global)?;
    let store = setup::open_store(&settings)?;
    let host = Arc::new(CliHost { global, flags: acp.flags, store, servers: Mutex::default() });
    let runtime = setup::multi_thread_runtime()?;
    let served = runtime.block_on(serve(host));
    // A blocking read of standard input cannot be cancelled, and its result is not needed any more.
    runtime.shutdown_background();
    served
}

async fn serve(host: Arc<CliHost>) -> Result<Exit, CliError> {
    let mut signals = Signals::listen(host.store.clone())?;
    let unusable = |error| CliError::failed(format!("cannot use standard input and output: {error}"));
    let input = file(io::stdin().as_fd()).map_err(unusable)?;
    let output = file(io::stdout().as_fd()).map_err(unusable)?;
    agent::serve(host, input, output, signals.next()).await;
    Ok(Exit::Done)
}

/// Unbuffered, unlocked handle of a standard stream.
fn file(stream: impl AsFd) -> io::Result<File> {
    Ok(File::from_std(stream.as_fd().try_clone_to_owned()?.into()))
}

/// Host of the ACP server: the user's settings, and those of each folder.
struct CliHost {
    global: Global,
    flags: Flags,
    store: Arc<dyn Store>,
    /// MCP servers of each folder, with the settings that they were started with.
    servers: Mutex<HashMap<PathBuf, (String, Servers)>>,
}

impl Host for CliHost {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn environment<'a>(
        &'a self,
        folder: &'a Path,
    ) -> BoxFuture<'a, Result<SessionEnvironment, EnvironmentError>> {
        async move {
            self.build_environment(folder).await.map_err(|failure| EnvironmentError(failure.to_string()))
        }
        .boxed()
    }

    fn note(&self, text: &str) {
        output::note(&sanitize::line(text));
    }
}

impl CliHost {
    /// Environment that `brigade run --cwd` would use in the folder, with a user who can be asked.
    async fn build_environment(&self, folder: &Path) -> Result<SessionEnvironment, CliError> {
        let flags = Flags { cwd: Some(folder.to_path_buf()), ..self.flags.clone() };
        let mut settings = Settings::load_for_run(&self.global, &flags)?;
        ask_through_client(&mut settings);
        let servers = self.servers_for(&settings).await?;
        let runtime = setup::runtime(&settings, self.store.clone(), &servers).await?;
        let agent = selected_agent(&settings, &runtime.settings().agents)?;
        let has_model = agent.as_ref().is_some_and(|agent| agent.model.is_some() || agent.provider.is_some());
        if settings.model.is_none() && !has_model {
            return Err(model_hints::no_model_for(&settings, "brigade acp"));
        }
        let model = flags.model.as_ref().and(settings.model.clone());
        Ok(SessionEnvironment {
            runtime,
            agent,
            models: models(&settings),
            model,
            timeout: flags.timeout,
            proxies: settings.environment.proxies(),
        })
    }

    /// MCP servers of a folder. Sessions share them as long as the settings do not change.
    async fn servers_for(&self, settings: &Settings) -> Result<Servers, CliError> {
        let now = settings.layers.render();
        let mut known = self.servers.lock().await;
        if let Some((then, servers)) = known.get(&settings.folder)
            && *then == now
        {
            return Ok(servers.clone());
        }
        let started = setup::start_mcp_servers(settings).await?;
        known.insert(settings.folder.clone(), (now, started.clone()));
        Ok(started)
    }
}

/// Enables approvals through the client, which need no terminal, unless the user disabled them. Without an explicit
/// mode, everything except reading requires approval.
fn ask_through_client(settings: &mut Settings) {
    let questions = settings.layers.table().get("permissions").and_then(|section| section.get("questions"));
    if questions.and_then(toml::Value::as_str) == Some("refuse") {
        return;
    }
    settings.approval_policy = ApprovalPolicy::AskUser;
    let mut origins = settings.layers.origins();
    if origins.any(|(key, origin)| key == "permissions.mode" && origin == "default") {
        settings.permissions.mode = Mode::Ask;
    }
}

/// Models to choose from: the configured one, its fallbacks, and one of each provider with a key.
fn models(settings: &Settings) -> Vec<String> {
    let offers = settings.providers.list(&settings.environment);
    let ready = offers.iter().filter(|offer| matches!(offer.key, ApiKey::Set(_)));
    let mut models: Vec<String> = settings.model.iter().chain(&settings.fallbacks).cloned().collect();
    models.extend(ready.filter_map(|offer| model_hints::suggested_model(&offer.name)));
    let mut seen = std::collections::HashSet::new();
    models.retain(|model| seen.insert(model.clone()));
    models
}
