//! What may still be sent: limits that the person set, and what the provider says is left.

use std::time::Duration;

use tokio::time::Instant;

use super::headers::QuotaStatus;

/// A reset that is shorter than this is taken for this, so that nobody waits in a circle.
const MIN_RESET: Duration = Duration::from_millis(10);

/// An amount that refills as time passes.
#[derive(Debug)]
pub(super) struct Bucket {
    level: f64,
    capacity: f64,
    per_second: f64,
    at: Instant,
}

impl Bucket {
    /// Requests are spread evenly: many providers count by the second, whatever they say about minutes.
    pub(super) fn of_requests(per_minute: u32, now: Instant) -> Bucket {
        let per_second = f64::from(per_minute.max(1)) / 60.0;
        Bucket::new(per_second, per_second.max(1.0), now)
    }

    /// One request may have more tokens than a second allows: the tokens of a minute may go at once.
    pub(super) fn of_tokens(per_minute: u64, now: Instant) -> Bucket {
        let capacity = per_minute.max(1) as f64;
        Bucket::new(capacity / 60.0, capacity, now)
    }

    fn new(per_second: f64, capacity: f64, now: Instant) -> Bucket {
        Bucket { level: capacity, capacity, per_second, at: now }
    }

    /// When there is enough; `None` means now. What is larger than the bucket goes when the bucket is full.
    pub(super) fn ready(&mut self, now: Instant, amount: u64) -> Option<Instant> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.capacity);
        self.at = now;
        // A hair less is enough, since sums of fractions are not exact.
        let missing = (amount as f64).min(self.capacity) - self.level - 1e-6;
        (missing > 0.0).then(|| now + Duration::from_secs_f64(missing / self.per_second))
    }

    pub(super) fn take(&mut self, amount: u64) {
        self.level = (self.level - amount as f64).max(-self.capacity);
    }

    /// Less or more was used than had been taken. The debt is never more than the bucket holds.
    pub(super) fn correct(&mut self, taken: u64, used: u64) {
        self.level = (self.level + taken as f64 - used as f64).clamp(-self.capacity, self.capacity);
    }
}

/// What the provider says is left, until it says something else.
#[derive(Debug)]
pub(super) struct Quota {
    remaining: u64,
    limit: Option<u64>,
    span: Duration,
    until: Instant,
}

impl Quota {
    /// Takes in what a reply says. Requests without an answer may or may not be counted in it: the worse is assumed.
    pub(super) fn update(
        quota: &mut Option<Quota>,
        now: Instant,
        status: QuotaStatus,
        unanswered: u64,
        max_wait: Duration,
    ) {
        let (Some(remaining), Some(reset)) = (status.remaining, status.reset) else { return };
        // Whoever answers with a limit of nothing has none.
        if status.limit == Some(0) {
            *quota = None;
            return;
        }
        // Nobody fails because of what a reply that succeeded said: after the longest wait it is tried.
        let span = reset.clamp(MIN_RESET.min(max_wait), max_wait);
        let remaining = remaining.saturating_sub(unanswered);
        *quota = Some(Quota { remaining, limit: status.limit, span, until: now + span });
    }

    /// When there is enough left; `None` means now. After the reset the whole limit counts, until a reply says more. What
    /// is larger than the limit goes when all of it is left.
    pub(super) fn ready(
        quota: &mut Option<Quota>,
        now: Instant,
        amount: u64,
        unanswered: u64,
    ) -> Option<Instant> {
        let current = quota.as_mut()?;
        if now >= current.until {
            let Some(limit) = current.limit else {
                *quota = None;
                return None;
            };
            current.remaining = limit.saturating_sub(unanswered);
            current.until = now + current.span;
        }
        // Without a limit nobody knows whether more than this is ever left.
        let needed = current.limit.map_or(1, |limit| amount.min(limit)).max(1);
        (current.remaining < needed).then_some(current.until)
    }

    pub(super) fn take(&mut self, amount: u64) {
        self.remaining = self.remaining.saturating_sub(amount);
    }
}
