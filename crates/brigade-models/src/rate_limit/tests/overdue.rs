//! Tests with a simulated clock of requests that are never answered.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::super::RateLimits;
use super::super::headers::RateLimitHeaders;
use super::super::policy::{Decision, RatePolicy, SentRequest, WaitReason};
use super::{FIRST_BYTE_TIMEOUT, LONGEST_WAIT, Simulation};

impl Simulation {
    /// Receives the first byte of a reply and the rest with it.
    fn receive(&mut self, mut sent: SentRequest) {
        self.policy.accepted(self.now, &mut sent, &RateLimitHeaders::default());
        self.policy.first_byte_received(self.now, &sent);
        self.policy.finished(&mut sent);
    }
}

fn two_at_once() -> Simulation {
    Simulation::new(RateLimits { concurrency: Some(2), ..RateLimits::default() })
}

#[test]
fn overtaken_request_is_released_after_four_times_typical_latency() {
    let mut sim = two_at_once();
    let mut hung = sim.send();
    let other = sim.send();
    sim.advance(2_000).receive(other);
    let _second = sim.send();
    assert_eq!(sim.next(), 6_000, "two seconds are usual, and two have passed");
    sim.advance(6_000);
    let _third = sim.send();
    // Its end frees no place in the window, because it had already left.
    sim.policy.overloaded(&mut hung);
    sim.policy.finished(&mut hung);
    assert!(matches!(sim.decide(), Decision::RetryAt(_, WaitReason::Busy(2))));
}

#[test]
fn requests_not_overtaken_are_released_one_at_a_time() {
    let mut sim = two_at_once();
    let _hung = sim.burst();
    assert_eq!(sim.next(), 60_000, "a quarter of the limit, since nothing is usual yet");
    sim.advance(60_000);
    assert_eq!(sim.burst().len(), 1);
    assert_eq!(sim.next(), 60_000);
}

#[test]
fn reply_to_a_later_request_releases_all_earlier_ones() {
    let mut sim = Simulation::new(RateLimits { concurrency: Some(4), ..RateLimits::default() });
    let mut sent = sim.burst();
    let healthy = sent.pop().unwrap();
    sim.advance(5_000).receive(healthy);
    let _hung = sent;
    let _later = sim.send();
    sim.advance(15_000);
    assert_eq!(sim.burst().len(), 3);
}

#[test]
fn provider_that_answers_in_order_gets_no_longer_queue() {
    let mut sim = Simulation::new(RateLimits { concurrency: Some(8), ..RateLimits::default() });
    let mut queue: VecDeque<SentRequest> = sim.burst().into();
    let (mut most, mut answered) = (0, 0);
    for second in 1..600 {
        sim.advance(1_000);
        if second % 20 == 0 {
            sim.receive(queue.pop_front().unwrap());
            answered += 1;
        }
        queue.extend(sim.burst());
        most = most.max(queue.len());
    }
    assert!(answered > 25 && most <= 9, "{answered} answers, {most} at once");
}

#[test]
fn late_reply_counts_its_request_again() {
    let mut sim = two_at_once();
    let late = sim.send();
    let other = sim.send();
    sim.advance(1_000).receive(other);
    let _second = sim.send();
    let _third = sim.advance(4_000).send();
    sim.policy.first_byte_received(sim.now, &late);
    assert!(matches!(
        sim.decide(),
        Decision::RetryAt(_, WaitReason::Busy(3)) | Decision::RetryLater(WaitReason::Busy(3))
    ));
}

#[test]
fn failure_of_an_overdue_request_keeps_the_window() {
    let mut sim = Simulation::new(RateLimits { concurrency: Some(4), ..RateLimits::default() });
    let mut sent = sim.burst();
    let (mut hung, healthy) = (sent.remove(0), sent.pop().unwrap());
    sim.advance(1_000).receive(healthy);
    sent.push(sim.send());
    sent.push(sim.advance(10_000).send());
    sim.policy.overloaded(&mut hung);
    sim.policy.finished(&mut hung);
    for one in sent {
        sim.receive(one);
    }
    assert_eq!(sim.burst().len(), 4);
}

/// Sends `wanted` requests of which some hang, with faults that shrink the window. Returns how long the
/// others took.
fn serve(wanted: usize, hung: &[usize], faults: &[usize], latency: Duration) -> Duration {
    let start = Instant::now();
    let mut policy = RatePolicy::new(RateLimits::default(), LONGEST_WAIT, FIRST_BYTE_TIMEOUT, start);
    let mut in_flight: Vec<(usize, Instant, SentRequest)> = Vec::new();
    let mut lost = Vec::new();
    let (mut number, mut done, mut now) = (0, 0, start);
    while done < wanted - hung.len() {
        let (answered_now, rest): (Vec<_>, Vec<_>) = in_flight.into_iter().partition(|(_, at, _)| *at <= now);
        in_flight = rest;
        for (index, _, mut sent) in answered_now {
            if faults.contains(&index) {
                policy.overloaded(&mut sent);
            } else {
                policy.accepted(now, &mut sent, &RateLimitHeaders::default());
                policy.first_byte_received(now, &sent);
            }
            done += 1;
            policy.finished(&mut sent);
        }
        while number < wanted
            && let Decision::Send(sent) = policy.decide(now, start, 100)
        {
            match hung.contains(&number) {
                true => lost.push(sent),
                false => in_flight.push((number, now + latency, sent)),
            }
            number += 1;
        }
        now += Duration::from_millis(20);
        assert!(now - start < Duration::from_secs(3600), "{done} of {wanted} in an hour");
    }
    now - start
}

proptest! {
    /// Each hung request delays the others by at most one long wait, whatever else fails.
    #[test]
    fn healthy_requests_finish_in_bounded_time_beside_hung_ones(
        hung in prop::collection::btree_set(0usize..60, 0..12),
        faults in prop::collection::btree_set(0usize..60, 0..12),
        latency in 200u64..4000,
    ) {
        let latency = Duration::from_millis(latency);
        let hung: Vec<usize> = hung.into_iter().collect();
        let faults: Vec<usize> = faults.into_iter().collect();
        let alone = serve(60, &[], &faults, latency);
        let beside = serve(60, &hung, &faults, latency);
        let long_wait = (latency * 16).max(FIRST_BYTE_TIMEOUT / 16).min(FIRST_BYTE_TIMEOUT / 4) + latency;
        // Before the first answer, there is no usual time.
        let bound = alone * 2 + long_wait * hung.len() as u32 + FIRST_BYTE_TIMEOUT / 4;
        prop_assert!(beside <= bound, "{beside:?}, not {bound:?}; {alone:?} without hung requests");
    }
}
