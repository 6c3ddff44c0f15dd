//! Following a session that another process runs, by reading its log from the store.

use brigade::{Detached, RunResult, Runtime, Store};
use brigade_core::view::Node;
use brigade_core::{SessionId, State};

use super::{LEASE_CHECK_INTERVAL, is_running};
use crate::clock;
use crate::error::CliError;
use crate::follow::{DRAW_INTERVAL, FollowedRun, RunView, Signals, on_event};
use crate::progress::Progress;

/// Reason why following stopped.
pub(super) enum FollowOutcome {
    /// The round ended, and the session has read all messages.
    Ended(Box<FollowedRun>),
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
    signals: &mut Signals,
) -> Result<FollowOutcome, CliError> {
    let store = &**runtime.store();
    let (mut view, records) = RunView::load(store, session).await?;
    progress.replay(&records, &view)?;
    drop(records);
    let (mut ticks, mut lease_checks) = (clock::ticks(DRAW_INTERVAL), clock::ticks(LEASE_CHECK_INTERVAL));
    let mut events = runtime.follow(session, view.cursor);
    let outcome = loop {
        let is_abandoned = tokio::select! {
            biased;
            () = signals.next() => break FollowOutcome::Interrupted,
            _ = ticks.tick() => {
                progress.flush()?;
                progress.tick(&view);
                continue;
            }
            _ = lease_checks.tick() => {
                // The lease is read before the log: the end of a round is recorded before its lease is released.
                !is_running(store, session).await? && store.tail(session, view.cursor, 1).await?.is_empty()
            }
            event = events.next() => on_event(event?, &mut view, progress).map(|()| false)?,
        };
        let has_ended = view.tree.node(session).is_some_and(Node::has_ended);
        if has_ended && !runtime.has_unread_input(session).await? {
            match result(store, session).await? {
                Some(result) => {
                    break FollowOutcome::Ended(Box::new(FollowedRun { result: Ok(result), view }));
                }
                // Another round has begun since.
                None => continue,
            }
        }
        if is_abandoned {
            break FollowOutcome::Abandoned;
        }
    };
    progress.end();
    Ok(outcome)
}

/// End of the last round of a session; none while a round is open.
async fn result(store: &dyn Store, session: &SessionId) -> Result<Option<RunResult>, CliError> {
    let records = store.read(session, 0).await?;
    let state = State::fold(session.clone(), records.iter().map(|record| &record.event));
    Ok(state.ended().map(|outcome| RunResult {
        session: session.clone(),
        outcome: outcome.clone(),
        spent: state.ledger().spent(),
        detached: Detached::none(),
    }))
}
