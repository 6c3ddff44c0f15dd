//! Jobs, and looks at the process table.

use std::ffi::OsStr;
use std::fs;
use std::future::pending;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use brigade_sandbox::{Finished, GuardCommand, GuardError, Job, ResourceLimits, run};

/// What must be gone is given this long.
pub(crate) const SOON: Duration = Duration::from_secs(2);

pub(crate) fn guard() -> GuardCommand {
    GuardCommand { program: PathBuf::from(env!("CARGO_BIN_EXE_brigade-guard")), arguments: Vec::new() }
}

/// A job with a mark that nobody else has. The mark is also in its environment, by which every process of the
/// command can be found, whatever it calls itself.
pub(crate) fn job(command: &str) -> Job {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("test-{}:{}.", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    marked(command, mark)
}

pub(crate) fn marked(command: &str, mark: String) -> Job {
    Job {
        command: command.to_owned(),
        directory: PathBuf::from("/"),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("TEST_MARK".into(), mark.clone())],
        time_limit: Duration::from_secs(60),
        output_limit: 1 << 20,
        limits: ResourceLimits::default(),
        mark,
    }
}

pub(crate) async fn finish(job: Job) -> Result<Finished, GuardError> {
    run(&guard(), job, pending()).await
}

pub(crate) fn text(finished: &Finished) -> String {
    String::from_utf8_lossy(&finished.output).into_owned()
}

fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect()
}

/// Zombies have neither command line nor environment, so they do not count.
fn with(file: &str, matches: impl Fn(&[u8]) -> bool) -> Vec<i32> {
    let read = |pid: &i32| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    processes().into_iter().filter(|pid| matches(&read(pid))).collect()
}

pub(crate) fn guards(mark: &str) -> Vec<i32> {
    let program = guard().program;
    let line = [program.as_os_str(), OsStr::new(mark), OsStr::new("")].map(OsStrExt::as_bytes).join(&0);
    with("cmdline", |bytes| bytes == line)
}

/// The processes of the command, without its guard.
pub(crate) fn members(mark: &str) -> Vec<i32> {
    let variable = format!("TEST_MARK={mark}").into_bytes();
    with("environ", |bytes| bytes.split(|byte| *byte == 0).any(|entry| entry == variable))
}

/// Asks again until the answer is yes or two seconds are over.
pub(crate) async fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < SOON, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn running(mark: &str, count: usize) {
    soon("the command runs", || members(mark).len() >= count).await;
}

pub(crate) async fn all_gone(mark: &str) {
    soon("all are gone", || guards(mark).is_empty() && members(mark).is_empty()).await;
}

/// After a result there is no "soon": everything is gone already.
pub(crate) fn assert_gone(mark: &str) {
    assert_eq!((guards(mark), members(mark)), (Vec::new(), Vec::new()));
}

/// Dead children of this process that nobody took note of, and that are guards.
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
