//! Text editor for one or more lines with a cursor. It draws nothing and does no terminal I/O.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::fold::{Folds, is_placeholder};
use crate::sanitize;

/// Change of the text or the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Inserts typed or pasted text.
    Insert(String),
    /// Deletes the character before the cursor.
    Backspace,
    /// Deletes the character at the cursor.
    Delete,
    /// Deletes the part of the word before the cursor.
    KillWordBefore,
    /// Deletes the part of the word after the cursor.
    KillWordAfter,
    /// Deletes the part of the line before the cursor.
    KillToStart,
    /// Deletes the part of the line after the cursor.
    KillToEnd,
    /// Inserts the text that was deleted last.
    Yank,
    /// Moves one character left.
    Left,
    /// Moves one character right.
    Right,
    /// Moves one word left.
    WordLeft,
    /// Moves one word right.
    WordRight,
    /// Moves to the start of the line.
    Home,
    /// Moves to the end of the line.
    End,
}

/// Whether the cursor moved to another line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It moved.
    Yes,
    /// It was already on the first or the last line.
    No,
}

/// Text, cursor and kill buffer of the input line.
#[derive(Debug, Default)]
pub(crate) struct Editor {
    text: String,
    /// Byte offset of the cursor. It is on a character boundary.
    cursor: usize,
    killed: String,
    /// Long pastes, each represented by one character of the text.
    folds: Folds,
}

/// Input that was taken out of the editor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenInput {
    /// Complete text.
    pub(crate) text: String,
    /// Text in which a placeholder with the size replaces each long paste.
    pub(crate) shown: String,
}

/// Text as laid out on a screen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Wrapped lines, sanitized.
    pub(crate) lines: Vec<String>,
    /// Row and column of the cursor.
    pub(crate) cursor: (usize, usize),
}

/// Prefix of the first line. Other lines are indented by its width.
const PROMPT: &str = "> ";
const INDENT: &str = "  ";
const TAB: &str = "    ";

impl Editor {
    /// Current text, with placeholders for long pastes.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the text is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether the cursor is at the end of the text.
    pub(crate) fn is_at_end(&self) -> bool {
        self.cursor == self.text.len()
    }

    /// Text before the cursor.
    pub(crate) fn text_before(&self) -> &str {
        &self.text[..self.cursor]
    }

    /// Replaces the text, and moves the cursor to its end. Long pastes that are still in it stay folded.
    pub(crate) fn replace(&mut self, text: &str) {
        let is_kept = |c: &char| !is_placeholder(*c) || self.folds.has(*c);
        self.text = normalize(text).chars().filter(is_kept).collect();
        self.cursor = self.text.len();
    }

    /// Replaces the last `bytes` bytes before the cursor.
    pub(crate) fn replace_before(&mut self, bytes: usize, text: &str) {
        let from = self.cursor.saturating_sub(bytes);
        if self.text.is_char_boundary(from) {
            self.remove(from, self.cursor);
            self.insert(&clean(text));
        }
    }

    /// Inserts pasted text. A long paste is folded into one character.
    pub(crate) fn paste(&mut self, text: &str) {
        let folded = self.folds.fold(clean(text));
        self.insert(&folded);
    }

    /// Takes the text and clears the editor.
    pub(crate) fn take(&mut self) -> String {
        self.take_input().text
    }

    /// Takes the text, complete and as shown, and clears the editor.
    pub(crate) fn take_input(&mut self) -> TakenInput {
        self.cursor = 0;
        let typed = std::mem::take(&mut self.text);
        let input = TakenInput { text: self.folds.unfold(&typed), shown: self.folds.shown(&typed) };
        self.folds.clear();
        // The deleted text may have contained a paste.
        self.killed.retain(|c| !is_placeholder(c));
        input
    }

    /// Applies an edit.
    pub(crate) fn apply(&mut self, edit: Edit) {
        match edit {
            Edit::Insert(text) => self.insert(&clean(&text)),
            Edit::Backspace => self.remove(self.before(), self.cursor),
            Edit::Delete => self.remove(self.cursor, self.after()),
            Edit::KillWordBefore => self.kill(self.word_before(), self.cursor),
            Edit::KillWordAfter => self.kill(self.cursor, self.word_after()),
            Edit::KillToStart => self.kill(self.line_start(), self.cursor),
            Edit::KillToEnd => self.kill(self.cursor, self.line_end()),
            Edit::Yank => self.insert(&self.killed.clone()),
            Edit::Left => self.cursor = self.before(),
            Edit::Right => self.cursor = self.after(),
            Edit::WordLeft => self.cursor = self.word_before(),
            Edit::WordRight => self.cursor = self.word_after(),
            Edit::Home => self.cursor = self.line_start(),
            Edit::End => self.cursor = self.line_end(),
        }
    }

    /// Moves to the same column of the line above.
    pub(crate) fn up(&mut self) -> Moved {
        let start = self.line_start();
        let Some(above_end) = start.checked_sub(1) else { return Moved::No };
        let column = self.text[start..self.cursor].graphemes(true).count();
        let above = &self.text[..above_end];
        let above_start = above.rfind('\n').map_or(0, |at| at + 1);
        self.cursor = above_start + offset(&above[above_start..], column);
        Moved::Yes
    }

    /// Moves to the same column of the line below.
    pub(crate) fn down(&mut self) -> Moved {
        let end = self.line_end();
        if end == self.text.len() {
            return Moved::No;
        }
        let column = self.text[self.line_start()..self.cursor].graphemes(true).count();
        let below_start = end + 1;
        let below = &self.text[below_start..];
        let below = below.split('\n').next().unwrap_or_default();
        self.cursor = below_start + offset(below, column);
        Moved::Yes
    }

    /// Replaces a backslash at the end with a line break. Returns whether there was one.
    pub(crate) fn continue_line(&mut self) -> bool {
        if !self.is_at_end() || !self.text.ends_with('\\') {
            return false;
        }
        self.text.pop();
        self.text.push('\n');
        self.cursor = self.text.len();
        true
    }

    /// Wraps the text to `columns`, and keeps at most `max_rows` rows around the cursor.
    pub(crate) fn layout(&self, columns: usize, max_rows: usize) -> Layout {
        let room = columns.max(INDENT.len() + 2);
        let mut lines = vec![PROMPT.to_owned()];
        let mut used = PROMPT.width();
        let mut cursor = (0, used);
        for (at, grapheme) in self.text.grapheme_indices(true) {
            if at == self.cursor {
                cursor = (lines.len() - 1, used);
            }
            if grapheme == "\n" {
                lines.push(INDENT.to_owned());
                used = INDENT.width();
                continue;
            }
            let shown = shown(&self.folds.shown(grapheme));
            for piece in pieces(&shown, room - INDENT.width()) {
                // The last column stays free for the cursor.
                if used + piece.width() >= room {
                    lines.push(INDENT.to_owned());
                    used = INDENT.width();
                    if at == self.cursor && cursor.1 + 1 >= room {
                        cursor = (lines.len() - 1, used);
                    }
                }
                used += piece.width();
                if let Some(line) = lines.last_mut() {
                    line.push_str(piece);
                }
            }
        }
        if self.is_at_end() {
            cursor = (lines.len() - 1, used);
        }
        clip(lines, cursor, max_rows.max(1))
    }

    fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    fn remove(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.cursor = from;
    }

    fn kill(&mut self, from: usize, to: usize) {
        if from < to {
            self.killed = self.text[from..to].to_owned();
            self.remove(from, to);
        }
    }

    fn before(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn after(&self) -> usize {
        let next = self.text[self.cursor..].graphemes(true).next();
        self.cursor + next.map_or(0, str::len)
    }

    fn word_before(&self) -> usize {
        let mut words = self.text[..self.cursor].unicode_word_indices();
        words.next_back().map_or(0, |(at, _)| at)
    }

    fn word_after(&self) -> usize {
        let mut words = self.text[self.cursor..].unicode_word_indices();
        words.next().map_or(self.text.len(), |(at, word)| self.cursor + at + word.len())
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }
}

/// Normalizes typed text, and removes placeholder characters.
fn clean(text: &str) -> String {
    normalize(text).chars().filter(|c| !is_placeholder(*c)).collect()
}

/// Unifies line endings, and removes control characters.
fn normalize(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Byte offset of a column of a line.
fn offset(line: &str, column: usize) -> usize {
    line.grapheme_indices(true).nth(column).map_or(line.len(), |(at, _)| at)
}

/// Displayed form of a character.
fn shown(grapheme: &str) -> String {
    if grapheme == "\t" { TAB.to_owned() } else { sanitize::lines(grapheme).into_owned() }
}

/// Displayed form of one character, split into pieces that fit a line.
fn pieces(shown: &str, room: usize) -> Vec<&str> {
    if shown.width() < room { vec![shown] } else { shown.split("").filter(|part| !part.is_empty()).collect() }
}

/// Keeps the rows around the cursor.
fn clip(mut lines: Vec<String>, (row, column): (usize, usize), max_rows: usize) -> Layout {
    let first = if lines.len() <= max_rows { 0 } else { (row + 1).saturating_sub(max_rows) };
    lines.drain(..first);
    lines.truncate(max_rows);
    Layout { lines, cursor: (row - first, column) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Editor {
        let mut editor = Editor::default();
        editor.apply(Edit::Insert(text.to_owned()));
        editor
    }

    fn after(text: &str, edits: &[Edit]) -> String {
        let mut editor = typed(text);
        edits.iter().for_each(|edit| editor.apply(edit.clone()));
        editor.apply(Edit::Insert("|".to_owned()));
        editor.take()
    }

    #[test]
    fn edits_work_on_graphemes_not_bytes() {
        assert_eq!(after("ae\u{301}", &[Edit::Backspace]), "a|");
        assert_eq!(after("a日本", &[Edit::Left, Edit::Backspace]), "a|本");
        assert_eq!(after("👩🏽b", &[Edit::Left, Edit::Left, Edit::Delete]), "|b");
        assert_eq!(after("", &[Edit::Backspace, Edit::Delete, Edit::Left, Edit::Right]), "|");
    }

    #[test]
    fn word_edits_move_and_delete_by_word() {
        assert_eq!(after("one two  three", &[Edit::WordLeft, Edit::WordLeft]), "one |two  three");
        assert_eq!(after("one two", &[Edit::Home, Edit::WordRight]), "one| two");
        assert_eq!(after("one two ", &[Edit::KillWordBefore]), "one |");
        assert_eq!(after("one two", &[Edit::Home, Edit::KillWordAfter]), "| two");
        assert_eq!(after("one two", &[Edit::KillWordBefore, Edit::Home, Edit::Yank]), "two|one ");
    }

    #[test]
    fn edits_stay_within_the_current_line() {
        assert_eq!(after("one\ntwo", &[Edit::Home]), "one\n|two");
        assert_eq!(after("one\ntwo", &[Edit::KillToStart]), "one\n|");
        assert_eq!(after("one\ntwo", &[Edit::Home, Edit::Left, Edit::KillToStart]), "|\ntwo");
        assert_eq!(after("one\ntwo", &[Edit::Home, Edit::Left, Edit::Home, Edit::KillToEnd]), "|\ntwo");
        assert_eq!(after("one\ntwo", &[Edit::Home, Edit::Backspace]), "one|two");
        assert_eq!(after("one\ntwo", &[Edit::Home, Edit::Left, Edit::End]), "one|\ntwo");
    }

    #[test]
    fn up_and_down_keep_the_column_and_stop_at_the_ends() {
        let mut editor = typed("first\n2\nthird");
        assert_eq!(editor.down(), Moved::No);
        assert_eq!(editor.up(), Moved::Yes);
        assert_eq!(editor.cursor, "first\n2".len());
        assert_eq!((editor.up(), editor.cursor), (Moved::Yes, 1));
        assert_eq!(editor.up(), Moved::No);
        assert_eq!((editor.down(), editor.cursor), (Moved::Yes, "first\n2".len()));
        assert_eq!((editor.down(), editor.cursor), (Moved::Yes, "first\n2\nt".len()));
    }

    #[test]
    fn trailing_backslash_continues_the_line() {
        let mut editor = typed("one\\");
        assert!(editor.continue_line());
        assert!(!editor.continue_line());
        editor.apply(Edit::Insert("two".to_owned()));
        assert_eq!(editor.text(), "one\ntwo");
        let mut inside = typed("one\\");
        inside.apply(Edit::Left);
        assert!(!inside.continue_line());
    }

    #[test]
    fn pasted_text_keeps_lines_and_drops_control_characters() {
        let editor = typed("a\r\nb\rc\u{1b}[2J\td\u{7}\u{9b}");
        assert_eq!(editor.text(), "a\nb\nc[2J\td");
    }

    #[test]
    fn long_paste_is_one_character_until_taken() {
        let mut editor = typed("see ");
        editor.paste(&"line\r\n".repeat(12));
        editor.apply(Edit::Insert(" there".to_owned()));
        assert_eq!(editor.layout(60, 9).lines, ["> see [pasted text, 12 lines] there"]);
        assert_eq!(editor.layout(20, 9).lines, ["> see [pasted text,", "   12 lines] there"]);
        let draft = editor.text().to_owned();
        editor.replace("older");
        editor.replace(&draft);
        let input = editor.take_input();
        assert_eq!(input.text, format!("see {} there", "line\n".repeat(12)));
        assert_eq!(input.shown, "see [pasted text, 12 lines] there");
        editor.paste(&"line\n".repeat(12));
        editor.apply(Edit::Backspace);
        assert!(editor.is_empty(), "one key removes it");
        editor.apply(Edit::Insert("\u{f0000}".to_owned()));
        assert!(editor.is_empty(), "nobody can type one");
    }

    #[test]
    fn long_and_wide_text_wraps_within_the_window() {
        let editor = typed("abcdefgh");
        let layout = editor.layout(7, 9);
        assert_eq!(layout, Layout { lines: vec!["> abcd".into(), "  efgh".into()], cursor: (1, 6) });
        let wide = typed("日本語で").layout(8, 9);
        assert_eq!(wide.lines, ["> 日本", "  語で"]);
        assert_eq!(wide.cursor, (1, 6));
    }

    #[test]
    fn cursor_is_where_the_next_character_goes() {
        let mut editor = typed("abcdefgh");
        (0..4).for_each(|_| editor.apply(Edit::Left));
        assert_eq!(editor.layout(7, 9).cursor, (1, 2), "at the break it is on the line below");
        editor.apply(Edit::Left);
        assert_eq!(editor.layout(7, 9).cursor, (0, 5));
        assert_eq!(typed("").layout(40, 9), Layout { lines: vec!["> ".into()], cursor: (0, 2) });
        assert_eq!(typed("a\n").layout(40, 9).cursor, (1, 2));
    }

    #[test]
    fn layout_lines_fit_the_window_and_contain_the_cursor() {
        let text = "日本語 a\tb\u{202e}c 👨\u{200d}👩\u{200d}👧 e\u{301}\n\n1234567890";
        let mut editor = typed(text);
        for columns in 4..40 {
            for _ in 0..60 {
                let layout = editor.layout(columns, 5);
                assert!(layout.lines.len() <= 5);
                assert!(layout.cursor.0 < layout.lines.len(), "{layout:?}");
                assert!(layout.cursor.1 < columns, "{columns}: {layout:?}");
                for line in &layout.lines {
                    assert!(line.width() < columns || columns < 5, "{columns}: {line:?}");
                }
                editor.apply(Edit::Left);
            }
            editor.replace(text);
        }
    }

    #[test]
    fn layout_keeps_the_lines_around_the_cursor() {
        let mut editor = typed("1\n2\n3\n4\n5");
        assert_eq!(editor.layout(20, 3).lines, ["  3", "  4", "  5"]);
        (0..4).for_each(|_| {
            editor.up();
        });
        let layout = editor.layout(20, 3);
        assert_eq!((layout.lines, layout.cursor), (vec!["> 1".into(), "  2".into(), "  3".into()], (0, 3)));
    }
}
