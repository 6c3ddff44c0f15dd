//! Tools to list, read, message and stop sessions.

use brigade::RunError;
use brigade_core::{SessionId, Status};
use rmcp::model::CallToolResult;

use super::arguments::Arguments;
use super::{CLIENT_ACTOR, Server, StartError, specs};
use crate::results;
use crate::sessions::{self, FoundSession, RunStatus};
use crate::visibility::Visibility;

/// Maximum number of trees that are listed if none is named.
const MAX_LISTED: usize = 20;

impl Server {
    /// Calls a session tool.
    pub(super) async fn call_session_tool(
        &self,
        name: &str,
        arguments: &Arguments,
        visibility: &Visibility,
    ) -> Result<CallToolResult, StartError> {
        match name {
            specs::STATUS => self.status(arguments, visibility).await,
            specs::TELL => self.tell(arguments, visibility).await,
            specs::STOP => self.stop(arguments, visibility).await,
            _ => self.read_result(arguments, visibility).await,
        }
    }

    async fn status(
        &self,
        arguments: &Arguments,
        visibility: &Visibility,
    ) -> Result<CallToolResult, StartError> {
        if let Some(id) = arguments.optional_text("session_id")? {
            return Ok(results::status(&self.find(id, visibility).await?));
        }
        let newest = sessions::newest(self.runtime(), &self.inner.calls, visibility, MAX_LISTED).await?;
        Ok(results::list(&newest))
    }

    async fn tell(
        &self,
        arguments: &Arguments,
        visibility: &Visibility,
    ) -> Result<CallToolResult, StartError> {
        let (id, message) = (arguments.text("session_id")?, arguments.text("text")?);
        let found = self.find(id, visibility).await?;
        self.ensure_running(&found)?;
        let mut message_targets = found.message_targets();
        message_targets.retain(|session| !found.is_over(session));
        match message_targets.as_slice() {
            [] => Err(StartError::Refused(format!(
                "cannot send the message: {} has ended. Make a new call instead.",
                found.session
            ))),
            [session] => {
                let told = self.runtime().tell_as(visibility.speaker(), session, message).await;
                told.map_err(start_error)?;
                Ok(results::done(format!("Sent to {session}. The agent reads it before its next turn.")))
            }
            several => {
                let ids: Vec<&str> = several.iter().map(SessionId::as_str).collect();
                Err(StartError::Refused(format!(
                    "cannot send the message: several agents are running in this session. Use the `session_id` of one of these agents: {}",
                    ids.join(", ")
                )))
            }
        }
    }

    async fn stop(
        &self,
        arguments: &Arguments,
        visibility: &Visibility,
    ) -> Result<CallToolResult, StartError> {
        let found = self.find(arguments.text("session_id")?, visibility).await?;
        if found.run_status == RunStatus::Ended || found.is_over(&found.session) {
            return Ok(results::done(format!("{} has already ended.", found.session)));
        }
        self.runtime().cancel(&found.session, CLIENT_ACTOR).await.map_err(start_error)?;
        Ok(results::done(match found.run_status {
            RunStatus::Interrupted => {
                format!("{} is not running. It will be cancelled when it is resumed.", found.session)
            }
            _ => format!("Stopping {} and all agents below it.", found.session),
        }))
    }

    async fn read_result(
        &self,
        arguments: &Arguments,
        visibility: &Visibility,
    ) -> Result<CallToolResult, StartError> {
        let id = match arguments.optional_text("session_id")? {
            Some(id) => id,
            // The name that a truncated result uses for it.
            None => arguments
                .text("handle")
                .map_err(|_| StartError::Refused("Missing 'session_id' argument".to_owned()))?,
        };
        let (offset, limit) = (arguments.number("offset")?, arguments.number("limit")?);
        let found = self.find(id, visibility).await?;
        let (text, is_error) = match (found.session == found.root, found.output(), found.outcome()) {
            (true, Some(output), _) => (output.text.as_str(), output.is_error()),
            (false, _, Some(outcome)) if !outcome.text.is_empty() || outcome.status == Status::Done => {
                let status = &outcome.status;
                let is_error =
                    matches!(status, Status::Failed { .. } | Status::Lost { .. } | Status::Cancelled { .. });
                (outcome.text.as_str(), is_error)
            }
            _ => return Err(StartError::Refused(self.no_result(&found))),
        };
        let part = results::range(text, offset.unwrap_or(0), limit);
        let result = if is_error { results::failed(part) } else { results::done(part) };
        Ok(results::with_session(result, &found.session, &found.spent()))
    }

    fn no_result(&self, found: &FoundSession) -> String {
        let session = &found.session;
        let run_status = if found.is_over(session) { RunStatus::Ended } else { found.run_status };
        match run_status {
            RunStatus::Running => format!("{session} has no result yet: it is still running"),
            RunStatus::Interrupted => {
                format!("{session} has no result yet: {}", results::resume(&found.root))
            }
            RunStatus::Ended => match found.outcome() {
                Some(outcome) => {
                    let message = results::missing_result_message(outcome, found.limit_source());
                    format!("{session} ended without a result: {message}")
                }
                None => format!("{session} ended without a result"),
            },
        }
    }

    fn ensure_running(&self, found: &FoundSession) -> Result<(), StartError> {
        match found.run_status {
            RunStatus::Running | RunStatus::Ended => Ok(()),
            RunStatus::Interrupted => Err(StartError::Refused(format!(
                "{} is not running: {}",
                found.session,
                results::resume(&found.root)
            ))),
        }
    }
}

fn start_error(error: RunError) -> StartError {
    match error {
        RunError::Store(_) | RunError::Bug(_) => StartError::Internal(error.to_string()),
        _ => StartError::Refused(error.to_string()),
    }
}
