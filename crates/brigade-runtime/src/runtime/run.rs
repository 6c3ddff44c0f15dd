//! A running tree: its handle, and the tasks that drive it.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use brigade_core::event::Answer;
use brigade_core::{Cursor, Event, QuestionId, SessionId};
use futures::Stream;
use futures::future::BoxFuture;

use super::{Detached, RunError, RunResult, Runtime};
use crate::event_stream::{RunEvent, RunEvents};
use crate::session::{Driver, DriverError, RoundEnd};
use crate::store::StoreError;
use crate::task::{AbortOnDrop, spawn};
use crate::tree::Tree;
use brigade_base::Follow;

/// Interval at which a runner renews its leases.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// A running tree.
///
/// It is a [`Stream`] of the events of the run, from the first one on. Awaiting it returns the result. A caller that holds a
/// run and needs no events drops [`Run::take_events`]. Dropping the run stops the runner. The tree can be resumed
/// afterwards.
#[must_use = "dropping a run stops it"]
pub struct Run {
    runtime: Runtime,
    session: SessionId,
    tree: Arc<Tree>,
    events: RunEvents,
    task: RunTask,
    /// Whether the session had already ended, so that this run is no round of it.
    had_ended: bool,
}

/// Task that ends with the result of a run.
pub(crate) type RunTask = AbortOnDrop<Result<RunResult, RunError>>;

/// Work of a run.
pub(super) enum RunWork {
    Drive(Box<Driver>),
    AlreadyEnded(Box<Result<RunResult, RunError>>),
}

impl Run {
    /// Starts a run in the background. Returns once its first event is durable, so that the session can be found,
    /// messaged and cancelled.
    pub(super) async fn start(runtime: Runtime, tree: Arc<Tree>, work: RunWork) -> Result<Run, RunError> {
        let store = tree.core.store.clone();
        let events = tree.streams.add(Follow::from_now(store, tree.root(), tree.history.restored_until));
        let (running, session) = (tree.clone(), tree.root().clone());
        let has_first_event = matches!(&work, RunWork::Drive(driver) if driver.has_unwritten_events());
        let had_ended = matches!(&work, RunWork::AlreadyEnded(_));
        let task = match work {
            RunWork::Drive(driver) => spawn(run_tree(running, driver)),
            RunWork::AlreadyEnded(result) => spawn(async move {
                running.leases.release().await?;
                running.streams.end();
                *result
            }),
        };
        let mut run = Run { runtime, session, tree, events, task: AbortOnDrop(task), had_ended };
        if has_first_event && !run.events.wait_for_first().await {
            let session = run.session.clone();
            run.result().await?;
            return Err(RunError::Bug(format!("session {session} ended before its first event")));
        }
        Ok(run)
    }

    /// Returns the root session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Takes the stream of the events, from the first one on. The run itself yields no events afterwards.
    pub fn take_events(&mut self) -> RunEvents {
        std::mem::replace(&mut self.events, RunEvents::ended())
    }

    /// Takes the stream of the events, including earlier ones of the tree after a position. The run itself yields no
    /// events afterwards.
    pub fn take_events_after(&mut self, cursor: Cursor) -> RunEvents {
        let mut events = self.take_events();
        // A new tree has no earlier events, so its stream is complete.
        let is_new = self.tree.history.restored_until == Cursor::START;
        if !(is_new && events.is_unread() && cursor == Cursor::START) {
            events.rewind(cursor);
        }
        events
    }

    /// Returns another stream of the events, from the first one on. Deltas come from now on.
    pub fn subscribe(&self) -> RunEvents {
        let store = self.tree.core.store.clone();
        self.tree.streams.add(Follow::new(store, &self.session, self.tree.history.restored_until))
    }

    /// Waits for the next event. Returns `None` when the run is over.
    pub async fn next(&mut self) -> Option<RunEvent> {
        self.events.next().await
    }

    /// Returns the next event if one is already queued.
    pub fn try_next(&mut self) -> Option<RunEvent> {
        self.events.try_next()
    }

    /// Cancels the run.
    pub async fn cancel(&self, by: &str) -> Result<(), RunError> {
        self.runtime.cancel(&self.session, by).await
    }

    /// Sends a user message to the root session, which reads it before its next turn.
    pub async fn tell(&self, text: &str) -> Result<(), RunError> {
        self.runtime.tell(&self.session, text).await
    }

    /// Answers an approval request of a session in the tree. The first answer counts.
    pub async fn answer(
        &self,
        session: &SessionId,
        question: impl Into<QuestionId>,
        answer: Answer,
        by: &str,
    ) -> Result<(), RunError> {
        self.runtime.answer(session, question, answer, by).await
    }

    /// Waits for the run to end. Its remaining events are discarded.
    pub async fn result(mut self) -> Result<RunResult, RunError> {
        self.events.close();
        join(&mut self.task).await
    }

    /// Whether the session had already ended, so that this run is no round of it.
    pub(crate) fn had_ended(&self) -> bool {
        self.had_ended
    }

    /// Returns the run with a task around its own. The result is that of the outer task, which is aborted with the run.
    pub(crate) fn supervised<F>(self, supervise: impl FnOnce(RunTask) -> F) -> Run
    where
        F: Future<Output = Result<RunResult, RunError>> + Send + 'static,
    {
        Run { task: AbortOnDrop(spawn(supervise(self.task))), ..self }
    }
}

impl Stream for Run {
    type Item = RunEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        Pin::new(&mut self.events).poll_next(context)
    }
}

impl IntoFuture for Run {
    type Output = Result<RunResult, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.result())
    }
}

/// Waits for the result of a run.
pub(crate) async fn join(task: &mut RunTask) -> Result<RunResult, RunError> {
    (&mut task.0).await.unwrap_or_else(|error| Err(RunError::Bug(error.to_string())))
}

/// Runs a tree to the end of its round and releases its lease.
async fn run_tree(tree: Arc<Tree>, driver: Box<Driver>) -> Result<RunResult, RunError> {
    let listener = AbortOnDrop(spawn(listen_for_external_events(tree.clone())));
    let heartbeat = AbortOnDrop(spawn(send_heartbeats(tree.clone())));
    // The driver runs in its own task, so that it is aborted with this one and a panic in it is caught here.
    let mut driving = AbortOnDrop(spawn(driver.drive()));
    let end = match (&mut driving.0).await {
        Ok(end) => end,
        Err(error) => Err(DriverError::Bug(error.to_string())),
    };
    let detached_tasks = tree.take_detached();
    let released = tree.leases.release().await;
    tree.streams.end();
    let RoundEnd { outcome, spent } = end?;
    released?;
    remove_unkept_children(&tree).await?;
    let detached = Detached::of(&detached_tasks);
    let session = tree.root().clone();
    if !detached_tasks.is_empty() {
        spawn(run_detached(tree, detached_tasks, detached.clone(), (listener, heartbeat)));
    }
    Ok(RunResult { session, outcome, spent, detached })
}

/// Waits for detached sessions to end and releases their leases.
async fn run_detached(
    tree: Arc<Tree>,
    detached_tasks: Vec<(SessionId, AbortOnDrop<()>)>,
    detached: Detached,
    _background_tasks: (AbortOnDrop<()>, AbortOnDrop<()>),
) {
    for (session, mut task) in detached_tasks {
        // The log contains the outcome. If it could not be written, the session can be resumed.
        let _ = (&mut task.0).await;
        let _ = tree.leases.release_detached(&session).await;
    }
    detached.all_ended();
}

/// Removes the descendants that the settings keep only while the root runs. A session with a kept descendant is
/// kept too.
async fn remove_unkept_children(tree: &Tree) -> Result<(), StoreError> {
    let unkept = tree.settings().delegation_styles.unkept();
    if unkept.is_empty() {
        return Ok(());
    }
    // Sessions of earlier rounds were removed when those rounds ended.
    let records = tree.store().tail(tree.root(), tree.history.round_after, usize::MAX).await?;
    let (mut kept, mut removable) = (Vec::new(), Vec::new());
    for record in &records {
        if let Event::Started { delegation, .. } = &record.event {
            let list = if unkept.contains(&delegation.style) { &mut removable } else { &mut kept };
            list.push(&record.session);
        }
    }
    // Descendants go first, because a session is removed only if nothing below it is kept.
    removable.sort_by_key(|session| (std::cmp::Reverse(session.as_str().len()), *session));
    // A session that was resumed on its own started more than once.
    removable.dedup();
    for session in removable {
        let is_left_to_itself = tree.leases.covering(session).root != *tree.root();
        if !is_left_to_itself && !kept.iter().any(|other| session.contains(other)) {
            tree.store().remove(session).await?;
        }
    }
    Ok(())
}

/// Notifies sessions of events that were appended from outside, by this or another process.
async fn listen_for_external_events(tree: Arc<Tree>) {
    let mut changes = tree.store().changes();
    let mut after = tree.history.restored_until;
    // Messages from before the tree was resumed are in the logs, which the drivers read first.
    loop {
        changes.mark_unchanged();
        if let Ok(events) = tree.store().external_events(tree.root(), after).await {
            after = events.last().map_or(after, |(_, pos)| *pos);
            tree.notify(events.iter().map(|(session, _)| session));
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Renews the leases every `HEARTBEAT_INTERVAL`.
async fn send_heartbeats(tree: Arc<Tree>) {
    loop {
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        tree.leases.renew().await;
    }
}
