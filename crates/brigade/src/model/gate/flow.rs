//! When the next request may be sent: decisions only, with the time passed in.

use std::time::Duration;

use tokio::time::Instant;

use super::Pace;
use super::allowance::{Bucket, Quota};
use super::hints::Hints;
use super::learned::{Learned, Observed};
use super::overdue::Overdue;

/// How many requests may be under way where nobody says so, and how many of them before any was accepted.
const MOST: usize = 64;
const FIRST: usize = 8;
/// How much the window grows with each accepted request: at first, and once a refusal has shown that there is an end. To
/// grow by a whole one finds the end sooner, and with twice as many refusals.
const GROWTH: f64 = 0.5;
const WARY_GROWTH: f64 = 0.25;
/// The wait after a refusal that names none. It doubles with each that follows before anything was accepted.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// However long a provider asks to wait, it is asked again after this.
const LONGEST_CLOSURE: Duration = Duration::from_secs(3600);
/// The part of a wait that chance may add, so that several processes do not come back at once.
const JITTER: f64 = 0.05;
/// A refusal after fewer accepted requests than this came early, and one after more shows that the pace is about right.
const EARLY: u32 = 8;
const PROVEN: u32 = 15;
/// How often going slower may be in vain.
const MOST_IN_VAIN: u32 = 3;
/// About how many bytes a token has, and how many tokens a reply has before any was seen.
const TOKEN_BYTES: u64 = 4;
const TYPICAL_OUTPUT: f64 = 500.0;

/// What is known of how fast a provider may be asked.
#[derive(Debug)]
pub(super) struct Flow {
    longest_wait: Duration,
    most: f64,
    window: f64,
    growth: f64,
    /// Requests under way, without those that are overdue.
    in_flight: usize,
    overdue: Overdue,
    /// Requests that were sent and of which nothing is known yet, and their tokens.
    unanswered: u64,
    unanswered_tokens: u64,
    closed: Option<Instant>,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    requests_left: Option<Quota>,
    tokens_left: Option<Quota>,
    observed: Observed,
    learned: Option<Learned>,
    /// How often the provider was asked more slowly and refused as soon as before.
    in_vain: u32,
    /// Counts refusals and overloads: what was sent before the last one says nothing new.
    refusal: u64,
    overload: u64,
    refused_in_a_row: u32,
    typical_output: f64,
}

/// A request that was let through.
#[derive(Debug)]
pub(super) struct Sent {
    number: u64,
    at: Instant,
    cost: u64,
    refusal: u64,
    overload: u64,
    stage: Stage,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Unanswered,
    Answered,
}

/// Whether a request may be sent.
#[derive(Debug)]
pub(super) enum Answer {
    Go(Sent),
    /// Not before this moment.
    At(Instant, Why),
    /// Not before something else happens.
    Later(Why),
    /// Not before so long that it is better to give up.
    TooLong(Duration),
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Why {
    /// The provider asked to wait this long.
    Asked(Duration),
    /// So many requests are under way.
    Busy(usize),
    /// Requests are spread over time.
    Paced,
}

impl Flow {
    /// Requests are overdue after a part of `first_byte`, the limit for the first byte of a reply.
    pub(super) fn new(pace: Pace, longest_wait: Duration, first_byte: Duration, now: Instant) -> Flow {
        let most = pace.concurrency.unwrap_or(MOST).max(1);
        let first = pace.first.or(pace.concurrency).unwrap_or(FIRST).clamp(1, most);
        Flow {
            longest_wait,
            most: most as f64,
            window: first as f64,
            growth: GROWTH,
            in_flight: 0,
            overdue: Overdue::new(first_byte),
            unanswered: 0,
            unanswered_tokens: 0,
            closed: None,
            requests: pace.requests_per_minute.map(|limit| Bucket::of_requests(limit, now)),
            tokens: pace.tokens_per_minute.map(|limit| Bucket::of_tokens(limit, now)),
            requests_left: None,
            tokens_left: None,
            observed: Observed::default(),
            learned: None,
            in_vain: 0,
            refusal: 0,
            overload: 0,
            refused_in_a_row: 0,
            typical_output: TYPICAL_OUTPUT,
        }
    }

    /// The most requests that may be under way.
    pub(super) fn most(&self) -> usize {
        self.most as usize
    }

    /// About how many tokens a request of this many bytes and its reply will have.
    pub(super) fn estimate(&self, bytes: usize) -> u64 {
        (bytes as u64 / TOKEN_BYTES).saturating_add(self.typical_output as u64)
    }

    /// Whether the first in line, who came at `entered`, may send a request of this many tokens.
    pub(super) fn ask(&mut self, now: Instant, entered: Instant, cost: u64) -> Answer {
        if let Some(answer) = self.closed_answer(now) {
            return answer;
        }
        while self.has_no_room() && self.overdue.release(now) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if self.has_no_room() {
            let why = Why::Busy(self.in_flight);
            return self.overdue.next_release().map_or(Answer::Later(why), |at| Answer::At(at, why));
        }
        let pauses = [
            self.requests.as_mut().and_then(|bucket| bucket.ready(now, 1)),
            self.tokens.as_mut().and_then(|bucket| bucket.ready(now, cost)),
            self.learned.as_ref().and_then(|learned| learned.ready(now)),
        ];
        if let Some(at) = pauses.into_iter().flatten().max() {
            return Answer::At(at, Why::Paced);
        }
        // Replies that are still to come may know better, and wake whoever waits.
        let resets = [
            Quota::ready(&mut self.requests_left, now, 1, self.unanswered),
            Quota::ready(&mut self.tokens_left, now, cost, self.unanswered_tokens),
        ];
        if let Some(at) = resets.into_iter().flatten().max() {
            return Answer::At(at, Why::Asked(at.saturating_duration_since(now)));
        }
        Answer::Go(self.send(now, entered, cost))
    }

    /// Whether all that can be said to whoever waits is that enough requests are under way.
    pub(super) fn is_full(&self) -> bool {
        self.closed.is_none() && self.has_no_room()
    }

    /// Whether requests have left the window because they are not answered.
    pub(super) fn has_overdue(&self) -> bool {
        self.overdue.has_any()
    }

    fn has_no_room(&self) -> bool {
        self.in_flight as f64 >= self.window.floor()
    }

    fn closed_answer(&self, now: Instant) -> Option<Answer> {
        let wait = self.closed_for(now);
        match self.closed {
            Some(_) if wait > self.longest_wait => Some(Answer::TooLong(wait)),
            Some(at) if !wait.is_zero() => Some(Answer::At(at, Why::Asked(wait))),
            Some(_) | None => None,
        }
    }

    fn send(&mut self, now: Instant, entered: Instant, cost: u64) -> Sent {
        let waited = now.saturating_duration_since(entered);
        let gap = self.observed.sent(now, waited);
        if let Some(learned) = &mut self.learned {
            learned.sent(now, gap.min(waited));
        }
        for (bucket, amount) in [(&mut self.requests, 1), (&mut self.tokens, cost)] {
            if let Some(bucket) = bucket {
                bucket.take(amount);
            }
        }
        for (quota, amount) in [(&mut self.requests_left, 1), (&mut self.tokens_left, cost)] {
            if let Some(quota) = quota {
                quota.take(amount);
            }
        }
        self.in_flight += 1;
        self.unanswered += 1;
        self.unanswered_tokens = self.unanswered_tokens.saturating_add(cost);
        let number = self.overdue.sent(now);
        let (refusal, overload) = (self.refusal, self.overload);
        Sent { number, at: now, cost, refusal, overload, stage: Stage::Unanswered }
    }

    /// What those wait for who are not the first in line.
    pub(super) fn behind_others(&self, now: Instant) -> Answer {
        match self.closed_answer(now) {
            Some(Answer::TooLong(wait)) => Answer::TooLong(wait),
            Some(Answer::At(_, why)) => Answer::Later(why),
            _ if self.has_no_room() => Answer::Later(Why::Busy(self.in_flight)),
            _ => Answer::Later(Why::Paced),
        }
    }

    /// How long nobody is let through.
    pub(super) fn closed_for(&self, now: Instant) -> Duration {
        self.closed.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// The provider took the request.
    pub(super) fn accepted(&mut self, now: Instant, sent: &mut Sent, hints: &Hints) {
        self.answered(sent);
        self.refused_in_a_row = 0;
        self.observed.accepted();
        self.window = (self.window + self.growth).min(self.most);
        Quota::tell(&mut self.requests_left, now, hints.requests, self.unanswered, self.longest_wait);
        Quota::tell(&mut self.tokens_left, now, hints.tokens, self.unanswered_tokens, self.longest_wait);
    }

    /// The first byte of the reply came. A request that had left the window is counted again.
    pub(super) fn heard(&mut self, now: Instant, sent: &Sent) {
        if self.overdue.heard(now, sent.number, sent.at) {
            self.in_flight += 1;
        }
    }

    /// The provider refused the request. Gives how long nobody is let through.
    pub(super) fn refused(&mut self, now: Instant, sent: &mut Sent, hints: &Hints, jitter: f64) -> Duration {
        self.answered(sent);
        self.used(sent, 0, 0);
        let is_news = sent.refusal == self.refusal;
        let asked = hints.wait.filter(|wait| !wait.is_zero());
        let wait = match asked {
            Some(asked) if !is_news => asked,
            None if !is_news => return self.closed_for(now),
            Some(asked) if self.refused_in_a_row == 0 => asked,
            // A provider that refuses at the time that it named itself is given a little more.
            Some(asked) => asked.max(self.backoff() / 4),
            None => self.backoff(),
        };
        let wait = wait.mul_f64(1.0 + JITTER * jitter);
        let until = now + wait.min(LONGEST_CLOSURE);
        self.closed = self.closed.max(Some(until));
        if is_news {
            self.refusal += 1;
            self.refused_in_a_row += 1;
            self.growth = WARY_GROWTH;
            let recent = self.observed.take_recent();
            // A wait that nobody waits for is a quota that is used up, and says nothing about a rate.
            match self.observed.rate(now, wait).filter(|_| wait <= self.longest_wait) {
                Some(rate) => self.learn(rate, recent, until, asked.is_some()),
                None => self.shrink(),
            }
        }
        self.closed_for(now).max(wait)
    }

    /// Keeps to a rate from now on. Where the provider names a wait and refuses as soon as before however slowly it is
    /// asked, its refusals have nothing to do with a rate: then only its waits are kept.
    fn learn(&mut self, rate: f64, recent: u32, from: Instant, names_wait: bool) {
        let is_lower = self.learned.as_ref().is_some_and(|learned| learned.is_above(rate));
        match recent {
            0..EARLY if is_lower && names_wait => self.in_vain += 1,
            PROVEN.. => self.in_vain = 0,
            _ => {}
        }
        let learned = Learned::new(rate, from, self.longest_wait);
        self.learned = (self.in_vain < MOST_IN_VAIN).then_some(learned);
    }

    fn backoff(&self) -> Duration {
        FIRST_WAIT.saturating_mul(2u32.saturating_pow(self.refused_in_a_row)).min(LONGEST_BACKOFF)
    }

    /// The provider failed at a request. One that was overdue says nothing about how many it takes at once.
    pub(super) fn overloaded(&mut self, sent: &mut Sent) {
        self.answered(sent);
        if sent.overload == self.overload && !self.overdue.has_left(sent.number) {
            self.overload += 1;
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        self.window = (self.window / 2.0).max(1.0);
    }

    /// The request had so many tokens with its reply, and the reply so many of them.
    pub(super) fn used(&mut self, sent: &mut Sent, tokens: u64, output: u64) {
        if let Some(bucket) = &mut self.tokens {
            bucket.correct(sent.cost, tokens);
        }
        // What was corrected once is known: a later count corrects that one.
        let known = std::mem::replace(&mut sent.cost, tokens);
        if sent.stage == Stage::Unanswered {
            self.unanswered_tokens = self.unanswered_tokens.saturating_sub(known).saturating_add(tokens);
        }
        if output > 0 {
            self.typical_output += (output as f64 - self.typical_output) / 8.0;
        }
    }

    /// The request is over, however it ended.
    pub(super) fn over(&mut self, sent: &mut Sent) {
        self.answered(sent);
        if !self.overdue.over(sent.number) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
    }

    fn answered(&mut self, sent: &mut Sent) {
        if sent.stage == Stage::Unanswered {
            sent.stage = Stage::Answered;
            self.unanswered = self.unanswered.saturating_sub(1);
            self.unanswered_tokens = self.unanswered_tokens.saturating_sub(sent.cost);
        }
    }
}
