//! Who runs a tree, and whether that process still lives.

use std::fmt;

/// A process that can hold a lease, named so that no later process is taken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The name of the machine.
    pub host: String,
    /// What the kernel calls this run of the machine.
    pub boot_id: String,
    /// The process.
    pub pid: u32,
    /// When the process started, in the kernel's ticks since boot: a pid that is used again starts later.
    pub start_time: u64,
}

/// What can be known about a holder from where one stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The process runs.
    Alive,
    /// The process is gone, or its machine has been started again since.
    Dead,
    /// It is on another machine; only the time since it last renewed its lease tells.
    Elsewhere,
}

/// How long a holder on another machine may be silent before it counts as dead, in milliseconds.
const REMOTE_OWNER_TIMEOUT_MS: u64 = 30_000;

impl Owner {
    /// The process that this code runs in.
    pub fn this_process() -> Owner {
        let pid = std::process::id();
        Owner {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot_id: boot_id(),
            pid,
            start_time: start_time(pid).unwrap_or_default(),
        }
    }

    /// What `observer` can know about this holder. Only holders of the same machine and the same boot can be looked
    /// up in its table of processes.
    pub fn liveness(&self, observer: &Owner) -> Liveness {
        if self.host != observer.host {
            return Liveness::Elsewhere;
        }
        if self.boot_id == observer.boot_id && start_time(self.pid) == Some(self.start_time) {
            return Liveness::Alive;
        }
        Liveness::Dead
    }

    /// Whether this process runs on this machine now. One on another machine is not known to.
    pub fn is_alive(&self) -> bool {
        self.liveness(&Owner::this_process()) == Liveness::Alive
    }

    /// Whether a lease of this holder, last renewed at `renewed`, still stands at `at` for `observer`.
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

/// When a process started, if it is there and not a zombie.
#[cfg(target_os = "linux")]
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name of the program stands in parentheses and may hold spaces and parentheses itself.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // The state is field 3 of the line, the start time field 22.
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Without `/proc` a process that exists is taken for the one that is meant.
#[cfg(not(target_os = "linux"))]
fn start_time(pid: u32) -> Option<u64> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::test_kill_process(pid).ok().map(|()| 0)
}
