//! Key bindings.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::editor::Edit;

/// Action of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// Change of the text or the cursor.
    Edit(Edit),
    /// Line above, or previous history entry.
    Up,
    /// Line below, or next history entry.
    Down,
    /// Submit.
    Enter,
    /// Insert a line break.
    NewLine,
    /// Complete the word.
    Complete,
    /// Delete the character at the cursor, or exit if the line is empty.
    DeleteOrLeave,
    /// Interrupt.
    Interrupt,
    /// Cancel, or leave the current prompt.
    Escape,
    /// Search the history.
    Search,
    /// Switch to the next mode.
    NextMode,
    /// Redraw the screen.
    Redraw,
    /// Suspend the process until the shell resumes it.
    Suspend,
}

/// Maps a key event to its action, if it has one.
pub(crate) fn from_event(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    let control = event.modifiers.contains(KeyModifiers::CONTROL);
    let alt = event.modifiers.contains(KeyModifiers::ALT);
    let by_word = control || alt;
    let edit = match event.code {
        KeyCode::Enter if alt => return Some(Key::NewLine),
        KeyCode::Enter => return Some(Key::Enter),
        KeyCode::Esc => return Some(Key::Escape),
        KeyCode::BackTab => return Some(Key::NextMode),
        KeyCode::Tab => return Some(Key::Complete),
        KeyCode::Up => return Some(Key::Up),
        KeyCode::Down => return Some(Key::Down),
        KeyCode::Backspace if by_word => Edit::KillWordBefore,
        KeyCode::Backspace => Edit::Backspace,
        KeyCode::Delete if by_word => Edit::KillWordAfter,
        KeyCode::Delete => Edit::Delete,
        KeyCode::Left if by_word => Edit::WordLeft,
        KeyCode::Left => Edit::Left,
        KeyCode::Right if by_word => Edit::WordRight,
        KeyCode::Right => Edit::Right,
        KeyCode::Home => Edit::Home,
        KeyCode::End => Edit::End,
        KeyCode::Char(letter) if control && !alt => return control_key(letter),
        KeyCode::Char('b') if alt => Edit::WordLeft,
        KeyCode::Char('f') if alt => Edit::WordRight,
        KeyCode::Char('d') if alt => Edit::KillWordAfter,
        KeyCode::Char(letter) if !alt => Edit::Insert(letter.to_string()),
        _ => return None,
    };
    Some(Key::Edit(edit))
}

fn control_key(letter: char) -> Option<Key> {
    let edit = match letter {
        'c' => return Some(Key::Interrupt),
        'd' => return Some(Key::DeleteOrLeave),
        'j' => return Some(Key::NewLine),
        'l' => return Some(Key::Redraw),
        'r' => return Some(Key::Search),
        'z' => return Some(Key::Suspend),
        'p' => return Some(Key::Up),
        'n' => return Some(Key::Down),
        'a' => Edit::Home,
        'b' => Edit::Left,
        'e' => Edit::End,
        'f' => Edit::Right,
        'h' => Edit::Backspace,
        'k' => Edit::KillToEnd,
        'u' => Edit::KillToStart,
        'w' => Edit::KillWordBefore,
        'y' => Edit::Yank,
        _ => return None,
    };
    Some(Key::Edit(edit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
        from_event(KeyEvent::new(code, modifiers))
    }

    #[test]
    fn letters_insert_text_and_other_keys_map_to_actions() {
        let typed = |text: &str| Some(Key::Edit(Edit::Insert(text.to_owned())));
        assert_eq!(key(KeyCode::Char('É'), KeyModifiers::SHIFT), typed("É"));
        assert_eq!(key(KeyCode::Char('j'), KeyModifiers::NONE), typed("j"));
        assert_eq!(key(KeyCode::Char('j'), KeyModifiers::CONTROL), Some(Key::NewLine));
        assert_eq!(key(KeyCode::Enter, KeyModifiers::ALT), Some(Key::NewLine));
        assert_eq!(key(KeyCode::Left, KeyModifiers::CONTROL), Some(Key::Edit(Edit::WordLeft)));
        assert_eq!(key(KeyCode::Char('b'), KeyModifiers::ALT), Some(Key::Edit(Edit::WordLeft)));
        assert_eq!(key(KeyCode::Char('r'), KeyModifiers::CONTROL), Some(Key::Search));
        assert_eq!(key(KeyCode::BackTab, KeyModifiers::SHIFT), Some(Key::NextMode));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::ALT), None);
        assert_eq!(key(KeyCode::Char('g'), KeyModifiers::CONTROL), None);
        let release = KeyEvent::new_with_kind(KeyCode::Enter, KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(from_event(release), None);
    }
}
