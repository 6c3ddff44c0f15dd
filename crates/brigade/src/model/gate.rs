//! The gate of a provider: all requests with one key go through it, one after the other, as fast as the provider takes
//! them and no faster.
//!
//! [`Flow`] decides, and knows no clock; this file waits. Whoever came first goes first, and a request that was refused
//! keeps its place.

mod allowance;
mod date;
mod flow;
mod hints;
mod learned;
mod overdue;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::jitter::jitter;
use flow::{Answer, Flow, Sent};

pub(super) use flow::Why;
pub(super) use hints::Hints;

/// Looks of those who wait, within the limit for the first byte of a reply.
const RECHECKS: u32 = 60;
const LEAST_RECHECK: Duration = Duration::from_millis(10);

/// How fast a provider may be asked. What is left out is found out: few requests at first, one more for every two that
/// are accepted, fewer after a refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    /// The most requests at once; 64 where it is left out. A request that is not answered for several times the usual time
    /// is not counted.
    pub concurrency: Option<usize>,
    /// The most requests at once before any was accepted. Left out, it is 8, or `concurrency` where that is given.
    pub first: Option<usize>,
    /// The most requests in a minute, spread evenly.
    pub requests_per_minute: Option<u32>,
    /// The most tokens in a minute, of requests and replies together.
    pub tokens_per_minute: Option<u64>,
}

/// Lets requests through.
#[derive(Debug)]
pub(super) struct Gate {
    longest_wait: Duration,
    /// How often those who wait look by themselves whether they are the first and requests are overdue.
    recheck: Duration,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    flow: Flow,
    /// Those who wait, by the order in which they came.
    waiting: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// What became of a wait.
#[derive(Debug)]
pub(super) enum Passed {
    /// The request may be sent.
    Through(Permit),
    /// It still waits, for this.
    Still(Why),
    /// The provider asks for more patience than there is.
    TooLong(Duration),
}

impl Gate {
    /// Requests stop counting against the concurrency after a part of `first_byte`, the limit for the first byte of a reply.
    pub(super) fn new(pace: Pace, longest_wait: Duration, first_byte: Duration) -> Arc<Gate> {
        let flow = Flow::new(pace, longest_wait, first_byte, Instant::now());
        let recheck = (first_byte / RECHECKS).max(LEAST_RECHECK);
        Arc::new(Gate {
            longest_wait,
            recheck,
            line: Mutex::new(Line { flow, waiting: BTreeMap::new(), next: 0 }),
        })
    }

    /// The most requests at once.
    pub(super) fn concurrency(&self) -> usize {
        self.line().flow.most()
    }

    /// The longest that a provider may ask to wait.
    pub(super) fn longest_wait(&self) -> Duration {
        self.longest_wait
    }

    /// How long nobody is let through.
    pub(super) fn closed_for(&self) -> Duration {
        self.line().flow.closed_for(Instant::now())
    }

    /// Takes a place at the end of the line, for a request of this many bytes.
    pub(super) fn enter(self: &Arc<Self>, bytes: usize) -> Place {
        let mut line = self.line();
        let ticket = line.next;
        line.next += 1;
        let call = Arc::new(Notify::new());
        line.waiting.insert(ticket, call.clone());
        let cost = line.flow.estimate(bytes);
        drop(line);
        Place { gate: self.clone(), ticket, call, entered: Instant::now(), cost }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Lets the first in line look whether it may go, unless it is plain that it may not.
    fn call_first(&self) {
        if !self.flow.is_full() {
            self.wake_first();
        }
    }

    /// Lets the first in line look when requests are overdue. While all are answered in time, it looks often enough by
    /// itself: a wake-up for every reply costs more than it gains.
    fn call_first_if_overdue(&self) {
        if !self.flow.is_full() || self.flow.has_overdue() {
            self.wake_first();
        }
    }

    fn wake_first(&self) {
        if let Some(call) = self.waiting.values().next() {
            call.notify_one();
        }
    }

    fn leave(&mut self, ticket: u64) {
        if self.waiting.remove(&ticket).is_some() {
            self.call_first_if_overdue();
        }
    }
}

/// A place in the line. It is given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    gate: Arc<Gate>,
    ticket: u64,
    call: Arc<Notify>,
    entered: Instant,
    cost: u64,
}

impl Place {
    /// Waits until the request may be sent, or until this moment.
    pub(super) async fn pass(&mut self, until: Instant) -> Passed {
        loop {
            let now = Instant::now();
            let wake = match self.ask(now) {
                Answer::Go(sent) => return Passed::Through(Permit::new(self.gate.clone(), sent)),
                Answer::TooLong(wait) => return Passed::TooLong(wait),
                Answer::At(_, why) | Answer::Later(why) if now >= until => return Passed::Still(why),
                Answer::At(at, _) => at.min(until),
                Answer::Later(_) => until.min(now + self.gate.recheck),
            };
            tokio::select! {
                () = self.call.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    fn ask(&self, now: Instant) -> Answer {
        let mut line = self.gate.line();
        let is_first = line.waiting.keys().next() == Some(&self.ticket);
        let answer = match is_first {
            true => line.flow.ask(now, self.entered, self.cost),
            false => line.flow.behind_others(now),
        };
        if matches!(answer, Answer::Go(_) | Answer::TooLong(_)) {
            line.leave(self.ticket);
        }
        answer
    }

    /// Waits once more, in the same place: it was refused, and nobody who came later is to be served before it.
    pub(super) fn again(&mut self) {
        self.entered = Instant::now();
        self.gate.line().waiting.insert(self.ticket, self.call.clone());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.line().leave(self.ticket);
    }
}

/// Leave to have one request under way. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    gate: Arc<Gate>,
    sent: Sent,
}

impl Permit {
    fn new(gate: Arc<Gate>, sent: Sent) -> Permit {
        Permit { gate, sent }
    }

    /// The provider has begun to answer.
    pub(super) fn accepted(&mut self, hints: &Hints) {
        self.tell(|flow, sent| flow.accepted(Instant::now(), sent, hints));
    }

    /// The first byte of the reply came. Requests that it overtook may be overdue sooner.
    pub(super) fn heard(&mut self) {
        let mut line = self.gate.line();
        line.flow.heard(Instant::now(), &self.sent);
        line.call_first_if_overdue();
    }

    /// The provider did nothing and wants to be asked later: nobody is let through until then. Gives the time left.
    pub(super) fn refused(mut self, hints: &Hints) -> Duration {
        self.tell(|flow, sent| flow.refused(Instant::now(), sent, hints, jitter()))
    }

    /// The provider failed: fewer requests at once may help.
    pub(super) fn overloaded(&mut self) {
        self.tell(Flow::overloaded);
    }

    /// How many tokens the request and its reply had.
    pub(super) fn used(&mut self, tokens: u64, output: u64) {
        self.tell(|flow, sent| flow.used(sent, tokens, output));
    }

    fn tell<T>(&mut self, tell: impl FnOnce(&mut Flow, &mut Sent) -> T) -> T {
        let mut line = self.gate.line();
        let told = tell(&mut line.flow, &mut self.sent);
        line.call_first();
        told
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.tell(Flow::over);
    }
}
