//! Keys that are used and never shown.

use std::fmt;

/// A key. It cannot be printed, neither by itself nor within anything that holds it.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes a key.
    pub fn new(key: impl Into<String>) -> Secret {
        Secret(key.into())
    }

    /// The key itself, for the one place that sends it.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
