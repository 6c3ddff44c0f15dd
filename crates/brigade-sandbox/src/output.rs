//! Output that is bounded while it is read.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::job::OutputPiece;

/// Age up to which the time of output is recorded.
pub(crate) const RECENT_WINDOW: Duration = Duration::from_secs(10);
/// Output within this time is one piece.
const PIECE_WINDOW: Duration = Duration::from_millis(50);

/// Keeps the first and the last bytes of a stream of any length and counts the rest.
#[derive(Debug)]
pub(crate) struct BoundedOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    dropped: u64,
    /// Times and sizes of the latest output, with at most one entry per [`PIECE_WINDOW`].
    recent: VecDeque<(Instant, usize)>,
}

impl BoundedOutput {
    pub(crate) fn new(limit: usize) -> Self {
        let head_limit = limit / 2;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_limit,
            tail_limit: limit - head_limit,
            dropped: 0,
            recent: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8], now: Instant) {
        self.record_arrival(bytes.len(), now);
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(first);
        let (skipped, kept) = rest.split_at(rest.len().saturating_sub(self.tail_limit));
        let overflow = (self.tail.len() + kept.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..overflow);
        self.tail.extend(kept);
        self.dropped += (skipped.len() + overflow) as u64;
    }

    fn record_arrival(&mut self, bytes: usize, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) > RECENT_WINDOW;
        while self.recent.front().is_some_and(|(at, _)| is_old(*at)) {
            self.recent.pop_front();
        }
        match self.recent.back_mut() {
            Some((at, piece)) if now.saturating_duration_since(*at) < PIECE_WINDOW => {
                *piece = piece.saturating_add(bytes);
            }
            _ => self.recent.push_back((now, bytes)),
        }
    }

    /// Ages of the latest output relative to `end`, oldest piece first.
    pub(crate) fn pieces(&self, end: Instant) -> Vec<OutputPiece> {
        let piece = |(at, bytes): &(Instant, usize)| OutputPiece {
            age: end.saturating_duration_since(*at),
            bytes: *bytes,
        };
        self.recent.iter().map(piece).filter(|piece| piece.age <= RECENT_WINDOW).collect()
    }

    /// Returns the kept bytes and the number of bytes dropped between their halves.
    pub(crate) fn finish(mut self) -> (Vec<u8>, u64) {
        let (front, back) = self.tail.as_slices();
        self.head.extend_from_slice(front);
        self.head.extend_from_slice(back);
        (self.head, self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{BoundedOutput, RECENT_WINDOW};

    /// Reference implementation that keeps everything and cuts at the end.
    fn expected(all: &[u8], limit: usize) -> (Vec<u8>, u64) {
        if all.len() <= limit {
            return (all.to_vec(), 0);
        }
        let head = limit / 2;
        let kept = [&all[..head], &all[all.len() - (limit - head)..]].concat();
        (kept, (all.len() - limit) as u64)
    }

    #[test]
    fn any_chunking_keeps_head_and_tail() {
        let all: Vec<u8> = (0..=255).collect();
        for limit in [0, 1, 2, 7, 100, 255, 256, 300] {
            for chunk in [1, 3, 50, 99, 256] {
                let mut output = BoundedOutput::new(limit);
                all.chunks(chunk).for_each(|bytes| output.push(bytes, Instant::now()));
                assert_eq!(output.finish(), expected(&all, limit), "limit {limit}, chunk {chunk}");
            }
        }
    }

    #[test]
    fn recent_output_is_known_by_its_age() {
        let begun = Instant::now();
        let after = |millis: u64| begun + Duration::from_millis(millis);
        let mut output = BoundedOutput::new(1000);
        for (millis, bytes) in [(0, "old"), (5_000, "later"), (5_010, "!"), (11_000, "last")] {
            output.push(bytes.as_bytes(), after(millis));
        }
        let pieces: Vec<(u128, usize)> =
            output.pieces(after(12_000)).iter().map(|piece| (piece.age.as_millis(), piece.bytes)).collect();
        assert_eq!(pieces, [(7_000, 6), (1_000, 4)]);
        for millis in 12_000..60_000 {
            output.push(b"x", after(millis));
        }
        assert!(
            output.recent.len() <= RECENT_WINDOW.as_millis() as usize / 50 + 1,
            "{}",
            output.recent.len()
        );
    }
}
