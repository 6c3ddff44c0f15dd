//! Lock file that serializes the writers of all processes before they access the database.
//!
//! `flock` is not fair: a process that releases it and takes it again at once wins against sleeping waiters, for
//! seconds. Waiters therefore hold a second file with a shared lock, and a process that releases the lock yields
//! briefly while that file is locked.
//!
//! A process that is stopped while it holds the lock never releases it, so every wait has a time limit.

use std::cell::Cell;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::schema::io_error;
use brigade_base::store::{Blocker, StoreError};

/// Duration of one pause while yielding.
const YIELD_PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of pauses while the same waiter has not woken up.
const MAX_YIELD_PAUSES: u32 = 10;
/// Period without yielding after a waiter did not wake up. It may be stopped.
const NO_YIELD_PERIOD: Duration = Duration::from_secs(1);

/// Interval between two attempts to take the lock, at first and later. A yielding holder pauses for longer than
/// the first.
const FIRST_POLL: Duration = Duration::from_micros(200);
const LATER_POLL: Duration = Duration::from_millis(1);
/// Waiting time after which attempts become less frequent.
const SHORT_WAIT: Duration = Duration::from_millis(50);
/// Interval between two checks of the process that holds the lock.
pub(super) const HOLDER_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for a stopped process, and for any process.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Gate that lets `between_commits` wait for the writers of this process. A writer holds it while it waits for
/// the lock or holds it.
#[derive(Debug, Default)]
pub(super) struct CommitGate {
    passed: Mutex<()>,
    /// Whether a caller waits for the writers.
    is_wanted: AtomicBool,
}

impl CommitGate {
    /// Runs `work` while no writer of this process holds the lock. After `timeout` it runs anyway, because the
    /// writer is probably waiting for another process.
    pub(super) fn close_while(&self, timeout: Duration, work: &mut dyn FnMut()) {
        let began = Instant::now();
        self.is_wanted.store(true, Ordering::SeqCst);
        let mut closed = self.passed.try_lock();
        while closed.is_err() && began.elapsed() < timeout {
            std::thread::sleep(FIRST_POLL);
            closed = self.passed.try_lock();
        }
        work();
        self.is_wanted.store(false, Ordering::SeqCst);
        drop(closed);
    }

    fn pass(&self) -> MutexGuard<'_, ()> {
        // The waiting caller polls, and would lose against a writer that returns at once.
        if self.is_wanted.load(Ordering::SeqCst) {
            std::thread::sleep(LATER_POLL);
        }
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the lock. Every writing thread has its own.
#[derive(Debug)]
pub(super) struct Lock {
    gate: Arc<CommitGate>,
    place: PathBuf,
    lock: File,
    waiting: File,
    /// When yielding to a waiter last failed.
    given_up: Cell<Option<Instant>>,
}

/// The held lock.
#[derive(Debug)]
pub(super) struct LockGuard<'a> {
    lock: &'a File,
    /// Released after the lock.
    _passed: MutexGuard<'a, ()>,
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        // Unlocking an open, locked file does not fail. Closing it would release the lock as well.
        let _ = self.lock.unlock();
    }
}

impl Lock {
    /// Opens the two files beside the database.
    pub(super) fn open(place: &Path, gate: Arc<CommitGate>) -> Result<Lock, StoreError> {
        let open = |suffix: &str| {
            let path = sibling_path(place, suffix);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path);
            file.map_err(|error| io_error(&path, &error))
        };
        let (lock, waiting) = (open(LOCK_SUFFIX)?, open(".waiting")?);
        Ok(Lock { gate, place: place.to_path_buf(), lock, waiting, given_up: Cell::new(None) })
    }

    /// Waits for the lock, with a time limit.
    pub(super) fn acquire(&self) -> Result<LockGuard<'_>, StoreError> {
        let guard = LockGuard { _passed: self.gate.pass(), lock: &self.lock };
        if self.try_acquire()? {
            return Ok(guard);
        }
        let taken = self.wait();
        // It is unlocked if another process was checking for waiters at that moment.
        let _ = self.waiting.unlock();
        taken.map(|()| guard)
    }

    fn try_acquire(&self) -> Result<bool, StoreError> {
        match self.lock.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(io_error(&self.place, &error)),
        }
    }

    fn wait(&self) -> Result<(), StoreError> {
        let mut wait = LockWait::begin();
        let mut next_look = HOLDER_CHECK_INTERVAL;
        let mut is_shown = false;
        loop {
            is_shown = is_shown || self.waiting.try_lock_shared().is_ok();
            let waited = wait.elapsed();
            std::thread::sleep(if waited < SHORT_WAIT { FIRST_POLL } else { LATER_POLL });
            if self.try_acquire()? {
                return Ok(());
            }
            if waited < next_look {
                continue;
            }
            next_look = waited + HOLDER_CHECK_INTERVAL;
            let by = Blocker::of_file(&sibling_path(&self.place, LOCK_SUFFIX));
            if wait.has_timed_out(by) {
                return Err(StoreError::Locked { place: self.place.display().to_string(), by });
            }
        }
    }

    /// Yields the lock to a waiter, if there is one. Call it after releasing the lock and before taking it again.
    pub(super) fn yield_to_waiter(&self) {
        if self.given_up.get().is_some_and(|given_up| given_up.elapsed() < NO_YIELD_PERIOD) {
            return;
        }
        for _ in 0..MAX_YIELD_PAUSES {
            match self.waiting.try_lock() {
                Ok(()) => {
                    let _ = self.waiting.unlock();
                    return;
                }
                // The waiter unlocks the second file as soon as it has the lock, so a check after a pause shows
                // whether it woke up.
                Err(_) => std::thread::sleep(YIELD_PAUSE),
            }
        }
        self.given_up.set(Some(Instant::now()));
    }
}

/// Wait for the process that holds a lock.
pub(super) struct LockWait {
    began: Instant,
    /// Process that was stopped at the last check, and since when.
    stopped: Option<(u32, Instant)>,
}

impl LockWait {
    pub(super) fn begin() -> LockWait {
        LockWait { began: Instant::now(), stopped: None }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the wait has reached its limit, for any process or for one that stays stopped.
    pub(super) fn has_timed_out(&mut self, by: Option<Blocker>) -> bool {
        let now = Instant::now();
        self.stopped = match (by.filter(Blocker::is_stopped), self.stopped) {
            (Some(by), Some((pid, since))) if by.pid == pid => Some((pid, since)),
            (Some(by), _) => Some((by.pid, now)),
            (None, _) => None,
        };
        let stopped = self.stopped.map(|(_, since)| now.saturating_duration_since(since));
        stopped.is_some_and(|time| time >= STOPPED_TIMEOUT) || self.elapsed() >= LOCK_TIMEOUT
    }
}

/// Suffix of the lock file.
const LOCK_SUFFIX: &str = ".lock";

/// Path of a file beside the database.
pub(super) fn sibling_path(place: &Path, suffix: &str) -> PathBuf {
    let mut path = place.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
