//! `brigade tell`: says something to a session; where nobody runs it, runs its next round.

mod elsewhere;

use std::time::Duration;

use brigade::mcp::Servers;
use brigade::{RunError, Runtime, Store};
use brigade_core::SessionId;
use serde_json::json;

use super::resume::{GoneOn, go_on, refuse_agent};
use crate::args::{Flags, Global, OutputFormat, Tell};
use crate::attention::Attention;
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::finish::{self, Hints, store_flag};
use crate::follow::Interrupts;
use crate::named;
use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::terminal;

use elsewhere::Stopped;

/// How often and how long to wait for a runner that is just leaving.
pub(super) const GLANCES: u32 = 40;
pub(super) const GLANCE: Duration = Duration::from_millis(50);

/// Step after a message was delivered to a session that another process runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Return at once.
    Return,
    /// Follow the session and print its result.
    Follow,
}

/// Runs it.
pub(crate) fn run(global: Global, tell: Tell) -> Result<Exit, Failure> {
    deliver(global, tell, Then::Return)
}

/// Delivers a message, and runs the next round of the session if no other process runs it.
pub(super) fn deliver(global: Global, tell: Tell, then: Then) -> Result<Exit, Failure> {
    let text = tell.text.join(" ");
    if text.trim().is_empty() {
        return Err(Failure::usage("there is nothing to tell; say something after the id"));
    }
    refuse_agent(&tell.flags)?;
    let person = Settings::of_the_person(&global)?;
    engine::many_threads()?.block_on(async {
        let store = engine::store_of_sessions(&person)?;
        let session = named::session(&*store, &tell.id).await?;
        let settings = engine::at_home(&global, &tell.flags, &*store, &session).await?;
        let runtime = engine::runtime(&settings, store.clone(), &Servers::default()).await?;
        runtime.tell(&session, &text).await?;
        let root = session.root_id();
        if root != session && is_run(&**runtime.store(), &root).await? {
            return told(&global, &*store, &session).await;
        }
        let mut glances = 0..GLANCES;
        while then == Then::Follow || glances.next().is_some() {
            // Servers are started only for a session that nobody runs.
            if !is_run(&*store, &session).await? {
                let servers = engine::servers(&settings).await?;
                let runtime = engine::runtime(&settings, store.clone(), &servers).await?;
                let more = engine::more(&settings, &tell.flags);
                match go_on(&global, &tell.flags, &settings, &runtime, &session, more).await {
                    Ok(GoneOn::Ended(exit)) => return Ok(exit),
                    Ok(GoneOn::Held(_)) => {}
                    Err(failure) => return Err(failure.hint("The words are recorded all the same.")),
                }
            }
            if then == Then::Follow {
                match followed(&global, &tell.flags, &settings, &runtime, &session).await? {
                    Some(exit) => return Ok(exit),
                    None => continue,
                }
            }
            // The words may have come after the end of a round whose runner has not gone yet.
            if !runtime.has_unheard_words(&session).await? {
                break;
            }
            tokio::time::sleep(GLANCE).await;
        }
        told(&global, &*store, &session).await
    })
}

/// Follows a session that another process runs, and prints its end. None if that process left it with work to do.
async fn followed(
    global: &Global,
    flags: &Flags,
    settings: &Settings,
    runtime: &Runtime,
    session: &SessionId,
) -> Result<Option<Exit>, Failure> {
    let store = &**runtime.store();
    let mut interrupts = Interrupts::listen(runtime.store().clone())?;
    let mut progress = Progress::new(global, &settings.environment);
    let title = named::title(store, session).await;
    output::note(&format!(
        "{title} is running in another process and reads the message before its next turn."
    ));
    match elsewhere::follow(runtime, session, &mut progress, &mut interrupts).await? {
        Stopped::Abandoned => Ok(None),
        Stopped::Interrupted => {
            output::note(&format!(
                "Stopped waiting. {title} is still running. To stop it: brigade cancel {session}{}",
                store_flag(global)
            ));
            Ok(Some(Exit::Cancelled))
        }
        Stopped::Ended(followed) => {
            let hints = Hints::new(global, flags);
            let colour = terminal::colour(&settings.environment);
            let mut attention = Attention::new(settings, runtime);
            finish::finish(store, *followed, global, &hints, colour, &mut interrupts, &mut attention)
                .await
                .map(Some)
        }
    }
}

async fn told(global: &Global, store: &dyn Store, session: &SessionId) -> Result<Exit, Failure> {
    match global.output_format {
        OutputFormat::Text => {
            let title = named::title(store, session).await;
            output::note(&format!("{title} is running and reads the message before its next turn"))
        }
        OutputFormat::Json | OutputFormat::StreamJson => {
            output::json(&json!({ "type": "told", "session_id": session, "status": "running" }))?;
        }
    }
    Ok(Exit::Done)
}

/// Whether somebody runs a tree now.
pub(super) async fn is_run(store: &dyn Store, root: &SessionId) -> Result<bool, RunError> {
    let roots = store.roots().await?;
    Ok(roots.iter().any(|summary| summary.root == *root && summary.runner.is_some()))
}
