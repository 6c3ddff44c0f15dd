//! Secrets that only their context identifies: credentials of HTTP, keys of AWS, and passwords in addresses.

use super::super::Span;
use super::{
    begins_word, is_base64_byte, is_credential_byte, is_mixed, is_word_byte, kinds, run, span, trailing,
};

/// Label of credentials in HTTP headers.
pub(super) const CREDENTIAL: &str = "credential";
/// Label of secret keys and session tokens of AWS.
pub(super) const AWS_KEY: &str = "AWS secret key";
/// Label of passwords in addresses.
pub(super) const PASSWORD: &str = "password";

/// Schemes of the header `Authorization`.
const SCHEMES: [&[u8]; 4] = [b"bearer", BASIC, b"token", b"apikey"];
/// Scheme of a user name and a password in base64.
const BASIC: &[u8] = b"basic";
const MIN_CREDENTIAL_BYTES: usize = 8;
/// Minimum length of a credential if only `Bearer` comes before it.
const MIN_BARE_CREDENTIAL_BYTES: usize = 20;

/// Names of secrets of AWS without `_` and `-`, and the minimum and maximum number of characters of the value.
const AWS_NAMES: [(&[u8], usize, usize); 3] =
    [(b"secretaccesskey", 40, 40), (b"secretkey", 40, 40), (b"sessiontoken", 100, usize::MAX)];

/// Passwords of examples.
const PLACEHOLDERS: [&[u8]; 4] = [b"pass", b"passwd", b"password", b"pwd"];

/// Maximum number of characters between a name and its value.
const MAX_SEPARATORS: usize = 8;
/// Maximum length of a user name and password in an address.
const MAX_USER_INFO_BYTES: usize = 512;

/// Finds the value of a name that starts at a position.
pub(super) fn value(bytes: &[u8], at: usize) -> Option<Span> {
    match bytes.get(at)?.to_ascii_lowercase() {
        b'a' => authorization(bytes, at),
        b'b' => bearer(bytes, at),
        b's' => aws_value(bytes, at),
        _ => None,
    }
}

/// A credential after `Authorization` and a scheme.
fn authorization(bytes: &[u8], at: usize) -> Option<Span> {
    let name_end = at + prefix(bytes, at, b"authorization")?;
    let scheme_start = name_end + separators(bytes, name_end);
    let scheme = SCHEMES.iter().find_map(|scheme| prefix(bytes, scheme_start, scheme))?;
    let gap = run(bytes, scheme_start + scheme, |byte| byte == b' ');
    let from = scheme_start + scheme + gap;
    let credential = credential(bytes, from).filter(|_| gap > 0)?;
    let is_basic = prefix(bytes, scheme_start, BASIC).is_some() && credential.len() % 4 == 0;
    let has_digit = credential.iter().any(u8::is_ascii_digit);
    let is_random = is_basic || has_digit || credential.len() >= MIN_BARE_CREDENTIAL_BYTES;
    (credential.len() >= MIN_CREDENTIAL_BYTES && is_random && is_mixed(credential))
        .then(|| span(from..from + credential.len(), CREDENTIAL))?
}

/// A credential after `Bearer` without the name of a header.
fn bearer(bytes: &[u8], at: usize) -> Option<Span> {
    let from = at + prefix(bytes, at, b"bearer ")?;
    let credential = credential(bytes, from).filter(|_| begins_word(bytes, at))?;
    let has_digit = credential.iter().any(u8::is_ascii_digit);
    (credential.len() >= MIN_BARE_CREDENTIAL_BYTES && has_digit && is_mixed(credential))
        .then(|| span(from..from + credential.len(), CREDENTIAL))?
}

/// Characters of a credential, without the full stop of a sentence.
fn credential(bytes: &[u8], from: usize) -> Option<&[u8]> {
    let all = bytes.get(from..from + run(bytes, from, is_credential_byte))?;
    all.get(..all.len() - trailing(all, |byte| byte == b'.'))
}

fn aws_value(bytes: &[u8], at: usize) -> Option<Span> {
    let found = AWS_NAMES.iter().find_map(|(name, min, max)| Some((spelled(bytes, at, name)?, *min, *max)));
    let (name_end, min, max) = found?;
    let gap = separators(bytes, name_end);
    let from = name_end + gap;
    let length = run(bytes, from, is_base64_byte);
    let value = bytes.get(from..from + length)?;
    (gap > 0 && (min..=max).contains(&length) && kinds(value) == 3)
        .then(|| span(from..from + length, AWS_KEY))?
}

/// End of a name that is written with or without `_` and `-`, in any case.
fn spelled(bytes: &[u8], at: usize, name: &[u8]) -> Option<usize> {
    let mut end = at;
    for letter in name {
        end += run(bytes, end, |byte| matches!(byte, b'_' | b'-')).min(1);
        bytes.get(end).filter(|byte| byte.eq_ignore_ascii_case(letter))?;
        end += 1;
    }
    Some(end)
}

/// Number of characters between a name and its value, in common notations.
fn separators(bytes: &[u8], from: usize) -> usize {
    run(bytes, from, is_separator).min(MAX_SEPARATORS)
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b'\\' | b':' | b'=' | b'>' | b',')
}

/// Length of a prefix in any case at a position.
fn prefix(bytes: &[u8], at: usize, prefix: &[u8]) -> Option<usize> {
    let start = bytes.get(at..at + prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(prefix.len())
}

/// The password of an address `scheme://user:password@host`, given the position of `://`.
pub(super) fn url_password(bytes: &[u8], at: usize) -> Option<Span> {
    let start = at + prefix(bytes, at, b"://")?;
    let has_scheme =
        at.checked_sub(1).and_then(|before| bytes.get(before)).copied().is_some_and(is_word_byte);
    if !has_scheme {
        return None;
    }
    let info = user_info(bytes, start);
    let end = info.iter().rposition(|byte| *byte == b'@')?;
    let colon = info.iter().position(|byte| *byte == b':').filter(|colon| *colon < end)?;
    let password = info.get(colon + 1..end)?;
    let is_placeholder = matches!(password, [] | [b'$' | b'{' | b'[' | b'%' | b'*', ..])
        || password.windows(2).all(|two| two.first() == two.last())
        || PLACEHOLDERS.iter().any(|word| word.eq_ignore_ascii_case(password));
    (!is_placeholder).then(|| span(start + colon + 1..start + end, PASSWORD))?
}

/// The start of an address, up to the end of its user name and password.
fn user_info(bytes: &[u8], start: usize) -> &[u8] {
    let length = run(bytes, start, is_user_info_byte).min(MAX_USER_INFO_BYTES);
    bytes.get(start..start + length).unwrap_or_default()
}

fn is_user_info_byte(byte: u8) -> bool {
    !byte.is_ascii_whitespace()
        && !byte.is_ascii_control()
        && !matches!(byte, b'/' | b'?' | b'#' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\')
}

/// Start of the password of an address at the end of a text, which may continue; the length of the text if there is none.
pub(super) fn open_address(bytes: &[u8]) -> usize {
    let length = trailing(bytes, is_user_info_byte).min(MAX_USER_INFO_BYTES);
    let word = bytes.get(bytes.len() - length..).unwrap_or_default();
    let start = match bytes.get(..bytes.len() - length).is_some_and(|before| before.ends_with(b"://")) {
        true => word.iter().position(|byte| *byte == b':').map(|colon| colon + 1),
        false => None,
    };
    start.map_or(bytes.len(), |start| bytes.len() - length + start)
}

/// Whether a text ends with a name or scheme whose value is a secret.
pub(super) fn announces_value(text: &[u8]) -> bool {
    let name = text.get(..text.len() - trailing(text, is_separator).min(MAX_SEPARATORS)).unwrap_or_default();
    let ends_with =
        |word: &[u8]| name.len().checked_sub(word.len()).is_some_and(|at| prefix(name, at, word).is_some());
    name.len() < text.len()
        && (SCHEMES.iter().any(|scheme| ends_with(scheme))
            || [&b"key"[..], b"token"].into_iter().any(ends_with))
}
