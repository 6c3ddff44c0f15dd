//! The reason why a connection ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Maximum time between the end of a process's output and its exit status.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The first reason given for the end of a connection. It is shared by the tasks that use the connection,
/// read from it and watch the process.
#[derive(Clone, Default)]
pub struct CloseReason {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    reason: OnceLock<String>,
    is_protocol_violation: AtomicBool,
    notify: Notify,
    /// Time of the last message to the server. None before it is connected.
    last_message: Mutex<Option<Instant>>,
}

impl CloseReason {
    /// Sets the reason why the connection ended or must end.
    pub fn set(&self, reason: impl Into<String>) {
        if self.shared.reason.set(reason.into()).is_ok() {
            self.shared.notify.notify_waiters();
        }
    }

    /// Ends the connection because the server violated the protocol and can no longer be trusted.
    pub fn fail(&self, reason: String) {
        if self.reason().is_none() {
            self.shared.is_protocol_violation.store(true, Ordering::SeqCst);
        }
        self.set(reason);
    }

    /// Records that the server is connected. From now on, only output after the last message can explain its
    /// exit.
    pub fn connected(&self) {
        *self.last_message() = Some(Instant::now());
    }

    /// Records a message to the server.
    pub fn message_sent(&self) {
        let mut last = self.last_message();
        *last = last.map(|_| Instant::now());
    }

    /// Returns the time since the last message, or none if the server was never connected.
    pub fn since_last_message(&self) -> Option<Duration> {
        self.last_message().map(|at| at.elapsed())
    }

    fn last_message(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.shared.last_message.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection was ended because of a protocol violation.
    pub fn is_protocol_violation(&self) -> bool {
        self.shared.is_protocol_violation.load(Ordering::SeqCst)
    }

    /// Returns the reason, if there is one.
    pub fn reason(&self) -> Option<&str> {
        self.shared.reason.get().map(String::as_str)
    }

    /// Waits for a reason.
    pub async fn closed(&self) {
        let mut notified = std::pin::pin!(self.shared.notify.notified());
        notified.as_mut().enable();
        if self.reason().is_none() {
            notified.await;
        }
    }

    /// Waits briefly for the reason why a closed connection ended. Returns `default` if none is set.
    pub async fn wait_for_reason(&self, default: &str) -> String {
        let _ = tokio::time::timeout(EXIT_TIMEOUT, self.closed()).await;
        self.reason().unwrap_or(default).to_owned()
    }
}
