//! `brigade resume`: goes on with a tree, from wherever it stopped.

use brigade::{RunError, Runtime, StoreError};
use brigade_core::SessionId;
use brigade_core::view::Doing;

use crate::args::{Flags, Global, Resume};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::finish::{self, Hints};
use crate::follow::{self, Interrupts, View};
use crate::named;
use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::terminal;

/// Runs it.
pub(crate) fn run(global: Global, resume: Resume) -> Result<Exit, Failure> {
    refuse_agent(&resume.flags)?;
    let person = Settings::of_the_person(&global)?;
    engine::many_threads()?.block_on(async {
        let store = engine::store(&person)?;
        let session = named::session(&*store, &resume.id).await?;
        let settings = engine::at_home(&global, &resume.flags, &*store, &session).await?;
        let runtime = engine::runtime(&settings, store, &engine::servers(&settings).await?)?;
        match go_on(&global, &resume.flags, &settings, &runtime, &session).await? {
            GoneOn::Ended(exit) => Ok(exit),
            GoneOn::Held(error) => Err(error.into()),
        }
    })
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
) -> Result<GoneOn, Failure> {
    let hints = Hints::new(global, flags);
    let mut interrupts = Interrupts::listen(runtime.store().clone())?;
    let (view, records) = View::load(&**runtime.store(), session).await?;
    let run = match runtime.resume(session, engine::more(settings, flags)).await {
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
    let followed = follow::follow(runtime, run, view, &mut progress, &mut interrupts, &hints).await?;
    let colour = terminal::colour(&settings.environment);
    finish::finish(&**runtime.store(), followed, global, &hints, colour, &mut interrupts)
        .await
        .map(GoneOn::Ended)
}
