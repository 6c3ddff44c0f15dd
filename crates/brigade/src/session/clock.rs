//! Deadline of a session. Time that its requests, or those of its descendants, spend in the queue of a provider moves it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between two looks at a deadline that moves.
pub(super) const QUEUE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The deadline of one session. Its children have a reference to it: they end before it, and tell it when they queue.
#[derive(Debug, Default)]
pub(super) struct SessionClock {
    caller: OnceLock<CallerClock>,
    time: Mutex<SessionTime>,
}

/// The clock of the session that delegated, and how long before its deadline this session has to end.
#[derive(Debug)]
struct CallerClock {
    clock: Arc<SessionClock>,
    margin: Duration,
}

#[derive(Debug, Default)]
struct SessionTime {
    /// The deadline without time in a queue.
    base: Option<Instant>,
    /// Time in a queue, by which the deadline moves.
    extension: Duration,
    /// Whether time in a queue moves the deadline. It does not at the top, since the user set the limit.
    is_extendable: bool,
    /// Whether the end of the time was recorded.
    is_over: bool,
    /// Requests of descendants that are in a queue, and since when there is at least one.
    queued: u32,
    queued_since: Option<Instant>,
    /// Time in which descendants queued, and the part of it that is in the log.
    waited: Duration,
    recorded: Duration,
}

impl SessionTime {
    /// Time since the present wait began.
    fn open_wait(&self, now: Instant) -> Duration {
        self.queued_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl SessionClock {
    /// Sets the deadline, and whether time in a queue moves it.
    pub(super) fn set(&self, deadline: Option<Instant>, is_extendable: bool) {
        let mut time = self.time();
        (time.base, time.extension, time.is_extendable) = (deadline, Duration::ZERO, is_extendable);
    }

    /// Removes the deadline: it is over, and was recorded. It still bounds the children.
    pub(super) fn finish(&self) {
        self.time().is_over = true;
    }

    /// Keeps the session within the time of its caller.
    pub(super) fn end_before(&self, caller: &Arc<SessionClock>, now: Instant) {
        let margin = match (caller.limit(now), caller.left_for_children(now)) {
            (Some(limit), Some(left)) => limit.saturating_duration_since(now).saturating_sub(left),
            _ => Duration::ZERO,
        };
        let _ = self.caller.set(CallerClock { clock: caller.clone(), margin });
        let latest = self.latest(now);
        let mut time = self.time();
        time.base = time.base.map(|base| latest.map_or(base, |latest| base.min(latest)));
    }

    /// The deadline as it is now; none if there is none, or if it was recorded that it is over.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.limit(now).filter(|_| !self.time().is_over)
    }

    /// The deadline as it is now. While a descendant queues it moves, but not beyond what the caller leaves.
    fn limit(&self, now: Instant) -> Option<Instant> {
        let (base, later) = {
            let time = self.time();
            let base = time.base?;
            let wait = if time.is_extendable { time.extension + time.open_wait(now) } else { Duration::ZERO };
            (base, base.checked_add(wait).unwrap_or(base))
        };
        Some(self.latest(now).map_or(later, |latest| later.min(latest.max(base))))
    }

    /// When to look at the deadline again.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let deadline = self.deadline(now)?;
        let is_moving = self.time().queued > 0;
        Some(if is_moving { deadline.max(now + QUEUE_CHECK_INTERVAL) } else { deadline })
    }

    /// The last moment that the caller leaves; none if its time is not limited.
    pub(super) fn latest(&self, now: Instant) -> Option<Instant> {
        let caller = self.caller.get()?;
        caller.clock.limit(now)?.checked_sub(caller.margin)
    }

    /// The time that a child may take: ten percent less than the session has, at most thirty seconds less.
    pub(super) fn left_for_children(&self, now: Instant) -> Option<Duration> {
        let left = self.limit(now)?.saturating_duration_since(now);
        Some(left - (left / 10).min(CHILD_MARGIN))
    }

    /// Moves the deadline by time that a request of this session spent in a queue.
    pub(super) fn extend(&self, waited: Duration) {
        self.time().extension += waited;
    }

    /// Tells the callers below the root that a request is in a queue, until the guard is dropped.
    pub(super) fn queue(self: &Arc<Self>) -> QueueGuard {
        self.enter_queue(Instant::now());
        QueueGuard { clock: self.clone() }
    }

    fn enter_queue(&self, now: Instant) {
        self.for_callers(|time| {
            time.queued += 1;
            time.queued_since.get_or_insert(now);
        });
    }

    fn leave_queue(&self, now: Instant) {
        self.for_callers(|time| {
            time.queued = time.queued.saturating_sub(1);
            if time.queued == 0 {
                let waited = time.open_wait(now);
                time.queued_since = None;
                time.waited += waited;
                time.extension += waited;
            }
        });
    }

    /// Time in which descendants queued and that no event has yet.
    pub(super) fn unrecorded_wait(&self, now: Instant) -> Duration {
        let mut time = self.time();
        let waited = time.waited + time.open_wait(now);
        waited.saturating_sub(std::mem::replace(&mut time.recorded, waited))
    }

    fn for_callers(&self, change: impl Fn(&mut SessionTime)) {
        let mut caller = self.caller.get();
        while let Some(CallerClock { clock, .. }) = caller {
            caller = clock.caller.get();
            // The deadline of a root does not move.
            if caller.is_some() {
                change(&mut clock.time());
            }
        }
    }

    fn time(&self) -> MutexGuard<'_, SessionTime> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most time that a session keeps for itself after its children.
const CHILD_MARGIN: Duration = Duration::from_secs(30);

/// A request in the queue of a provider.
#[derive(Debug)]
pub(super) struct QueueGuard {
    clock: Arc<SessionClock>,
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        self.clock.leave_queue(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// A clock below `caller` with a deadline in this many seconds.
    fn below(caller: &Arc<SessionClock>, now: Instant, deadline: u64) -> Arc<SessionClock> {
        let clock = Arc::new(SessionClock::default());
        clock.set(Some(now + seconds(deadline)), true);
        clock.end_before(caller, now);
        clock
    }

    fn root(now: Instant, deadline: u64) -> Arc<SessionClock> {
        let clock = Arc::new(SessionClock::default());
        clock.set(Some(now + seconds(deadline)), false);
        clock
    }

    #[test]
    fn queue_time_of_descendants_moves_the_deadline_within_that_of_the_root() {
        let start = Instant::now();
        let at = |count| start + seconds(count);
        let root = root(start, 200);
        let middle = below(&root, start, 50);
        let (first, second) = (below(&middle, start, 30), below(&middle, start, 30));
        first.enter_queue(start);
        second.enter_queue(at(10));
        assert_eq!(middle.deadline(at(40)), Some(at(90)), "it moves while they queue");
        assert_eq!(middle.unrecorded_wait(at(40)), seconds(40), "two that queue at once count once");
        first.leave_queue(at(35));
        second.leave_queue(at(40));
        assert_eq!(middle.deadline(at(45)), Some(at(90)), "and not after that");
        assert_eq!(first.latest(at(45)), Some(at(85)), "children still end before it");
        assert_eq!(root.deadline(at(45)), Some(at(200)), "the user's limit does not move");
        first.enter_queue(at(45));
        assert_eq!(middle.deadline(at(345)), Some(at(180)), "the root bounds all");
        assert_eq!(middle.unrecorded_wait(at(345)), seconds(300));
        assert_eq!(middle.unrecorded_wait(at(345)), Duration::ZERO);
    }

    #[test]
    fn deadline_that_is_over_still_bounds_children() {
        let start = Instant::now();
        let root = root(start, 100);
        let child = below(&root, start, 500);
        root.finish();
        assert_eq!(root.deadline(start), None);
        assert_eq!(child.deadline(start), Some(start + seconds(90)));
        child.extend(seconds(50));
        assert_eq!(child.deadline(start), Some(start + seconds(90)));
    }
}
