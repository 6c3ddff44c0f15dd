//! `brigade acp`: sessions for editors and other clients, over standard input and output.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade::mcp::Servers;
use brigade::{Asks, Store};
use brigade_acp::agent::{self, Desk, Host};
use brigade_core::permission::Mode;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::fs::File;
use tokio::sync::Mutex;

use super::run::named_agent;
use crate::args::{Acp, Flags, Global};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::follow::Interrupts;
use crate::output;
use crate::safe;
use crate::settings::{Key, Settings};
use crate::suggest;

/// Runs it.
pub(crate) fn run(global: Global, acp: Acp) -> Result<Exit, Failure> {
    if acp.flags.cwd.is_some() {
        return Err(Failure::usage("the client says which folder a session works in; leave --cwd out"));
    }
    let settings = Settings::of_the_person(&global)?;
    let store = engine::store(&settings)?;
    let host = Arc::new(Person { global, flags: acp.flags, store, servers: Mutex::default() });
    let runtime = engine::many_threads()?;
    let served = runtime.block_on(serve(host));
    // A read of standard input cannot be given up, and nobody waits for it any more.
    runtime.shutdown_background();
    served
}

async fn serve(host: Arc<Person>) -> Result<Exit, Failure> {
    let mut interrupts = Interrupts::listen(host.store.clone())?;
    let unusable = |error| Failure::failed(format!("standard input and output cannot be used: {error}"));
    let input = file(io::stdin().as_fd()).map_err(unusable)?;
    let output = file(io::stdout().as_fd()).map_err(unusable)?;
    agent::serve(host, input, output, interrupts.next()).await;
    Ok(Exit::Done)
}

/// A stream that is not read ahead or locked by anything else in this process.
fn file(stream: impl AsFd) -> io::Result<File> {
    Ok(File::from_std(stream.as_fd().try_clone_to_owned()?.into()))
}

/// The person whose sessions are served: their settings, and those of each folder.
struct Person {
    global: Global,
    flags: Flags,
    store: Arc<dyn Store>,
    /// The servers of tools that a folder had last, and the settings that they were started with.
    servers: Mutex<HashMap<PathBuf, (String, Servers)>>,
}

impl Host for Person {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn desk<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, Result<Desk, String>> {
        async move { self.settled(folder).await.map_err(|failure| failure.to_string()) }.boxed()
    }

    fn note(&self, text: &str) {
        output::note(&safe::line(text));
    }
}

impl Person {
    /// What `brigade run --cwd` would work with there, with a person who can be asked.
    async fn settled(&self, folder: &Path) -> Result<Desk, Failure> {
        let flags = Flags { cwd: Some(folder.to_path_buf()), ..self.flags.clone() };
        let mut settings = Settings::for_run(&self.global, &flags)?;
        ask_through_client(&mut settings);
        let servers = self.servers_of(&settings).await?;
        let runtime = engine::runtime(&settings, self.store.clone(), &servers).await?;
        let agent = named_agent(&settings, &runtime.settings().agents)?;
        let has_model = agent.as_ref().is_some_and(|agent| agent.model.is_some() || agent.provider.is_some());
        if settings.model.is_none() && !has_model {
            return Err(suggest::no_model_for(&settings, "brigade acp"));
        }
        let model = flags.model.as_ref().and(settings.model.clone());
        Ok(Desk {
            runtime,
            agent,
            models: models(&settings),
            model,
            timeout: flags.timeout,
            proxies: settings.environment.proxies(),
        })
    }

    /// The servers of tools. Sessions of a folder share them as long as its settings stay as they are.
    async fn servers_of(&self, settings: &Settings) -> Result<Servers, Failure> {
        let now = settings.layers.render();
        let mut known = self.servers.lock().await;
        if let Some((then, servers)) = known.get(&settings.folder)
            && *then == now
        {
            return Ok(servers.clone());
        }
        let started = engine::servers(settings).await?;
        known.insert(settings.folder.clone(), (now, started.clone()));
        Ok(started)
    }
}

/// The client asks the person, so questions need no terminal, unless the person wants none; and where nobody says
/// otherwise, everything but reading is asked about.
fn ask_through_client(settings: &mut Settings) {
    let questions = settings.layers.table().get("permissions").and_then(|section| section.get("questions"));
    if questions.and_then(toml::Value::as_str) == Some("refuse") {
        return;
    }
    settings.asks = Asks::Person;
    let mut origins = settings.layers.origins();
    if origins.any(|(key, origin)| key == "permissions.mode" && origin == "default") {
        settings.permissions.mode = Mode::Ask;
    }
}

/// The models that a person may want: the one that is set, those that take over, and one of each provider with a key.
fn models(settings: &Settings) -> Vec<String> {
    let offers = settings.providers.offers(&settings.environment);
    let ready = offers.iter().filter(|offer| matches!(offer.key, Key::Set(_)));
    let mut models: Vec<String> = settings.model.iter().chain(&settings.fallbacks).cloned().collect();
    models.extend(ready.filter_map(|offer| suggest::model(&offer.name)));
    let mut seen = std::collections::HashSet::new();
    models.retain(|model| seen.insert(model.clone()));
    models
}
