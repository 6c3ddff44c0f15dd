//! Connections to one provider.
//!
//! A connection is moved on by whoever waits for its reply, within the task of that one. With a task of its own it would
//! wake the reader for each piece of a reply, and the reader would wake it for the next, from one thread to another.

use std::error::Error;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::poll_fn;
use futures::task::AtomicWaker;
use http_body_util::Full;
use hyper::Uri;
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use reqwest::header::HeaderMap;
use reqwest::{StatusCode, Version};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;
use url::Url;

use super::failure::innermost;
use super::proxy::{Proxy, Tunnel, TunnelError};
use crate::task::{AbortOnDrop, spawn};

/// How long a connection is kept that nobody uses.
const UNUSED: Duration = Duration::from_secs(90);
/// How often the system asks whether the other side is still there, and after how many questions it is not.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
/// How long the other side may leave what was sent without a word of having got it.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// How often a connection is moved on at a stretch.
const MOST_ROUNDS: usize = 32;

/// A request as it is sent.
pub(super) type Outgoing = hyper::Request<Full<Bytes>>;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Why there is no reply, or no more of it.
#[derive(Debug)]
pub(super) enum WireError {
    /// There was no connection in time.
    Late,
    /// There is no connection.
    Unreachable(String),
    /// The proxy opens no tunnel.
    Proxy(TunnelError),
    /// It broke.
    Broken(String),
}

/// All connections to one provider.
pub(super) struct Wire {
    to: Uri,
    connector: Connector,
    connect_limit: Duration,
    most_unused: usize,
    unused: Mutex<Unused>,
}

enum Connector {
    Plain(HttpConnector),
    Secure(HttpsConnector<HttpConnector>),
    Tunnelled(HttpsConnector<Tunnel>),
}

#[derive(Default)]
struct Unused {
    /// Those that were used last stand last.
    connections: Vec<Connection>,
    /// Closes them when nobody wants them any more.
    sweeper: Option<AbortOnDrop<()>>,
}

/// A connection, and how to send something over it.
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    works: Box<Works>,
    used: Instant,
}

/// What moves a connection on.
struct Works {
    /// Gone when it is over, so that nobody waits for what it would have brought.
    connection: Option<http1::Connection<Stream, Full<Bytes>>>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Rings when the connection can move on. Most of it is the connection's own doing, while it is being moved: that wakes
/// nobody.
#[derive(Default)]
struct Bell {
    rang: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl Wire {
    /// Connections to this address; only so many are kept that nobody uses.
    pub(super) fn new(
        base: &Url,
        proxy: Option<Proxy>,
        connect_limit: Duration,
        most_unused: usize,
    ) -> Result<Arc<Wire>, String> {
        let to = Uri::try_from(base.as_str()).map_err(|error| error.to_string())?;
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        // Without TLS there is nothing to read certificates for.
        let connector = match (base.scheme(), proxy) {
            ("http", _) => Ok(Connector::Plain(tcp)),
            (_, Some(proxy)) => secure(Tunnel::new(tcp, proxy)).map(Connector::Tunnelled),
            (_, None) => {
                tcp.enforce_http(false);
                secure(tcp).map(Connector::Secure)
            }
        };
        let connector = connector.map_err(|error| innermost(&error))?;
        Ok(Arc::new(Wire { to, connector, connect_limit, most_unused, unused: Mutex::default() }))
    }

    /// Sends a request and waits for the head of the reply. A connection that was closed while nobody used it does not
    /// count: the request was not sent.
    pub(super) async fn send(self: Arc<Self>, mut request: Outgoing) -> Result<Box<Reply>, WireError> {
        loop {
            let unused = self.take();
            let was_used = unused.is_some();
            let mut connection = match unused {
                Some(connection) => connection,
                // Boxed, since it is large and most requests find a connection.
                None => Box::pin(self.connect()).await?,
            };
            let mut reply = pin!(connection.sender.try_send_request(request));
            match connection.works.until(|context| reply.as_mut().poll(context)).await {
                Ok(reply) => return Ok(Box::new(Reply::new(self, connection, reply))),
                Err(mut error) => match error.take_message().filter(|_| was_used) {
                    Some(unsent) => request = unsent,
                    None => return Err(WireError::Broken(innermost(error.error()))),
                },
            }
        }
    }

    async fn connect(&self) -> Result<Connection, WireError> {
        let connect = async {
            let stream = self.connector.connect(self.to.clone()).await.map_err(unconnected)?;
            http1::handshake(stream).await.map_err(|error| WireError::Unreachable(innermost(&error)))
        };
        let connected = tokio::time::timeout(self.connect_limit, connect).await;
        let (sender, connection) = connected.map_err(|_| WireError::Late)??;
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        let works = Box::new(Works { connection: Some(connection), bell, waker });
        Ok(Connection { sender, works, used: Instant::now() })
    }

    /// A connection that nobody uses and that is still open.
    fn take(&self) -> Option<Connection> {
        loop {
            let mut connection = self.unused().connections.pop()?;
            if connection.can_send() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    fn keep(self: &Arc<Self>, mut connection: Connection) {
        if !connection.can_send() {
            return;
        }
        connection.used = Instant::now();
        let mut unused = self.unused();
        if unused.connections.len() < self.most_unused {
            unused.connections.push(connection);
            if unused.sweeper.as_ref().is_none_or(|sweeper| sweeper.0.is_finished()) {
                let wire = Arc::downgrade(self);
                let sweep = async move {
                    while let Some(wire) = wire.upgrade()
                        && wire.sweep()
                    {
                        drop(wire);
                        tokio::time::sleep(UNUSED).await;
                    }
                };
                unused.sweeper = Some(AbortOnDrop(spawn(sweep)));
            }
        }
    }

    /// Closes what was not used for long. Whether something is left.
    fn sweep(&self) -> bool {
        let mut unused = self.unused();
        unused
            .connections
            .retain_mut(|connection| connection.used.elapsed() < UNUSED && connection.can_send());
        !unused.connections.is_empty()
    }

    fn unused(&self) -> MutexGuard<'_, Unused> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Wire {
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

fn unconnected(error: Box<dyn Error + Send + Sync>) -> WireError {
    match error.downcast::<TunnelError>() {
        Ok(error) => WireError::Proxy(*error),
        Err(error) => WireError::Unreachable(innermost(&*error)),
    }
}

/// TLS over the connections of another connector.
fn secure<C>(connector: C) -> std::io::Result<HttpsConnector<C>> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let builder = HttpsConnectorBuilder::new().with_provider_and_platform_verifier(provider)?;
    Ok(builder.https_only().enable_http1().wrap_connector(connector))
}

impl Connection {
    /// Whether another request can be sent. A close that nobody was there to notice is noticed here.
    fn can_send(&mut self) -> bool {
        self.works.advance();
        self.works.connection.is_some() && self.sender.is_ready()
    }
}

impl Works {
    /// Does what can be done now.
    fn advance(&mut self) {
        let mut context = Context::from_waker(&self.waker);
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(&mut context).is_ready()
        {
            self.connection = None;
        }
    }

    /// Moves the connection on until it has brought what is waited for.
    async fn until<T>(&mut self, mut part: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        poll_fn(|context| {
            for _ in 0..MOST_ROUNDS {
                // Nobody is woken by what happens in here.
                self.bell.task.take();
                self.advance();
                if let Poll::Ready(part) = part(&mut Context::from_waker(&self.waker)) {
                    return Poll::Ready(part);
                }
                self.bell.task.register(context.waker());
                if !self.bell.rang.swap(false, Ordering::AcqRel) {
                    return Poll::Pending;
                }
            }
            // Others are to go on too, and what this task may do at a stretch is used up at some time.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

/// A reply whose head has come. Read to its end, its connection serves again; dropped before, it is closed.
pub(super) struct Reply {
    wire: Arc<Wire>,
    connection: Option<Connection>,
    head: hyper::Response<()>,
    body: Incoming,
}

impl Reply {
    fn new(wire: Arc<Wire>, connection: Connection, reply: hyper::Response<Incoming>) -> Reply {
        let (head, body) = reply.into_parts();
        Reply { wire, connection: Some(connection), head: hyper::Response::from_parts(head, ()), body }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.head.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.head.headers()
    }

    pub(super) fn version(&self) -> Version {
        self.head.version()
    }

    /// How long the body is, where that is known.
    pub(super) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// More of the body; nothing after its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, WireError> {
        // A body that is always there would keep everybody else from going on.
        tokio::task::consume_budget().await;
        let Some(connection) = &mut self.connection else { return Ok(None) };
        loop {
            let body = &mut self.body;
            match connection.works.until(|context| Pin::new(&mut *body).poll_frame(context)).await {
                Some(Ok(frame)) => {
                    // What is no data stands after the end of it, and says nothing about it.
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => {
                    self.connection = None;
                    return Err(WireError::Broken(innermost(&error)));
                }
                None => {
                    if let Some(connection) = self.connection.take() {
                        self.wire.keep(connection);
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

    /// An address where every connection gets one answer with a body of three bytes.
    fn address(after: fn(&mut std::net::TcpStream)) -> Url {
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

    fn request() -> Outgoing {
        let mut request = Outgoing::new(Full::default());
        request.headers_mut().insert("host", reqwest::header::HeaderValue::from_static("x"));
        request
    }

    async fn read(wire: &Arc<Wire>) -> Vec<u8> {
        let mut reply = wire.clone().send(request()).await.unwrap();
        let mut body = Vec::new();
        while let Some(bytes) = reply.chunk().await.unwrap() {
            body.extend_from_slice(&bytes);
        }
        assert!(reply.chunk().await.unwrap().is_none());
        body
    }

    /// Waits for the other side to go away.
    fn wait(stream: &mut std::net::TcpStream) {
        let _ = stream.read(&mut [0; 16]);
    }

    #[tokio::test]
    async fn what_nobody_uses_is_kept_for_a_while_and_then_closed() {
        let wire = Wire::new(&address(wait), None, Duration::from_secs(5), 4).unwrap();
        assert_eq!(read(&wire).await, b"yes");
        assert!(wire.sweep());
        wire.unused().connections[0].used -= UNUSED;
        assert!(!wire.sweep());
        assert_eq!(read(&wire).await, b"yes", "another connection is made");
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_meanwhile_is_not_used() {
        let wire = Wire::new(&address(|_| {}), None, Duration::from_secs(5), 4).unwrap();
        for _ in 0..3 {
            assert_eq!(read(&wire).await, b"yes");
            // With or without the time to notice it.
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(wire.take().is_none(), "nothing open is left");
    }

    #[tokio::test]
    async fn a_reply_that_is_given_up_takes_its_connection_along() {
        let wire = Wire::new(&address(wait), None, Duration::from_secs(5), 4).unwrap();
        drop(wire.clone().send(request()).await.unwrap());
        assert!(wire.take().is_none());
        assert_eq!(read(&wire).await, b"yes", "the server is free for the next one");
    }
}
