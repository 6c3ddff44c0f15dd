//! What the chat does at a command that begins with a slash.

use brigade_core::SessionId;

use super::super::answers;
use super::super::commands::{self, Command};
use super::Room;
use crate::failure::Failure;
use crate::named;

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
            Command::Resume(None) => answers::sessions(&**self.talk.runtime.store(), columns).await?,
            Command::Resume(Some(id)) => return self.resume(&id).await,
            Command::Help => commands::help(),
            Command::Quit => return Ok(()),
        };
        let lines = text.trim_end().lines().map(str::to_owned).collect();
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
        Ok(format!("{session} hears it at its next step."))
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
        Ok(format!("{session} is asked to stop."))
    }

    fn addressed(&self, words: &str) -> Result<(SessionId, String), Failure> {
        let view = self.talk.view.as_ref().filter(|_| self.round.is_some());
        let view = view.ok_or_else(|| Failure::usage("nobody works now"))?;
        let (session, rest) = answers::addressed(view, words).map_err(Failure::usage)?;
        Ok((session, rest.to_owned()))
    }

    async fn resume(&mut self, id: &str) -> Result<(), Failure> {
        if self.round.is_some() {
            return Err(Failure::usage("this round is not over; /stop ends it"));
        }
        let session = named::session(&**self.talk.runtime.store(), id).await?;
        self.screen.clear();
        self.talk.switch(&session).await?;
        self.greet().await;
        Ok(())
    }
}
