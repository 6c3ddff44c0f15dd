//! The test server.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::http::{AfterResponse, HttpRequest, HttpResponse};
use crate::wire::ModelReply;

/// A local HTTP server for tests.
///
/// It serves many connections at once, keeps them for further requests, and records the requests. It has its own
/// thread, so that a test cannot block it, and runs until the process ends.
///
/// ```
/// use brigade::model::Endpoint;
/// use brigade::model::openai::OpenAi;
/// use brigade::{Models, Runtime, Settings, Task, Workspace};
/// use brigade_testing::{HttpServer, ModelReply};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = HttpServer::model(|_| ModelReply::text("Four."));
/// let model = OpenAi::compatible(Endpoint::new("local", &server.url("/v1"), None)?);
/// let settings = Settings::new("local/small", Workspace::open(&std::env::temp_dir())?);
/// let runtime = Runtime::in_memory(settings, Models::default().with("local", model));
/// let result = runtime.start(Task::new("What is two and two?")).await?.await?;
/// assert_eq!(result.outcome.text.as_str(), "Four.");
/// assert_eq!(server.requests()[0].json()["model"], "small");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct HttpServer {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: Mutex<Vec<HttpRequest>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    max_open: AtomicUsize,
}

type Answer = dyn Fn(&HttpRequest) -> HttpResponse + Send + Sync;

impl HttpServer {
    /// Starts a server that responds to each request with `answer`, which must not block.
    ///
    /// # Panics
    ///
    /// Panics if no port or thread is available.
    pub fn start(answer: impl Fn(&HttpRequest) -> HttpResponse + Send + Sync + 'static) -> HttpServer {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let (shared, answer): (_, Arc<Answer>) = (state.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(accept(listener, shared, answer));
        });
        HttpServer { port, state }
    }

    /// Starts a server that gives every request the same response.
    ///
    /// # Panics
    ///
    /// Panics if no port or thread is available.
    pub fn always(response: HttpResponse) -> HttpServer {
        HttpServer::start(move |_| response.clone())
    }

    /// Starts a server that replies to model requests, each in the wire format of its path: Chat Completions, Responses,
    /// Anthropic Messages or Gemini.
    ///
    /// # Panics
    ///
    /// Panics if no port or thread is available.
    pub fn model(reply: impl Fn(&HttpRequest) -> ModelReply + Send + Sync + 'static) -> HttpServer {
        HttpServer::start(move |request| HttpResponse::reply(request, &reply(request)))
    }

    /// Returns the port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a path, which begins with `/` or is empty.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the requests that were received so far. Connections that send no request are not included.
    pub fn requests(&self) -> Vec<HttpRequest> {
        self.state.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of requests.
    pub fn request_count(&self) -> usize {
        self.state.requests.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the number of connections that were opened.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns the maximum number of connections that were open at once.
    pub fn max_open_connections(&self) -> usize {
        self.state.max_open.load(Ordering::SeqCst)
    }
}

impl State {
    fn record(&self, head: String, body: Vec<u8>) -> HttpRequest {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let request = HttpRequest { number: requests.len(), head, body };
        requests.push(request.clone());
        request
    }
}

async fn accept(listener: std::net::TcpListener, state: Arc<State>, answer: Arc<Answer>) {
    let listener = TcpListener::from_std(listener).unwrap();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                state.connections.fetch_add(1, Ordering::SeqCst);
                let open = state.open.fetch_add(1, Ordering::SeqCst) + 1;
                state.max_open.fetch_max(open, Ordering::SeqCst);
                let (state, answer) = (state.clone(), answer.clone());
                connections.spawn(async move {
                    // A broken connection simply ends, whichever side broke it.
                    let _ = serve(stream, &state, &*answer).await;
                    state.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut stream: TcpStream, state: &State, answer: &Answer) -> io::Result<()> {
    // Small pieces are sent at once.
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    while let Some((head, body)) = read_request(&mut stream, &mut received).await? {
        let HttpResponse { delay, bytes, after } = answer(&state.record(head, body));
        tokio::time::sleep(delay).await;
        stream.write_all(&bytes).await?;
        match after {
            AfterResponse::Keep => {}
            AfterResponse::Close => return Ok(()),
            // The client eventually disconnects.
            AfterResponse::Stall => return stream.read(&mut [0]).await.map(drop),
            AfterResponse::Repeat { bytes, pause } => loop {
                tokio::time::sleep(pause).await;
                stream.write_all(&bytes).await?;
            },
        }
    }
    Ok(())
}

/// Reads a request, or as much of it as was sent. Bytes of the next request stay in `received`.
async fn read_request(
    stream: &mut TcpStream,
    received: &mut Vec<u8>,
) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut is_open = true;
    loop {
        let end = received.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&received[..end]).into_owned();
            let length = end + 4 + content_length(&head);
            if received.len() >= length || !is_open {
                let rest = received.split_off(length.min(received.len()));
                let request = std::mem::replace(received, rest);
                return Ok(Some((head, request[end + 4..].to_vec())));
            }
        } else if !is_open {
            let head = String::from_utf8_lossy(&std::mem::take(received)).into_owned();
            return Ok((!head.is_empty()).then_some((head, Vec::new())));
        }
        is_open = stream.read_buf(received).await? > 0;
    }
}

fn content_length(head: &str) -> usize {
    let request = HttpRequest { number: 0, head: head.to_owned(), body: Vec::new() };
    request.header("content-length").first().and_then(|length| length.parse().ok()).unwrap_or(0)
}
