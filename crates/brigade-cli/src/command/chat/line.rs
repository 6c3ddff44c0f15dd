//! The line that is typed in: keys go in, messages come out.

use super::commands;
use super::history::History;
use crate::keyboard::editor::{Edit, Editor, Layout, Moved};
use crate::keyboard::keys::Key;

/// What is typed, and what was typed before.
pub(super) struct Line {
    editor: Editor,
    history: History,
}

/// What a key has led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing, or the line looks different.
    Nothing,
    /// A message or a command is ready.
    Send(String),
    /// What runs is to stop.
    Interrupt,
    /// The person wants to go.
    Leave,
    /// Everything is to be drawn again.
    Redraw,
}

impl Line {
    pub(super) fn new(history: History) -> Line {
        Line { editor: Editor::default(), history }
    }

    /// Whether nothing was typed.
    pub(super) fn is_empty(&self) -> bool {
        self.editor.is_empty()
    }

    /// The line on a screen.
    pub(super) fn layout(&self, columns: usize, most: usize) -> Layout {
        self.editor.layout(columns, most)
    }

    /// Takes what was pasted as if it had been typed, with all its lines.
    pub(super) fn paste(&mut self, text: String) {
        self.editor.apply(Edit::Insert(text));
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: Key) -> Wish {
        match key {
            Key::Edit(edit) => self.editor.apply(edit),
            Key::NewLine => self.editor.apply(Edit::Insert("\n".to_owned())),
            Key::Up => self.older(),
            Key::Down => self.newer(),
            Key::Complete => self.complete(),
            Key::Enter => return self.enter(),
            Key::DeleteOrLeave if self.editor.is_empty() => return Wish::Leave,
            Key::DeleteOrLeave => self.editor.apply(Edit::Delete),
            Key::Interrupt if self.editor.is_empty() => return Wish::Interrupt,
            Key::Interrupt => {
                self.editor.take();
                self.history.forget_place();
            }
            Key::Escape | Key::Suspend => {}
            Key::Redraw => return Wish::Redraw,
        }
        Wish::Nothing
    }

    fn enter(&mut self) -> Wish {
        if self.editor.continues() {
            return Wish::Nothing;
        }
        let text = self.editor.take();
        self.history.add(text.trim_end());
        if text.trim().is_empty() { Wish::Nothing } else { Wish::Send(text.trim_end().to_owned()) }
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

    fn complete(&mut self) {
        if self.editor.is_at_end()
            && let Some(whole) = commands::complete(self.editor.text())
        {
            self.editor.replace(&whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line::new(History::default())
    }

    fn typed(line: &mut Line, text: &str) -> Wish {
        line.paste(text.to_owned());
        line.key(Key::Enter)
    }

    fn send(text: &str) -> Wish {
        Wish::Send(text.to_owned())
    }

    #[test]
    fn what_was_sent_can_be_sent_again() {
        let mut line = line();
        assert_eq!(typed(&mut line, "one"), send("one"));
        assert_eq!(typed(&mut line, "two\nlines"), send("two\nlines"));
        line.paste("draft".to_owned());
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
        assert_eq!(line.key(Key::Enter), Wish::Nothing, "nothing is no message");
    }

    #[test]
    fn a_message_can_have_several_lines() {
        let mut line = line();
        assert_eq!(typed(&mut line, "one\\"), Wish::Nothing);
        line.paste("two".to_owned());
        line.key(Key::NewLine);
        assert_eq!(typed(&mut line, "three\r\nfour"), send("one\ntwo\nthree\nfour"));
    }

    #[test]
    fn stopping_clears_first_and_leaving_needs_an_empty_line() {
        let mut line = line();
        line.paste("half".to_owned());
        assert_eq!(line.key(Key::DeleteOrLeave), Wish::Nothing);
        assert_eq!(line.key(Key::Interrupt), Wish::Nothing);
        assert_eq!(line.key(Key::Interrupt), Wish::Interrupt);
        assert_eq!(line.key(Key::DeleteOrLeave), Wish::Leave);
    }

    #[test]
    fn commands_are_completed() {
        let mut line = line();
        line.paste("/tr".to_owned());
        line.key(Key::Complete);
        assert_eq!(line.key(Key::Enter), send("/tree"));
    }
}
