//! Running calls. Each runs in a task of the server and not of its request, so a client that disconnects
//! cannot leave a tree half stopped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade::{Detached, Run, RunError, RunResult, Runtime};
use brigade_core::SessionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tracing::debug;

/// Maximum number of concurrent calls.
const MAX_CALLS: usize = 64;

/// Time that a cancelled tree has to stop before it is abandoned. It can be resumed later.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Actor that the log records for a cancellation.
pub(crate) const CLIENT_ACTOR: &str = "the MCP client";

/// All running calls.
#[derive(Clone)]
pub(crate) struct Calls {
    shared: Arc<Mutex<Shared>>,
    permits: Arc<Semaphore>,
}

/// Permission to start one call.
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

/// A running call, held by its request. Dropping it cancels the tree.
pub(crate) struct ActiveCall {
    stop: watch::Sender<bool>,
    end: oneshot::Receiver<Result<RunResult, RunError>>,
    is_detached: bool,
}

/// Reason why a call is not started.
pub(crate) enum AdmitError {
    /// Too many calls are running.
    Busy,
    /// The server is stopping.
    Closed,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits one more call, if there is capacity.
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

    /// Runs a tree until it ends.
    pub(crate) fn begin(&self, permit: CallPermit, runtime: Runtime, run: Run) -> ActiveCall {
        let root = run.session().clone();
        let (stop, stopped) = watch::channel(false);
        let (sender, end) = oneshot::channel();
        let calls = self.clone();
        let mut shared = self.lock();
        while shared.tasks.try_join_next().is_some() {}
        // If the server is already closing, the tree is cancelled at once.
        stop.send_replace(shared.is_closed);
        shared.stops.insert(root.clone(), stop.clone());
        shared.tasks.spawn(async move {
            debug!(target: "brigade::mcp", session = root.as_str(), "call started");
            let result = supervise(&runtime, run, stopped.clone()).await;
            let has_failed = result.is_err();
            debug!(target: "brigade::mcp", session = root.as_str(), has_failed, "call ended");
            let detached = result.as_ref().ok().map(|result| result.detached.clone());
            if detached.as_ref().is_none_or(|detached| detached.sessions().is_empty()) {
                calls.lock().stops.remove(&root);
            }
            let _ = sender.send(result);
            if let Some(detached) = detached {
                supervise_detached(&runtime, &detached, stopped).await;
            }
            calls.lock().stops.remove(&root);
            drop(permit.0);
        });
        ActiveCall { stop, end, is_detached: false }
    }

    /// Cancels all calls and waits until none is running.
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
    /// Waits for the result of the tree.
    pub(crate) async fn result(&mut self) -> Result<RunResult, RunError> {
        let lost = |_| RunError::Bug("the task of a call ended without a result".to_owned());
        (&mut self.end).await.unwrap_or_else(|error| Err(lost(error)))
    }

    /// Lets the tree continue without its request.
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
    let mut result = std::pin::pin!(run.result());
    tokio::select! {
        result = &mut result => return result,
        // The list of calls owns the sender.
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    runtime.cancel(&root, CLIENT_ACTOR).await?;
    match tokio::time::timeout(STOP_TIMEOUT, result).await {
        Ok(result) => result,
        Err(_) => Err(RunError::Config(format!(
            "{root} did not stop in time. Resume it with `brigade resume {root}`."
        ))),
    }
}

/// Supervises detached sessions. They end with the server.
async fn supervise_detached(runtime: &Runtime, detached: &Detached, mut stopped: watch::Receiver<bool>) {
    // Their request was answered, so only the end of the server stops them.
    tokio::select! {
        () = detached.ended() => return,
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    for session in detached.sessions() {
        let _ = runtime.cancel(session, CLIENT_ACTOR).await;
    }
    let _ = tokio::time::timeout(STOP_TIMEOUT, detached.ended()).await;
}
