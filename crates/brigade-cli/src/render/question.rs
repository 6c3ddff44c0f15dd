//! A question of an agent as a person reads it: who asks, why, and the whole call.
//!
//! Nothing of the call is left out, because what is harmful stands where nobody looks. Blanks that would push it out of
//! sight are counted instead.

use brigade_core::view::{Question, Tree};
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::filled;
use crate::safe;

/// More blanks than this in a row are counted.
const MOST_BLANKS: usize = 24;
/// More empty lines than this in a row are counted.
const MOST_EMPTY_LINES: usize = 3;
/// A call is not broken into lines narrower than this.
const LEAST_ROOM: usize = 16;
/// Stands before every line of a call, so that none of them looks like the words of somebody else.
const MARGIN: &str = "  │ ";
/// Stands before the rest of a line that was too long.
const CONTINUED: &str = "  ┆ ";

/// Who asks: all agents on the way to it, from the top.
pub(crate) fn lineage(question: &Question, tree: &Tree) -> String {
    let labels: Vec<String> = tree.lineage(&question.session).into_iter().map(safe::line).collect();
    if labels.is_empty() { question.session.to_string() } else { labels.join(" › ") }
}

/// The question, whole, in lines of so many columns.
pub(crate) fn lines(question: &Question, tree: &Tree, columns: usize) -> Vec<String> {
    let head = format!(
        "{} asks to call {} ({})",
        lineage(question, tree),
        safe::line(question.tool()),
        safe::line(&question.why)
    );
    let mut lines = filled(head.split(' '), " ", columns);
    let room = columns.saturating_sub(MARGIN.width()).max(LEAST_ROOM);
    for line in call(question.arguments()) {
        for (number, part) in broken(&line, room).into_iter().enumerate() {
            lines.push(format!("{}{part}", if number == 0 { MARGIN } else { CONTINUED }));
        }
    }
    lines
}

/// A line in parts that fit, with every blank of it.
fn broken(line: &str, room: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut used = 0;
    for letter in line.chars() {
        let width = letter.width().unwrap_or(0);
        if used + width > room {
            parts.push(String::new());
            used = 0;
        }
        used += width;
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts
}

/// The arguments of a call: each with its name, or the one there is without.
fn call(arguments: &str) -> Vec<String> {
    let Ok(Value::Object(fields)) = serde_json::from_str(arguments) else {
        return shown(arguments);
    };
    let is_plain = fields.len() == 1;
    let mut lines = Vec::new();
    for (name, value) in &fields {
        let name = safe::line(name);
        match value {
            Value::String(text) if is_plain => lines.extend(shown(text)),
            Value::String(text) if !text.contains('\n') => {
                lines.extend(shown(text).iter().map(|line| format!("{name}: {line}")));
            }
            Value::String(text) => {
                lines.push(format!("{name}:"));
                lines.extend(shown(text).iter().map(|line| format!("  {line}")));
            }
            other => lines.push(format!("{name}: {}", shown(&other.to_string()).join(" "))),
        }
    }
    lines
}

/// Text in lines, with nothing in it that hides or pushes away.
fn shown(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut empty = 0;
    for line in text.split('\n') {
        if line.trim().is_empty() {
            empty += 1;
            continue;
        }
        skip(&mut lines, &mut empty);
        lines.push(counted(line));
    }
    skip(&mut lines, &mut empty);
    lines
}

fn skip(lines: &mut Vec<String>, empty: &mut usize) {
    let count = std::mem::take(empty);
    if count > MOST_EMPTY_LINES {
        lines.push(format!("⟨{count} empty lines⟩"));
    } else {
        lines.extend(std::iter::repeat_n(String::new(), count));
    }
}

/// A line in which long runs of blanks are counted, and blanks that are no plain space are written out.
fn counted(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut blanks = 0;
    for letter in line.chars().map(Some).chain([None]) {
        if letter == Some(' ') {
            blanks += 1;
            continue;
        }
        match std::mem::take(&mut blanks) {
            few @ 0..=MOST_BLANKS => shown.extend(std::iter::repeat_n(' ', few)),
            many => shown.push_str(&format!("⟨{many} spaces⟩")),
        }
        match letter {
            Some(letter) if is_unseen(letter) => shown.extend(letter.escape_unicode()),
            Some(letter) => shown.push(letter),
            None => {}
        }
    }
    safe::lines(&shown).into_owned()
}

/// Whether a character leaves no mark, or changes those beside it, and is not a plain blank.
fn is_unseen(letter: char) -> bool {
    letter.is_whitespace()
        || letter.width() == Some(0)
        || matches!(letter,
            '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{e0100}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harmful_end_of_a_command_is_seen() {
        let command = format!("ls{};rm -rf ~\u{202e}\u{1b}[2K\u{200b}", " ".repeat(5000));
        let lines = call(&serde_json::json!({ "command": command }).to_string());
        assert_eq!(lines, [r"ls⟨5000 spaces⟩;rm -rf ~\u{202e}\u{1b}[2K\u{200b}"]);
        let command = format!("ls{}rm -rf ~", "\n".repeat(400));
        assert_eq!(
            call(&serde_json::json!({ "command": command }).to_string()),
            ["ls", "⟨399 empty lines⟩", "rm -rf ~"]
        );
        assert_eq!(counted("a\u{2800}\u{301}\u{fe0f}\u{3164}b"), r"a\u{2800}\u{301}\u{fe0f}\u{3164}b");
        assert_eq!(counted("a\u{a0}\u{3000}\tb\rc"), r"a\u{a0}\u{3000}\u{9}b\u{d}c");
    }

    #[test]
    fn no_line_leaves_its_margin() {
        assert_eq!(broken("  abcdefg", 5), ["  abc", "defg"]);
        assert_eq!(broken("日本語", 5), ["日本", "語"]);
        assert_eq!(broken("", 5), [""]);
    }

    #[test]
    fn every_argument_is_named_and_every_line_is_there() {
        let lines = call(r#"{"path":"a.txt","content":"one\n\n  two\n","mode":7,"\u001b[2Jx":true}"#);
        assert_eq!(
            lines,
            ["path: a.txt", "content:", "  one", "  ", "    two", "  ", "mode: 7", r"\u{1b}[2Jx: true"]
        );
        assert_eq!(call("not json \u{1b}[2J"), [r"not json \u{1b}[2J"]);
    }
}
