//! Waiting for a process that is about to release a session.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::Store;

/// Time that a process may take to release a session after its round.
const RUNNER_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which a lease is checked although nothing was written. A process that was killed writes nothing.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Waits for a process that is about to release a session.
pub struct RunnerExit {
    changes: watch::Receiver<u64>,
    deadline: Instant,
}

impl RunnerExit {
    /// Starts to wait.
    pub fn new(store: &dyn Store) -> RunnerExit {
        RunnerExit { changes: store.changes(), deadline: Instant::now() + RUNNER_EXIT_TIMEOUT }
    }

    /// Waits until the process may have released the session. Returns false if the time is over.
    pub async fn may_have_happened(&mut self) -> bool {
        let now = Instant::now();
        let next_check = self.deadline.min(now + LEASE_CHECK_INTERVAL);
        // Every commit of another process is a change, also the release of a lease.
        let _ = tokio::time::timeout_at(next_check, self.changes.changed()).await;
        now < self.deadline
    }
}
