//! MCP over standard input and output, or any other pair of streams.

mod parse;
mod transport;

use std::io;
use std::time::Duration;

use futures::future::{self, Either};
use rmcp::service::ServerInitializeError;
use rmcp::{ServerHandler, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use crate::server::Server;
use transport::StdioTransport;

/// Time that a disconnecting client has to read the remaining messages.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves one client until it disconnects or `stop` is ready. Nothing that it started keeps running.
pub async fn serve(
    server: Server,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (transport, lines) = StdioTransport::new(input, server.supported_protocol_versions().into_owned());
    let writing = std::pin::pin!(transport::write(lines, output));
    let serving = std::pin::pin!(serve_client(server.clone(), transport, stop));
    match future::select(serving, writing).await {
        Either::Left((ended, writing)) => {
            // A client that does not read must not keep the process alive.
            let flushed = tokio::time::timeout(FLUSH_TIMEOUT, writing);
            let ((), _) = future::join(server.close(), flushed).await;
            ended
        }
        // The client has stopped reading, but may still send messages.
        Either::Right((_, serving)) => {
            let ended = serving.await;
            server.close().await;
            ended
        }
    }
}

async fn serve_client<R: AsyncRead + Send + Unpin + 'static>(
    server: Server,
    transport: StdioTransport<R>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut stop = std::pin::pin!(stop);
    let running = tokio::select! {
        running = server.serve(transport) => running,
        () = &mut stop => return Ok(()),
    };
    match running {
        Err(error) => {
            debug!(target: "brigade::mcp", "client was not initialized");
            return initialize_result(error);
        }
        Ok(running) => {
            let protocol = running.peer().peer_info().map(|info| info.protocol_version.to_string());
            debug!(target: "brigade::mcp", protocol, "client initialized");
            let leave = running.cancellation_token();
            let mut waiting = std::pin::pin!(running.waiting());
            tokio::select! {
                _ = &mut waiting => {}
                () = &mut stop => leave.cancel(),
            }
            debug!(target: "brigade::mcp", "client disconnected");
        }
    }
    Ok(())
}

/// Result of a connection that failed to initialize. The library's error contains whole messages in debug
/// format, so it is not repeated.
fn initialize_result(error: ServerInitializeError) -> io::Result<()> {
    let cause = match error {
        // The client disconnected before it sent `initialize`.
        ServerInitializeError::ConnectionClosed(_)
        | ServerInitializeError::TransportError { .. }
        | ServerInitializeError::Cancelled => return Ok(()),
        ServerInitializeError::InitializeFailed(error) => error.message.into_owned(),
        _ => "the first message is not `initialize`".to_owned(),
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, cause))
}
