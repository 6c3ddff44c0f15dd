//! Lines of bounded length.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Maximum length of a line.
pub(crate) const MAX_LINE_BYTES: usize = 8 << 20;
/// Size of one read.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// A line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BoundedLine {
    /// A line within the limit.
    Complete(Vec<u8>),
    /// A line over the limit. The rest of it is skipped.
    TooLong,
}

/// Reader of bounded lines. `next` is cancel safe: a dropped call loses no data.
pub(crate) struct BoundedLines<R> {
    reader: BufReader<R>,
    partial: Vec<u8>,
    /// Whether the rest of a line over the limit is being skipped.
    is_skipping: bool,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    pub(crate) fn new(reader: R) -> BoundedLines<R> {
        let reader = BufReader::with_capacity(READ_BUFFER_BYTES, reader);
        BoundedLines { reader, partial: Vec::new(), is_skipping: false }
    }

    /// Returns the next line, or `None` at the end of the stream. An unterminated last line is dropped.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<BoundedLine>> {
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let end = memchr::memchr(b'\n', chunk);
            let (bytes, used) = match end {
                Some(end) => (chunk.get(..end).unwrap_or_default(), end + 1),
                None => (chunk, chunk.len()),
            };
            let was_skipping = self.is_skipping;
            let is_too_long = !was_skipping && self.partial.len() + bytes.len() > MAX_LINE_BYTES;
            if !was_skipping && !is_too_long {
                self.partial.extend_from_slice(bytes);
            }
            self.is_skipping = (was_skipping || is_too_long) && end.is_none();
            self.reader.consume(used);
            if is_too_long {
                self.partial = Vec::new();
                return Ok(Some(BoundedLine::TooLong));
            }
            if end.is_some() && !was_skipping {
                return Ok(Some(BoundedLine::Complete(std::mem::take(&mut self.partial))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(bytes: &[u8]) -> Vec<BoundedLine> {
        let mut lines = BoundedLines::new(bytes);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    fn complete(text: &str) -> BoundedLine {
        BoundedLine::Complete(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn stream_is_read_line_by_line() {
        assert_eq!(all(b"one\n\ntwo\ncut off").await, [complete("one"), complete(""), complete("two")]);
    }

    #[tokio::test]
    async fn line_too_long_is_dropped_and_the_next_is_read() {
        let mut bytes = vec![b'x'; MAX_LINE_BYTES];
        bytes.extend_from_slice(b"\nx");
        bytes.extend(std::iter::repeat_n(b'y', MAX_LINE_BYTES));
        bytes.extend_from_slice(b"\nnext\n");
        let lines = all(&bytes).await;
        assert_eq!(lines.len(), 3);
        assert!(matches!(&lines[0], BoundedLine::Complete(line) if line.len() == MAX_LINE_BYTES));
        assert_eq!(lines[1..], [BoundedLine::TooLong, complete("next")]);
    }

    #[tokio::test]
    async fn line_without_end_is_reported_as_too_long() {
        let mut lines = BoundedLines::new(tokio::io::repeat(b'x'));
        assert_eq!(lines.next().await.unwrap(), Some(BoundedLine::TooLong));
    }
}
