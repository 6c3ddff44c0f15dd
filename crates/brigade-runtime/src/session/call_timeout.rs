//! Session deadlines and timeouts of model calls.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::Limit;
use tokio::time::Instant;

use super::Driver;
use super::clock::{QUEUE_CHECK_INTERVAL, SessionClock};
use crate::clock;

/// Represents no limit.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Share of the remaining time in which the first attempt has to be answered, so that a retry has the rest. A
/// slow model always gets a minute, because with less a retry would not help either.
const FIRST_ATTEMPT_SHARE: f64 = 2.0 / 3.0;
const MIN_FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits of one call: the session deadline and how long the model may be silent.
///
/// A request in a provider's queue has not been sent yet. Notes that arrive meanwhile show that the queue still
/// holds its place. After the request was sent, a note is not a sign of the model.
#[derive(Debug)]
pub(super) struct CallTimeout {
    deadline: Option<Instant>,
    queue: QueueTime,
    silence: Duration,
    reserves_retry: bool,
    /// Current silence limit. `silence_deadline` is when it is exceeded.
    silence_limit: Duration,
    silence_deadline: Instant,
    queued: Option<Instant>,
    waited: Duration,
}

/// Effect of time in a provider's queue on the deadline.
#[derive(Debug)]
pub(super) enum QueueTime {
    Counts,
    /// Extends the deadline, but not beyond the caller's deadline plus the time for a wrap-up call.
    Extends {
        clock: Arc<SessionClock>,
        grace: Duration,
    },
}

impl QueueTime {
    /// Returns the deadline after this much time in the queue.
    fn extend(&self, deadline: Instant, waited: Duration, now: Instant) -> Instant {
        match self {
            QueueTime::Counts => deadline,
            QueueTime::Extends { clock, grace } => {
                let later = deadline.checked_add(waited).unwrap_or(deadline);
                // The bound never brings a deadline forward.
                latest_with_grace(clock, *grace, now).map_or(later, |until| later.min(until.max(deadline)))
            }
        }
    }
}

fn latest_with_grace(clock: &SessionClock, grace: Duration, now: Instant) -> Option<Instant> {
    clock.latest(now)?.checked_add(grace)
}

impl CallTimeout {
    pub(super) fn new(
        now: Instant,
        deadline: Option<Instant>,
        queue: QueueTime,
        silence: Duration,
    ) -> CallTimeout {
        let silence = silence.min(FOREVER);
        CallTimeout {
            deadline,
            queue,
            silence,
            reserves_retry: false,
            silence_limit: silence,
            silence_deadline: now + silence,
            queued: None,
            waited: Duration::ZERO,
        }
    }

    /// Ends the wait for a first sign early enough for a retry.
    pub(super) fn reserving_retry(self) -> CallTimeout {
        CallTimeout { reserves_retry: true, ..self }
    }

    /// Notes that the request waits in the queue.
    pub(super) fn queued(&mut self, now: Instant) {
        self.queued.get_or_insert(now);
        self.restart_silence(now, self.silence);
    }

    /// Notes that the request was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        self.leave_queue(now);
        let left = self.deadline.map_or(FOREVER, |deadline| deadline.saturating_duration_since(now));
        let silence = match self.reserves_retry {
            true => left.mul_f64(FIRST_ATTEMPT_SHARE).max(MIN_FIRST_ATTEMPT_TIMEOUT),
            false => FOREVER,
        };
        self.restart_silence(now, silence.min(self.silence));
    }

    /// Notes a status message of the provider.
    pub(super) fn note_received(&mut self, now: Instant) {
        if self.queued.is_some() {
            self.restart_silence(now, self.silence);
        }
    }

    /// Notes a part of the reply.
    pub(super) fn chunk_received(&mut self, now: Instant) {
        self.restart_silence(now, self.silence);
    }

    /// Time of the next check.
    pub(super) fn next_check(&self, now: Instant) -> Instant {
        let Some(deadline) = self.deadline(now) else { return self.silence_deadline };
        // The bound may move while the request is queued. This interval is enough to follow it.
        let deadline = match self.queued {
            Some(_) => deadline.max(now + QUEUE_CHECK_INTERVAL),
            None => deadline,
        };
        deadline.min(self.silence_deadline)
    }

    /// Whether the session deadline has passed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.deadline(now).is_some_and(|deadline| now >= deadline)
    }

    /// Returns the silence if it exceeds the limit.
    pub(super) fn silent_for(&self, now: Instant) -> Option<Duration> {
        (now >= self.silence_deadline).then_some(self.silence_limit)
    }

    /// Returns the total time in the queue after the call.
    pub(super) fn waited(mut self, now: Instant) -> Duration {
        self.leave_queue(now);
        self.waited
    }

    /// Current deadline. It may be extended while the request is queued.
    fn deadline(&self, now: Instant) -> Option<Instant> {
        match (self.queued, &self.queue) {
            (Some(_), QueueTime::Extends { clock, grace }) => {
                let deadline = self.deadline?;
                latest_with_grace(clock, *grace, now).map(|until| until.max(deadline))
            }
            _ => self.deadline,
        }
    }

    fn leave_queue(&mut self, now: Instant) {
        if let Some(since) = self.queued.take() {
            let waited = now.saturating_duration_since(since);
            self.waited += waited;
            self.deadline = self.deadline.map(|deadline| self.queue.extend(deadline, waited, now));
        }
    }

    fn restart_silence(&mut self, now: Instant, silence: Duration) {
        self.silence_limit = silence;
        self.silence_deadline = now + silence;
    }
}

impl Driver {
    /// Sets the deadline of the round. Time without a runner does not count.
    pub(super) fn set_deadline(&mut self, downtime: u64) {
        let Some(Limit::AtMost(at)) = self.state().round().map(|round| round.grant.deadline) else {
            return;
        };
        let is_extendable = self.queue_extends();
        let waited = if is_extendable { self.state().waited_ms() } else { 0 };
        let end = at.saturating_add(downtime).saturating_add(waited);
        let left = Duration::from_millis(end.saturating_sub(clock::now()));
        self.clock.start(Instant::now(), left, is_extendable);
    }

    /// Whether time in a provider's queue extends the deadline. It does not for a root, since the user set that
    /// limit. An external agent has no such queue.
    fn queue_extends(&self) -> bool {
        let is_child = self.state().round().is_some_and(|round| round.parent.is_some());
        is_child && !self.resolved.is_external()
    }

    pub(super) fn queue_time(&self, grace: Duration) -> QueueTime {
        match self.queue_extends() {
            true => QueueTime::Extends { clock: self.clock.clone(), grace },
            false => QueueTime::Counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(30);

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn time_in_the_queue_moves_the_deadline_of_a_child_up_to_its_bound() {
        let start = Instant::now();
        for (until, ends) in [(None, 150), (Some(120), 120), (Some(90), 100)] {
            let caller = Arc::new(SessionClock::default());
            let clock = Arc::new(SessionClock::default());
            // The caller's deadline is now, so there is no margin before it.
            until.inspect(|_| caller.start(start, Duration::ZERO, false));
            clock.end_before(&caller, start);
            until.inspect(|until| caller.start(start, Duration::from_secs(*until), false));
            let queue = QueueTime::Extends { clock, grace: Duration::ZERO };
            let mut timeout = CallTimeout::new(start, Some(at(start, 100)), queue, SILENCE);
            timeout.queued(start);
            assert_eq!(timeout.is_over(at(start, 110)), until == Some(90));
            timeout.sent(at(start, 50));
            assert!(!timeout.is_over(at(start, ends - 1)) && timeout.is_over(at(start, ends)));
            assert_eq!(timeout.waited(at(start, 60)), Duration::from_secs(50));
        }
    }

    #[test]
    fn time_in_the_queue_counts_for_a_root() {
        let start = Instant::now();
        let mut timeout = CallTimeout::new(start, Some(at(start, 100)), QueueTime::Counts, SILENCE);
        timeout.queued(start);
        assert!(!timeout.is_over(at(start, 99)) && timeout.is_over(at(start, 100)));
        timeout.sent(at(start, 50));
        assert!(timeout.is_over(at(start, 100)));
        assert_eq!(timeout.waited(at(start, 60)), Duration::from_secs(50));
    }

    #[test]
    fn notes_reset_the_silence_timeout_in_the_queue_only() {
        let start = Instant::now();
        let mut timeout = CallTimeout::new(start, None, QueueTime::Counts, SILENCE);
        timeout.queued(start);
        timeout.note_received(at(start, 20));
        assert_eq!(timeout.silent_for(at(start, 49)), None);
        assert_eq!(timeout.silent_for(at(start, 50)), Some(SILENCE));
        timeout.sent(at(start, 60));
        timeout.note_received(at(start, 80));
        assert_eq!(timeout.silent_for(at(start, 90)), Some(SILENCE));
        timeout.chunk_received(at(start, 95));
        assert_eq!(timeout.silent_for(at(start, 124)), None);
    }

    #[test]
    fn first_attempt_leaves_a_third_of_the_time_for_another() {
        let start = Instant::now();
        let timeout = |deadline| {
            CallTimeout::new(start, Some(at(start, deadline)), QueueTime::Counts, Duration::from_secs(300))
        };
        let mut first = timeout(300).reserving_retry();
        first.sent(start);
        assert_eq!(first.next_check(start), at(start, 200));
        first.chunk_received(at(start, 5));
        assert_eq!(first.next_check(start), at(start, 300));
        let mut next = timeout(300);
        next.sent(start);
        assert_eq!(next.next_check(start), at(start, 300));
        let mut short = timeout(50).reserving_retry();
        short.sent(start);
        assert_eq!(short.next_check(start), at(start, 50));
    }
}
