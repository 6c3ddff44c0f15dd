//! A session on a process: what it said and nobody has heard yet, and what it asked and nobody has answered yet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::v1::schema::{CancelNotification, CloseSessionRequest, MessageId, SessionUpdate};
use brigade::external::Reported;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::ask::Question;
use super::calls::Calls;
use super::denied::Denied;
use super::lock;
use super::peer::{BAD_ARGUMENTS, Link, NO_METHOD, PlaceOn, REFUSED, Suspicion};
use super::subagents::SubAgents;
use super::terminal::Terminals;

/// How many things may be unheard, and how many bytes of them.
const MOST_UNHEARD: usize = 16_384;
const MOST_UNHEARD_BYTES: usize = 16 << 20;
/// How many questions may be open.
const MOST_QUESTIONS: usize = 64;
/// How long an agent may take to end a prompt that was cancelled.
const CANCEL_TIME: Duration = Duration::from_secs(3);
/// How long it may take to close a session.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// What comes from the process.
pub(super) enum Inbound {
    /// It tells what it does, or what one of its sub-agents does.
    Update { sub_agent: Option<String>, update: Box<SessionUpdate> },
    /// It wants something of us.
    Question(Box<Question>),
    /// The prompt is over.
    Ended(Result<Value, String>),
    /// The process is gone.
    Lost,
}

/// A session on a process.
pub(super) struct Session {
    /// The agent's own id of it.
    pub(super) id: String,
    place: PlaceOn,
    unheard: mpsc::Sender<(Inbound, usize)>,
    inbox: tokio::sync::Mutex<mpsc::Receiver<(Inbound, usize)>>,
    bytes: AtomicUsize,
    flooded: AtomicBool,
    /// Whether the agent works on a prompt.
    works: watch::Sender<bool>,
    /// Whether it was told to stop.
    told_to_stop: AtomicBool,
    questions: AtomicUsize,
    pub(super) notes: Mutex<Notes>,
    pub(super) terminals: Terminals,
}

/// What is remembered of a session between the replies of one prompt.
#[derive(Default)]
pub(super) struct Notes {
    /// Whether a prompt was sent whose end nobody has heard.
    pub(super) prompted: bool,
    /// How many messages of the caller it was given.
    pub(super) delivered: usize,
    /// What it said since the prompt, as far as it is kept.
    pub(super) said: String,
    /// The message that its last words belong to.
    pub(super) message: Option<MessageId>,
    /// The permissions that it was denied since the prompt.
    pub(super) denied: Denied,
    /// What it asked and nobody has answered, by the name of the call that stands for it.
    pub(super) open: BTreeMap<String, Question>,
    /// What it told of its own tool calls.
    pub(super) calls: Calls,
    /// What it told of its sub-agents.
    pub(super) sub_agents: SubAgents,
    /// The folder that it works in.
    pub(super) root: PathBuf,
    /// The number of the last question.
    pub(super) asked: u64,
    /// What it has reported so far.
    pub(super) reported: Reported,
    /// What of that was passed on.
    pub(super) passed_on: Reported,
    /// Taken out of the inbox and put back.
    pub(super) held: Option<Inbound>,
}

impl Session {
    pub(super) fn new(id: String, place: PlaceOn, root: PathBuf) -> Arc<Session> {
        let (unheard, inbox) = mpsc::channel(MOST_UNHEARD);
        Arc::new(Session {
            id,
            place,
            unheard,
            inbox: tokio::sync::Mutex::new(inbox),
            bytes: AtomicUsize::new(0),
            flooded: AtomicBool::new(false),
            works: watch::Sender::new(false),
            told_to_stop: AtomicBool::new(false),
            questions: AtomicUsize::new(0),
            notes: Mutex::new(Notes { root, ..Notes::default() }),
            terminals: Terminals::default(),
        })
    }

    pub(super) fn link(&self) -> &Link {
        &self.place.peer.link
    }

    /// Takes what came. What nobody can keep up with makes the session fail.
    pub(super) fn take(&self, inbound: Inbound, bytes: usize) {
        match inbound {
            Inbound::Ended(_) | Inbound::Lost => {
                self.works.send_replace(false);
            }
            // Between prompts there is nobody to hear it.
            Inbound::Update { .. } if !*self.works.borrow() => return,
            Inbound::Update { .. } | Inbound::Question(_) => {}
        }
        let bytes_now = self.bytes.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
        if bytes_now > MOST_UNHEARD_BYTES || self.unheard.try_send((inbound, bytes)).is_err() {
            self.flooded.store(true, Ordering::SeqCst);
        }
    }

    /// The next thing that came, or why there is none.
    pub(super) async fn next(&self) -> Result<Inbound, String> {
        if let Some(held) = lock(&self.notes).held.take() {
            return Ok(held);
        }
        if self.flooded.load(Ordering::SeqCst) {
            return Err("it sent more than anybody can keep up with".to_owned());
        }
        let mut inbox = self.inbox.lock().await;
        match inbox.recv().await {
            Some((inbound, bytes)) => {
                self.bytes.fetch_sub(bytes, Ordering::SeqCst);
                if let Inbound::Question(_) = inbound {
                    self.questions.fetch_sub(1, Ordering::SeqCst);
                }
                Ok(inbound)
            }
            // This session holds a sender.
            None => Ok(Inbound::Lost),
        }
    }

    /// The next thing, if it is there.
    pub(super) fn try_next(&self) -> Option<Inbound> {
        let mut inbox = self.inbox.try_lock().ok()?;
        let (inbound, bytes) = inbox.try_recv().ok()?;
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if let Inbound::Question(_) = inbound {
            self.questions.fetch_sub(1, Ordering::SeqCst);
        }
        Some(inbound)
    }

    /// A request of the agent: terminals answer for themselves, all else is for the driver to decide.
    pub(super) fn asked(
        self: &Arc<Session>,
        method: &str,
        id: Value,
        params: Value,
        sub_agent: Option<String>,
        bytes: usize,
    ) {
        if let Some(answer) = self.terminals.asked(self, method, &id, &params) {
            return match answer {
                Ok(Some(answer)) => self.link().answer(&id, &answer),
                Ok(None) => {}
                Err(cause) => self.link().refuse(&id, BAD_ARGUMENTS, &cause),
            };
        }
        let question = match Question::read(method, id.clone(), params, sub_agent) {
            None => return self.link().refuse(&id, NO_METHOD, "there is no such method"),
            Some(Err(cause)) => return self.link().refuse(&id, BAD_ARGUMENTS, &cause),
            Some(Ok(question)) => question,
        };
        if !*self.works.borrow() {
            return question.refuse(self.link(), "there is no prompt under way");
        }
        let open = self.questions.load(Ordering::SeqCst) + lock(&self.notes).open.len();
        if open >= MOST_QUESTIONS {
            return self.link().refuse(&id, REFUSED, "too many requests at once; wait for answers first");
        }
        self.questions.fetch_add(1, Ordering::SeqCst);
        self.take(Inbound::Question(Box::new(question)), bytes);
    }

    /// Sends a prompt.
    pub(super) fn prompt(self: &Arc<Session>, params: &impl serde::Serialize) {
        {
            let mut notes = lock(&self.notes);
            notes.prompted = true;
            notes.said.clear();
            notes.message = None;
            notes.denied = Denied::default();
        }
        self.told_to_stop.store(false, Ordering::SeqCst);
        self.works.send_replace(true);
        self.link().prompt(self, params);
    }

    /// Tells the agent to stop, and answers what it asked.
    pub(super) fn cancel(&self) {
        if *self.works.borrow() && !self.told_to_stop.swap(true, Ordering::SeqCst) {
            self.link().notify("session/cancel", &CancelNotification::new(self.id.clone()));
        }
        let open = std::mem::take(&mut lock(&self.notes).open);
        for question in open.into_values() {
            question.cancel(self.link());
        }
    }

    /// Ends the session: what runs for it is ended, and the agent is told. Where it does not stop, its process takes
    /// no more sessions.
    pub(super) fn close(self: Arc<Session>) -> impl Future<Output = ()> + Send + 'static {
        self.terminals.end();
        // Whoever opens a session in the meantime does better not to rely on this process.
        let suspicion = self.works.borrow().then(|| self.place.peer.suspect());
        self.cancel();
        self.stop(suspicion)
    }

    async fn stop(self: Arc<Session>, suspicion: Option<Suspicion>) {
        let mut works = self.works.subscribe();
        let stopped = tokio::time::timeout(CANCEL_TIME, works.wait_for(|works| !works)).await.is_ok();
        if !stopped {
            self.place.peer.spoil();
        }
        drop(suspicion);
        if stopped && self.place.peer.closes && self.place.peer.is_usable() {
            let request = CloseSessionRequest::new(self.id.clone());
            let _ = tokio::time::timeout(CLOSE_TIME, self.link().request("session/close", &request)).await;
        }
        self.link().leave(&self);
    }
}
