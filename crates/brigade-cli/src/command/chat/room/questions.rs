//! Questions of agents in a chat: they get what is typed when nothing else was being typed.

use brigade::{Ending, RunError};
use brigade_core::view::Tree;

use super::super::talk::Talk;
use super::Room;
use crate::attention::Attention;
use crate::dialogue::{Dialogue, Reaction};
use crate::failure::Exit;
use crate::follow::View;
use crate::keyboard::editor::Layout;
use crate::keyboard::keys::Key;
use crate::terminal::Colour;

/// What is said while a question waits and something else is typed.
const WAITS: &str = "An agent asks something. Esc brings its question up.";

/// What agents ask, and who gets what is typed.
pub(super) struct Questions {
    dialogue: Dialogue,
    attention: Attention,
    /// Whether an answer is being typed, and not a message.
    answering: bool,
}

impl Questions {
    /// No questions yet.
    pub(super) fn new(talk: &Talk, colour: Colour) -> Questions {
        Questions {
            dialogue: Dialogue::new(Some(talk.runtime.settings().workspace.clone()), colour),
            attention: Attention::new(&talk.settings, &talk.runtime),
            answering: false,
        }
    }

    /// Calls the user for questions of a session that was left to itself.
    pub(super) fn call(&mut self, tree: &Tree) {
        self.attention.call(tree);
    }

    /// A round has ended.
    pub(super) fn ended(&mut self, view: &View, ending: &Result<Ending, RunError>) {
        self.attention.ended(view, ending);
    }

    /// What calls the user, for the time after the chat.
    pub(super) fn take_attention(&mut self) -> Attention {
        std::mem::take(&mut self.attention)
    }

    /// Whether what is typed is an answer.
    pub(super) fn take_keys(&self) -> bool {
        self.answering && self.dialogue.is_open()
    }

    /// A word on a question that waits.
    pub(super) fn notice(&self) -> Option<&'static str> {
        (self.dialogue.is_open() && !self.answering).then_some(WAITS)
    }

    /// The question and the answer that is being typed, where one is.
    pub(super) fn layout(&self, tree: &Tree, columns: usize) -> Option<Layout> {
        if !self.take_keys() {
            return None;
        }
        let footer = self.dialogue.footer(tree, columns)?;
        Some(Layout { cursor: footer.cursor.unwrap_or_default(), lines: footer.lines })
    }

    pub(super) fn paste(&mut self, text: &str) {
        self.dialogue.paste(text);
    }
}

impl Room<'_> {
    /// Looks at what is asked, and shows a question that comes up.
    pub(super) fn look_at_questions(&mut self) {
        let columns = self.columns();
        let Some(view) = &self.talk.view else { return };
        let was_open = self.questions.dialogue.is_open();
        let lines = self.questions.dialogue.look(&view.tree, columns);
        self.questions.attention.look(&view.tree);
        if !was_open {
            // Whoever is in the middle of a message finishes it first.
            self.questions.answering = self.line.is_empty();
        }
        if let Some(lines) = lines {
            let lines = self.voice.aside(lines);
            self.say(lines);
        }
    }

    /// Changes between the question and the message.
    pub(super) fn turn_to_question(&mut self) {
        self.questions.answering = self.questions.dialogue.is_open() && !self.questions.answering;
    }

    /// Takes a key for the question.
    pub(super) async fn answer_key(&mut self, key: Key) -> Option<Exit> {
        let Some(view) = &self.talk.view else { return None };
        match self.questions.dialogue.key(key, &view.tree) {
            Reaction::Nothing => {}
            Reaction::Interrupt => return self.interrupt().await,
            Reaction::Leave => self.turn_to_question(),
            Reaction::Say(words) => self.note(&words),
            Reaction::Show(lines) => {
                let lines = self.voice.aside(lines);
                self.say(lines);
            }
            Reaction::Answers(given) => {
                for given in given {
                    let (answer, by) = (given.answer.clone(), "the person");
                    let answered = self.talk.runtime.answer(&given.session, given.call, answer, by).await;
                    if let Err(error) = answered {
                        self.questions.dialogue.failed(&given);
                        self.note(&error.to_string());
                    }
                }
                self.look_at_questions();
            }
        }
        None
    }
}
