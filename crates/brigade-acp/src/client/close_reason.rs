//! Why a process ended, or is to end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::lock;

/// How long the end of a process may take to be known after the end of its output.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// The first reason that is given. Whoever uses a process, reads from it or watches it shares this.
#[derive(Clone)]
pub(super) struct CloseReason {
    reason: Arc<watch::Sender<Option<String>>>,
    /// When the process was last sent a message; none before it has answered the first.
    last_message: Arc<Mutex<Option<Instant>>>,
}

impl CloseReason {
    pub(super) fn new() -> CloseReason {
        CloseReason { reason: Arc::new(watch::Sender::new(None)), last_message: Arc::default() }
    }

    /// The process has answered. From now on only what it writes after the last message can explain its end.
    pub(super) fn connected(&self) {
        *lock(&self.last_message) = Some(Instant::now());
    }

    /// The process is sent a message.
    pub(super) fn message_sent(&self) {
        let mut last = lock(&self.last_message);
        *last = last.map(|_| Instant::now());
    }

    /// Time since the last message; none if the process never answered.
    pub(super) fn since_last_message(&self) -> Option<Duration> {
        lock(&self.last_message).map(|at| at.elapsed())
    }

    /// Says why it ended, or is to end.
    pub(super) fn set(&self, reason: impl Into<String>) {
        self.reason.send_if_modified(|known| match known {
            Some(_) => false,
            None => {
                *known = Some(reason.into());
                true
            }
        });
    }

    /// Whether there is a reason.
    pub(super) fn is_set(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// Waits for a reason.
    pub(super) async fn closed(&self) {
        // The sender lives as long as this.
        let _ = self.reason.subscribe().wait_for(Option::is_some).await;
    }

    /// The reason; for a connection that is closed already, it is waited for a moment.
    pub(super) async fn reason(&self) -> String {
        let _ = tokio::time::timeout(EXIT_WAIT, self.closed()).await;
        self.reason.borrow().clone().unwrap_or_else(|| "it closed the connection".to_owned())
    }
}
