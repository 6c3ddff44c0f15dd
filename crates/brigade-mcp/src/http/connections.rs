//! Connection handling, with limits on the number of connections and on idle ones.

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

use super::connection_limits::{ConnectionHandle, ConnectionLimits};

/// Time limit for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that open requests have to complete when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after a failed accept, for example because too many files are open.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is ready. Open requests then have `DRAIN_TIMEOUT` to complete.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) -> io::Result<()> {
    let limits = ConnectionLimits::new();
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
                connections.spawn(handle_connection(
                    stream,
                    router.clone(),
                    limits.register(),
                    closed.clone(),
                ));
            }
            Err(_) => tokio::time::sleep(ACCEPT_RETRY_PAUSE).await,
        }
    }
    drop(listener);
    let _ = closing.send(());
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, all).await;
    Ok(())
}

async fn handle_connection(
    stream: TcpStream,
    router: Router,
    connection_handle: ConnectionHandle,
    mut closed: watch::Receiver<()>,
) {
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let handle = connection_handle.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(handle.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = connection_handle.evicted() => return,
        _ = closed.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
