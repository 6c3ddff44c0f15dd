//! Hosts that someone decides about while the connection waits.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::sandbox::HostRequest;

type Asked = mpsc::UnboundedReceiver<(HostRequest, oneshot::Sender<bool>)>;

/// A decider whose questions the test answers. A question that is withdrawn counts as denied.
fn decider() -> (HostDecider, Asked) {
    let (sender, questions) = mpsc::unbounded_channel();
    let decider = HostDecider::new(move |request| {
        let (answer, answered) = oneshot::channel();
        sender.send((request, answer)).unwrap();
        async move { answered.await.unwrap_or(false) }.boxed()
    });
    (decider, questions)
}

const ANSWERS: [(&str, &[&[&str]]); 2] =
    [("new.example", &PUBLIC_ANSWERS), ("rebound.example", &[&["127.0.0.1"]])];

#[tokio::test]
async fn held_connections_of_a_host_share_one_question() {
    let (decider, mut asked) = decider();
    let setup = Setup::with(&["ok.com"], decider, &ANSWERS).await;
    let connect = "CONNECT new.example:8443 HTTP/1.1\r\n\r\n";
    let (mut first, mut second) = (setup.open(connect).await, setup.open(connect).await);
    let (request, answer) = soon(asked.recv()).await.unwrap();
    assert_eq!(request, HostRequest::new("new.example", 8443));
    assert!(setup.connected().is_empty(), "nothing is connected to before the answer");
    answer.send(true).unwrap();
    for client in [&mut first, &mut second] {
        let _server = soon(setup.server.accept()).await.unwrap();
        let mut status = [0; 12];
        soon(client.read_exact(&mut status)).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    // The answer holds for this port of this host.
    drop(setup.tunnel("new.example:8443").await);
    let mut other = setup.open("CONNECT new.example:443 HTTP/1.1\r\n\r\n").await;
    let (request, answer) = soon(asked.recv()).await.unwrap();
    assert_eq!(request.to_string(), "new.example:443");
    answer.send(false).unwrap();
    assert!(rest(&mut other).await.contains("the connection was not approved"));
    let response = setup.refused("CONNECT new.example:443 HTTP/1.1\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    assert!(asked.try_recv().is_err(), "a denial is not asked about again");
}

#[tokio::test]
async fn addresses_that_are_not_public_are_never_asked_about() {
    let (decider, mut asked) = decider();
    let setup = Setup::with(&[], decider, &ANSWERS).await;
    for to in
        ["127.0.0.1:80", "169.254.169.254:80", "10.0.0.1:443", "[::1]:80", "localhost:80", "[fd00::1]:80"]
    {
        let response = setup.refused(&format!("CONNECT {to} HTTP/1.1\r\n\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 403"), "{to}: {response}");
    }
    assert!(asked.try_recv().is_err());
    // A name that was allowed still does not lead there.
    let mut client = setup.open("CONNECT rebound.example:443 HTTP/1.1\r\n\r\n").await;
    soon(asked.recv()).await.unwrap().1.send(true).unwrap();
    assert!(rest(&mut client).await.contains("an address of this machine"));
    assert!(setup.connected().is_empty());
}

#[tokio::test]
async fn open_questions_are_bounded_and_withdrawn() {
    let (decider, mut asked) = decider();
    let setup = Setup::with(&[], decider, &[]).await;
    let mut held = Vec::new();
    let mut questions = Vec::new();
    for number in 0..HostDecider::MAX_OPEN {
        held.push(setup.open(&format!("CONNECT h{number}.example:443 HTTP/1.1\r\n\r\n")).await);
        questions.push(soon(asked.recv()).await.unwrap());
    }
    let response = setup.refused("CONNECT other.example:443 HTTP/1.1\r\n\r\n").await;
    assert!(response.contains("too many approval requests for other hosts are open"), "{response}");
    // An answer makes room for the next question.
    questions.remove(0).1.send(false).unwrap();
    assert!(rest(&mut held.remove(0)).await.starts_with("HTTP/1.1 403"));
    let _more = setup.open("CONNECT other.example:443 HTTP/1.1\r\n\r\n").await;
    questions.push(soon(asked.recv()).await.unwrap());
    drop(setup.task);
    for (_, mut answer) in questions {
        soon(answer.closed()).await;
    }
}

#[tokio::test]
async fn listed_hosts_are_not_asked_about() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let decider = HostDecider::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { false }.boxed()
    });
    let setup = Setup::with(&["ok.com"], decider, &[("ok.com", &PUBLIC_ANSWERS)]).await;
    drop(setup.tunnel("ok.com:443").await);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    setup.refused("CONNECT evil.com:443 HTTP/1.1\r\n\r\n").await;
    assert_eq!(count.load(Ordering::Relaxed), 1);
}
