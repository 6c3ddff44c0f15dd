//! Incremental parser for server-sent events.

use std::mem;

/// Maximum size of an event, and of a line.
pub const MAX_EVENT_BYTES: usize = 8 << 20;

const BOM: &[u8] = &[0xEF, 0xBB, 0xBF];

/// A server-sent event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The event type. Empty if the server does not set one.
    pub name: String,
    /// The data, with its lines joined by line feeds.
    pub data: String,
}

/// Reasons why bytes are not a valid event stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// An event exceeds this limit in bytes.
    #[error("a stream event is larger than {0} bytes")]
    TooLarge(usize),
    /// A line is not UTF-8.
    #[error("a line in the stream is not UTF-8")]
    Encoding,
}

/// Incremental parser.
///
/// # Contract
///
/// * The events depend on the bytes alone, never on how they were split.
/// * An event is complete only after the blank line that ends it. Trailing data without one is discarded.
/// * Comments, `id`, `retry` and unknown fields are ignored, and so is an event without data.
/// * After an error the parser returns nothing more.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    /// Whether the event was returned, so that its buffers can be reused.
    is_complete: bool,
    /// A line feed after a carriage return belongs to the same line ending.
    after_return: bool,
    at_start: bool,
    failed: Option<SseError>,
}

impl Default for SseParser {
    fn default() -> SseParser {
        SseParser::with_limit(MAX_EVENT_BYTES)
    }
}

impl SseParser {
    /// Creates a parser with this maximum event size.
    pub fn with_limit(limit: usize) -> SseParser {
        SseParser {
            limit,
            line: Vec::new(),
            event: SseEvent::default(),
            has_data: false,
            is_complete: false,
            after_return: false,
            at_start: true,
            failed: None,
        }
    }

    /// Takes more bytes and appends the events that they complete.
    pub fn feed(&mut self, mut bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        while let Some(event) = self.next(&mut bytes)? {
            events.push(event.clone());
        }
        Ok(())
    }

    /// Takes bytes until they complete an event, and leaves the rest in `bytes`. If no event is completed,
    /// all bytes are consumed.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<&SseEvent>, SseError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if mem::take(&mut self.is_complete) {
            self.event.name.clear();
            self.event.data.clear();
        }
        match self.read_lines(bytes) {
            Ok(()) => Ok(self.is_complete.then_some(&self.event)),
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn read_lines(&mut self, rest: &mut &[u8]) -> Result<(), SseError> {
        while !rest.is_empty() && !self.is_complete {
            let bytes = *rest;
            if mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                *rest = &bytes[1..];
                continue;
            }
            let end = memchr::memchr2(b'\r', b'\n', bytes);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + piece.len() > self.limit {
                return Err(SseError::TooLarge(self.limit));
            }
            let Some(end) = end else {
                self.line.extend_from_slice(piece);
                *rest = &[];
                return Ok(());
            };
            self.after_return = bytes[end] == b'\r';
            *rest = &bytes[end + 1..];
            if self.line.is_empty() {
                self.end_line(piece)?;
                continue;
            }
            self.line.extend_from_slice(piece);
            let line = mem::take(&mut self.line);
            self.end_line(&line)?;
            // The line's buffer is reused for the next one.
            self.line = line;
            self.line.clear();
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), SseError> {
        let line = if mem::take(&mut self.at_start) { line.strip_prefix(BOM).unwrap_or(line) } else { line };
        let line = std::str::from_utf8(line).map_err(|_| SseError::Encoding)?;
        if line.is_empty() {
            self.is_complete = mem::take(&mut self.has_data);
            if !self.is_complete {
                self.event.name.clear();
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.event.data.len() + value.len() >= self.limit {
                    return Err(SseError::TooLarge(self.limit));
                }
                if mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(pieces: &[&[u8]]) -> (Vec<SseEvent>, Result<(), SseError>) {
        let mut parser = SseParser::with_limit(64);
        let mut events = Vec::new();
        for piece in pieces {
            if let Err(error) = parser.feed(piece, &mut events) {
                assert_eq!(parser.feed(b"data: x\n\n", &mut events), Err(error.clone()));
                return (events, Err(error));
            }
        }
        (events, Ok(()))
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn all_line_endings_are_accepted() {
        for end in ["\n", "\r\n", "\r"] {
            let text =
                "\u{feff}: hello\nevent: a\ndata: one\ndata:two\nid: 7\n\ndata\n\nevent: b\n\ndata: x\n\n";
            let (events, ended) = parse(&[text.replace('\n', end).as_bytes()]);
            assert_eq!(ended, Ok(()));
            assert_eq!(events, [event("a", "one\ntwo"), event("", ""), event("", "x")]);
        }
    }

    #[test]
    fn event_without_a_final_empty_line_is_dropped() {
        assert_eq!(parse(&[b"data: one\n\ndata: two\n"]).0, [event("", "one")]);
    }

    #[test]
    fn oversized_or_non_utf8_events_are_refused() {
        assert_eq!(parse(&[b"data: ".as_slice(), &[b'x'; 64]]).1, Err(SseError::TooLarge(64)));
        let lines = b"data: 0123456789\n".repeat(8);
        assert_eq!(parse(&[&lines]).1, Err(SseError::TooLarge(64)));
        assert_eq!(parse(&[b"data: \xff\n\n"]).1, Err(SseError::Encoding));
        assert_eq!(parse(&[": \u{feff}\u{1F980} and more of it\n\ndata: \u{e9}\n\n".as_bytes()]).0.len(), 1);
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"data: ".to_vec()),
            Just(b"data:".to_vec()),
            Just(b"event: e".to_vec()),
            Just(b": note".to_vec()),
            Just(BOM.to_vec()),
            Just("\u{fc}\u{1F980}".as_bytes().to_vec()),
            "[a-z :]{0,40}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..3),
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_change_the_events(bytes in bytes(), cuts in proptest::collection::vec(0usize..400, 0..12)) {
            let whole = parse(&[&bytes]);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&parse(&single), &whole);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(&parse(&pieces), &whole);
        }
    }
}
