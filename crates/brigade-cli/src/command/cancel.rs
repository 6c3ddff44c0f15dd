//! `brigade cancel`: stops a session, whoever runs it.

use std::time::Duration;

use brigade::mcp::Servers;
use brigade::{More, RunError, Runtime, Store, StoreError};
use brigade_core::{SessionId, State, Status};
use serde_json::json;

use super::tell::is_run;
use crate::args::{Cancel, Global, OutputFormat};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::named;
use crate::output;
use crate::settings::{Instructions, Settings};

/// How long a runner may take to stop before this command stops watching it.
const PATIENCE: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(50);

/// Runs it.
pub(crate) fn run(global: &Global, cancel: &Cancel) -> Result<Exit, Failure> {
    let mut settings = Settings::of_the_person(global)?;
    // No agent is told anything here.
    settings.instructions = Instructions::None;
    engine::many_threads()?.block_on(async {
        let store = engine::store_of_sessions(&settings)?;
        let session = named::session(&*store, &cancel.id).await?;
        // A folder that is gone is no reason not to stop.
        if let Some(folder) =
            engine::recorded_folder(&*store, &session).await?.filter(|folder| folder.is_dir())
        {
            settings.folder = folder;
        }
        let runtime = engine::runtime(&settings, store, &Servers::default()).await?;
        let (status, words) = stop(&runtime, &session).await?;
        match global.output_format {
            OutputFormat::Text => output::note(&words),
            OutputFormat::Json | OutputFormat::StreamJson => {
                output::json(
                    &json!({ "type": "cancel", "session_id": session, "status": status, "note": words }),
                )?;
            }
        }
        Ok(Exit::Done)
    })
}

async fn stop(runtime: &Runtime, session: &SessionId) -> Result<(&'static str, String), Failure> {
    let store = &**runtime.store();
    let status = ended(store, session).await?;
    let title = named::title(store, session).await;
    if let Some(status) = status {
        return Ok((status.word(), format!("{title} has already ended: {}", status.word())));
    }
    runtime.cancel(session, "the person").await?;
    let root = session.root_id();
    if !is_run(store, &root).await? {
        // Its runner may have ended it meanwhile. A session that has ended is not resumed, even if it has unread messages.
        if let Some(status) = ended(store, session).await? {
            return Ok((status.word(), format!("{title} has ended: {}", status.word())));
        }
        match runtime.resume(session, More::default()).await {
            Ok(run) => {
                let status = run.ending().await?.outcome.status;
                return Ok((status.word(), format!("{title} was not running and is now {}", status.word())));
            }
            Err(RunError::Store(StoreError::Held { .. })) => {}
            Err(RunError::NotOver { root, .. }) => {
                let words = format!("{title} stops as soon as its run is resumed: brigade resume {root}");
                return Ok(("asked", words));
            }
            Err(error) => return Err(Failure::from(error).hint("The session stops as soon as it goes on.")),
        }
    }
    wait(store, session, &title).await
}

/// Waits for whoever runs the session to end it.
async fn wait(
    store: &dyn Store,
    session: &SessionId,
    title: &str,
) -> Result<(&'static str, String), Failure> {
    let mut waited = Duration::ZERO;
    while waited < PATIENCE {
        if let Some(status) = ended(store, session).await? {
            return Ok((status.word(), format!("{title} has ended: {}", status.word())));
        }
        tokio::time::sleep(GLANCE).await;
        waited += GLANCE;
    }
    Ok(("asked", format!("{title} was asked to stop and has not ended yet")))
}

/// How a session ended, if its last round is over.
async fn ended(store: &dyn Store, session: &SessionId) -> Result<Option<Status>, Failure> {
    let records = store.read(session, 0).await?;
    if records.is_empty() {
        return Err(StoreError::Unknown(session.clone()).into());
    }
    let state = State::fold(session.clone(), records.iter().map(|record| &record.event));
    Ok(state.ended().map(|outcome| outcome.status.clone()))
}
