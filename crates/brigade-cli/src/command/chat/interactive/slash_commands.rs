//! Execution of the chat's slash commands.

use std::collections::HashSet;

use brigade_core::SessionId;

use super::super::commands::{self, Command};
use super::super::conversation::USER;
use super::super::slash_output;
use super::super::transcript_writer::TranscriptWriter;
use super::ChatUi;
use crate::error::CliError;
use crate::render::wrap_text;
use crate::sanitize;
use crate::session_ref;

impl ChatUi<'_> {
    pub(super) async fn run_slash_command(&mut self, command: Command) -> Result<(), CliError> {
        let columns = self.columns();
        let text = match command {
            Command::Tree => slash_output::tree(self.conversation, self.colour, columns),
            Command::Cost => slash_output::cost(self.conversation, self.colour, columns),
            Command::Agents => slash_output::agents(self.conversation, columns),
            Command::Model(None) => slash_output::model(self.conversation).await,
            Command::Model(Some(model)) => {
                self.screen.clear();
                self.conversation.set_model(model).await?;
                slash_output::model(self.conversation).await
            }
            Command::Mode(None) => format!("Mode: {}.", self.conversation.mode().await),
            Command::Mode(Some(mode)) => {
                self.screen.clear();
                self.conversation.set_mode(mode).await?;
                format!("Mode: {mode} (from the next round).")
            }
            Command::Tell(arguments) => self.tell(&arguments).await?,
            Command::Stop(None) => self.stop_round(),
            Command::Stop(Some(arguments)) => self.stop_agent(&arguments).await?,
            Command::Undo => self.undo().await?,
            Command::Compact => return self.compact().await,
            Command::Clear => return self.clear().await,
            Command::Resume(None) => {
                slash_output::sessions(&**self.conversation.runtime.store(), columns).await?
            }
            Command::Resume(Some(id)) => return self.resume(&id).await,
            Command::Help => commands::help(),
            Command::Quit => return Ok(()),
        };
        let lines = text.trim_end().lines();
        // Painted lines are tables, which fit.
        let lines = lines.map(|line| match line.contains('\u{1b}') {
            true => line.to_owned(),
            false => wrap_text(line, columns),
        });
        self.print_block(lines.collect());
        Ok(())
    }

    async fn tell(&mut self, arguments: &str) -> Result<String, CliError> {
        let (session, text) = self.parse_recipient(arguments)?;
        if text.is_empty() {
            return Err(CliError::usage("usage: /tell AGENT TEXT"));
        }
        self.conversation.runtime.tell(&session, &text).await?;
        Ok(format!("{} reads the message at its next turn.", self.label(&session)))
    }

    fn stop_round(&mut self) -> String {
        if self.round.is_none() {
            return "No agents are running.".to_owned();
        }
        self.conversation.stop();
        "Stopping.".to_owned()
    }

    async fn stop_agent(&mut self, arguments: &str) -> Result<String, CliError> {
        let (session, _) = self.parse_recipient(arguments)?;
        self.conversation.runtime.cancel(&session, USER).await?;
        Ok(format!("Stopping {}.", self.label(&session)))
    }

    /// Display name of a session in the tree.
    pub(super) fn label(&self, session: &SessionId) -> String {
        let node = self.conversation.view.as_ref().and_then(|view| view.tree.node(session));
        node.map_or_else(|| session.to_string(), |node| sanitize::line(&node.label))
    }

    fn parse_recipient(&self, arguments: &str) -> Result<(SessionId, String), CliError> {
        let view = self.conversation.view.as_ref().filter(|_| self.round.is_some());
        let view = view.ok_or_else(|| CliError::usage("no agents are running"))?;
        let (session, rest) = slash_output::parse_recipient(view, arguments).map_err(CliError::usage)?;
        Ok((session, rest.to_owned()))
    }

    async fn resume(&mut self, id: &str) -> Result<(), CliError> {
        self.require_idle()?;
        let session = session_ref::resolve(&**self.conversation.runtime.store(), id).await?;
        self.screen.clear();
        self.conversation.switch(&session).await?;
        self.plan_shown_at = None;
        self.line.set_folder(self.conversation.settings.folder.clone());
        self.greet().await;
        Ok(())
    }

    async fn undo(&mut self) -> Result<String, CliError> {
        self.require_idle()?;
        self.plan_shown_at = None;
        self.conversation.undo().await
    }

    async fn compact(&mut self) -> Result<(), CliError> {
        self.require_idle()?;
        self.plan_shown_at = None;
        let round = self.conversation.compact().await?;
        self.follow(round);
        Ok(())
    }

    /// Starts a new session with the next message. The previous one stays in the store.
    async fn clear(&mut self) -> Result<(), CliError> {
        self.require_idle()?;
        self.plan_shown_at = None;
        let left = self.conversation.leave_session();
        self.writer = TranscriptWriter::new(SessionId::root(0), self.colour, HashSet::new());
        self.screen.clear_screen();
        if let Some(session) = left {
            self.note(&format!(
                "A new session starts with your next message. Resume the last one: /resume {session}"
            ));
            self.print_blank_line();
        }
        self.greet().await;
        Ok(())
    }

    fn require_idle(&self) -> Result<(), CliError> {
        match self.round {
            Some(_) => {
                Err(CliError::usage("cannot run this command: the round has not ended. Stop it with /stop."))
            }
            None => Ok(()),
        }
    }
}
