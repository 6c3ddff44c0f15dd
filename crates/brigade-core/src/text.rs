//! Text of any length in an event of bounded size.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::Hash;

/// Maximum size of inline text; longer text is stored separately, as a blob named by its hash.
pub const MAX_INLINE_BYTES: usize = 8 * 1024;

/// Text of an event. Short text is inline. A store moves longer text into a blob on writing and restores it on
/// reading, so that folding code only ever sees complete text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// The text itself.
    Inline(Arc<str>),
    /// Reference to the text. Boxed: there are many texts in memory, and few of this kind.
    Spilled(Box<BlobRef>),
}

/// Reference to text that is stored separately.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// Hash of the text.
    pub blob: Hash,
    /// Length of the text.
    pub bytes: u64,
}

impl Text {
    /// Returns the text, or a note in its place if the blob is missing.
    pub fn as_str(&self) -> &str {
        match self {
            Text::Inline(text) => text,
            Text::Spilled(_) => "(this text is missing from the store)",
        }
    }

    /// Returns the length in bytes, wherever the text is stored.
    pub fn len(&self) -> usize {
        match self {
            Text::Inline(text) => text.len(),
            Text::Spilled(blob_ref) => usize::try_from(blob_ref.bytes).unwrap_or(usize::MAX),
        }
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Text {
    fn default() -> Text {
        Text::Inline(Arc::from(""))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::Inline(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::Inline(text.into())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Cuts `text` to at most `limit` bytes on a character boundary.
pub fn truncate_bytes(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Finds the line in which a failed program reports the cause: the first that mentions an error, or else the last
/// that is not blank. Programs add traces, versions and log file names after their error.
pub fn error_line(output: &str) -> Option<&str> {
    let names_error = |line: &&str| {
        let small = line.to_lowercase();
        let is_quoted = line.starts_with(char::is_whitespace);
        !is_quoted && ["error:", "npm err", "fatal", "panicked"].iter().any(|word| small.contains(word))
    };
    let mut lines = output.lines().filter(|line| !line.trim().is_empty());
    let last = output.lines().rev().find(|line| !line.trim().is_empty());
    lines.find(names_error).or(last).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_text_is_shown_as_it_is() {
        let text = Text::from("two\nlines");
        assert_eq!((text.as_str(), text.len(), text.is_empty()), ("two\nlines", 9, false));
        assert_eq!((format!("{text}"), format!("{text:?}")), ("two\nlines".into(), "\"two\\nlines\"".into()));
        assert_eq!((Text::from(String::from("a")), Text::default()), ("a".into(), "".into()));
        assert!(Text::default().is_empty());
    }

    #[test]
    fn missing_text_has_its_length_and_a_note() {
        let spilled = |bytes| Text::Spilled(Box::new(BlobRef { blob: Hash::of(b"long"), bytes }));
        let text = spilled(9_000);
        assert_eq!((text.len(), text.is_empty()), (9_000, false));
        assert_eq!(text.to_string(), "(this text is missing from the store)");
        assert!(spilled(0).is_empty());
    }

    #[test]
    fn inline_text_has_at_most_eight_kibibytes() {
        assert_eq!(MAX_INLINE_BYTES, 8_192, "stores of earlier versions were written with this limit");
    }

    #[test]
    fn truncate_bytes_cuts_before_a_character_that_does_not_fit() {
        let text = "a\u{e9}b";
        let cuts: Vec<&str> = (0..=5).map(|limit| truncate_bytes(text, limit)).collect();
        assert_eq!(cuts, ["", "a", "a", "a\u{e9}", text, text]);
    }

    #[test]
    fn error_line_finds_the_line_with_the_error() {
        let node = "node:internal/errors:496\n    throw error: x\n    ^\n\nError: Cannot find module 'x'\n    at y\n\nNode.js v22\n";
        assert_eq!(error_line(node), Some("Error: Cannot find module 'x'"));
        let python = "Traceback (most recent call last):\n  File \"x\", line 1\nValueError: no port\n";
        assert_eq!(error_line(python), Some("ValueError: no port"));
        let npm = "npm error code E404\nnpm error A complete log is in: /x\n";
        assert_eq!(error_line(npm), Some("npm error code E404"));
        assert_eq!(error_line("Starting\n  no licence found\n\n"), Some("no licence found"));
        assert_eq!(error_line(" \n"), None);
    }
}
