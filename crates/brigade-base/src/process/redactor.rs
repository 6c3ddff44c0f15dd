//! Redaction of the secrets that a program was given.

use crate::secret::Secret;

/// Shorter values, such as numbers, occur everywhere and are not secrets.
const MIN_SECRET_BYTES: usize = 6;

/// Secrets of a program.
#[derive(Clone)]
pub struct Redactor {
    /// Longest first, because one secret may contain another.
    secrets: Vec<Secret>,
    sanitize: fn(&str) -> String,
}

impl Redactor {
    /// Creates a redactor of these secrets. `sanitize` makes a text of the program safe to show.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a Secret>, sanitize: fn(&str) -> String) -> Redactor {
        let mut secrets: Vec<Secret> =
            secrets.filter(|secret| secret.expose().len() >= MIN_SECRET_BYTES).cloned().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        Redactor { secrets, sanitize }
    }

    /// Redacts the secrets in a text.
    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.expose()) {
                text = text.replace(secret.expose(), "(hidden)");
            }
        }
        text
    }

    /// Redacts and sanitizes a text of the program. Redaction comes first, because shortening could leave a
    /// part of a secret.
    pub fn sanitize(&self, text: &str) -> String {
        (self.sanitize)(&self.redact(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redactor_with_one_secret_inside_another_hides_both() {
        let secrets = ["secret", "my-secret-key", "short"].map(Secret::new);
        let redactor = Redactor::new(secrets.iter(), |text| text.to_uppercase());
        assert_eq!(redactor.redact("my-secret-key, secret, short"), "(hidden), (hidden), short");
        assert_eq!(redactor.sanitize("a secret"), "A (HIDDEN)");
    }
}
