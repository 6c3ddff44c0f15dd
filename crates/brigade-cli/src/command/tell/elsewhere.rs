//! Following a session that another process runs, by reading its log from the store.

use brigade::{Detached, Ending, Runtime, Store};
use brigade_core::view::Doing;
use brigade_core::{SessionId, State};
use tokio::time::MissedTickBehavior;

use super::is_run;
use crate::failure::Failure;
use crate::follow::{Followed, Interrupts, TICK, View, catch_up};
use crate::progress::Progress;

/// Ticks between two looks at the lease.
const LEASE_CHECK_TICKS: u32 = 5;

/// Reason why following stopped.
pub(super) enum Stopped {
    /// The round ended, and the session has read all messages.
    Ended(Box<Followed>),
    /// No process runs the session, and it has work left.
    Abandoned,
    /// The user stopped waiting. The session still runs.
    Interrupted,
}

/// Follows a session that another process runs.
pub(super) async fn follow(
    runtime: &Runtime,
    session: &SessionId,
    progress: &mut Progress,
    interrupts: &mut Interrupts,
) -> Result<Stopped, Failure> {
    let store = &**runtime.store();
    let (mut view, records) = View::load(store, session).await?;
    progress.remember(&records, &view)?;
    drop(records);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut ticked: u32 = 0;
    let stopped = loop {
        tokio::select! {
            biased;
            () = interrupts.next() => break Stopped::Interrupted,
            _ = ticks.tick() => {}
        }
        // Read before the log: the end of a round is recorded before its lease is released.
        let has_runner = !ticked.is_multiple_of(LEASE_CHECK_TICKS) || is_run(store, session).await?;
        ticked = ticked.wrapping_add(1);
        catch_up(store, &mut view, progress).await?;
        progress.flush()?;
        progress.tick(&view);
        let has_ended = view.tree.node(session).is_some_and(|node| matches!(node.doing, Doing::Ended(_)));
        if has_ended && !runtime.has_unheard_words(session).await? {
            match ending(store, session).await? {
                Some(ending) => break Stopped::Ended(Box::new(Followed { ending: Ok(ending), view })),
                // Another round has begun since.
                None => continue,
            }
        }
        if !has_runner {
            break Stopped::Abandoned;
        }
    };
    progress.end();
    Ok(stopped)
}

/// End of the last round of a session; none while a round is open.
async fn ending(store: &dyn Store, session: &SessionId) -> Result<Option<Ending>, Failure> {
    let records = store.read(session, 0).await?;
    let state = State::fold(session.clone(), records.iter().map(|record| &record.event));
    Ok(state.ended().map(|outcome| Ending {
        session: session.clone(),
        outcome: outcome.clone(),
        spent: state.ledger().spent(),
        detached: Detached::none(),
    }))
}
