//! Keys in a chat: what they mean beside the line that is typed.

use std::time::Instant;

use crossterm::event::Event;

use super::super::line::Wish;
use super::{Pressed, Room, Stops};
use crate::failure::Exit;
use crate::keyboard::keys::{self, Key};
use crate::safe;
use crate::suspend;

/// How many completions are shown.
const MAX_CHOICES: usize = 12;

impl Room<'_> {
    pub(super) async fn event(&mut self, event: Event) -> Option<Exit> {
        match event {
            Event::Key(key) => {
                let leave = match keys::meaning(key)? {
                    Key::Suspend => {
                        suspend::ask();
                        None
                    }
                    key => self.key(key).await,
                };
                self.draw();
                leave
            }
            Event::Paste(text) => {
                if self.questions.take_keys() {
                    self.questions.paste(&text);
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
        if self.questions.take_keys() {
            if key != Key::Interrupt {
                self.pressed = None;
                self.notice = None;
            }
            return self.answer_key(key).await;
        }
        match key {
            Key::Escape if !self.line.is_searching() => {
                self.escape().await;
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
        let wish = self.line.key(key);
        if wish != Wish::Interrupt {
            self.pressed = None;
            self.notice = None;
        }
        match wish {
            Wish::Nothing => None,
            Wish::Choose(choices) => {
                self.notice = Some(listed(&choices));
                None
            }
            Wish::Send(taken) => self.send(taken).await,
            Wish::Interrupt if let Some(command) = &mut self.command => {
                command.stop();
                None
            }
            Wish::Interrupt => self.interrupt().await,
            Wish::Leave if self.round.is_none() => Some(Exit::Done),
            Wish::Leave => {
                self.notice = Some("Ctrl-C stops the round, and leaves when it is pressed again.".to_owned());
                None
            }
            Wish::Redraw => {
                self.screen.wipe();
                None
            }
        }
    }

    pub(super) async fn interrupt(&mut self) -> Option<Exit> {
        let was_asked = self.round.as_ref().is_some_and(|round| round.stops == Stops::Asked);
        if was_asked {
            return Some(Exit::Cancelled);
        }
        if let Some(pressed) = &self.pressed {
            return Some(pressed.exit);
        }
        let exit = self.exit();
        self.pressed = Some(Pressed { at: Instant::now(), exit });
        if self.round.is_some() {
            self.notice = Some("Stopping. Ctrl-C again leaves.".to_owned());
            self.stop().await;
        } else {
            self.notice = Some("Press Ctrl-C again to leave.".to_owned());
        }
        None
    }

    /// Brings a question up, or stops what runs. What is typed stays.
    async fn escape(&mut self) {
        if self.questions.notice().is_some() {
            self.turn_to_question();
        } else if let Some(command) = &mut self.command {
            command.stop();
        } else if self.round.as_ref().is_some_and(|round| round.stops == Stops::No) {
            self.notice = Some("Stopping. Ctrl-C leaves.".to_owned());
            self.stop().await;
        } else {
            self.plan = None;
        }
    }

    /// Stops the round.
    pub(super) async fn stop(&mut self) {
        let (Some(round), Some(session)) = (&mut self.round, self.talk.session()) else { return };
        round.stops = Stops::Asked;
        if let Err(failure) = self.talk.cancel(session).await {
            self.fail(&failure);
        }
    }
}

/// The names to choose from, as far as they are shown.
fn listed(choices: &[String]) -> String {
    let shown = choices.iter().take(MAX_CHOICES).map(String::as_str);
    let more = (choices.len() > MAX_CHOICES).then_some("…");
    safe::line(&shown.chain(more).collect::<Vec<_>>().join(" "))
}
