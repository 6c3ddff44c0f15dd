//! Lines of bounded length.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Maximum length of a line.
pub(super) const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// A line of the stream.
pub(super) enum BoundedLine {
    /// A line within the limit, without its terminator.
    Complete(Vec<u8>),
    /// A line of more than [`MAX_LINE_BYTES`]. The rest of it is skipped.
    TooLong,
}

/// Reader of bounded lines. `next` is cancel safe: a dropped call loses no data.
pub(super) struct BoundedLines<R> {
    input: BufReader<R>,
    partial: Vec<u8>,
    is_skipping: bool,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    pub(super) fn new(input: R) -> BoundedLines<R> {
        BoundedLines { input: BufReader::new(input), partial: Vec::new(), is_skipping: false }
    }

    /// Returns the next line, or `None` at the end of the stream or after a read error.
    pub(super) async fn next(&mut self) -> Option<BoundedLine> {
        loop {
            // Nothing is awaited between this and `consume`, so no data is lost.
            let read = self.input.fill_buf().await.ok()?;
            if read.is_empty() {
                let rest = std::mem::take(&mut self.partial);
                return (!rest.is_empty()).then_some(BoundedLine::Complete(rest));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let piece = read.get(..end.unwrap_or(read.len())).unwrap_or_default();
            let taken = piece.len() + usize::from(end.is_some());
            let is_too_long = !self.is_skipping && self.partial.len() + piece.len() > MAX_LINE_BYTES;
            if !self.is_skipping && !is_too_long {
                self.partial.extend_from_slice(piece);
            }
            self.input.consume(taken);
            if is_too_long {
                self.partial = Vec::new();
                self.is_skipping = end.is_none();
                return Some(BoundedLine::TooLong);
            }
            if end.is_some() && !std::mem::take(&mut self.is_skipping) {
                return Some(BoundedLine::Complete(std::mem::take(&mut self.partial)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(input: &[u8]) -> Vec<Result<usize, ()>> {
        let mut lines = BoundedLines::new(input);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await {
            found.push(match line {
                BoundedLine::Complete(line) => Ok(line.len()),
                BoundedLine::TooLong => Err(()),
            });
        }
        found
    }

    #[tokio::test]
    async fn line_too_long_is_reported_once_and_the_next_is_read() {
        let long = |length: usize| [vec![b'x'; length], b"\nabc\n".to_vec()].concat();
        assert_eq!(all(&long(MAX_LINE_BYTES)).await, [Ok(MAX_LINE_BYTES), Ok(3)]);
        assert_eq!(all(&long(MAX_LINE_BYTES + 1)).await, [Err(()), Ok(3)]);
        assert_eq!(all(&long(3 * MAX_LINE_BYTES)).await, [Err(()), Ok(3)]);
    }

    #[tokio::test]
    async fn last_line_needs_no_newline() {
        assert_eq!(all(b"a\n\nbc").await, [Ok(1), Ok(0), Ok(2)]);
        assert_eq!(all(b"").await, []);
    }
}
