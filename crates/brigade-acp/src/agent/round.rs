//! One round of a session, from the prompt to its response.

use agent_client_protocol::v1::schema as acp;
use brigade::{Run, RunError, RunEvent, RunResult, Runtime};
use brigade_core::delegation::LimitKind;
use brigade_core::message::Stop;
use brigade_core::usage_report::UsageReport;
use brigade_core::{Event, RemoteContext, SessionId, Spent, Status};
use serde_json::Map;
use tokio::sync::watch;
use tracing::debug;

use super::connection::{Client, ClientConnection};
use super::open_session::{NextRound, PromptGuard};
use super::permission_requests::PermissionRequests;
use super::update_mapper::{Replay, UpdateMapper};
use super::{calls, errors};

/// A prompt of the client.
pub(super) struct Prompt {
    /// The message, or `None` to resume an unfinished round.
    pub(super) text: Option<String>,
    /// Limits and lineage that the calling Brigade sent.
    pub(super) remote_context: Option<RemoteContext>,
}

/// Runs a round and returns the response to its prompt.
pub(super) async fn run(
    connection: &ClientConnection,
    client: &Client,
    guard: PromptGuard,
    prompt: Prompt,
) -> Result<acp::PromptResponse, acp::Error> {
    let runtime = guard.open_session.runtime();
    let session = guard.open_session.session.clone();
    let failed = |error: RunError| errors::run(&error);
    let title = prompt.text.as_deref().filter(|_| !guard.open_session.is_started()).map(calls::brief);
    let text = prompt.text.as_deref().unwrap_or_default();
    let next_round = guard.open_session.next_round(text, prompt.remote_context)?;
    if let (NextRound::Resume(_), Some(text)) = (&next_round, &prompt.text) {
        runtime.tell(&session, text).await.map_err(failed)?;
    }
    let workspace = runtime.settings().workspace.root().to_path_buf();
    let window = runtime.model_info(&guard.open_session.model()).and_then(|info| info.window);
    // Updates that an earlier round sent are not read again. What the log contains before the round starts is known
    // to the client.
    let mapper = guard.open_session.take_mapper();
    let mapper = mapper.unwrap_or_else(|| {
        UpdateMapper::new(session.clone(), workspace, client.subagent_display, Replay::No)
    });
    let mut mapper = mapper.with_context_window(window);
    mapper.catch_up(&**runtime.store()).await.map_err(RunError::from).map_err(failed)?;
    let started = match next_round {
        NextRound::Start(task) => runtime.start(*task).await,
        NextRound::Resume(options) => runtime.resume(&session, options).await,
    };
    let run = started.map_err(failed)?;
    debug!(target: "brigade::acp", session = session.as_str(), "round started");
    if let Some(title) = title {
        let title = acp::SessionUpdate::SessionInfoUpdate(acp::SessionInfoUpdate::new().title(title));
        connection.peer().update(&acp::SessionNotification::new(session.as_str().to_owned(), title)).await;
    }
    let permission_requests = PermissionRequests::new(connection.peer().clone());
    let round = ActiveRound { connection, client, runtime, session, mapper, permission_requests };
    round.follow(guard, run).await
}

/// A running round.
struct ActiveRound<'a> {
    connection: &'a ClientConnection,
    client: &'a Client,
    runtime: Runtime,
    session: SessionId,
    mapper: UpdateMapper,
    permission_requests: PermissionRequests,
}

impl ActiveRound<'_> {
    async fn follow(mut self, guard: PromptGuard, mut run: Run) -> Result<acp::PromptResponse, acp::Error> {
        let (mut stop, mut is_stopped) = (guard.stop.clone(), false);
        loop {
            tokio::select! {
                biased;
                () = stop_requested(&mut stop), if !is_stopped => {
                    // If this fails, the store has failed, and so does the run.
                    let _ = run.cancel(&self.client.name).await;
                    is_stopped = true;
                }
                live = run.next() => match live {
                    Some(live) => self.handle_event(live, &guard).await,
                    None => break,
                },
                Some(answer) = self.permission_requests.next() => answer.submit(&self.runtime, &self.client.name).await,
            }
        }
        let result = run.result().await;
        debug!(target: "brigade::acp", session = self.session.as_str(), has_failed = result.is_err(), "round ended");
        for update in self.mapper.map_missed(&**self.runtime.store()).await {
            self.connection.peer().update(&update).await;
        }
        let spent = match &result {
            Ok(_) => self.mapper.spent,
            Err(_) => Spent::default(),
        };
        let answer = self.answer(result, spent);
        guard.open_session.keep_mapper(self.mapper);
        answer
    }

    async fn handle_event(&mut self, live: RunEvent, guard: &PromptGuard) {
        let is_record = matches!(live, RunEvent::Record(_));
        if let RunEvent::Record(record) = &live
            && record.session == self.session
        {
            match &record.event {
                Event::Started { depth, .. } => guard.open_session.set_started(*depth),
                Event::Ended { spent, .. } => guard.open_session.charge(spent.amount()),
                _ => {}
            }
        }
        for update in self.mapper.handle_event(live, &**self.runtime.store()).await {
            self.connection.peer().update(&update).await;
        }
        if is_record {
            self.permission_requests.sync(&self.mapper);
        }
    }

    fn answer(
        &self,
        result: Result<RunResult, RunError>,
        spent: Spent,
    ) -> Result<acp::PromptResponse, acp::Error> {
        let result = result.map_err(|error| errors::run(&error))?;
        let mut meta = Map::new();
        UsageReport::from(&spent).write_meta(&mut meta);
        let mut response = match &result.outcome.status {
            Status::Done | Status::Detached => acp::PromptResponse::new(match self.mapper.last_stop {
                Stop::Refusal => acp::StopReason::Refusal,
                Stop::Length => acp::StopReason::MaxTokens,
                Stop::End | Stop::Calls | Stop::Denied => acp::StopReason::EndTurn,
            }),
            Status::Incomplete { limit } => {
                meta.insert("brigade/limit".to_owned(), limit.to_string().into());
                acp::PromptResponse::new(limit_reason(*limit))
            }
            Status::Cancelled { .. } => acp::PromptResponse::new(acp::StopReason::Cancelled),
            Status::Failed { cause } => return Err(errors::failed(cause.clone())),
            Status::Lost { cause } => {
                return Err(errors::failed(format!("the outcome of the round is unknown: {cause}")));
            }
        };
        response.usage = Some(usage(&spent));
        Ok(response.meta(meta))
    }
}

/// Waits until a stop is requested.
async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}

/// Maps a limit to a stop reason of the protocol, which has none for time, agents and permissions.
pub(super) fn limit_reason(limit: LimitKind) -> acp::StopReason {
    match limit {
        LimitKind::Tokens | LimitKind::Usd => acp::StopReason::MaxTokens,
        LimitKind::Turns | LimitKind::Time | LimitKind::Agents | LimitKind::Loop | LimitKind::Permission => {
            acp::StopReason::MaxTurnRequests
        }
    }
}

/// Converts usage to the token counts of the protocol.
pub(super) fn usage(spent: &Spent) -> acp::Usage {
    let usage = spent.usage;
    let known = |number: u64| (number > 0).then_some(number);
    acp::Usage::new(usage.total(), usage.input, usage.output)
        .cached_read_tokens(known(usage.cache_read))
        .cached_write_tokens(known(usage.cache_write))
}
