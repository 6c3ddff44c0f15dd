//! Shapes of keys, tokens, private keys and passwords.

mod context;
mod private_key;
mod tokens;

use std::ops::Range;

use super::Span;

pub(super) use private_key::open_block;
#[cfg(test)]
pub(super) use tokens::examples;

/// Finds everything that has the shape of a secret, in order and without overlaps.
pub(super) fn find(text: &str) -> Vec<Span> {
    let bytes = text.as_bytes();
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..) {
        let Some(offset) = rest.iter().position(|byte| tokens::starts_with_byte(*byte)) else { break };
        at += offset;
        match secret_at(bytes, at) {
            Some(span) => {
                at = span.range.end;
                spans.push(span);
            }
            None => at += 1,
        }
    }
    spans
}

/// Names of all shapes, as the replacing text contains them.
pub(super) fn labels() -> impl Iterator<Item = &'static str> {
    let tokens = tokens::SHAPES.iter().map(|shape| shape.label);
    tokens.chain([tokens::JWT, context::AWS_KEY, context::CREDENTIAL, context::PASSWORD, private_key::LABEL])
}

/// Start of the text at the end that may be the beginning of a secret; the length of the text if there is none.
pub(super) fn unfinished(text: &str) -> usize {
    let bytes = text.as_bytes();
    let word = bytes.len() - trailing(bytes, is_credential_byte);
    let token = (word..bytes.len()).find(|at| tokens::begins_at(bytes, *at)).unwrap_or(bytes.len());
    let value = if context::announces_value(bytes.get(..word).unwrap_or_default()) { word } else { token };
    value.min(context::open_address(bytes)).min(open_block(text))
}

fn secret_at(bytes: &[u8], at: usize) -> Option<Span> {
    match bytes.get(at)? {
        b':' => context::url_password(bytes, at),
        b'-' => private_key::block(bytes, at),
        _ => tokens::token(bytes, at).or_else(|| context::value(bytes, at)),
    }
}

fn span(range: Range<usize>, label: &'static str) -> Option<Span> {
    Some(Span { range, label })
}

/// Number of bytes from a position that belong to an alphabet.
fn run(bytes: &[u8], from: usize, is_member: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.iter().position(|byte| !is_member(*byte)).unwrap_or(rest.len())
}

/// Number of bytes at the end that belong to an alphabet.
fn trailing(bytes: &[u8], is_member: impl Fn(u8) -> bool) -> usize {
    bytes.iter().rev().position(|byte| !is_member(*byte)).unwrap_or(bytes.len())
}

/// Bytes of words, which contain no key in their middle.
fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Bytes of credentials in HTTP headers, which include those of base64.
fn is_credential_byte(byte: u8) -> bool {
    is_word_byte(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=')
}

fn is_base64_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Whether random characters contain lower-case letters, upper-case letters and digits, or two of these. Names and
/// placeholders often contain only one.
fn is_mixed(random: &[u8]) -> bool {
    kinds(random) >= 2
}

fn kinds(random: &[u8]) -> usize {
    let has = |kind: fn(&u8) -> bool| usize::from(random.iter().any(kind));
    has(u8::is_ascii_lowercase) + has(u8::is_ascii_uppercase) + has(u8::is_ascii_digit)
}

/// Whether a word begins at a position.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    let before = bytes.get(..at).unwrap_or_default();
    match before {
        [] => true,
        [.., last] if !is_word_byte(*last) => true,
        // Escapes, such as `\n` and `\u003d` in JSON, and `%3D` in an address.
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., b'\\', b'u', a, b, c, d] if [a, b, c, d].into_iter().all(u8::is_ascii_hexdigit) => true,
        [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
        [.., b'm'] => ends_with_colour(before),
        _ => false,
    }
}

/// Maximum length of the control sequence of a colour.
const MAX_COLOUR_BYTES: usize = 24;

/// Whether a text ends with the control sequence of a colour.
fn ends_with_colour(text: &[u8]) -> bool {
    let from = text.len().saturating_sub(MAX_COLOUR_BYTES);
    let end = text.get(from..).unwrap_or_default();
    let Some(start) = end.windows(2).rposition(|two| two == b"\x1b[") else { return false };
    let parameters = end.get(start + 2..end.len().saturating_sub(1)).unwrap_or_default();
    parameters.iter().all(|byte| byte.is_ascii_digit() || *byte == b';')
}
