//! Trees, tables and transcripts as text.

mod branches;
mod document;
mod html;
mod markdown;
pub(crate) mod question;
mod spans;
mod story;
mod table;
mod tale;
mod transcript;
mod tree;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) use branches::{Branch, Breadth, branches};
pub(crate) use document::document;
pub(crate) use html::html;
pub(crate) use markdown::Markdown;
pub(crate) use spans::Spans;
pub(crate) use story::label;
pub(crate) use table::{costs, costs_by_agent, layout};
pub(crate) use tale::Tale;
pub(crate) use transcript::{Outputs, transcript};
pub(crate) use tree::{Content, Row, rows};

/// Cuts a text to so many columns.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut fitted = String::new();
    let mut used = 0;
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if used + width + 1 > columns {
            break;
        }
        used += width;
        fitted.push(c);
    }
    if columns > 0 {
        fitted.push('…');
    }
    fitted
}

/// Puts things beside each other, and below each other where there is no room.
pub(crate) fn filled<'a>(things: impl Iterator<Item = &'a str>, gap: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for thing in things {
        match lines.last_mut() {
            Some(line) if line.width() + gap.width() + thing.width() <= columns => {
                line.push_str(gap);
                line.push_str(thing);
            }
            _ => lines.push(thing.to_owned()),
        }
    }
    lines
}

/// Fills a text up to so many columns.
pub(crate) fn pad(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(blanks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(pad("日", 4), "日  ");
    }

    #[test]
    fn what_has_no_room_stands_below() {
        assert_eq!(filled(["ab", "日", "c", "defgh"].into_iter(), " ", 5), ["ab 日", "c", "defgh"]);
    }
}
