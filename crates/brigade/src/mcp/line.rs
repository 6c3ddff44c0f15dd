//! Reading lines of a stranger, within bounds.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::fate::Fate;

/// The longest message.
pub(super) const LONGEST: usize = 4 << 20;
/// The most messages within [`WINDOW`].
const MOST: usize = 2_000;
const WINDOW: Duration = Duration::from_secs(1);

/// How many messages came within [`WINDOW`].
pub(super) struct Rate {
    count: usize,
    since: Instant,
}

impl Rate {
    pub(super) fn new() -> Rate {
        Rate { count: 0, since: Instant::now() }
    }

    /// Counts more of them; fails where they are too many.
    pub(super) fn count(&mut self, more: usize) -> Result<(), String> {
        if self.since.elapsed() > WINDOW {
            *self = Rate::new();
        }
        self.count = self.count.saturating_add(more);
        match self.count > MOST {
            true => Err(format!("it sent more than {MOST} messages within a second")),
            false => Ok(()),
        }
    }
}

/// A reader that fails where a line is too long or where too many come. Nothing of such a peer can be believed any
/// more, so its fate is sealed.
pub(super) struct Bounded<R> {
    inner: R,
    fate: Fate,
    line: usize,
    rate: Rate,
}

impl<R> Bounded<R> {
    pub(super) fn new(inner: R, fate: Fate) -> Bounded<R> {
        Bounded { inner, fate, line: 0, rate: Rate::new() }
    }

    /// Counts what was read.
    fn count(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (mut start, mut lines) = (0, 0);
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.line += end - start;
            start = end + 1;
            self.check_line()?;
            self.line = 0;
            lines += 1;
        }
        self.line += bytes.len() - start;
        self.check_line()?;
        self.rate.count(lines).map_err(|why| format!("{why}, so it was ended"))
    }

    fn check_line(&self) -> Result<(), String> {
        match self.line > LONGEST {
            true => Err(format!("it sent a message of more than {} MB, so it was ended", LONGEST >> 20)),
            false => Ok(()),
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if let Err(reason) = self.count(read) {
            self.fate.condemn(reason.clone());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        Poll::Ready(Ok(()))
    }
}
