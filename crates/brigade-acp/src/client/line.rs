//! Reading lines of a stranger, within bounds.

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest message.
pub(super) const LONGEST: usize = 8 << 20;
/// How much is read at once.
const PIECE: usize = 64 << 10;

/// Lines of at most [`LONGEST`] bytes.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Where the next line begins, and up to where there is no end of it.
    start: usize,
    searched: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R) -> Lines<R> {
        Lines { reader, buffer: Vec::new(), start: 0, searched: 0 }
    }

    /// The next line without its end; none where there are no more. A last line without an end is none.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, String> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(length) = unsearched.iter().position(|byte| *byte == b'\n') {
                let (start, end) = (self.start, self.searched + length);
                self.start = end + 1;
                self.searched = self.start;
                return Ok(self.buffer.get(start..end));
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            self.searched = self.buffer.len();
            if self.searched > LONGEST {
                return Err(format!("it sent a message of more than {} MB, so it was ended", LONGEST >> 20));
            }
            // One long message is no reason to keep so much for ever.
            self.buffer.shrink_to(self.buffer.len() + PIECE);
            self.buffer.reserve(PIECE);
            match self.reader.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8]) -> (Vec<Vec<u8>>, Result<(), String>) {
        let mut lines = Lines::new(input);
        let mut read = Vec::new();
        loop {
            match lines.next().await {
                Ok(Some(line)) => read.push(line.to_vec()),
                Ok(None) => return (read, Ok(())),
                Err(reason) => return (read, Err(reason)),
            }
        }
    }

    #[tokio::test]
    async fn lines_come_one_by_one_and_an_unfinished_one_does_not() {
        let long = "x".repeat(PIECE * 2);
        let text = format!("a\n\nbc\n{long}\nrest");
        let (read, end) = lines(text.as_bytes()).await;
        let expected: Vec<&[u8]> = vec![b"a", b"", b"bc", long.as_bytes()];
        assert_eq!((read, end), (expected.into_iter().map(<[u8]>::to_vec).collect(), Ok(())));
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_ends_the_reading() {
        let endless = vec![b'x'; LONGEST + PIECE * 2];
        let (read, end) = lines(&endless).await;
        assert!(read.is_empty() && end.unwrap_err().contains("8 MB"));
    }
}
