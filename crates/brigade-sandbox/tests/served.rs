//! Commands whose input and output are connected while they run.

use std::future::pending;

use brigade_sandbox::{ExitReason, serve};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::support::{assert_gone, guard, job, text, wait_until_gone, wait_until_running};

#[tokio::test]
async fn serve_streams_stdio_and_reports_stderr() {
    let job = job("read word; echo \"heard $word\"; echo oops >&2; exit 4");
    let tag = job.tag.clone();
    let (stream, run) = serve(guard(), job, pending()).unwrap();
    let talk = async {
        let mut stream = BufReader::new(stream);
        stream.write_all(b"you\n").await.unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        all
    };
    let (finished, received) = tokio::join!(run, talk);
    let finished = finished.unwrap();
    assert_eq!(received, "heard you\n");
    assert_eq!((finished.end, text(&finished).as_str()), (ExitReason::Exited(4), "oops\n"));
    assert_gone(&tag);
}

#[tokio::test]
async fn served_command_ends_when_its_future_is_dropped() {
    let job = job("setsid sh -c 'sleep 1000; :' & echo up; cat; sleep 1000; :");
    let tag = job.tag.clone();
    let (stream, run) = serve(guard(), job, pending()).unwrap();
    let run = tokio::spawn(run);
    let mut lines = BufReader::new(stream).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("up"));
    wait_until_running(&tag, 3).await;
    run.abort();
    assert!(lines.next_line().await.is_ok_and(|line| line.is_none()));
    wait_until_gone(&tag).await;
}
