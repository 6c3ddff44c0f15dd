//! The calls that are under way. Each runs in a task of the server, not of the request that made it: a client that goes
//! away cannot leave a tree half stopped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade::{Detached, Run, RunError, RunResult, Runtime};
use brigade_core::SessionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;

/// How many calls may be under way at once.
const MAX_CALLS: usize = 64;

/// How long a tree that was told to stop may take before it is left where it stands. It can be resumed then.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Who stops a tree, in its log.
pub(crate) const CLIENT_ACTOR: &str = "the MCP client";

/// All calls that are under way.
#[derive(Clone)]
pub(crate) struct Calls {
    shared: Arc<Mutex<Shared>>,
    permits: Arc<Semaphore>,
}

/// The right to begin one call.
pub(crate) struct CallPermit(OwnedSemaphorePermit);

impl Default for Calls {
    fn default() -> Calls {
        Calls { shared: Arc::default(), permits: Arc::new(Semaphore::new(MAX_CALLS)) }
    }
}

#[derive(Default)]
struct Shared {
    tasks: JoinSet<()>,
    stops: HashMap<SessionId, watch::Sender<bool>>,
    is_closed: bool,
}

/// A call that is under way, for the request that made it. Whoever drops it stops the tree.
pub(crate) struct ActiveCall {
    stop: watch::Sender<bool>,
    end: oneshot::Receiver<Result<RunResult, RunError>>,
    is_detached: bool,
}

/// Why a call is not begun.
pub(crate) enum AdmitError {
    /// There are too many.
    Busy,
    /// The server stops.
    Closed,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more.
    pub(crate) fn admit(&self) -> Result<CallPermit, AdmitError> {
        if self.lock().is_closed {
            return Err(AdmitError::Closed);
        }
        self.permits.clone().try_acquire_owned().map(CallPermit).map_err(|_| AdmitError::Busy)
    }

    /// Whether this server runs the tree.
    pub(crate) fn is_running(&self, root: &SessionId) -> bool {
        self.lock().stops.contains_key(root)
    }

    /// Sees to a tree until its end.
    pub(crate) fn begin(&self, permit: CallPermit, runtime: Runtime, run: Run) -> ActiveCall {
        let root = run.session().clone();
        let (stop, stopped) = watch::channel(false);
        let (sender, end) = oneshot::channel();
        let calls = self.clone();
        let mut shared = self.lock();
        while shared.tasks.try_join_next().is_some() {}
        // Where the server began to close meanwhile, the tree hears so at once.
        stop.send_replace(shared.is_closed);
        shared.stops.insert(root.clone(), stop.clone());
        shared.tasks.spawn(async move {
            let ending = supervise(&runtime, run, stopped.clone()).await;
            let detached = ending.as_ref().ok().map(|ending| ending.detached.clone());
            if detached.as_ref().is_none_or(|detached| detached.sessions().is_empty()) {
                calls.lock().stops.remove(&root);
            }
            let _ = sender.send(ending);
            if let Some(detached) = detached {
                supervise_detached(&runtime, &detached, stopped).await;
            }
            calls.lock().stops.remove(&root);
            drop(permit.0);
        });
        ActiveCall { stop, end, is_detached: false }
    }

    /// Stops all, and waits until nothing runs any more.
    pub(crate) async fn close(&self) {
        let mut tasks = {
            let mut shared = self.lock();
            shared.is_closed = true;
            for stop in shared.stops.values() {
                stop.send_replace(true);
            }
            std::mem::take(&mut shared.tasks)
        };
        while tasks.join_next().await.is_some() {}
    }
}

impl ActiveCall {
    /// Waits for the end of the tree.
    pub(crate) async fn result(&mut self) -> Result<RunResult, RunError> {
        let lost = |_| RunError::Bug("a call went away".to_owned());
        (&mut self.end).await.unwrap_or_else(|error| Err(lost(error)))
    }

    /// Lets the tree go on without the request that made it.
    pub(crate) fn detach(mut self) {
        self.is_detached = true;
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        if !self.is_detached {
            self.stop.send_replace(true);
        }
    }
}

async fn supervise(
    runtime: &Runtime,
    run: Run,
    mut stopped: watch::Receiver<bool>,
) -> Result<RunResult, RunError> {
    let root = run.session().clone();
    let mut ending = std::pin::pin!(run.result());
    tokio::select! {
        ending = &mut ending => return ending,
        // The sender lives in the list of calls.
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    // Its first fact may not be written yet: before that there is nothing to be told.
    while let Err(error) = runtime.cancel(&root, CLIENT_ACTOR).await {
        tokio::select! {
            ending = &mut ending => return ending,
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
        if !matches!(error, RunError::Store(brigade::StoreError::UnknownSession(_))) {
            return Err(error);
        }
    }
    match tokio::time::timeout(STOP_TIMEOUT, ending).await {
        Ok(ending) => ending,
        Err(_) => Err(RunError::Config(format!("{root} did not stop in time and was left where it stood"))),
    }
}

/// Sees to sessions that were left to themselves: they end with the server.
async fn supervise_detached(runtime: &Runtime, detached: &Detached, mut stopped: watch::Receiver<bool>) {
    // The request that began them has its answer: only the end of the server stops them.
    tokio::select! {
        () = detached.ended() => return,
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    for session in detached.sessions() {
        let _ = runtime.cancel(session, CLIENT_ACTOR).await;
    }
    let _ = tokio::time::timeout(STOP_TIMEOUT, detached.ended()).await;
}
