//! Labels, descriptions and names as they are displayed.

use unicode_normalization::UnicodeNormalization;

use crate::text::Text;

/// Maximum length of a title that is not shortened, in characters.
const MAX_TITLE_CHARS: usize = 64;

/// Label or description that a model wrote.
pub(super) struct Title {
    /// Title on one line: control characters and brackets escaped, shortened with `…`.
    pub(super) display: String,
    /// Title as written, if the display form differs.
    pub(super) original: Option<Text>,
}

impl Title {
    /// Creates a title from a text; `None` if it is blank.
    pub(super) fn of(text: &str) -> Option<Title> {
        let text = text.trim();
        let mut display: Vec<char> = Vec::new();
        // Last position at which the title can be cut to make room for the mark.
        let mut end = 0;
        for c in text.chars() {
            match c {
                '[' | ']' => display.extend(['\\', c]),
                _ if is_plain(c) => display.push(c),
                _ => display.extend(c.escape_default()),
            }
            if display.len() > MAX_TITLE_CHARS {
                display.truncate(end);
                display.push('…');
                break;
            }
            if display.len() < MAX_TITLE_CHARS {
                end = display.len();
            }
        }
        let display: String = display.into_iter().collect();
        let original = (display != text).then(|| Text::from(text));
        (!text.is_empty()).then_some(Title { display, original })
    }
}

/// Formats a model's title for display: one line that cannot imitate a prefix of the runtime.
pub(super) fn sanitize_title(text: &str, length: usize) -> String {
    let plain = |c: char| if is_plain(c) { c } else { ' ' };
    let line: String = text.chars().map(plain).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(length).collect()
}

/// Whether two names look the same in front of a message: letter case, width and composition are ignored.
pub fn looks_like(one: &str, other: &str) -> bool {
    let shape = |name: &str| name.trim().nfkc().collect::<String>().to_lowercase().nfkc().collect::<String>();
    shape(one) == shape(other)
}

/// Whether a character is valid in a title: visible, not a line break and not a bracket.
pub(super) fn is_plain(c: char) -> bool {
    let forbidden = c.is_control()
        || matches!(c, '[' | ']' | '\u{2028}' | '\u{2029}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{61c}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{ff3b}' | '\u{ff3d}');
    !forbidden
}
