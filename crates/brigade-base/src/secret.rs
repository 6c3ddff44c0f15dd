//! Secrets that are never printed or serialized.

use std::fmt;

/// API key of a provider. It is never printed or serialized. Code that needs the key calls
/// [`expose`](Secret::expose).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key.
    pub fn new(key: impl Into<String>) -> Secret {
        Secret(key.into())
    }

    /// Returns the key.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the key is unlikely to occur in texts by chance. Placeholders, such as `none` or `lm-studio`, are not
    /// distinctive, and redacting them would garble texts.
    pub fn is_distinctive(&self) -> bool {
        let has = |kind: fn(&u8) -> bool| self.0.bytes().any(|byte| kind(&byte));
        let has_letter = has(u8::is_ascii_alphabetic);
        let (has_digit, has_sign) = (has(u8::is_ascii_digit), has(u8::is_ascii_punctuation));
        let has_cases = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
        has_letter
            && ((self.0.len() >= MIN_MIXED_BYTES && has_digit)
                || (self.0.len() >= MIN_LETTERS_BYTES && (has_sign || has_cases)))
    }
}

/// Minimum length of a distinctive key with letters and digits.
const MIN_MIXED_BYTES: usize = 8;
/// Minimum length of a distinctive key without digits.
const MIN_LETTERS_BYTES: usize = 20;

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_words_and_numbers_are_not_distinctive() {
        for (key, expected) in [
            ("sk-canary-of-the-runner", true),
            ("hunter22", true),
            ("AbCdEfGhIjKlMnOpQrStUv", true),
            ("ollama", false),
            ("lm-studio", false),
            ("no-key-required", false),
            ("1234567890123456", false),
            ("production", false),
        ] {
            assert_eq!(Secret::new(key).is_distinctive(), expected, "{key}");
        }
    }
}
