//! Nothing is left behind, whatever the command does and however it ends.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use brigade_sandbox::{End, run};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    all_gone, assert_gone, finish, guard, guards, job, members, running, soon, text, zombie_guards,
};

/// Leaves a process in a session of its own that a kill of the process group would miss.
const ESCAPE: &str = "setsid sh -c 'sleep 1000; :' & ";

/// Forks twice, the parents exit, the last one keeps the output open.
const DAEMON: &str = "setsid sh -c '(sleep 1000; :) & exit' ; echo started; ";

async fn cancel_when_running(command: &str, count: usize) -> (brigade_sandbox::Finished, String) {
    let job = job(command);
    let mark = job.mark.clone();
    let mut cancelled = Instant::now();
    let finished = {
        let cancel = async {
            running(&mark, count).await;
            cancelled = Instant::now();
        };
        run(&guard(), job, cancel).await.unwrap()
    };
    assert!(cancelled.elapsed() < Duration::from_secs(2), "{:?}", cancelled.elapsed());
    (finished, mark)
}

#[tokio::test]
async fn an_escaped_process_is_gone_after_the_normal_end() {
    let job = job(&format!("{ESCAPE} sleep 0.3; exit 5"));
    let mark = job.mark.clone();
    let finished = finish(job).await.unwrap();
    assert_eq!(finished.end, End::Exited(5));
    assert!(finished.duration < Duration::from_secs(2), "{:?}", finished.duration);
    assert_gone(&mark);
}

#[tokio::test]
async fn an_escaped_process_is_gone_after_the_time_limit() {
    let mut job = job(&format!("{ESCAPE} sleep 1000"));
    job.time_limit = Duration::from_millis(400);
    let mark = job.mark.clone();
    assert_eq!(finish(job).await.unwrap().end, End::TimedOut);
    assert_gone(&mark);
}

#[tokio::test]
async fn an_escaped_process_is_gone_after_cancelling() {
    let (finished, mark) = cancel_when_running(&format!("echo so far; {ESCAPE} sleep 1000; :"), 4).await;
    assert_eq!((finished.end, text(&finished).as_str()), (End::Cancelled, "so far\n"));
    assert_gone(&mark);
}

#[tokio::test]
async fn a_daemon_that_holds_the_output_does_not_hang_the_result() {
    let job = job(&format!("{DAEMON} sleep 0.2"));
    let mark = job.mark.clone();
    let finished = finish(job).await.unwrap();
    assert_eq!((finished.end, text(&finished).as_str()), (End::Exited(0), "started\n"));
    assert!(finished.duration < Duration::from_secs(2), "{:?}", finished.duration);
    assert_gone(&mark);
}

#[tokio::test]
async fn signals_that_can_be_ignored_are_not_enough() {
    let command = "trap '' TERM INT HUP; (trap '' TERM; sleep 1000; :) & while :; do sleep 1000; done";
    let (finished, mark) = cancel_when_running(command, 4).await;
    assert_eq!(finished.end, End::Cancelled);
    assert_gone(&mark);
}

#[tokio::test]
async fn cancelling_at_once_runs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut job = job("echo ran > ran");
    job.directory = directory.path().into();
    let mark = job.mark.clone();
    let finished = run(&guard(), job, async {}).await.unwrap();
    assert_eq!((finished.end, finished.output), (End::Cancelled, Vec::new()));
    assert_gone(&mark);
    assert!(!directory.path().join("ran").exists());
}

#[tokio::test]
async fn a_dropped_future_ends_the_command_and_leaves_no_zombie() {
    let job = job(&format!("{ESCAPE} {DAEMON} sleep 1000; :"));
    let mark = job.mark.clone();
    tokio::select! {
        _ = finish(job) => panic!("the command ended by itself"),
        () = running(&mark, 5) => {}
    }
    all_gone(&mark).await;
    soon("no zombie is left", || zombie_guards() == 0).await;
}

#[tokio::test]
async fn a_result_leaves_no_zombie() {
    finish(job("true")).await.unwrap();
    soon("no zombie is left", || zombie_guards() == 0).await;
}

#[tokio::test]
async fn orphans_are_reaped_while_the_command_runs() {
    // The guard's only child must be the shell that asks.
    let command =
        "for i in 1 2 3 4 5; do sh -c 'true &'; done; sleep 0.8; wc -w < /proc/$PPID/task/$PPID/children";
    assert_eq!(text(&finish(job(command)).await.unwrap()), "1\n");
}

/// Runs a command that multiplies or flees. Each of those gives up by itself after some seconds, so that a guard
/// that fails does not take the machine with it; the result must be there well before that.
async fn converges(command: &str) {
    let job = job(command);
    let mark = job.mark.clone();
    let begun = Instant::now();
    assert_eq!(finish(job).await.unwrap().end, End::Exited(0));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_gone(&mark);
}

#[tokio::test]
async fn a_fork_heavy_command_converges() {
    converges(
        "perl -e '$end = time + 8; while (time < $end) { fork if $n++ < 7; select(undef, undef, undef, 0.01) }' & \
         sleep 0.4",
    )
    .await;
}

#[tokio::test]
async fn a_process_that_always_flees_is_caught() {
    // Each process forks and exits at once, so its number is always a new one.
    converges(
        "for i in 1 2 3; do setsid perl -e '$end = time + 8; while (time < $end) { exit if fork; select(undef, undef, undef, 0.003) }' & done; \
         sleep 0.3",
    )
    .await;
}

#[tokio::test]
async fn a_parent_that_restarts_its_children_is_ended() {
    converges("for i in 1 2 3 4; do timeout 8 setsid sh -c 'while :; do sleep 5; done' & done; sleep 0.3")
        .await;
}

#[tokio::test]
async fn a_command_that_stops_its_guard_can_still_be_cancelled() {
    let (finished, mark) = cancel_when_running("kill -STOP $PPID; sleep 1000; :", 2).await;
    assert_eq!(finished.end, End::Cancelled);
    assert_gone(&mark);
}

#[tokio::test]
async fn a_guard_that_is_asked_by_a_signal_ends_everything() {
    let job = job(&format!("{ESCAPE} kill -TERM $PPID; sleep 1000"));
    let mark = job.mark.clone();
    assert_eq!(finish(job).await.unwrap().end, End::Cancelled);
    assert_gone(&mark);
}

/// Starts a guard as the runner would and sends it the given bytes after its ready byte. Unless the runner lives
/// on, it is gone before the guard gets to read them.
fn guard_with_input(mark: &str, bytes: &[u8], lives: bool) -> Option<i32> {
    let mut command = Command::new(guard().program);
    let mut child = command.arg(mark).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let mut input = child.stdin.take();
    kill_process(pid, Signal::STOP).unwrap();
    input.as_mut().unwrap().write_all(bytes).unwrap();
    input = input.filter(|_| lives);
    kill_process(pid, Signal::CONT).unwrap();
    let code = child.wait().unwrap().code();
    drop(input);
    code
}

#[tokio::test]
async fn a_job_that_does_not_arrive_whole_runs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ran");
    let body = format!(
        r#"{{"command":"echo ran > {}","directory":[47],"environment":[],"time_limit":{{"secs":9,"nanos":0}},
        "output_limit":9,"limits":{{}}}}"#,
        file.display()
    );
    let whole = [&(body.len() as u32).to_le_bytes()[..], body.as_bytes()].concat();
    let mark = job("").mark;
    // The last one is whole, but its sender is gone.
    for length in [0, 2, 4, 20, whole.len() - 1, whole.len()] {
        assert_eq!(guard_with_input(&mark, &whole[..length], false), Some(3), "{length} bytes");
    }
    assert_gone(&mark);
    assert!(!file.exists());
    assert_eq!(guard_with_input(&mark, &whole, true), Some(0));
    assert!(file.exists(), "the job itself is a good one");
}

#[tokio::test]
async fn many_at_once_do_not_disturb_each_other() {
    let jobs: Vec<_> = (0..8).map(|number| finish(job(&format!("sleep 0.2; echo {number}")))).collect();
    let mut tasks = tokio::task::JoinSet::new();
    jobs.into_iter().for_each(|job| drop(tasks.spawn(job)));
    let mut seen: Vec<String> =
        tasks.join_all().await.iter().map(|end| text(end.as_ref().unwrap())).collect();
    seen.sort();
    assert_eq!(seen.concat(), "0\n1\n2\n3\n4\n5\n6\n7\n");
    assert!(guards("nobody:has-this").is_empty() && members("nobody:has-this").is_empty());
}
