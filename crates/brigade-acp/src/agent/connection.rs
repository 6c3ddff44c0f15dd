//! Requests and notifications of a client.

mod open;

use std::sync::{Arc, Mutex, PoisonError};

use acp::SessionUpdate;
use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1 as acp;
use brigade::OpenSessions;
use brigade::open_sessions::{OpenError, OpenLimits};
use brigade_core::SessionId;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tracing::debug;

use super::commands::{self, ParsedPrompt};
use super::open_session::{self, OpenSession, SessionData};
use super::peer::{self, Peer};
use super::round::Prompt;
use super::update_mapper::{SubagentDisplay, chunk};
use super::{Host, config_options, errors, prompt, round, session_list};

/// Limits of a client. A cancelled round has as much time to stop as it needs.
const LIMITS: OpenLimits = OpenLimits { max_open: 1000, stop_timeout: None };

/// Maximum length of a method name in diagnostics. The client chooses it.
const MAX_LOGGED_METHOD_CHARS: usize = 64;

/// State of one ACP client connection: the peer, its capabilities and its open sessions.
pub(super) struct ClientConnection {
    host: Arc<dyn Host>,
    peer: Peer,
    client: Mutex<Option<Client>>,
    open_sessions: OpenSessions<SessionData>,
}

/// The connected client.
#[derive(Clone)]
pub(super) struct Client {
    /// Name that the log records for its answers and cancellations.
    pub(super) name: String,
    /// Display of sub-agent sessions.
    pub(super) subagent_display: SubagentDisplay,
}

impl ClientConnection {
    pub(super) fn new(host: Arc<dyn Host>, peer: Peer) -> ClientConnection {
        ClientConnection { host, peer, client: Mutex::default(), open_sessions: OpenSessions::new(LIMITS) }
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    fn client(&self) -> Option<Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Name that the log records for the client.
    fn actor(&self) -> String {
        self.client().map(|client| client.name).unwrap_or_default()
    }

    fn open_session(&self, id: &acp::SessionId) -> Result<Arc<OpenSession>, acp::Error> {
        let session = errors::parse_session_id(&id.0)?;
        self.open_sessions.get(&session).ok_or_else(|| errors::session(&id.0))
    }

    /// Requests all rounds to stop.
    pub(super) fn stop_all(&self) {
        self.open_sessions.stop_all(&self.actor());
    }

    /// Handles a request. Slow requests run in their own task. Changes to a session are made before the next
    /// message is read.
    pub(super) async fn request(
        self: &Arc<ClientConnection>,
        id: acp::RequestId,
        method: String,
        params: Value,
        tasks: &mut JoinSet<()>,
    ) {
        let shown = || method.chars().take(MAX_LOGGED_METHOD_CHARS).collect::<String>();
        debug!(target: "brigade::acp", method = shown(), "request received");
        if method == "initialize" {
            let result = peer::params(params).map(|request| self.initialize(request));
            return self.peer.respond(&id, result).await;
        }
        let Some(client) = self.client() else {
            let text = "the connection is not initialized. Send `initialize` first.";
            return self.peer.respond::<()>(&id, Err(errors::request(text))).await;
        };
        match method.as_str() {
            "authenticate" => self.peer.respond(&id, Ok(acp::AuthenticateResponse::new())).await,
            "session/set_mode" => self.set_mode(&id, params).await,
            "session/set_config_option" => self.set_option(&id, params).await,
            "session/prompt" => {
                if let Err(error) = self.prompt(&id, client, params, tasks) {
                    self.peer.respond::<()>(&id, Err(error)).await;
                }
            }
            "session/new" | "session/load" | "session/resume" | "session/list" | "session/close"
            | "session/delete" => {
                let connection = self.clone();
                tasks.spawn(async move { connection.handle_async(&id, &client, &method, params).await });
            }
            _ => self.peer.respond::<()>(&id, Err(errors::method(&method))).await,
        }
    }

    /// Handles a notification.
    pub(super) async fn notification(&self, method: &str, params: Value) {
        match method {
            "session/cancel" => {
                if let Ok(cancel) = peer::params::<acp::CancelNotification>(params) {
                    self.cancel(&cancel.session_id).await;
                }
            }
            "$/cancel_request" => {
                if let Ok(cancel) = peer::params::<acp::CancelRequestNotification>(params) {
                    self.stop_prompt(&cancel.request_id);
                }
            }
            _ => {}
        }
    }

    fn initialize(&self, request: acp::InitializeRequest) -> acp::InitializeResponse {
        let subagent_display = match request.client_capabilities.subagents {
            Some(_) => SubagentDisplay::Sessions,
            None => SubagentDisplay::ToolCalls,
        };
        let name = request.client_info.map_or_else(|| "the client".to_owned(), |client| client.name);
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(Client { name, subagent_display });
        let sessions = acp::SessionCapabilities::new()
            .list(acp::SessionListCapabilities::new())
            .resume(acp::SessionResumeCapabilities::new())
            .close(acp::SessionCloseCapabilities::new())
            .delete(acp::SessionDeleteCapabilities::new());
        let capabilities = acp::AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(acp::PromptCapabilities::new().embedded_context(true))
            .mcp_capabilities(acp::McpCapabilities::new().http(true))
            .session_capabilities(sessions);
        let brigade =
            acp::Implementation::new("brigade", env!("CARGO_PKG_VERSION")).title("Brigade".to_owned());
        acp::InitializeResponse::new(ProtocolVersion::V1).agent_capabilities(capabilities).agent_info(brigade)
    }

    /// Cancels the round that this prompt started.
    fn stop_prompt(&self, prompt: &acp::RequestId) {
        for open_session in self.open_sessions.list() {
            if open_session.data().prompt().as_ref() == Some(prompt) {
                open_session.stop(&self.actor());
            }
        }
    }

    /// Cancels a round, or the session of a sub-agent.
    async fn cancel(&self, id: &acp::SessionId) {
        let Ok(session) = errors::parse_session_id(&id.0) else { return };
        let Some(open_session) = self.open_sessions.containing(&session) else { return };
        if *open_session.id() == session {
            open_session.stop(&self.actor());
        } else {
            let _ = open_session.runtime().cancel(&session, &self.actor()).await;
        }
    }

    async fn set_mode(&self, id: &acp::RequestId, params: Value) {
        let set = |request: acp::SetSessionModeRequest| {
            let open_session = self.open_session(&request.session_id)?;
            config_options::set_mode(&open_session, &request.mode_id.0)?;
            Ok(open_session)
        };
        match peer::params(params).and_then(set) {
            Ok(open_session) => {
                self.peer.respond(id, Ok(acp::SetSessionModeResponse::new())).await;
                self.send_options(&open_session).await;
            }
            Err(error) => self.peer.respond::<()>(id, Err(error)).await,
        }
    }

    async fn set_option(&self, id: &acp::RequestId, params: Value) {
        let set = |request: acp::SetSessionConfigOptionRequest| {
            let open_session = self.open_session(&request.session_id)?;
            config_options::set(&open_session, &request)?;
            Ok(open_session)
        };
        match peer::params(params).and_then(set) {
            Ok(open_session) => {
                let options = config_options::options(&open_session);
                self.peer.respond(id, Ok(acp::SetSessionConfigOptionResponse::new(options))).await;
                self.send_mode(&open_session).await;
            }
            Err(error) => self.peer.respond::<()>(id, Err(error)).await,
        }
    }

    async fn update(&self, session: &SessionId, update: SessionUpdate) {
        self.peer.update(&acp::SessionNotification::new(session.as_str().to_owned(), update)).await;
    }

    async fn send_options(&self, open_session: &OpenSession) {
        let options = acp::ConfigOptionUpdate::new(config_options::options(open_session));
        self.update(open_session.id(), SessionUpdate::ConfigOptionUpdate(options)).await;
    }

    async fn send_mode(&self, open_session: &OpenSession) {
        let mode = acp::CurrentModeUpdate::new(open_session.mode().as_str());
        self.update(open_session.id(), SessionUpdate::CurrentModeUpdate(mode)).await;
    }

    /// Starts a prompt. The session is marked busy before the next message is read, so that a cancel finds
    /// it.
    fn prompt(
        self: &Arc<ClientConnection>,
        id: &acp::RequestId,
        client: Client,
        params: Value,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), acp::Error> {
        let remote_context = prompt::remote_context(&params)?;
        let request: acp::PromptRequest = peer::params(params)?;
        let open_session = self.open_session(&request.session_id)?;
        let text = prompt::to_text(&request.prompt)?;
        let (connection, id) = (self.clone(), id.clone());
        let text = match commands::parse_prompt(&text) {
            ParsedPrompt::Command(command, rest) => {
                let rest = rest.to_owned();
                tasks.spawn(async move {
                    connection.run_command(&id, &client, &open_session, command, &rest).await
                });
                return Ok(());
            }
            ParsedPrompt::Resume if !open_session.is_started() => {
                return Err(errors::request("there is nothing to resume. Send a prompt first."));
            }
            ParsedPrompt::Resume => None,
            ParsedPrompt::Message(text) => Some(text.to_owned()),
        };
        let permit = open_session.begin_prompt().map_err(|error| match error {
            OpenError::Busy => errors::request(
                "the session is running. Wait for it to end, cancel it, or send a message to one of its agents with \
                 `/tell AGENT TEXT`.",
            ),
            other => open_session::open_error(&other),
        })?;
        *open_session.data().prompt() = Some(id.clone());
        let prompt = Prompt { text, remote_context };
        tasks.spawn(async move {
            let answer = round::run(&connection, &client, permit, prompt).await;
            connection.peer.respond(&id, answer).await;
        });
        Ok(())
    }

    async fn run_command(
        &self,
        id: &acp::RequestId,
        client: &Client,
        open_session: &OpenSession,
        command: &str,
        text: &str,
    ) {
        let reply = match commands::run_command(open_session, &client.name, command, text).await {
            Ok(reply) => reply,
            // The user typed the command, so the error is shown in place of its output.
            Err(error) => error.message,
        };
        self.update(open_session.id(), SessionUpdate::AgentMessageChunk(chunk(&reply))).await;
        if matches!(command, "mode" | "model") {
            self.send_mode(open_session).await;
            self.send_options(open_session).await;
        }
        self.peer.respond(id, Ok(acp::PromptResponse::new(acp::StopReason::EndTurn))).await;
    }

    /// Handles requests that may take some time.
    async fn handle_async(&self, id: &acp::RequestId, client: &Client, method: &str, params: Value) {
        match method {
            "session/new" => {
                let opened = self.open_new(params).await;
                self.respond_opened(id, opened).await;
            }
            "session/load" => {
                let opened = self.load(client, params).await;
                self.respond_opened(id, opened).await;
            }
            "session/resume" => {
                let opened = self.resume(params).await;
                self.respond_opened(id, opened).await;
            }
            "session/list" => {
                let listed = match peer::params(params) {
                    Ok(request) => session_list::list(&*self.host.store(), &request).await,
                    Err(error) => Err(error),
                };
                self.peer.respond(id, listed).await;
            }
            "session/close" => {
                let closed = self.close(params).await.map(|()| acp::CloseSessionResponse::new());
                self.peer.respond(id, closed).await;
            }
            _ => {
                let deleted = self.delete(params).await.map(|()| acp::DeleteSessionResponse::new());
                self.peer.respond(id, deleted).await;
            }
        }
    }

    /// Responds with an opened session. Its commands are sent after the client knows the session.
    async fn respond_opened<R: Serialize>(
        &self,
        id: &acp::RequestId,
        opened: Result<(Arc<OpenSession>, R), acp::Error>,
    ) {
        match opened {
            Ok((open_session, response)) => {
                self.peer.respond(id, Ok(response)).await;
                let commands = SessionUpdate::AvailableCommandsUpdate(commands::available());
                self.update(open_session.id(), commands).await;
            }
            Err(error) => self.peer.respond::<()>(id, Err(error)).await,
        }
    }

    async fn close(&self, params: Value) -> Result<(), acp::Error> {
        let request: acp::CloseSessionRequest = peer::params(params)?;
        let open_session = self.open_session(&request.session_id)?;
        self.open_sessions.close(open_session.id(), &self.actor()).await;
        Ok(())
    }

    async fn delete(&self, params: Value) -> Result<(), acp::Error> {
        let request: acp::DeleteSessionRequest = peer::params(params)?;
        let session = errors::parse_session_id(&request.session_id.0)?;
        let open_session = self.open_sessions.get(&session);
        if open_session.as_ref().is_some_and(|open_session| open_session.is_busy()) {
            return Err(errors::request("the session is running. Cancel it first."));
        }
        let is_started = open_session.is_none_or(|open_session| open_session.is_started());
        if is_started {
            let removed = self.host.store().remove(&session).await;
            removed.map_err(|error| errors::run(&error.into()))?;
        }
        self.open_sessions.close_idle(&session);
        Ok(())
    }
}
