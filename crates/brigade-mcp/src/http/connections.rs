//! Connections: so many at once, none that only holds its place.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// How many connections there may be at once. Others wait to be accepted.
const MAX_CONNECTIONS: usize = 256;

/// How long the head of a request may take.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How long requests that are being answered have when the server stops.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long accepting rests after it failed, as it does while there are no more files to open.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is ready. What is being answered then has a moment to end.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (closing, closed) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((listener.accept().await, place))
        };
        let (accepted, place) = tokio::select! {
            accepted = accept => accepted?,
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = answer(stream, router.clone(), closed.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
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

async fn answer(stream: TcpStream, router: Router, mut closed: watch::Receiver<()>) {
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closed.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
