//! The pieces of a reply on their way to whoever listens.

use std::collections::VecDeque;

use super::super::Chunk;

/// Pieces that nobody has taken yet. Words that wait together are one piece, and only the last count is of interest.
#[derive(Debug, Default)]
pub(in super::super) struct ChunkBuffer {
    queue: VecDeque<Chunk>,
    added: usize,
}

impl ChunkBuffer {
    /// Adds words.
    pub(in super::super) fn push_text(&mut self, text: &str) {
        self.added += 1;
        match self.queue.back_mut() {
            Some(Chunk::Text(last)) => last.push_str(text),
            _ => self.queue.push_back(Chunk::Text(text.to_owned())),
        }
    }

    /// Adds anything else.
    pub(in super::super) fn push(&mut self, chunk: Chunk) {
        self.added += 1;
        match (self.queue.back_mut(), &chunk) {
            (Some(Chunk::Usage(counted)), Chunk::Usage(usage)) => *counted = *usage,
            _ => self.queue.push_back(chunk),
        }
    }

    /// Adds it where there is something.
    pub(in super::super) fn extend(&mut self, chunk: Option<Chunk>) {
        if let Some(chunk) = chunk {
            self.push(chunk);
        }
    }

    /// How often something was added.
    pub(in super::super) fn added(&self) -> usize {
        self.added
    }

    /// Takes the first.
    pub(in super::super) fn next(&mut self) -> Option<Chunk> {
        self.queue.pop_front()
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the reply is whole.
    pub(in super::super) fn is_done(&self) -> bool {
        matches!(self.queue.back(), Some(Chunk::Done(_)))
    }

    pub(in super::super) fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::Usage;
    use brigade_core::message::Stop;

    use super::*;

    #[test]
    fn adjacent_text_is_merged_and_the_last_usage_wins() {
        let mut buffer = ChunkBuffer::default();
        let count = |output| Chunk::Usage(Usage { output, ..Usage::default() });
        for text in ["one ", "two "] {
            buffer.push_text(text);
        }
        buffer.push(count(1));
        buffer.push(count(2));
        buffer.push_text("three");
        buffer.extend(None);
        assert_eq!(buffer.added(), 5);
        assert!(!buffer.is_done());
        buffer.extend(Some(Chunk::Done(Stop::End)));
        assert!(buffer.is_done());
        let taken: Vec<Chunk> = std::iter::from_fn(|| buffer.next()).collect();
        let [Chunk::Text(first), Chunk::Usage(usage), Chunk::Text(last), Chunk::Done(_)] = &taken[..] else {
            unreachable!("{taken:?}")
        };
        assert_eq!((first.as_str(), usage.output, last.as_str()), ("one two ", 2, "three"));
        assert!(buffer.is_empty());
    }
}
