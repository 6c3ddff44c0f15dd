//! Folding of long pastes: each becomes one character of the text, and is displayed as its size.

use std::ops::RangeInclusive;

/// A paste with more lines, or with more characters, is folded.
const MAX_LINES: usize = 10;
const MAX_CHARS: usize = 1000;

/// Characters that represent a paste. Plane 15 is for private use, so no text of a user contains them.
const PLACEHOLDERS: RangeInclusive<u32> = 0xF_0000..=0xF_FFFD;

/// Folded pastes of a text.
#[derive(Debug, Default)]
pub(super) struct Folds(Vec<String>);

impl Folds {
    /// Text to insert for a paste: the paste itself, or a placeholder for a long one.
    pub(super) fn fold(&mut self, paste: String) -> String {
        let is_long = paste.lines().count() > MAX_LINES || paste.chars().count() > MAX_CHARS;
        let placeholder =
            u32::try_from(self.0.len()).ok().and_then(|index| char::from_u32(PLACEHOLDERS.start() + index));
        match placeholder.filter(|placeholder| is_long && is_placeholder(*placeholder)) {
            Some(placeholder) => {
                self.0.push(paste);
                placeholder.to_string()
            }
            None => paste,
        }
    }

    /// Text with every placeholder replaced by its paste.
    pub(super) fn unfold(&self, text: &str) -> String {
        self.replace_placeholders(text, str::to_owned)
    }

    /// Text with every placeholder replaced by the size of its paste.
    pub(super) fn shown(&self, text: &str) -> String {
        self.replace_placeholders(text, label)
    }

    /// Whether a character represents a paste of this text.
    pub(super) fn has(&self, placeholder: char) -> bool {
        self.paste(placeholder).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn paste(&self, placeholder: char) -> Option<&String> {
        let index = u32::from(placeholder).checked_sub(*PLACEHOLDERS.start())?;
        self.0.get(usize::try_from(index).ok()?)
    }

    fn replace_placeholders(&self, text: &str, by: impl Fn(&str) -> String) -> String {
        text.chars().map(|c| self.paste(c).map_or_else(|| c.to_string(), |paste| by(paste))).collect()
    }
}

/// Whether a character is in the range of placeholders.
pub(super) fn is_placeholder(c: char) -> bool {
    PLACEHOLDERS.contains(&u32::from(c))
}

fn label(paste: &str) -> String {
    match paste.lines().count() {
        0 | 1 => format!("[pasted text, {} characters]", paste.chars().count()),
        lines => format!("[pasted text, {lines} lines]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pastes_are_folded_and_short_ones_stay() {
        let mut folds = Folds::default();
        assert_eq!(folds.fold("two\nlines".to_owned()), "two\nlines");
        let long = "line\n".repeat(MAX_LINES + 1);
        let text = format!("a {} b {}", folds.fold(long.clone()), folds.fold("é".repeat(MAX_CHARS + 1)));
        assert_eq!(text.chars().count(), 7);
        assert_eq!(folds.shown(&text), "a [pasted text, 11 lines] b [pasted text, 1001 characters]");
        assert_eq!(folds.unfold(&text), format!("a {long} b {}", "é".repeat(MAX_CHARS + 1)));
    }

    #[test]
    fn placeholder_without_a_paste_is_left_unchanged() {
        let folds = Folds::default();
        assert_eq!(folds.unfold("\u{f0000}"), "\u{f0000}");
        assert!(is_placeholder('\u{f0000}') && !folds.has('\u{f0000}') && !is_placeholder('a'));
    }
}
