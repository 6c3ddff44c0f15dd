//! A test server for many concurrent and reused connections. It counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade::Secret;
use brigade::model::openai::OpenAi;
use brigade::model::{Endpoint, RateLimits, Timeouts};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::server::KEY;

/// A response, and what happens to the connection after it.
pub(super) struct MockResponse {
    pub(super) delay: Duration,
    pub(super) bytes: Vec<u8>,
    pub(super) then: ConnectionAction,
}

pub(super) enum ConnectionAction {
    /// The connection is kept for the next request.
    Keep,
    /// The connection is closed.
    Close,
    /// The connection stays open, and nothing more is sent.
    Stall,
    /// Comments are sent forever, at this interval.
    Ping(Duration),
}

impl MockResponse {
    /// A complete response. The connection is kept.
    pub(super) fn whole(status: &str, headers: &str, body: &str) -> MockResponse {
        let length = body.len();
        let text = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        MockResponse { delay: Duration::ZERO, bytes: text.into_bytes(), then: ConnectionAction::Keep }
    }

    /// A complete event stream.
    pub(super) fn events(headers: &str, stream: &str) -> MockResponse {
        MockResponse::whole("200 OK", &format!("Content-Type: text/event-stream\r\n{headers}"), stream)
    }

    /// The start of a stream.
    pub(super) fn beginning(stream: &str, then: ConnectionAction) -> MockResponse {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        MockResponse { delay: Duration::ZERO, bytes: format!("{head}{stream}").into_bytes(), then }
    }

    /// No response at all.
    pub(super) fn nothing(then: ConnectionAction) -> MockResponse {
        MockResponse { delay: Duration::ZERO, bytes: Vec::new(), then }
    }
}

type AnswerFn = dyn Fn(usize, &Value) -> MockResponse + Send + Sync;

/// The server. It has its own thread and runtime, so that tests cannot block it.
pub(super) struct ConcurrentServer {
    port: u16,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    open: AtomicUsize,
    max_open: AtomicUsize,
}

impl ConcurrentServer {
    /// Starts a server. `answer` gets the number of each request, counted from 0, and its body.
    pub(super) fn start(
        answer: impl Fn(usize, &Value) -> MockResponse + Send + Sync + 'static,
    ) -> ConcurrentServer {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts = Arc::new(Counts::default());
        let (shared, answer): (_, Arc<AnswerFn>) = (counts.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(accept(listener, shared, answer));
        });
        ConcurrentServer { port, counts }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(super) fn openai(&self, rate_limits: RateLimits, timeouts: Timeouts) -> OpenAi {
        let key = Some(Secret::new(KEY));
        OpenAi::compatible(Endpoint::with_limits("mock", &self.url(), key, rate_limits, timeouts).unwrap())
    }

    /// Returns the number of requests received.
    pub(super) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// Returns the maximum number of simultaneously open connections.
    pub(super) fn max_connections(&self) -> usize {
        self.counts.max_open.load(Ordering::SeqCst)
    }
}

async fn accept(listener: std::net::TcpListener, counts: Arc<Counts>, answer: Arc<AnswerFn>) {
    let listener = TcpListener::from_std(listener).unwrap();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                let open = counts.open.fetch_add(1, Ordering::SeqCst) + 1;
                counts.max_open.fetch_max(open, Ordering::SeqCst);
                let (counts, answer) = (counts.clone(), answer.clone());
                connections.spawn(async move {
                    // A broken connection simply ends, whichever side broke it.
                    let _ = serve(stream, &counts, &*answer).await;
                    counts.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, counts: &Counts, answer: &AnswerFn) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = None;
        let mut line = String::new();
        while stream.read_line(&mut line).await? > 0 && line != "\r\n" {
            if let Some(number) = line.to_lowercase().strip_prefix("content-length: ") {
                length = number.trim().parse().ok();
            }
            line.clear();
        }
        let Some(length) = length else { return Ok(()) };
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let number = counts.requests.fetch_add(1, Ordering::SeqCst);
        let MockResponse { delay, bytes, then } = answer(number, &serde_json::from_slice(&body).unwrap());
        tokio::time::sleep(delay).await;
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        match then {
            ConnectionAction::Keep => {}
            ConnectionAction::Close => return Ok(()),
            // The client eventually disconnects.
            ConnectionAction::Stall => return stream.read(&mut [0]).await.map(drop),
            ConnectionAction::Ping(pause) => loop {
                tokio::time::sleep(pause).await;
                stream.write_all(b": still there\n\n").await?;
                stream.flush().await?;
            },
        }
    }
}
