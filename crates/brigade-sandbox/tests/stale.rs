//! A runner that dies or hangs, and the one that comes after it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use brigade_sandbox::{GuardError, end_stale};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{all_gone, assert_gone, finish, guards, job, marked, members, running};

const COMMAND: &str = "setsid sh -c 'sleep 1000; :' & (sleep 1000; :) & sleep 1000; :";

/// Not a test: what the tests below start as a runner of their own, with the mark in its environment.
#[tokio::test]
#[ignore = "a runner process for other tests"]
async fn runner_process() {
    let Ok(mark) = std::env::var("RUNNER_MARK") else { return };
    let command = std::env::var("RUNNER_COMMAND").unwrap();
    finish(marked(&command, mark)).await.unwrap();
}

fn start_runner(mark: &str, command: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stale::runner_process", "--ignored"])
        .env("RUNNER_MARK", mark)
        .env("RUNNER_COMMAND", command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn a_runner_that_is_killed_leaves_nothing() {
    let mark = job("").mark;
    let mut runner = start_runner(&mark, COMMAND);
    running(&mark, 6).await;
    runner.kill().unwrap();
    runner.wait().unwrap();
    all_gone(&mark).await;
}

#[tokio::test]
async fn a_guard_whose_runner_hangs_is_ended() {
    let mark = job("").mark;
    let mut runner = start_runner(&mark, COMMAND);
    running(&mark, 6).await;
    send(runner.id() as i32, Signal::STOP);
    assert_eq!(end_stale(&mark, Duration::from_secs(5)).unwrap(), 1);
    assert_gone(&mark);
    runner.kill().unwrap();
    runner.wait().unwrap();
}

#[tokio::test]
async fn a_guard_that_cannot_report_is_ended() {
    // More output than a pipe holds, and nobody who reads it.
    let mark = job("").mark;
    let mut runner = start_runner(&mark, &format!("head -c 900000 /dev/zero; {COMMAND}"));
    running(&mark, 6).await;
    send(runner.id() as i32, Signal::STOP);
    assert_eq!(end_stale(&mark, Duration::from_secs(5)).unwrap(), 1);
    assert_gone(&mark);
    runner.kill().unwrap();
    runner.wait().unwrap();
}

#[tokio::test]
async fn a_guard_that_is_stopped_is_ended() {
    let mark = job("").mark;
    let mut runner = start_runner(&mark, "kill -STOP $PPID; sleep 1000; :");
    running(&mark, 2).await;
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert_eq!((guards(&mark).len(), members(&mark).len()), (1, 2));
    assert_eq!(end_stale(&mark, Duration::from_secs(5)).unwrap(), 1);
    assert_gone(&mark);
}

#[tokio::test]
async fn only_the_exact_mark_is_meant() {
    let mark = job("").mark;
    let mut runner = start_runner(&mark, COMMAND);
    running(&mark, 6).await;
    let shorter = mark.trim_end_matches('.');
    for other in [shorter, &format!("{mark}1"), "no:body"] {
        assert_eq!(end_stale(other, Duration::from_secs(1)).unwrap(), 0);
    }
    assert_eq!((guards(&mark).len(), members(&mark).len()), (1, 6));
    runner.kill().unwrap();
    runner.wait().unwrap();
    all_gone(&mark).await;
}

#[tokio::test]
async fn a_secret_of_the_runner_is_not_seen() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("seen");
    let command = format!("{{ env; cat /proc/$PPID/environ; }} > {}", file.display());
    let mark = job("").mark;
    // The command itself is the secret: the runner has it in its variable RUNNER_COMMAND.
    start_runner(&mark, &command).wait().unwrap();
    let seen = std::fs::read_to_string(file).unwrap();
    assert!(seen.contains(&format!("TEST_MARK={mark}")) && !seen.contains("RUNNER"), "{seen}");
}

#[test]
fn a_bad_mark_is_refused() {
    assert!(matches!(end_stale("", Duration::ZERO), Err(GuardError::InvalidJob { .. })));
}
