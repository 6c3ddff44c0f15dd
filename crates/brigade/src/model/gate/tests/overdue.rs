//! Requests that are never answered, in a time that only the test moves.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::super::Pace;
use super::super::flow::{Answer, Flow, Sent, Why};
use super::super::hints::Hints;
use super::{FIRST_BYTE, MINUTES, Story};

impl Story {
    /// The first byte of a reply came, and the rest with it.
    fn hear(&mut self, mut sent: Sent) {
        self.flow.accepted(self.now, &mut sent, &Hints::default());
        self.flow.heard(self.now, &sent);
        self.flow.over(&mut sent);
    }
}

fn two_at_once() -> Story {
    Story::new(Pace { concurrency: Some(2), ..Pace::default() })
}

#[test]
fn a_request_that_others_overtake_leaves_after_four_times_the_usual_time() {
    let mut story = two_at_once();
    let mut hung = story.go();
    let other = story.go();
    story.after(2_000).hear(other);
    let _second = story.go();
    assert_eq!(story.next(), 6_000, "two seconds are usual, and two have passed");
    story.after(6_000);
    let _third = story.go();
    // Its end makes no room: it had left.
    story.flow.overloaded(&mut hung);
    story.flow.over(&mut hung);
    assert!(matches!(story.ask(), Answer::At(_, Why::Busy(2))));
}

#[test]
fn requests_that_nobody_overtakes_leave_one_at_a_time() {
    let mut story = two_at_once();
    let _hung = story.burst();
    assert_eq!(story.next(), 60_000, "a quarter of the limit, since nothing is usual yet");
    story.after(60_000);
    assert_eq!(story.burst().len(), 1);
    assert_eq!(story.next(), 60_000);
}

#[test]
fn an_answer_to_a_later_request_lets_all_earlier_ones_leave() {
    let mut story = Story::new(Pace { concurrency: Some(4), ..Pace::default() });
    let mut sent = story.burst();
    let healthy = sent.pop().unwrap();
    story.after(5_000).hear(healthy);
    let _hung = sent;
    let _later = story.go();
    story.after(15_000);
    assert_eq!(story.burst().len(), 3);
}

#[test]
fn a_queue_of_a_provider_that_answers_in_order_is_not_made_longer() {
    let mut story = Story::new(Pace { concurrency: Some(8), ..Pace::default() });
    let mut queue: VecDeque<Sent> = story.burst().into();
    let (mut most, mut answered) = (0, 0);
    for second in 1..600 {
        story.after(1_000);
        if second % 20 == 0 {
            story.hear(queue.pop_front().unwrap());
            answered += 1;
        }
        queue.extend(story.burst());
        most = most.max(queue.len());
    }
    assert!(answered > 25 && most <= 9, "{answered} answers, {most} at once");
}

#[test]
fn a_late_answer_counts_its_request_again() {
    let mut story = two_at_once();
    let late = story.go();
    let other = story.go();
    story.after(1_000).hear(other);
    let _second = story.go();
    let _third = story.after(4_000).go();
    story.flow.heard(story.now, &late);
    assert!(matches!(story.ask(), Answer::At(_, Why::Busy(3)) | Answer::Later(Why::Busy(3))));
}

#[test]
fn a_failure_of_an_overdue_request_does_not_shrink_the_window() {
    let mut story = Story::new(Pace { concurrency: Some(4), ..Pace::default() });
    let mut sent = story.burst();
    let (mut hung, healthy) = (sent.remove(0), sent.pop().unwrap());
    story.after(1_000).hear(healthy);
    sent.push(story.go());
    sent.push(story.after(10_000).go());
    story.flow.overloaded(&mut hung);
    story.flow.over(&mut hung);
    for one in sent {
        story.hear(one);
    }
    assert_eq!(story.burst().len(), 4);
}

/// Sends `wanted` requests of which some hang, with faults that shrink the window; gives how long the others took.
fn serve(wanted: usize, hung: &[usize], faults: &[usize], latency: Duration) -> Duration {
    let start = Instant::now();
    let mut flow = Flow::new(Pace::default(), MINUTES, FIRST_BYTE, start);
    let mut under_way: Vec<(usize, Instant, Sent)> = Vec::new();
    let mut lost = Vec::new();
    let (mut number, mut done, mut now) = (0, 0, start);
    while done < wanted - hung.len() {
        let (heard, rest): (Vec<_>, Vec<_>) = under_way.into_iter().partition(|(_, at, _)| *at <= now);
        under_way = rest;
        for (index, _, mut sent) in heard {
            if faults.contains(&index) {
                flow.overloaded(&mut sent);
            } else {
                flow.accepted(now, &mut sent, &Hints::default());
                flow.heard(now, &sent);
            }
            done += 1;
            flow.over(&mut sent);
        }
        while number < wanted
            && let Answer::Go(sent) = flow.ask(now, start, 100)
        {
            match hung.contains(&number) {
                true => lost.push(sent),
                false => under_way.push((number, now + latency, sent)),
            }
            number += 1;
        }
        now += Duration::from_millis(20);
        assert!(now - start < Duration::from_secs(3600), "{done} of {wanted} in an hour");
    }
    now - start
}

proptest! {
    /// Each hung request costs the others at most one long wait, whatever else fails.
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
        let long_wait = (latency * 16).max(FIRST_BYTE / 16).min(FIRST_BYTE / 4) + latency;
        // Before any answer, nothing is usual.
        let bound = alone * 2 + long_wait * hung.len() as u32 + FIRST_BYTE / 4;
        prop_assert!(beside <= bound, "{beside:?}, not {bound:?}; {alone:?} without hung requests");
    }
}
