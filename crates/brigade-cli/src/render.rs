//! Trees, tables and transcripts as text.

mod branches;
mod document;
mod html;
mod links;
mod markdown;
pub(crate) mod question;
mod stage;
mod story;
mod table;
mod tale;
mod transcript;
mod tree;
mod wrap;

use brigade_core::view::{Node, Tree};
use unicode_width::UnicodeWidthChar;

use crate::clock;

pub(crate) use branches::{Branch, Breadth, branches};
pub(crate) use document::document;
pub(crate) use html::html;
pub(crate) use markdown::Markdown;
pub(crate) use stage::Stage;
pub(crate) use story::{Change, label};
pub(crate) use table::{changes, costs, costs_by_agent, ended, layout, summary};
pub(crate) use tale::Tale;
pub(crate) use transcript::{Outputs, transcript};
pub(crate) use tree::{Content, Row, overview};
pub(crate) use wrap::{hanging, wrapped, wrapped_markdown};

/// How long an agent worked, or has worked so far, in milliseconds.
pub(crate) fn elapsed(tree: &Tree, node: &Node) -> u64 {
    tree.working_time([&node.session], Some(clock::now()))
}

/// The columns that a text takes, character by character: terminals that join some of them take fewer, none takes more.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Cuts a text to so many columns.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
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

/// Cuts a text to so many columns, between two words if there is a blank in its second half.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    let cut = fit(text, columns);
    let Some(kept) = cut.strip_suffix('…').filter(|_| cut != text) else { return cut };
    let is_whole_word = text[kept.len()..].starts_with(' ');
    let kept = match kept.rfind(' ').filter(|at| !is_whole_word && *at >= kept.len() / 2) {
        Some(at) => &kept[..at],
        None => kept,
    };
    format!("{}…", kept.trim_end())
}

/// Puts things beside each other, and below each other where there is no room.
pub(crate) fn filled<'a>(things: impl Iterator<Item = &'a str>, gap: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for thing in things {
        match lines.last_mut() {
            Some(line) if width(line) + width(gap) + width(thing) <= columns => {
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
    let blanks = columns.saturating_sub(width(text));
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
    fn texts_are_shortened_between_words() {
        assert_eq!(shortened("Find out why the tests fail", 18), "Find out why the…");
        assert_eq!(shortened("Find out why the tests fail", 17), "Find out why the…");
        assert_eq!(shortened("Find out", 8), "Find out");
        assert_eq!(shortened("a supercalifragilistic word", 12), "a supercali…", "there is no better place");
        assert_eq!(shortened("日本語のタスク", 7), "日本語…");
    }

    #[test]
    fn what_has_no_room_stands_below() {
        assert_eq!(filled(["ab", "日", "c", "defgh"].into_iter(), " ", 5), ["ab 日", "c", "defgh"]);
    }
}
