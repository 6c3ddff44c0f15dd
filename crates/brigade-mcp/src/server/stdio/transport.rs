//! Transport between the streams and the protocol. A single task writes all lines. A cancelled sender cannot
//! leave half a line behind, and no task waits for a client that does not read.

use std::io;
use std::sync::Arc;

use brigade_base::process::{BoundedLine, BoundedLines};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetMeta, JsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::parse::{self, ParsedLine};

/// Maximum number of unsent error responses to a client that does not read.
const MAX_UNREAD_ERRORS: usize = 1024;

/// Both ends of the transport.
pub(super) struct StdioTransport<R> {
    lines: BoundedLines<R>,
    out: Option<mpsc::UnboundedSender<Outgoing>>,
    permits: Arc<Semaphore>,
    /// Protocol versions that the server supports.
    versions: Vec<ProtocolVersion>,
    /// Whether a request has opened the session. The library would stop at a notification or response before
    /// that, so these are dropped.
    is_open: bool,
}

/// A line to write.
pub(super) struct Outgoing {
    line: Vec<u8>,
    on_sent: OnSent,
}

/// Action after a line is written.
enum OnSent {
    /// Notifies the sender.
    Notify(oneshot::Sender<()>),
    /// Frees a slot for an error response.
    Release(#[expect(dead_code, reason = "dropping the permit frees the slot")] OwnedSemaphorePermit),
}

impl<R: AsyncRead + Unpin> StdioTransport<R> {
    /// Creates a transport and the receiver of the lines to write.
    pub(super) fn new(
        input: R,
        versions: Vec<ProtocolVersion>,
    ) -> (StdioTransport<R>, mpsc::UnboundedReceiver<Outgoing>) {
        let (out, outgoing) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(MAX_UNREAD_ERRORS));
        (
            StdioTransport {
                lines: BoundedLines::new(input, parse::MAX_LINE_BYTES),
                out: Some(out),
                permits,
                versions,
                is_open: false,
            },
            outgoing,
        )
    }

    fn queue(&self, message: &impl Serialize, on_sent: OnSent) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let out = self.out.as_ref().ok_or_else(disconnected)?;
        out.send(Outgoing { line, on_sent }).map_err(|_| disconnected())
    }

    /// Whether the protocol accepts a request as the first one: `initialize`, or a request that contains the
    /// same information.
    fn opens_session(&self, request: &ClientRequest) -> bool {
        match request {
            ClientRequest::InitializeRequest(_) => true,
            ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
            request => {
                let meta = request.get_meta();
                let version = meta.protocol_version().filter(|version| self.versions.contains(version));
                version.is_some() && meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
            }
        }
    }

    /// Sends an error response without waiting. Otherwise the end of the input could not be detected
    /// meanwhile.
    fn send_error(&self, answer: &serde_json::Value) {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            let _ = self.queue(answer, OnSent::Release(permit));
        }
    }
}

fn disconnected() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the client has stopped reading")
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for StdioTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (notify, sent) = oneshot::channel();
        let outgoing = self.queue(&message, OnSent::Notify(notify));
        async move {
            outgoing?;
            sent.await.map_err(|_| disconnected())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let parsed = match self.lines.next().await.ok()?? {
                BoundedLine::Complete(line) | BoundedLine::Unterminated(line) => parse::parse_line(&line),
                BoundedLine::TooLong => parse::too_long(),
            };
            match parsed {
                ParsedLine::Message(message) => {
                    if let JsonRpcMessage::Request(request) = &*message {
                        self.is_open = self.is_open || self.opens_session(&request.request);
                        return Some(*message);
                    }
                    if self.is_open {
                        return Some(*message);
                    }
                }
                ParsedLine::Invalid(answer) => self.send_error(&answer),
                ParsedLine::Ignored => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out = None;
        Ok(())
    }
}

/// Writes lines until all senders are dropped.
pub(super) async fn write(
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(outgoing) = outgoing.recv().await {
        output.write_all(&outgoing.line).await?;
        output.flush().await?;
        if let OnSent::Notify(notify) = outgoing.on_sent {
            let _ = notify.send(());
        }
    }
    Ok(())
}
