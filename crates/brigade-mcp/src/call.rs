//! The calls that are under way. Each runs in a task of the server, not of the request that made it: a client that goes
//! away cannot leave a tree half stopped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade::{Detached, Ending, Run, RunError, Runtime};
use brigade_core::SessionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;

/// How many calls may be under way at once.
const MOST: usize = 64;

/// How long a tree that was told to stop may take before it is left where it stands. It can be resumed then.
const STOP_TIME: Duration = Duration::from_secs(10);

/// Who stops a tree, in its log.
pub(crate) const BY: &str = "the MCP client";

/// All calls that are under way.
#[derive(Clone)]
pub(crate) struct Calls {
    shared: Arc<Mutex<Shared>>,
    places: Arc<Semaphore>,
}

/// The right to begin one call.
pub(crate) struct Place(OwnedSemaphorePermit);

impl Default for Calls {
    fn default() -> Calls {
        Calls { shared: Arc::default(), places: Arc::new(Semaphore::new(MOST)) }
    }
}

#[derive(Default)]
struct Shared {
    tasks: JoinSet<()>,
    stops: HashMap<SessionId, watch::Sender<bool>>,
    is_closed: bool,
}

/// A call that is under way, for the request that made it. Whoever drops it stops the tree.
pub(crate) struct Call {
    stop: watch::Sender<bool>,
    end: oneshot::Receiver<Result<Ending, RunError>>,
    is_kept: bool,
}

/// Why a call is not begun.
pub(crate) enum Refused {
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
    pub(crate) fn admit(&self) -> Result<Place, Refused> {
        if self.lock().is_closed {
            return Err(Refused::Closed);
        }
        self.places.clone().try_acquire_owned().map(Place).map_err(|_| Refused::Busy)
    }

    /// Whether this server runs the tree.
    pub(crate) fn has(&self, root: &SessionId) -> bool {
        self.lock().stops.contains_key(root)
    }

    /// Sees to a tree until its end.
    pub(crate) fn begin(&self, place: Place, runtime: Runtime, run: Run) -> Call {
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
            let ending = see_to(&runtime, run, stopped.clone()).await;
            let detached = ending.as_ref().ok().map(|ending| ending.detached.clone());
            if detached.as_ref().is_none_or(|detached| detached.sessions().is_empty()) {
                calls.lock().stops.remove(&root);
            }
            let _ = sender.send(ending);
            if let Some(detached) = detached {
                outlive(&runtime, &detached, stopped).await;
            }
            calls.lock().stops.remove(&root);
            drop(place.0);
        });
        Call { stop, end, is_kept: false }
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

impl Call {
    /// Waits for the end of the tree.
    pub(crate) async fn ending(&mut self) -> Result<Ending, RunError> {
        let lost = |_| RunError::Bug("a call went away".to_owned());
        (&mut self.end).await.unwrap_or_else(|error| Err(lost(error)))
    }

    /// Lets the tree go on without the request that made it.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_kept {
            self.stop.send_replace(true);
        }
    }
}

async fn see_to(runtime: &Runtime, run: Run, mut stopped: watch::Receiver<bool>) -> Result<Ending, RunError> {
    let root = run.session().clone();
    let mut ending = std::pin::pin!(run.ending());
    tokio::select! {
        ending = &mut ending => return ending,
        // The sender lives in the list of calls.
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    // Its first fact may not be written yet: before that there is nothing to be told.
    while let Err(error) = runtime.cancel(&root, BY).await {
        tokio::select! {
            ending = &mut ending => return ending,
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
        if !matches!(error, RunError::Store(brigade::StoreError::Unknown(_))) {
            return Err(error);
        }
    }
    match tokio::time::timeout(STOP_TIME, ending).await {
        Ok(ending) => ending,
        Err(_) => Err(RunError::Setup(format!("{root} did not stop in time and was left where it stood"))),
    }
}

/// Sees to sessions that were left to themselves: they end with the server.
async fn outlive(runtime: &Runtime, detached: &Detached, mut stopped: watch::Receiver<bool>) {
    // The request that began them has its answer: only the end of the server stops them.
    tokio::select! {
        () = detached.ended() => return,
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    for session in detached.sessions() {
        let _ = runtime.cancel(session, BY).await;
    }
    let _ = tokio::time::timeout(STOP_TIME, detached.ended()).await;
}
