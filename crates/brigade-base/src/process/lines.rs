//! Lines of bounded length.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Size of one read.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// A line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum BoundedLine {
    /// A line within the limit.
    Complete(Vec<u8>),
    /// A line over the limit. The rest of it is skipped.
    TooLong,
    /// The last line of a stream that ends without a line feed.
    Unterminated(Vec<u8>),
}

/// Reader of bounded lines. `next` is cancel safe: a dropped call loses no data.
pub struct BoundedLines<R> {
    reader: BufReader<R>,
    max_line_bytes: usize,
    partial: Vec<u8>,
    /// Whether the rest of a line over the limit is being skipped.
    is_skipping: bool,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    /// Reads lines of up to `max_line_bytes`.
    pub fn new(reader: R, max_line_bytes: usize) -> BoundedLines<R> {
        let reader = BufReader::with_capacity(READ_BUFFER_BYTES, reader);
        BoundedLines { reader, max_line_bytes, partial: Vec::new(), is_skipping: false }
    }

    /// Returns the next line without its line feed, or `None` at the end of the stream.
    pub async fn next(&mut self) -> std::io::Result<Option<BoundedLine>> {
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                let rest = std::mem::take(&mut self.partial);
                return Ok((!rest.is_empty()).then_some(BoundedLine::Unterminated(rest)));
            }
            let end = memchr::memchr(b'\n', chunk);
            let (bytes, used) = match end {
                Some(end) => (chunk.get(..end).unwrap_or_default(), end + 1),
                None => (chunk, chunk.len()),
            };
            let was_skipping = self.is_skipping;
            let is_too_long = !was_skipping && self.partial.len() + bytes.len() > self.max_line_bytes;
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

    const MAX: usize = 3 * READ_BUFFER_BYTES;

    async fn all(bytes: &[u8]) -> Vec<BoundedLine> {
        let mut lines = BoundedLines::new(bytes, MAX);
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
        assert_eq!(
            all(b"one\n\ntwo\ncut off").await,
            [complete("one"), complete(""), complete("two"), BoundedLine::Unterminated(b"cut off".to_vec())]
        );
        assert_eq!(all(b"").await, []);
    }

    #[tokio::test]
    async fn line_too_long_is_dropped_and_the_next_is_read() {
        let mut bytes = vec![b'x'; MAX];
        bytes.extend_from_slice(b"\nx");
        bytes.extend(std::iter::repeat_n(b'y', MAX));
        bytes.extend_from_slice(b"\nnext\n");
        let lines = all(&bytes).await;
        assert_eq!(lines.len(), 3);
        assert!(matches!(&lines[0], BoundedLine::Complete(line) if line.len() == MAX));
        assert_eq!(lines[1..], [BoundedLine::TooLong, complete("next")]);
    }

    #[tokio::test]
    async fn line_without_end_is_reported_as_too_long() {
        let mut lines = BoundedLines::new(tokio::io::repeat(b'x'), MAX);
        assert_eq!(lines.next().await.unwrap(), Some(BoundedLine::TooLong));
    }
}
