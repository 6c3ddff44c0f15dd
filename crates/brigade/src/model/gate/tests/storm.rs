//! Storms in a time that only the test moves: many requests, one bucket, every mixture of latency and headers.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::super::Pace;
use super::super::flow::{Answer, Flow, Sent};
use super::super::hints::{Allowance, Hints};

/// A provider that lets so many requests through at once, and so many in a second.
#[derive(Debug, Clone, Copy)]
struct Provider {
    capacity: f64,
    per_second: f64,
    latency: u64,
    /// What a refusal asks for, in milliseconds.
    retry: Option<u64>,
    tells_rest: bool,
}

struct UnderWay {
    sent: Sent,
    heard_at: Instant,
    accepted: bool,
    left: f64,
}

/// Sends as many requests as are to be answered, and gives how many were sent and how many seconds it took.
fn storm(provider: Provider, wanted: usize) -> (usize, f64) {
    let start = Instant::now();
    let mut flow = Flow::new(Pace::default(), Duration::from_secs(120), Duration::from_secs(240), start);
    let mut line: VecDeque<Instant> = std::iter::repeat_n(start, wanted).collect();
    let mut under_way: Vec<UnderWay> = Vec::new();
    let (mut level, mut sent_count, mut done) = (provider.capacity, 0, 0);
    let mut now = start;
    while done < wanted {
        let (heard, rest): (Vec<UnderWay>, Vec<UnderWay>) =
            under_way.into_iter().partition(|one| one.heard_at <= now);
        under_way = rest;
        for mut one in heard {
            let reset = Duration::from_secs_f64((provider.capacity - one.left) / provider.per_second);
            let requests = Allowance {
                limit: Some(provider.capacity as u64),
                remaining: Some(one.left as u64),
                reset: Some(reset),
            };
            let requests = if provider.tells_rest { requests } else { Allowance::default() };
            let wait = provider.retry.map(Duration::from_millis);
            if one.accepted {
                done += 1;
                flow.accepted(now, &mut one.sent, &Hints { requests, ..Hints::default() });
            } else {
                flow.refused(now, &mut one.sent, &Hints { wait, ..Hints::default() }, 0.5);
                line.push_front(now);
            }
            flow.over(&mut one.sent);
        }
        while let Some(entered) = line.front().copied()
            && let Answer::Go(sent) = flow.ask(now, entered, 100)
        {
            line.pop_front();
            sent_count += 1;
            let accepted = level >= 1.0;
            level -= if accepted { 1.0 } else { 0.0 };
            // Some are faster than others.
            let latency = provider.latency + provider.latency * (sent_count as u64 * 7 % 11) / 10;
            let heard_at = now + Duration::from_millis(latency);
            under_way.push(UnderWay { sent, heard_at, accepted, left: level });
        }
        now += Duration::from_millis(1);
        level = (level + provider.per_second / 1000.0).min(provider.capacity);
        assert!(now - start < Duration::from_secs(3600), "{provider:?}: {done} of {wanted} in an hour");
    }
    (sent_count, (now - start).as_secs_f64())
}

#[test]
fn two_hundred_requests_come_through_a_bucket_with_few_refusals() {
    for latency in [0, 1, 5, 20, 50, 100, 300, 500, 1000, 3000] {
        for retry in [Some(1000), Some(50), Some(200), Some(2000), Some(5000), None] {
            let bucket = Provider { capacity: 20.0, per_second: 20.0, latency, retry, tells_rest: false };
            let (sent, seconds) = storm(bucket, 200);
            assert!(sent <= 234, "{sent} requests: {bucket:?}");
            assert!(seconds < 40.0, "{seconds} s: {bucket:?}");
        }
    }
}

#[test]
fn a_provider_that_says_what_is_left_hardly_ever_has_to_refuse() {
    for latency in [0, 5, 50, 300, 1000] {
        let bucket =
            Provider { capacity: 20.0, per_second: 20.0, latency, retry: Some(1000), tells_rest: true };
        let (sent, seconds) = storm(bucket, 200);
        assert!(sent <= 204 && seconds < 30.0, "{sent} requests in {seconds} s: {bucket:?}");
    }
}

#[test]
fn other_buckets_are_found_out_too() {
    for (capacity, per_second) in [(1.0, 20.0), (5.0, 1.0), (60.0, 1.0), (10.0, 100.0), (1000.0, 50.0)] {
        for latency in [5, 300] {
            for retry in [Some(1000), None] {
                let bucket = Provider { capacity, per_second, latency, retry, tells_rest: false };
                let (sent, seconds) = storm(bucket, 200);
                assert!(sent <= 270, "{sent} requests: {bucket:?}");
                // What was saved up is there at once, and the rest comes as it comes.
                let least = (200.0 - capacity).max(0.0) / per_second;
                assert!(seconds < least * 1.5 + 60.0, "{seconds} s: {bucket:?}");
            }
        }
    }
}
