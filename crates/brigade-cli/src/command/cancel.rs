//! `brigade cancel`: stops a session, in whichever process it runs.

use std::time::Duration;

use brigade::{ResumeOptions, RunError, RunEvent, Runtime, Store, StoreError};
use brigade_core::{Cursor, Event, Record, SessionId, State, Status};
use serde_json::json;

use super::tell::is_running;
use crate::args::Global;
use crate::error::{CliError, Exit};
use crate::output;
use crate::session_ref;
use crate::settings::Settings;
use crate::setup;

/// Stop a session and its sub-agents, even in another process
#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// Session id
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Time that a session may take to stop before this command returns.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the command.
pub(crate) fn run(global: &Global, cancel: &CancelArgs) -> Result<Exit, CliError> {
    let settings = Settings::load_user_only(global)?;
    setup::multi_thread_runtime()?.block_on(async {
        let store = setup::open_existing_store(&settings)?;
        let session = session_ref::resolve(&*store, &cancel.id).await?;
        let runtime = setup::control_runtime(settings, store, &session).await?;
        let (status, message) = stop(&runtime, &session).await?;
        let json = json!({ "type": "cancel", "session_id": session, "status": status, "note": message });
        output::note_or_json(global.output_format, &message, &json)
    })
}

async fn stop(runtime: &Runtime, session: &SessionId) -> Result<(&'static str, String), CliError> {
    let store = &**runtime.store();
    let status = ended(store, session).await?;
    let title = session_ref::title(store, session).await;
    if let Some(status) = status {
        return Ok((status.as_str(), format!("{title} has already ended: {}", status.as_str())));
    }
    runtime.cancel(session, "the user").await?;
    let root = session.root_id();
    if !is_running(store, &root).await? {
        // Another process may have ended it in the meantime. A session that has ended is not resumed, even if it has
        // unread messages.
        if let Some(status) = ended(store, session).await? {
            return Ok((status.as_str(), format!("{title} has ended: {}", status.as_str())));
        }
        match runtime.resume(session, ResumeOptions::default()).await {
            Ok(run) => {
                let status = run.result().await?.outcome.status;
                return Ok((
                    status.as_str(),
                    format!("{title} was not running and is now {}", status.as_str()),
                ));
            }
            Err(RunError::Store(StoreError::Held { .. })) => {}
            Err(RunError::TreeRunning { root, .. }) => {
                let message = format!(
                    "{title} will be cancelled when its run is resumed. To resume it: brigade resume {root}"
                );
                return Ok(("asked", message));
            }
            Err(error) => {
                return Err(CliError::from(error).hint("The session will be cancelled when it is resumed."));
            }
        }
    }
    match tokio::time::timeout(CANCEL_TIMEOUT, wait(runtime, session)).await {
        Ok(status) => {
            let status = status?;
            Ok((status.as_str(), format!("{title} has ended: {}", status.as_str())))
        }
        Err(_) => Ok(("asked", format!("{title} is stopping, but has not ended yet"))),
    }
}

/// Waits for the process that runs the session to end it.
async fn wait(runtime: &Runtime, session: &SessionId) -> Result<Status, CliError> {
    let records = runtime.store().read(session, 0).await?;
    if let Some(status) = end_status(session, &records)? {
        return Ok(status);
    }
    let mut events = runtime.follow(session, records.last().map_or(Cursor::START, |record| record.pos));
    loop {
        if let RunEvent::Record(record) = events.next().await?
            && record.session == *session
            && let Event::Ended { outcome, .. } = &record.event
        {
            return Ok(outcome.status.clone());
        }
    }
}

/// Status of a session whose last round has ended.
async fn ended(store: &dyn Store, session: &SessionId) -> Result<Option<Status>, CliError> {
    end_status(session, &store.read(session, 0).await?)
}

fn end_status(session: &SessionId, records: &[Record]) -> Result<Option<Status>, CliError> {
    if records.is_empty() {
        return Err(StoreError::UnknownSession(session.clone()).into());
    }
    let state = State::fold(session.clone(), records.iter().map(|record| &record.event));
    Ok(state.ended().map(|outcome| outcome.status.clone()))
}
