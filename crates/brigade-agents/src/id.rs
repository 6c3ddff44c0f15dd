//! Agent ids.

use brigade_core::agent::normalised_id;

/// Maximum length of an id.
const MAX_ID_BYTES: usize = 64;

/// Whether a text is a valid id: 1 to 64 of `a-z`, `0-9`, `.`, `_`, `-`, starting with a letter or digit.
pub fn is_id(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=MAX_ID_BYTES).contains(&text.len())
        && text.bytes().next().is_some_and(letter)
        && text.bytes().all(|b| letter(b) || matches!(b, b'.' | b'_' | b'-'))
}

/// Derives an id from a folder name, if possible.
pub(crate) fn id_of_folder(name: &str) -> Option<String> {
    if is_id(name) { Some(name.to_owned()) } else { normalised_id(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_id_accepts_lowercase_ascii_only() {
        for good in ["a", "code-reviewer", "powershell-5.1-expert", "a_b", "9"] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", ".", "..", "-a", "A", "a b", "a/b", "é", &"a".repeat(65)] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
