//! A process that speaks the protocol: requests out, requests in, and who waits for what.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest, InitializeResponse,
    SessionUpdate, SubagentCapabilities,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::fate::Fate;
use super::mask::Mask;
use super::session::{Inbound, Session};
use super::subagents::Owners;
use super::{Server, lock, process, short};
use crate::line::{LONGEST, Line, Lines};
use crate::task::{self, AbortOnDrop};

/// How many messages wait to be written, and how many bytes of them.
const OUTBOX: usize = 1024;
const OUTBOX_BYTES: usize = 16 << 20;
/// The longest id of a request.
const LONGEST_ID: usize = 256;
/// How many lines that are no messages are overlooked: programs print words where they should not.
const MOST_NOISE: usize = 1000;
/// How long a process without sessions is kept.
const IDLE: Duration = Duration::from_secs(60);

/// What the protocol answers to a method that is not known, and to arguments that do not fit.
pub(super) const NO_METHOD: i64 = -32601;
pub(super) const BAD_ARGUMENTS: i64 = -32602;
/// What is answered to what was refused or did not work.
pub(super) const REFUSED: i64 = -32000;

/// A process. It ends when nobody holds it any more.
pub(super) struct Peer {
    pub(super) link: Arc<Link>,
    /// Whether sessions can be closed.
    pub(super) closes: bool,
    /// What it calls itself.
    pub(super) title: String,
    /// How many sessions are on it, or about to be.
    used: AtomicUsize,
    /// How often it became idle.
    rests: AtomicUsize,
    /// Whether it takes no more sessions.
    spoilt: AtomicBool,
    /// How many of its sessions were told to stop and have not done so yet.
    suspicions: AtomicUsize,
    _tasks: [AbortOnDrop; 3],
}

/// What the tasks of a process share.
pub(super) struct Link {
    outbox: mpsc::Sender<String>,
    /// How many bytes wait to be written.
    unsent: Arc<AtomicUsize>,
    pub(super) fate: Fate,
    pub(super) mask: Mask,
    book: Mutex<Book>,
    noise: AtomicUsize,
}

/// Who waits for what.
#[derive(Default)]
struct Book {
    next: u64,
    waiting: HashMap<u64, Waiter>,
    sessions: HashMap<String, Weak<Session>>,
    /// Whose sub-agents were told of.
    sub_agents: Owners,
    /// Whether nothing comes any more.
    closed: bool,
}

enum Waiter {
    Answer(oneshot::Sender<Result<Value, String>>),
    Prompt(Weak<Session>),
}

/// A message of the peer.
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

/// An answer of `null` is an answer.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Peer {
    /// Starts the program and greets it. Failure is in words for a person.
    pub(super) async fn start(server: &Server, more: &[String]) -> Result<Arc<Peer>, String> {
        let fate = Fate::open();
        let mask = Mask::of(server);
        let (stream, process) = process::start(server, more, &fate, mask.clone())?;
        let (reader, writer) = stream.into_split();
        let (outbox, unsent) = mpsc::channel(OUTBOX);
        let link = Arc::new(Link {
            outbox,
            unsent: Arc::default(),
            fate,
            mask,
            book: Mutex::default(),
            noise: AtomicUsize::new(0),
        });
        let tasks = [
            process,
            task::spawn(write(link.fate.clone(), writer, unsent, link.unsent.clone())),
            task::spawn(read(link.clone(), reader)),
        ];
        let greeting = greeting();
        let greeted = link.request("initialize", &greeting);
        let answer = match tokio::time::timeout(server.start_time, greeted).await {
            Ok(answer) => answer.map_err(|cause| format!("it did not start: {cause}"))?,
            Err(_) => {
                let time = server.start_time.as_secs();
                return Err(format!("it did not answer within {time} s of its start"));
            }
        };
        let answer: InitializeResponse = serde_json::from_value(answer).map_err(|cause| {
            format!("its greeting cannot be read: {}", link.mask.short(&cause.to_string()))
        })?;
        if answer.protocol_version != ProtocolVersion::V1 {
            return Err(format!("it speaks version {} of the protocol, not 1", answer.protocol_version));
        }
        link.fate.connected();
        let title = answer.agent_info.map(|info| short(&format!("{} {}", info.name, info.version)));
        Ok(Arc::new(Peer {
            link,
            closes: answer.agent_capabilities.session_capabilities.close.is_some(),
            title: title.unwrap_or_default(),
            used: AtomicUsize::new(0),
            rests: AtomicUsize::new(0),
            spoilt: AtomicBool::new(false),
            suspicions: AtomicUsize::new(0),
            _tasks: tasks,
        }))
    }

    /// Whether it is there and does what it is told.
    pub(super) fn is_usable(&self) -> bool {
        !self.spoilt.load(Ordering::SeqCst) && !self.link.is_over()
    }

    /// Whether it may be stuck: then new sessions are better opened elsewhere.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspicions.load(Ordering::SeqCst) > 0
    }

    /// Suspects it for as long as the answer is held.
    pub(super) fn suspect(self: &Arc<Peer>) -> Suspicion {
        self.suspicions.fetch_add(1, Ordering::SeqCst);
        Suspicion { peer: self.clone() }
    }

    /// Takes no more sessions: it did not do what it was told. It ends with the last that it has.
    pub(super) fn spoil(&self) {
        self.spoilt.store(true, Ordering::SeqCst);
    }

    /// A place on it, if there are less than so many taken.
    pub(super) fn take_place(self: &Arc<Peer>, most: usize) -> Option<PlaceOn> {
        let taken = self.used.fetch_add(1, Ordering::SeqCst);
        let place = PlaceOn { peer: self.clone() };
        (taken < most).then_some(place)
    }
}

/// A doubt whether a process still does what it is told.
pub(super) struct Suspicion {
    peer: Arc<Peer>,
}

impl Drop for Suspicion {
    fn drop(&mut self) {
        self.peer.suspicions.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A place of a session on a process.
pub(super) struct PlaceOn {
    pub(super) peer: Arc<Peer>,
}

impl Drop for PlaceOn {
    fn drop(&mut self) {
        let peer = &self.peer;
        if peer.used.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let rest = peer.rests.fetch_add(1, Ordering::SeqCst) + 1;
        if peer.spoilt.load(Ordering::SeqCst) {
            return peer.link.fate.seal("it did not stop when it was told to, so it was ended");
        }
        let idle = Arc::downgrade(peer);
        task::detach(async move {
            tokio::time::sleep(IDLE).await;
            if let Some(peer) = idle.upgrade()
                && peer.used.load(Ordering::SeqCst) == 0
                && peer.rests.load(Ordering::SeqCst) == rest
            {
                peer.spoil();
                peer.link.fate.seal("it was not needed any more");
            }
        });
    }
}

fn greeting() -> InitializeRequest {
    let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
    InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(
            ClientCapabilities::new().fs(files).terminal(true).subagents(SubagentCapabilities::new()),
        )
        .client_info(Implementation::new("brigade", env!("CARGO_PKG_VERSION")))
}

impl Link {
    /// Asks, and waits for the answer. Failure is in words for a person.
    pub(super) async fn request(&self, method: &str, params: &impl Serialize) -> Result<Value, String> {
        let (sender, answer) = oneshot::channel();
        let id = self.expect(Waiter::Answer(sender));
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.fate.last_words().await),
        }
    }

    /// Asks for an answer that the session itself takes.
    pub(super) fn prompt(&self, session: &Arc<Session>, params: &impl Serialize) {
        let id = self.expect(Waiter::Prompt(Arc::downgrade(session)));
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params }));
        if self.is_over() {
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

    fn expect(&self, waiter: Waiter) -> u64 {
        let mut book = lock(&self.book);
        let id = book.next;
        book.next += 1;
        // Where nothing comes any more, whoever waits is told so at once.
        if !book.closed {
            book.waiting.insert(id, waiter);
        }
        id
    }

    fn send(&self, message: &Value) {
        self.fate.message_sent();
        let mut line = message.to_string();
        line.push('\n');
        let bytes = line.len();
        let before = self.unsent.fetch_add(bytes, Ordering::SeqCst);
        // One message may be longer, if nothing else waits.
        let is_too_much = before > 0 && before.saturating_add(bytes) > OUTBOX_BYTES;
        if is_too_much || matches!(self.outbox.try_send(line), Err(mpsc::error::TrySendError::Full(_))) {
            self.unsent.fetch_sub(bytes, Ordering::SeqCst);
            self.fate.seal("it does not read what it is sent, so it was ended");
        }
    }

    /// Whether nothing comes any more, or it is to end.
    fn is_over(&self) -> bool {
        self.fate.is_sealed() || lock(&self.book).closed
    }

    pub(super) fn enter(&self, session: &Arc<Session>) {
        lock(&self.book).sessions.insert(session.id.clone(), Arc::downgrade(session));
    }

    pub(super) fn leave(&self, session: &Arc<Session>) {
        let mut book = lock(&self.book);
        book.sessions.remove(&session.id);
        book.sub_agents.leave(session);
    }

    /// The session that a message is about, and the sub-agent of it, if it is about one.
    fn session(&self, params: &Value) -> Option<(Arc<Session>, Option<String>)> {
        let id = params.get("sessionId").and_then(Value::as_str)?;
        let book = lock(&self.book);
        // A sub-agent cannot take the place of a session.
        if let Some(session) = book.sessions.get(id) {
            return Some((session.upgrade()?, None));
        }
        Some((book.sub_agents.of(id)?, Some(id.to_owned())))
    }

    /// Takes a line. A reason is one to end the process for.
    fn take(&self, line: &[u8]) -> Result<(), String> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        if line.first() != Some(&b'{') {
            let noise = self.noise.fetch_add(1, Ordering::SeqCst) + 1;
            return match noise > MOST_NOISE {
                true => Err(format!(
                    "it printed more than {MOST_NOISE} lines that are no messages, so it was ended"
                )),
                false => Ok(()),
            };
        }
        let message: Message = serde_json::from_slice(line).map_err(|cause| {
            let cause = self.mask.short(&cause.to_string());
            format!("it sent a message that cannot be read ({cause}), so it was ended")
        })?;
        match (message.method, message.id) {
            (Some(_), Some(id)) if !is_id(&id) => {
                return Err(format!(
                    "it asked with an id that is neither a number nor a text of at most {LONGEST_ID} bytes, so it was \
                     ended"
                ));
            }
            (Some(method), Some(id)) => self.asked(&method, id, message.params, line.len()),
            (Some(method), None) => self.told(&method, message.params, line.len()),
            (None, id) => {
                let answer = match (message.result, message.error) {
                    (_, Some(error)) => Err(self.mask.short(&words(&error))),
                    (Some(result), None) => Ok(result),
                    (None, None) => {
                        return Err("it sent a message that says nothing, so it was ended".to_owned());
                    }
                };
                return self.answered(id.as_ref(), answer, line.len());
            }
        }
        Ok(())
    }

    /// An answer that comes twice is overlooked; one to a question that was never asked is not.
    fn answered(
        &self,
        id: Option<&Value>,
        answer: Result<Value, String>,
        bytes: usize,
    ) -> Result<(), String> {
        let waiter = {
            let mut book = lock(&self.book);
            let id = id.and_then(Value::as_u64).filter(|id| *id < book.next);
            let Some(id) = id else {
                return Err("it answered a question that was never asked, so it was ended".to_owned());
            };
            book.waiting.remove(&id)
        };
        match waiter {
            // Whoever asked may have gone.
            Some(Waiter::Answer(sender)) => drop(sender.send(answer)),
            Some(Waiter::Prompt(session)) => {
                if let Some(session) = session.upgrade() {
                    session.take(Inbound::Ended(answer), bytes);
                }
            }
            None => {}
        }
        Ok(())
    }

    fn told(&self, method: &str, mut params: Value, bytes: usize) {
        if method == "session/update"
            && let Some((session, sub_agent)) = self.session(&params)
            && let Some(update) = params.get_mut("update")
        {
            // What this version does not know is overlooked.
            let Ok(update) = serde_json::from_value(update.take()) else { return };
            if let SessionUpdate::SubagentUpdate(announced) = &update {
                lock(&self.book).sub_agents.announce(&session, &announced.session_id.0);
            }
            // Nobody reads the words of a sub-agent, and there are many.
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

    fn asked(&self, method: &str, id: Value, params: Value, bytes: usize) {
        let Some((session, sub_agent)) = self.session(&params) else {
            return match METHODS.contains(&method) {
                true => self.refuse(&id, BAD_ARGUMENTS, "there is no such session"),
                false => self.refuse(&id, NO_METHOD, "there is no such method"),
            };
        };
        session.asked(method, id, params, sub_agent, bytes);
    }

    /// Tells all who wait that there is nothing to wait for.
    fn close(&self) {
        let (waiting, sessions) = {
            let mut book = lock(&self.book);
            book.closed = true;
            book.sub_agents = Owners::default();
            (std::mem::take(&mut book.waiting), std::mem::take(&mut book.sessions))
        };
        drop(waiting);
        for session in sessions.into_values().filter_map(|session| session.upgrade()) {
            session.take(Inbound::Lost, 0);
        }
    }
}

/// What an agent may ask of us.
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

/// Whether this can be answered: what is asked with is sent back.
fn is_id(id: &Value) -> bool {
    match id {
        Value::Number(_) => true,
        Value::String(id) => id.len() <= LONGEST_ID,
        _ => false,
    }
}

/// An error of the peer in words. Details often stand in `data`.
fn words(error: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let message = text(error.get("message")).unwrap_or_else(|| error.to_string());
    let data = error.get("data");
    let details = text(data).or_else(|| text(data.and_then(|data| data.get("details"))));
    match details {
        Some(details) if details != message => format!("{message}: {details}"),
        _ => message,
    }
}

async fn read(link: Arc<Link>, reader: OwnedReadHalf) {
    let mut lines = Lines::new(reader);
    loop {
        match lines.next().await {
            Ok(Some(Line::Whole(line))) => {
                if let Err(reason) = link.take(&line) {
                    link.fate.seal(reason);
                    break;
                }
            }
            Ok(Some(Line::TooLong)) => {
                let most = LONGEST >> 20;
                link.fate.seal(format!("it sent a message of more than {most} MB, so it was ended"));
                break;
            }
            Ok(None) | Err(_) => break,
        }
    }
    link.close();
    // A program that only closed its output is of no use to anybody.
    link.fate.seal(link.fate.last_words().await);
}

async fn write(
    fate: Fate,
    mut writer: OwnedWriteHalf,
    mut lines: mpsc::Receiver<String>,
    unsent: Arc<AtomicUsize>,
) {
    while let Some(line) = lines.recv().await {
        if writer.write_all(line.as_bytes()).await.is_err() {
            // The reader finds out why.
            return fate.sealed().await;
        }
        unsent.fetch_sub(line.len(), Ordering::SeqCst);
    }
}
