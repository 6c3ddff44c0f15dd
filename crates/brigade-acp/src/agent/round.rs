//! One round of a session, from the prompt to its response.

use agent_client_protocol_schema::v1 as acp;
use brigade::open_sessions::PromptPermit;
use brigade::{Run, RunError, RunEvent, RunResult, StoreError};
use brigade_core::delegation::LimitKind;
use brigade_core::message::Stop;
use brigade_core::usage_report::UsageReport;
use brigade_core::{RemoteContext, Spent, Status};
use serde_json::Map;
use tracing::debug;

use super::connection::{Client, ClientConnection};
use super::open_session::{self, OpenSession, SessionData};
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
    permit: PromptPermit<SessionData>,
    prompt: Prompt,
) -> Result<acp::PromptResponse, acp::Error> {
    let open_session = permit.session();
    let runtime = open_session.runtime();
    let session = open_session.id().clone();
    let failed = |error: StoreError| errors::run(&error.into());
    let title = prompt.text.as_deref().filter(|_| !open_session.is_started()).map(calls::brief);
    let window = runtime.model_info(&open_session.model()).and_then(|info| info.window);
    // Updates that an earlier round sent are not read again. What the log contains before the round starts is known
    // to the client.
    let mapper = open_session.data().mapper().take();
    let mapper = mapper.unwrap_or_else(|| {
        UpdateMapper::new(session.clone(), runtime.settings(), client.subagent_display, Replay::No)
    });
    let mut mapper = mapper.with_context_window(window);
    mapper.catch_up(&**runtime.store()).await.map_err(failed)?;
    let has_text = prompt.text.is_some();
    let run = permit.send(prompt.text.as_deref(), prompt.remote_context).await;
    let run = run.map_err(|error| open_session::prompt_error(&error, has_text))?;
    debug!(target: "brigade::acp", session = session.as_str(), "round started");
    if let Some(title) = title {
        let title = acp::SessionUpdate::SessionInfoUpdate(acp::SessionInfoUpdate::new().title(title));
        connection.peer().update(&acp::SessionNotification::new(session.as_str().to_owned(), title)).await;
    }
    let permission_requests = PermissionRequests::new(connection.peer().clone());
    ActiveRound { connection, client, open_session, mapper, permission_requests }.follow(run).await
}

/// A running round.
struct ActiveRound<'a> {
    connection: &'a ClientConnection,
    client: &'a Client,
    open_session: &'a OpenSession,
    mapper: UpdateMapper,
    permission_requests: PermissionRequests,
}

impl ActiveRound<'_> {
    async fn follow(mut self, mut run: Run) -> Result<acp::PromptResponse, acp::Error> {
        // Work that was left open is ended when the session is resumed, before the round starts.
        let mut events = run.take_events_after(self.mapper.mapped_until);
        loop {
            tokio::select! {
                biased;
                live = events.next() => match live {
                    Some(live) => self.handle_event(live).await,
                    None => break,
                },
                Some(answer) = self.permission_requests.next() => {
                    answer.submit(self.open_session, &self.client.name).await;
                }
            }
        }
        let result = run.result().await;
        debug!(target: "brigade::acp", session = self.open_session.id().as_str(), has_failed = result.is_err(), "round ended");
        let spent = match &result {
            Ok(_) => self.mapper.spent,
            Err(_) => Spent::default(),
        };
        let answer = self.answer(result, spent);
        *self.open_session.data().mapper() = Some(self.mapper);
        answer
    }

    async fn handle_event(&mut self, live: RunEvent) {
        let is_record = matches!(live, RunEvent::Record(_));
        let updates = self.mapper.handle_event(live);
        send(self.connection, &updates).await;
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
                return Err(errors::failed(format!("outcome unknown: {cause}")));
            }
        };
        response.usage = Some(usage(&spent));
        Ok(response.meta(meta))
    }
}

async fn send(connection: &ClientConnection, updates: &[acp::SessionNotification]) {
    for update in updates {
        connection.peer().update(update).await;
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
