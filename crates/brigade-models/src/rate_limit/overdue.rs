//! Unanswered requests, and when they stop counting against the window.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// A request that a later one has overtaken is overdue after this multiple of the usual time to the first
/// byte.
const OVERTAKEN_FACTOR: u32 = 4;
/// If no later request was answered, the provider may just be slow. The wait is longer then, and requests
/// leave one at a time.
const ALONE_FACTOR: u32 = 16;
/// Bounds of both waits, as fractions of the first-byte timeout.
const OVERTAKEN_MIN_DIVISOR: u32 = 60;
const ALONE_MIN_DIVISOR: u32 = 16;
const MAX_WAIT_DIVISOR: u32 = 4;
/// Weight of a new sample in the moving average.
const SAMPLE_WEIGHT: f64 = 1.0 / 8.0;

/// Requests that were sent and have not received a byte.
///
/// An overdue request leaves the window: it continues, and others may be sent in its place. Requests leave in
/// the order in which they were sent.
#[derive(Debug)]
pub(super) struct OverdueTracker {
    first_byte_timeout: Duration,
    /// Requests in the window, by number.
    waiting: BTreeMap<u64, Instant>,
    /// Requests that have left the window.
    released: BTreeSet<u64>,
    next: u64,
    /// Requests below this number are overtaken: a later request has been answered.
    overtaken_below: u64,
    /// Time at which a request that was not overtaken last left the window.
    last_alone_release: Option<Instant>,
    typical_latency: Option<Duration>,
}

impl OverdueTracker {
    pub(super) fn new(first_byte_timeout: Duration) -> OverdueTracker {
        OverdueTracker {
            first_byte_timeout,
            waiting: BTreeMap::new(),
            released: BTreeSet::new(),
            next: 0,
            overtaken_below: 0,
            last_alone_release: None,
            typical_latency: None,
        }
    }

    /// Records a request and returns its number.
    pub(super) fn sent(&mut self, now: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, now);
        number
    }

    /// Records the first byte of a reply. Returns whether the request had left the window.
    pub(super) fn first_byte_received(&mut self, now: Instant, number: u64, sent: Instant) -> bool {
        let latency = now.saturating_duration_since(sent);
        self.typical_latency = Some(match self.typical_latency {
            None => latency,
            Some(typical_latency) => {
                typical_latency.mul_f64(1.0 - SAMPLE_WEIGHT) + latency.mul_f64(SAMPLE_WEIGHT)
            }
        });
        self.overtaken_below = self.overtaken_below.max(number);
        self.finished(number)
    }

    /// Records the end of a request. Returns whether it had left the window.
    pub(super) fn finished(&mut self, number: u64) -> bool {
        self.waiting.remove(&number);
        self.released.remove(&number)
    }

    /// Whether a request has left the window and is still in flight.
    pub(super) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Whether the request has left the window.
    pub(super) fn was_released(&self, number: u64) -> bool {
        self.released.contains(&number)
    }

    /// Removes the next overdue request from the window. Returns whether there was one.
    pub(super) fn release(&mut self, now: Instant) -> bool {
        let Some(number) = self.next_due().filter(|(_, due)| *due <= now).map(|(number, _)| number) else {
            return false;
        };
        if number >= self.overtaken_below {
            self.last_alone_release = Some(now);
        }
        self.waiting.remove(&number);
        self.released.insert(number);
        true
    }

    /// Returns the time at which the next request becomes overdue.
    pub(super) fn next_release(&self) -> Option<Instant> {
        self.next_due().map(|(_, due)| due)
    }

    fn next_due(&self) -> Option<(u64, Instant)> {
        let (&number, &sent) = self.waiting.first_key_value()?;
        let due = if number < self.overtaken_below {
            sent + self.wait(OVERTAKEN_FACTOR, OVERTAKEN_MIN_DIVISOR)
        } else {
            self.last_alone_release.map_or(sent, |last| last.max(sent))
                + self.wait(ALONE_FACTOR, ALONE_MIN_DIVISOR)
        };
        Some((number, due))
    }

    fn wait(&self, factor: u32, min_divisor: u32) -> Duration {
        let max_wait = self.first_byte_timeout / MAX_WAIT_DIVISOR;
        self.typical_latency.map_or(max_wait, |typical_latency| {
            typical_latency.saturating_mul(factor).clamp(self.first_byte_timeout / min_divisor, max_wait)
        })
    }
}
