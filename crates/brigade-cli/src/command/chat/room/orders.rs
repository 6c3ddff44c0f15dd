//! What the chat does at a command that begins with a slash.

use std::collections::HashSet;

use brigade_core::SessionId;

use super::super::answers;
use super::super::commands::{self, Command};
use super::super::voice::Voice;
use super::Room;
use crate::failure::Failure;
use crate::named;
use crate::render::wrapped;
use crate::safe;

impl Room<'_> {
    pub(super) async fn obey(&mut self, command: Command) -> Result<(), Failure> {
        let columns = self.columns();
        let text = match command {
            Command::Tree => answers::tree(self.talk, self.colour, columns),
            Command::Cost => answers::cost(self.talk, self.colour, columns),
            Command::Agents => answers::agents(self.talk, columns),
            Command::Model(None) => answers::model(self.talk).await,
            Command::Model(Some(model)) => {
                self.screen.clear();
                self.talk.set_model(model).await?;
                answers::model(self.talk).await
            }
            Command::Mode(None) => format!("The mode is {}.", self.talk.mode().await),
            Command::Mode(Some(mode)) => {
                self.screen.clear();
                self.talk.set_mode(mode).await?;
                format!("The mode is {mode} from the next round on.")
            }
            Command::Tell(words) => self.tell(&words).await?,
            Command::Stop(None) => self.stop_round().await,
            Command::Stop(Some(words)) => self.stop_agent(&words).await?,
            Command::Undo => self.undo().await?,
            Command::Compact => return self.compact().await,
            Command::Clear => return self.clear().await,
            Command::Resume(None) => answers::sessions(&**self.talk.runtime.store(), columns).await?,
            Command::Resume(Some(id)) => return self.resume(&id).await,
            Command::Help => commands::help(),
            Command::Quit => return Ok(()),
        };
        let lines = text.trim_end().lines();
        // Painted lines are tables, which fit.
        let lines = lines.map(|line| match line.contains('\u{1b}') {
            true => line.to_owned(),
            false => wrapped(line, columns),
        });
        let lines = lines.collect();
        let lines = self.voice.aside(lines);
        self.say(lines);
        Ok(())
    }

    async fn tell(&mut self, words: &str) -> Result<String, Failure> {
        let (session, text) = self.addressed(words)?;
        if text.is_empty() {
            return Err(Failure::usage("say whom and what: /tell AGENT TEXT"));
        }
        self.talk.tell(&session, &text).await?;
        Ok(format!("{} hears it at its next step.", self.label(&session)))
    }

    async fn stop_round(&mut self) -> String {
        if self.round.is_none() {
            return "Nobody works now.".to_owned();
        }
        self.stop().await;
        "Stopping.".to_owned()
    }

    async fn stop_agent(&mut self, words: &str) -> Result<String, Failure> {
        let (session, _) = self.addressed(words)?;
        self.talk.cancel(&session).await?;
        Ok(format!("{} is asked to stop.", self.label(&session)))
    }

    /// The name that a session of the tree is shown by.
    fn label(&self, session: &SessionId) -> String {
        let node = self.talk.view.as_ref().and_then(|view| view.tree.node(session));
        node.map_or_else(|| session.to_string(), |node| safe::line(&node.label))
    }

    fn addressed(&self, words: &str) -> Result<(SessionId, String), Failure> {
        let view = self.talk.view.as_ref().filter(|_| self.round.is_some());
        let view = view.ok_or_else(|| Failure::usage("nobody works now"))?;
        let (session, rest) = answers::addressed(view, words).map_err(Failure::usage)?;
        Ok((session, rest.to_owned()))
    }

    async fn resume(&mut self, id: &str) -> Result<(), Failure> {
        self.require_rest()?;
        let session = named::session(&**self.talk.runtime.store(), id).await?;
        self.screen.clear();
        self.talk.switch(&session).await?;
        self.plan = None;
        self.line.set_folder(self.talk.settings.folder.clone());
        self.greet().await;
        Ok(())
    }

    async fn undo(&mut self) -> Result<String, Failure> {
        self.require_rest()?;
        self.plan = None;
        self.talk.undo().await
    }

    async fn compact(&mut self) -> Result<(), Failure> {
        self.require_rest()?;
        self.plan = None;
        let round = self.talk.compact().await?;
        self.follow(round);
        Ok(())
    }

    /// Begins a new session with the next message. The one before stays in the store.
    async fn clear(&mut self) -> Result<(), Failure> {
        self.require_rest()?;
        self.plan = None;
        let left = self.talk.leave_session();
        self.voice = Voice::new(SessionId::root(0), self.colour, HashSet::new());
        self.screen.wipe();
        if let Some(session) = left {
            self.note(&format!(
                "A new session begins with your next message. To continue the last one: /resume {session}"
            ));
            let rest = self.voice.rest();
            self.say(rest);
        }
        self.greet().await;
        Ok(())
    }

    fn require_rest(&self) -> Result<(), Failure> {
        match self.round {
            Some(_) => Err(Failure::usage("this round is not over; /stop ends it")),
            None => Ok(()),
        }
    }
}
