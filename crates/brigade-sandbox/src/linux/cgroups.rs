//! Control groups with the limits of a sandbox. They prevent what the guard itself could only notice afterwards.
//!
//! Whether groups can be created is found by trying: version 2 where a group was delegated to the user, or version 1.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, getpid};

use super::placeholders::is_at;
use crate::{SandboxLimit, SandboxLimits};

/// Start of the names of groups.
const PREFIX: &str = "brigade-sandbox-";

/// Number of attempts to remove a group whose last process has just exited.
const REMOVE_ATTEMPTS: u32 = 50;

/// Number of names that are tried for a group.
const MAX_NAMES: u32 = 100;

/// Groups of one command. They are removed when this is dropped.
#[derive(Default)]
pub(crate) struct ControlGroups {
    groups: Vec<Group>,
}

struct Group {
    directory: PathBuf,
    settings: Vec<Setting>,
    /// Locked as long as a guard uses the group, so that no other guard takes it for an old one.
    _lock: File,
}

/// Limit of a group.
#[derive(Clone)]
struct Setting {
    limit: SandboxLimit,
    value: u64,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Mounted hierarchy of groups.
struct Hierarchy {
    version: Version,
    /// Its controllers, of version 1.
    controllers: Vec<String>,
    /// Group of this process.
    own: PathBuf,
    root: PathBuf,
}

impl ControlGroups {
    /// Creates groups for those limits that the system supports.
    pub(crate) fn create(limits: &SandboxLimits) -> ControlGroups {
        let mut groups = ControlGroups::default();
        let wanted = wanted(limits);
        if wanted.is_empty() {
            return groups;
        }
        let hierarchies = hierarchies(Path::new("/proc"));
        remove_stale_in(&hierarchies);
        let of_version_2 = || hierarchies.iter().filter(|hierarchy| hierarchy.version == Version::Two);
        // A process can be in only one group of version 2.
        let all: Vec<Setting> =
            wanted.iter().map(|(limit, value)| setting(*limit, *value, Version::Two)).collect();
        if let Some(group) = of_version_2().find_map(|hierarchy| hierarchy.create(&all)) {
            groups.groups.push(group);
            return groups;
        }
        for (limit, value) in wanted {
            let version_1 = hierarchies.iter().filter(|hierarchy| hierarchy.controls(limit));
            let setting = [setting(limit, value, Version::One)];
            groups.groups.extend(version_1.filter_map(|hierarchy| hierarchy.create(&setting)).next());
        }
        groups
    }

    /// Whether a group enforces this limit.
    pub(crate) fn enforces(&self, limit: SandboxLimit) -> bool {
        self.groups.iter().flat_map(|group| &group.settings).any(|setting| setting.limit == limit)
    }

    /// Moves a process that has not started others into the groups. A group that it cannot enter is removed.
    pub(crate) fn enter(&mut self, pid: Pid) {
        self.groups.retain(|group| {
            let entered = fs::write(group.directory.join("cgroup.procs"), pid.as_raw_nonzero().to_string());
            if entered.is_err() {
                remove(&group.directory);
            }
            entered.is_ok()
        });
    }

    /// Files to which a process writes `0` to enter the groups.
    pub(crate) fn entries(&self) -> Vec<PathBuf> {
        self.groups.iter().map(|group| group.directory.join("cgroup.procs")).collect()
    }

    /// The first limit that the processes have reached.
    pub(crate) fn reached(&self) -> Option<SandboxLimit> {
        self.groups.iter().find_map(Group::reached)
    }
}

impl Drop for ControlGroups {
    fn drop(&mut self) {
        for group in &self.groups {
            remove(&group.directory);
        }
    }
}

/// Removes groups that killed guards left behind. The system keeps those that have processes.
pub(crate) fn remove_stale() {
    remove_stale_in(&hierarchies(Path::new("/proc")));
}

fn remove_stale_in(hierarchies: &[Hierarchy]) {
    for entries in
        hierarchies.iter().flat_map(Hierarchy::parents).filter_map(|parent| fs::read_dir(parent).ok())
    {
        for group in entries.flatten() {
            let is_group = group.file_name().to_string_lossy().starts_with(PREFIX);
            if is_group
                && let Ok(lock) = File::open(group.path())
                && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                let _ = fs::remove_dir(group.path());
            }
        }
    }
}

fn remove(directory: &Path) {
    for _ in 0..REMOVE_ATTEMPTS {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(()) | Err(_) => return,
        }
    }
}

/// Limits for which there are groups.
fn wanted(limits: &SandboxLimits) -> Vec<(SandboxLimit, u64)> {
    // The first process of a sandbox is not the command's.
    let processes = limits.processes.map(|limit| (SandboxLimit::Processes, limit.saturating_add(1)));
    let memory = limits.memory_bytes.map(|limit| (SandboxLimit::Memory, limit));
    processes.into_iter().chain(memory).collect()
}

fn setting(limit: SandboxLimit, value: u64, version: Version) -> Setting {
    Setting { limit, value, version }
}

impl Setting {
    /// File with the limit.
    fn file(&self) -> Option<&'static str> {
        match (self.limit, self.version) {
            (SandboxLimit::Processes, _) => Some("pids.max"),
            (SandboxLimit::Memory, Version::One) => Some("memory.limit_in_bytes"),
            (SandboxLimit::Memory, Version::Two) => Some("memory.max"),
            (SandboxLimit::FreeDisk, _) => None,
        }
    }

    /// File that keeps memory from being swapped instead, and its content.
    fn swap(&self) -> Option<(&'static str, u64)> {
        match (self.limit, self.version) {
            (SandboxLimit::Memory, Version::One) => Some(("memory.memsw.limit_in_bytes", self.value)),
            (SandboxLimit::Memory, Version::Two) => Some(("memory.swap.max", 0)),
            (SandboxLimit::Processes | SandboxLimit::FreeDisk, _) => None,
        }
    }

    /// File with a counter of how often the limit was reached, and the name of the counter.
    fn counter(&self) -> Option<(&'static str, &'static str)> {
        match (self.limit, self.version) {
            (SandboxLimit::Processes, _) => Some(("pids.events", "max")),
            (SandboxLimit::Memory, Version::One) => Some(("memory.oom_control", "oom_kill")),
            (SandboxLimit::Memory, Version::Two) => Some(("memory.events", "oom_kill")),
            (SandboxLimit::FreeDisk, _) => None,
        }
    }
}

impl Group {
    /// Creates a group with a name that nothing has, and sets its limits.
    fn create(parent: &Path, settings: &[Setting]) -> io::Result<Group> {
        let own = getpid().as_raw_nonzero();
        for number in 0..MAX_NAMES {
            let directory = parent.join(format!("{PREFIX}{own}-{number}"));
            match fs::create_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created?,
            }
            // Another guard may remove it before it is locked.
            let Ok(lock) = File::open(&directory) else { continue };
            if flock(&lock, FlockOperation::NonBlockingLockShared).is_err() || !is_at(&lock, &directory) {
                continue;
            }
            let group = Group { directory, settings: settings.to_vec(), _lock: lock };
            return match group.limit() {
                Ok(()) => Ok(group),
                Err(error) => {
                    let _ = fs::remove_dir(&group.directory);
                    Err(error)
                }
            };
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn limit(&self) -> io::Result<()> {
        for setting in &self.settings {
            let file = self.directory.join(setting.file().ok_or(io::ErrorKind::Unsupported)?);
            // The file exists only if the group has the controller.
            let mut file = fs::OpenOptions::new().write(true).open(file)?;
            io::Write::write_all(&mut file, setting.value.to_string().as_bytes())?;
            if let Some((file, value)) = setting.swap() {
                // Not every system counts swap.
                let _ = fs::write(self.directory.join(file), value.to_string());
            }
        }
        Ok(())
    }

    fn reached(&self) -> Option<SandboxLimit> {
        let reached = self.settings.iter().find(|setting| {
            let Some((file, name)) = setting.counter() else { return false };
            let text = fs::read_to_string(self.directory.join(file)).unwrap_or_default();
            let mut fields = text.lines().filter_map(|line| line.split_once(' '));
            fields.any(|(field, count)| field == name && count.trim() != "0")
        });
        reached.map(|setting| setting.limit)
    }
}

impl Hierarchy {
    /// Groups in which new ones may be created. Of version 2, a group with processes cannot have groups with controllers.
    fn parents(&self) -> Vec<&Path> {
        let above = self.own.parent().filter(|above| above.starts_with(&self.root));
        let above = above.filter(|_| self.version == Version::Two);
        [Some(self.own.as_path()), above].into_iter().flatten().collect()
    }

    /// Whether it is of version 1 and has the controller for a limit.
    fn controls(&self, limit: SandboxLimit) -> bool {
        let controller = match limit {
            SandboxLimit::Processes => "pids",
            SandboxLimit::Memory => "memory",
            SandboxLimit::FreeDisk => return false,
        };
        self.version == Version::One && self.controllers.iter().any(|found| found == controller)
    }

    fn create(&self, settings: &[Setting]) -> Option<Group> {
        self.parents().into_iter().find_map(|parent| Group::create(parent, settings).ok())
    }
}

/// The hierarchies that are mounted, with the group of this process.
fn hierarchies(proc: &Path) -> Vec<Hierarchy> {
    let mounts = fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
    let groups = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    mounts.lines().filter_map(|line| hierarchy(line, &groups)).collect()
}

/// Hierarchy of a mount, if the line describes one.
fn hierarchy(mount: &str, groups: &str) -> Option<Hierarchy> {
    let (before, after) = mount.split_once(" - ")?;
    let mut after = after.split(' ');
    let version = match after.next()? {
        "cgroup" => Version::One,
        "cgroup2" => Version::Two,
        _ => return None,
    };
    let controllers: Vec<String> = after.nth(1)?.split(',').map(str::to_owned).collect();
    let mut before = before.split(' ').skip(3);
    let (mounted, root) = (before.next()?, before.next()?);
    let own = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_this = match version {
            Version::One => {
                names.split(',').any(|name| !name.is_empty() && controllers.iter().any(|c| c == name))
            }
            Version::Two => number == "0" && names.is_empty(),
        };
        is_this.then_some(path)
    })?;
    // Inside a container, only a part of the hierarchy may be mounted.
    let own = Path::new(own).strip_prefix(mounted).ok()?;
    Some(Hierarchy { version, controllers, own: Path::new(root).join(own), root: root.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_those_of_the_mounts_that_contain_this_process() {
        let groups = "9:name=systemd:/a\n8:pids:/b/c\n4:cpu,cpuacct:/\n0::/user.slice/run.scope\n";
        let of = |line: &str| hierarchy(line, groups).map(|found| (found.version == Version::Two, found.own));
        let pids = "39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:7 - cgroup cgroup rw,pids";
        assert_eq!(of(pids), Some((false, "/sys/fs/cgroup/pids/b/c".into())));
        let part = "39 31 0:36 /b /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids";
        assert_eq!(of(part), Some((false, "/sys/fs/cgroup/pids/c".into())));
        let other = "39 31 0:36 /other /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids";
        assert_eq!(of(other), None);
        let unified = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(of(unified), Some((true, "/sys/fs/cgroup/user.slice/run.scope".into())));
        assert_eq!(of("22 1 0:20 / /proc rw - proc proc rw"), None);
        let parents = hierarchy(unified, groups).unwrap();
        assert_eq!(
            parents.parents(),
            [Path::new("/sys/fs/cgroup/user.slice/run.scope"), Path::new("/sys/fs/cgroup/user.slice")]
        );
        for line in ["", " - ", "a - cgroup", "1 2 3 - cgroup cgroup rw,pids", "1 2 3 4 5 - cgroup2 a b"] {
            let _ = of(line);
        }
    }
}
