//! Redaction of a text that arrives in pieces.

use super::{Redactor, marker, shapes};

/// Number of bytes that are kept before the part that was not returned yet. A name before a key identifies it.
const CONTEXT_BYTES: usize = 512;

/// Maximum number of bytes that are held back because they may be the beginning of a secret.
const MAX_HELD_BYTES: usize = 32 << 10;

/// Redacts a text that arrives in pieces. A piece that may be the beginning of a secret is held back until the text shows
/// what it is.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    /// Text that was returned, as far as it is needed, and text that was not.
    text: String,
    /// Number of bytes of it that were returned.
    returned: usize,
}

impl StreamRedactor {
    /// Creates a redactor of an empty text.
    pub fn new(redactor: Redactor) -> StreamRedactor {
        StreamRedactor { redactor, text: String::new(), returned: 0 }
    }

    /// Adds the next piece.
    pub fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// Returns what is known to be complete.
    pub fn take(&mut self) -> String {
        let unfinished = self.redactor.unfinished(&self.text).max(self.returned);
        match self.text.len() - unfinished <= MAX_HELD_BYTES {
            true => self.take_until(unfinished),
            false => self.finish(),
        }
    }

    /// Treats the whole text as returned.
    pub fn skip(&mut self) {
        self.returned = self.text.len();
        self.forget();
    }

    /// Returns the rest of the text.
    pub fn finish(&mut self) -> String {
        self.take_until(self.text.len())
    }

    fn take_until(&mut self, end: usize) -> String {
        if end <= self.returned {
            return String::new();
        }
        let mut shown = String::new();
        let mut from = self.returned;
        for span in self.redactor.spans(&self.text) {
            if span.range.end <= from || span.range.start >= end {
                continue;
            }
            // The first bytes of a secret may have been returned when they were not recognisable as such.
            shown.push_str(self.text.get(from..span.range.start).unwrap_or_default());
            shown.push_str(&marker(span.label));
            from = span.range.end;
        }
        shown.push_str(self.text.get(from..end).unwrap_or_default());
        self.returned = end.max(from);
        self.forget();
        shown
    }

    /// Drops what is not needed to recognise secrets in later pieces.
    fn forget(&mut self) {
        let context = self.returned.saturating_sub(CONTEXT_BYTES);
        let kept = self.text.floor_char_boundary(context.min(shapes::open_block(&self.text)));
        self.text.drain(..kept);
        self.returned -= kept;
    }
}
