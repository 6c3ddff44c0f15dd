//! Keys of a chat that are not handled by the input line.

use std::time::Instant;

use crossterm::event::Event;

use super::super::input_line::InputAction;
use super::{ChatUi, FirstCtrlC};
use crate::error::Exit;
use crate::keyboard::keys::{self, Key};
use crate::sanitize;
use crate::suspend;

/// Maximum number of completions that are shown.
const MAX_CHOICES: usize = 12;

impl ChatUi<'_> {
    pub(super) async fn event(&mut self, event: Event) -> Option<Exit> {
        match event {
            Event::Key(key) => {
                let leave = match keys::from_event(key)? {
                    Key::Suspend => {
                        suspend::request();
                        None
                    }
                    key => self.key(key).await,
                };
                self.draw();
                leave
            }
            Event::Paste(text) => {
                if self.approvals.takes_keys() {
                    self.approvals.dialogue.paste(&text);
                } else {
                    self.line.paste(&text);
                }
                self.draw();
                None
            }
            Event::Resize(..) => {
                self.draw();
                None
            }
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
        }
    }

    async fn key(&mut self, key: Key) -> Option<Exit> {
        if self.approvals.takes_keys() {
            if key != Key::Interrupt {
                self.first_ctrl_c = None;
                self.notice = None;
            }
            return self.answer_key(key).await;
        }
        match key {
            Key::Escape if !self.line.is_searching() => {
                self.escape();
                return None;
            }
            Key::NextMode => {
                self.next_mode().await;
                return None;
            }
            Key::Enter if self.approves_plan() => {
                self.approve_plan().await;
                return None;
            }
            _ => {}
        }
        let action = self.line.key(key);
        if action != InputAction::Interrupt {
            self.first_ctrl_c = None;
            self.notice = None;
        }
        match action {
            InputAction::Nothing => None,
            InputAction::Choose(choices) => {
                self.notice = Some(choices_line(&choices));
                None
            }
            InputAction::Send(taken) => self.send(taken).await,
            InputAction::Interrupt if let Some(command) = &mut self.command => {
                command.stop();
                None
            }
            InputAction::Interrupt => self.interrupt().await,
            InputAction::Leave if self.round.is_none() => Some(Exit::Done),
            InputAction::Leave => {
                self.notice = Some("Press Ctrl-C to stop the round, and again to quit.".to_owned());
                None
            }
            InputAction::Redraw => {
                self.screen.clear_screen();
                None
            }
        }
    }

    pub(super) async fn interrupt(&mut self) -> Option<Exit> {
        if self.round.is_some() && self.conversation.is_stopping() {
            return Some(Exit::Cancelled);
        }
        if let Some(first_ctrl_c) = &self.first_ctrl_c {
            return Some(first_ctrl_c.exit);
        }
        let exit = self.exit();
        self.first_ctrl_c = Some(FirstCtrlC { at: Instant::now(), exit });
        if self.round.is_some() {
            self.notice = Some("Stopping. Press Ctrl-C again to quit.".to_owned());
            self.conversation.stop();
        } else {
            self.notice = Some("Press Ctrl-C again to quit.".to_owned());
        }
        None
    }

    /// Opens a pending approval, or stops what is running. The typed text is kept.
    fn escape(&mut self) {
        if self.approvals.notice().is_some() {
            self.toggle_approval();
        } else if let Some(command) = &mut self.command {
            command.stop();
        } else if self.round.is_some() && !self.conversation.is_stopping() {
            self.notice = Some("Stopping. Press Ctrl-C to quit.".to_owned());
            self.conversation.stop();
        } else {
            self.plan_shown_at = None;
        }
    }
}

/// Line with the completions, up to the maximum.
fn choices_line(choices: &[String]) -> String {
    let shown = choices.iter().take(MAX_CHOICES).map(String::as_str);
    let more = (choices.len() > MAX_CHOICES).then_some("…");
    sanitize::line(&shown.chain(more).collect::<Vec<_>>().join(" "))
}
