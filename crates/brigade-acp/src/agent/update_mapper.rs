//! Mapping of events to session updates.

mod children;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use acp::{SessionNotification, SessionUpdate};
use agent_client_protocol_schema::v1 as acp;
use brigade::{Redactor, RunEvent, Settings, Store, StoreError, Toolbox};
use brigade_core::event::Speaker;
use brigade_core::message::Stop;
use brigade_core::view::Tree;
use brigade_core::{CallId, Cursor, Event, Record, Reply, SessionId, Spent};

use super::calls::{self, ToolCallView};

/// Display of sub-agent sessions in a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubagentDisplay {
    /// As separate sessions, for clients that support the sub-agent extension of the protocol.
    Sessions,
    /// As tool calls of the root session.
    ToolCalls,
}

/// Whether events are live or replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replay {
    /// Live: the client already shows the user's messages.
    No,
    /// Replayed: the user's messages are sent, too.
    Yes,
}

/// Maps the events of a tree to session updates for one client.
pub(super) struct UpdateMapper {
    root: SessionId,
    workspace: PathBuf,
    subagent_display: SubagentDisplay,
    replay: Replay,
    /// Tools of the runtime, which describe their calls.
    tools: Toolbox,
    /// The tree as of the last event.
    pub(super) tree: Tree,
    /// Stop reason of the last reply in the root session.
    pub(super) last_stop: Stop,
    /// Context window of the root session's model.
    context_window: Option<u64>,
    /// Position of the last event that was mapped.
    pub(super) mapped_until: Cursor,
    /// Usage of the rounds of the root session.
    pub(super) spent: Spent,
    streamed: HashMap<SessionId, StreamedReply>,
    calls: HashMap<SessionId, HashMap<CallId, ToolCallView>>,
    /// Latest activity of the children of each call.
    child_activity: HashMap<acp::ToolCallId, VecDeque<String>>,
    pending: Vec<SessionNotification>,
    /// Redactor of what clients are sent.
    redactor: Redactor,
}

/// The part of a reply that was sent while it was streamed.
#[derive(Default)]
struct StreamedReply {
    turn: u32,
    attempt: u32,
    text: String,
}

impl UpdateMapper {
    pub(super) fn new(
        root: SessionId,
        settings: &Settings,
        subagent_display: SubagentDisplay,
        replay: Replay,
    ) -> UpdateMapper {
        UpdateMapper {
            root,
            workspace: settings.workspace.root().to_path_buf(),
            subagent_display,
            replay,
            tools: settings.tools.clone(),
            tree: Tree::default(),
            last_stop: Stop::End,
            context_window: None,
            mapped_until: Cursor::START,
            spent: Spent::default(),
            streamed: HashMap::new(),
            calls: HashMap::new(),
            child_activity: HashMap::new(),
            pending: Vec::new(),
            redactor: settings.redactor.clone(),
        }
    }

    /// Sets the context window that usage updates report.
    pub(super) fn with_context_window(self, context_window: Option<u64>) -> UpdateMapper {
        UpdateMapper { context_window, ..self }
    }

    /// Applies events that the client already knows, from the last position that was mapped.
    pub(super) async fn catch_up(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let records = store.tail(&self.root, self.mapped_until, usize::MAX).await?;
        self.map_records(&records);
        Ok(())
    }

    /// Returns the updates for a run event.
    pub(super) fn handle_event(&mut self, live: RunEvent) -> Vec<SessionNotification> {
        match live {
            RunEvent::Record(record) => self.map_record(&record),
            RunEvent::Delta { session, turn, text } => self.delta(&session, turn, &text),
            RunEvent::Discarded { session, turn } => self.discard_streamed(&session, turn),
            RunEvent::Waiting { .. } => {}
        }
        std::mem::take(&mut self.pending)
    }

    /// Returns the updates for these events, in order.
    pub(super) fn map_records(&mut self, records: &[Record]) -> Vec<SessionNotification> {
        for record in records {
            self.map_record(record);
        }
        std::mem::take(&mut self.pending)
    }

    /// The label of a session.
    pub(super) fn label(&self, session: &SessionId) -> String {
        self.tree.node(session).map_or_else(|| session.to_string(), |node| calls::brief(&node.label))
    }

    /// A call that has not ended.
    pub(super) fn call(&self, session: &SessionId, call: CallId) -> Option<&ToolCallView> {
        self.calls.get(session).and_then(|calls| calls.get(&call))
    }

    /// The session to which updates of a session are sent: itself if the client shows sub-agent sessions,
    /// otherwise the root.
    pub(super) fn target_session(&self, session: &SessionId) -> SessionId {
        match self.subagent_display {
            SubagentDisplay::Sessions => session.clone(),
            SubagentDisplay::ToolCalls => self.root.clone(),
        }
    }

    /// The title of a call, with the agent's label if the update is sent to another session.
    pub(super) fn title(&self, session: &SessionId, call: &ToolCallView) -> String {
        if self.target_session(session) == *session {
            call.title.clone()
        } else {
            format!("[{}] {}", self.label(session), call.title)
        }
    }

    fn push(&mut self, session: &SessionId, update: SessionUpdate) {
        let target = self.target_session(session);
        self.pending.push(SessionNotification::new(target.as_str().to_owned(), update));
    }

    fn map_record(&mut self, record: &Record) {
        let session = &record.session;
        let redactor = self.redactor.clone();
        let event = redactor.shown(&record.event);
        if let Cow::Owned(event) = &event {
            self.tree.apply(&Record { event: event.clone(), ..record.clone() });
        } else {
            self.tree.apply(record);
        }
        self.mapped_until = record.pos;
        match &*event {
            Event::Started { delegation, .. } => self.started(session, delegation),
            Event::Heard { from: Speaker::Person, text }
                if *session == self.root && self.replay == Replay::Yes =>
            {
                self.push_user_message(text.as_str());
            }
            Event::Replied { turn, reply, spent, .. } => self.replied(session, *turn, reply, spent),
            Event::ToolStarted { call, before, .. } => {
                if let Some(call) = self.calls.get_mut(session).and_then(|calls| calls.get_mut(call)) {
                    call.check_old_content(*before);
                }
                self.in_progress(session, *call);
            }
            // A client may show the call of a denied request as ended.
            Event::HostAnswered { call, .. } => self.in_progress(session, *call),
            Event::ToolEnded { call, output, .. } => self.tool_ended(session, *call, output),
            Event::Delegated { call, child, delegation, .. } => {
                self.delegated(session, *call, child, delegation)
            }
            Event::Returned { child, outcome, spent, .. } => self.returned(session, child, outcome, spent),
            Event::Said { text, .. } => self.push_said(session, text.as_str()),
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
            | Event::HostAsked { .. }
            | Event::LimitReached { .. }
            | Event::Compacted { .. }
            | Event::CancelAsked { .. } => {}
        }
    }

    fn push_user_message(&mut self, text: &str) {
        let root = self.root.clone();
        self.push(&root, SessionUpdate::UserMessageChunk(chunk(text)));
    }

    /// Sends streamed text. Text of children is sent only to clients that show sub-agent sessions.
    fn delta(&mut self, session: &SessionId, turn: u32, text: &str) {
        if self.target_session(session) != *session {
            return;
        }
        let streamed = self.streamed.entry(session.clone()).or_default();
        if streamed.turn != turn {
            *streamed = StreamedReply { turn, ..StreamedReply::default() };
        }
        streamed.text.push_str(text);
        let id = message_id(session, streamed);
        self.push(session, SessionUpdate::AgentMessageChunk(chunk(text).message_id(id)));
    }

    /// Discards the streamed part of a failed reply. It cannot be withdrawn, so a note is sent.
    fn discard_streamed(&mut self, session: &SessionId, turn: u32) {
        let Some(streamed) = self.streamed.get_mut(session) else { return };
        if streamed.turn != turn || streamed.text.is_empty() {
            return;
        }
        let id = message_id(session, streamed);
        streamed.attempt += 1;
        streamed.text.clear();
        let message = "\n\n(The reply was interrupted. Retrying.)\n\n";
        self.push(session, SessionUpdate::AgentMessageChunk(chunk(message).message_id(id)));
    }

    fn replied(&mut self, session: &SessionId, turn: u32, reply: &Reply, spent: &Spent) {
        if *session == self.root {
            self.last_stop = reply.stop;
        }
        if self.target_session(session) == *session {
            self.push_reply_rest(session, turn, reply.text.as_str());
        } else if !reply.text.is_empty() {
            self.push_child_activity(session, &calls::brief(reply.text.as_str()));
        }
        let mut calls = HashMap::new();
        for (index, call) in (0..).zip(&reply.calls) {
            let (id, mut call) = (CallId { turn, index }, ToolCallView::new(call, &self.tools));
            if self.replay == Replay::No {
                call.read_old_content(&self.workspace);
            }
            let tool_call = self.tool_call(session, id, &call);
            self.push(session, SessionUpdate::ToolCall(tool_call));
            calls.insert(id, call);
        }
        self.calls.insert(session.clone(), calls);
        self.push_usage(session, spent);
    }

    /// Sends the part of a reply that was not streamed.
    fn push_reply_rest(&mut self, session: &SessionId, turn: u32, text: &str) {
        let streamed =
            self.streamed.remove(session).filter(|streamed| streamed.turn == turn).unwrap_or_default();
        let streamed = StreamedReply { turn, ..streamed };
        let rest = text.strip_prefix(streamed.text.as_str()).unwrap_or_default();
        if !rest.is_empty() {
            let id = message_id(session, &streamed);
            self.push(session, SessionUpdate::AgentMessageChunk(chunk(rest).message_id(id)));
        }
    }

    /// Reports the usage of the context window.
    fn push_usage(&mut self, session: &SessionId, spent: &Spent) {
        let Some(context_window) = self.context_window.filter(|_| *session == self.root) else { return };
        let mut usage = acp::UsageUpdate::new(spent.usage.total(), context_window);
        let usd = self.tree.spent(&self.root).usd;
        if usd > 0 {
            usage = usage.cost(acp::Cost::new(usd as f64 / 1e9, "USD"));
        }
        self.push(session, SessionUpdate::UsageUpdate(usage));
    }

    /// The update that announces a call.
    pub(super) fn tool_call(&self, session: &SessionId, id: CallId, call: &ToolCallView) -> acp::ToolCall {
        acp::ToolCall::new(calls::id(session, id), self.title(session, call))
            .name(call.name.clone())
            .kind(call.kind)
            .content(call.diff(&self.workspace).into_iter().collect())
            .locations(call.locations(&self.workspace))
            .raw_input(call.arguments.clone())
    }

    fn in_progress(&mut self, session: &SessionId, call: CallId) {
        let fields = acp::ToolCallUpdateFields::new().status(acp::ToolCallStatus::InProgress);
        self.push_call_update(session, call, fields);
    }

    fn tool_ended(&mut self, session: &SessionId, id: CallId, output: &brigade_core::ToolOutput) {
        let status =
            if output.is_error() { acp::ToolCallStatus::Failed } else { acp::ToolCallStatus::Completed };
        let call = self.calls.get_mut(session).and_then(|calls| calls.remove(&id));
        let content = match &call {
            Some(call) => call.content(output, &self.workspace),
            None => vec![output.text.as_str().into()],
        };
        self.child_activity.remove(&calls::id(session, id));
        self.push_call_update(session, id, acp::ToolCallUpdateFields::new().status(status).content(content));
    }

    fn push_call_update(&mut self, session: &SessionId, call: CallId, fields: acp::ToolCallUpdateFields) {
        let update = acp::ToolCallUpdate::new(calls::id(session, call), fields);
        self.push(session, SessionUpdate::ToolCallUpdate(update));
    }

    /// Sends a message from an agent to the user.
    fn push_said(&mut self, session: &SessionId, text: &str) {
        let message = if self.target_session(session) == *session {
            format!("{text}\n\n")
        } else {
            format!("**{}**: {text}\n\n", self.label(session))
        };
        self.push(session, SessionUpdate::AgentMessageChunk(chunk(&message)));
    }
}

pub(super) fn chunk(text: &str) -> acp::ContentChunk {
    acp::ContentChunk::new(text.into())
}

fn message_id(session: &SessionId, streamed: &StreamedReply) -> acp::MessageId {
    acp::MessageId::new(format!("{session}:{}-{}", streamed.turn, streamed.attempt))
}
