//! The tools that look after sessions.

use brigade::RunError;
use brigade_core::{SessionId, Status};
use rmcp::model::CallToolResult;

use super::arguments::Arguments;
use super::{Server, Unbegun, specs};
use crate::call::BY;
use crate::reach::Reach;
use crate::report;
use crate::sessions::{self, Found, Life};

/// How many trees are listed where none is named.
const MOST_LISTED: usize = 20;

impl Server {
    /// Calls one of them.
    pub(super) async fn call_own(
        &self,
        name: &str,
        arguments: &Arguments,
        reach: &Reach,
    ) -> Result<CallToolResult, Unbegun> {
        match name {
            specs::STATUS => self.status(arguments, reach).await,
            specs::TELL => self.tell(arguments, reach).await,
            specs::STOP => self.stop(arguments, reach).await,
            _ => self.read_result(arguments, reach).await,
        }
    }

    async fn status(&self, arguments: &Arguments, reach: &Reach) -> Result<CallToolResult, Unbegun> {
        if let Some(id) = arguments.optional_text("session_id")? {
            return Ok(report::status(&self.find(id, reach).await?));
        }
        let newest =
            sessions::newest(&self.inner.runtimes.alone, &self.inner.calls, reach, MOST_LISTED).await?;
        Ok(report::list(&newest))
    }

    async fn tell(&self, arguments: &Arguments, reach: &Reach) -> Result<CallToolResult, Unbegun> {
        let (id, words) = (arguments.text("session_id")?, arguments.text("text")?);
        let found = self.find(id, reach).await?;
        self.must_run(&found)?;
        let mut listeners = found.listeners();
        listeners.retain(|session| !found.is_over(session));
        match listeners.as_slice() {
            [] => Err(Unbegun::Told(format!(
                "{} has ended, and hears nothing any more; make another call",
                found.session
            ))),
            [session] => {
                self.inner.runtimes.alone.tell_as(reach.speaker(), session, words).await.map_err(unsaid)?;
                Ok(report::done(format!("Told {session}. It hears this at its next step.")))
            }
            several => {
                let ids: Vec<&str> = several.iter().map(SessionId::as_str).collect();
                Err(Unbegun::Told(format!("several agents work there; name one of them: {}", ids.join(", "))))
            }
        }
    }

    async fn stop(&self, arguments: &Arguments, reach: &Reach) -> Result<CallToolResult, Unbegun> {
        let found = self.find(arguments.text("session_id")?, reach).await?;
        if found.life == Life::Over || found.is_over(&found.session) {
            return Ok(report::done(format!("{} has ended already.", found.session)));
        }
        self.inner.runtimes.alone.cancel(&found.session, BY).await.map_err(unsaid)?;
        Ok(report::done(match found.life {
            Life::Interrupted => format!("Nobody runs {}; it ends when it is resumed.", found.session),
            _ => format!("{} stops, and all agents below it.", found.session),
        }))
    }

    async fn read_result(&self, arguments: &Arguments, reach: &Reach) -> Result<CallToolResult, Unbegun> {
        let id = match arguments.optional_text("session_id")? {
            Some(id) => id,
            // What a result that was cut calls it.
            None => arguments
                .text("handle")
                .map_err(|_| Unbegun::Told("Missing 'session_id' argument".to_owned()))?,
        };
        let (offset, limit) = (arguments.number("offset")?, arguments.number("limit")?);
        let found = self.find(id, reach).await?;
        let (text, is_error) = match (found.session == found.root, found.output(), found.outcome()) {
            (true, Some(output), _) => (output.text.as_str(), output.is_error()),
            (false, _, Some(outcome)) if !outcome.text.is_empty() || outcome.status == Status::Done => {
                let status = &outcome.status;
                let is_error =
                    matches!(status, Status::Failed { .. } | Status::Lost { .. } | Status::Cancelled { .. });
                (outcome.text.as_str(), is_error)
            }
            _ => return Err(Unbegun::Told(self.no_result(&found))),
        };
        let part = report::range(text, offset.unwrap_or(0), limit);
        let result = if is_error { report::failed(part) } else { report::done(part) };
        Ok(report::with_session(result, &found.session, &found.spent()))
    }

    fn no_result(&self, found: &Found) -> String {
        let session = &found.session;
        let life = if found.is_over(session) { Life::Over } else { found.life };
        match life {
            Life::Running => format!("{session} has no result yet: it is at work"),
            Life::Interrupted => format!("{session} has no result yet: {}", report::resume(&found.root)),
            Life::Over => match found.outcome() {
                Some(outcome) => {
                    let words = report::without_result(outcome, found.limits_from());
                    format!("{session} ended without a result: {words}")
                }
                None => format!("{session} ended without a result"),
            },
        }
    }

    fn must_run(&self, found: &Found) -> Result<(), Unbegun> {
        match found.life {
            Life::Running | Life::Over => Ok(()),
            Life::Interrupted => {
                Err(Unbegun::Told(format!("nobody runs {}: {}", found.session, report::resume(&found.root))))
            }
        }
    }
}

fn unsaid(error: RunError) -> Unbegun {
    match error {
        RunError::Store(_) | RunError::Bug(_) => Unbegun::Fault(error.to_string()),
        _ => Unbegun::Told(error.to_string()),
    }
}
