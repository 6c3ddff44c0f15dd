//! `brigade resume`: continues a tree from wherever it stopped.

use brigade::model::relay;
use brigade::{More, RunError, Runtime, Store, StoreError};
use brigade_core::view::Doing;
use brigade_core::{Record, SessionId, State};

use crate::args::{Flags, Global, Resume};
use crate::attention::Attention;
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::finish::{self, Hints};
use crate::follow::{self, Interrupts, View};
use crate::named;
use crate::output;
use crate::progress::Progress;
use crate::render::shortened;
use crate::settings::Settings;
use crate::terminal;

/// Columns of the task of a session that is resumed without its id.
const MAX_TASK: usize = 60;

/// Runs it.
pub(crate) fn run(global: Global, resume: Resume) -> Result<Exit, Failure> {
    refuse_agent(&resume.flags)?;
    let person = Settings::of_the_person(&global)?;
    engine::many_threads()?.block_on(async {
        let store = engine::store_of_sessions(&person)?;
        let session = match &resume.id {
            Some(id) => named::session(&*store, id).await?,
            None => last(&*store, &person, &resume.flags).await?,
        };
        let settings = engine::at_home(&global, &resume.flags, &*store, &session).await?;
        let more = More {
            continue_cancelled: may_continue(&*store, &session).await,
            ..engine::more(&settings, &resume.flags)
        };
        let runtime = engine::runtime(&settings, store, &engine::servers(&settings).await?).await?;
        match go_on(&global, &resume.flags, &settings, &runtime, &session, more).await? {
            GoneOn::Ended(exit) => Ok(exit),
            GoneOn::Held(error) => Err(error.into()),
        }
    })
}

/// The last session of the folder, which the user is told.
async fn last(store: &dyn Store, person: &Settings, flags: &Flags) -> Result<SessionId, Failure> {
    let folder = flags.cwd.as_deref().map_or_else(|| person.folder.clone(), |cwd| person.folder.join(cwd));
    let session = named::last_in_folder(store, &folder, "brigade run \"TASK\"").await?;
    let (records, _) = store.read_prefix(&session).await?;
    let task = records.first().map(|record| named::task(&record.event)).unwrap_or_default();
    output::note(&format!("Resuming {session}: {}", shortened(&task, MAX_TASK)));
    Ok(session)
}

/// Whether a cancelled session may continue: only the user takes a cancellation back, and a session that made one call
/// of another program has nothing to continue.
async fn may_continue(store: &dyn Store, session: &SessionId) -> bool {
    !brigade_sandbox::runs_under(crate::GUARD) && !relay::speaks_for(store, session).await.unwrap_or(false)
}

/// A session keeps the agent that it was started with.
pub(super) fn refuse_agent(flags: &Flags) -> Result<(), Failure> {
    if flags.agent.is_none() {
        return Ok(());
    }
    Err(Failure::usage(
        "cannot change the agent of a session with --agent. Leave it out, or start a session with: brigade run -a ID",
    ))
}

/// What came of an attempt to go on.
pub(crate) enum GoneOn {
    /// It was run to its end, which is printed.
    Ended(Exit),
    /// Somebody runs it already.
    Held(StoreError),
}

/// Takes a tree up and follows it to its end.
pub(crate) async fn go_on(
    global: &Global,
    flags: &Flags,
    settings: &Settings,
    runtime: &Runtime,
    session: &SessionId,
    more: More,
) -> Result<GoneOn, Failure> {
    let hints = Hints::new(global, flags);
    let mut interrupts = Interrupts::listen(runtime.store().clone())?;
    let (mut view, mut records) = View::load(&**runtime.store(), session).await?;
    if more.continue_cancelled && is_stopping(session, &records) {
        // A second Ctrl-C left before the agents had stopped. That round ends first.
        match runtime.resume(session, More::default()).await {
            Ok(run) => drop(run.ending().await?),
            Err(RunError::Store(error @ StoreError::Held { .. })) => return Ok(GoneOn::Held(error)),
            Err(error) => return Err(error.into()),
        }
        (view, records) = View::load(&**runtime.store(), session).await?;
    }
    let run = match runtime.resume(session, more).await {
        Ok(run) => run,
        Err(RunError::Store(error @ StoreError::Held { .. })) => return Ok(GoneOn::Held(error)),
        Err(error) => return Err(error.into()),
    };
    let is_open = view.tree.node(session).is_some_and(|node| !matches!(node.doing, Doing::Ended(_)));
    if is_open && flags.names_a_limit() {
        output::note(
            "This round was not over and goes on with the limits it began with; new ones count from its next round.",
        );
    }
    let mut progress = Progress::new(global, &settings.environment);
    progress.remember(&records, &view)?;
    drop(records);
    let mut attention = Attention::new(settings, runtime);
    let followed =
        follow::follow(runtime, run, view, &mut progress, &mut interrupts, &hints, &mut attention).await?;
    let colour = terminal::colour(&settings.environment);
    finish::finish(&**runtime.store(), followed, global, &hints, colour, &mut interrupts, &mut attention)
        .await
        .map(GoneOn::Ended)
}

/// Whether the open round of a session was asked to stop.
fn is_stopping(session: &SessionId, records: &[Record]) -> bool {
    let own = records.iter().filter(|record| record.session == *session);
    let state = State::fold(session.clone(), own.map(|record| &record.event));
    state.is_running() && state.cancelled().is_some()
}
