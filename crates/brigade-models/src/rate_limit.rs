//! Rate limiting per provider. All requests with the same key pass one gate, in order, as fast as the
//! provider accepts them.
//!
//! [`RatePolicy`] makes the decisions and has no clock; this module does the waiting. The queue is first in,
//! first out, and a refused request keeps its place.

mod date;
mod headers;
mod learned_rate;
mod overdue;
mod policy;
mod quota;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_base::jitter::jitter;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{Level, debug, enabled};

use policy::{Decision, LearnedLimits, RatePolicy, SentRequest};

pub(super) use headers::RateLimitHeaders;
pub(super) use policy::WaitReason;

/// Number of checks per first-byte timeout by requests that wait.
const RECHECKS_PER_FIRST_BYTE_TIMEOUT: u32 = 60;
const MIN_RECHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Rate limits of a provider. Absent limits are discovered: requests start at a low concurrency, which grows
/// by one for every two accepted requests and shrinks after a refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Maximum number of concurrent requests. Default: 64. A request that has been unanswered for several
    /// times the usual time is not counted.
    pub concurrency: Option<usize>,
    /// Maximum number of concurrent requests before any was accepted. Default: `concurrency` if set,
    /// otherwise 8.
    pub initial_concurrency: Option<usize>,
    /// Maximum number of requests per minute, spread evenly.
    pub requests_per_minute: Option<u32>,
    /// Maximum number of tokens per minute, for requests and replies together.
    pub tokens_per_minute: Option<u64>,
}

/// The gate that all requests to a provider pass.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// Name of the provider, for diagnostics.
    provider: String,
    longest_wait: Duration,
    /// Interval at which waiting requests check whether they are first and whether requests are overdue.
    recheck_interval: Duration,
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    policy: RatePolicy,
    /// Waiting requests, in order of arrival.
    waiting: BTreeMap<u64, Arc<Notify>>,
    next_number: u64,
}

/// Outcome of a wait.
#[derive(Debug)]
pub(super) enum Admission {
    /// The request may be sent.
    Granted(Permit),
    /// The request still waits, for this reason.
    Waiting(WaitReason),
    /// The provider asks for a longer wait than the settings allow.
    TooLong(Duration),
}

impl RateLimiter {
    /// Creates a limiter. Requests stop counting against the concurrency after a fraction of `first_byte`,
    /// the first-byte timeout.
    pub(super) fn new(
        provider: &str,
        limits: RateLimits,
        longest_wait: Duration,
        first_byte_timeout: Duration,
    ) -> Arc<RateLimiter> {
        let policy = RatePolicy::new(limits, longest_wait, first_byte_timeout, Instant::now());
        let recheck_interval =
            (first_byte_timeout / RECHECKS_PER_FIRST_BYTE_TIMEOUT).max(MIN_RECHECK_INTERVAL);
        Arc::new(RateLimiter {
            provider: provider.to_owned(),
            longest_wait,
            recheck_interval,
            queue: Mutex::new(Queue { policy, waiting: BTreeMap::new(), next_number: 0 }),
        })
    }

    /// Returns the maximum number of concurrent requests.
    pub(super) fn concurrency(&self) -> usize {
        self.queue().policy.max_concurrency()
    }

    /// Returns the longest wait that a provider may ask for.
    pub(super) fn longest_wait(&self) -> Duration {
        self.longest_wait
    }

    /// Returns the time until the gate reopens.
    pub(super) fn closed_for(&self) -> Duration {
        self.queue().policy.closed_for(Instant::now())
    }

    /// Enters the queue with a request of this many bytes.
    pub(super) fn enqueue(self: &Arc<Self>, bytes: usize) -> Ticket {
        let mut queue = self.queue();
        let number = queue.next_number;
        queue.next_number += 1;
        let notify = Arc::new(Notify::new());
        queue.waiting.insert(number, notify.clone());
        let cost = queue.policy.estimate(bytes);
        drop(queue);
        Ticket { limiter: self.clone(), number, notify, entered: Instant::now(), cost }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Wakes the first in the queue, unless the window is full.
    fn wake_first_unless_full(&self) {
        if !self.policy.is_full() {
            self.wake_first();
        }
    }

    /// Wakes the first in the queue if requests are overdue. Otherwise its periodic check is enough: a
    /// wake-up for every reply costs more than it gains.
    fn wake_first_if_overdue(&self) {
        if !self.policy.is_full() || self.policy.has_overdue() {
            self.wake_first();
        }
    }

    fn wake_first(&self) {
        if let Some(notify) = self.waiting.values().next() {
            notify.notify_one();
        }
    }

    fn remove(&mut self, number: u64) {
        if self.waiting.remove(&number).is_some() {
            self.wake_first_if_overdue();
        }
    }
}

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct Ticket {
    limiter: Arc<RateLimiter>,
    number: u64,
    notify: Arc<Notify>,
    entered: Instant,
    cost: u64,
}

impl Ticket {
    /// Waits until the request may be sent, or until this time.
    pub(super) async fn acquire(&mut self, until: Instant) -> Admission {
        let mut is_first_check = true;
        loop {
            let now = Instant::now();
            let decision = self.decide(now);
            if let Decision::RetryAt(_, reason) | Decision::RetryLater(reason) = &decision
                && std::mem::take(&mut is_first_check)
            {
                debug!(target: "brigade::rate_limit", provider = self.limiter.provider, ?reason, "request waits");
            }
            let wake = match decision {
                Decision::Send(sent) => return Admission::Granted(Permit::new(self.limiter.clone(), sent)),
                Decision::TooLong(wait) => return Admission::TooLong(wait),
                Decision::RetryAt(_, reason) | Decision::RetryLater(reason) if now >= until => {
                    return Admission::Waiting(reason);
                }
                Decision::RetryAt(at, _) => at.min(until),
                Decision::RetryLater(_) => until.min(now + self.limiter.recheck_interval),
            };
            tokio::select! {
                () = self.notify.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    fn decide(&self, now: Instant) -> Decision {
        let mut queue = self.limiter.queue();
        let is_first = queue.waiting.keys().next() == Some(&self.number);
        let decision = match is_first {
            true => queue.policy.decide(now, self.entered, self.cost),
            false => queue.policy.behind_others(now),
        };
        if matches!(decision, Decision::Send(_) | Decision::TooLong(_)) {
            queue.remove(self.number);
        }
        decision
    }

    /// Rejoins the queue in the same place after a refusal, so that later requests do not overtake this one.
    pub(super) fn requeue(&mut self) {
        self.entered = Instant::now();
        self.limiter.queue().waiting.insert(self.number, self.notify.clone());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.limiter.queue().remove(self.number);
    }
}

/// Permission for one request in flight. It ends when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    limiter: Arc<RateLimiter>,
    sent: SentRequest,
}

impl Permit {
    fn new(limiter: Arc<RateLimiter>, sent: SentRequest) -> Permit {
        Permit { limiter, sent }
    }

    /// Records that the provider started to answer.
    pub(super) fn accepted(&mut self, headers: &RateLimitHeaders) {
        self.update(|policy, sent| policy.accepted(Instant::now(), sent, headers));
    }

    /// Records the first byte of the reply. Requests that it overtook may become overdue sooner.
    pub(super) fn first_byte_received(&mut self) {
        let mut queue = self.limiter.queue();
        queue.policy.first_byte_received(Instant::now(), &self.sent);
        queue.wake_first_if_overdue();
    }

    /// Records a refusal and closes the gate until the provider accepts requests again. Returns the time
    /// left.
    pub(super) fn refused(mut self, headers: &RateLimitHeaders) -> Duration {
        self.update(|policy, sent| policy.refused(Instant::now(), sent, headers, jitter()))
    }

    /// Records that the provider failed. A lower concurrency may help.
    pub(super) fn overloaded(&mut self) {
        self.update(RatePolicy::overloaded);
    }

    /// Records the tokens used by the request and its reply.
    pub(super) fn used(&mut self, tokens: u64, output: u64) {
        self.update(|policy, sent| policy.used(sent, tokens, output));
    }

    fn update<T>(&mut self, update: impl FnOnce(&mut RatePolicy, &mut SentRequest) -> T) -> T {
        let mut queue = self.limiter.queue();
        let before =
            enabled!(target: "brigade::rate_limit", Level::DEBUG).then(|| queue.policy.learned_limits());
        let result = update(&mut queue.policy, &mut self.sent);
        queue.wake_first_unless_full();
        let after = queue.policy.learned_limits();
        drop(queue);
        if before.is_some_and(|before| before != after) {
            let LearnedLimits { concurrency, requests_per_minute } = after;
            let provider = &self.limiter.provider;
            debug!(target: "brigade::rate_limit", provider, concurrency, requests_per_minute, "limits changed");
        }
        result
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.update(RatePolicy::finished);
    }
}
