//! The protocol over standard input and output, or any other pair of streams.

use std::io;

use rmcp::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::Server;

/// The longest message. Longer ones are dropped unread.
const LONGEST: usize = 4 * 1024 * 1024;

/// Serves one client until it is gone or `stop` is ready. Nothing that it began runs on.
pub async fn serve(
    server: Server,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(LONGEST);
    let mut stop = std::pin::pin!(stop);
    let running = tokio::select! {
        running = server.clone().serve(transport) => running,
        () = &mut stop => return Ok(()),
    };
    let ended = match running {
        // It went away before it had said who it is.
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
        Ok(running) => {
            let leave = running.cancellation_token();
            let mut waiting = std::pin::pin!(running.waiting());
            tokio::select! {
                _ = &mut waiting => {}
                () = &mut stop => leave.cancel(),
            }
            Ok(())
        }
    };
    server.close().await;
    ended
}
