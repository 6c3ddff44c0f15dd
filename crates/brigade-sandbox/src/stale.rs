//! Killing guards from outside: those of an earlier runner, and one that does not respond.

use std::time::Duration;

use crate::GuardError;
use crate::job::check_tag;

/// Ends guards of an earlier runner that are still alive, with all of their descendants.
///
/// A guard is identified by the tag as the last argument of its command line, and by being the leader of its
/// session. It first gets a chance to kill its descendants itself, which is the most reliable way. If it does
/// not, the descendants are killed from here, and then the guard. Returns the number of guards found once all
/// processes have exited, or [`GuardError::StillAlive`] after `limit`. Blocks the thread.
///
/// On systems other than Linux, where the process table cannot be read, it finds nothing.
pub fn end_stale(tag: &str, limit: Duration) -> Result<usize, GuardError> {
    check_tag(tag)?;
    imp::end_stale(tag, limit)
}

#[cfg(target_os = "linux")]
pub(crate) use imp::ProcessReaper;

#[cfg(target_os = "linux")]
mod imp {
    use std::collections::HashSet;
    use std::time::{Duration, Instant};
    use std::{fs, io};

    use rustix::process::{Signal, getpid};

    use crate::GuardError;
    use crate::processes::{Process, ProcessTable, kill_groups, signal};

    /// Time that a guard has to end itself before its tree is killed from outside.
    const TERMINATE_GRACE: Duration = Duration::from_secs(1);

    pub(crate) fn end_stale(tag: &str, limit: Duration) -> Result<usize, GuardError> {
        let failed = |source| GuardError::ProcessTable { tag: tag.to_owned(), source };
        let mut reaper = ProcessReaper::by_tag(tag).map_err(failed)?;
        reaper.request_end();
        let started_at = Instant::now();
        loop {
            let force = started_at.elapsed() >= TERMINATE_GRACE.min(limit / 2);
            let alive = reaper.pass(force).map_err(failed)?;
            if alive == 0 {
                return Ok(reaper.guards.len());
            }
            if started_at.elapsed() >= limit {
                return Err(GuardError::StillAlive { tag: tag.to_owned(), count: alive, limit });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A pid may be reused. Together with the start time it identifies a process uniquely.
    type Identity = (i32, u64);

    /// Guards to end, and every descendant of theirs that was ever seen.
    pub(crate) struct ProcessReaper {
        guards: HashSet<Identity>,
        descendants: HashSet<Identity>,
    }

    impl ProcessReaper {
        pub(crate) fn by_tag(tag: &str) -> io::Result<Self> {
            let own_pid = getpid().as_raw_nonzero().get();
            let is_guard = |process: &&Process| {
                process.session == process.pid && process.pid != own_pid && has_tag(process.pid, tag)
            };
            let guards = ProcessTable::read()?.iter().filter(is_guard).map(identity).collect();
            Ok(Self { guards, descendants: HashSet::new() })
        }

        pub(crate) fn by_pid(pid: i32) -> io::Result<Self> {
            let guards = ProcessTable::read()?.get(pid).map(identity).into_iter().collect();
            Ok(Self { guards, descendants: HashSet::new() })
        }

        /// Requests the guards to kill their descendants and exit, and wakes those that are stopped.
        pub(crate) fn request_end(&self) {
            for (pid, _) in &self.guards {
                signal(*pid, Signal::TERM);
                signal(*pid, Signal::CONT);
            }
        }

        /// Scans the process table once and returns the number of remaining processes. With `force`, kills
        /// them.
        ///
        /// Guards are killed last, because an orphan without its guard could not be found any more.
        pub(crate) fn pass(&mut self, force: bool) -> io::Result<usize> {
            let table = ProcessTable::read()?;
            let mut found = Vec::new();
            for (guard, _) in still_alive(&self.guards, &table) {
                let below = table.descendants(guard);
                if force {
                    kill_groups(below.iter().map(|process| process.group), guard);
                }
                found.extend(below);
            }
            self.descendants.extend(found.iter().map(identity));
            let guards = still_alive(&self.guards, &table);
            let descendants = still_alive(&self.descendants, &table);
            if force {
                let victims = if descendants.is_empty() { &guards } else { &descendants };
                victims.iter().for_each(|(pid, _)| signal(*pid, Signal::KILL));
            }
            Ok(guards.len() + descendants.len())
        }
    }

    fn identity(process: &Process) -> Identity {
        (process.pid, process.started)
    }

    fn still_alive(wanted: &HashSet<Identity>, table: &ProcessTable) -> Vec<Identity> {
        let lives = |(pid, started): &&Identity| {
            table.get(*pid).is_some_and(|process| process.started == *started && !process.is_dead)
        };
        wanted.iter().filter(lives).copied().collect()
    }

    /// Whether the last argument of a process, other than the program itself, is the tag.
    fn has_tag(pid: i32, tag: &str) -> bool {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let Some(arguments) = line.strip_suffix(b"\0") else { return false };
        let mut arguments = arguments.rsplit(|byte| *byte == 0);
        arguments.next() == Some(tag.as_bytes()) && arguments.next().is_some()
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::time::Duration;

    use crate::GuardError;

    pub(crate) fn end_stale(_mark: &str, _limit: Duration) -> Result<usize, GuardError> {
        Ok(0)
    }
}
