//! Lines of a stream, each with a limit.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The most that one line may have.
pub(super) const LONGEST: usize = 4 * 1024 * 1024;

/// One line, or what became of it.
pub(super) enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// It has more than [`LONGEST`] bytes. The rest of it is passed over.
    TooLong,
}

/// Reads lines. What was read of one is kept where the reading is given up and begun again.
pub(super) struct Lines<R> {
    input: BufReader<R>,
    part: Vec<u8>,
    is_passing_over: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R) -> Lines<R> {
        Lines { input: BufReader::new(input), part: Vec::new(), is_passing_over: false }
    }

    /// The next line; none at the end of the stream, and none where it cannot be read.
    pub(super) async fn next(&mut self) -> Option<Line> {
        loop {
            // Nothing is awaited between this and `consume`: what is taken is never lost.
            let read = self.input.fill_buf().await.ok()?;
            if read.is_empty() {
                let rest = std::mem::take(&mut self.part);
                return (!rest.is_empty()).then_some(Line::Whole(rest));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = read.get(..end.unwrap_or(read.len())).unwrap_or_default();
            let taken = part.len() + usize::from(end.is_some());
            let is_too_long = !self.is_passing_over && self.part.len() + part.len() > LONGEST;
            if !self.is_passing_over && !is_too_long {
                self.part.extend_from_slice(part);
            }
            self.input.consume(taken);
            if is_too_long {
                self.part = Vec::new();
                self.is_passing_over = end.is_none();
                return Some(Line::TooLong);
            }
            if end.is_some() && !std::mem::take(&mut self.is_passing_over) {
                return Some(Line::Whole(std::mem::take(&mut self.part)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(input: &[u8]) -> Vec<Result<usize, ()>> {
        let mut lines = Lines::new(input);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await {
            found.push(match line {
                Line::Whole(line) => Ok(line.len()),
                Line::TooLong => Err(()),
            });
        }
        found
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_named_once_and_the_next_is_read() {
        let long = |length: usize| [vec![b'x'; length], b"\nabc\n".to_vec()].concat();
        assert_eq!(all(&long(LONGEST)).await, [Ok(LONGEST), Ok(3)]);
        assert_eq!(all(&long(LONGEST + 1)).await, [Err(()), Ok(3)]);
        assert_eq!(all(&long(3 * LONGEST)).await, [Err(()), Ok(3)]);
    }

    #[tokio::test]
    async fn the_last_line_needs_no_end() {
        assert_eq!(all(b"a\n\nbc").await, [Ok(1), Ok(0), Ok(2)]);
        assert_eq!(all(b"").await, []);
    }
}
