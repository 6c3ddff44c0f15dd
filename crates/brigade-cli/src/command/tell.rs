//! `brigade tell`: sends a message to a session, and runs its next round if no process runs it.

mod other_process;

use std::time::Duration;

use brigade::mcp::Servers;
use brigade::open_sessions::RunnerExit;
use brigade::{RunError, Runtime, Store};
use brigade_core::SessionId;
use serde_json::json;

use super::resume::{ResumeOutcome, refuse_agent, resume_session};
use crate::args::{Flags, Global};
use crate::error::{CliError, Exit};
use crate::follow::{Console, Signals};
use crate::output;
use crate::progress::Progress;
use crate::session_ref;
use crate::settings::Settings;
use crate::setup;
use crate::summary::{self, store_flag};

use other_process::FollowOutcome;

/// Send a message to a session, while it runs or after it ends
#[derive(Debug, clap::Args)]
pub(crate) struct TellArgs {
    /// Session id
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Message
    #[arg(value_name = "TEXT", required = true)]
    pub(crate) text: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Time after which a lease is checked although nothing was written. A process that was killed writes nothing.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Step after a message was delivered to a session that another process runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterDelivery {
    /// Return at once.
    Return,
    /// Follow the session and print its result.
    Follow,
}

/// Runs the command.
pub(crate) fn run(global: Global, tell: TellArgs) -> Result<Exit, CliError> {
    deliver(global, tell, AfterDelivery::Return)
}

/// Delivers a message, and runs the next round of the session if no other process runs it.
pub(super) fn deliver(global: Global, tell: TellArgs, then: AfterDelivery) -> Result<Exit, CliError> {
    let text = tell.text.join(" ");
    if text.trim().is_empty() {
        return Err(CliError::usage("cannot send an empty message. Pass the text after the session id."));
    }
    refuse_agent(&tell.flags)?;
    let user_settings = Settings::load_user_only(&global)?;
    setup::multi_thread_runtime()?.block_on(async {
        let store = setup::open_existing_store(&user_settings)?;
        let session = session_ref::resolve(&*store, &tell.id).await?;
        let settings = setup::settings_for_session(&global, &tell.flags, &*store, &session).await?;
        let runtime = setup::runtime(&settings, store.clone(), &Servers::default()).await?;
        runtime.tell(&session, &text).await?;
        let root = session.root_id();
        if root != session && is_running(&**runtime.store(), &root).await? {
            return print_delivered(&global, &*store, &session).await;
        }
        let mut runner_exit = RunnerExit::new(&*store);
        loop {
            // MCP servers are started only if this process runs the session.
            if !is_running(&*store, &session).await? {
                let servers = setup::start_mcp_servers(&settings).await?;
                let runtime = setup::runtime(&settings, store.clone(), &servers).await?;
                let more = setup::resume_options(&settings, &tell.flags);
                match resume_session(&global, &tell.flags, &settings, &runtime, &session, more).await {
                    Ok(ResumeOutcome::Ended(exit)) => return Ok(exit),
                    Ok(ResumeOutcome::AlreadyRunning(_)) => {}
                    Err(failure) => {
                        return Err(failure.hint(
                            "The message was saved. It will be delivered when the session is resumed.",
                        ));
                    }
                }
            }
            if then == AfterDelivery::Follow {
                match follow_other_process(&global, &tell.flags, &settings, &runtime, &session).await? {
                    Some(exit) => return Ok(exit),
                    None => continue,
                }
            }
            // The message may have arrived after the end of a round whose process has not exited yet.
            if !runtime.has_unread_input(&session).await? || !runner_exit.may_have_happened().await {
                break;
            }
        }
        print_delivered(&global, &*store, &session).await
    })
}

/// Follows a session that another process runs, and prints its end. Returns none if that process exited with work
/// left.
async fn follow_other_process(
    global: &Global,
    flags: &Flags,
    settings: &Settings,
    runtime: &Runtime,
    session: &SessionId,
) -> Result<Option<Exit>, CliError> {
    let store = &**runtime.store();
    let mut signals = Signals::listen(runtime.store().clone())?;
    let mut progress = Progress::new(global, &settings.environment);
    let title = session_ref::title(store, session).await;
    output::note(&format!(
        "{title} is running in another process and reads the message before its next turn."
    ));
    match other_process::follow(runtime, session, &mut progress, &mut signals).await? {
        FollowOutcome::Abandoned => Ok(None),
        FollowOutcome::Interrupted => {
            output::note(&format!(
                "Stopped waiting. {title} is still running. Stop it with: brigade cancel {session}{}",
                store_flag(global)
            ));
            Ok(Some(Exit::Cancelled))
        }
        FollowOutcome::Ended(followed) => {
            let mut console = Console::new(global, flags, settings, runtime, signals);
            summary::finish(*followed, global, &mut console).await.map(Some)
        }
    }
}

async fn print_delivered(global: &Global, store: &dyn Store, session: &SessionId) -> Result<Exit, CliError> {
    let title = session_ref::title(store, session).await;
    let text = format!("{title} is running and reads the message before its next turn");
    let json = json!({ "type": "told", "session_id": session, "status": "running" });
    output::note_or_json(global.output_format, &text, &json)
}

/// Whether a process runs the tree now.
pub(super) async fn is_running(store: &dyn Store, root: &SessionId) -> Result<bool, RunError> {
    Ok(store.runner(root).await?.is_some())
}
