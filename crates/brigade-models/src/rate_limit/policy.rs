//! Decides when the next request may be sent. It has no clock of its own: the time is passed in.

use std::time::Duration;

use tokio::time::Instant;

use super::RateLimits;
use super::headers::RateLimitHeaders;
use super::learned_rate::{LearnedRate, ObservedRate};
use super::overdue::OverdueTracker;
use super::quota::{Bucket, Quota};

/// Default number of concurrent requests, and its initial value before any request was accepted.
const DEFAULT_CONCURRENCY: usize = 64;
const INITIAL_WINDOW: usize = 8;
/// Growth of the window per accepted request, before and after the first refusal. A growth of 1 would find
/// the limit sooner, but with twice as many refusals.
const WINDOW_GROWTH: f64 = 0.5;
const WINDOW_GROWTH_AFTER_REFUSAL: f64 = 0.25;
/// Wait after a refusal that names none. It doubles with each consecutive refusal.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A provider is tried again after this time, however long it asked to wait.
const MAX_CLOSURE: Duration = Duration::from_secs(3600);
/// Maximum fraction by which a wait is randomly extended, so that several processes do not retry at the same
/// time.
const MAX_JITTER: f64 = 0.05;
/// A refusal after fewer accepted requests than this is early. A later one shows that the rate is about
/// right.
const EARLY_REFUSAL_REQUESTS: u32 = 8;
const PROVEN_RATE_REQUESTS: u32 = 15;
/// Maximum number of slowdowns without effect.
const MAX_FUTILE_SLOWDOWNS: u32 = 3;
/// Approximate bytes per token, and the assumed size of a reply before any was received.
const BYTES_PER_TOKEN: u64 = 4;
const INITIAL_OUTPUT_TOKENS: f64 = 500.0;

/// State of a provider's rate limits.
#[derive(Debug)]
pub(super) struct RatePolicy {
    longest_wait: Duration,
    max_concurrency: f64,
    window: f64,
    growth: f64,
    /// Requests in flight, except overdue ones.
    in_flight: usize,
    overdue: OverdueTracker,
    /// Requests sent and not yet answered, and their tokens.
    unanswered: u64,
    unanswered_tokens: u64,
    closed_until: Option<Instant>,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    request_quota: Option<Quota>,
    token_quota: Option<Quota>,
    observed_rate: ObservedRate,
    learned_rate: Option<LearnedRate>,
    /// Number of slowdowns after which the provider refused as soon as before.
    futile_slowdowns: u32,
    /// Number of refusals and overloads. Requests sent before the last one carry no new information.
    refusal_count: u64,
    overload_count: u64,
    refused_in_a_row: u32,
    typical_output_tokens: f64,
}

/// Limits as far as they were discovered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LearnedLimits {
    /// Number of concurrent requests.
    pub(super) concurrency: u64,
    /// Rate inferred from refusals.
    pub(super) requests_per_minute: Option<f64>,
}

/// A request that was sent.
#[derive(Debug)]
pub(super) struct SentRequest {
    number: u64,
    at: Instant,
    cost: u64,
    refusal_count: u64,
    overload_count: u64,
    stage: Stage,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Unanswered,
    Answered,
}

/// Decision about the first request in the queue.
#[derive(Debug)]
pub(super) enum Decision {
    Send(SentRequest),
    /// Not before this time.
    RetryAt(Instant, WaitReason),
    /// Not before another request makes progress.
    RetryLater(WaitReason),
    /// The wait is too long, so the request fails.
    TooLong(Duration),
}

/// The reason why a request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum WaitReason {
    /// The provider asked to wait this long.
    RetryAfter(Duration),
    /// This many requests are in flight.
    Busy(usize),
    /// Requests are spread over time.
    Paced,
}

impl RatePolicy {
    /// Creates a policy. Requests become overdue after a fraction of `first_byte`, the first-byte timeout.
    pub(super) fn new(
        limits: RateLimits,
        longest_wait: Duration,
        first_byte_timeout: Duration,
        now: Instant,
    ) -> RatePolicy {
        let max_concurrency = limits.concurrency.unwrap_or(DEFAULT_CONCURRENCY).max(1);
        let initial_window = limits
            .initial_concurrency
            .or(limits.concurrency)
            .unwrap_or(INITIAL_WINDOW)
            .clamp(1, max_concurrency);
        RatePolicy {
            longest_wait,
            max_concurrency: max_concurrency as f64,
            window: initial_window as f64,
            growth: WINDOW_GROWTH,
            in_flight: 0,
            overdue: OverdueTracker::new(first_byte_timeout),
            unanswered: 0,
            unanswered_tokens: 0,
            closed_until: None,
            requests: limits.requests_per_minute.map(|limit| Bucket::of_requests(limit, now)),
            tokens: limits.tokens_per_minute.map(|limit| Bucket::of_tokens(limit, now)),
            request_quota: None,
            token_quota: None,
            observed_rate: ObservedRate::default(),
            learned_rate: None,
            futile_slowdowns: 0,
            refusal_count: 0,
            overload_count: 0,
            refused_in_a_row: 0,
            typical_output_tokens: INITIAL_OUTPUT_TOKENS,
        }
    }

    /// Returns the maximum number of concurrent requests.
    pub(super) fn max_concurrency(&self) -> usize {
        self.max_concurrency as usize
    }

    /// Returns the limits that apply now.
    pub(super) fn learned_limits(&self) -> LearnedLimits {
        LearnedLimits {
            concurrency: self.window as u64,
            requests_per_minute: self.learned_rate.as_ref().map(|learned_rate| learned_rate.per_minute()),
        }
    }

    /// Estimates the tokens of a request of this many bytes and its reply.
    pub(super) fn estimate(&self, bytes: usize) -> u64 {
        (bytes as u64 / BYTES_PER_TOKEN).saturating_add(self.typical_output_tokens as u64)
    }

    /// Decides whether the first request in the queue, which entered at `entered`, may be sent. `cost` is in
    /// tokens.
    pub(super) fn decide(&mut self, now: Instant, entered: Instant, cost: u64) -> Decision {
        if let Some(decision) = self.closed_decision(now) {
            return decision;
        }
        while self.is_window_full() && self.overdue.release(now) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if self.is_window_full() {
            let reason = WaitReason::Busy(self.in_flight);
            return self
                .overdue
                .next_release()
                .map_or(Decision::RetryLater(reason), |at| Decision::RetryAt(at, reason));
        }
        let pauses = [
            self.requests.as_mut().and_then(|bucket| bucket.ready(now, 1)),
            self.tokens.as_mut().and_then(|bucket| bucket.ready(now, cost)),
            self.learned_rate.as_ref().and_then(|learned_rate| learned_rate.ready(now)),
        ];
        if let Some(at) = pauses.into_iter().flatten().max() {
            return Decision::RetryAt(at, WaitReason::Paced);
        }
        // Outstanding replies may report newer quotas, and they wake the queue.
        let resets = [
            Quota::ready(&mut self.request_quota, now, 1, self.unanswered),
            Quota::ready(&mut self.token_quota, now, cost, self.unanswered_tokens),
        ];
        if let Some(at) = resets.into_iter().flatten().max() {
            return Decision::RetryAt(at, WaitReason::RetryAfter(at.saturating_duration_since(now)));
        }
        Decision::Send(self.send(now, entered, cost))
    }

    /// Whether the window is full, so that the first in the queue need not check.
    pub(super) fn is_full(&self) -> bool {
        self.closed_until.is_none() && self.is_window_full()
    }

    /// Whether requests have left the window because they are overdue.
    pub(super) fn has_overdue(&self) -> bool {
        self.overdue.has_released()
    }

    fn is_window_full(&self) -> bool {
        self.in_flight as f64 >= self.window.floor()
    }

    fn closed_decision(&self, now: Instant) -> Option<Decision> {
        let wait = self.closed_for(now);
        match self.closed_until {
            Some(_) if wait > self.longest_wait => Some(Decision::TooLong(wait)),
            Some(at) if !wait.is_zero() => Some(Decision::RetryAt(at, WaitReason::RetryAfter(wait))),
            Some(_) | None => None,
        }
    }

    fn send(&mut self, now: Instant, entered: Instant, cost: u64) -> SentRequest {
        let waited = now.saturating_duration_since(entered);
        let gap = self.observed_rate.sent(now, waited);
        if let Some(learned_rate) = &mut self.learned_rate {
            learned_rate.sent(now, gap.min(waited));
        }
        for (bucket, amount) in [(&mut self.requests, 1), (&mut self.tokens, cost)] {
            if let Some(bucket) = bucket {
                bucket.take(amount);
            }
        }
        for (quota, amount) in [(&mut self.request_quota, 1), (&mut self.token_quota, cost)] {
            if let Some(quota) = quota {
                quota.take(amount);
            }
        }
        self.in_flight += 1;
        self.unanswered += 1;
        self.unanswered_tokens = self.unanswered_tokens.saturating_add(cost);
        let number = self.overdue.sent(now);
        let (refusal_count, overload_count) = (self.refusal_count, self.overload_count);
        SentRequest { number, at: now, cost, refusal_count, overload_count, stage: Stage::Unanswered }
    }

    /// Returns the decision for requests that are not first in the queue.
    pub(super) fn behind_others(&self, now: Instant) -> Decision {
        match self.closed_decision(now) {
            Some(Decision::TooLong(wait)) => Decision::TooLong(wait),
            Some(Decision::RetryAt(_, reason)) => Decision::RetryLater(reason),
            _ if self.is_window_full() => Decision::RetryLater(WaitReason::Busy(self.in_flight)),
            _ => Decision::RetryLater(WaitReason::Paced),
        }
    }

    /// Returns the time until the gate reopens.
    pub(super) fn closed_for(&self, now: Instant) -> Duration {
        self.closed_until.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Records that the provider accepted the request.
    pub(super) fn accepted(&mut self, now: Instant, sent: &mut SentRequest, headers: &RateLimitHeaders) {
        self.answered(sent);
        self.refused_in_a_row = 0;
        self.observed_rate.accepted();
        self.window = (self.window + self.growth).min(self.max_concurrency);
        Quota::update(&mut self.request_quota, now, headers.requests, self.unanswered, self.longest_wait);
        Quota::update(&mut self.token_quota, now, headers.tokens, self.unanswered_tokens, self.longest_wait);
    }

    /// Records the first byte of a reply. A request that had left the window counts again.
    pub(super) fn first_byte_received(&mut self, now: Instant, sent: &SentRequest) {
        if self.overdue.first_byte_received(now, sent.number, sent.at) {
            self.in_flight += 1;
        }
    }

    /// Records a refusal. Returns the time until the gate reopens.
    pub(super) fn refused(
        &mut self,
        now: Instant,
        sent: &mut SentRequest,
        headers: &RateLimitHeaders,
        jitter: f64,
    ) -> Duration {
        self.answered(sent);
        self.used(sent, 0, 0);
        let is_new_refusal = sent.refusal_count == self.refusal_count;
        let requested = headers.wait.filter(|wait| !wait.is_zero());
        let wait = match requested {
            Some(requested) if !is_new_refusal => requested,
            None if !is_new_refusal => return self.closed_for(now),
            Some(requested) if self.refused_in_a_row == 0 => requested,
            // If a provider refuses at the time it named itself, the wait is extended.
            Some(requested) => requested.max(self.backoff() / 4),
            None => self.backoff(),
        };
        let wait = wait.mul_f64(1.0 + MAX_JITTER * jitter);
        let until = now + wait.min(MAX_CLOSURE);
        self.closed_until = self.closed_until.max(Some(until));
        if is_new_refusal {
            self.refusal_count += 1;
            self.refused_in_a_row += 1;
            self.growth = WINDOW_GROWTH_AFTER_REFUSAL;
            let recent = self.observed_rate.take_recent();
            // A wait beyond the limit is an exhausted quota and says nothing about the rate.
            match self.observed_rate.rate(now, wait).filter(|_| wait <= self.longest_wait) {
                Some(rate) => self.learn(rate, recent, until, requested.is_some()),
                None => self.shrink(),
            }
        }
        self.closed_for(now).max(wait)
    }

    /// Limits requests to this rate from now on. If the provider names waits, and slowing down does not delay
    /// its refusals, they are not caused by a rate. In that case only its waits are respected.
    fn learn(&mut self, rate: f64, recent: u32, from: Instant, names_wait: bool) {
        let is_lower = self.learned_rate.as_ref().is_some_and(|learned_rate| learned_rate.is_above(rate));
        match recent {
            0..EARLY_REFUSAL_REQUESTS if is_lower && names_wait => self.futile_slowdowns += 1,
            PROVEN_RATE_REQUESTS.. => self.futile_slowdowns = 0,
            _ => {}
        }
        let learned_rate = LearnedRate::new(rate, from, self.longest_wait);
        self.learned_rate = (self.futile_slowdowns < MAX_FUTILE_SLOWDOWNS).then_some(learned_rate);
    }

    fn backoff(&self) -> Duration {
        INITIAL_BACKOFF.saturating_mul(2u32.saturating_pow(self.refused_in_a_row)).min(MAX_BACKOFF)
    }

    /// Records that the provider failed a request. The failure of an overdue request says nothing about
    /// concurrency.
    pub(super) fn overloaded(&mut self, sent: &mut SentRequest) {
        self.answered(sent);
        if sent.overload_count == self.overload_count && !self.overdue.was_released(sent.number) {
            self.overload_count += 1;
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        self.window = (self.window / 2.0).max(1.0);
    }

    /// Records the tokens that the request and its reply used; `output` is the reply's part.
    pub(super) fn used(&mut self, sent: &mut SentRequest, tokens: u64, output: u64) {
        if let Some(bucket) = &mut self.tokens {
            bucket.correct(sent.cost, tokens);
        }
        // The cost may be corrected several times, each relative to the last one.
        let known = std::mem::replace(&mut sent.cost, tokens);
        if sent.stage == Stage::Unanswered {
            self.unanswered_tokens = self.unanswered_tokens.saturating_sub(known).saturating_add(tokens);
        }
        if output > 0 {
            self.typical_output_tokens += (output as f64 - self.typical_output_tokens) / 8.0;
        }
    }

    /// Records the end of a request, whatever its outcome.
    pub(super) fn finished(&mut self, sent: &mut SentRequest) {
        self.answered(sent);
        if !self.overdue.finished(sent.number) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
    }

    fn answered(&mut self, sent: &mut SentRequest) {
        if sent.stage == Stage::Unanswered {
            sent.stage = Stage::Answered;
            self.unanswered = self.unanswered.saturating_sub(1);
            self.unanswered_tokens = self.unanswered_tokens.saturating_sub(sent.cost);
        }
    }
}
