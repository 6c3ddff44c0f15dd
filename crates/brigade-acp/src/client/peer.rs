//! Connection to an agent process: requests in both directions and pending responses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest, InitializeResponse,
    SessionUpdate, SubagentCapabilities,
};
use brigade::external::ExternalError;
use brigade::process::{BoundedLine, BoundedLines, CloseReason, Redactor};
use brigade::sandbox::ServerSandbox;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use super::session::{ExternalSession, Inbound};
use super::subagents::Owners;
use super::{AgentServer, lock, process, sanitize};
use crate::MAX_LINE_BYTES;
use crate::task::{self, AbortOnDrop};

/// Maximum number of queued outgoing messages, and their maximum total size.
const MAX_QUEUED_MESSAGES: usize = 1024;
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Maximum length of a request id.
const MAX_ID_BYTES: usize = 256;
/// Maximum number of lines that are not messages. Some programs print log lines to standard output.
const MAX_STRAY_LINES: usize = 1000;
/// Time after which a process without sessions is terminated.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// JSON-RPC error codes.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
/// Error code for refused or failed requests.
pub(super) const REFUSED: i64 = -32000;

/// A running agent process. It ends when the last reference is dropped.
pub(super) struct Peer {
    pub(super) connection: Arc<AgentConnection>,
    /// Whether it supports `session/close`.
    pub(super) can_close_sessions: bool,
    /// Its reported name and version.
    pub(super) title: String,
    /// Number of sessions on it, including those being opened.
    session_count: AtomicUsize,
    /// Number of times that it became idle.
    idle_generation: AtomicUsize,
    /// Whether it accepts no new sessions.
    retired: AtomicBool,
    /// Number of its sessions that were cancelled and have not stopped yet.
    unresponsive_count: AtomicUsize,
    _tasks: [AbortOnDrop; 3],
}

/// State that the tasks of a process share.
pub(super) struct AgentConnection {
    outbox: mpsc::Sender<String>,
    /// Number of queued bytes.
    unsent: Arc<AtomicUsize>,
    pub(super) close_reason: CloseReason,
    pub(super) redactor: Redactor,
    state: Mutex<ConnectionState>,
    stray_lines: AtomicUsize,
}

/// Pending requests and open sessions.
#[derive(Default)]
struct ConnectionState {
    next: u64,
    pending: HashMap<u64, Pending>,
    sessions: HashMap<String, Weak<ExternalSession>>,
    /// Sessions that the announced sub-agents belong to.
    sub_agents: Owners,
    /// Whether the process has closed its output.
    closed: bool,
}

enum Pending {
    Response(oneshot::Sender<Result<Value, ExternalError>>),
    Prompt(Weak<ExternalSession>),
}

/// A message from the process.
#[derive(Deserialize)]
struct Message {
    id: Option<Value>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<Value>,
}

/// Keeps an explicit `null` result distinct from a missing one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Peer {
    /// Starts the program in this sandbox and initializes the connection.
    pub(super) async fn start(
        server: &AgentServer,
        sandbox: &ServerSandbox,
        extra_arguments: &[String],
    ) -> Result<Arc<Peer>, ExternalError> {
        let close_reason = CloseReason::default();
        let redactor = process::redactor(server);
        let (stream, process) =
            process::start(server, sandbox, extra_arguments, &close_reason, redactor.clone()).await?;
        let (reader, writer) = stream.into_split();
        let (outbox, unsent) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let connection = Arc::new(AgentConnection {
            outbox,
            unsent: Arc::default(),
            close_reason,
            redactor,
            state: Mutex::default(),
            stray_lines: AtomicUsize::new(0),
        });
        let tasks = [
            process,
            task::spawn(write(connection.close_reason.clone(), writer, unsent, connection.unsent.clone())),
            task::spawn(read(connection.clone(), reader)),
        ];
        let params_sent = initialize_request();
        let initialized = connection.request("initialize", &params_sent);
        let cannot = |cause: String| ExternalError::Start(format!("cannot initialize the agent: {cause}"));
        let answer = match tokio::time::timeout(server.start_timeout, initialized).await {
            Ok(answer) => answer.map_err(|cause| cannot(cause.to_string()))?,
            Err(_) => {
                return Err(cannot(format!("no response within {} s", server.start_timeout.as_secs())));
            }
        };
        let answer: InitializeResponse = serde_json::from_value(answer).map_err(|cause| {
            let cause = connection.redactor.sanitize(&cause.to_string());
            ExternalError::Protocol(format!("invalid response to `initialize`: {cause}"))
        })?;
        if answer.protocol_version != ProtocolVersion::V1 {
            return Err(ExternalError::Protocol(format!(
                "unsupported ACP version {}. Only version 1 is supported.",
                answer.protocol_version
            )));
        }
        connection.close_reason.connected();
        debug!(target: "brigade::acp", server = server.name, "handshake complete");
        let title = answer.agent_info.map(|info| sanitize(&format!("{} {}", info.name, info.version)));
        Ok(Arc::new(Peer {
            connection,
            can_close_sessions: answer.agent_capabilities.session_capabilities.close.is_some(),
            title: title.unwrap_or_default(),
            session_count: AtomicUsize::new(0),
            idle_generation: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            unresponsive_count: AtomicUsize::new(0),
            _tasks: tasks,
        }))
    }

    /// Whether the process is running and accepts sessions.
    pub(super) fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::SeqCst) && !self.connection.is_closed()
    }

    /// Whether the process may hang, so that new sessions should use another one.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.unresponsive_count.load(Ordering::SeqCst) > 0
    }

    /// Marks the process as unresponsive until the returned guard is dropped.
    pub(super) fn mark_unresponsive(self: &Arc<Peer>) -> UnresponsiveGuard {
        self.unresponsive_count.fetch_add(1, Ordering::SeqCst);
        UnresponsiveGuard { peer: self.clone() }
    }

    /// Stops accepting sessions, because the process ignored a cancel. It ends with its last session.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    /// Takes a session slot, if fewer than `limit` are taken.
    pub(super) fn take_slot(self: &Arc<Peer>, limit: usize) -> Option<SessionSlot> {
        let taken = self.session_count.fetch_add(1, Ordering::SeqCst);
        let slot = SessionSlot { peer: self.clone() };
        (taken < limit).then_some(slot)
    }
}

/// Marks a process as unresponsive while it is held.
pub(super) struct UnresponsiveGuard {
    peer: Arc<Peer>,
}

impl Drop for UnresponsiveGuard {
    fn drop(&mut self) {
        self.peer.unresponsive_count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A slot for one session on a process.
pub(super) struct SessionSlot {
    pub(super) peer: Arc<Peer>,
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let peer = &self.peer;
        if peer.session_count.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let rest = peer.idle_generation.fetch_add(1, Ordering::SeqCst) + 1;
        if peer.retired.load(Ordering::SeqCst) {
            return peer
                .connection
                .close_reason
                .set("the process was killed because it ignored a cancellation");
        }
        let idle = Arc::downgrade(peer);
        task::detach(async move {
            tokio::time::sleep(IDLE_TIMEOUT).await;
            if let Some(peer) = idle.upgrade()
                && peer.session_count.load(Ordering::SeqCst) == 0
                && peer.idle_generation.load(Ordering::SeqCst) == rest
            {
                peer.retire();
                peer.connection.close_reason.set("the process was killed because it was idle");
            }
        });
    }
}

fn initialize_request() -> InitializeRequest {
    let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
    InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(
            ClientCapabilities::new().fs(files).terminal(true).subagents(SubagentCapabilities::new()),
        )
        .client_info(Implementation::new("brigade", env!("CARGO_PKG_VERSION")))
}

impl AgentConnection {
    /// Sends a request and waits for the response.
    pub(super) async fn request(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Value, ExternalError> {
        let (sender, answer) = oneshot::channel();
        let id = self.register(Pending::Response(sender));
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(ExternalError::Lost(self.lost_reason().await)),
        }
    }

    /// Sends a prompt. Its response goes to the session.
    pub(super) fn prompt(&self, session: &Arc<ExternalSession>, params: &impl Serialize) {
        let id = self.register(Pending::Prompt(Arc::downgrade(session)));
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params }));
        if self.is_closed() {
            session.take(Inbound::Lost, 0);
        }
    }

    pub(super) fn notify(&self, method: &str, params: &impl Serialize) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    pub(super) fn answer(&self, id: &Value, answer: &impl Serialize) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": answer }));
    }

    pub(super) fn refuse(&self, id: &Value, code: i64, message: &str) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }));
    }

    fn register(&self, waiting: Pending) -> u64 {
        let mut state = lock(&self.state);
        let id = state.next;
        state.next += 1;
        // On a closed connection the sender is dropped, so the waiting task is notified at once.
        if !state.closed {
            state.pending.insert(id, waiting);
        }
        id
    }

    fn send(&self, message: &Value) {
        self.close_reason.message_sent();
        let mut line = message.to_string();
        line.push('\n');
        let bytes = line.len();
        let before = self.unsent.fetch_add(bytes, Ordering::SeqCst);
        // A single message may exceed the limit if the queue is empty.
        let is_too_much = before > 0 && before.saturating_add(bytes) > MAX_QUEUED_BYTES;
        if is_too_much || matches!(self.outbox.try_send(line), Err(mpsc::error::TrySendError::Full(_))) {
            self.unsent.fetch_sub(bytes, Ordering::SeqCst);
            self.close_reason.set("the process was killed because it did not read its input");
        }
    }

    /// Returns the reason why the connection is lost. Waits briefly for the exit of the process.
    pub(super) async fn lost_reason(&self) -> String {
        self.close_reason.wait_for_reason("the process closed the connection").await
    }

    /// Whether the process has closed its output or is being terminated.
    fn is_closed(&self) -> bool {
        self.close_reason.reason().is_some() || lock(&self.state).closed
    }

    pub(super) fn add_session(&self, session: &Arc<ExternalSession>) {
        lock(&self.state).sessions.insert(session.id.clone(), Arc::downgrade(session));
    }

    pub(super) fn remove_session(&self, session: &Arc<ExternalSession>) {
        let mut state = lock(&self.state);
        state.sessions.remove(&session.id);
        state.sub_agents.remove_session(session);
    }

    /// The session that a message belongs to, and the sub-agent, if it belongs to one.
    fn session(&self, params: &Value) -> Option<(Arc<ExternalSession>, Option<String>)> {
        let id = params.get("sessionId").and_then(Value::as_str)?;
        let state = lock(&self.state);
        // Session ids take precedence, so a sub-agent cannot impersonate a session.
        if let Some(session) = state.sessions.get(id) {
            return Some((session.upgrade()?, None));
        }
        Some((state.sub_agents.of(id)?, Some(id.to_owned())))
    }

    /// Handles a line. An error is the reason to terminate the process.
    fn take(&self, line: &[u8]) -> Result<(), ExternalError> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        if line.first() != Some(&b'{') {
            let stray_lines = self.stray_lines.fetch_add(1, Ordering::SeqCst) + 1;
            return match stray_lines > MAX_STRAY_LINES {
                true => Err(violation(&format!(
                    "printed more than {MAX_STRAY_LINES} lines to standard output that are not JSON-RPC messages"
                ))),
                false => Ok(()),
            };
        }
        let message: Message = serde_json::from_slice(line).map_err(|cause| {
            let cause = self.redactor.sanitize(&cause.to_string());
            violation(&format!("sent an invalid message: {cause}"))
        })?;
        match (message.method, message.id) {
            (Some(_), Some(id)) if !is_id(&id) => {
                return Err(violation(&format!(
                    "sent a request id that is neither a number nor a string of \
                     at most {MAX_ID_BYTES} bytes"
                )));
            }
            (Some(method), Some(id)) => self.handle_request(&method, id, message.params, line.len()),
            (Some(method), None) => self.handle_notification(&method, message.params, line.len()),
            (None, id) => {
                let answer = match (message.result, message.error) {
                    (_, Some(error)) => {
                        Err(ExternalError::Request(self.redactor.sanitize(&error_text(&error))))
                    }
                    (Some(result), None) => Ok(result),
                    (None, None) => {
                        return Err(violation("sent a message without `method`, `result` or `error`"));
                    }
                };
                return self.handle_response(id.as_ref(), answer, line.len());
            }
        }
        Ok(())
    }

    /// Handles a response. A duplicate response is ignored. A response to an unknown request is an error.
    fn handle_response(
        &self,
        id: Option<&Value>,
        answer: Result<Value, ExternalError>,
        bytes: usize,
    ) -> Result<(), ExternalError> {
        let waiting = {
            let mut state = lock(&self.state);
            let id = id.and_then(Value::as_u64).filter(|id| *id < state.next);
            let Some(id) = id else {
                return Err(violation("responded to an unknown request"));
            };
            state.pending.remove(&id)
        };
        match waiting {
            // The requesting task may have been cancelled.
            Some(Pending::Response(sender)) => drop(sender.send(answer)),
            Some(Pending::Prompt(session)) => {
                if let Some(session) = session.upgrade() {
                    session.take(Inbound::Ended(answer), bytes);
                }
            }
            None => {}
        }
        Ok(())
    }

    fn handle_notification(&self, method: &str, mut params: Value, bytes: usize) {
        if method == "session/update"
            && let Some((session, sub_agent)) = self.session(&params)
            && let Some(update) = params.get_mut("update")
        {
            // Updates that this version does not support are ignored.
            let Ok(update) = serde_json::from_value(update.take()) else { return };
            if let SessionUpdate::SubagentUpdate(announced) = &update {
                lock(&self.state).sub_agents.announce(&session, &announced.session_id.0);
            }
            // The text of sub-agents is not used, and there is a lot of it.
            let is_work = matches!(
                update,
                SessionUpdate::SubagentUpdate(_)
                    | SessionUpdate::ToolCall(_)
                    | SessionUpdate::ToolCallUpdate(_)
            );
            if sub_agent.is_none() || is_work {
                session.take(Inbound::Update { sub_agent, update: Box::new(update) }, bytes);
            }
        }
    }

    fn handle_request(&self, method: &str, id: Value, params: Value, bytes: usize) {
        let Some((session, sub_agent)) = self.session(&params) else {
            return match METHODS.contains(&method) {
                true => self.refuse(&id, INVALID_PARAMS, "unknown session"),
                false => self.refuse(&id, METHOD_NOT_FOUND, "unknown method"),
            };
        };
        session.handle_request(method, id, params, sub_agent, bytes);
    }

    /// Notifies all waiting tasks that the connection is closed.
    fn close(&self) {
        let (pending, sessions) = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.sub_agents = Owners::default();
            (std::mem::take(&mut state.pending), std::mem::take(&mut state.sessions))
        };
        drop(pending);
        for session in sessions.into_values().filter_map(|session| session.upgrade()) {
            session.take(Inbound::Lost, 0);
        }
    }
}

/// Methods that an agent may call.
pub(super) const METHODS: [&str; 8] = [
    "session/request_permission",
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/wait_for_exit",
    "terminal/kill",
    "terminal/release",
];

/// Reason to kill a process that violated the protocol.
fn violation(what: &str) -> ExternalError {
    ExternalError::Protocol(format!("the process was killed because it {what}"))
}

/// Whether this is a valid request id.
fn is_id(id: &Value) -> bool {
    match id {
        Value::Number(_) => true,
        Value::String(id) => id.len() <= MAX_ID_BYTES,
        _ => false,
    }
}

/// Converts a JSON-RPC error to a message. The details are often in `data`.
fn error_text(error: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let message = text(error.get("message")).unwrap_or_else(|| error.to_string());
    let data = error.get("data");
    let details = text(data).or_else(|| text(data.and_then(|data| data.get("details"))));
    match details {
        Some(details) if details != message => format!("{message}: {details}"),
        _ => message,
    }
}

async fn read(connection: Arc<AgentConnection>, reader: OwnedReadHalf) {
    let mut lines = BoundedLines::new(reader, MAX_LINE_BYTES);
    loop {
        match lines.next().await {
            Ok(Some(BoundedLine::Complete(line))) => {
                if let Err(reason) = connection.take(&line) {
                    connection.close_reason.set(reason.to_string());
                    break;
                }
            }
            Ok(Some(BoundedLine::TooLong)) => {
                let limit = MAX_LINE_BYTES >> 20;
                connection.close_reason.set(format!(
                    "the process was killed because it sent a message of more than {limit} MiB"
                ));
                break;
            }
            Ok(None | Some(BoundedLine::Unterminated(_))) | Err(_) => break,
        }
    }
    connection.close();
    // A process that closed its output can no longer be used.
    connection.close_reason.set(connection.lost_reason().await);
}

async fn write(
    close_reason: CloseReason,
    mut writer: OwnedWriteHalf,
    mut lines: mpsc::Receiver<String>,
    unsent: Arc<AtomicUsize>,
) {
    while let Some(line) = lines.recv().await {
        if writer.write_all(line.as_bytes()).await.is_err() {
            // The reader sets the reason.
            return close_reason.closed().await;
        }
        unsent.fetch_sub(line.len(), Ordering::SeqCst);
    }
}
