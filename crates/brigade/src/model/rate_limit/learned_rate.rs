//! The rate of a provider that does not say it, learned from its refusals.

use std::time::Duration;

use tokio::time::Instant;

/// Fewer accepted requests say nothing about a rate.
const MIN_ACCEPTED_REQUESTS: u32 = 5;
/// A longer gap between two requests counts as much as this, unless the second one waited for it.
const MAX_COUNTED_GAP: Duration = Duration::from_millis(250);
/// Begins a little below what was learned, and goes up slowly at first and then faster: by the second, and no faster than
/// by so many requests, so that a slow provider is not tried more often than a fast one.
const INITIAL_RATE_FACTOR: f64 = 0.95;
const RATE_GROWTH: f64 = 0.03;
const REQUESTS_PER_STEP: f64 = 5.0;
const MAX_RATE_FACTOR: f64 = 100.0;
/// What is above this part of a rate is the same rate.
const LOWER_RATE_FACTOR: f64 = 0.9;

/// What was accepted since the last refusal.
#[derive(Debug, Default)]
pub(super) struct ObservedRate {
    accepted: u32,
    busy: Duration,
    last: Option<Instant>,
    refused_before: bool,
    /// Accepted since the last refusal, whether that taught anything or not.
    recent: u32,
}

impl ObservedRate {
    /// Takes note of a request that waited this long, and gives the time since the one before.
    pub(super) fn sent(&mut self, now: Instant, waited: Duration) -> Duration {
        let gap = self.last.replace(now).map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.busy += gap.min(waited.max(MAX_COUNTED_GAP));
        gap
    }

    pub(super) fn accepted(&mut self) {
        self.accepted = self.accepted.saturating_add(1);
        self.recent = self.recent.saturating_add(1);
    }

    /// How many were accepted since the last refusal; they are counted anew.
    pub(super) fn take_recent(&mut self) -> u32 {
        std::mem::take(&mut self.recent)
    }

    /// The rate that a refusal shows, where enough was accepted to say. What the provider had saved up before its first
    /// refusal is taken for what it gives during the wait; from one refusal to the next, the count is exact.
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

/// A pace that was learned.
#[derive(Debug)]
pub(super) struct LearnedRate {
    rate: f64,
    /// No pause is longer than this.
    max_pause: Duration,
    /// For how long requests have waited for this pace and were not refused.
    probed_time: Duration,
    sent: u32,
    next: Instant,
}

impl LearnedRate {
    pub(super) fn new(rate: f64, from: Instant, max_pause: Duration) -> LearnedRate {
        LearnedRate { rate, max_pause, probed_time: Duration::ZERO, sent: 0, next: from }
    }

    /// Whether this rate is clearly below the learned one.
    pub(super) fn is_above(&self, rate: f64) -> bool {
        rate < self.rate * LOWER_RATE_FACTOR
    }

    /// When the next request may go; `None` means now.
    pub(super) fn ready(&self, now: Instant) -> Option<Instant> {
        (now < self.next).then_some(self.next)
    }

    /// A request goes, which waited this long since the one before it.
    pub(super) fn sent(&mut self, now: Instant, waited: Duration) {
        // The first one waited for the gate to open again, and not for the pace.
        self.probed_time += if self.sent == 0 { Duration::ZERO } else { waited };
        self.sent = self.sent.saturating_add(1);
        let interval = self.interval();
        // A timer that was late is made up for, and an idle time is not.
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
