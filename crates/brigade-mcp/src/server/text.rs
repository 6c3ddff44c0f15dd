//! Sanitizing of text from agents for display in clients.

use brigade_core::text::truncate_bytes;

/// Converts a text to one line without control characters, of at most `limit` bytes.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    truncate_bytes(&in_one_line(text.chars().take(limit)), limit).to_owned()
}

/// Also returns the number of bytes that were cut off. The user must not approve a call with a hidden part.
pub(crate) fn one_line_and_rest(text: &str, limit: usize) -> (String, usize) {
    let line = in_one_line(text.chars());
    let shown = truncate_bytes(&line, limit).to_owned();
    let rest = line.len() - shown.len();
    (shown, rest)
}

fn in_one_line(text: impl Iterator<Item = char>) -> String {
    let plain = |c: char| match c {
        c if c.is_control() => ' ',
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => ' ',
        '\u{e0000}'..='\u{e0fff}' => ' ',
        c => c,
    };
    let line: String = text.map(plain).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_and_rest_counts_the_hidden_bytes() {
        assert_eq!(one_line_and_rest("a\u{202e}b\n c", 10), ("a b c".to_owned(), 0));
        assert_eq!(one_line_and_rest("0123456789ab", 10), ("0123456789".to_owned(), 2));
        let padded = format!("ls{}; rm", " ".repeat(1000));
        assert_eq!(one_line_and_rest(&padded, 10), ("ls ; rm".to_owned(), 0));
        assert_eq!(one_line(&padded, 10), "ls");
    }
}
