//! Long pastes in a text that is typed: each is one character of the text, and is shown by its size.

use std::ops::RangeInclusive;

/// A paste with more lines, or with more characters, is folded.
const MAX_LINES: usize = 10;
const MAX_CHARS: usize = 1000;

/// Characters that stand for a paste. Plane 15 is for private use, so that no text of a user has them.
const MARKS: RangeInclusive<u32> = 0xF_0000..=0xF_FFFD;

/// The pastes of a text.
#[derive(Debug, Default)]
pub(super) struct Folds(Vec<String>);

impl Folds {
    /// The text to insert for a paste: the paste itself, or one character for a long one.
    pub(super) fn fold(&mut self, paste: String) -> String {
        let is_long = paste.lines().count() > MAX_LINES || paste.chars().count() > MAX_CHARS;
        let mark = u32::try_from(self.0.len()).ok().and_then(|index| char::from_u32(MARKS.start() + index));
        match mark.filter(|mark| is_long && is_mark(*mark)) {
            Some(mark) => {
                self.0.push(paste);
                mark.to_string()
            }
            None => paste,
        }
    }

    /// The text with every paste in its place.
    pub(super) fn unfolded(&self, text: &str) -> String {
        self.replaced(text, str::to_owned)
    }

    /// The text with the size of every paste in its place.
    pub(super) fn shown(&self, text: &str) -> String {
        self.replaced(text, label)
    }

    /// Whether a character stands for a paste of this text.
    pub(super) fn has(&self, mark: char) -> bool {
        self.paste(mark).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn paste(&self, mark: char) -> Option<&String> {
        let index = u32::from(mark).checked_sub(*MARKS.start())?;
        self.0.get(usize::try_from(index).ok()?)
    }

    fn replaced(&self, text: &str, by: impl Fn(&str) -> String) -> String {
        text.chars().map(|c| self.paste(c).map_or_else(|| c.to_string(), |paste| by(paste))).collect()
    }
}

/// Whether a character could stand for a paste.
pub(super) fn is_mark(c: char) -> bool {
    MARKS.contains(&u32::from(c))
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
    fn long_pastes_are_one_character_and_short_ones_stay() {
        let mut folds = Folds::default();
        assert_eq!(folds.fold("two\nlines".to_owned()), "two\nlines");
        let long = "line\n".repeat(MAX_LINES + 1);
        let text = format!("a {} b {}", folds.fold(long.clone()), folds.fold("é".repeat(MAX_CHARS + 1)));
        assert_eq!(text.chars().count(), 7);
        assert_eq!(folds.shown(&text), "a [pasted text, 11 lines] b [pasted text, 1001 characters]");
        assert_eq!(folds.unfolded(&text), format!("a {long} b {}", "é".repeat(MAX_CHARS + 1)));
    }

    #[test]
    fn a_character_that_stands_for_no_paste_is_left_alone() {
        let folds = Folds::default();
        assert_eq!(folds.unfolded("\u{f0000}"), "\u{f0000}");
        assert!(is_mark('\u{f0000}') && !folds.has('\u{f0000}') && !is_mark('a'));
    }
}
