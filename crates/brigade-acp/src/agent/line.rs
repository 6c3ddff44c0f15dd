//! Lines of bounded length.

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};

/// The longest line that is read.
pub(super) const LONGEST: usize = 10 * 1024 * 1024;

/// What came as one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// All of it.
    Whole(Vec<u8>),
    /// It was longer than any message may be, and was dropped as it came.
    TooLong,
}

/// Lines out of a stream. Asking for the next one can be given up and taken up again: nothing is lost.
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    begun: Vec<u8>,
    is_too_long: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R) -> Lines<R> {
        Lines { reader: BufReader::new(reader), begun: Vec::new(), is_too_long: false }
    }

    /// The next line; none at the end. A line that the end cut off is no line.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if self.begun.len() + part.len() > LONGEST {
                self.is_too_long = true;
                self.begun = Vec::new();
            }
            if !self.is_too_long {
                self.begun.extend_from_slice(part);
            }
            let used = end.map_or(chunk.len(), |end| end + 1);
            consume(&mut self.reader, used);
            if end.is_some() {
                let line = std::mem::take(&mut self.begun);
                let is_too_long = std::mem::take(&mut self.is_too_long);
                return Ok(Some(if is_too_long { Line::TooLong } else { Line::Whole(line) }));
            }
        }
    }
}

fn consume(reader: &mut (impl AsyncBufRead + Unpin), bytes: usize) {
    std::pin::Pin::new(reader).consume(bytes);
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
}
