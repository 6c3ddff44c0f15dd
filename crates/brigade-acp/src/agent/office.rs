//! What a client can ask for, and who sees to it.

mod open;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use acp::SessionUpdate;
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema as acp;
use brigade_core::SessionId;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::commands::{self, Meaning};
use super::narrator::{Children, chunk};
use super::peer::{self, Peer};
use super::round::Prompt;
use super::seat::Seat;
use super::{Host, choices, listing, prompt, refusal, round};

/// How often a session that is to close is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// All that one client is served with.
pub(super) struct Office {
    host: Arc<dyn Host>,
    peer: Peer,
    client: Mutex<Option<Client>>,
    seats: Mutex<HashMap<SessionId, Arc<Seat>>>,
}

/// Who is served.
#[derive(Clone)]
pub(super) struct Client {
    /// Its name, for the record.
    pub(super) name: String,
    /// How it learns of sessions below.
    pub(super) children: Children,
}

impl Office {
    pub(super) fn new(host: Arc<dyn Host>, peer: Peer) -> Office {
        Office { host, peer, client: Mutex::default(), seats: Mutex::default() }
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> Option<Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn seat(&self, id: &acp::SessionId) -> Result<Arc<Seat>, acp::Error> {
        let session = refusal::read_id(&id.0)?;
        self.seats().get(&session).cloned().ok_or_else(|| refusal::session(&id.0))
    }

    /// Asks everything to stop.
    pub(super) fn stop_all(&self) {
        for seat in self.seats().values() {
            seat.stop();
        }
    }

    /// Sees to a request. What takes time is done beside; what changes a session is done before the next message.
    pub(super) async fn request(
        self: &Arc<Office>,
        id: acp::RequestId,
        method: String,
        params: Value,
        tasks: &mut JoinSet<()>,
    ) {
        if method == "initialize" {
            let result = peer::params(params).map(|request| self.initialize(request));
            return self.peer.answer(&id, result).await;
        }
        let Some(client) = self.client() else {
            let words = "say who you are first: initialize";
            return self.peer.answer::<()>(&id, Err(refusal::request(words))).await;
        };
        match method.as_str() {
            "authenticate" => self.peer.answer(&id, Ok(acp::AuthenticateResponse::new())).await,
            "session/set_mode" => self.set_mode(&id, params).await,
            "session/set_config_option" => self.set_option(&id, params).await,
            "session/prompt" => {
                if let Err(error) = self.prompt(&id, client, params, tasks) {
                    self.peer.answer::<()>(&id, Err(error)).await;
                }
            }
            "session/new" | "session/load" | "session/resume" | "session/list" | "session/close"
            | "session/delete" => {
                let office = self.clone();
                tasks.spawn(async move { office.beside(&id, &client, &method, params).await });
            }
            _ => self.peer.answer::<()>(&id, Err(refusal::method(&method))).await,
        }
    }

    /// Hears what wants no answer.
    pub(super) async fn notice(&self, method: &str, params: Value) {
        match method {
            "session/cancel" => {
                if let Ok(cancel) = peer::params::<acp::CancelNotification>(params) {
                    self.cancel(&cancel.session_id).await;
                }
            }
            "$/cancel_request" => {
                if let Ok(cancel) = peer::params::<acp::CancelRequestNotification>(params) {
                    for seat in self.seats().values() {
                        seat.stop_prompt(&cancel.request_id);
                    }
                }
            }
            _ => {}
        }
    }

    fn initialize(&self, request: acp::InitializeRequest) -> acp::InitializeResponse {
        let children = match request.client_capabilities.subagents {
            Some(_) => Children::Sessions,
            None => Children::Calls,
        };
        let name = request.client_info.map_or_else(|| "the client".to_owned(), |client| client.name);
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(Client { name, children });
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

    /// Stops a round, or a session below one.
    async fn cancel(&self, id: &acp::SessionId) {
        let Ok(session) = refusal::read_id(&id.0) else { return };
        let above = self.seats().values().find(|seat| seat.session.contains(&session)).cloned();
        let Some(seat) = above else { return };
        if seat.session == session {
            seat.stop();
        } else {
            let name = self.client().map(|client| client.name).unwrap_or_default();
            let _ = seat.desk.runtime.cancel(&session, &name).await;
        }
    }

    async fn set_mode(&self, id: &acp::RequestId, params: Value) {
        let set = |request: acp::SetSessionModeRequest| {
            let seat = self.seat(&request.session_id)?;
            choices::set_mode(&seat, &request.mode_id.0)?;
            Ok(seat)
        };
        match peer::params(params).and_then(set) {
            Ok(seat) => {
                self.peer.answer(id, Ok(acp::SetSessionModeResponse::new())).await;
                self.tell_options(&seat).await;
            }
            Err(error) => self.peer.answer::<()>(id, Err(error)).await,
        }
    }

    async fn set_option(&self, id: &acp::RequestId, params: Value) {
        let set = |request: acp::SetSessionConfigOptionRequest| {
            let seat = self.seat(&request.session_id)?;
            choices::set(&seat, &request)?;
            Ok(seat)
        };
        match peer::params(params).and_then(set) {
            Ok(seat) => {
                let options = choices::options(&seat);
                self.peer.answer(id, Ok(acp::SetSessionConfigOptionResponse::new(options))).await;
                self.tell_mode(&seat).await;
            }
            Err(error) => self.peer.answer::<()>(id, Err(error)).await,
        }
    }

    async fn update(&self, session: &SessionId, update: SessionUpdate) {
        self.peer.update(&acp::SessionNotification::new(session.as_str().to_owned(), update)).await;
    }

    async fn tell_options(&self, seat: &Seat) {
        let options = acp::ConfigOptionUpdate::new(choices::options(seat));
        self.update(&seat.session, SessionUpdate::ConfigOptionUpdate(options)).await;
    }

    async fn tell_mode(&self, seat: &Seat) {
        let mode = acp::CurrentModeUpdate::new(seat.mode().as_str());
        self.update(&seat.session, SessionUpdate::CurrentModeUpdate(mode)).await;
    }

    /// Takes a prompt. The session is taken before the next message is heard, so that a cancel finds it.
    fn prompt(
        self: &Arc<Office>,
        id: &acp::RequestId,
        client: Client,
        params: Value,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), acp::Error> {
        let hop = prompt::hop(&params)?;
        let request: acp::PromptRequest = peer::params(params)?;
        let seat = self.seat(&request.session_id)?;
        let words = prompt::words(&request.prompt)?;
        let (office, id) = (self.clone(), id.clone());
        let text = match commands::meaning(&words) {
            Meaning::Command(command, rest) => {
                let rest = rest.to_owned();
                tasks.spawn(async move { office.obey(&id, &client, &seat, command, &rest).await });
                return Ok(());
            }
            Meaning::Resume if !seat.has_begun() => {
                return Err(refusal::request("nothing has begun that could go on; say what is to be done"));
            }
            Meaning::Resume => None,
            Meaning::Words(words) => Some(words.to_owned()),
        };
        let turn = seat.take_turn(&id)?;
        let prompt = Prompt { text, hop };
        tasks.spawn(async move {
            let answer = round::run(&office, &client, turn, prompt).await;
            office.peer.answer(&id, answer).await;
        });
        Ok(())
    }

    async fn obey(&self, id: &acp::RequestId, client: &Client, seat: &Seat, command: &str, words: &str) {
        let said = match commands::obey(seat, &client.name, command, words).await {
            Ok(said) => said,
            // Whoever typed a command reads what is wrong with it where its answer would stand.
            Err(error) => error.message,
        };
        self.update(&seat.session, SessionUpdate::AgentMessageChunk(chunk(&said))).await;
        if matches!(command, "mode" | "model") {
            self.tell_mode(seat).await;
            self.tell_options(seat).await;
        }
        self.peer.answer(id, Ok(acp::PromptResponse::new(acp::StopReason::EndTurn))).await;
    }

    /// Sees to what takes time.
    async fn beside(&self, id: &acp::RequestId, client: &Client, method: &str, params: Value) {
        match method {
            "session/new" => {
                let opened = self.open_new(params).await;
                self.opened(id, opened).await;
            }
            "session/load" => {
                let opened = self.load(client, params).await;
                self.opened(id, opened).await;
            }
            "session/resume" => {
                let opened = self.resume(params).await;
                self.opened(id, opened).await;
            }
            "session/list" => {
                let listed = match peer::params(params) {
                    Ok(request) => listing::list(&*self.host.store(), &request).await,
                    Err(error) => Err(error),
                };
                self.peer.answer(id, listed).await;
            }
            "session/close" => {
                let closed = self.close(params).await.map(|()| acp::CloseSessionResponse::new());
                self.peer.answer(id, closed).await;
            }
            _ => {
                let deleted = self.delete(params).await.map(|()| acp::DeleteSessionResponse::new());
                self.peer.answer(id, deleted).await;
            }
        }
    }

    /// Answers for a session that was opened. Its commands are told after the client knows of it.
    async fn opened<R: Serialize>(&self, id: &acp::RequestId, opened: Result<(Arc<Seat>, R), acp::Error>) {
        match opened {
            Ok((seat, response)) => {
                self.peer.answer(id, Ok(response)).await;
                let commands = SessionUpdate::AvailableCommandsUpdate(commands::available());
                self.update(&seat.session, commands).await;
            }
            Err(error) => self.peer.answer::<()>(id, Err(error)).await,
        }
    }

    async fn close(&self, params: Value) -> Result<(), acp::Error> {
        let request: acp::CloseSessionRequest = peer::params(params)?;
        let seat = self.seat(&request.session_id)?;
        seat.stop();
        while seat.is_busy() {
            tokio::time::sleep(GLANCE).await;
        }
        self.seats().remove(&seat.session);
        Ok(())
    }

    async fn delete(&self, params: Value) -> Result<(), acp::Error> {
        let request: acp::DeleteSessionRequest = peer::params(params)?;
        let session = refusal::read_id(&request.session_id.0)?;
        let seat = self.seats().get(&session).cloned();
        if seat.as_ref().is_some_and(|seat| seat.is_busy()) {
            return Err(refusal::request("the session is at work; cancel it first"));
        }
        let has_begun = seat.is_none_or(|seat| seat.has_begun());
        if has_begun {
            let removed = self.host.store().remove(&session).await;
            removed.map_err(|error| refusal::run(&error.into()))?;
        }
        self.seats().remove(&session);
        Ok(())
    }
}
