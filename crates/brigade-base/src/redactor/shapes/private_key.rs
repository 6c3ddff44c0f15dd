//! Private keys in PEM and OpenPGP files.

use memchr::memmem;

use super::super::Span;
use super::{is_base64_byte, run, span};

/// Label of private keys.
pub(super) const LABEL: &str = "private key";

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// Maximum length of the name of a block.
const MAX_NAME_BYTES: usize = 40;
/// Maximum length of a block.
const MAX_BLOCK_BYTES: usize = 32 << 10;
/// Maximum number of header lines before the key.
const MAX_HEADER_LINES: usize = 8;
/// Maximum length of a header line.
const MAX_HEADER_BYTES: usize = 512;
/// Maximum length of a path with a line number.
const MAX_LOCATION_BYTES: usize = 256;
/// Minimum length of the first line of a key.
const MIN_FIRST_LINE_BYTES: usize = 40;

/// Finds a block that begins at a position. It contains only lines of a key, so that it cannot hide other text. A block
/// without an end, in a text that was cut, ends with its last line.
pub(super) fn block(bytes: &[u8], at: usize) -> Option<Span> {
    let body = at + name_end(bytes.get(at..)?)?;
    let limit = bytes.len().min(body + MAX_BLOCK_BYTES);
    let key_end = key_end(bytes, first_line(bytes, body, limit)?, limit);
    let after = skip_decoration(bytes, key_end, limit);
    let end = end_line(bytes.get(after..limit)?).map_or(key_end, |length| after + length);
    span(at..end, LABEL)
}

/// Length of the line that ends a block, if it is complete.
fn end_line(text: &[u8]) -> Option<usize> {
    let name = text.strip_prefix(END)?;
    let name = name.get(..name.len().min(MAX_NAME_BYTES))?;
    Some(END.len() + memmem::find(name, DASHES)? + DASHES.len())
}

/// End of the line that begins a private key.
fn name_end(block: &[u8]) -> Option<usize> {
    let name = block.strip_prefix(BEGIN)?;
    let name = name.get(..name.len().min(MAX_NAME_BYTES))?;
    let dashes = memmem::find(name, DASHES)?;
    let name = name.get(..dashes)?;
    let is_private = name.ends_with(b"PRIVATE KEY") || name.ends_with(b"PRIVATE KEY BLOCK");
    is_private.then_some(BEGIN.len() + dashes + DASHES.len())
}

/// Start of the first line of the key, after header lines.
fn first_line(bytes: &[u8], body: usize, limit: usize) -> Option<usize> {
    let mut at = body;
    for _ in 0..=MAX_HEADER_LINES {
        at = skip_decoration(bytes, at, limit);
        if run(bytes, at, is_base64_byte) >= MIN_FIRST_LINE_BYTES {
            return Some(at);
        }
        let length = line_length(bytes, at, limit.min(at + MAX_HEADER_BYTES));
        bytes.get(at..at + length).filter(|line| line.contains(&b':'))?;
        at += length;
    }
    None
}

/// End of the last line that can belong to the key.
fn key_end(bytes: &[u8], key: usize, limit: usize) -> usize {
    let (mut at, mut end) = (key, key);
    while at < limit {
        let start = skip_decoration(bytes, at, limit);
        let length = run(bytes, start, is_base64_byte).min(limit - start);
        if length == 0 || (end > key && !is_line_end(bytes, start + length)) {
            break;
        }
        end = start + length;
        at = end;
    }
    end
}

fn is_line_end(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_none_or(|byte| matches!(byte, b'\n' | b'\r' | b'\\' | b'"' | b'\'' | b',' | b'-'))
}

/// Skips line ends, also escaped ones, and what programs write at the start of lines: quotes, signs and line numbers.
fn skip_decoration(bytes: &[u8], from: usize, limit: usize) -> usize {
    let mut at = from;
    while at < limit {
        let rest = bytes.get(at..limit).unwrap_or_default();
        let location = location(rest);
        at += match rest {
            [b'-', b'-', ..] => break,
            [b'\\', b'n' | b'r' | b't', ..] => 2,
            [b' ' | b'\t' | b'\r' | b'\n' | b'\\' | b'"' | b'\'' | b',' | b'|' | b'>' | b'+' | b'-', ..] => 1,
            _ if location > 0 => location,
            _ => break,
        };
    }
    at.min(limit)
}

/// Length of the place in a file that a search wrote at the start of a line: `12:`, `a.pem:12:` or `a.pem-12-`.
fn location(line: &[u8]) -> usize {
    let line = line.get(..line.len().min(MAX_LOCATION_BYTES)).unwrap_or_default();
    let path =
        run(line, 0, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-' | b':'));
    let place = line.get(..path).unwrap_or_default();
    let ends = place.iter().enumerate().rev().filter(|(_, byte)| matches!(byte, b':' | b'-'));
    let is_number = |end: usize| {
        let before = place.get(..end).unwrap_or_default();
        let digits = super::trailing(before, |byte| byte.is_ascii_digit());
        let separator = end.checked_sub(digits + 1).and_then(|at| before.get(at));
        digits > 0 && separator.is_none_or(|byte| matches!(byte, b':' | b'-'))
    };
    ends.map(|(end, _)| end).find(|end| is_number(*end)).map_or(0, |end| end + 1)
}

/// Length of the rest of a line with its end, which may be escaped.
fn line_length(bytes: &[u8], at: usize, limit: usize) -> usize {
    let rest = bytes.get(at..limit).unwrap_or_default();
    let plain = rest.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
    let escaped = memmem::find(rest, b"\\n").map(|end| end + 2);
    plain.into_iter().chain(escaped).min().unwrap_or(rest.len())
}

/// Start of a private key at the end of a text that may continue; the length of the text if there is none.
pub(in super::super) fn open_block(text: &str) -> usize {
    let bytes = text.as_bytes();
    let recent = bytes.len().saturating_sub(MAX_BLOCK_BYTES);
    let Some(at) = memmem::rfind(bytes.get(recent..).unwrap_or_default(), BEGIN).map(|at| recent + at) else {
        return bytes.len();
    };
    let block = bytes.get(at..).unwrap_or_default();
    let is_open = match name_end(block) {
        // The name is not complete.
        None => block.len() < BEGIN.len() + MAX_NAME_BYTES && !block.contains(&b'\n'),
        Some(body) => match first_line(bytes, at + body, bytes.len()) {
            Some(key) => may_continue(bytes, key),
            // A header, or the beginning of the first line.
            None => block.len() - body < MIN_FIRST_LINE_BYTES * MAX_HEADER_LINES,
        },
    };
    if is_open { at } else { bytes.len() }
}

/// Whether a text that ends in a key, or in the line after it, may continue with more of the block.
fn may_continue(bytes: &[u8], key: usize) -> bool {
    let after = skip_decoration(bytes, key_end(bytes, key, bytes.len()), bytes.len());
    let rest = bytes.get(after..).unwrap_or_default();
    let is_end = END.starts_with(rest) || rest.starts_with(END);
    is_end && rest.len() < END.len() + MAX_NAME_BYTES && end_line(rest).is_none()
}
