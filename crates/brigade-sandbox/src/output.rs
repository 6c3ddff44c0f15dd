//! Output that is bounded while it comes.

use std::collections::VecDeque;

/// Keeps the first and the last bytes of a stream of any length and counts the rest.
#[derive(Debug)]
pub(crate) struct BoundedOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    dropped: u64,
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
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(first);
        let (skipped, kept) = rest.split_at(rest.len().saturating_sub(self.tail_limit));
        let overflow = (self.tail.len() + kept.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..overflow);
        self.tail.extend(kept);
        self.dropped += (skipped.len() + overflow) as u64;
    }

    /// The kept bytes, and how many were dropped between their halves.
    pub(crate) fn finish(mut self) -> (Vec<u8>, u64) {
        let (front, back) = self.tail.as_slices();
        self.head.extend_from_slice(front);
        self.head.extend_from_slice(back);
        (self.head, self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedOutput;

    /// The reference keeps everything and cuts at the end.
    fn expected(all: &[u8], limit: usize) -> (Vec<u8>, u64) {
        if all.len() <= limit {
            return (all.to_vec(), 0);
        }
        let head = limit / 2;
        let kept = [&all[..head], &all[all.len() - (limit - head)..]].concat();
        (kept, (all.len() - limit) as u64)
    }

    #[test]
    fn any_split_gives_head_and_tail() {
        let all: Vec<u8> = (0..=255).collect();
        for limit in [0, 1, 2, 7, 100, 255, 256, 300] {
            for chunk in [1, 3, 50, 99, 256] {
                let mut output = BoundedOutput::new(limit);
                all.chunks(chunk).for_each(|bytes| output.push(bytes));
                assert_eq!(output.finish(), expected(&all, limit), "limit {limit}, chunk {chunk}");
            }
        }
    }
}
