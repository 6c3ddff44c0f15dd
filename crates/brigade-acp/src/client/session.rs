//! One session on an agent process: its queued updates and unanswered requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol_schema::v1::{CancelNotification, CloseSessionRequest, MessageId, SessionUpdate};
use brigade::external::{ExternalError, ReportedUsage};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::agent_request::AgentRequest;
use super::calls::KnownCalls;
use super::denied::Denied;
use super::lock;
use super::peer::{
    AgentConnection, INVALID_PARAMS, METHOD_NOT_FOUND, REFUSED, SessionSlot, UnresponsiveGuard,
};
use super::subagents::SubAgents;
use super::terminal::Terminals;

/// Maximum number of queued updates, and their maximum total size.
const MAX_QUEUED_UPDATES: usize = 16_384;
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Maximum number of unanswered requests.
const MAX_OPEN_REQUESTS: usize = 64;
/// Time that an agent has to end a cancelled prompt.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);
/// Time that an agent has to close a session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A message from the process.
pub(super) enum Inbound {
    /// An update of the agent or of one of its sub-agents.
    Update { sub_agent: Option<String>, update: Box<SessionUpdate> },
    /// A request of the agent.
    Request(Box<AgentRequest>),
    /// The response to the prompt.
    Ended(Result<Value, ExternalError>),
    /// The end of the process.
    Lost,
}

pub(super) struct ExternalSession {
    /// The agent's id of the session.
    pub(super) id: String,
    slot: SessionSlot,
    sender: mpsc::Sender<(Inbound, usize)>,
    receiver: tokio::sync::Mutex<mpsc::Receiver<(Inbound, usize)>>,
    bytes: AtomicUsize,
    overflowed: AtomicBool,
    /// Whether the agent is working on a prompt.
    working: watch::Sender<bool>,
    /// Whether the prompt was cancelled.
    cancel_sent: AtomicBool,
    queued_requests: AtomicUsize,
    pub(super) state: Mutex<PromptState>,
    pub(super) terminals: Terminals,
}

/// State of a prompt, which may consist of several replies.
#[derive(Default)]
pub(super) struct PromptState {
    /// Whether a prompt was sent whose response has not been handled.
    pub(super) prompted: bool,
    /// Number of the caller's messages that were delivered.
    pub(super) delivered: usize,
    /// The agent's text since the prompt, up to a limit.
    pub(super) reply_text: String,
    /// The message that the last text belongs to.
    pub(super) message_id: Option<MessageId>,
    /// The permissions that were denied since the prompt.
    pub(super) denied: Denied,
    /// Unanswered requests, by the name of the call that represents each.
    pub(super) open_requests: BTreeMap<String, AgentRequest>,
    /// Details of its own tool calls.
    pub(super) calls: KnownCalls,
    /// Its sub-agents.
    pub(super) sub_agents: SubAgents,
    /// The directory of the session.
    pub(super) root: PathBuf,
    /// Number of the last request.
    pub(super) last_request: u64,
    /// Total usage that the agent reported.
    pub(super) reported: ReportedUsage,
    /// The part of it that was passed on.
    pub(super) passed_on: ReportedUsage,
    /// A message that was received too early and is returned next.
    pub(super) put_back: Option<Inbound>,
}

impl ExternalSession {
    pub(super) fn new(id: String, slot: SessionSlot, root: PathBuf) -> Arc<ExternalSession> {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_UPDATES);
        Arc::new(ExternalSession {
            id,
            slot,
            sender,
            receiver: tokio::sync::Mutex::new(receiver),
            bytes: AtomicUsize::new(0),
            overflowed: AtomicBool::new(false),
            working: watch::Sender::new(false),
            cancel_sent: AtomicBool::new(false),
            queued_requests: AtomicUsize::new(0),
            state: Mutex::new(PromptState { root, ..PromptState::default() }),
            terminals: Terminals::default(),
        })
    }

    pub(super) fn connection(&self) -> &AgentConnection {
        &self.slot.peer.connection
    }

    /// Queues a message. If the queue is full, the session fails.
    pub(super) fn take(&self, inbound: Inbound, bytes: usize) {
        match inbound {
            Inbound::Ended(_) | Inbound::Lost => {
                self.working.send_replace(false);
            }
            // Updates between prompts have no reader.
            Inbound::Update { .. } if !*self.working.borrow() => return,
            Inbound::Update { .. } | Inbound::Request(_) => {}
        }
        let bytes_now = self.bytes.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
        if bytes_now > MAX_QUEUED_BYTES || self.sender.try_send((inbound, bytes)).is_err() {
            self.overflowed.store(true, Ordering::SeqCst);
        }
    }

    /// Returns the next message, or the reason why the session failed.
    pub(super) async fn next(&self) -> Result<Inbound, ExternalError> {
        if let Some(put_back) = lock(&self.state).put_back.take() {
            return Ok(put_back);
        }
        if self.overflowed.load(Ordering::SeqCst) {
            return Err(ExternalError::Protocol("too many unprocessed updates".to_owned()));
        }
        let mut receiver = self.receiver.lock().await;
        match receiver.recv().await {
            Some((inbound, bytes)) => {
                self.bytes.fetch_sub(bytes, Ordering::SeqCst);
                if let Inbound::Request(_) = inbound {
                    self.queued_requests.fetch_sub(1, Ordering::SeqCst);
                }
                Ok(inbound)
            }
            // The session owns a sender, so this is not reached.
            None => Ok(Inbound::Lost),
        }
    }

    /// Returns the next message, if one is queued.
    pub(super) fn try_next(&self) -> Option<Inbound> {
        let mut receiver = self.receiver.try_lock().ok()?;
        let (inbound, bytes) = receiver.try_recv().ok()?;
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if let Inbound::Request(_) = inbound {
            self.queued_requests.fetch_sub(1, Ordering::SeqCst);
        }
        Some(inbound)
    }

    /// Handles a request. Terminal requests are answered at once, all others are decided by the driver.
    pub(super) fn handle_request(
        self: &Arc<ExternalSession>,
        method: &str,
        id: Value,
        params: Value,
        sub_agent: Option<String>,
        bytes: usize,
    ) {
        if let Some(answer) = self.terminals.handle_request(self, method, &id, &params) {
            return match answer {
                Ok(Some(answer)) => self.connection().answer(&id, &answer),
                Ok(None) => {}
                Err(refusal) => self.connection().refuse(&id, INVALID_PARAMS, &refusal.to_string()),
            };
        }
        let request = match AgentRequest::parse(method, id.clone(), params, sub_agent) {
            None => return self.connection().refuse(&id, METHOD_NOT_FOUND, "unknown method"),
            Some(Err(refusal)) => {
                return self.connection().refuse(&id, INVALID_PARAMS, &refusal.to_string());
            }
            Some(Ok(request)) => request,
        };
        if !*self.working.borrow() {
            return request.refuse(self.connection(), "no prompt is running");
        }
        let open_requests =
            self.queued_requests.load(Ordering::SeqCst) + lock(&self.state).open_requests.len();
        if open_requests >= MAX_OPEN_REQUESTS {
            return self.connection().refuse(
                &id,
                REFUSED,
                "too many open requests. Wait for responses first.",
            );
        }
        self.queued_requests.fetch_add(1, Ordering::SeqCst);
        self.take(Inbound::Request(Box::new(request)), bytes);
    }

    pub(super) fn prompt(self: &Arc<ExternalSession>, params: &impl serde::Serialize) {
        {
            let mut state = lock(&self.state);
            state.prompted = true;
            state.reply_text.clear();
            state.message_id = None;
            state.denied = Denied::default();
        }
        self.cancel_sent.store(false, Ordering::SeqCst);
        self.working.send_replace(true);
        self.connection().prompt(self, params);
    }

    /// Cancels the prompt and answers its open requests.
    pub(super) fn cancel(&self) {
        if *self.working.borrow() && !self.cancel_sent.swap(true, Ordering::SeqCst) {
            self.connection().notify("session/cancel", &CancelNotification::new(self.id.clone()));
        }
        let open_requests = std::mem::take(&mut lock(&self.state).open_requests);
        for request in open_requests.into_values() {
            request.cancel(self.connection());
        }
    }

    /// Closes the session, terminates its commands and notifies the agent. If the agent does not stop, its
    /// process accepts no more sessions.
    pub(super) fn close(self: Arc<ExternalSession>) -> impl Future<Output = ()> + Send + 'static {
        self.terminals.end();
        // Sessions that are opened in the meantime should use another process.
        let unresponsive = self.working.borrow().then(|| self.slot.peer.mark_unresponsive());
        self.cancel();
        self.stop(unresponsive)
    }

    async fn stop(self: Arc<ExternalSession>, unresponsive: Option<UnresponsiveGuard>) {
        let mut working = self.working.subscribe();
        let stopped =
            tokio::time::timeout(CANCEL_TIMEOUT, working.wait_for(|working| !working)).await.is_ok();
        if !stopped {
            self.slot.peer.retire();
        }
        drop(unresponsive);
        if stopped && self.slot.peer.can_close_sessions && self.slot.peer.is_usable() {
            let request = CloseSessionRequest::new(self.id.clone());
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.connection().request("session/close", &request))
                .await;
        }
        self.connection().remove_session(&self);
    }
}
