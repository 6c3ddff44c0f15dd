//! The protocol over standard input and output, or any other pair of streams.

mod heard;
mod lines;
mod pipe;

use std::io;
use std::time::Duration;

use futures::future::{self, Either};
use rmcp::service::ServerInitializeError;
use rmcp::{ServerHandler, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::Server;
use pipe::Pipe;

/// How long a client that is gone may take to read what was said to it last.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves one client until it is gone or `stop` is ready. Nothing that it began runs on.
pub async fn serve(
    server: Server,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (pipe, lines) = Pipe::new(input, server.supported_protocol_versions().into_owned());
    let writing = std::pin::pin!(pipe::write(lines, output));
    let talk = std::pin::pin!(talk(server.clone(), pipe, stop));
    match future::select(talk, writing).await {
        Either::Left((ended, writing)) => {
            // Who does not read must not keep the process alive.
            let last_words = tokio::time::timeout(PATIENCE, writing);
            let ((), _) = future::join(server.close(), last_words).await;
            ended
        }
        // It hears no more, and may still speak.
        Either::Right((_, talk)) => {
            let ended = talk.await;
            server.close().await;
            ended
        }
    }
}

async fn talk<R: AsyncRead + Send + Unpin + 'static>(
    server: Server,
    pipe: Pipe<R>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut stop = std::pin::pin!(stop);
    let running = tokio::select! {
        running = server.serve(pipe) => running,
        () = &mut stop => return Ok(()),
    };
    match running {
        Err(error) => return not_greeted(error),
        Ok(running) => {
            let leave = running.cancellation_token();
            let mut waiting = std::pin::pin!(running.waiting());
            tokio::select! {
                _ = &mut waiting => {}
                () = &mut stop => leave.cancel(),
            }
        }
    }
    Ok(())
}

/// The end of a conversation that did not begin. The words of the protocol show whole messages as Rust values: they are
/// not repeated.
fn not_greeted(error: ServerInitializeError) -> io::Result<()> {
    let cause = match error {
        // The client went away before it had said who it is.
        ServerInitializeError::ConnectionClosed(_)
        | ServerInitializeError::TransportError { .. }
        | ServerInitializeError::Cancelled => return Ok(()),
        ServerInitializeError::InitializeFailed(error) => error.message.into_owned(),
        _ => "it did not begin with `initialize`".to_owned(),
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, cause))
}
