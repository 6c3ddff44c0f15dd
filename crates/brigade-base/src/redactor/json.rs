//! Redaction of the strings of a JSON text.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// Redacts every string of a JSON text, keys included, and keeps everything else as it is. Returns `None` if no string
/// changed or the text is not JSON.
pub(super) fn redact_strings(text: &str, redact: impl for<'s> Fn(&'s str) -> Cow<'s, str>) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut redacted = String::new();
    let (mut kept, mut at) = (0, 0);
    while let Some(start) = text.get(at..)?.find('"').map(|offset| at + offset) {
        let end = string_end(text, start)?;
        let literal = text.get(start..end)?;
        let value: Cow<'_, str> = match literal.contains('\\') {
            true => Cow::Owned(serde_json::from_str(literal).ok()?),
            false => Cow::Borrowed(literal.get(1..literal.len().checked_sub(1)?)?),
        };
        if let Cow::Owned(changed) = redact(&value) {
            redacted.push_str(text.get(kept..start)?);
            redacted.push_str(&serde_json::to_string(&changed).ok()?);
            kept = end;
        }
        at = end;
    }
    if kept == 0 {
        return None;
    }
    redacted.push_str(text.get(kept..)?);
    Some(redacted)
}

/// End of the string that starts at this quote.
fn string_end(text: &str, start: usize) -> Option<usize> {
    let mut bytes = text.bytes().enumerate().skip(start + 1);
    loop {
        match bytes.next()? {
            (at, b'"') => return Some(at + 1),
            (_, b'\\') => {
                bytes.next()?;
            }
            _ => {}
        }
    }
}

/// A value as it is written inside a JSON string.
pub(super) fn escaped(value: &str) -> Option<String> {
    let literal = serde_json::to_string(value).ok()?;
    literal.strip_prefix('"')?.strip_suffix('"').map(str::to_owned)
}
