//! Tests of the policy's decisions at given times, of rate-limit headers, and of the queue.

mod overdue;
mod storm;

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::headers::{QuotaStatus, RateLimitHeaders};
use super::policy::{Decision, RatePolicy, SentRequest, WaitReason};
use super::{Admission, Permit, RateLimiter, RateLimits, Ticket};

const LONGEST_WAIT: Duration = Duration::from_secs(120);
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(240);
/// 2026-01-01 00:00:00 UTC.
const NOW_MILLIS: u64 = 1_767_225_600_000;

/// A policy with a simulated clock.
struct Simulation {
    policy: RatePolicy,
    now: Instant,
}

impl Simulation {
    fn new(limits: RateLimits) -> Simulation {
        let now = Instant::now();
        Simulation { policy: RatePolicy::new(limits, LONGEST_WAIT, FIRST_BYTE_TIMEOUT, now), now }
    }

    fn advance(&mut self, millis: u64) -> &mut Simulation {
        self.now += Duration::from_millis(millis);
        self
    }

    fn decide(&mut self) -> Decision {
        // The caller has been waiting for a long time.
        self.policy.decide(self.now, self.now - Duration::from_secs(60), 100)
    }

    fn send(&mut self) -> SentRequest {
        match self.decide() {
            Decision::Send(sent) => sent,
            other => panic!("expected to go, and was told {other:?}"),
        }
    }

    /// Milliseconds until the next request may be sent.
    fn next(&mut self) -> u128 {
        match self.decide() {
            Decision::RetryAt(at, _) => at.saturating_duration_since(self.now).as_millis(),
            other => panic!("expected a moment, and was told {other:?}"),
        }
    }

    /// Sends as many requests as may be sent at once.
    fn burst(&mut self) -> Vec<SentRequest> {
        let mut sent = Vec::new();
        while let Decision::Send(one) = self.decide() {
            sent.push(one);
        }
        sent
    }

    fn accept(&mut self, mut sent: SentRequest) {
        self.policy.accepted(self.now, &mut sent, &RateLimitHeaders::default());
        self.policy.finished(&mut sent);
    }

    fn refuse(&mut self, mut sent: SentRequest, hints: &RateLimitHeaders) -> Duration {
        let wait = self.policy.refused(self.now, &mut sent, hints, 0.0);
        self.policy.finished(&mut sent);
        wait
    }
}

fn retry_after(millis: u64) -> RateLimitHeaders {
    RateLimitHeaders { wait: Some(Duration::from_millis(millis)), ..RateLimitHeaders::default() }
}

#[test]
fn window_starts_small_and_grows_with_each_accepted_request() {
    let mut sim = Simulation::new(RateLimits::default());
    let sent = sim.burst();
    assert_eq!(sent.len(), 8);
    for one in sent {
        sim.accept(one);
    }
    assert_eq!(sim.burst().len(), 12);
    let mut sim = Simulation::new(RateLimits::default());
    for _ in 0..200 {
        let one = sim.send();
        sim.accept(one);
    }
    assert_eq!(sim.burst().len(), 64);
    let limits = RateLimits { concurrency: Some(100), ..RateLimits::default() };
    assert_eq!(Simulation::new(limits).burst().len(), 100);
    assert_eq!(Simulation::new(RateLimits { initial_concurrency: Some(3), ..limits }).burst().len(), 3);
    assert_eq!(
        Simulation::new(RateLimits { concurrency: Some(0), ..RateLimits::default() }).burst().len(),
        1
    );
}

#[test]
fn refusal_blocks_requests_then_paces_them_at_the_observed_rate() {
    let mut sim = Simulation::new(RateLimits { concurrency: Some(30), ..RateLimits::default() });
    let mut sent = sim.burst();
    let refused = sent.split_off(20);
    for one in sent {
        sim.accept(one);
    }
    for one in refused {
        assert_eq!(sim.refuse(one, &retry_after(1000)), Duration::from_secs(1));
    }
    assert!(
        matches!(sim.decide(), Decision::RetryAt(_, WaitReason::RetryAfter(wait)) if wait == Duration::from_secs(1))
    );
    assert_eq!(sim.advance(999).next(), 1);
    // 20 were accepted, so the learned rate is slightly below 20 per second.
    let one = sim.advance(1).send();
    sim.accept(one);
    assert_eq!(sim.next(), 52);
    let mut count = 0;
    for _ in 0..3000 {
        if let Decision::Send(one) = sim.advance(1).decide() {
            count += 1;
            sim.accept(one);
        }
    }
    assert!((55..=66).contains(&count), "{count} requests in three seconds");
}

#[test]
fn learned_rate_that_is_too_slow_speeds_up() {
    let mut sim = Simulation::new(RateLimits { concurrency: Some(30), ..RateLimits::default() });
    let mut sent = sim.burst();
    let refused = sent.split_off(5);
    for one in sent {
        sim.accept(one);
    }
    for one in refused {
        sim.refuse(one, &retry_after(5000));
    }
    sim.advance(5000);
    let mut count = 0;
    for _ in 0..60_000 {
        if let Decision::Send(one) = sim.advance(1).decide() {
            count += 1;
            sim.accept(one);
        }
    }
    assert!(count > 500, "{count} requests in a minute, after one in a second was seen");
}

#[test]
fn refusals_without_retry_after_double_the_backoff_until_success() {
    let mut sim = Simulation::new(RateLimits::default());
    let mut waits = Vec::new();
    for _ in 0..8 {
        let one = sim.send();
        let wait = sim.refuse(one, &RateLimitHeaders::default());
        waits.push(wait.as_millis() as u64);
        sim.advance(wait.as_millis() as u64);
    }
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    let one = sim.send();
    sim.accept(one);
    let one = sim.send();
    assert_eq!(sim.refuse(one, &RateLimitHeaders::default()).as_millis(), 500);
    // If a provider says "retry at once" and refuses again, the wait is increased.
    let one = sim.advance(500).send();
    assert_eq!(sim.refuse(one, &retry_after(0)).as_millis(), 1000);
    let one = sim.advance(1000).send();
    assert_eq!(sim.refuse(one, &retry_after(20)).as_millis(), 500);
    let one = sim.advance(500).send();
    assert_eq!(sim.refuse(one, &retry_after(7000)).as_millis(), 7000);
}

#[test]
fn concurrent_refusals_halve_the_window_once() {
    let mut sim = Simulation::new(RateLimits::default());
    for one in sim.burst() {
        assert_eq!(sim.refuse(one, &RateLimitHeaders::default()).as_millis(), 500);
    }
    // The window was halved once, from 8 to 4.
    assert_eq!(sim.advance(500).burst().len(), 4);
}

#[test]
fn wait_beyond_the_limit_is_too_long() {
    let mut sim = Simulation::new(RateLimits::default());
    let one = sim.send();
    sim.refuse(one, &retry_after(3_000_000));
    assert!(matches!(sim.decide(), Decision::TooLong(wait) if wait == Duration::from_secs(3000)));
    let mut sim = Simulation::new(RateLimits::default());
    let one = sim.send();
    assert_eq!(sim.refuse(one, &retry_after(86_400_000)), Duration::from_secs(86_400));
    // A request is sent again after an hour, even if the provider asked for a longer wait.
    sim.advance(3_600_000).send();
}

#[test]
fn overload_halves_the_window_and_success_restores_it() {
    let mut sim = Simulation::new(RateLimits { concurrency: Some(16), ..RateLimits::default() });
    for mut one in sim.burst() {
        sim.policy.overloaded(&mut one);
        sim.policy.finished(&mut one);
    }
    let sent = sim.burst();
    assert_eq!(sent.len(), 8);
    for one in sent {
        sim.accept(one);
    }
    let sent = sim.burst();
    assert_eq!(sent.len(), 12);
    for one in sent {
        sim.accept(one);
    }
    assert_eq!(sim.burst().len(), 16);
    let mut sim = Simulation::new(RateLimits { concurrency: Some(1), ..RateLimits::default() });
    for _ in 0..3 {
        let mut one = sim.send();
        sim.policy.overloaded(&mut one);
        sim.policy.finished(&mut one);
    }
    sim.send();
}

#[test]
fn requests_per_minute_are_spread_evenly() {
    let mut sim = Simulation::new(RateLimits { requests_per_minute: Some(60), ..RateLimits::default() });
    for _ in 0..5 {
        let one = sim.send();
        sim.accept(one);
        assert_eq!(sim.next(), 999);
        sim.advance(1000);
    }
    let limits =
        RateLimits { requests_per_minute: Some(1200), concurrency: Some(100), ..RateLimits::default() };
    assert_eq!(Simulation::new(limits).burst().len(), 20);
}

#[test]
fn tokens_per_minute_are_estimated_and_then_corrected() {
    let mut sim = Simulation::new(RateLimits { tokens_per_minute: Some(600), ..RateLimits::default() });
    assert_eq!(sim.policy.estimate(400), 600);
    assert_eq!(sim.burst().len(), 6);
    assert_eq!(sim.next(), 9_999);
    // The request used 10 tokens, not the 100 that were reserved.
    let limits = RateLimits { tokens_per_minute: Some(600), concurrency: Some(20), ..RateLimits::default() };
    let mut sim = Simulation::new(limits);
    let mut sent = sim.burst();
    let mut first = sent.remove(0);
    sim.policy.accepted(sim.now, &mut first, &RateLimitHeaders::default());
    sim.policy.used(&mut first, 1, 1);
    sim.policy.used(&mut first, 10, 1);
    assert_eq!(sim.next(), 999);
    // A refusal returns the reserved tokens.
    let refused = sent.remove(0);
    sim.refuse(refused, &retry_after(100));
    sim.advance(100).send();
    // A request larger than the per-minute limit is sent when the bucket is full, and the debt is bounded.
    let mut sim = Simulation::new(RateLimits { tokens_per_minute: Some(10), ..RateLimits::default() });
    sim.send();
    assert!(sim.next() <= 120_000);
}

#[test]
fn remaining_quota_from_headers_is_not_exceeded() {
    let headers = |remaining, millis| RateLimitHeaders {
        requests: QuotaStatus {
            limit: Some(20),
            remaining: Some(remaining),
            reset: Some(Duration::from_millis(millis)),
        },
        ..RateLimitHeaders::default()
    };
    let mut sim = Simulation::new(RateLimits {
        concurrency: Some(50),
        initial_concurrency: Some(3),
        ..RateLimits::default()
    });
    let mut one = sim.send();
    let mut other = sim.send();
    sim.policy.accepted(sim.now, &mut one, &headers(3, 1000));
    sim.policy.finished(&mut one);
    // The other request may or may not be counted yet, so only two are certain.
    let third = sim.send();
    let fourth = sim.burst();
    assert_eq!(fourth.len(), 1);
    sim.policy.accepted(sim.now, &mut other, &headers(0, 1000));
    sim.policy.finished(&mut other);
    assert_eq!(sim.next(), 1000, "whatever the others say, it is over then");
    sim.accept(third);
    for one in fourth {
        sim.accept(one);
    }
    assert_eq!(sim.next(), 1000);
    // After the reset the full limit applies, and no more than that.
    let mut sim = Simulation::new(RateLimits { concurrency: Some(50), ..RateLimits::default() });
    let mut one = sim.send();
    sim.policy.accepted(sim.now, &mut one, &headers(0, 1000));
    assert_eq!(sim.next(), 1000);
    assert_eq!(sim.advance(1000).burst().len(), 20);
    // Headers of a successful reply never cause a wait of a day.
    let mut sim = Simulation::new(RateLimits::default());
    let mut one = sim.send();
    sim.policy.accepted(sim.now, &mut one, &headers(0, 86_400_000));
    assert_eq!(sim.next(), LONGEST_WAIT.as_millis());
}

fn quota_status(limit: Option<u64>, remaining: u64) -> QuotaStatus {
    QuotaStatus { limit, remaining: Some(remaining), reset: Some(Duration::from_secs(1)) }
}

#[test]
fn limit_of_zero_is_ignored() {
    let nothing = quota_status(Some(0), 0);
    for hints in [
        RateLimitHeaders { requests: nothing, ..RateLimitHeaders::default() },
        RateLimitHeaders { tokens: nothing, ..RateLimitHeaders::default() },
    ] {
        let mut sim = Simulation::new(RateLimits::default());
        let mut one = sim.send();
        sim.policy.accepted(sim.now, &mut one, &hints);
        sim.policy.finished(&mut one);
        sim.send();
    }
    let both = read(&[
        ("anthropic-ratelimit-tokens-limit", "0"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
        ("anthropic-ratelimit-input-tokens-limit", "9"),
        ("anthropic-ratelimit-input-tokens-remaining", "7"),
    ]);
    assert_eq!(both.tokens.remaining, Some(7), "another limit is not hidden by it");
}

#[test]
fn request_larger_than_the_limit_is_sent_after_a_reset() {
    for hints in [
        RateLimitHeaders { requests: quota_status(Some(1), 0), ..RateLimitHeaders::default() },
        // A request has 100 tokens, and the limit is lower.
        RateLimitHeaders { tokens: quota_status(Some(7), 0), ..RateLimitHeaders::default() },
        RateLimitHeaders { tokens: quota_status(None, 0), ..RateLimitHeaders::default() },
    ] {
        let mut sim = Simulation::new(RateLimits::default());
        let mut one = sim.send();
        sim.policy.accepted(sim.now, &mut one, &hints);
        sim.policy.finished(&mut one);
        assert_eq!(sim.next(), 1000);
        sim.advance(1000).send();
    }
}

#[test]
fn request_waits_until_enough_tokens_remain() {
    let after_reply = |limit, remaining| {
        let mut sim = Simulation::new(RateLimits::default());
        let mut one = sim.send();
        let hints =
            RateLimitHeaders { tokens: quota_status(limit, remaining), ..RateLimitHeaders::default() };
        sim.policy.accepted(sim.now, &mut one, &hints);
        sim.policy.finished(&mut one);
        sim
    };
    assert_eq!(after_reply(Some(1000), 99).next(), 1000);
    after_reply(Some(1000), 99).advance(1000).send();
    after_reply(Some(1000), 100).send();
    after_reply(Some(50), 50).send();
    after_reply(None, 1).send();
}

#[test]
fn refusal_with_a_wait_beyond_the_limit_teaches_no_rate() {
    let mut sim = Simulation::new(RateLimits { concurrency: Some(30), ..RateLimits::default() });
    let mut sent = sim.burst();
    let refused = sent.split_off(5);
    for one in sent {
        sim.accept(one);
    }
    for one in refused {
        sim.refuse(one, &retry_after(3_600_000));
    }
    let one = sim.advance(3_600_000).send();
    sim.accept(one);
    // Five per hour would be one every twelve minutes.
    sim.send();
}

#[test]
fn learned_pause_is_capped_at_the_longest_wait() {
    let mut sim = Simulation::new(RateLimits::default());
    sim.policy = RatePolicy::new(RateLimits::default(), Duration::from_secs(2), FIRST_BYTE_TIMEOUT, sim.now);
    for _ in 0..5 {
        let one = sim.advance(60_000).send();
        sim.accept(one);
    }
    let one = sim.send();
    sim.refuse(one, &retry_after(1000));
    let one = sim.advance(1000).send();
    sim.accept(one);
    assert_eq!(sim.next(), 2000);
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

fn read(pairs: &[(&'static str, &str)]) -> RateLimitHeaders {
    RateLimitHeaders::read(&headers(pairs), NOW_MILLIS)
}

fn wait_millis(pairs: &[(&'static str, &str)]) -> Option<u128> {
    read(pairs).wait.map(|wait| wait.as_millis())
}

#[test]
fn headers_with_a_wait_are_parsed_in_every_format() {
    assert_eq!(wait_millis(&[("retry-after", "7")]), Some(7000));
    assert_eq!(wait_millis(&[("retry-after", " 0.25 ")]), Some(250));
    assert_eq!(wait_millis(&[("retry-after", "0")]), Some(0));
    assert_eq!(wait_millis(&[("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT")]), Some(30_000));
    assert_eq!(wait_millis(&[("retry-after-ms", "120"), ("retry-after", "9")]), Some(120));
    // The provider's clock is used if the reply has a date.
    let date = ("date", "Thu, 01 Jan 2026 00:00:25 GMT");
    assert_eq!(wait_millis(&[("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT"), date]), Some(5000));
    assert_eq!(wait_millis(&[("x-ratelimit-reset-requests", "6m0s")]), Some(360_000));
    let both = [("x-ratelimit-remaining-requests", "9"), ("x-ratelimit-reset-requests", "6m0s")];
    assert_eq!(wait_millis(&both), None, "requests are left");
    let tokens = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1.5s")];
    assert_eq!(wait_millis(&[both[0], both[1], tokens[0], tokens[1]]), Some(1500));
}

#[test]
fn headers_with_a_reset_are_parsed_in_every_format() {
    let reset = |text: &str| {
        let hints = read(&[("x-ratelimit-remaining-requests", "3"), ("x-ratelimit-reset-requests", text)]);
        hints.requests.reset.map(|reset| reset.as_micros())
    };
    for (text, micros) in [
        ("1s", 1_000_000),
        ("6m0s", 360_000_000),
        ("120ms", 120_000),
        ("1h2m3.5s", 3_723_500_000),
        ("250us", 250),
        ("12", 12_000_000),
        ("0.5", 500_000),
        ("1767225610", 10_000_000),
        ("1767225600250", 250_000),
        ("2026-01-01T00:00:10Z", 10_000_000),
        ("2026-01-01T00:00:10.25Z", 10_250_000),
        ("2026-01-01T01:00:10+01:00", 10_000_000),
        ("2025-12-31T23:00:10-01:00", 10_000_000),
        ("2025-12-31T23:59:59Z", 0),
        ("1767225599", 0),
        ("2d", 86_400_000_000),
    ] {
        assert_eq!(reset(text), Some(micros), "{text}");
    }
    let anthropic = read(&[
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "49"),
        ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:01Z"),
        ("anthropic-ratelimit-tokens-remaining", "900"),
        ("anthropic-ratelimit-input-tokens-remaining", "0"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:09Z"),
    ]);
    let second = Some(Duration::from_secs(1));
    assert_eq!(anthropic.requests, QuotaStatus { limit: Some(50), remaining: Some(49), reset: second });
    assert_eq!(anthropic.tokens.remaining, Some(0));
    assert_eq!(anthropic.wait, Some(Duration::from_secs(9)));
}

#[test]
fn hostile_headers_give_no_wait_or_at_most_a_day() {
    for text in [
        "",
        "-5",
        "+5",
        "NaN",
        "inf",
        "-inf",
        "1e9",
        "soon",
        "0x10",
        "1,5",
        "1.2.3",
        "٣",
        "s",
        "5 s",
        "1s2",
        "Thu, 99 Jan 2026 00:00:30 GMT",
        "Thu, 01 Foo 2026 00:00:30 GMT",
        "Thu, 01 Jan 2026 25:00:30 GMT",
        "2026-01-01",
        "2026-13-01T00:00:00Z",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00.Z",
        "T",
        ":::",
        "ääää-bb",
    ] {
        let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else { panic!("{text}") };
        for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset-requests", "x-ratelimit-reset"] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value.clone())]);
            assert_eq!(RateLimitHeaders::read(&headers, NOW_MILLIS).wait, None, "{name}: {text}");
        }
    }
    let day = Some(Duration::from_secs(86_400).as_millis());
    assert_eq!(wait_millis(&[("retry-after", &"9".repeat(400))]), None, "no number");
    assert_eq!(wait_millis(&[("retry-after", &"9".repeat(30))]), day);
    assert_eq!(wait_millis(&[("retry-after-ms", "99999999999999999999")]), day);
    assert_eq!(wait_millis(&[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")]), day);
    assert_eq!(wait_millis(&[("retry-after", "Mon, 01 Jan 0001 00:00:00 GMT")]), Some(0));
    let sums = format!("{0}h{0}h", "9".repeat(200));
    assert_eq!(wait_millis(&[("x-ratelimit-reset-requests", &sums)]), day);
}

proptest::proptest! {
    #[test]
    fn arbitrary_headers_never_panic(
        value in "[0-9a-zA-Z:., +-]{0,30}",
        remaining in "[0-9.-]{0,22}",
        now in proptest::prelude::any::<u64>(),
    ) {
        for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset", "date"] {
            let mut headers = headers(&[("x-ratelimit-remaining", &remaining)]);
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap());
            let hints = RateLimitHeaders::read(&headers, now);
            let mut sim = Simulation::new(RateLimits::default());
            let mut first = sim.send();
            sim.policy.accepted(sim.now, &mut first, &hints);
            if let Decision::Send(one) = sim.decide() {
                assert!(!sim.refuse(one, &hints).is_zero());
            }
        }
    }
}

/// Waits briefly for a permit.
async fn granted(ticket: &mut Ticket) -> Permit {
    match ticket.acquire(Instant::now() + Duration::from_secs(20)).await {
        Admission::Granted(permit) => permit,
        other => panic!("expected to pass, and was told {other:?}"),
    }
}

async fn waiting(ticket: &mut Ticket) -> WaitReason {
    match ticket.acquire(Instant::now() + Duration::from_millis(10)).await {
        Admission::Waiting(why) => why,
        other => panic!("expected to wait, and was told {other:?}"),
    }
}

fn single_request_limiter() -> std::sync::Arc<RateLimiter> {
    RateLimiter::new(
        "mock",
        RateLimits { concurrency: Some(1), ..RateLimits::default() },
        LONGEST_WAIT,
        FIRST_BYTE_TIMEOUT,
    )
}

#[tokio::test]
async fn tickets_are_served_in_order() {
    let limiter = single_request_limiter();
    let mut tickets: Vec<Ticket> = (0..5).map(|_| limiter.enqueue(0)).collect();
    let mut last = tickets.pop().unwrap();
    assert_eq!(waiting(&mut last).await, WaitReason::Paced, "nobody is under way, and others came before");
    for ticket in &mut tickets {
        let permit = granted(ticket).await;
        assert_eq!(waiting(&mut last).await, WaitReason::Busy(1));
        drop(permit);
    }
    granted(&mut last).await;
}

#[tokio::test]
async fn dropped_ticket_does_not_block_the_next() {
    let limiter = single_request_limiter();
    let (mut first, second, mut third) = (limiter.enqueue(0), limiter.enqueue(0), limiter.enqueue(0));
    let permit = granted(&mut first).await;
    waiting(&mut third).await;
    let waits = third.acquire(Instant::now() + Duration::from_secs(20));
    let leaves = async {
        drop(permit);
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(second);
    };
    let (admission, ()) = futures::join!(waits, leaves);
    assert!(matches!(admission, Admission::Granted(_)), "{admission:?}");
}

#[tokio::test]
async fn refused_request_keeps_its_place_and_blocks_all_others() {
    let limiter = RateLimiter::new(
        "mock",
        RateLimits { concurrency: Some(2), ..RateLimits::default() },
        LONGEST_WAIT,
        FIRST_BYTE_TIMEOUT,
    );
    let (mut first, mut second) = (limiter.enqueue(0), limiter.enqueue(0));
    let permit = granted(&mut first).await;
    let start = Instant::now();
    assert!(permit.refused(&retry_after(300)) >= Duration::from_millis(300));
    assert!(matches!(waiting(&mut second).await, WaitReason::RetryAfter(_)));
    first.requeue();
    assert!(matches!(waiting(&mut second).await, WaitReason::RetryAfter(_)));
    let late = start + Duration::from_secs(20);
    let in_time = async {
        tokio::time::sleep(Duration::from_millis(320)).await;
        waiting(&mut second).await
    };
    // The gate is open by now, but the second still waits: the first has not retried yet.
    assert_eq!(in_time.await, WaitReason::Paced);
    assert!(matches!(first.acquire(late).await, Admission::Granted(_)));
    assert!(matches!(second.acquire(late).await, Admission::Granted(_)));
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn queued_requests_give_up_if_the_requested_wait_is_too_long() {
    let limiter = single_request_limiter();
    let (mut first, mut second, mut third) = (limiter.enqueue(0), limiter.enqueue(0), limiter.enqueue(0));
    let permit = granted(&mut first).await;
    let later = Instant::now() + Duration::from_secs(60);
    let refuses = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        permit.refused(&retry_after(600_000));
    };
    let start = Instant::now();
    let (second, third, ()) = futures::join!(second.acquire(later), third.acquire(later), refuses);
    assert!(matches!((second, third), (Admission::TooLong(_), Admission::TooLong(_))));
    assert!(start.elapsed() < Duration::from_secs(20));
}
