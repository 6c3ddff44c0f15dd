//! From what happens in a tree to what a client is told.

mod children;

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use acp::{SessionNotification, SessionUpdate};
use agent_client_protocol::v1::schema as acp;
use brigade::store::Pos;
use brigade::{Live, Store, StoreError};
use brigade_core::event::Speaker;
use brigade_core::message::Stop;
use brigade_core::view::Tree;
use brigade_core::{CallId, Event, Record, Reply, SessionId, Spent};

use super::calls::{self, Call};

/// How a client learns of sessions below its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Children {
    /// As sessions of their own: the client knows the protocol's extension for sub-agents.
    Sessions,
    /// As tool calls among those of the session at the top.
    Calls,
}

/// Whether something happens now, or did so before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// The client has just said what it said.
    Now,
    /// It is told again, with what the person said.
    Before,
}

/// Tells a client what happens.
pub(super) struct Narrator {
    root: SessionId,
    workspace: PathBuf,
    children: Children,
    when: When,
    /// What is known of the tree.
    pub(super) tree: Tree,
    /// Why the model of the session at the top stopped last.
    pub(super) last_stop: Stop,
    /// How much the model of the session at the top can read.
    window: Option<u64>,
    seen: HashMap<SessionId, u64>,
    /// Position up to which all facts of the tree were recalled.
    until: Pos,
    /// Usage of the rounds of the root session.
    pub(super) spent: Spent,
    streamed: HashMap<SessionId, Streamed>,
    calls: HashMap<SessionId, HashMap<CallId, Call>>,
    /// The latest doings of the children of a call, by the id of the call.
    doings: HashMap<acp::ToolCallId, VecDeque<String>>,
    told: Vec<SessionNotification>,
}

/// What of a reply was told before it was whole.
#[derive(Default)]
struct Streamed {
    turn: u32,
    attempt: u32,
    text: String,
}

impl Narrator {
    pub(super) fn new(root: SessionId, workspace: PathBuf, children: Children, when: When) -> Narrator {
        Narrator {
            root,
            workspace,
            children,
            when,
            tree: Tree::default(),
            last_stop: Stop::End,
            window: None,
            seen: HashMap::new(),
            until: 0,
            spent: Spent::default(),
            streamed: HashMap::new(),
            calls: HashMap::new(),
            doings: HashMap::new(),
            told: Vec::new(),
        }
    }

    /// How much the model can read, so that the client learns how full that is.
    pub(super) fn with_window(self, window: Option<u64>) -> Narrator {
        Narrator { window, ..self }
    }

    /// Takes note of what the client knows already, as far as it was not noted in an earlier round.
    pub(super) async fn recall(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let records = store.tail(&self.root, self.until, usize::MAX).await?;
        for record in &records {
            self.until = record.pos;
            if record.seq >= self.seen.get(&record.session).copied().unwrap_or(0) {
                self.fact(record);
            }
        }
        self.told.clear();
        Ok(())
    }

    /// What is to be told of this. Facts that were missed are read from the store, so that each is told once.
    pub(super) async fn see(&mut self, live: Live, store: &dyn Store) -> Vec<SessionNotification> {
        match live {
            Live::Fact(record) => {
                let next = self.seen.get(&record.session).copied().unwrap_or(0);
                if record.seq > next {
                    // What cannot be read shows when the round ends.
                    let missed = store.read(&record.session, next).await.unwrap_or_default();
                    for missed in missed.iter().filter(|missed| missed.seq < record.seq) {
                        self.fact(missed);
                    }
                }
                if record.seq >= next {
                    self.fact(&record);
                }
            }
            Live::Delta { session, turn, text } => self.delta(&session, turn, &text),
            Live::Discarded { session, turn } => self.discard(&session, turn),
            Live::Waiting { .. } => {}
        }
        std::mem::take(&mut self.told)
    }

    /// What is to be told of facts, in order.
    pub(super) fn tell(&mut self, records: &[Record]) -> Vec<SessionNotification> {
        for record in records {
            self.fact(record);
        }
        std::mem::take(&mut self.told)
    }

    /// Facts that nobody told of while they happened.
    pub(super) async fn rest(&mut self, store: &dyn Store) -> Vec<SessionNotification> {
        let seen = self.seen.get(&self.root).copied().unwrap_or(0);
        let records = store.read(&self.root, seen).await.unwrap_or_default();
        self.tell(&records)
    }

    /// What a session is called.
    pub(super) fn label(&self, session: &SessionId) -> String {
        self.tree.node(session).map_or_else(|| session.to_string(), |node| calls::brief(&node.label))
    }

    /// A call as a client is asked about it.
    pub(super) fn call(&self, session: &SessionId, call: CallId) -> Option<&Call> {
        self.calls.get(session).and_then(|calls| calls.get(&call))
    }

    /// Where the calls and words of a session are told: in it, where the client knows of it, else at the top.
    pub(super) fn place(&self, session: &SessionId) -> SessionId {
        match self.children {
            Children::Sessions => session.clone(),
            Children::Calls => self.root.clone(),
        }
    }

    /// The title of a call, with who makes it where that is not plain.
    pub(super) fn title(&self, session: &SessionId, call: &Call) -> String {
        if self.place(session) == *session {
            call.title()
        } else {
            format!("[{}] {}", self.label(session), call.title())
        }
    }

    fn push(&mut self, session: &SessionId, update: SessionUpdate) {
        let place = self.place(session);
        self.told.push(SessionNotification::new(place.as_str().to_owned(), update));
    }

    fn fact(&mut self, record: &Record) {
        let session = &record.session;
        self.tree.apply(record);
        self.seen.insert(session.clone(), record.seq + 1);
        match &record.event {
            Event::Started { delegation, .. } => self.started(session, delegation),
            Event::Heard { from: Speaker::Person, text }
                if *session == self.root && self.when == When::Before =>
            {
                self.said_by_person(text.as_str());
            }
            Event::Replied { turn, reply, spent, .. } => self.replied(session, *turn, reply, spent),
            Event::ToolStarted { call, before, .. } => {
                if let Some(call) = self.calls.get_mut(session).and_then(|calls| calls.get_mut(call)) {
                    call.starts(*before);
                }
                self.in_progress(session, *call);
            }
            Event::ToolEnded { call, output, .. } => self.tool_ended(session, *call, output),
            Event::Delegated { call, child, delegation, .. } => {
                self.delegated(session, *call, child, delegation)
            }
            Event::Returned { child, outcome, spent, .. } => self.returned(session, child, outcome, spent),
            Event::Said { text, .. } => self.said(session, text.as_str()),
            Event::Ended { outcome, spent } => {
                if *session == self.root {
                    self.spent = self.spent.plus(*spent);
                }
                self.ended(session, outcome);
            }
            Event::Heard { .. }
            | Event::Resumed { .. }
            | Event::Called { .. }
            | Event::CallFailed { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::LimitReached { .. }
            | Event::Compacted { .. }
            | Event::CancelAsked { .. } => {}
        }
    }

    fn said_by_person(&mut self, text: &str) {
        let root = self.root.clone();
        self.push(&root, SessionUpdate::UserMessageChunk(chunk(text)));
    }

    /// More of a reply that is not whole yet. Children speak for themselves only where the client knows them.
    fn delta(&mut self, session: &SessionId, turn: u32, text: &str) {
        if self.place(session) != *session {
            return;
        }
        let streamed = self.streamed.entry(session.clone()).or_default();
        if streamed.turn != turn {
            *streamed = Streamed { turn, ..Streamed::default() };
        }
        streamed.text.push_str(text);
        let id = message_id(session, streamed);
        self.push(session, SessionUpdate::AgentMessageChunk(chunk(text).message_id(id)));
    }

    /// What was told of a reply came to nothing. It cannot be taken back, so that is said.
    fn discard(&mut self, session: &SessionId, turn: u32) {
        let Some(streamed) = self.streamed.get_mut(session) else { return };
        if streamed.turn != turn || streamed.text.is_empty() {
            return;
        }
        let id = message_id(session, streamed);
        streamed.attempt += 1;
        streamed.text.clear();
        let words = "\n\n(The model was cut off and is asked again.)\n\n";
        self.push(session, SessionUpdate::AgentMessageChunk(chunk(words).message_id(id)));
    }

    fn replied(&mut self, session: &SessionId, turn: u32, reply: &Reply, spent: &Spent) {
        if *session == self.root {
            self.last_stop = reply.stop;
        }
        if self.place(session) == *session {
            self.rest_of_reply(session, turn, reply.text.as_str());
        } else if !reply.text.is_empty() {
            self.child_did(session, &calls::brief(reply.text.as_str()));
        }
        let mut calls = HashMap::new();
        for (index, call) in (0..).zip(&reply.calls) {
            let (id, mut call) = (CallId { turn, index }, Call::new(call));
            if self.when == When::Now {
                call.look(&self.workspace);
            }
            let shown = self.shown(session, id, &call);
            self.push(session, SessionUpdate::ToolCall(shown));
            calls.insert(id, call);
        }
        self.calls.insert(session.clone(), calls);
        self.count(session, spent);
    }

    /// What of a reply was not told while it was written.
    fn rest_of_reply(&mut self, session: &SessionId, turn: u32, text: &str) {
        let streamed =
            self.streamed.remove(session).filter(|streamed| streamed.turn == turn).unwrap_or_default();
        let streamed = Streamed { turn, ..streamed };
        let rest = text.strip_prefix(streamed.text.as_str()).unwrap_or_default();
        if !rest.is_empty() {
            let id = message_id(session, &streamed);
            self.push(session, SessionUpdate::AgentMessageChunk(chunk(rest).message_id(id)));
        }
    }

    /// How full the model's window is.
    fn count(&mut self, session: &SessionId, spent: &Spent) {
        let Some(window) = self.window.filter(|_| *session == self.root) else { return };
        let mut usage = acp::UsageUpdate::new(spent.usage.total(), window);
        let usd = self.tree.spent(&self.root).usd;
        if usd > 0 {
            usage = usage.cost(acp::Cost::new(usd as f64 / 1e9, "USD"));
        }
        self.push(session, SessionUpdate::UsageUpdate(usage));
    }

    /// A call as the client first sees it.
    pub(super) fn shown(&self, session: &SessionId, id: CallId, call: &Call) -> acp::ToolCall {
        acp::ToolCall::new(calls::id(session, id), self.title(session, call))
            .name(call.name.clone())
            .kind(call.kind())
            .content(call.diff(&self.workspace).into_iter().collect())
            .locations(call.locations(&self.workspace))
            .raw_input(call.arguments.clone())
    }

    fn in_progress(&mut self, session: &SessionId, call: CallId) {
        let fields = acp::ToolCallUpdateFields::new().status(acp::ToolCallStatus::InProgress);
        self.change(session, call, fields);
    }

    fn tool_ended(&mut self, session: &SessionId, id: CallId, output: &brigade_core::ToolOutput) {
        let status =
            if output.is_error() { acp::ToolCallStatus::Failed } else { acp::ToolCallStatus::Completed };
        let call = self.calls.get_mut(session).and_then(|calls| calls.remove(&id));
        let content = match &call {
            Some(call) => call.content(output, &self.workspace),
            None => vec![output.text.as_str().into()],
        };
        self.doings.remove(&calls::id(session, id));
        self.change(session, id, acp::ToolCallUpdateFields::new().status(status).content(content));
    }

    fn change(&mut self, session: &SessionId, call: CallId, fields: acp::ToolCallUpdateFields) {
        let update = acp::ToolCallUpdate::new(calls::id(session, call), fields);
        self.push(session, SessionUpdate::ToolCallUpdate(update));
    }

    /// An agent speaks to the person in the middle of its work.
    fn said(&mut self, session: &SessionId, text: &str) {
        let words = if self.place(session) == *session {
            format!("{text}\n\n")
        } else {
            format!("**{}**: {text}\n\n", self.label(session))
        };
        self.push(session, SessionUpdate::AgentMessageChunk(chunk(&words)));
    }
}

/// Words as a part of a message.
pub(super) fn chunk(text: &str) -> acp::ContentChunk {
    acp::ContentChunk::new(text.into())
}

fn message_id(session: &SessionId, streamed: &Streamed) -> acp::MessageId {
    acp::MessageId::new(format!("{session}:{}-{}", streamed.turn, streamed.attempt))
}
