//! Redaction of what a server writes.

use crate::redactor;
use crate::secret::Secret;

/// Redacts the secrets that a server was given, and keys of known shapes, in its texts.
#[derive(Clone)]
pub struct Redactor {
    secrets: redactor::Redactor,
    sanitize: fn(&str) -> String,
}

impl Redactor {
    /// Creates a redactor of these secrets. `sanitize` makes a text of the server safe to show.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a Secret>, sanitize: fn(&str) -> String) -> Redactor {
        Redactor { secrets: redactor::Redactor::default().with_secrets(secrets.cloned()), sanitize }
    }

    /// Redacts the secrets in a text.
    pub fn redact(&self, text: &str) -> String {
        self.secrets.redact(text).into_owned()
    }

    /// Redacts and sanitizes a text of the server. Redaction comes first, because shortening could leave a
    /// part of a secret.
    pub fn sanitize(&self, text: &str) -> String {
        (self.sanitize)(&self.redact(text))
    }
}
