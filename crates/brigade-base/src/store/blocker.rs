//! Processes that block writers.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Process that holds a lock on the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocker {
    /// Process id.
    pub pid: u32,
    /// State of the process when it was looked up.
    pub state: BlockerState,
}

/// State of a process that holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockerState {
    /// Stopped by a signal, such as Ctrl-Z or `kill -STOP`.
    Stopped,
    /// Stopped by a debugger.
    Traced,
    /// Paused together with its container or control group.
    Paused,
    /// Running, or waiting for something itself.
    Running,
}

impl Blocker {
    /// Whether the process releases nothing until it is resumed from outside.
    pub fn is_stopped(&self) -> bool {
        self.state != BlockerState::Running
    }

    /// Finds the process that holds an exclusive `flock` on a file.
    pub fn of_file(path: &Path) -> Option<Blocker> {
        find(path, |lock| lock.kind == "FLOCK")
    }

    /// Finds the process that holds the write lock of the database with this shared-memory file.
    pub fn of_shared_memory(path: &Path) -> Option<Blocker> {
        find(path, |lock| lock.kind == "POSIX" && lock.covers(WRITE_LOCK_BYTE))
    }
}

/// Byte of the shared-memory file that an SQLite writer locks.
const WRITE_LOCK_BYTE: u64 = 120;

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            BlockerState::Stopped => "stopped",
            BlockerState::Traced => "stopped by a debugger",
            BlockerState::Paused => "paused",
            BlockerState::Running => "running",
        };
        write!(f, "process {} ({state})", self.pid)
    }
}

/// Line of the kernel's lock table.
struct LockLine<'a> {
    kind: &'a str,
    pid: u32,
    inode: u64,
    start: u64,
    end: u64,
}

impl LockLine<'_> {
    /// Parses a line such as `3: FLOCK ADVISORY WRITE 4711 fe:00:1028 0 EOF`. Shared locks and waiters do not
    /// block a writer and are skipped.
    fn parse(line: &str) -> Option<LockLine<'_>> {
        let mut words = line.split_ascii_whitespace();
        let kind = words.nth(1)?;
        if words.nth(1)? != "WRITE" {
            return None;
        }
        let pid = words.next()?.parse().ok()?;
        let inode = words.next()?.rsplit(':').next()?.parse().ok()?;
        let start = words.next()?.parse().ok()?;
        let end = words.next()?.parse().unwrap_or(u64::MAX);
        Some(LockLine { kind, pid, inode, start, end })
    }

    fn covers(&self, byte: u64) -> bool {
        (self.start..=self.end).contains(&byte)
    }
}

/// Looks up a lock in the kernel's table. The device is not compared, because some file systems report another
/// one to `stat`.
fn find(path: &Path, is_meant: impl Fn(&LockLine<'_>) -> bool) -> Option<Blocker> {
    let inode = std::fs::metadata(path).ok()?.ino();
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    let mut locks = table.lines().filter_map(LockLine::parse);
    let lock = locks.find(|lock| lock.inode == inode && is_meant(lock))?;
    Some(Blocker { pid: lock.pid, state: state(lock.pid) })
}

fn state(pid: u32) -> BlockerState {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // The program name is in parentheses and may itself contain spaces and parentheses.
    let state = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_ascii_whitespace().next());
    match state {
        Some("T") => BlockerState::Stopped,
        Some("t") => BlockerState::Traced,
        _ if is_frozen(pid) => BlockerState::Paused,
        _ => BlockerState::Running,
    }
}

/// Whether the control group of a process is frozen, for example by `docker pause`.
fn is_frozen(pid: u32) -> bool {
    let events = || {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(group).join("cgroup.events")).ok()
    };
    events().is_some_and(|events| events.lines().any(|line| line == "frozen 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_line_of_a_holder_is_read_and_others_are_not() {
        let read = |line| LockLine::parse(line).map(|lock| (lock.pid, lock.inode, lock.covers(120)));
        assert_eq!(
            read("3: FLOCK  ADVISORY  WRITE 25953 fe:00:10281197 0 EOF"),
            Some((25953, 10281197, true))
        );
        assert_eq!(read("1: POSIX  ADVISORY  WRITE 7 08:02:11 120 120"), Some((7, 11, true)));
        assert_eq!(read("1: POSIX  ADVISORY  WRITE 7 08:02:11 121 123"), Some((7, 11, false)));
        assert_eq!(read("1: POSIX  ADVISORY  READ 7 08:02:11 120 120"), None);
        assert_eq!(read("1: -> FLOCK  ADVISORY  WRITE 7 08:02:11 0 EOF"), None);
        assert_eq!(read("nonsense"), None);
    }
}
