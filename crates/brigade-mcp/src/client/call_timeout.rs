//! Timeouts and progress of calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::time::Instant;

use super::connect::sanitize;
use brigade_base::clock;
use brigade_tools::ProgressReporter;

/// Maximum total time of a call that reports progress, as a multiple of its timeout.
pub(super) const MAX_TIMEOUT_FACTOR: u32 = 10;
/// Extra time to wait for the usage report of delegated work after its deadline.
const REPORT_GRACE: Duration = Duration::from_secs(5);
/// Minimum interval between progress reports of a call.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Timeout of a call. Progress extends it, up to a maximum.
pub(super) struct CallTimeout {
    limit: Duration,
    max_total: Duration,
    final_deadline: Instant,
    deadline: Mutex<Instant>,
}

impl CallTimeout {
    pub(super) fn new(limit: Duration) -> CallTimeout {
        let now = Instant::now();
        let far = now + Duration::from_secs(u32::MAX.into());
        let after = |time: Duration| now.checked_add(time).unwrap_or(far);
        let max_total = limit.saturating_mul(MAX_TIMEOUT_FACTOR);
        let final_deadline = after(max_total);
        CallTimeout { limit, max_total, final_deadline, deadline: Mutex::new(after(limit)) }
    }

    /// Creates a timeout that expires shortly after a deadline in UTC milliseconds. Without a deadline, the
    /// usual timeout applies.
    pub(super) fn until_deadline(deadline: Option<u64>, usual: Duration) -> CallTimeout {
        let Some(deadline) = deadline else { return CallTimeout::new(usual) };
        let left = Duration::from_millis(deadline.saturating_sub(clock::now())).saturating_add(REPORT_GRACE);
        let now = Instant::now();
        let final_deadline = now.checked_add(left).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        CallTimeout { limit: left, max_total: left, final_deadline, deadline: Mutex::new(final_deadline) }
    }

    /// Extends the timeout because of progress at this time.
    fn extend(&self, now: Instant) {
        let later = now.checked_add(self.limit).unwrap_or(self.final_deadline);
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = later.min(self.final_deadline);
    }

    fn deadline(&self) -> Instant {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the timeout expires. Returns the limit that was reached.
    pub(super) async fn expired(&self) -> Duration {
        loop {
            let deadline = self.deadline();
            tokio::time::sleep_until(deadline).await;
            if self.deadline() <= deadline {
                let is_last = deadline >= self.final_deadline;
                return if is_last { self.max_total } else { self.limit };
            }
        }
    }
}

/// Receiver of a call's progress.
pub(super) struct ProgressListener {
    pub(super) tool: String,
    pub(super) timeout: Arc<CallTimeout>,
    pub(super) progress: ProgressReporter,
    pub(super) last_reported: Mutex<Option<Instant>>,
}

impl ProgressListener {
    fn notify(&self, notification: &ProgressNotificationParam) {
        self.timeout.extend(Instant::now());
        let mut last_reported = self.last_reported.lock().unwrap_or_else(PoisonError::into_inner);
        if last_reported.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL) {
            *last_reported = Some(Instant::now());
            self.progress.report(format!("{}: {}", self.tool, progress_line(notification)));
        }
    }
}

/// Formats a progress notification as a short line.
fn progress_line(notification: &ProgressNotificationParam) -> String {
    let mut line = match notification.total {
        Some(total) => format!("{} of {total}", notification.progress),
        None => format!("{} so far", notification.progress),
    };
    if let Some(message) = notification.message.as_deref().filter(|message| !message.trim().is_empty()) {
        line.push_str(", ");
        line.push_str(&sanitize(message.trim()));
    }
    line
}

/// Progress listeners of a server, by progress token.
#[derive(Clone, Default)]
pub(super) struct ProgressListeners(Arc<Mutex<HashMap<ProgressToken, Arc<ProgressListener>>>>);

impl ProgressListeners {
    /// Adds a listener that is removed when the returned guard is dropped.
    pub(super) fn add(&self, token: ProgressToken, listener: Arc<ProgressListener>) -> ListenerGuard {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), listener);
        ListenerGuard { listeners: self.clone(), token }
    }

    pub(super) fn notify(&self, notification: &ProgressNotificationParam) {
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = listeners.get(&notification.progress_token).cloned();
        drop(listeners);
        if let Some(listener) = listener {
            listener.notify(notification);
        }
    }
}

/// Removes its listener on drop.
pub(super) struct ListenerGuard {
    listeners: ProgressListeners,
    token: ProgressToken,
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.listeners.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn progress_extends_the_timeout_up_to_a_maximum() {
        let limit = Duration::from_millis(100);
        let begun = Instant::now();
        assert_eq!(CallTimeout::new(limit).expired().await, limit);
        assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
        let timeout = CallTimeout::new(limit);
        let begun = timeout.deadline() - limit;
        for half in 1..=2 * MAX_TIMEOUT_FACTOR {
            timeout.extend(begun + limit / 2 * half);
            let later = begun + limit / 2 * half + limit;
            assert_eq!(timeout.deadline(), later.min(begun + limit * MAX_TIMEOUT_FACTOR));
        }
        assert_eq!(timeout.expired().await, limit * MAX_TIMEOUT_FACTOR);
        assert!(begun.elapsed() >= limit * MAX_TIMEOUT_FACTOR, "{:?}", begun.elapsed());
    }

    #[test]
    fn progress_line_is_sanitized_and_short() {
        let mut notification =
            ProgressNotificationParam::new(ProgressToken(rmcp::model::NumberOrString::Number(1)), 2.0);
        assert_eq!(progress_line(&notification), "2 so far");
        notification.total = Some(5.0);
        notification.message = Some(format!("reading\n\u{1b}[2J{}", "x".repeat(1000)));
        let line = progress_line(&notification);
        assert!(line.starts_with("2 of 5, reading[2Jxxx"), "{line}");
        assert!(line.len() < 400 && !line.contains(['\n', '\u{1b}']), "{line}");
    }
}
