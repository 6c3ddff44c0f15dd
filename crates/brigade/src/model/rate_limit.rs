//! The gate of a provider: all requests with one key go through it, one after the other, as fast as the provider takes
//! them and no faster.
//!
//! [`RatePolicy`] decides, and knows no clock; this file waits. Whoever came first goes first, and a request that was refused
//! keeps its place.

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

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::jitter::jitter;
use policy::{Decision, RatePolicy, SentRequest};

pub(super) use headers::RateLimitHeaders;
pub(super) use policy::WaitReason;

/// Looks of those who wait, within the limit for the first byte of a reply.
const RECHECKS_PER_FIRST_BYTE_TIMEOUT: u32 = 60;
const MIN_RECHECK_INTERVAL: Duration = Duration::from_millis(10);

/// How fast a provider may be asked. What is left out is found out: few requests at first, one more for every two that
/// are accepted, fewer after a refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// The most requests at once; 64 where it is left out. A request that is not answered for several times the usual time
    /// is not counted.
    pub concurrency: Option<usize>,
    /// The most requests at once before any was accepted. Left out, it is 8, or `concurrency` where that is given.
    pub initial_concurrency: Option<usize>,
    /// The most requests in a minute, spread evenly.
    pub requests_per_minute: Option<u32>,
    /// The most tokens in a minute, of requests and replies together.
    pub tokens_per_minute: Option<u64>,
}

/// Lets requests through.
#[derive(Debug)]
pub(super) struct RateLimiter {
    longest_wait: Duration,
    /// How often those who wait look by themselves whether they are the first and requests are overdue.
    recheck_interval: Duration,
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    policy: RatePolicy,
    /// Those who wait, by the order in which they came.
    waiting: BTreeMap<u64, Arc<Notify>>,
    next_number: u64,
}

/// What became of a wait.
#[derive(Debug)]
pub(super) enum Admission {
    /// The request may be sent.
    Granted(Permit),
    /// It still waits, for this.
    Waiting(WaitReason),
    /// The provider asks for more patience than there is.
    TooLong(Duration),
}

impl RateLimiter {
    /// Requests stop counting against the concurrency after a part of `first_byte`, the limit for the first byte of a reply.
    pub(super) fn new(
        limits: RateLimits,
        longest_wait: Duration,
        first_byte_timeout: Duration,
    ) -> Arc<RateLimiter> {
        let policy = RatePolicy::new(limits, longest_wait, first_byte_timeout, Instant::now());
        let recheck_interval =
            (first_byte_timeout / RECHECKS_PER_FIRST_BYTE_TIMEOUT).max(MIN_RECHECK_INTERVAL);
        Arc::new(RateLimiter {
            longest_wait,
            recheck_interval,
            queue: Mutex::new(Queue { policy, waiting: BTreeMap::new(), next_number: 0 }),
        })
    }

    /// The most requests at once.
    pub(super) fn concurrency(&self) -> usize {
        self.queue().policy.max_concurrency()
    }

    /// The longest that a provider may ask to wait.
    pub(super) fn longest_wait(&self) -> Duration {
        self.longest_wait
    }

    /// How long nobody is let through.
    pub(super) fn closed_for(&self) -> Duration {
        self.queue().policy.closed_for(Instant::now())
    }

    /// Takes a place at the end of the line, for a request of this many bytes.
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
    /// Lets the first in line look whether it may go, unless it is plain that it may not.
    fn wake_first_unless_full(&self) {
        if !self.policy.is_full() {
            self.wake_first();
        }
    }

    /// Lets the first in line look when requests are overdue. While all are answered in time, it looks often enough by
    /// itself: a wake-up for every reply costs more than it gains.
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

/// A place in the line. It is given up when it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    limiter: Arc<RateLimiter>,
    number: u64,
    notify: Arc<Notify>,
    entered: Instant,
    cost: u64,
}

impl Ticket {
    /// Waits until the request may be sent, or until this moment.
    pub(super) async fn acquire(&mut self, until: Instant) -> Admission {
        loop {
            let now = Instant::now();
            let wake = match self.decide(now) {
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

    /// Waits once more, in the same place: it was refused, and nobody who came later is to be served before it.
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

/// Leave to have one request under way. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    limiter: Arc<RateLimiter>,
    sent: SentRequest,
}

impl Permit {
    fn new(limiter: Arc<RateLimiter>, sent: SentRequest) -> Permit {
        Permit { limiter, sent }
    }

    /// The provider has begun to answer.
    pub(super) fn accepted(&mut self, headers: &RateLimitHeaders) {
        self.update(|policy, sent| policy.accepted(Instant::now(), sent, headers));
    }

    /// The first byte of the reply came. Requests that it overtook may be overdue sooner.
    pub(super) fn first_byte_received(&mut self) {
        let mut queue = self.limiter.queue();
        queue.policy.first_byte_received(Instant::now(), &self.sent);
        queue.wake_first_if_overdue();
    }

    /// The provider did nothing and wants to be asked later: nobody is let through until then. Gives the time left.
    pub(super) fn refused(mut self, headers: &RateLimitHeaders) -> Duration {
        self.update(|policy, sent| policy.refused(Instant::now(), sent, headers, jitter()))
    }

    /// The provider failed: fewer requests at once may help.
    pub(super) fn overloaded(&mut self) {
        self.update(RatePolicy::overloaded);
    }

    /// How many tokens the request and its reply had.
    pub(super) fn used(&mut self, tokens: u64, output: u64) {
        self.update(|policy, sent| policy.used(sent, tokens, output));
    }

    fn update<T>(&mut self, update: impl FnOnce(&mut RatePolicy, &mut SentRequest) -> T) -> T {
        let mut queue = self.limiter.queue();
        let result = update(&mut queue.policy, &mut self.sent);
        queue.wake_first_unless_full();
        result
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.update(RatePolicy::finished);
    }
}
