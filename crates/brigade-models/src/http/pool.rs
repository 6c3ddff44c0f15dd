//! Pooled connections to one provider.
//!
//! A connection is polled by the task that waits for its reply. In a task of its own it would wake the reader
//! for each chunk, and the reader would wake it for the next, across threads.

use std::error::Error;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use brigade_base::task::{AbortOnDrop, spawn};
use brigade_http_client::{Proxy, tls};
use futures::future::poll_fn;
use futures::task::AtomicWaker;
use http_body_util::Full;
use hyper::Uri;
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;
use tracing::{debug, trace};
use url::Url;

use super::failure::root_cause;
use super::proxy::{Tunnel, TunnelError};

/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Interval and number of TCP keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
/// Maximum time that sent data may remain unacknowledged.
#[cfg(target_os = "linux")]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of polls of a connection without yielding.
const MAX_POLLS: usize = 32;

/// An HTTP request with its whole body.
pub(super) type HttpRequest = hyper::Request<Full<Bytes>>;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Reasons why a reply did not arrive or broke off.
#[derive(Debug)]
pub(super) enum ConnectionError {
    /// The connection was not established in time.
    TimedOut,
    /// The connection failed.
    Unreachable(String),
    /// The proxy did not open a tunnel.
    Proxy(TunnelError),
    /// The connection broke.
    Broken(String),
}

impl ConnectionError {
    /// Cause without any text of the peer, for diagnostics.
    fn kind(&self) -> &'static str {
        match self {
            ConnectionError::TimedOut => "timed out",
            ConnectionError::Unreachable(_) => "unreachable",
            ConnectionError::Proxy(_) => "proxy",
            ConnectionError::Broken(_) => "broken",
        }
    }
}

/// All connections to one provider.
pub(super) struct ConnectionPool {
    to: Uri,
    connector: Connector,
    connect_timeout: Duration,
    max_idle: usize,
    idle: Mutex<IdleConnections>,
}

enum Connector {
    Plain(HttpConnector),
    Secure(HttpsConnector<HttpConnector>),
    Tunnelled(HttpsConnector<Tunnel>),
}

#[derive(Default)]
struct IdleConnections {
    /// The most recently used connection is last.
    connections: Vec<Connection>,
    /// Closes idle connections when they expire.
    sweeper: Option<AbortOnDrop<()>>,
}

/// A connection with its request sender.
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Box<ConnectionDriver>,
    last_used: Instant,
}

/// Polls a connection.
struct ConnectionDriver {
    /// None after the connection has ended, so that no task waits for it.
    connection: Option<http1::Connection<Stream, Full<Bytes>>>,
    wake_flag: Arc<WakeFlag>,
    waker: Waker,
}

/// Waker of a connection. Most wake-ups occur while the connection is polled anyway, and wake no task.
#[derive(Default)]
struct WakeFlag {
    is_set: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl ConnectionPool {
    /// Creates a pool for this address that keeps at most `max_idle` idle connections.
    pub(super) fn new(
        base: &Url,
        proxy: Option<Proxy>,
        connect_timeout: Duration,
        max_idle: usize,
    ) -> std::io::Result<Arc<ConnectionPool>> {
        let to = Uri::try_from(base.as_str()).map_err(std::io::Error::other)?;
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
        // Without TLS, no certificates need to be loaded.
        let connector = match (base.scheme(), proxy) {
            ("http", _) => Ok(Connector::Plain(tcp)),
            (_, Some(proxy)) => with_tls(Tunnel::new(tcp, proxy)).map(Connector::Tunnelled),
            (_, None) => {
                tcp.enforce_http(false);
                with_tls(tcp).map(Connector::Secure)
            }
        };
        let connector = connector?;
        Ok(Arc::new(ConnectionPool { to, connector, connect_timeout, max_idle, idle: Mutex::default() }))
    }

    /// Sends a request and waits for the response head. If an idle connection turns out to be closed, the
    /// request was not sent and another connection is used.
    pub(super) async fn send(
        self: Arc<Self>,
        mut request: HttpRequest,
    ) -> Result<Box<HttpResponse>, ConnectionError> {
        loop {
            let idle = self.take();
            let is_reused = idle.is_some();
            let mut connection = match idle {
                Some(connection) => {
                    trace!(target: "brigade::http", host = self.to.host(), "connection reused");
                    connection
                }
                // Boxed, because it is large and most requests find a connection.
                None => Box::pin(self.connect()).await?,
            };
            let mut reply = pin!(connection.sender.try_send_request(request));
            match connection.driver.drive_until(|context| reply.as_mut().poll(context)).await {
                Ok(reply) => return Ok(Box::new(HttpResponse::new(self, connection, reply))),
                Err(mut error) => match error.take_message().filter(|_| is_reused) {
                    Some(unsent) => request = unsent,
                    None => return Err(ConnectionError::Broken(root_cause(error.error()))),
                },
            }
        }
    }

    async fn connect(&self) -> Result<Connection, ConnectionError> {
        let start = Instant::now();
        let result = self.try_connect().await;
        let elapsed_ms = start.elapsed().as_millis() as u64;
        let (host, port) = (self.to.host(), self.to.port_u16());
        match &result {
            Ok(_) => debug!(target: "brigade::http", host, port, elapsed_ms, "connected"),
            Err(error) => {
                let cause = error.kind();
                debug!(target: "brigade::http", host, port, elapsed_ms, cause, "cannot connect");
            }
        }
        result
    }

    async fn try_connect(&self) -> Result<Connection, ConnectionError> {
        let connect = async {
            let stream = self.connector.connect(self.to.clone()).await.map_err(connect_error)?;
            http1::handshake(stream).await.map_err(|error| ConnectionError::Unreachable(root_cause(&error)))
        };
        let connected = tokio::time::timeout(self.connect_timeout, connect).await;
        let (sender, connection) = connected.map_err(|_| ConnectionError::TimedOut)??;
        let wake_flag = Arc::new(WakeFlag::default());
        let waker = Waker::from(wake_flag.clone());
        let driver = Box::new(ConnectionDriver { connection: Some(connection), wake_flag, waker });
        Ok(Connection { sender, driver, last_used: Instant::now() })
    }

    /// Takes an open idle connection.
    fn take(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle().connections.pop()?;
            if connection.can_send() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    fn put_back(self: &Arc<Self>, mut connection: Connection) {
        if !connection.can_send() {
            return;
        }
        connection.last_used = Instant::now();
        let mut idle = self.idle();
        if idle.connections.len() < self.max_idle {
            idle.connections.push(connection);
            if idle.sweeper.as_ref().is_none_or(|sweeper| sweeper.0.is_finished()) {
                let pool = Arc::downgrade(self);
                let sweep = async move {
                    while let Some(pool) = pool.upgrade()
                        && pool.sweep()
                    {
                        drop(pool);
                        tokio::time::sleep(IDLE_TIMEOUT).await;
                    }
                };
                idle.sweeper = Some(AbortOnDrop(spawn(sweep)));
            }
        }
    }

    /// Closes expired idle connections. Returns whether any are left.
    fn sweep(&self) -> bool {
        let mut idle = self.idle();
        idle.connections
            .retain_mut(|connection| connection.last_used.elapsed() < IDLE_TIMEOUT && connection.can_send());
        !idle.connections.is_empty()
    }

    fn idle(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Wire").field("to", &self.to).finish_non_exhaustive()
    }
}

impl Connector {
    async fn connect(&self, to: Uri) -> Result<Stream, Box<dyn Error + Send + Sync>> {
        match self {
            Connector::Plain(tcp) => Ok(MaybeHttpsStream::Http(tcp.clone().call(to).await?)),
            Connector::Secure(tls) => tls.clone().call(to).await,
            Connector::Tunnelled(tls) => tls.clone().call(to).await,
        }
    }
}

fn connect_error(error: Box<dyn Error + Send + Sync>) -> ConnectionError {
    match error.downcast::<TunnelError>() {
        Ok(error) => ConnectionError::Proxy(*error),
        Err(error) => ConnectionError::Unreachable(root_cause(&*error)),
    }
}

/// Adds TLS to a connector.
fn with_tls<C>(connector: C) -> std::io::Result<HttpsConnector<C>> {
    let builder = HttpsConnectorBuilder::new().with_provider_and_platform_verifier(tls::provider())?;
    Ok(builder.https_only().enable_http1().wrap_connector(connector))
}

impl Connection {
    /// Whether another request can be sent. This also detects a connection that was closed while idle.
    fn can_send(&mut self) -> bool {
        self.driver.advance();
        self.driver.connection.is_some() && self.sender.is_ready()
    }
}

impl ConnectionDriver {
    /// Polls the connection once.
    fn advance(&mut self) {
        let mut context = Context::from_waker(&self.waker);
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(&mut context).is_ready()
        {
            self.connection = None;
        }
    }

    /// Polls the connection until `part` is ready.
    async fn drive_until<T>(&mut self, mut part: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        poll_fn(|context| {
            for _ in 0..MAX_POLLS {
                // Wake-ups during this poll must not wake the task.
                self.wake_flag.task.take();
                self.advance();
                if let Poll::Ready(part) = part(&mut Context::from_waker(&self.waker)) {
                    return Poll::Ready(part);
                }
                self.wake_flag.task.register(context.waker());
                if !self.wake_flag.is_set.swap(false, Ordering::AcqRel) {
                    return Poll::Pending;
                }
            }
            // Yield to other tasks. The task's cooperative budget may also be used up.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

/// A response whose head has arrived. The connection is reused if the body is read to its end, and closed if
/// the response is dropped before.
pub(super) struct HttpResponse {
    pool: Arc<ConnectionPool>,
    connection: Option<Connection>,
    pub(super) head: hyper::Response<()>,
    body: Incoming,
}

impl HttpResponse {
    fn new(
        pool: Arc<ConnectionPool>,
        connection: Connection,
        reply: hyper::Response<Incoming>,
    ) -> HttpResponse {
        let (head, body) = reply.into_parts();
        HttpResponse { pool, connection: Some(connection), head: hyper::Response::from_parts(head, ()), body }
    }

    /// Returns the length of the body, if known.
    pub(super) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Returns the next chunk of the body, or `None` at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        // A body that is always ready would starve other tasks.
        tokio::task::consume_budget().await;
        let Some(connection) = &mut self.connection else { return Ok(None) };
        loop {
            let body = &mut self.body;
            match connection.driver.drive_until(|context| Pin::new(&mut *body).poll_frame(context)).await {
                Some(Ok(frame)) => {
                    // Other frames are trailers, which are ignored.
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => {
                    self.connection = None;
                    return Err(ConnectionError::Broken(root_cause(&error)));
                }
                None => {
                    if let Some(connection) = self.connection.take() {
                        self.pool.put_back(connection);
                    }
                    return Ok(None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Starts a server that answers each connection once, with a body of three bytes.
    fn start_server(after: fn(&mut std::net::TcpStream)) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes");
                after(&mut stream);
            }
        });
        Url::parse(&format!("http://{address}")).unwrap()
    }

    fn request() -> HttpRequest {
        let mut request = HttpRequest::new(Full::default());
        request.headers_mut().insert("host", hyper::header::HeaderValue::from_static("x"));
        request
    }

    async fn read(pool: &Arc<ConnectionPool>) -> Vec<u8> {
        let mut reply = pool.clone().send(request()).await.unwrap();
        let mut body = Vec::new();
        while let Some(bytes) = reply.chunk().await.unwrap() {
            body.extend_from_slice(&bytes);
        }
        assert!(reply.chunk().await.unwrap().is_none());
        body
    }

    /// Waits for the peer to close the connection.
    fn wait_for_close(stream: &mut std::net::TcpStream) {
        let _ = stream.read(&mut [0; 16]);
    }

    #[tokio::test]
    async fn idle_connection_is_kept_until_its_timeout() {
        let pool =
            ConnectionPool::new(&start_server(wait_for_close), None, Duration::from_secs(5), 4).unwrap();
        assert_eq!(read(&pool).await, b"yes");
        assert!(pool.sweep());
        pool.idle().connections[0].last_used -= IDLE_TIMEOUT;
        assert!(!pool.sweep());
        assert_eq!(read(&pool).await, b"yes", "another connection is made");
    }

    #[tokio::test]
    async fn connection_closed_by_the_server_is_not_reused() {
        let pool = ConnectionPool::new(&start_server(|_| {}), None, Duration::from_secs(5), 4).unwrap();
        for _ in 0..3 {
            assert_eq!(read(&pool).await, b"yes");
            // A request that is sent before the server has closed the connection would fail.
            let closed = async {
                while pool.sweep() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), closed).await.expect("the close is not detected");
        }
        assert!(pool.take().is_none(), "nothing open is left");
    }

    #[tokio::test]
    async fn dropped_response_closes_its_connection() {
        let pool =
            ConnectionPool::new(&start_server(wait_for_close), None, Duration::from_secs(5), 4).unwrap();
        drop(pool.clone().send(request()).await.unwrap());
        assert!(pool.take().is_none());
        assert_eq!(read(&pool).await, b"yes", "the server is free for the next one");
    }
}
