//! Key input for one approval: a single key answers it. A reason or a rule is typed and submitted with Enter.

use std::time::{Duration, Instant};

use brigade_core::approval::{self, AnswerError};
use brigade_core::event::Answer;
use brigade_core::view::PendingApproval;

use super::answer_text::{self, Scope};
use crate::keyboard::editor::{Edit, Editor, Layout};
use crate::keyboard::keys::Key;
use crate::sanitize;

/// Pause in typing after which a key counts as an answer. An earlier key was meant for something else.
const SETTLE_TIME: Duration = Duration::from_millis(400);

/// Maximum number of rows of the input field for a reason or a rule.
const MAX_FIELD_ROWS: usize = 3;

/// Message for a connection, whose rule cannot be edited.
const NO_HOST_RULE: &str = "A host can only be allowed as shown. Press a to always allow it.";

/// Input state of one approval.
#[derive(Default)]
pub(crate) struct KeyPrompt {
    /// Time of the last input that was not meant for the prompt, or the time the prompt appeared.
    unsettled_at: Option<Instant>,
    /// Text field that is being edited.
    field: Option<(Field, Editor)>,
    /// Reason why the last key was not an answer.
    hint: Option<String>,
}

/// Text that completes an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    /// Reason for denying the call.
    Reason,
    /// Rule that allows the call.
    Rule,
}

/// Meaning of a key.
#[derive(Debug, PartialEq)]
pub(crate) enum KeyAction {
    /// Not an answer yet.
    Nothing,
    Answer(Answer, Scope),
    /// Switch to the next approval.
    Next,
    /// Show the whole diff.
    ShowAll,
    /// Leave the prompt to do something else.
    Leave,
    /// Stop the run.
    Interrupt,
}

impl KeyPrompt {
    /// Starts a new prompt. Earlier input is discarded.
    pub(crate) fn open(&mut self) {
        *self = KeyPrompt { unsettled_at: Some(Instant::now()), ..KeyPrompt::default() };
    }

    /// Whether input still belongs to what the user typed before the prompt. Each key restarts the pause, so neither
    /// a word in progress nor a key that is held down answers the prompt.
    pub(crate) fn is_settling(&mut self) -> bool {
        let is_settling = self.unsettled_at.is_some_and(|at| at.elapsed() < SETTLE_TIME);
        self.unsettled_at = is_settling.then(Instant::now);
        is_settling
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: Key, open: &PendingApproval) -> KeyAction {
        if key == Key::Interrupt {
            return if self.field.take().is_some() { KeyAction::Nothing } else { KeyAction::Interrupt };
        }
        if self.is_settling() {
            return KeyAction::Nothing;
        }
        self.hint = None;
        match self.field {
            Some(_) => self.type_key(key, open),
            None => self.choose(key, open),
        }
    }

    fn choose(&mut self, key: Key, open: &PendingApproval) -> KeyAction {
        let letter = match key {
            Key::Edit(Edit::Insert(letter)) => letter,
            Key::Complete => return KeyAction::Next,
            Key::Escape => return KeyAction::Leave,
            _ => return KeyAction::Nothing,
        };
        match letter.as_str() {
            "y" => return KeyAction::Answer(Answer::Once, Scope::One),
            "Y" => return KeyAction::Answer(Answer::Once, Scope::All),
            "n" => return KeyAction::Answer(Answer::Deny { word: None }, Scope::One),
            "N" => return KeyAction::Answer(Answer::Deny { word: None }, Scope::All),
            "v" | "V" => return KeyAction::ShowAll,
            "a" | "A" => match &open.always {
                Some(rule) => return KeyAction::Answer(Answer::Always(rule.clone()), Scope::One),
                None => self.hint = Some(answer_text::NO_RULE.to_owned()),
            },
            "r" | "R" => self.field = Some((Field::Reason, Editor::default())),
            "e" | "E" if open.host.is_some() => self.hint = Some(NO_HOST_RULE.to_owned()),
            "e" | "E" => {
                let mut editor = Editor::default();
                editor.replace(open.always.as_deref().unwrap_or(open.tool()));
                self.field = Some((Field::Rule, editor));
            }
            other => self.hint = Some(format!("'{}' is not an answer.", sanitize::line(other))),
        }
        KeyAction::Nothing
    }

    fn type_key(&mut self, key: Key, open: &PendingApproval) -> KeyAction {
        let Some((field, editor)) = &mut self.field else { return KeyAction::Nothing };
        match key {
            Key::Edit(edit) => editor.apply(edit),
            Key::DeleteOrLeave => editor.apply(Edit::Delete),
            Key::Escape => self.field = None,
            // A terminal that was suspended in the meantime sends Enter as a newline.
            Key::Enter | Key::NewLine => {
                let (field, text) = (*field, editor.text().trim().to_owned());
                return self.send(field, &text, open);
            }
            _ => {}
        }
        KeyAction::Nothing
    }

    fn send(&mut self, field: Field, text: &str, open: &PendingApproval) -> KeyAction {
        let answer = match field {
            Field::Reason => Answer::Deny { word: Some(text.to_owned()).filter(|text| !text.is_empty()) },
            Field::Rule => match rule(text, open) {
                Ok(rule) => Answer::Always(rule),
                Err(problem) => {
                    self.hint = Some(problem);
                    return KeyAction::Nothing;
                }
            },
        };
        self.field = None;
        KeyAction::Answer(answer, Scope::One)
    }

    /// Handles pasted text. It never answers the prompt, but it can fill an open text field.
    pub(crate) fn paste(&mut self, text: &str) {
        if self.is_settling() {
            return;
        }
        match &mut self.field {
            Some((_, editor)) => editor.apply(Edit::Insert(text.replace('\n', " "))),
            None => self.hint = Some("Pasted text is not an answer.".to_owned()),
        }
    }

    /// Note about the last key, if it was not an answer.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Text field that is being edited, with a label that explains it.
    pub(crate) fn field(&self, columns: usize) -> Option<(&'static str, Layout)> {
        let (field, editor) = self.field.as_ref()?;
        let label = match field {
            Field::Reason => "Reason for the agent (Enter to deny, Esc to go back)",
            Field::Rule => "Rule for calls to always allow (Enter to allow, Esc to go back)",
        };
        Some((label, editor.layout(columns, MAX_FIELD_ROWS)))
    }

    /// Makes the next key count, as after a pause.
    #[cfg(test)]
    pub(crate) fn settle(&mut self) {
        self.unsettled_at = None;
    }
}

/// Parses a rule for the call that needs approval.
fn rule(text: &str, open: &PendingApproval) -> Result<String, String> {
    approval::parse_rule(text, open.tool()).map(|rule| rule.to_string()).map_err(|error| match error {
        AnswerError::OtherTool { rule, tool } => {
            let (rule, tool) = (sanitize::line(&rule.to_string()), sanitize::line(&tool));
            format!("`{rule}` is not a rule for `{tool}`. Start the rule with `{tool}`.")
        }
        AnswerError::InvalidRule(_) | AnswerError::OtherHost { .. } | AnswerError::NotOpen => {
            error.to_string()
        }
    })
}
