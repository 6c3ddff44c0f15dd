//! Sessions of the protocol: so many at once. Where there are as many, a new one takes the place of the one that nobody
//! has used for the longest time; one that waits for an answer keeps its place.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionTransport,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use tokio::time::Instant;

/// How many clients may have one at once.
const MOST: usize = 256;

/// How long one is kept that nobody uses. A call that takes long is silence too.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// How long one that has to go may take. Its place is free in any case.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// All of them.
pub(super) struct Sessions {
    local: LocalSessionManager,
    seats: Mutex<HashMap<SessionId, Arc<Seat>>>,
    /// Held by who opens one, so that no two find the same place free.
    opening: tokio::sync::Mutex<()>,
}

/// Why something could not be done with a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("too many clients wait for answers")]
    Full,
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

/// What is known of a session.
struct Seat(Mutex<Use>);

struct Use {
    /// The requests that have no answer yet.
    open: HashSet<RequestId>,
    last: Instant,
}

impl Sessions {
    pub(super) fn new() -> Sessions {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(IDLE);
        Sessions { local, seats: Mutex::default(), opening: tokio::sync::Mutex::default() }
    }

    /// Whether nobody else can come in.
    pub(super) fn is_full(&self) -> bool {
        self.seats().len() >= MOST && self.idlest().is_none()
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that could go first.
    fn idlest(&self) -> Option<SessionId> {
        let seats = self.seats();
        let idle = seats.iter().filter_map(|(id, seat)| seat.idle_since().map(|since| (since, id)));
        idle.min().map(|(_, id)| id.clone())
    }

    async fn make_room(&self) -> Result<(), SessionError> {
        while self.seats().len() >= MOST {
            let idlest = self.idlest().ok_or(SessionError::Full)?;
            let _ = tokio::time::timeout(LEAVE_TIME, self.close_session(&idlest)).await;
        }
        Ok(())
    }
}

impl Seat {
    fn new() -> Seat {
        Seat(Mutex::new(Use { open: HashSet::new(), last: Instant::now() }))
    }

    fn touch(&self) -> MutexGuard<'_, Use> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.last = Instant::now();
        used
    }

    /// Since when nothing has happened, where nothing is to be answered.
    fn idle_since(&self) -> Option<Instant> {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.open.is_empty().then_some(used.last)
    }

    fn asked(&self, message: &RxJsonRpcMessage<RoleServer>) {
        let mut used = self.touch();
        match message {
            JsonRpcMessage::Request(request) => {
                used.open.insert(request.id.clone());
            }
            // What is given up may stay without an answer.
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    used.open.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    fn answered(&self, message: &TxJsonRpcMessage<RoleServer>) {
        let mut used = self.touch();
        match message {
            JsonRpcMessage::Response(response) => {
                used.open.remove(&response.id);
            }
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    used.open.remove(id);
                }
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
    }
}

/// The messages of a session, counted. Streams of HTTP would not do: a call goes on where its stream is lost.
pub(super) struct Counted {
    messages: SessionTransport,
    seat: Arc<Seat>,
}

impl Transport<RoleServer> for Counted {
    type Error = <SessionTransport as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.seat.answered(&message);
        self.messages.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.messages.receive().await?;
        self.seat.asked(&message);
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.messages.close().await
    }
}

impl SessionManager for Sessions {
    type Error = SessionError;
    type Transport = Counted;

    async fn create_session(&self) -> Result<(SessionId, Counted), SessionError> {
        let _opening = self.opening.lock().await;
        self.make_room().await?;
        let (id, messages) = self.local.create_session().await?;
        let seat = Arc::new(Seat::new());
        self.seats().insert(id.clone(), seat.clone());
        Ok((id, Counted { messages, seat }))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        // Every request asks this first.
        if let Some(seat) = self.seats().get(id) {
            drop(seat.touch());
        }
        Ok(self.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.seats().remove(id);
        Ok(self.local.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.local.create_stream(id, message).await?)
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionError> {
        Ok(self.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.local.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.local.resume(id, last_event_id).await?)
    }
}
