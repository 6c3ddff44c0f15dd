//! Redaction of secrets in texts: keys of known shapes, and the secrets that the user configured.
//!
//! Every search is a single pass with bounded look-ahead, so its time is linear in the length of the text. Hashes, UUIDs
//! and other encoded data match no shape: a key has a known prefix that begins a word, or a known name before it.

mod events;
mod json;
mod shapes;
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem::Finder;

use crate::secret::Secret;
use json::redact_strings;
pub use stream::StreamRedactor;

/// Minimum length of a configured secret. Shorter values, such as numbers, occur everywhere.
const MIN_SECRET_BYTES: usize = 6;

/// Label of a configured secret.
const CONFIGURED: &str = "configured secret";

/// Start of the text that replaces a secret.
const MARKER_START: &str = "[redacted: ";

/// Maximum number of passes. A replaced secret can expose the start of another one.
const MAX_PASSES: usize = 4;

/// Redacts secrets in texts. The default knows the shapes of common keys and no configured secret. Cheap to clone.
///
/// ```
/// # mod brigade { pub use brigade_base::{redactor::Redactor, Secret}; }
/// use brigade::{Redactor, Secret};
///
/// let redactor = Redactor::default().with_secrets([Secret::new("correct-horse-9")]);
/// assert_eq!(redactor.redact("password: correct-horse-9"), "password: [redacted: configured secret]");
/// ```
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Arc<Vec<ConfiguredSecret>>,
}

/// Configured secret, in one of the forms in which a text may contain it.
#[derive(Clone)]
struct ConfiguredSecret {
    form: Secret,
    finder: Finder<'static>,
}

/// Place of a secret in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    range: Range<usize>,
    label: &'static str,
}

impl Redactor {
    /// Adds configured secrets. Their exact values are redacted, also as JSON writes them. Values of fewer than 6 bytes are
    /// ignored.
    #[must_use]
    pub fn with_secrets(self, secrets: impl IntoIterator<Item = Secret>) -> Redactor {
        let mut forms: Vec<String> =
            self.secrets.iter().map(|known| known.form.expose().to_owned()).collect();
        for secret in secrets {
            let value = secret.expose().trim();
            if value.len() < MIN_SECRET_BYTES || is_in_marker(value) {
                continue;
            }
            forms.push(value.to_owned());
            forms.extend(json::escaped(value).filter(|escaped| escaped != value));
        }
        forms.sort_unstable();
        forms.dedup();
        let known = |form: String| ConfiguredSecret {
            finder: Finder::new(form.as_bytes()).into_owned(),
            form: Secret::new(form),
        };
        Redactor { secrets: Arc::new(forms.into_iter().map(known).collect()) }
    }

    /// Replaces all secrets in a text.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replace(text, |redactor, text| redactor.spans(text))
    }

    /// Replaces only the configured secrets in a text.
    pub fn redact_configured<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replace(text, |redactor, text| merged(redactor.configured_spans(text)))
    }

    /// Replaces the configured secrets in the arguments of a call, in any notation that JSON has for them. Returns `None` if
    /// there are none.
    pub fn redact_arguments(&self, arguments: &str) -> Option<String> {
        if self.secrets.is_empty() {
            return None;
        }
        if arguments.contains('\\')
            && let Some(redacted) = redact_strings(arguments, |text| self.redact_configured(text))
        {
            return Some(redacted);
        }
        match self.redact_configured(arguments) {
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted),
        }
    }

    /// Replaces all secrets in a JSON text. The result has the same structure.
    pub fn redact_json<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // The search in the whole text decides most cases. Characters that JSON escapes are no part of a key.
        if self.spans(text).is_empty() {
            return Cow::Borrowed(text);
        }
        redact_strings(text, |text| self.redact(text)).map_or_else(|| self.redact(text), Cow::Owned)
    }

    /// Whether a text contains a configured secret, or the text that replaces one. A call with such arguments does not run.
    pub fn is_refused(&self, arguments: &str) -> bool {
        arguments.contains(&marker(CONFIGURED)) || self.redact_arguments(arguments).is_some()
    }

    fn replace<'t>(&self, text: &'t str, find: impl Fn(&Redactor, &str) -> Vec<Span>) -> Cow<'t, str> {
        let mut redacted = Cow::Borrowed(text);
        for _ in 0..MAX_PASSES {
            let spans = find(self, &redacted);
            if spans.is_empty() {
                break;
            }
            redacted = Cow::Owned(replaced(&redacted, &spans));
        }
        redacted
    }

    /// Places of all secrets, in order and without overlaps.
    fn spans(&self, text: &str) -> Vec<Span> {
        let mut spans = shapes::find(text);
        let configured = self.configured_spans(text);
        if configured.is_empty() {
            return spans;
        }
        spans.extend(configured);
        merged(spans)
    }

    fn configured_spans(&self, text: &str) -> Vec<Span> {
        let mut spans = Vec::new();
        for secret in self.secrets.iter() {
            let length = secret.form.expose().len();
            let found = secret.finder.find_iter(text.as_bytes());
            spans.extend(found.map(|at| Span { range: at..at + length, label: CONFIGURED }));
        }
        spans
    }

    /// Start of the text at the end that may be the beginning of a secret; the length of the text if there is none.
    fn unfinished(&self, text: &str) -> usize {
        let begun = self.secrets.iter().filter_map(|secret| begun(text, secret.form.expose())).min();
        begun.unwrap_or(text.len()).min(shapes::unfinished(text))
    }
}

/// Minimum number of bytes of a configured secret that are recognised as its beginning.
const MIN_BEGUN_BYTES: usize = 4;

/// Start of an incomplete secret at the end of a text.
fn begun(text: &str, secret: &str) -> Option<usize> {
    let longest = text.len().min(secret.len().saturating_sub(1));
    let is_begun = |count: &usize| secret.get(..*count).is_some_and(|start| text.ends_with(start));
    (MIN_BEGUN_BYTES..=longest).rev().find(is_begun).map(|count| text.len() - count)
}

/// Joins overlapping spans.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|span| (span.range.start, std::cmp::Reverse(span.range.end)));
    let mut joined: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.range.start < last.range.end => {
                last.range.end = last.range.end.max(span.range.end);
            }
            _ => joined.push(span),
        }
    }
    joined
}

fn replaced(text: &str, spans: &[Span]) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut from = 0;
    for Span { range, label } in spans {
        redacted.push_str(text.get(from..range.start).unwrap_or_default());
        redacted.push_str(&marker(label));
        from = range.end;
    }
    redacted.push_str(text.get(from..).unwrap_or_default());
    redacted
}

/// Text that replaces a secret.
fn marker(label: &str) -> String {
    format!("{MARKER_START}{label}]")
}

/// Whether a value is a part of a text that replaces secrets. Such a value is no secret.
fn is_in_marker(value: &str) -> bool {
    labels().any(|label| marker(label).contains(value))
}

fn labels() -> impl Iterator<Item = &'static str> {
    shapes::labels().chain([CONFIGURED])
}

/// Texts in place of secrets that occur in a text.
pub fn markers(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(MARKER_START).filter_map(|(at, start)| {
        let (label, _) = text.get(at + start.len()..)?.split_once(']')?;
        labels().any(|known| known == label).then(|| text.get(at..at + start.len() + label.len() + 1))?
    })
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.secrets.len()).finish()
    }
}

#[cfg(test)]
mod tests;
