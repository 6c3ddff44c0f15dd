//! The rate limit of a provider that does not report it, learned from its refusals.

use std::time::Duration;

use tokio::time::Instant;

/// Fewer accepted requests are not enough to infer a rate.
const MIN_ACCEPTED_REQUESTS: u32 = 5;
/// Longer gaps between two requests are counted as this, unless the second request had to wait.
const MAX_COUNTED_GAP: Duration = Duration::from_millis(250);
/// The rate starts slightly below the learned one and grows quadratically, by steps of one second. A step
/// also takes at least `REQUESTS_PER_STEP` requests, so that a slow provider is not probed more often than a
/// fast one.
const INITIAL_RATE_FACTOR: f64 = 0.95;
const RATE_GROWTH: f64 = 0.03;
const REQUESTS_PER_STEP: f64 = 5.0;
const MAX_RATE_FACTOR: f64 = 100.0;
/// Rates above this fraction of the learned one are considered equal to it.
const LOWER_RATE_FACTOR: f64 = 0.9;

/// Requests accepted since the last refusal.
#[derive(Debug, Default)]
pub(super) struct ObservedRate {
    accepted: u32,
    busy: Duration,
    last: Option<Instant>,
    refused_before: bool,
    /// Requests accepted since the last refusal, whether or not a rate was inferred from it.
    recent: u32,
}

impl ObservedRate {
    /// Records a request that waited this long. Returns the time since the previous one.
    pub(super) fn sent(&mut self, now: Instant, waited: Duration) -> Duration {
        let gap = self.last.replace(now).map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.busy += gap.min(waited.max(MAX_COUNTED_GAP));
        gap
    }

    pub(super) fn accepted(&mut self) {
        self.accepted = self.accepted.saturating_add(1);
        self.recent = self.recent.saturating_add(1);
    }

    /// Returns the number of requests accepted since the last refusal and resets it.
    pub(super) fn take_recent(&mut self) -> u32 {
        std::mem::take(&mut self.recent)
    }

    /// Infers the rate from a refusal, if enough requests were accepted. Burst capacity saved up before the
    /// first refusal is attributed to the wait. Between two refusals the count is exact.
    pub(super) fn rate(&mut self, now: Instant, wait: Duration) -> Option<f64> {
        let since = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let busy = self.busy + since;
        if self.accepted < MIN_ACCEPTED_REQUESTS {
            return None;
        }
        let time = if self.refused_before { busy } else { busy + wait };
        let rate = f64::from(self.accepted) / time.as_secs_f64().max(0.001);
        *self = ObservedRate { last: Some(now), refused_before: true, ..ObservedRate::default() };
        Some(rate)
    }
}

/// A learned rate.
#[derive(Debug)]
pub(super) struct LearnedRate {
    rate: f64,
    /// Maximum pause between requests.
    max_pause: Duration,
    /// Total time that requests have waited for this rate without being refused.
    probed_time: Duration,
    sent: u32,
    next: Instant,
}

impl LearnedRate {
    pub(super) fn new(rate: f64, from: Instant, max_pause: Duration) -> LearnedRate {
        LearnedRate { rate, max_pause, probed_time: Duration::ZERO, sent: 0, next: from }
    }

    /// Returns the learned rate in requests per minute.
    pub(super) fn per_minute(&self) -> f64 {
        self.rate * 60.0
    }

    /// Whether the learned rate is clearly above this one.
    pub(super) fn is_above(&self, rate: f64) -> bool {
        rate < self.rate * LOWER_RATE_FACTOR
    }

    /// Returns the time at which the next request may be sent, or `None` if it is now.
    pub(super) fn ready(&self, now: Instant) -> Option<Instant> {
        (now < self.next).then_some(self.next)
    }

    /// Records a request that waited this long after the previous one.
    pub(super) fn sent(&mut self, now: Instant, waited: Duration) {
        // The first one waited for the gate to reopen, not for this rate.
        self.probed_time += if self.sent == 0 { Duration::ZERO } else { waited };
        self.sent = self.sent.saturating_add(1);
        let interval = self.interval();
        // Delays of a late timer are made up for, but idle time is not.
        let from = self.next.max(now.checked_sub(interval).unwrap_or(now));
        self.next = from + interval;
    }

    fn interval(&self) -> Duration {
        let steps = self.probed_time.as_secs_f64().min(f64::from(self.sent) / REQUESTS_PER_STEP);
        let factor = (INITIAL_RATE_FACTOR + RATE_GROWTH * steps.powi(2)).min(MAX_RATE_FACTOR);
        let interval = Duration::try_from_secs_f64(1.0 / (self.rate * factor)).unwrap_or(MAX_COUNTED_GAP);
        interval.min(self.max_pause)
    }
}
