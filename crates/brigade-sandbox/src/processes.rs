//! The process table: descendants of a process, and killing a whole tree.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};

#[cfg(target_os = "linux")]
pub(crate) use table::{Process, ProcessTable};

/// Result of reaping.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaped {
    /// No child is left, dead or alive.
    NoChild,
    /// At least one child was reaped, and there may be more.
    Some,
    /// There are children, but none of them is dead.
    Nothing,
}

/// The children of a guard, of which one is the command's main process.
pub(crate) struct Children {
    main: Pid,
    status: Option<WaitStatus>,
}

impl Children {
    pub(crate) fn new(main: Pid) -> Self {
        Self { main, status: None }
    }

    /// Reaps dead children, including orphans that the kernel reparented to the guard. Returns the status of
    /// the main process if it has exited.
    pub(crate) fn poll(&mut self) -> Option<WaitStatus> {
        self.reap();
        self.status
    }

    /// The status of the main process, if it has been reaped.
    pub(crate) fn status(&self) -> Option<WaitStatus> {
        self.status
    }

    /// Sends SIGTERM to the main process, unless it has exited: its pid may be reused.
    pub(crate) fn terminate_main(&mut self) {
        if self.poll().is_none() {
            let _ = kill_process(self.main, Signal::TERM);
        }
    }

    fn reap(&mut self) -> Reaped {
        let mut reaped = Reaped::Nothing;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid == self.main {
                        self.status = Some(status);
                    }
                    reaped = Reaped::Some;
                }
                Ok(None) => return reaped,
                Err(Errno::INTR) => {}
                Err(_) => return Reaped::NoChild,
            }
        }
    }

    /// Kills every descendant of this process until none is left.
    ///
    /// A pass over the process table is always slightly outdated, so no pass is trusted to have seen all. The
    /// end is exact nevertheless: an orphan becomes a child of the guard before its parent can be reaped.
    /// Once the kernel says that the guard has no child, it has no descendant either.
    pub(crate) fn kill_all(&mut self) {
        let mut pause = Duration::from_millis(1);
        loop {
            // A process that keeps forking and exiting is gone before a pass over the whole table reaches it.
            // It leaves dead direct children, and their list can be read much faster.
            for _ in 0..20 {
                kill_direct_children();
                if self.reap() == Reaped::NoChild {
                    return;
                }
            }
            kill_descendants(self.main);
            match self.reap() {
                Reaped::NoChild => return,
                Reaped::Some => pause = Duration::from_millis(1),
                Reaped::Nothing => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
            }
        }
    }
}

/// Must be called before reaping, because a dead child still identifies the group of those that escape.
#[cfg(target_os = "linux")]
fn kill_direct_children() {
    let list = format!("/proc/self/task/{}/children", getpid().as_raw_nonzero());
    let children = std::fs::read_to_string(list).unwrap_or_default();
    let children = children.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
    let children: Vec<Pid> = children.collect();
    let group =
        |pid: &Pid| rustix::process::getpgid(Some(*pid)).ok().map(|group| group.as_raw_nonzero().get());
    kill_groups(children.iter().filter_map(group), own_group());
    for child in children {
        let _ = kill_process(child, Signal::KILL);
    }
}

#[cfg(target_os = "linux")]
fn kill_descendants(_main: Pid) {
    let Ok(table) = ProcessTable::read() else { return };
    let descendants = table.descendants(getpid().as_raw_nonzero().get());
    kill_groups(descendants.iter().map(|process| process.group), own_group());
    for process in descendants {
        signal(process.pid, Signal::KILL);
    }
}

#[cfg(target_os = "linux")]
fn own_group() -> i32 {
    rustix::process::getpgrp().as_raw_nonzero().get()
}

/// Kills process groups of descendants, except the group of their guard.
///
/// The kernel signals a whole group in one step that no fork can escape, so this also catches processes whose
/// pid is outdated as soon as it is read. The command started a separate session, and groups do not cross
/// sessions, so every other group of a descendant contains only descendants.
#[cfg(target_os = "linux")]
pub(crate) fn kill_groups(groups: impl Iterator<Item = i32>, guard: i32) {
    let groups: std::collections::BTreeSet<i32> =
        groups.filter(|group| *group > 1 && *group != guard).collect();
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

#[cfg(not(target_os = "linux"))]
fn kill_direct_children() {}

/// Without a process table, only the command's process group can be reached.
#[cfg(not(target_os = "linux"))]
fn kill_descendants(main: Pid) {
    let _ = rustix::process::kill_process_group(main, Signal::KILL);
}

/// Sends a signal. Errors are ignored: a process that has exited is the desired result, and one that cannot
/// be signalled is found again by the next pass.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(target_os = "linux")]
mod table {
    use std::collections::HashMap;
    use std::{fs, io};

    /// One row of the process table.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct Process {
        pub(crate) pid: i32,
        pub(crate) parent: i32,
        pub(crate) group: i32,
        pub(crate) session: i32,
        /// Start time in clock ticks since boot. Together with the pid it identifies a process uniquely.
        pub(crate) started: u64,
        /// Number of threads.
        pub(crate) threads: u64,
        /// Whether it is a zombie.
        pub(crate) is_dead: bool,
    }

    /// A snapshot of all processes.
    pub(crate) struct ProcessTable(HashMap<i32, Process>);

    impl ProcessTable {
        pub(crate) fn read() -> io::Result<Self> {
            let mut processes = HashMap::new();
            for entry in fs::read_dir("/proc")? {
                let name = entry?.file_name();
                let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
                // A process that exited after the directory was read is not an error.
                let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { continue };
                if let Some(process) = parse(pid, &String::from_utf8_lossy(&stat)) {
                    processes.insert(pid, process);
                }
            }
            Ok(Self(processes))
        }

        pub(crate) fn get(&self, pid: i32) -> Option<&Process> {
            self.0.get(&pid)
        }

        pub(crate) fn iter(&self) -> impl Iterator<Item = &Process> {
            self.0.values()
        }

        /// All descendants of a process, parents before their children. A parent that restarts its children
        /// is then dead before it can notice that one of them exited.
        pub(crate) fn descendants(&self, root: i32) -> Vec<Process> {
            let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
            for process in self.0.values() {
                children.entry(process.parent).or_default().push(*process);
            }
            let mut found = children.remove(&root).unwrap_or_default();
            let mut next = 0;
            while let Some(process) = found.get(next).copied() {
                found.extend(children.remove(&process.pid).unwrap_or_default());
                next += 1;
            }
            found
        }
    }

    /// Parses a line of `/proc/PID/stat`. The name in parentheses may itself contain spaces and parentheses.
    fn parse(pid: i32, stat: &str) -> Option<Process> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let threads: u64 = fields.get(17)?.parse().ok()?;
        // A process whose first thread exited looks like a zombie while its other threads keep running.
        let is_dead = matches!(*fields.first()?, "Z" | "X") && threads <= 1;
        Some(Process {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            threads,
            is_dead,
        })
    }

    #[cfg(test)]
    mod tests {
        use super::parse;

        #[test]
        fn process_name_cannot_forge_stat_fields() {
            let stat = "7 (a) R 1 (b) S 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 99 0 0";
            let process = parse(7, stat).unwrap();
            assert_eq!(
                (process.parent, process.session, process.started, process.is_dead),
                (3, 5, 99, false)
            );
        }

        #[test]
        fn incomplete_stat_line_is_no_process() {
            assert_eq!(parse(7, "7 (a) R 1 2"), None);
        }
    }
}
