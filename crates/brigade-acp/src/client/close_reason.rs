//! Reason why a process ended or is being terminated.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::lock;

/// Time to wait for the exit of a process after its output ends.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// The first reason that is set. It is shared by all users of a process, its reader and its watcher.
#[derive(Clone)]
pub(super) struct CloseReason {
    reason: Arc<watch::Sender<Option<String>>>,
    /// Time of the last message that was sent, or `None` before the process has answered the first.
    last_message: Arc<Mutex<Option<Instant>>>,
}

impl CloseReason {
    pub(super) fn new() -> CloseReason {
        CloseReason { reason: Arc::new(watch::Sender::new(None)), last_message: Arc::default() }
    }

    /// Marks the process as connected. From now on only output after the last message can explain its exit.
    pub(super) fn connected(&self) {
        *lock(&self.last_message) = Some(Instant::now());
    }

    /// Records that a message was sent.
    pub(super) fn message_sent(&self) {
        let mut last = lock(&self.last_message);
        *last = last.map(|_| Instant::now());
    }

    /// Time since the last message, or `None` if the process never answered.
    pub(super) fn since_last_message(&self) -> Option<Duration> {
        lock(&self.last_message).map(|at| at.elapsed())
    }

    /// Sets the reason, unless one is set.
    pub(super) fn set(&self, reason: impl Into<String>) {
        self.reason.send_if_modified(|known| match known {
            Some(_) => false,
            None => {
                *known = Some(reason.into());
                true
            }
        });
    }

    /// Whether a reason is set.
    pub(super) fn is_set(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// Waits until a reason is set.
    pub(super) async fn closed(&self) {
        // `self` owns the sender, so the wait cannot fail.
        let _ = self.reason.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns the reason. If the connection closed without one, waits shortly for the exit of the process.
    pub(super) async fn reason(&self) -> String {
        let _ = tokio::time::timeout(EXIT_WAIT, self.closed()).await;
        self.reason.borrow().clone().unwrap_or_else(|| "the process closed the connection".to_owned())
    }
}
