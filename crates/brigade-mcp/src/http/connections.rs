//! Connections: so many at once, none that only holds its place.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::visitors::{Visitor, Visitors};

/// How long the head of a request may take.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How long requests that are being answered have when the server stops.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long accepting rests after it failed, as it does while there are no more files to open.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is ready. What is being answered then has a moment to end.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) -> io::Result<()> {
    let visitors = Visitors::new();
    let (closing, closed) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(answer(stream, router.clone(), visitors.enter(), closed.clone()));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    drop(listener);
    let _ = closing.send(());
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_WORDS, all).await;
    Ok(())
}

async fn answer(stream: TcpStream, router: Router, visitor: Visitor, mut closed: watch::Receiver<()>) {
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let known = visitor.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(known.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = visitor.told_to_leave() => return,
        _ = closed.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
