//! What agents say, as it can be shown by whoever reads the protocol.

use brigade_core::text::cut;

/// One line without control characters, of at most `limit` bytes.
pub(crate) fn line(text: &str, limit: usize) -> String {
    let plain = |c: char| match c {
        c if c.is_control() => ' ',
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => ' ',
        '\u{e0000}'..='\u{e0fff}' => ' ',
        c => c,
    };
    let line: String = text.chars().take(limit).map(plain).collect();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&line, limit).to_owned()
}
