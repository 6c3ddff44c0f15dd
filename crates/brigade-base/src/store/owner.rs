//! Lease owners, and whether their process is still alive.

use std::fmt;

/// A process that can hold a lease, identified so that no later process is mistaken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Host name.
    pub host: String,
    /// Boot id of the kernel.
    pub boot_id: String,
    /// Process id.
    pub pid: u32,
    /// Start time of the process in kernel ticks since boot. A process that reuses the pid starts later.
    pub start_time: u64,
}

/// State of a lease owner as an observer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The process is running.
    Alive,
    /// The process has ended, or its host has rebooted.
    Dead,
    /// The process is on another host. Only the age of its lease indicates whether it is alive.
    Elsewhere,
}

/// Time in milliseconds after which an owner on another host counts as dead if it has not renewed its lease.
pub(super) const REMOTE_OWNER_TIMEOUT_MS: u64 = 30_000;

impl Owner {
    /// Returns the current process.
    pub fn this_process() -> Owner {
        let pid = std::process::id();
        Owner {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot_id: boot_id(),
            pid,
            start_time: start_time(pid).unwrap_or_default(),
        }
    }

    /// Returns the state of this owner as `observer` sees it. Only owners on the same host and boot can be looked
    /// up in the process table.
    pub fn liveness(&self, observer: &Owner) -> Liveness {
        if self.host != observer.host {
            return Liveness::Elsewhere;
        }
        if self.boot_id == observer.boot_id && start_time(self.pid) == Some(self.start_time) {
            return Liveness::Alive;
        }
        Liveness::Dead
    }

    /// Whether this process is running on this host. Returns false for a process on another host.
    pub fn is_alive(&self) -> bool {
        self.liveness(&Owner::this_process()) == Liveness::Alive
    }

    /// Whether a lease of this owner, last renewed at `renewed`, is still valid at `at` for `observer`.
    pub(super) fn is_valid_at(&self, renewed: u64, observer: &Owner, at: u64) -> bool {
        match self.liveness(observer) {
            Liveness::Alive => true,
            Liveness::Dead => false,
            Liveness::Elsewhere => at < renewed.saturating_add(REMOTE_OWNER_TIMEOUT_MS),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

#[cfg(target_os = "linux")]
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().into()).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn boot_id() -> String {
    String::new()
}

/// Start time of a process, if it exists and is not a zombie.
#[cfg(target_os = "linux")]
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The program name is in parentheses and may itself contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // The state is field 3 of the line, the start time field 22.
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Without `/proc`, an existing process with this pid is assumed to be the same one.
#[cfg(not(target_os = "linux"))]
fn start_time(pid: u32) -> Option<u64> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::test_kill_process(pid).ok().map(|()| 0)
}
