//! Input line: turns keys into messages and commands.

use std::path::PathBuf;

use super::attach::{self, Completion};
use super::commands;
use super::history::History;
use super::search::Search;
use crate::keyboard::editor::{Edit, Editor, Layout, Moved, TakenInput};
use crate::keyboard::keys::Key;

/// Current input, with history and search.
pub(super) struct InputLine {
    editor: Editor,
    history: History,
    search: Option<Search>,
    /// Folder whose files are completed after `@`.
    folder: PathBuf,
}

/// Action that a key requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputAction {
    /// None; the line may look different.
    Nothing,
    /// Send a message or run a command.
    Send(TakenInput),
    /// Show several completions.
    Choose(Vec<String>),
    /// Stop what is running.
    Interrupt,
    /// Quit.
    Leave,
    /// Redraw everything.
    Redraw,
}

impl InputLine {
    pub(super) fn new(history: History, folder: PathBuf) -> InputLine {
        InputLine { editor: Editor::default(), history, search: None, folder }
    }

    /// Sets the folder for completions.
    pub(super) fn set_folder(&mut self, folder: PathBuf) {
        self.folder = folder;
    }

    /// Whether a search is active.
    pub(super) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// State of the search, if one is active.
    pub(super) fn notice(&self) -> Option<String> {
        self.search.as_ref().map(Search::notice)
    }

    /// Whether the line is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.editor.is_empty()
    }

    /// Layout of the line on a screen.
    pub(super) fn layout(&self, columns: usize, max_rows: usize) -> Layout {
        self.editor.layout(columns, max_rows)
    }

    /// Inserts pasted text with all its lines. A long paste is displayed as its size.
    pub(super) fn paste(&mut self, text: &str) {
        self.search = None;
        self.editor.paste(text);
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: Key) -> InputAction {
        match self.search.take() {
            Some(search) => self.search_key(search, key),
            None => self.edit_key(key),
        }
    }

    /// Handles a key during a search. Any other key ends the search, with the match in the line.
    fn search_key(&mut self, mut search: Search, key: Key) -> InputAction {
        let shown = match key {
            Key::Edit(Edit::Insert(text)) => search.extend(&text, &self.history),
            Key::Edit(Edit::Backspace) => search.shorten(&self.history),
            Key::Search => search.older(&self.history).unwrap_or_else(|| self.editor.text().to_owned()),
            Key::Interrupt => {
                self.editor.replace(search.draft());
                return InputAction::Nothing;
            }
            Key::Escape | Key::Complete => return InputAction::Nothing,
            key => return self.edit_key(key),
        };
        self.editor.replace(&shown);
        self.search = Some(search);
        InputAction::Nothing
    }

    fn edit_key(&mut self, key: Key) -> InputAction {
        match key {
            Key::Edit(edit) => self.editor.apply(edit),
            Key::NewLine => self.editor.apply(Edit::Insert("\n".to_owned())),
            Key::Up => self.older(),
            Key::Down => self.newer(),
            Key::Complete => return self.complete(),
            Key::Search => self.search = Some(Search::new(self.editor.text())),
            Key::Enter => return self.enter(),
            Key::DeleteOrLeave if self.editor.is_empty() => return InputAction::Leave,
            Key::DeleteOrLeave => self.editor.apply(Edit::Delete),
            Key::Interrupt if self.editor.is_empty() => return InputAction::Interrupt,
            Key::Interrupt => {
                self.editor.take();
                self.history.reset_position();
            }
            Key::Escape | Key::Suspend | Key::NextMode => {}
            Key::Redraw => return InputAction::Redraw,
        }
        InputAction::Nothing
    }

    fn enter(&mut self) -> InputAction {
        if self.editor.continue_line() {
            return InputAction::Nothing;
        }
        let TakenInput { mut text, mut shown } = self.editor.take_input();
        text.truncate(text.trim_end().len());
        shown.truncate(shown.trim_end().len());
        self.history.add(&text);
        if text.trim().is_empty() {
            InputAction::Nothing
        } else {
            InputAction::Send(TakenInput { text, shown })
        }
    }

    fn older(&mut self) {
        if self.editor.up() == Moved::No
            && let Some(entry) = self.history.older(self.editor.text())
        {
            self.editor.replace(entry);
        }
    }

    fn newer(&mut self) {
        if self.editor.down() == Moved::No
            && let Some(entry) = self.history.newer()
        {
            self.editor.replace(&entry);
        }
    }

    fn complete(&mut self) -> InputAction {
        if let Some(Completion { typed, whole, choices }) =
            attach::complete(self.editor.text_before(), &self.folder)
        {
            self.editor.replace_before(typed, &whole);
            return if choices.is_empty() { InputAction::Nothing } else { InputAction::Choose(choices) };
        }
        if self.editor.is_at_end()
            && let Some(whole) = commands::complete(self.editor.text())
        {
            self.editor.replace(&whole);
        }
        InputAction::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> InputLine {
        InputLine::new(History::default(), PathBuf::new())
    }

    fn typed(line: &mut InputLine, text: &str) -> InputAction {
        line.paste(text);
        line.key(Key::Enter)
    }

    fn send(text: &str) -> InputAction {
        InputAction::Send(TakenInput { text: text.to_owned(), shown: text.to_owned() })
    }

    fn insert(line: &mut InputLine, text: &str) {
        line.key(Key::Edit(Edit::Insert(text.to_owned())));
    }

    #[test]
    fn history_keys_recall_sent_messages() {
        let mut line = line();
        assert_eq!(typed(&mut line, "one"), send("one"));
        assert_eq!(typed(&mut line, "two\nlines"), send("two\nlines"));
        line.paste("draft");
        line.key(Key::Up);
        line.key(Key::Up);
        assert_eq!(line.editor.text(), "two\nlines", "the first line of it comes before the next entry");
        line.key(Key::Up);
        assert_eq!(line.editor.text(), "one");
        line.key(Key::Down);
        line.key(Key::Down);
        assert_eq!(line.editor.text(), "draft");
        line.key(Key::Up);
        assert_eq!(line.key(Key::Enter), send("two\nlines"));
        assert_eq!(line.key(Key::Enter), InputAction::Nothing, "an empty line is not sent");
    }

    #[test]
    fn message_can_have_several_lines() {
        let mut line = line();
        assert_eq!(typed(&mut line, "one\\"), InputAction::Nothing);
        line.paste("two");
        line.key(Key::NewLine);
        assert_eq!(typed(&mut line, "three\r\nfour"), send("one\ntwo\nthree\nfour"));
    }

    #[test]
    fn interrupt_clears_the_line_before_it_stops_or_leaves() {
        let mut line = line();
        line.paste("half");
        assert_eq!(line.key(Key::DeleteOrLeave), InputAction::Nothing);
        assert_eq!(line.key(Key::Interrupt), InputAction::Nothing);
        assert_eq!(line.key(Key::Interrupt), InputAction::Interrupt);
        assert_eq!(line.key(Key::DeleteOrLeave), InputAction::Leave);
    }

    #[test]
    fn complete_key_completes_commands() {
        let mut line = line();
        line.paste("/tr");
        line.key(Key::Complete);
        assert_eq!(line.key(Key::Enter), send("/tree"));
    }

    #[test]
    fn search_key_finds_entries_in_the_history() {
        let mut line = line();
        for message in ["fix the tests", "read it", "run the tests"] {
            typed(&mut line, message);
        }
        line.paste("draft");
        line.key(Key::Search);
        insert(&mut line, "the");
        assert_eq!(line.editor.text(), "run the tests");
        line.key(Key::Search);
        assert_eq!(line.editor.text(), "fix the tests");
        line.key(Key::Search);
        assert_eq!(line.editor.text(), "fix the tests", "there is no older one");
        insert(&mut line, "x");
        assert_eq!(line.editor.text(), "draft", "nothing matches");
        line.key(Key::Edit(Edit::Backspace));
        assert_eq!(line.editor.text(), "run the tests");
        assert_eq!(line.key(Key::Interrupt), InputAction::Nothing);
        assert_eq!((line.editor.text(), line.is_searching()), ("draft", false));
        line.key(Key::Search);
        insert(&mut line, "read");
        line.key(Key::Complete);
        insert(&mut line, "!");
        assert_eq!(line.key(Key::Enter), send("read it!"));
        line.key(Key::Search);
        insert(&mut line, "fix");
        assert_eq!(line.key(Key::Enter), send("fix the tests"));
    }

    #[test]
    fn long_paste_is_sent_whole_and_shown_by_its_size() {
        let mut line = line();
        let text = "line\n".repeat(30);
        let shown = "[pasted text, 30 lines]".to_owned();
        assert_eq!(
            typed(&mut line, &text),
            InputAction::Send(TakenInput { text: text.trim_end().to_owned(), shown })
        );
    }
}
