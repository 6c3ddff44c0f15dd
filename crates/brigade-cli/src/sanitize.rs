//! Sanitizing of untrusted text, so that models, tools and files cannot send control sequences to the terminal.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

use unicode_width::UnicodeWidthChar;

/// Maximum number of combining marks on a character. No language needs more.
const MAX_COMBINING_MARKS: usize = 4;

/// Whether a character could move the cursor, reorder text, or be invisible.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{feff}' | '\u{3164}' | '\u{ffa0}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Sanitizes text of several lines: line ends and tabs are kept, other hostile characters become `\u{..}`.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escape_chars(text, is_hostile)
}

/// Sanitizes text for a program or a file: only control characters become `\u{..}`. Joiners are kept, since they do
/// not control a terminal.
pub(crate) fn escape_control_chars(text: &str) -> Cow<'_, str> {
    escape_chars(text, char::is_control)
}

fn escape_chars(text: &str, is_hostile: fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_hostile(c) && c != '\n' && c != '\t') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' if characters.peek() == Some(&'\n') => {}
            c if is_hostile(c) => escape(c, &mut shown),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Sanitizes text for a single line: white space of any kind becomes a space. Variation selectors are removed,
/// because terminals disagree on the width of the characters that they select. So are excessive combining marks.
pub(crate) fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut marks = 0;
    for c in text.trim().chars() {
        marks = if c.width() == Some(0) { marks + 1 } else { 0 };
        match c {
            '\n' | '\r' | '\t' => {
                if !shown.ends_with(' ') {
                    shown.push(' ');
                }
            }
            c if is_hostile(c) => escape(c, &mut shown),
            '\u{fe00}'..='\u{fe0f}' => {}
            _ if marks > MAX_COMBINING_MARKS => {}
            c => shown.push(c),
        }
    }
    shown
}

/// Path for display, on one line.
pub(crate) fn path(path: &Path) -> String {
    line(&path.display().to_string())
}

/// Escapes hostile characters in JSON without changing its meaning. They occur only in strings there.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    let hostile = |c: char| is_hostile(c) && c != '\n';
    if !text.chars().any(hostile) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hostile(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

fn escape(c: char, shown: &mut String) {
    let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[2Jb\u{9b}31mc\u{7}d\u{202e}e\u{200b}f\u{2066}g\u{7f}h\rz\u{e0041}";

    #[test]
    fn hostile_characters_are_shown_and_not_sent() {
        let shown = lines(HOSTILE);
        assert!(!shown.chars().any(is_hostile), "{shown:?}");
        assert!(shown.starts_with("a\\u{1b}[2Jb\\u{9b}31mc\\u{7}d\\u{202e}e\\u{200b}f"));
        assert!(!line(HOSTILE).chars().any(is_hostile));
    }

    #[test]
    fn only_control_characters_are_escaped_for_programs() {
        let shown = escape_control_chars(HOSTILE);
        assert!(!shown.chars().any(|c| c.is_control()), "{shown:?}");
        assert!(shown.contains('\u{202e}') && shown.contains("\\u{9b}31m"), "{shown:?}");
        let family = "\u{1f468}\u{200d}\u{1f469}\tx\n";
        assert!(matches!(escape_control_chars(family), Cow::Borrowed(same) if same == family));
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        let text = "Zwölf Boxkämpfer\tjagen\n日本語";
        assert!(matches!(lines(text), Cow::Borrowed(same) if same == text));
        assert_eq!(lines("a\r\nb"), "a\nb");
        assert_eq!(line("a\n\tb\r\n"), "a b");
    }

    #[test]
    fn combining_marks_are_capped_and_variation_selectors_removed() {
        assert_eq!(line(&format!("a{}b", "\u{301}".repeat(99))), format!("a{}b", "\u{301}".repeat(4)));
        assert_eq!(line("\u{2714}\u{fe0f} ok"), "\u{2714} ok");
        assert_eq!(line("x\u{e0100}\u{3164}"), "x\\u{e0100}\\u{3164}");
    }

    #[test]
    fn sanitized_json_parses_to_the_same_value() {
        let encoded = serde_json::to_string(HOSTILE).unwrap();
        let shown = json(&encoded);
        assert!(!shown.chars().any(is_hostile), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), HOSTILE);
    }
}
