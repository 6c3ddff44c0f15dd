//! Lines of bounded length, from whoever speaks the protocol with us.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The longest line that is read.
pub(crate) const LONGEST: usize = 8 << 20;
/// How much is read at once.
const PIECE: usize = 64 << 10;

/// What came as one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// All of it.
    Whole(Vec<u8>),
    /// It is longer than any message may be. What is still to come of it is dropped.
    TooLong,
}

/// Lines out of a stream. Asking for the next one can be given up and taken up again: nothing is lost.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    begun: Vec<u8>,
    /// Whether what comes belongs to a line that was too long.
    is_skipping: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Lines<R> {
        let reader = BufReader::with_capacity(PIECE, reader);
        Lines { reader, begun: Vec::new(), is_skipping: false }
    }

    /// The next line; none at the end. A line that the end cut off is no line.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let end = memchr::memchr(b'\n', chunk);
            let (part, used) = match end {
                Some(end) => (chunk.get(..end).unwrap_or_default(), end + 1),
                None => (chunk, chunk.len()),
            };
            let was_skipping = self.is_skipping;
            let is_too_long = !was_skipping && self.begun.len() + part.len() > LONGEST;
            if !was_skipping && !is_too_long {
                self.begun.extend_from_slice(part);
            }
            self.is_skipping = (was_skipping || is_too_long) && end.is_none();
            self.reader.consume(used);
            if is_too_long {
                self.begun = Vec::new();
                return Ok(Some(Line::TooLong));
            }
            if end.is_some() && !was_skipping {
                return Ok(Some(Line::Whole(std::mem::take(&mut self.begun))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(bytes: &[u8]) -> Vec<Line> {
        let mut lines = Lines::new(bytes);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_stream_is_read_line_by_line() {
        assert_eq!(all(b"one\n\ntwo\ncut off").await, [whole("one"), whole(""), whole("two")]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_dropped_and_the_next_one_is_read() {
        let mut bytes = vec![b'x'; LONGEST];
        bytes.extend_from_slice(b"\nx");
        bytes.extend(std::iter::repeat_n(b'y', LONGEST));
        bytes.extend_from_slice(b"\nnext\n");
        let lines = all(&bytes).await;
        assert_eq!(lines.len(), 3);
        assert!(matches!(&lines[0], Line::Whole(line) if line.len() == LONGEST));
        assert_eq!(lines[1..], [Line::TooLong, whole("next")]);
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_found_out() {
        let mut lines = Lines::new(tokio::io::repeat(b'x'));
        assert_eq!(lines.next().await.unwrap(), Some(Line::TooLong));
    }
}
