//! Connection handling, with limits on the number of connections and on idle ones.

use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection_limits::{ConnectionHandle, ConnectionLimits};
use crate::middleware::guarded;
use crate::{Listener, Policy};

/// Time that open requests have to complete when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after a failed accept, for example because too many files are open.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

impl Listener {
    /// Serves the router behind the policy until `stop` is ready. Open requests then have two seconds to complete.
    pub async fn serve(self, router: Router, policy: Policy, stop: impl Future<Output = ()>) {
        let limits = ConnectionLimits::new(policy.max_connections);
        let header_timeout = policy.header_timeout;
        let router = guarded(router, policy);
        let (closing, closed) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                () = &mut stop => break,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (router, handle, closed) = (router.clone(), limits.register(), closed.clone());
                    connections.spawn(handle_connection(stream, router, header_timeout, handle, closed));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_PAUSE).await,
            }
        }
        drop(self);
        let _ = closing.send(());
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, all).await;
    }
}

async fn handle_connection(
    stream: TcpStream,
    router: Router,
    header_timeout: Duration,
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
        .header_read_timeout(header_timeout)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = connection_handle.evicted() => return,
        _ = closed.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
