//! `brigade resume`: continues a session from the point at which it stopped.

use brigade::{ResumeOptions, RunError, Runtime, SessionInfo, Store, StoreError};
use brigade_core::{Record, SessionId, State, Status};

use crate::args::{Flags, Global};
use crate::error::{CliError, Exit};
use crate::follow::{self, Console, RunView, Signals};
use crate::output;
use crate::progress::Progress;
use crate::render::truncate_at_word;
use crate::session_ref;
use crate::settings::Settings;
use crate::setup;
use crate::summary;

const HELP: &str = "\
Examples:
  brigade resume                            continue the last session of this directory
  brigade resume k3vq                       any session, by its id or a prefix of it
  brigade resume k3vq --max-turns 40        with a different limit

The session keeps its directory, agent, model and mode.";

/// Continue a session after Ctrl-C, a crash, a limit or a failure; print the result if it is done
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ResumeArgs {
    /// Session to continue (default: the last one of this directory)
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Columns of the task in the note about a session that was resumed without its id.
const MAX_TASK_COLUMNS: usize = 60;

/// Runs the command.
pub(crate) fn run(global: Global, resume: ResumeArgs) -> Result<Exit, CliError> {
    refuse_agent(&resume.flags)?;
    let user_settings = Settings::load_user_only(&global)?;
    setup::multi_thread_runtime()?.block_on(async {
        let store = setup::open_existing_store(&user_settings)?;
        let session = match &resume.id {
            Some(id) => session_ref::resolve(&*store, id).await?,
            None => last(&*store, &user_settings, &resume.flags).await?,
        };
        let settings = setup::settings_for_session(&global, &resume.flags, &*store, &session).await?;
        let more = ResumeOptions {
            continue_cancelled: may_continue(&*store, &session).await,
            ..setup::resume_options(&settings, &resume.flags)
        };
        let runtime = setup::runtime(&settings, store, &setup::start_mcp_servers(&settings).await?).await?;
        match resume_session(&global, &resume.flags, &settings, &runtime, &session, more).await? {
            ResumeOutcome::Ended(exit) => Ok(exit),
            ResumeOutcome::AlreadyRunning(error) => Err(error.into()),
        }
    })
}

/// Last session of the folder. Prints which one it is.
async fn last(store: &dyn Store, user_settings: &Settings, flags: &Flags) -> Result<SessionId, CliError> {
    let folder = flags
        .cwd
        .as_deref()
        .map_or_else(|| user_settings.folder.clone(), |cwd| user_settings.folder.join(cwd));
    let session = session_ref::last_in_folder(store, &folder, "brigade run \"TASK\"").await?;
    let (records, _) = store.read_prefix(&session).await?;
    let task = records.first().map(|record| session_ref::task(&record.event)).unwrap_or_default();
    let task = truncate_at_word(&task, MAX_TASK_COLUMNS);
    let state = State::fold(session.clone(), records.iter().map(|record| &record.event));
    let is_done = state.ended().is_some_and(|outcome| outcome.status == Status::Done);
    output::note(&match is_done && !state.has_unread_input() {
        true => format!("{session} is already done: {task}"),
        false => format!("Resuming {session}: {task}"),
    });
    Ok(session)
}

/// Whether a cancelled session may continue. Only the user can revoke a cancellation, and a session of a single
/// external call has nothing to continue.
async fn may_continue(store: &dyn Store, session: &SessionId) -> bool {
    let info = SessionInfo::read(store, session).await.ok().flatten();
    !info.is_some_and(|info| info.is_passthrough())
}

/// Rejects `--agent`: a session keeps the agent that it was started with.
pub(super) fn refuse_agent(flags: &Flags) -> Result<(), CliError> {
    if flags.agent.is_none() {
        return Ok(());
    }
    Err(CliError::usage(
        "cannot use --agent here: a session keeps its agent. Omit the flag, or start a new session with: brigade run -a ID",
    ))
}

/// Outcome of an attempt to resume.
pub(crate) enum ResumeOutcome {
    /// The session ran to its end, which was printed.
    Ended(Exit),
    /// Another process runs the session.
    AlreadyRunning(StoreError),
}

/// Resumes a session and follows it to its end.
pub(crate) async fn resume_session(
    global: &Global,
    flags: &Flags,
    settings: &Settings,
    runtime: &Runtime,
    session: &SessionId,
    more: ResumeOptions,
) -> Result<ResumeOutcome, CliError> {
    let signals = Signals::listen(runtime.store().clone())?;
    let (mut view, mut records) = RunView::load(&**runtime.store(), session).await?;
    if more.continue_cancelled && is_stopping(session, &records) {
        // A second Ctrl-C exited before the agents had stopped. That round ends first.
        match runtime.resume(session, ResumeOptions::default()).await {
            Ok(run) => drop(run.result().await?),
            Err(RunError::Store(error @ StoreError::Held { .. })) => {
                return Ok(ResumeOutcome::AlreadyRunning(error));
            }
            Err(error) => return Err(error.into()),
        }
        (view, records) = RunView::load(&**runtime.store(), session).await?;
    }
    let run = match runtime.resume(session, more).await {
        Ok(run) => run,
        Err(RunError::Store(error @ StoreError::Held { .. })) => {
            return Ok(ResumeOutcome::AlreadyRunning(error));
        }
        Err(error) => return Err(error.into()),
    };
    let is_open = view.tree.node(session).is_some_and(|node| !node.has_ended());
    if is_open && flags.has_limit() {
        output::note(
            "The interrupted task continues with its original limits. New limits apply from the next message.",
        );
    }
    let mut progress = Progress::new(global, &settings.environment);
    progress.replay(&records, &view)?;
    drop(records);
    let mut console = Console::new(global, flags, settings, runtime, signals);
    let followed = follow::follow(runtime, run, view, &mut progress, &mut console).await?;
    summary::finish(followed, global, &mut console).await.map(ResumeOutcome::Ended)
}

/// Whether a stop of the open round was requested.
fn is_stopping(session: &SessionId, records: &[Record]) -> bool {
    let own_records = records.iter().filter(|record| record.session == *session);
    let state = State::fold(session.clone(), own_records.map(|record| &record.event));
    state.is_running() && state.cancelled().is_some()
}
