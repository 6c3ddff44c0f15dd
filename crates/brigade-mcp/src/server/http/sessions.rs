//! Protocol sessions, limited in number. At the limit, a new session replaces the one that has been idle for
//! the longest time. A session with an open request is never replaced.

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
use tracing::debug;

/// Maximum number of sessions.
const MAX_SESSIONS: usize = 256;

/// Time after which an unused session is closed. A long call counts as idle time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Time limit for closing a session. Its slot is freed in any case.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// All protocol sessions.
pub(super) struct Sessions {
    local: LocalSessionManager,
    activities: Mutex<HashMap<SessionId, Arc<SessionActivity>>>,
    /// Held while a session is opened, so that two sessions cannot take the same slot.
    opening: tokio::sync::Mutex<()>,
}

/// Error of a session operation.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("too many clients are waiting for responses")]
    Full,
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

/// Activity of a session.
struct SessionActivity(Mutex<ActivityState>);

struct ActivityState {
    /// Requests without a response.
    open_requests: HashSet<RequestId>,
    last_used: Instant,
}

impl Sessions {
    pub(super) fn new() -> Sessions {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(IDLE_TIMEOUT);
        Sessions { local, activities: Mutex::default(), opening: tokio::sync::Mutex::default() }
    }

    /// Whether no further session can be opened.
    pub(super) fn is_full(&self) -> bool {
        self.activities().len() >= MAX_SESSIONS && self.longest_idle().is_none()
    }

    fn activities(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SessionActivity>>> {
        self.activities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that can be replaced first.
    fn longest_idle(&self) -> Option<SessionId> {
        let activities = self.activities();
        let idle =
            activities.iter().filter_map(|(id, activity)| activity.idle_since().map(|since| (since, id)));
        idle.min().map(|(_, id)| id.clone())
    }

    async fn make_room(&self) -> Result<(), SessionError> {
        while self.activities().len() >= MAX_SESSIONS {
            let longest_idle = self.longest_idle().ok_or(SessionError::Full)?;
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.close_session(&longest_idle)).await;
        }
        Ok(())
    }
}

impl SessionActivity {
    fn new() -> SessionActivity {
        SessionActivity(Mutex::new(ActivityState {
            open_requests: HashSet::new(),
            last_used: Instant::now(),
        }))
    }

    fn touch(&self) -> MutexGuard<'_, ActivityState> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.last_used = Instant::now();
        state
    }

    /// Time of the last activity, or `None` if a request is open.
    fn idle_since(&self) -> Option<Instant> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.open_requests.is_empty().then_some(state.last_used)
    }

    fn on_received(&self, message: &RxJsonRpcMessage<RoleServer>) {
        let mut state = self.touch();
        match message {
            JsonRpcMessage::Request(request) => {
                state.open_requests.insert(request.id.clone());
            }
            // A cancelled request may stay without a response.
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    state.open_requests.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    fn on_sent(&self, message: &TxJsonRpcMessage<RoleServer>) {
        let mut state = self.touch();
        match message {
            JsonRpcMessage::Response(response) => {
                state.open_requests.remove(&response.id);
            }
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    state.open_requests.remove(id);
                }
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
    }
}

/// Tracks the messages of a session. HTTP streams cannot be used for this, because a call outlives its
/// stream.
pub(super) struct TrackedTransport {
    messages: SessionTransport,
    activity: Arc<SessionActivity>,
}

impl Transport<RoleServer> for TrackedTransport {
    type Error = <SessionTransport as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.activity.on_sent(&message);
        self.messages.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.messages.receive().await?;
        self.activity.on_received(&message);
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.messages.close().await
    }
}

impl SessionManager for Sessions {
    type Error = SessionError;
    type Transport = TrackedTransport;

    async fn create_session(&self) -> Result<(SessionId, TrackedTransport), SessionError> {
        let _opening = self.opening.lock().await;
        self.make_room().await?;
        let (id, messages) = self.local.create_session().await?;
        let activity = Arc::new(SessionActivity::new());
        self.activities().insert(id.clone(), activity.clone());
        // A client is recognized by the id of its session, so it is not logged.
        debug!(target: "brigade::mcp", sessions = self.activities().len(), "client session opened");
        Ok((id, TrackedTransport { messages, activity }))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        // This is called first for every request.
        if let Some(activity) = self.activities().get(id) {
            drop(activity.touch());
        }
        Ok(self.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.activities().remove(id);
        debug!(target: "brigade::mcp", sessions = self.activities().len(), "client session closed");
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
