//! Deadline of a session. Queue time of its own requests and of its descendants' extends it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Minimum interval between two checks of a deadline that moves.
pub(super) const QUEUE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Time for a wrap-up call after the deadline: a tenth of the session's time limit, within these bounds.
const MIN_GRACE: Duration = Duration::from_secs(2);
const MAX_GRACE: Duration = Duration::from_secs(30);

/// Deadline of one session. Its children hold a reference to it: they end before it and report their queue time
/// to it.
#[derive(Debug, Default)]
pub(super) struct SessionClock {
    caller: OnceLock<CallerClock>,
    time: Mutex<SessionTime>,
}

/// Clock of the caller, and how long before its deadline this session has to end.
#[derive(Debug)]
struct CallerClock {
    clock: Arc<SessionClock>,
    margin: Duration,
}

#[derive(Debug, Default)]
struct SessionTime {
    /// Deadline without queue time.
    base: Option<Instant>,
    /// Time that the wrap-up call may take after the deadline.
    grace: Option<Duration>,
    /// Queue time that extends the deadline.
    extension: Duration,
    /// Whether queue time extends the deadline. It does not for a root, since the user set that limit.
    is_extendable: bool,
    /// Whether the expiry was recorded.
    is_over: bool,
    /// Number of queued requests of descendants, and since when there has been at least one.
    queued: u32,
    queued_since: Option<Instant>,
    /// Queue time of descendants, and the part of it that is in the log.
    waited: Duration,
    recorded: Duration,
}

impl SessionTime {
    /// Duration of the current wait.
    fn open_wait(&self, now: Instant) -> Duration {
        self.queued_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl SessionClock {
    /// Sets the deadline, `left` from now, and whether queue time extends it.
    pub(super) fn start(&self, now: Instant, left: Duration, is_extendable: bool) {
        let mut time = self.time();
        (time.base, time.extension, time.is_extendable) =
            (now.checked_add(left), Duration::ZERO, is_extendable);
        time.grace = Some((left / 10).clamp(MIN_GRACE, MAX_GRACE));
    }

    /// Time that the wrap-up call may take after the deadline.
    pub(super) fn grace(&self) -> Duration {
        self.time().grace.unwrap_or(MAX_GRACE)
    }

    /// Clears the deadline after its expiry was recorded. It still bounds the children.
    pub(super) fn finish(&self) {
        self.time().is_over = true;
    }

    /// Bounds the session by the deadline of its caller.
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

    /// Current deadline, or none if there is none or its expiry was recorded.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.limit(now).filter(|_| !self.time().is_over)
    }

    /// Current deadline. It moves while a descendant is queued, but not beyond the caller's limit.
    fn limit(&self, now: Instant) -> Option<Instant> {
        let (base, later) = {
            let time = self.time();
            let base = time.base?;
            let wait = if time.is_extendable { time.extension + time.open_wait(now) } else { Duration::ZERO };
            (base, base.checked_add(wait).unwrap_or(base))
        };
        Some(self.latest(now).map_or(later, |latest| later.min(latest.max(base))))
    }

    /// Time of the next deadline check.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let deadline = self.deadline(now)?;
        let is_moving = self.time().queued > 0;
        Some(if is_moving { deadline.max(now + QUEUE_CHECK_INTERVAL) } else { deadline })
    }

    /// Latest end that the caller allows, or none if the caller has no deadline.
    pub(super) fn latest(&self, now: Instant) -> Option<Instant> {
        let caller = self.caller.get()?;
        caller.clock.limit(now)?.checked_sub(caller.margin)
    }

    /// Time that a child may take: ten percent less than the session has left, at most thirty seconds less.
    pub(super) fn left_for_children(&self, now: Instant) -> Option<Duration> {
        let left = self.limit(now)?.saturating_duration_since(now);
        Some(left - (left / 10).min(CHILD_MARGIN))
    }

    /// Extends the deadline by the queue time of a request of this session.
    pub(super) fn extend(&self, waited: Duration) {
        self.time().extension += waited;
    }

    /// Reports a queued request to all callers below the root until the guard is dropped.
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

    /// Queue time of descendants that no event contains yet.
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

/// Maximum time that a session keeps for itself after its children.
const CHILD_MARGIN: Duration = Duration::from_secs(30);

/// A request in a provider's queue.
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

    /// Creates a clock below `caller` with a deadline in this many seconds.
    fn below(caller: &Arc<SessionClock>, now: Instant, deadline: u64) -> Arc<SessionClock> {
        let clock = Arc::new(SessionClock::default());
        clock.start(now, seconds(deadline), true);
        clock.end_before(caller, now);
        clock
    }

    fn root(now: Instant, deadline: u64) -> Arc<SessionClock> {
        let clock = Arc::new(SessionClock::default());
        clock.start(now, seconds(deadline), false);
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
