//! Reads lines from an untrusted peer within limits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::McpError;
use brigade_base::process::CloseReason;

/// Maximum size of a message.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Maximum number of messages within [`RATE_WINDOW`].
const MAX_MESSAGES_PER_WINDOW: usize = 2_000;
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Number of messages within the current [`RATE_WINDOW`].
pub(super) struct MessageRate {
    count: usize,
    since: Instant,
}

impl MessageRate {
    pub(super) fn new() -> MessageRate {
        MessageRate { count: 0, since: Instant::now() }
    }

    /// Counts more messages. Fails if there are too many.
    pub(super) fn count(&mut self, more: usize) -> Result<(), McpError> {
        if self.since.elapsed() > RATE_WINDOW {
            *self = MessageRate::new();
        }
        self.count = self.count.saturating_add(more);
        match self.count > MAX_MESSAGES_PER_WINDOW {
            true => Err(McpError::Protocol(format!(
                "it sent more than {MAX_MESSAGES_PER_WINDOW} messages within a second"
            ))),
            false => Ok(()),
        }
    }
}

/// A reader that fails on a line that is too long, or on too many lines. Such a peer can no longer be
/// trusted, so the failure is permanent.
pub(super) struct BoundedReader<R> {
    inner: R,
    close_reason: CloseReason,
    line_bytes: usize,
    rate: MessageRate,
}

impl<R> BoundedReader<R> {
    pub(super) fn new(inner: R, close_reason: CloseReason) -> BoundedReader<R> {
        BoundedReader { inner, close_reason, line_bytes: 0, rate: MessageRate::new() }
    }

    /// Counts the bytes read.
    fn count(&mut self, bytes: &[u8]) -> Result<(), McpError> {
        let (mut start, mut lines) = (0, 0);
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.line_bytes += end - start;
            start = end + 1;
            self.check_line()?;
            self.line_bytes = 0;
            lines += 1;
        }
        self.line_bytes += bytes.len() - start;
        self.check_line()?;
        self.rate.count(lines).map_err(|why| McpError::Protocol(format!("{why}, so it was stopped")))
    }

    fn check_line(&self) -> Result<(), McpError> {
        match self.line_bytes > MAX_MESSAGE_BYTES {
            true => Err(McpError::Protocol(format!(
                "it sent a message larger than {} MiB, so it was stopped",
                MAX_MESSAGE_BYTES >> 20
            ))),
            false => Ok(()),
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if let Err(reason) = self.count(read) {
            self.close_reason.fail(reason.to_string());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        Poll::Ready(Ok(()))
    }
}
