//! Jobs, and checks of the process table.

use std::ffi::OsStr;
use std::fs;
use std::future::pending;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use brigade_sandbox::{Confinement, GuardCommand, GuardError, Job, JobResult, run};

/// Time limit for processes to exit.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn guard() -> GuardCommand {
    GuardCommand { program: PathBuf::from(env!("CARGO_BIN_EXE_brigade-guard")), arguments: Vec::new() }
}

/// Creates a job with a unique tag. The tag is also in its environment, which identifies every process of the
/// command, whatever its name.
pub(crate) fn job(command: &str) -> Job {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let tag = format!("test-{}:{}.", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    job_with_tag(command, tag)
}

pub(crate) fn job_with_tag(command: &str, tag: String) -> Job {
    let environment = vec![("PATH".into(), "/usr/bin:/bin".into()), ("TEST_MARK".into(), tag.clone())];
    Job::new(command, "/", tag, Confinement::none())
        .environment(environment)
        .time_limit(Duration::from_secs(60))
        .output_limit(1 << 20)
}

pub(crate) async fn finish(job: Job) -> Result<JobResult, GuardError> {
    run(&guard(), job, pending()).await
}

pub(crate) fn text(finished: &JobResult) -> String {
    String::from_utf8_lossy(&finished.output).into_owned()
}

fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect()
}

/// Finds processes by a file in `/proc`. Zombies have neither command line nor environment, so they do not
/// count.
fn with(file: &str, matches: impl Fn(&[u8]) -> bool) -> Vec<i32> {
    let read = |pid: &i32| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    processes().into_iter().filter(|pid| matches(&read(pid))).collect()
}

pub(crate) fn guards(tag: &str) -> Vec<i32> {
    let program = guard().program;
    let line = [program.as_os_str(), OsStr::new(tag), OsStr::new("")].map(OsStrExt::as_bytes).join(&0);
    with("cmdline", |bytes| bytes == line)
}

/// The processes of the command, without its guard.
pub(crate) fn command_processes(tag: &str) -> Vec<i32> {
    let variable = format!("TEST_MARK={tag}").into_bytes();
    with("environ", |bytes| bytes.split(|byte| *byte == 0).any(|entry| entry == variable))
}

/// Polls until the condition holds, for at most two seconds.
pub(crate) async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < WAIT_TIMEOUT, "not within {WAIT_TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn wait_until_running(tag: &str, count: usize) {
    wait_until("the command runs", || command_processes(tag).len() >= count).await;
}

pub(crate) async fn wait_until_gone(tag: &str) {
    wait_until("all are gone", || guards(tag).is_empty() && command_processes(tag).is_empty()).await;
}

/// Asserts that all processes have exited. After a result this needs no waiting.
pub(crate) fn assert_gone(tag: &str) {
    assert_eq!((guards(tag), command_processes(tag)), (Vec::new(), Vec::new()));
}

/// Guards that are dead children of this process and have not been reaped.
pub(crate) fn zombie_guards() -> usize {
    let own = std::process::id().to_string();
    let is_zombie = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        stat.contains("(brigade-guard)")
            && fields.first() == Some(&"Z")
            && fields.get(1) == Some(&own.as_str())
    };
    processes().iter().filter(|pid| is_zombie(pid)).count()
}
