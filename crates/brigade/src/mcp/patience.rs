//! How long an answer is waited for, and how far a call is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::time::Instant;

use super::connect::short;
use crate::clock;
use crate::tool::Teller;

/// How many times as long a call may take in all that says how far it is.
pub(super) const MOST_TIMES: u32 = 10;
/// How long the account of work that was handed on is waited for after its time is up.
const GRACE: Duration = Duration::from_secs(5);
/// How often at most a call says how far it is.
const NEWS: Duration = Duration::from_millis(100);

/// How long an answer is waited for: a limit that news push on, within one that nothing does.
pub(super) struct Patience {
    limit: Duration,
    most: Duration,
    last: Instant,
    deadline: Mutex<Instant>,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Patience {
        let now = Instant::now();
        let far = now + Duration::from_secs(u32::MAX.into());
        let after = |time: Duration| now.checked_add(time).unwrap_or(far);
        let most = limit.saturating_mul(MOST_TIMES);
        let last = after(most);
        Patience { limit, most, last, deadline: Mutex::new(after(limit)) }
    }

    /// Waits until a time in UTC milliseconds and a little longer; without one, as long as any other.
    pub(super) fn until(deadline: Option<u64>, usual: Duration) -> Patience {
        let Some(deadline) = deadline else { return Patience::new(usual) };
        let left = Duration::from_millis(deadline.saturating_sub(clock::now())).saturating_add(GRACE);
        let now = Instant::now();
        let last = now.checked_add(left).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        Patience { limit: left, most: left, last, deadline: Mutex::new(last) }
    }

    /// There were news at this time.
    fn push(&self, now: Instant) {
        let later = now.checked_add(self.limit).unwrap_or(self.last);
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = later.min(self.last);
    }

    fn deadline(&self) -> Instant {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the time is up; says how long that was.
    pub(super) async fn over(&self) -> Duration {
        loop {
            let deadline = self.deadline();
            tokio::time::sleep_until(deadline).await;
            if self.deadline() <= deadline {
                let is_last = deadline >= self.last;
                return if is_last { self.most } else { self.limit };
            }
        }
    }
}

/// Who hears how far a call is.
pub(super) struct Listener {
    pub(super) tool: String,
    pub(super) patience: Arc<Patience>,
    pub(super) teller: Teller,
    pub(super) told: Mutex<Option<Instant>>,
}

impl Listener {
    fn hear(&self, news: &ProgressNotificationParam) {
        self.patience.push(Instant::now());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= NEWS) {
            *told = Some(Instant::now());
            self.teller.tell(format!("{}: {}", self.tool, line(news)));
        }
    }
}

/// News in a short line.
fn line(news: &ProgressNotificationParam) -> String {
    let mut line = match news.total {
        Some(total) => format!("{} of {total}", news.progress),
        None => format!("{} so far", news.progress),
    };
    if let Some(message) = news.message.as_deref().filter(|message| !message.trim().is_empty()) {
        line.push_str(", ");
        line.push_str(&short(message.trim()));
    }
    line
}

/// Those who listen to a server, by what their calls are known by.
#[derive(Clone, Default)]
pub(super) struct Listeners(Arc<Mutex<HashMap<ProgressToken, Arc<Listener>>>>);

impl Listeners {
    /// Listens until what is given back is dropped.
    pub(super) fn add(&self, token: ProgressToken, listener: Arc<Listener>) -> Listening {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), listener);
        Listening { listeners: self.clone(), token }
    }

    pub(super) fn hear(&self, news: &ProgressNotificationParam) {
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = listeners.get(&news.progress_token).cloned();
        drop(listeners);
        if let Some(listener) = listener {
            listener.hear(news);
        }
    }
}

/// Somebody listens.
pub(super) struct Listening {
    listeners: Listeners,
    token: ProgressToken,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.listeners.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn news_push_the_limit_on_but_not_for_ever() {
        let limit = Duration::from_millis(100);
        let begun = Instant::now();
        assert_eq!(Patience::new(limit).over().await, limit);
        assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
        let patience = Patience::new(limit);
        let begun = patience.deadline() - limit;
        for half in 1..=2 * MOST_TIMES {
            patience.push(begun + limit / 2 * half);
            let later = begun + limit / 2 * half + limit;
            assert_eq!(patience.deadline(), later.min(begun + limit * MOST_TIMES));
        }
        assert_eq!(patience.over().await, limit * MOST_TIMES);
        assert!(begun.elapsed() >= limit * MOST_TIMES, "{:?}", begun.elapsed());
    }

    #[test]
    fn news_are_one_safe_line() {
        let mut news =
            ProgressNotificationParam::new(ProgressToken(rmcp::model::NumberOrString::Number(1)), 2.0);
        assert_eq!(line(&news), "2 so far");
        news.total = Some(5.0);
        news.message = Some(format!("reading\n\u{1b}[2J{}", "x".repeat(1000)));
        let line = line(&news);
        assert!(line.starts_with("2 of 5, reading[2Jxxx"), "{line}");
        assert!(line.len() < 400 && !line.contains(['\n', '\u{1b}']), "{line}");
    }
}
