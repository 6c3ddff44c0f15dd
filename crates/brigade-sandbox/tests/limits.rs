//! Limits of all processes of a command together.

use std::fs;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brigade_sandbox::{
    Confinement, Enforcement, ExitReason, GuardCommand, JobResult, Sandbox, SandboxLimit, SandboxLimits, run,
};

use crate::probe::{guard_that_cannot, probe};
use crate::sandbox::{OrdinaryGuard, Place};
use crate::support::{guard, guards, job, text, wait_until, wait_until_running};

/// Grows until something stops it.
const FORK_BOMB: &str = "bomb() { bomb | bomb; }; bomb";

/// Starts 300 processes that stay.
const MANY: &str = "i=0; while [ $i -lt 300 ]; do sleep 60 & i=$((i+1)); done; echo all; wait";

async fn run_with(guard: &GuardCommand, sandbox: Sandbox, command: &str) -> JobResult {
    let mut job = job(command);
    job.confinement = Confinement::Sandbox(Box::new(sandbox));
    run(guard, job, pending()).await.unwrap()
}

fn with_processes(place: &Place, processes: u64) -> Sandbox {
    let limits = SandboxLimits { processes: Some(processes), ..SandboxLimits::default() };
    Sandbox { limits, ..place.sandbox() }
}

/// A sandbox for an ordinary user, who cannot enter the directories of the tests.
fn bare(processes: u64) -> Sandbox {
    let limits = SandboxLimits { processes: Some(processes), ..SandboxLimits::default() };
    Sandbox { limits, allow_landlock_only: true, ..Sandbox::default() }
}

/// The control groups in which a process of the sandbox was, from the content of its `/proc/self/cgroup`.
fn control_groups(output: &str) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let roots = mounts.lines().filter(|line| line.contains(" - cgroup"));
    let roots: Vec<&str> = roots.filter_map(|line| line.split(' ').nth(4)).collect();
    let groups = output.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let names = groups.filter_map(|group| group.rsplit('/').next());
    let names = names.filter(|name| name.starts_with("brigade-sandbox-"));
    let mut found: Vec<PathBuf> = Vec::new();
    for name in names {
        let all = roots.iter().flat_map(|root| find(Path::new(root), name, 0));
        found.extend(all.collect::<Vec<_>>());
        // Paths that no longer exist are named too.
        found.push(name.into());
    }
    found
}

/// Directories with this name, a few levels deep.
fn find(root: &Path, name: &str, depth: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let directories = entries.filter(|path| path.is_dir() && !path.is_symlink());
    directories
        .flat_map(|path| match path.file_name().is_some_and(|found| found == name) {
            true => vec![path],
            false if depth < 5 => find(&path, name, depth + 1),
            false => Vec::new(),
        })
        .collect()
}

#[tokio::test]
async fn fork_bomb_ends_with_the_reason() {
    let place = Place::new();
    let ordinary = rustix::process::getuid().is_root().then(OrdinaryGuard::new);
    let limited = with_processes(&place, 100);
    let without_namespaces = guard_that_cannot(&[libc::SYS_clone], &guard());
    let mut attempts = vec![
        (guard(), limited.clone(), Enforcement::Namespaces),
        (without_namespaces, Sandbox { allow_landlock_only: true, ..limited }, Enforcement::Landlock),
    ];
    // An ordinary user has no control groups on many systems.
    attempts.extend(ordinary.iter().map(|user| (user.guard.clone(), bare(100), Enforcement::Namespaces)));
    for (guard, sandbox, enforcement) in attempts {
        for command in [FORK_BOMB, MANY] {
            let started = Instant::now();
            let result = run_with(&guard, sandbox.clone(), command).await;
            let output = text(&result);
            // The shell of the bomb may be the first to give up.
            let is_refused = command == FORK_BOMB && output.contains("Cannot fork");
            let is_over_limit = result.end == ExitReason::OverLimit(SandboxLimit::Processes);
            assert!(is_over_limit || is_refused, "{command} {:?} {output}", result.end);
            assert_eq!(result.enforcement, enforcement);
            assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        }
    }
}

/// The kernel refuses more processes before the guard counts them, if it can.
#[tokio::test]
async fn kernel_refuses_processes_beyond_the_limit() {
    let place = Place::new();
    let groups = control_groups(&text(
        &run_with(&guard(), with_processes(&place, 100), "cat /proc/self/cgroup").await,
    ));
    let own_limit =
        text(&run_with(&guard(), with_processes(&place, 100), "cat /proc/sys/kernel/pid_max").await);
    let own_limit: u64 = own_limit.trim().parse().unwrap();
    if groups.is_empty() && own_limit > 1000 {
        return;
    }
    let result = run_with(&guard(), with_processes(&place, 50), &format!("{MANY} 2>&1")).await;
    assert!(!text(&result).contains("all"), "{}", text(&result));
    assert_eq!(result.end, ExitReason::OverLimit(SandboxLimit::Processes));
}

/// Without control groups, the namespace has a limit of its own on new kernels. That of the system stays.
#[tokio::test]
async fn namespace_of_an_ordinary_user_has_a_limit_of_its_own() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let system = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let ordinary = OrdinaryGuard::new();
    let inside = run_with(&ordinary.guard, bare(100), "cat /proc/sys/kernel/pid_max").await;
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let version: Vec<u32> =
        release.split(|c: char| !c.is_ascii_digit()).take(2).map(|part| part.parse().unwrap()).collect();
    if version >= vec![6, 14] {
        let inside: u64 = text(&inside).trim().parse().unwrap();
        assert!((400..1000).contains(&inside), "{inside}");
    }
    assert_eq!(fs::read_to_string("/proc/sys/kernel/pid_max").unwrap(), system);
}

#[tokio::test]
async fn memory_beyond_the_limit_ends_the_command_with_the_reason() {
    let place = Place::new();
    let limits = SandboxLimits { memory_bytes: Some(100 << 20), ..SandboxLimits::default() };
    let sandbox = Sandbox { limits, ..place.sandbox() };
    let result = run_with(&guard(), sandbox.clone(), &probe("memory 300")).await;
    assert_eq!(result.end, ExitReason::OverLimit(SandboxLimit::Memory), "{}", text(&result));
    // Files in memory count too, and a command that stays below succeeds.
    let result = run_with(&guard(), sandbox, "head -c 50000000 /dev/zero > /tmp/x && echo fine").await;
    assert_eq!(text(&result), "fine\n");
}

#[tokio::test]
async fn control_groups_end_with_the_command_or_are_removed_by_the_next_guard() {
    let place = Place::new();
    let limits =
        SandboxLimits { memory_bytes: Some(1 << 30), processes: Some(100), ..SandboxLimits::default() };
    let sandbox = Sandbox { limits, ..place.sandbox() };
    let groups = control_groups(&text(&run_with(&guard(), sandbox.clone(), "cat /proc/self/cgroup").await));
    assert!(groups.iter().all(|group| !group.is_absolute()), "{groups:?}");
    if groups.is_empty() {
        // They cannot be created here.
        return;
    }
    let mut job = job("cat /proc/self/cgroup > src/groups; sleep 600");
    job.directory = place.path("project");
    job.confinement = Confinement::Sandbox(Box::new(sandbox.clone()));
    let tag = job.tag.clone();
    let running = tokio::spawn(async move { run(&guard(), job, pending()).await });
    wait_until_running(&tag, 2).await;
    let read = || fs::read_to_string(place.path("project/src/groups")).unwrap_or_default();
    wait_until("the command has written", || !control_groups(&read()).is_empty()).await;
    assert!(control_groups(&read()).iter().any(|group| group.is_absolute()));
    for pid in guards(&tag) {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    running.await.unwrap().unwrap_err();
    wait_until("all are gone", || crate::support::command_processes(&tag).is_empty()).await;
    run_with(&guard(), sandbox, "true").await;
    let left = control_groups(&read());
    assert!(left.iter().all(|group| !group.is_absolute()), "{left:?}");
}
