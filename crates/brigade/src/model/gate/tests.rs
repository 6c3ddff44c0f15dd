//! Decisions at given moments, headers of all kinds, and the line.

mod overdue;
mod storm;

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::flow::{Answer, Flow, Sent, Why};
use super::hints::{Allowance, Hints};
use super::{Gate, Pace, Passed, Permit, Place};

const MINUTES: Duration = Duration::from_secs(120);
const FIRST_BYTE: Duration = Duration::from_secs(240);
/// 1 January 2026, 00:00:00.
const NOW: u64 = 1_767_225_600_000;

/// A flow and a clock that only the test moves.
struct Story {
    flow: Flow,
    now: Instant,
}

impl Story {
    fn new(pace: Pace) -> Story {
        let now = Instant::now();
        Story { flow: Flow::new(pace, MINUTES, FIRST_BYTE, now), now }
    }

    fn after(&mut self, millis: u64) -> &mut Story {
        self.now += Duration::from_millis(millis);
        self
    }

    fn ask(&mut self) -> Answer {
        // Whoever asks has waited for long.
        self.flow.ask(self.now, self.now - Duration::from_secs(60), 100)
    }

    fn go(&mut self) -> Sent {
        match self.ask() {
            Answer::Go(sent) => sent,
            other => panic!("expected to go, and was told {other:?}"),
        }
    }

    /// In how many milliseconds the next request may go.
    fn next(&mut self) -> u128 {
        match self.ask() {
            Answer::At(at, _) => at.saturating_duration_since(self.now).as_millis(),
            other => panic!("expected a moment, and was told {other:?}"),
        }
    }

    /// How many requests go at once.
    fn burst(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while let Answer::Go(one) = self.ask() {
            sent.push(one);
        }
        sent
    }

    fn accept(&mut self, mut sent: Sent) {
        self.flow.accepted(self.now, &mut sent, &Hints::default());
        self.flow.over(&mut sent);
    }

    fn refuse(&mut self, mut sent: Sent, hints: &Hints) -> Duration {
        let wait = self.flow.refused(self.now, &mut sent, hints, 0.0);
        self.flow.over(&mut sent);
        wait
    }
}

fn wait(millis: u64) -> Hints {
    Hints { wait: Some(Duration::from_millis(millis)), ..Hints::default() }
}

#[test]
fn an_unknown_provider_is_asked_little_at_first_and_more_with_each_success() {
    let mut story = Story::new(Pace::default());
    let sent = story.burst();
    assert_eq!(sent.len(), 8);
    for one in sent {
        story.accept(one);
    }
    assert_eq!(story.burst().len(), 12);
    let mut story = Story::new(Pace::default());
    for _ in 0..200 {
        let one = story.go();
        story.accept(one);
    }
    assert_eq!(story.burst().len(), 64);
    let pace = Pace { concurrency: Some(100), ..Pace::default() };
    assert_eq!(Story::new(pace).burst().len(), 100);
    assert_eq!(Story::new(Pace { first: Some(3), ..pace }).burst().len(), 3);
    assert_eq!(Story::new(Pace { concurrency: Some(0), ..Pace::default() }).burst().len(), 1);
}

#[test]
fn nobody_passes_until_the_wait_is_over_and_then_at_the_rate_that_was_seen() {
    let mut story = Story::new(Pace { concurrency: Some(30), ..Pace::default() });
    let mut sent = story.burst();
    let refused = sent.split_off(20);
    for one in sent {
        story.accept(one);
    }
    for one in refused {
        assert_eq!(story.refuse(one, &wait(1000)), Duration::from_secs(1));
    }
    assert!(matches!(story.ask(), Answer::At(_, Why::Asked(wait)) if wait == Duration::from_secs(1)));
    assert_eq!(story.after(999).next(), 1);
    // 20 were accepted, and 20 a second is what is tried, less a little.
    let one = story.after(1).go();
    story.accept(one);
    assert_eq!(story.next(), 52);
    let mut count = 0;
    for _ in 0..3000 {
        if let Answer::Go(one) = story.after(1).ask() {
            count += 1;
            story.accept(one);
        }
    }
    assert!((55..=66).contains(&count), "{count} requests in three seconds");
}

#[test]
fn a_pace_that_is_too_slow_is_left_behind() {
    let mut story = Story::new(Pace { concurrency: Some(30), ..Pace::default() });
    let mut sent = story.burst();
    let refused = sent.split_off(5);
    for one in sent {
        story.accept(one);
    }
    for one in refused {
        story.refuse(one, &wait(5000));
    }
    story.after(5000);
    let mut count = 0;
    for _ in 0..60_000 {
        if let Answer::Go(one) = story.after(1).ask() {
            count += 1;
            story.accept(one);
        }
    }
    assert!(count > 500, "{count} requests in a minute, after one in a second was seen");
}

#[test]
fn without_a_word_the_wait_doubles_until_something_is_accepted() {
    let mut story = Story::new(Pace::default());
    let mut waits = Vec::new();
    for _ in 0..8 {
        let one = story.go();
        let wait = story.refuse(one, &Hints::default());
        waits.push(wait.as_millis() as u64);
        story.after(wait.as_millis() as u64);
    }
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    let one = story.go();
    story.accept(one);
    let one = story.go();
    assert_eq!(story.refuse(one, &Hints::default()).as_millis(), 500);
    // A provider that says "at once" and refuses again is not believed for ever.
    let one = story.after(500).go();
    assert_eq!(story.refuse(one, &wait(0)).as_millis(), 1000);
    let one = story.after(1000).go();
    assert_eq!(story.refuse(one, &wait(20)).as_millis(), 500);
    let one = story.after(500).go();
    assert_eq!(story.refuse(one, &wait(7000)).as_millis(), 7000);
}

#[test]
fn refusals_of_one_round_count_once() {
    let mut story = Story::new(Pace::default());
    for one in story.burst() {
        assert_eq!(story.refuse(one, &Hints::default()).as_millis(), 500);
    }
    // The window was halved once, from 8 to 4.
    assert_eq!(story.after(500).burst().len(), 4);
}

#[test]
fn a_wait_beyond_the_limit_is_no_wait() {
    let mut story = Story::new(Pace::default());
    let one = story.go();
    story.refuse(one, &wait(3_000_000));
    assert!(matches!(story.ask(), Answer::TooLong(wait) if wait == Duration::from_secs(3000)));
    let mut story = Story::new(Pace::default());
    let one = story.go();
    assert_eq!(story.refuse(one, &wait(86_400_000)), Duration::from_secs(86_400));
    // However much it asked for, after an hour it is asked again.
    story.after(3_600_000).go();
}

#[test]
fn overload_halves_the_window_and_success_brings_it_back() {
    let mut story = Story::new(Pace { concurrency: Some(16), ..Pace::default() });
    for mut one in story.burst() {
        story.flow.overloaded(&mut one);
        story.flow.over(&mut one);
    }
    let sent = story.burst();
    assert_eq!(sent.len(), 8);
    for one in sent {
        story.accept(one);
    }
    let sent = story.burst();
    assert_eq!(sent.len(), 12);
    for one in sent {
        story.accept(one);
    }
    assert_eq!(story.burst().len(), 16);
    let mut story = Story::new(Pace { concurrency: Some(1), ..Pace::default() });
    for _ in 0..3 {
        let mut one = story.go();
        story.flow.overloaded(&mut one);
        story.flow.over(&mut one);
    }
    story.go();
}

#[test]
fn requests_a_minute_are_spread() {
    let mut story = Story::new(Pace { requests_per_minute: Some(60), ..Pace::default() });
    for _ in 0..5 {
        let one = story.go();
        story.accept(one);
        assert_eq!(story.next(), 999);
        story.after(1000);
    }
    let pace = Pace { requests_per_minute: Some(1200), concurrency: Some(100), ..Pace::default() };
    assert_eq!(Story::new(pace).burst().len(), 20);
}

#[test]
fn tokens_a_minute_are_estimated_and_then_counted() {
    let mut story = Story::new(Pace { tokens_per_minute: Some(600), ..Pace::default() });
    assert_eq!(story.flow.estimate(400), 600);
    assert_eq!(story.burst().len(), 6);
    assert_eq!(story.next(), 9_999);
    // One that had 10 tokens, and not the 100 that were set aside.
    let pace = Pace { tokens_per_minute: Some(600), concurrency: Some(20), ..Pace::default() };
    let mut story = Story::new(pace);
    let mut sent = story.burst();
    let mut first = sent.remove(0);
    story.flow.accepted(story.now, &mut first, &Hints::default());
    story.flow.used(&mut first, 1, 1);
    story.flow.used(&mut first, 10, 1);
    assert_eq!(story.next(), 999);
    // A refusal gives back what was set aside.
    let refused = sent.remove(0);
    story.refuse(refused, &wait(100));
    story.after(100).go();
    // What is larger than the whole minute goes when the bucket is full, and the debt has an end.
    let mut story = Story::new(Pace { tokens_per_minute: Some(10), ..Pace::default() });
    story.go();
    assert!(story.next() <= 120_000);
}

#[test]
fn what_the_provider_says_is_left_is_not_exceeded() {
    let told = |remaining, millis| Hints {
        requests: Allowance {
            limit: Some(20),
            remaining: Some(remaining),
            reset: Some(Duration::from_millis(millis)),
        },
        ..Hints::default()
    };
    let mut story = Story::new(Pace { concurrency: Some(50), first: Some(3), ..Pace::default() });
    let mut one = story.go();
    let mut other = story.go();
    story.flow.accepted(story.now, &mut one, &told(3, 1000));
    story.flow.over(&mut one);
    // The other may be counted or not, so two are sure.
    let third = story.go();
    let fourth = story.burst();
    assert_eq!(fourth.len(), 1);
    story.flow.accepted(story.now, &mut other, &told(0, 1000));
    story.flow.over(&mut other);
    assert_eq!(story.next(), 1000, "whatever the others say, it is over then");
    story.accept(third);
    for one in fourth {
        story.accept(one);
    }
    assert_eq!(story.next(), 1000);
    // Then the whole limit counts, and not more of it than there is.
    let mut story = Story::new(Pace { concurrency: Some(50), ..Pace::default() });
    let mut one = story.go();
    story.flow.accepted(story.now, &mut one, &told(0, 1000));
    assert_eq!(story.next(), 1000);
    assert_eq!(story.after(1000).burst().len(), 20);
    // A day is not waited for because of a reply that succeeded.
    let mut story = Story::new(Pace::default());
    let mut one = story.go();
    story.flow.accepted(story.now, &mut one, &told(0, 86_400_000));
    assert_eq!(story.next(), MINUTES.as_millis());
}

fn left(limit: Option<u64>, remaining: u64) -> Allowance {
    Allowance { limit, remaining: Some(remaining), reset: Some(Duration::from_secs(1)) }
}

#[test]
fn a_limit_of_nothing_is_no_limit() {
    let nothing = left(Some(0), 0);
    for hints in
        [Hints { requests: nothing, ..Hints::default() }, Hints { tokens: nothing, ..Hints::default() }]
    {
        let mut story = Story::new(Pace::default());
        let mut one = story.go();
        story.flow.accepted(story.now, &mut one, &hints);
        story.flow.over(&mut one);
        story.go();
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
fn after_a_reset_one_goes_however_small_the_limit_is() {
    for hints in [
        Hints { requests: left(Some(1), 0), ..Hints::default() },
        // A request has a hundred tokens, and the limit is lower.
        Hints { tokens: left(Some(7), 0), ..Hints::default() },
        Hints { tokens: left(None, 0), ..Hints::default() },
    ] {
        let mut story = Story::new(Pace::default());
        let mut one = story.go();
        story.flow.accepted(story.now, &mut one, &hints);
        story.flow.over(&mut one);
        assert_eq!(story.next(), 1000);
        story.after(1000).go();
    }
}

#[test]
fn a_request_waits_for_as_many_tokens_as_it_has() {
    let told = |limit, remaining| {
        let mut story = Story::new(Pace::default());
        let mut one = story.go();
        let hints = Hints { tokens: left(limit, remaining), ..Hints::default() };
        story.flow.accepted(story.now, &mut one, &hints);
        story.flow.over(&mut one);
        story
    };
    assert_eq!(told(Some(1000), 99).next(), 1000);
    told(Some(1000), 99).after(1000).go();
    told(Some(1000), 100).go();
    told(Some(50), 50).go();
    told(None, 1).go();
}

#[test]
fn a_wait_that_nobody_waits_for_teaches_no_rate() {
    let mut story = Story::new(Pace { concurrency: Some(30), ..Pace::default() });
    let mut sent = story.burst();
    let refused = sent.split_off(5);
    for one in sent {
        story.accept(one);
    }
    for one in refused {
        story.refuse(one, &wait(3_600_000));
    }
    let one = story.after(3_600_000).go();
    story.accept(one);
    // Five in an hour would be one in twelve minutes.
    story.go();
}

#[test]
fn no_pause_that_was_learned_is_longer_than_the_longest_wait() {
    let mut story = Story::new(Pace::default());
    story.flow = Flow::new(Pace::default(), Duration::from_secs(2), FIRST_BYTE, story.now);
    for _ in 0..5 {
        let one = story.after(60_000).go();
        story.accept(one);
    }
    let one = story.go();
    story.refuse(one, &wait(1000));
    let one = story.after(1000).go();
    story.accept(one);
    assert_eq!(story.next(), 2000);
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

fn read(pairs: &[(&'static str, &str)]) -> Hints {
    Hints::read(&headers(pairs), NOW)
}

fn waits(pairs: &[(&'static str, &str)]) -> Option<u128> {
    read(pairs).wait.map(|wait| wait.as_millis())
}

#[test]
fn every_way_to_ask_for_a_wait_is_read() {
    assert_eq!(waits(&[("retry-after", "7")]), Some(7000));
    assert_eq!(waits(&[("retry-after", " 0.25 ")]), Some(250));
    assert_eq!(waits(&[("retry-after", "0")]), Some(0));
    assert_eq!(waits(&[("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT")]), Some(30_000));
    assert_eq!(waits(&[("retry-after-ms", "120"), ("retry-after", "9")]), Some(120));
    // The clock of the provider counts, where it says what time it is.
    let date = ("date", "Thu, 01 Jan 2026 00:00:25 GMT");
    assert_eq!(waits(&[("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT"), date]), Some(5000));
    assert_eq!(waits(&[("x-ratelimit-reset-requests", "6m0s")]), Some(360_000));
    let both = [("x-ratelimit-remaining-requests", "9"), ("x-ratelimit-reset-requests", "6m0s")];
    assert_eq!(waits(&both), None, "requests are left");
    let tokens = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1.5s")];
    assert_eq!(waits(&[both[0], both[1], tokens[0], tokens[1]]), Some(1500));
}

#[test]
fn every_way_to_write_a_reset_is_read() {
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
    assert_eq!(anthropic.requests, Allowance { limit: Some(50), remaining: Some(49), reset: second });
    assert_eq!(anthropic.tokens.remaining, Some(0));
    assert_eq!(anthropic.wait, Some(Duration::from_secs(9)));
}

#[test]
fn hostile_headers_ask_for_nothing_or_for_a_day_at_most() {
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
            assert_eq!(Hints::read(&headers, NOW).wait, None, "{name}: {text}");
        }
    }
    let day = Some(Duration::from_secs(86_400).as_millis());
    assert_eq!(waits(&[("retry-after", &"9".repeat(400))]), None, "no number");
    assert_eq!(waits(&[("retry-after", &"9".repeat(30))]), day);
    assert_eq!(waits(&[("retry-after-ms", "99999999999999999999")]), day);
    assert_eq!(waits(&[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")]), day);
    assert_eq!(waits(&[("retry-after", "Mon, 01 Jan 0001 00:00:00 GMT")]), Some(0));
    let sums = format!("{0}h{0}h", "9".repeat(200));
    assert_eq!(waits(&[("x-ratelimit-reset-requests", &sums)]), day);
}

proptest::proptest! {
    #[test]
    fn no_header_makes_the_gate_fall_over(
        value in "[0-9a-zA-Z:., +-]{0,30}",
        remaining in "[0-9.-]{0,22}",
        now in proptest::prelude::any::<u64>(),
    ) {
        for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset", "date"] {
            let mut headers = headers(&[("x-ratelimit-remaining", &remaining)]);
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap());
            let hints = Hints::read(&headers, now);
            let mut story = Story::new(Pace::default());
            let mut first = story.go();
            story.flow.accepted(story.now, &mut first, &hints);
            if let Answer::Go(one) = story.ask() {
                assert!(!story.refuse(one, &hints).is_zero());
            }
        }
    }
}

/// A permit, soon.
async fn through(place: &mut Place) -> Permit {
    match place.pass(Instant::now() + Duration::from_secs(20)).await {
        Passed::Through(permit) => permit,
        other => panic!("expected to pass, and was told {other:?}"),
    }
}

async fn still(place: &mut Place) -> Why {
    match place.pass(Instant::now() + Duration::from_millis(10)).await {
        Passed::Still(why) => why,
        other => panic!("expected to wait, and was told {other:?}"),
    }
}

fn narrow() -> std::sync::Arc<Gate> {
    Gate::new(Pace { concurrency: Some(1), ..Pace::default() }, MINUTES, FIRST_BYTE)
}

#[tokio::test]
async fn whoever_came_first_goes_first() {
    let gate = narrow();
    let mut places: Vec<Place> = (0..5).map(|_| gate.enter(0)).collect();
    let mut last = places.pop().unwrap();
    assert_eq!(still(&mut last).await, Why::Paced, "nobody is under way, and others came before");
    for place in &mut places {
        let permit = through(place).await;
        assert_eq!(still(&mut last).await, Why::Busy(1));
        drop(permit);
    }
    through(&mut last).await;
}

#[tokio::test]
async fn whoever_leaves_is_not_waited_for() {
    let gate = narrow();
    let (mut first, second, mut third) = (gate.enter(0), gate.enter(0), gate.enter(0));
    let permit = through(&mut first).await;
    still(&mut third).await;
    let waits = third.pass(Instant::now() + Duration::from_secs(20));
    let leaves = async {
        drop(permit);
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(second);
    };
    let (passed, ()) = futures::join!(waits, leaves);
    assert!(matches!(passed, Passed::Through(_)), "{passed:?}");
}

#[tokio::test]
async fn a_refused_request_keeps_its_place_and_closes_the_gate_for_all() {
    let gate = Gate::new(Pace { concurrency: Some(2), ..Pace::default() }, MINUTES, FIRST_BYTE);
    let (mut first, mut second) = (gate.enter(0), gate.enter(0));
    let permit = through(&mut first).await;
    let start = Instant::now();
    assert!(permit.refused(&wait(300)) >= Duration::from_millis(300));
    assert!(matches!(still(&mut second).await, Why::Asked(_)));
    first.again();
    assert!(matches!(still(&mut second).await, Why::Asked(_)));
    let late = start + Duration::from_secs(20);
    let in_time = async {
        tokio::time::sleep(Duration::from_millis(320)).await;
        still(&mut second).await
    };
    // Although the gate is open by then, the second waits: the first has not asked yet.
    assert_eq!(in_time.await, Why::Paced);
    assert!(matches!(first.pass(late).await, Passed::Through(_)));
    assert!(matches!(second.pass(late).await, Passed::Through(_)));
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn all_in_line_give_up_where_the_provider_asks_for_too_much() {
    let gate = narrow();
    let (mut first, mut second, mut third) = (gate.enter(0), gate.enter(0), gate.enter(0));
    let permit = through(&mut first).await;
    let later = Instant::now() + Duration::from_secs(60);
    let refuses = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        permit.refused(&wait(600_000));
    };
    let start = Instant::now();
    let (second, third, ()) = futures::join!(second.pass(later), third.pass(later), refuses);
    assert!(matches!((second, third), (Passed::TooLong(_), Passed::TooLong(_))));
    assert!(start.elapsed() < Duration::from_secs(20));
}
