//! A session on a process: what it said and nobody has heard yet, and what it asked and nobody has answered yet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::v1::schema::{CancelNotification, CloseSessionRequest, MessageId, SessionUpdate};
use brigade::external::ReportedUsage;
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

/// How many things may be unheard, and how many bytes of them.
const MAX_QUEUED_UPDATES: usize = 16_384;
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// How many questions may be open.
const MAX_OPEN_REQUESTS: usize = 64;
/// How long an agent may take to end a prompt that was cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);
/// How long it may take to close a session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What comes from the process.
pub(super) enum Inbound {
    /// It tells what it does, or what one of its sub-agents does.
    Update { sub_agent: Option<String>, update: Box<SessionUpdate> },
    /// It wants something of us.
    Request(Box<AgentRequest>),
    /// The prompt is over.
    Ended(Result<Value, String>),
    /// The process is gone.
    Lost,
}

/// A session on a process.
pub(super) struct ExternalSession {
    /// The agent's own id of it.
    pub(super) id: String,
    slot: SessionSlot,
    sender: mpsc::Sender<(Inbound, usize)>,
    receiver: tokio::sync::Mutex<mpsc::Receiver<(Inbound, usize)>>,
    bytes: AtomicUsize,
    overflowed: AtomicBool,
    /// Whether the agent works on a prompt.
    working: watch::Sender<bool>,
    /// Whether it was told to stop.
    cancel_sent: AtomicBool,
    queued_requests: AtomicUsize,
    pub(super) state: Mutex<PromptState>,
    pub(super) terminals: Terminals,
}

/// What is remembered of a session between the replies of one prompt.
#[derive(Default)]
pub(super) struct PromptState {
    /// Whether a prompt was sent whose end nobody has heard.
    pub(super) prompted: bool,
    /// How many messages of the caller it was given.
    pub(super) delivered: usize,
    /// What it said since the prompt, as far as it is kept.
    pub(super) reply_text: String,
    /// The message that its last words belong to.
    pub(super) message_id: Option<MessageId>,
    /// The permissions that it was denied since the prompt.
    pub(super) denied: Denied,
    /// What it asked and nobody has answered, by the name of the call that stands for it.
    pub(super) open_requests: BTreeMap<String, AgentRequest>,
    /// What it told of its own tool calls.
    pub(super) calls: KnownCalls,
    /// What it told of its sub-agents.
    pub(super) sub_agents: SubAgents,
    /// The folder that it works in.
    pub(super) root: PathBuf,
    /// The number of the last question.
    pub(super) last_request: u64,
    /// What it has reported so far.
    pub(super) reported: ReportedUsage,
    /// What of that was passed on.
    pub(super) passed_on: ReportedUsage,
    /// Taken out of the inbox and put back.
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

    /// Takes what came. What nobody can keep up with makes the session fail.
    pub(super) fn take(&self, inbound: Inbound, bytes: usize) {
        match inbound {
            Inbound::Ended(_) | Inbound::Lost => {
                self.working.send_replace(false);
            }
            // Between prompts there is nobody to hear it.
            Inbound::Update { .. } if !*self.working.borrow() => return,
            Inbound::Update { .. } | Inbound::Request(_) => {}
        }
        let bytes_now = self.bytes.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
        if bytes_now > MAX_QUEUED_BYTES || self.sender.try_send((inbound, bytes)).is_err() {
            self.overflowed.store(true, Ordering::SeqCst);
        }
    }

    /// The next thing that came, or why there is none.
    pub(super) async fn next(&self) -> Result<Inbound, String> {
        if let Some(put_back) = lock(&self.state).put_back.take() {
            return Ok(put_back);
        }
        if self.overflowed.load(Ordering::SeqCst) {
            return Err("it sent more than anybody can keep up with".to_owned());
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
            // This session holds a sender.
            None => Ok(Inbound::Lost),
        }
    }

    /// The next thing, if it is there.
    pub(super) fn try_next(&self) -> Option<Inbound> {
        let mut receiver = self.receiver.try_lock().ok()?;
        let (inbound, bytes) = receiver.try_recv().ok()?;
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if let Inbound::Request(_) = inbound {
            self.queued_requests.fetch_sub(1, Ordering::SeqCst);
        }
        Some(inbound)
    }

    /// A request of the agent: terminals answer for themselves, all else is for the driver to decide.
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
                Err(cause) => self.connection().refuse(&id, INVALID_PARAMS, &cause),
            };
        }
        let request = match AgentRequest::parse(method, id.clone(), params, sub_agent) {
            None => return self.connection().refuse(&id, METHOD_NOT_FOUND, "there is no such method"),
            Some(Err(cause)) => return self.connection().refuse(&id, INVALID_PARAMS, &cause),
            Some(Ok(request)) => request,
        };
        if !*self.working.borrow() {
            return request.refuse(self.connection(), "there is no prompt under way");
        }
        let open_requests =
            self.queued_requests.load(Ordering::SeqCst) + lock(&self.state).open_requests.len();
        if open_requests >= MAX_OPEN_REQUESTS {
            return self.connection().refuse(
                &id,
                REFUSED,
                "too many requests at once; wait for answers first",
            );
        }
        self.queued_requests.fetch_add(1, Ordering::SeqCst);
        self.take(Inbound::Request(Box::new(request)), bytes);
    }

    /// Sends a prompt.
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

    /// Tells the agent to stop, and answers what it asked.
    pub(super) fn cancel(&self) {
        if *self.working.borrow() && !self.cancel_sent.swap(true, Ordering::SeqCst) {
            self.connection().notify("session/cancel", &CancelNotification::new(self.id.clone()));
        }
        let open_requests = std::mem::take(&mut lock(&self.state).open_requests);
        for request in open_requests.into_values() {
            request.cancel(self.connection());
        }
    }

    /// Ends the session: what runs for it is ended, and the agent is told. Where it does not stop, its process takes
    /// no more sessions.
    pub(super) fn close(self: Arc<ExternalSession>) -> impl Future<Output = ()> + Send + 'static {
        self.terminals.end();
        // Whoever opens a session in the meantime does better not to rely on this process.
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
