//! Why a connection ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long the end of a process may take to be known after the end of its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a connection ended: the first reason that is given. Whoever uses the connection, reads from it or watches the
/// process shares it.
#[derive(Clone, Default)]
pub(super) struct CloseReason {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    reason: OnceLock<String>,
    is_protocol_violation: AtomicBool,
    notify: Notify,
    /// When the server was last sent a message; none before it is connected.
    last_message: Mutex<Option<Instant>>,
}

impl CloseReason {
    /// Says why it ended, or is to end.
    pub(super) fn set(&self, reason: String) {
        if self.shared.reason.set(reason).is_ok() {
            self.shared.notify.notify_waiters();
        }
    }

    /// Says that it is to end because of what the server did: nothing of it can be believed any more.
    pub(super) fn fail(&self, reason: String) {
        if self.reason().is_none() {
            self.shared.is_protocol_violation.store(true, Ordering::SeqCst);
        }
        self.set(reason);
    }

    /// The server is connected. From now on only what it writes after the last message can explain its end.
    pub(super) fn connected(&self) {
        *self.last_message() = Some(Instant::now());
    }

    /// The server is sent a message.
    pub(super) fn message_sent(&self) {
        let mut last = self.last_message();
        *last = last.map(|_| Instant::now());
    }

    /// Time since the last message; none if the server was never connected.
    pub(super) fn since_last_message(&self) -> Option<Duration> {
        self.last_message().map(|at| at.elapsed())
    }

    fn last_message(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.shared.last_message.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server did something for which it was ended.
    pub(super) fn is_protocol_violation(&self) -> bool {
        self.shared.is_protocol_violation.load(Ordering::SeqCst)
    }

    /// The reason, where there is one.
    pub(super) fn reason(&self) -> Option<&str> {
        self.shared.reason.get().map(String::as_str)
    }

    /// Waits for a reason.
    pub(super) async fn closed(&self) {
        let mut notified = std::pin::pin!(self.shared.notify.notified());
        notified.as_mut().enable();
        if self.reason().is_none() {
            notified.await;
        }
    }

    /// Waits a moment for a reason of a connection that is closed.
    pub(super) async fn wait_for_reason(&self) -> String {
        let _ = tokio::time::timeout(EXIT_TIMEOUT, self.closed()).await;
        self.reason().unwrap_or("it closed the connection").to_owned()
    }
}
