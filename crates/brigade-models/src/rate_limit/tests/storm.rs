//! Load tests with a simulated clock: many requests against one bucket, with every mixture of latency and
//! headers.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::super::RateLimits;
use super::super::headers::{QuotaStatus, RateLimitHeaders};
use super::super::policy::{Decision, RatePolicy, SentRequest};

/// A provider with a burst capacity and a rate per second.
#[derive(Debug, Clone, Copy)]
struct Provider {
    capacity: f64,
    per_second: f64,
    latency: u64,
    /// Wait requested by a refusal, in milliseconds.
    retry: Option<u64>,
    sends_remaining: bool,
    /// Seed of a provider that refuses one request in five whatever their rate.
    random_refusals: Option<u32>,
}

impl Provider {
    /// Whether the provider refuses this request by chance.
    fn refuses_at_random(&self, request: usize) -> bool {
        self.random_refusals.is_some_and(|seed| {
            let mixed = (seed ^ (request as u32).wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B);
            (mixed ^ (mixed >> 13)).wrapping_mul(0xC2B2_AE35) >> 16 < 0x1_0000 / 5
        })
    }
}

struct InFlight {
    sent: SentRequest,
    answered_at: Instant,
    accepted: bool,
    remaining: f64,
}

/// Sends requests until `wanted` are answered. Returns the number sent and the seconds it took.
fn storm(provider: Provider, wanted: usize) -> (usize, f64) {
    let start = Instant::now();
    let mut policy =
        RatePolicy::new(RateLimits::default(), Duration::from_secs(120), Duration::from_secs(240), start);
    let mut queue: VecDeque<Instant> = std::iter::repeat_n(start, wanted).collect();
    let mut in_flight: Vec<InFlight> = Vec::new();
    let (mut level, mut sent_count, mut done) = (provider.capacity, 0, 0);
    let mut now = start;
    while done < wanted {
        let (answered, rest): (Vec<InFlight>, Vec<InFlight>) =
            in_flight.into_iter().partition(|one| one.answered_at <= now);
        in_flight = rest;
        for mut one in answered {
            let reset = Duration::from_secs_f64((provider.capacity - one.remaining) / provider.per_second);
            let requests = QuotaStatus {
                limit: Some(provider.capacity as u64),
                remaining: Some(one.remaining as u64),
                reset: Some(reset),
            };
            let requests = if provider.sends_remaining { requests } else { QuotaStatus::default() };
            let wait = provider.retry.map(Duration::from_millis);
            if one.accepted {
                done += 1;
                policy.accepted(
                    now,
                    &mut one.sent,
                    &RateLimitHeaders { requests, ..RateLimitHeaders::default() },
                );
            } else {
                policy.refused(
                    now,
                    &mut one.sent,
                    &RateLimitHeaders { wait, ..RateLimitHeaders::default() },
                    0.5,
                );
                queue.push_front(now);
            }
            policy.finished(&mut one.sent);
        }
        while let Some(entered) = queue.front().copied()
            && let Decision::Send(sent) = policy.decide(now, entered, 100)
        {
            queue.pop_front();
            sent_count += 1;
            let accepted = level >= 1.0 && !provider.refuses_at_random(sent_count);
            level -= if accepted { 1.0 } else { 0.0 };
            // Latency varies between requests.
            let latency = provider.latency + provider.latency * (sent_count as u64 * 7 % 11) / 10;
            let answered_at = now + Duration::from_millis(latency);
            in_flight.push(InFlight { sent, answered_at, accepted, remaining: level });
        }
        now += Duration::from_millis(1);
        level = (level + provider.per_second / 1000.0).min(provider.capacity);
        assert!(now - start < Duration::from_secs(3600), "{provider:?}: {done} of {wanted} in an hour");
    }
    (sent_count, (now - start).as_secs_f64())
}

#[test]
fn two_hundred_requests_pass_a_bucket_with_few_refusals() {
    for latency in [0, 1, 5, 20, 50, 100, 300, 500, 1000, 3000] {
        for retry in [Some(1000), Some(50), Some(200), Some(2000), Some(5000), None] {
            let bucket = Provider {
                capacity: 20.0,
                per_second: 20.0,
                latency,
                retry,
                sends_remaining: false,
                random_refusals: None,
            };
            let (sent, seconds) = storm(bucket, 200);
            assert!(sent <= 234, "{sent} requests: {bucket:?}");
            assert!(seconds < 40.0, "{seconds} s: {bucket:?}");
        }
    }
}

#[test]
fn provider_that_sends_remaining_quota_rarely_refuses() {
    for latency in [0, 5, 50, 300, 1000] {
        let bucket = Provider {
            capacity: 20.0,
            per_second: 20.0,
            latency,
            retry: Some(1000),
            sends_remaining: true,
            random_refusals: None,
        };
        let (sent, seconds) = storm(bucket, 200);
        assert!(sent <= 204 && seconds < 30.0, "{sent} requests in {seconds} s: {bucket:?}");
    }
}

#[test]
fn other_bucket_sizes_are_learned_too() {
    for (capacity, per_second) in [(1.0, 20.0), (5.0, 1.0), (60.0, 1.0), (10.0, 100.0), (1000.0, 50.0)] {
        for latency in [5, 300] {
            for retry in [Some(1000), None] {
                let bucket = Provider {
                    capacity,
                    per_second,
                    latency,
                    retry,
                    sends_remaining: false,
                    random_refusals: None,
                };
                let (sent, seconds) = storm(bucket, 200);
                assert!(sent <= 270, "{sent} requests: {bucket:?}");
                // The burst is available at once, and the rest at the provider's rate.
                let least = (200.0 - capacity).max(0.0) / per_second;
                assert!(seconds < least * 1.5 + 60.0, "{seconds} s: {bucket:?}");
            }
        }
    }
}

#[test]
fn random_refusals_delay_requests_by_a_few_times_the_requested_wait() {
    for seed in 0..100 {
        for latency in [5, 300] {
            let provider = Provider {
                capacity: 1000.0,
                per_second: 1000.0,
                latency,
                retry: Some(1000),
                sends_remaining: false,
                random_refusals: Some(seed * 7919),
            };
            let (sent, seconds) = storm(provider, 40);
            let refused = (sent - 40) as f64;
            assert!(seconds < 3.0 * refused + 15.0, "{refused} refusals, {seconds} s: {provider:?}");
        }
    }
}
