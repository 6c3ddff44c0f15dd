//! Quotas: limits set by the user, and amounts that the provider reports as remaining.

use std::time::Duration;

use tokio::time::Instant;

use super::headers::QuotaStatus;

/// Minimum time until a reset, so that waiting never becomes a busy loop.
const MIN_RESET: Duration = Duration::from_millis(10);

/// A token bucket: an amount that refills over time.
#[derive(Debug)]
pub(super) struct Bucket {
    level: f64,
    capacity: f64,
    per_second: f64,
    at: Instant,
}

impl Bucket {
    /// A bucket of requests. They are spread evenly, because many providers enforce per-minute limits by the
    /// second.
    pub(super) fn of_requests(per_minute: u32, now: Instant) -> Bucket {
        let per_second = f64::from(per_minute.max(1)) / 60.0;
        Bucket::new(per_second, per_second.max(1.0), now)
    }

    /// A bucket of tokens. One request may need more than a second's share, so a whole minute's tokens may be
    /// used at once.
    pub(super) fn of_tokens(per_minute: u64, now: Instant) -> Bucket {
        let capacity = per_minute.max(1) as f64;
        Bucket::new(capacity / 60.0, capacity, now)
    }

    fn new(per_second: f64, capacity: f64, now: Instant) -> Bucket {
        Bucket { level: capacity, capacity, per_second, at: now }
    }

    /// Returns the time at which `amount` is available, or `None` if it is now. An amount larger than the
    /// bucket is available when the bucket is full.
    pub(super) fn ready(&mut self, now: Instant, amount: u64) -> Option<Instant> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.capacity);
        self.at = now;
        // The tolerance absorbs rounding errors of floating-point sums.
        let missing = (amount as f64).min(self.capacity) - self.level - 1e-6;
        (missing > 0.0).then(|| now + Duration::from_secs_f64(missing / self.per_second))
    }

    pub(super) fn take(&mut self, amount: u64) {
        self.level = (self.level - amount as f64).max(-self.capacity);
    }

    /// Replaces the reserved amount with the amount used. The debt never exceeds the bucket's capacity.
    pub(super) fn correct(&mut self, taken: u64, used: u64) {
        self.level = (self.level + taken as f64 - used as f64).clamp(-self.capacity, self.capacity);
    }
}

/// The remaining amount reported by the provider, until its next report.
#[derive(Debug)]
pub(super) struct Quota {
    remaining: u64,
    limit: Option<u64>,
    span: Duration,
    until: Instant,
}

impl Quota {
    /// Applies the quota of a reply. Unanswered requests may or may not be counted in it, so they are assumed
    /// not to be.
    pub(super) fn update(
        quota: &mut Option<Quota>,
        now: Instant,
        status: QuotaStatus,
        unanswered: u64,
        max_wait: Duration,
    ) {
        let (Some(remaining), Some(reset)) = (status.remaining, status.reset) else { return };
        // A limit of 0 means no limit.
        if status.limit == Some(0) {
            *quota = None;
            return;
        }
        // A successful reply must not make later requests fail, so the wait is capped.
        let span = reset.clamp(MIN_RESET.min(max_wait), max_wait);
        let remaining = remaining.saturating_sub(unanswered);
        *quota = Some(Quota { remaining, limit: status.limit, span, until: now + span });
    }

    /// Returns the time at which enough is left, or `None` if it is now. After the reset the full limit
    /// applies until the next report. A request larger than the limit is sent when the full limit is left.
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
        // Without a limit it is unknown whether more than this is ever available.
        let needed = current.limit.map_or(1, |limit| amount.min(limit)).max(1);
        (current.remaining < needed).then_some(current.until)
    }

    pub(super) fn take(&mut self, amount: u64) {
        self.remaining = self.remaining.saturating_sub(amount);
    }
}
