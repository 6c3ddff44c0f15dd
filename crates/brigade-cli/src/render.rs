//! Rendering of trees, tables and transcripts as text.

pub(crate) mod approval_view;
mod export_model;
mod html_export;
mod links;
mod markdown;
mod markdown_export;
mod status_counts;
mod subtree_totals;
mod table;
mod timeline;
mod transcript;
mod tree;
mod wrap;

use brigade_core::view::{Node, Tree};
use unicode_width::UnicodeWidthChar;

use crate::clock;

pub(crate) use export_model::ExportedRun;
pub(crate) use html_export::export_html;
pub(crate) use markdown::Markdown;
pub(crate) use markdown_export::export_markdown;
pub(crate) use status_counts::AgentStatus;
pub(crate) use subtree_totals::{TreeDetail, subtree_totals};
pub(crate) use table::{changes, costs, costs_by_agent, layout, status_cell, summary};
pub(crate) use timeline::{FileChange, answer_label};
pub(crate) use transcript::{OutputDetail, transcript};
pub(crate) use tree::{Row, RowContent, overview};
pub(crate) use wrap::{wrap_hanging, wrap_markdown, wrap_text};

/// Time that an agent has worked so far, in milliseconds.
pub(crate) fn working_time(tree: &Tree, node: &Node) -> u64 {
    tree.working_time([&node.session], Some(clock::now()))
}

/// Width of a text, as the sum of its characters. Terminals that combine characters use fewer columns, never more.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Truncates a text to `columns`.
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

/// Truncates a text to `columns`, at a space if there is one in the second half.
pub(crate) fn truncate_at_word(text: &str, columns: usize) -> String {
    let cut = fit(text, columns);
    let Some(prefix) = cut.strip_suffix('…').filter(|_| cut != text) else { return cut };
    let is_whole_word = text[prefix.len()..].starts_with(' ');
    let prefix = match prefix.rfind(' ').filter(|at| !is_whole_word && *at >= prefix.len() / 2) {
        Some(at) => &prefix[..at],
        None => prefix,
    };
    format!("{}…", prefix.trim_end())
}

/// Places items side by side, and wraps them if there is not enough room.
pub(crate) fn wrap_items<'a>(items: impl Iterator<Item = &'a str>, gap: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if width(line) + width(gap) + width(item) <= columns => {
                line.push_str(gap);
                line.push_str(item);
            }
            _ => lines.push(item.to_owned()),
        }
    }
    lines
}

/// Pads a text to `columns`.
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
    fn text_is_truncated_between_words() {
        assert_eq!(truncate_at_word("Find out why the tests fail", 18), "Find out why the…");
        assert_eq!(truncate_at_word("Find out why the tests fail", 17), "Find out why the…");
        assert_eq!(truncate_at_word("Find out", 8), "Find out");
        assert_eq!(
            truncate_at_word("a supercalifragilistic word", 12),
            "a supercali…",
            "there is no better place"
        );
        assert_eq!(truncate_at_word("日本語のタスク", 7), "日本語…");
    }

    #[test]
    fn items_that_do_not_fit_wrap_to_the_next_line() {
        assert_eq!(wrap_items(["ab", "日", "c", "defgh"].into_iter(), " ", 5), ["ab 日", "c", "defgh"]);
    }
}
