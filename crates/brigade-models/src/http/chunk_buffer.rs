//! Buffer of reply chunks that have not been consumed.

use std::collections::VecDeque;

use brigade_core::message::Stop;

use super::super::Chunk;
use super::super::usage_estimate::CheckedUsage;

/// Chunks that have not been consumed. Adjacent texts are merged, and only the last of adjacent usage counts
/// is kept.
#[derive(Debug, Default)]
pub(in super::super) struct ChunkBuffer {
    queue: VecDeque<Chunk>,
    added: usize,
    text_bytes: usize,
}

impl ChunkBuffer {
    /// Appends text, unless it is empty.
    pub(in super::super) fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.text_bytes += text.len();
        self.added += 1;
        match self.queue.back_mut() {
            Some(Chunk::Text(last)) => last.push_str(text),
            _ => self.queue.push_back(Chunk::Text(text.to_owned())),
        }
    }

    /// Appends any other chunk.
    pub(in super::super) fn push(&mut self, chunk: Chunk) {
        self.added += 1;
        match (self.queue.back_mut(), &chunk) {
            (Some(Chunk::Usage(counted)), Chunk::Usage(usage)) => *counted = *usage,
            _ => self.queue.push_back(chunk),
        }
    }

    /// Appends a tool call of a reply with this stop reason.
    pub(in super::super) fn push_call(
        &mut self,
        stop: Stop,
        name: String,
        provider_id: Option<String>,
        arguments: String,
    ) {
        // A call that was cut off before its arguments must not look like a call without arguments.
        let is_cut = matches!(stop, Stop::Length | Stop::Refusal) && arguments.trim().is_empty();
        self.push(Chunk::Call { name, provider_id });
        self.push(Chunk::Arguments(if is_cut { "{".to_owned() } else { arguments }));
    }

    /// Ends the reply.
    pub(in super::super) fn finish(&mut self, usage: CheckedUsage, stop: Stop) {
        usage.emit(self);
        self.push(Chunk::Done(stop));
    }

    /// Appends the chunk, if any.
    pub(in super::super) fn extend(&mut self, chunk: Option<Chunk>) {
        if let Some(chunk) = chunk {
            self.push(chunk);
        }
    }

    /// Returns the number of appended chunks.
    pub(in super::super) fn added(&self) -> usize {
        self.added
    }

    /// Returns the bytes of all appended text.
    pub(in super::super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Takes the first chunk.
    pub(in super::super) fn next(&mut self) -> Option<Chunk> {
        self.queue.pop_front()
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the reply is complete.
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
