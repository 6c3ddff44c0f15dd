//! No process is left behind, whatever the command does and however it ends.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use brigade_sandbox::{ExitReason, run};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    assert_gone, command_processes, finish, guard, guards, job, text, wait_until, wait_until_gone,
    wait_until_running, zombie_guards,
};

/// Leaves a process in a separate session that a kill of the process group would miss.
const ESCAPE: &str = "setsid sh -c 'sleep 1000; :' & ";

/// Forks twice. The parents exit, and the last process keeps the output open.
const DAEMON: &str = "setsid sh -c '(sleep 1000; :) & exit' ; echo started; ";

async fn cancel_when_running(command: &str, count: usize) -> (brigade_sandbox::JobResult, String) {
    let job = job(command);
    let tag = job.tag.clone();
    let mut cancelled = Instant::now();
    let finished = {
        let cancel = async {
            wait_until_running(&tag, count).await;
            cancelled = Instant::now();
        };
        run(&guard(), job, cancel).await.unwrap()
    };
    assert!(cancelled.elapsed() < Duration::from_secs(2), "{:?}", cancelled.elapsed());
    (finished, tag)
}

#[tokio::test]
async fn escaped_process_is_gone_after_the_normal_end() {
    let job = job(&format!("{ESCAPE} sleep 0.3; exit 5"));
    let tag = job.tag.clone();
    let finished = finish(job).await.unwrap();
    assert_eq!(finished.end, ExitReason::Exited(5));
    assert!(finished.duration < Duration::from_secs(2), "{:?}", finished.duration);
    assert_gone(&tag);
}

#[tokio::test]
async fn escaped_process_is_gone_after_the_time_limit() {
    let mut job = job(&format!("{ESCAPE} sleep 1000"));
    job.time_limit = Duration::from_millis(400);
    let tag = job.tag.clone();
    assert_eq!(finish(job).await.unwrap().end, ExitReason::TimedOut);
    assert_gone(&tag);
}

#[tokio::test]
async fn escaped_process_is_gone_after_cancelling() {
    let (finished, tag) = cancel_when_running(&format!("echo so far; {ESCAPE} sleep 1000; :"), 4).await;
    assert_eq!((finished.end, text(&finished).as_str()), (ExitReason::Cancelled, "so far\n"));
    assert_gone(&tag);
}

#[tokio::test]
async fn daemon_that_holds_the_output_does_not_hang_the_result() {
    let job = job(&format!("{DAEMON} sleep 0.2"));
    let tag = job.tag.clone();
    let finished = finish(job).await.unwrap();
    assert_eq!((finished.end, text(&finished).as_str()), (ExitReason::Exited(0), "started\n"));
    assert!(finished.duration < Duration::from_secs(2), "{:?}", finished.duration);
    assert_gone(&tag);
}

#[tokio::test]
async fn command_that_ignores_signals_is_killed() {
    let command = "trap '' TERM INT HUP; (trap '' TERM; sleep 1000; :) & while :; do sleep 1000; done";
    let (finished, tag) = cancel_when_running(command, 4).await;
    assert_eq!(finished.end, ExitReason::Cancelled);
    assert_gone(&tag);
}

#[tokio::test]
async fn immediate_cancel_runs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut job = job("echo ran > ran");
    job.directory = directory.path().into();
    let tag = job.tag.clone();
    let finished = run(&guard(), job, async {}).await.unwrap();
    assert_eq!((finished.end, finished.output), (ExitReason::Cancelled, Vec::new()));
    assert_gone(&tag);
    assert!(!directory.path().join("ran").exists());
}

#[tokio::test]
async fn dropped_future_ends_the_command_and_leaves_no_zombie() {
    let job = job(&format!("{ESCAPE} {DAEMON} sleep 1000; :"));
    let tag = job.tag.clone();
    tokio::select! {
        _ = finish(job) => panic!("the command ended by itself"),
        () = wait_until_running(&tag, 5) => {}
    }
    wait_until_gone(&tag).await;
    wait_until("no zombie is left", || zombie_guards() == 0).await;
}

#[tokio::test]
async fn finished_job_leaves_no_zombie() {
    finish(job("true")).await.unwrap();
    wait_until("no zombie is left", || zombie_guards() == 0).await;
}

#[tokio::test]
async fn orphans_are_reaped_while_the_command_runs() {
    // The only child of the guard must be the shell that runs this.
    let command =
        "for i in 1 2 3 4 5; do sh -c 'true &'; done; sleep 0.8; wc -w < /proc/$PPID/task/$PPID/children";
    assert_eq!(text(&finish(job(command)).await.unwrap()), "1\n");
}

/// Runs a command that multiplies or escapes. Its processes exit after some seconds, so that a failing guard
/// does not take the machine down. The result must arrive well before that.
async fn assert_cleans_up(command: &str) {
    let job = job(command);
    let tag = job.tag.clone();
    let started = Instant::now();
    assert_eq!(finish(job).await.unwrap().end, ExitReason::Exited(0));
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert_gone(&tag);
}

#[tokio::test]
async fn fork_heavy_command_converges() {
    assert_cleans_up(
        "perl -e '$end = time + 8; while (time < $end) { fork if $n++ < 7; select(undef, undef, undef, 0.01) }' & \
         sleep 0.4",
    )
    .await;
}

#[tokio::test]
async fn process_that_keeps_forking_is_caught() {
    // Each process forks and exits at once, so its pid changes all the time.
    assert_cleans_up(
        "for i in 1 2 3; do setsid perl -e '$end = time + 8; while (time < $end) { exit if fork; select(undef, undef, undef, 0.003) }' & done; \
         sleep 0.3",
    )
    .await;
}

#[tokio::test]
async fn parent_that_restarts_its_children_is_ended() {
    assert_cleans_up(
        "for i in 1 2 3 4; do timeout 8 setsid sh -c 'while :; do sleep 5; done' & done; sleep 0.3",
    )
    .await;
}

#[tokio::test]
async fn command_that_stops_its_guard_can_still_be_cancelled() {
    let (finished, tag) = cancel_when_running("kill -STOP $PPID; sleep 1000; :", 2).await;
    assert_eq!(finished.end, ExitReason::Cancelled);
    assert_gone(&tag);
}

#[tokio::test]
async fn terminated_guard_ends_everything() {
    let job = job(&format!("{ESCAPE} kill -TERM $PPID; sleep 1000"));
    let tag = job.tag.clone();
    assert_eq!(finish(job).await.unwrap().end, ExitReason::Cancelled);
    assert_gone(&tag);
}

/// Whether any process but this one has the pipe open.
fn is_open_elsewhere(pipe: &Path, reader: u32) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let others = processes.filter(|process| process.file_name() != *reader.to_string());
    others.filter_map(|process| std::fs::read_dir(process.path().join("fd")).ok()).any(|files| {
        files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target == *pipe))
    })
}

/// Starts a guard as the runner would and sends it the given bytes after its ready byte. Unless
/// `runner_stays` is set, the runner has exited before the guard can read them.
fn guard_with_input(tag: &str, bytes: &[u8], runner_stays: bool) -> Option<i32> {
    let mut command = Command::new(guard().program);
    let mut child = command.arg(tag).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let mut input = child.stdin.take();
    kill_process(pid, Signal::STOP).unwrap();
    input.as_mut().unwrap().write_all(bytes).unwrap();
    let pipe = std::fs::read_link(format!("/proc/self/fd/{}", input.as_ref().unwrap().as_raw_fd())).unwrap();
    input = input.filter(|_| runner_stays);
    // A process that another test is starting may hold a copy for a moment.
    while !runner_stays && is_open_elsewhere(&pipe, child.id()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(pid, Signal::CONT).unwrap();
    let code = child.wait().unwrap().code();
    drop(input);
    code
}

#[tokio::test]
async fn incomplete_job_runs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ran");
    let body = format!(
        r#"{{"Run":{{"command":"echo ran > {}","directory":[47],"environment":[],
        "time_limit":{{"secs":9,"nanos":0}},"output_limit":9,"limits":{{}},"confinement":"none"}}}}"#,
        file.display()
    );
    let whole = [&(body.len() as u32).to_le_bytes()[..], body.as_bytes()].concat();
    let tag = job("").tag;
    // The last one is complete, but its sender has exited.
    for length in [0, 2, 4, 20, whole.len() - 1, whole.len()] {
        assert_eq!(guard_with_input(&tag, &whole[..length], false), Some(3), "{length} bytes");
    }
    assert_gone(&tag);
    assert!(!file.exists());
    assert_eq!(guard_with_input(&tag, &whole, true), Some(0));
    assert!(file.exists(), "the job itself is a good one");
}

#[tokio::test]
async fn parallel_jobs_do_not_interfere() {
    let jobs: Vec<_> = (0..8).map(|number| finish(job(&format!("sleep 0.2; echo {number}")))).collect();
    let mut tasks = tokio::task::JoinSet::new();
    jobs.into_iter().for_each(|job| drop(tasks.spawn(job)));
    let mut seen: Vec<String> =
        tasks.join_all().await.iter().map(|end| text(end.as_ref().unwrap())).collect();
    seen.sort();
    assert_eq!(seen.concat(), "0\n1\n2\n3\n4\n5\n6\n7\n");
    assert!(guards("nobody:has-this").is_empty() && command_processes("nobody:has-this").is_empty());
}
