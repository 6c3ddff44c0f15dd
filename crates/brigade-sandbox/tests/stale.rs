//! A runner that dies or hangs, and its successor.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use brigade_sandbox::{GuardError, end_stale};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    assert_gone, command_processes, finish, guards, job, job_with_tag, wait_until_gone, wait_until_running,
};

const COMMAND: &str = "setsid sh -c 'sleep 1000; :' & (sleep 1000; :) & sleep 1000; :";

/// Not a test. The tests below start it as a separate runner, with the tag in its environment.
#[tokio::test]
#[ignore = "a runner process for other tests"]
async fn runner_process() {
    let Ok(tag) = std::env::var("RUNNER_MARK") else { return };
    let command = std::env::var("RUNNER_COMMAND").unwrap();
    finish(job_with_tag(&command, tag)).await.unwrap();
}

fn start_runner(tag: &str, command: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stale::runner_process", "--ignored"])
        .env("RUNNER_MARK", tag)
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
async fn killed_runner_leaves_nothing() {
    let tag = job("").tag;
    let mut runner = start_runner(&tag, COMMAND);
    wait_until_running(&tag, 6).await;
    runner.kill().unwrap();
    runner.wait().unwrap();
    wait_until_gone(&tag).await;
}

#[tokio::test]
async fn guard_whose_runner_hangs_is_ended() {
    let tag = job("").tag;
    let mut runner = start_runner(&tag, COMMAND);
    wait_until_running(&tag, 6).await;
    send(runner.id() as i32, Signal::STOP);
    assert_eq!(end_stale(&tag, Duration::from_secs(5)).unwrap(), 1);
    assert_gone(&tag);
    runner.kill().unwrap();
    runner.wait().unwrap();
}

#[tokio::test]
async fn guard_that_cannot_report_is_ended() {
    // More output than a pipe holds, and no reader.
    let tag = job("").tag;
    let mut runner = start_runner(&tag, &format!("head -c 900000 /dev/zero; {COMMAND}"));
    wait_until_running(&tag, 6).await;
    send(runner.id() as i32, Signal::STOP);
    assert_eq!(end_stale(&tag, Duration::from_secs(5)).unwrap(), 1);
    assert_gone(&tag);
    runner.kill().unwrap();
    runner.wait().unwrap();
}

#[tokio::test]
async fn guard_that_is_stopped_is_ended() {
    let tag = job("").tag;
    let mut runner = start_runner(&tag, "kill -STOP $PPID; sleep 1000; :");
    wait_until_running(&tag, 2).await;
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert_eq!((guards(&tag).len(), command_processes(&tag).len()), (1, 2));
    assert_eq!(end_stale(&tag, Duration::from_secs(5)).unwrap(), 1);
    assert_gone(&tag);
}

#[tokio::test]
async fn end_stale_matches_only_the_exact_tag() {
    let tag = job("").tag;
    let mut runner = start_runner(&tag, COMMAND);
    wait_until_running(&tag, 6).await;
    let shorter = tag.trim_end_matches('.');
    for other in [shorter, &format!("{tag}1"), "no:body"] {
        assert_eq!(end_stale(other, Duration::from_secs(1)).unwrap(), 0);
    }
    assert_eq!((guards(&tag).len(), command_processes(&tag).len()), (1, 6));
    runner.kill().unwrap();
    runner.wait().unwrap();
    wait_until_gone(&tag).await;
}

#[tokio::test]
async fn runner_environment_is_not_visible_to_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("seen");
    let command = format!("{{ env; cat /proc/$PPID/environ; }} > {}", file.display());
    let tag = job("").tag;
    // The command itself is the secret. The runner has it in its variable RUNNER_COMMAND.
    start_runner(&tag, &command).wait().unwrap();
    let seen = std::fs::read_to_string(file).unwrap();
    assert!(seen.contains(&format!("TEST_MARK={tag}")) && !seen.contains("RUNNER"), "{seen}");
}

#[test]
fn invalid_tag_is_refused() {
    assert!(matches!(end_stale("", Duration::ZERO), Err(GuardError::InvalidJob { .. })));
}
