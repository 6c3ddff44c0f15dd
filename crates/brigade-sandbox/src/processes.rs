//! The process table: who descends from whom, and how to end a whole tree.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};

#[cfg(target_os = "linux")]
pub(crate) use table::{Process, ProcessTable};

/// What reaping found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaped {
    /// No child is left, dead or alive.
    NoChild,
    /// At least one child was reaped and there may be more.
    Some,
    /// There are children and none of them is dead.
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

    /// Reaps whoever is dead, also orphans that the kernel gave to the guard, and says how the main process
    /// ended if it did.
    pub(crate) fn poll(&mut self) -> Option<WaitStatus> {
        self.reap();
        self.status
    }

    /// Asks the main process to end, unless it has: its number may be that of another then.
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
    /// A pass over the process table is always a little out of date, so no pass is trusted to have seen all.
    /// The end is exact nevertheless: an orphan becomes a child of the guard before its parent can be reaped,
    /// so once the kernel says that the guard has no child, it has no descendant either.
    pub(crate) fn kill_all(&mut self) {
        let mut pause = Duration::from_millis(1);
        loop {
            // A process that forks and exits in a row is gone before a pass over the whole table reaches
            // it. What it left are dead direct children, and their list can be read much faster.
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

/// Must be called before reaping: a dead child still tells the group of those that flee.
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
/// The kernel signals a whole group in one step that no fork can slip through, so this catches also those whose
/// number is out of date as soon as it is read. The command began a session of its own and groups do not reach
/// across sessions, so every other group of a descendant consists of descendants only.
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

/// Without a process table to walk, the command's process group is what can be reached.
#[cfg(not(target_os = "linux"))]
fn kill_descendants(main: Pid) {
    let _ = rustix::process::kill_process_group(main, Signal::KILL);
}

/// Sends a signal. A process that is gone already is what the caller wants, and one that may not be signalled
/// is found again by the next look at the table.
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
        /// In clock ticks since boot: together with the number it names a process for good.
        pub(crate) started: u64,
        /// Dead and only waiting for its parent to take note.
        pub(crate) is_dead: bool,
    }

    /// A look at all processes.
    pub(crate) struct ProcessTable(HashMap<i32, Process>);

    impl ProcessTable {
        pub(crate) fn read() -> io::Result<Self> {
            let mut processes = HashMap::new();
            for entry in fs::read_dir("/proc")? {
                let name = entry?.file_name();
                let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
                // A process that ended since the directory was read is no error.
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

        /// All descendants of a process, parents before their children: a parent that restarts its children is
        /// then dead before it could notice that one of them is.
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

    /// Reads a line of `/proc/PID/stat`. The name in parentheses may itself contain spaces and parentheses.
    fn parse(pid: i32, stat: &str) -> Option<Process> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let threads: u64 = fields.get(17)?.parse().ok()?;
        // A process whose first thread ended looks like a zombie while its other threads go on.
        let is_dead = matches!(*fields.first()?, "Z" | "X") && threads <= 1;
        Some(Process {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
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
