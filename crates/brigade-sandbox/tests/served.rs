//! Commands that are spoken to while they run.

use std::future::pending;

use brigade_sandbox::{End, serve};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::support::{all_gone, assert_gone, guard, job, running, text};

#[tokio::test]
async fn a_command_is_spoken_to_and_its_errors_are_reported() {
    let job = job("read word; echo \"heard $word\"; echo oops >&2; exit 4");
    let mark = job.mark.clone();
    let (stream, run) = serve(guard(), job, pending()).unwrap();
    let talk = async {
        let mut stream = BufReader::new(stream);
        stream.write_all(b"you\n").await.unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        all
    };
    let (finished, heard) = tokio::join!(run, talk);
    let finished = finished.unwrap();
    assert_eq!(heard, "heard you\n");
    assert_eq!((finished.end, text(&finished).as_str()), (End::Exited(4), "oops\n"));
    assert_gone(&mark);
}

#[tokio::test]
async fn a_command_that_is_spoken_to_goes_when_its_future_is_dropped() {
    let job = job("setsid sh -c 'sleep 1000; :' & echo up; cat; sleep 1000; :");
    let mark = job.mark.clone();
    let (stream, run) = serve(guard(), job, pending()).unwrap();
    let run = tokio::spawn(run);
    let mut lines = BufReader::new(stream).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("up"));
    running(&mark, 3).await;
    run.abort();
    assert!(lines.next_line().await.is_ok_and(|line| line.is_none()));
    all_gone(&mark).await;
}
