//! What sub-agents do, as six kinds of events in a fixed order: start, then deltas and tool calls, then exactly one
//! of complete and error.

use std::collections::{HashMap, HashSet};

use brigade_core::delegation::Status;
use brigade_core::message::OutputStatus;
use brigade_core::view::key;
use brigade_core::{CallId, DelegationStyle, Event, Record, SessionId, ToolCall, ToolOutput, json};
use serde::Serialize;
use serde_json::Value;

use crate::event_stream::RunEvent;

/// Who a sub-agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubagentInfo {
    /// Its key in this run.
    pub id: String,
    /// Its role or title.
    pub description: String,
    /// How it was called: `role`, `subagent`, `dispatch` or `spawn`, or `delegate` for a single generation.
    pub mode: String,
}

/// A tool call of a sub-agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubagentToolCall {
    /// The id of the call, unique in the sub-agent's session. Its result has the same.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as JSON; a string with what the model wrote if that is not a JSON object.
    pub arguments: Value,
    /// The provider's own id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

/// The result of a tool call of a sub-agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubagentToolResult {
    /// The id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The text that the sub-agent's model reads.
    pub text: String,
    /// Whether the call worked.
    pub status: OutputStatus,
}

/// What a sub-agent brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubagentResult {
    /// Its final text.
    pub text: String,
    /// Its model calls.
    pub turns: u64,
    /// How long it took.
    pub duration_ms: u64,
}

/// Something that a sub-agent did.
#[derive(Debug, Clone, PartialEq)]
pub enum Lifecycle {
    /// It begins.
    Start(SubagentInfo),
    /// It says something; provisional.
    StreamDelta {
        /// The sub-agent.
        id: String,
        /// What it says.
        text: String,
    },
    /// It calls a tool.
    ToolCallStart {
        /// The sub-agent.
        id: String,
        /// The call.
        call: SubagentToolCall,
    },
    /// The tool answered.
    ToolCallEnd {
        /// The sub-agent.
        id: String,
        /// What it answered.
        result: SubagentToolResult,
    },
    /// It is done, or did what its limits allowed.
    Complete {
        /// The sub-agent.
        id: String,
        /// What it brought.
        result: SubagentResult,
    },
    /// It failed or was stopped.
    Error {
        /// The sub-agent.
        id: String,
        /// Why.
        error: String,
    },
}

struct Subagent {
    id: String,
    started_at: u64,
    turns: u64,
    calls: HashMap<CallId, ToolCall>,
    started: HashSet<CallId>,
}

/// Derives lifecycle events from what can be watched.
#[derive(Default)]
pub struct Observer {
    subagents: HashMap<SessionId, Subagent>,
}

impl Observer {
    /// Nothing seen yet.
    pub fn new() -> Observer {
        Observer::default()
    }

    /// Takes one thing that happened and says what it means.
    pub fn observe(&mut self, event: &RunEvent) -> Vec<Lifecycle> {
        match event {
            RunEvent::Record(record) => self.on_event(record),
            RunEvent::Delta { session, text, .. } => match self.subagents.get(session) {
                Some(subagent) => {
                    vec![Lifecycle::StreamDelta { id: subagent.id.clone(), text: text.to_string() }]
                }
                None => Vec::new(),
            },
            RunEvent::Discarded { .. } | RunEvent::Waiting { .. } => Vec::new(),
        }
    }

    fn on_event(&mut self, record: &Record) -> Vec<Lifecycle> {
        if let Event::Started { delegation, parent: Some(_), .. } = &record.event {
            if delegation.style == DelegationStyle::Run {
                return Vec::new();
            }
            let id = key(delegation.style, delegation.number, &record.session);
            let description =
                delegation.role.clone().or_else(|| delegation.agent.clone()).unwrap_or_default();
            let subagent = Subagent {
                id: id.clone(),
                started_at: record.at,
                turns: 0,
                calls: HashMap::new(),
                started: HashSet::new(),
            };
            self.subagents.insert(record.session.clone(), subagent);
            let mode = mode(delegation.style, delegation.single);
            return vec![Lifecycle::Start(SubagentInfo { id, description, mode: mode.to_owned() })];
        }
        if let Event::Ended { outcome, .. } = &record.event {
            let Some(subagent) = self.subagents.remove(&record.session) else { return Vec::new() };
            return vec![subagent.end(&outcome.status, outcome.text.to_string(), record.at)];
        }
        if let Event::Returned { child, outcome, .. } = &record.event
            && matches!(outcome.status, Status::Lost { .. } | Status::Detached)
            && let Some(subagent) = self.subagents.remove(child)
        {
            // Its own log has no end yet: it goes on by itself, or nobody can say what became of it.
            return vec![subagent.end(&outcome.status, outcome.text.to_string(), record.at)];
        }
        match self.subagents.get_mut(&record.session) {
            Some(subagent) => subagent.on_event(&record.event),
            None => Vec::new(),
        }
    }
}

impl Subagent {
    fn on_event(&mut self, event: &Event) -> Vec<Lifecycle> {
        match event {
            Event::Replied { turn, reply, spent, .. } => {
                self.turns += spent.turns;
                self.calls.clear();
                self.started.clear();
                for (index, call) in (0..).zip(&reply.calls) {
                    self.calls.insert(CallId { turn: *turn, index }, call.clone());
                }
                Vec::new()
            }
            Event::ToolStarted { call, .. } | Event::Delegated { call, .. } | Event::Said { call, .. } => {
                self.start(*call).into_iter().collect()
            }
            Event::ToolEnded { call, output, .. } => {
                let mut events: Vec<Lifecycle> = self.start(*call).into_iter().collect();
                events
                    .push(Lifecycle::ToolCallEnd { id: self.id.clone(), result: self.result(*call, output) });
                events
            }
            _ => Vec::new(),
        }
    }

    /// A call starts once, even where it is refused before it runs or run again after a crash.
    fn start(&mut self, call: CallId) -> Option<Lifecycle> {
        let tool_call = self.calls.get(&call)?;
        if !self.started.insert(call) {
            return None;
        }
        let call = SubagentToolCall {
            id: call.to_string(),
            name: tool_call.name.clone(),
            arguments: arguments(tool_call.arguments.as_str()),
            provider_id: tool_call.provider_id.clone(),
        };
        Some(Lifecycle::ToolCallStart { id: self.id.clone(), call })
    }

    fn result(&self, call: CallId, output: &ToolOutput) -> SubagentToolResult {
        SubagentToolResult {
            id: call.to_string(),
            name: self.calls.get(&call).map(|tool_call| tool_call.name.clone()).unwrap_or_default(),
            text: output.text.to_string(),
            status: output.status,
        }
    }

    fn end(self, status: &Status, text: String, at: u64) -> Lifecycle {
        let error = match status {
            Status::Done | Status::Incomplete { .. } | Status::Detached => {
                let duration_ms = at.saturating_sub(self.started_at);
                let result = SubagentResult { text, turns: self.turns, duration_ms };
                return Lifecycle::Complete { id: self.id, result };
            }
            Status::Failed { cause } | Status::Lost { cause } => cause.clone(),
            Status::Cancelled { by } => format!("cancelled by {by}"),
        };
        Lifecycle::Error { id: self.id, error }
    }
}

/// The mode that a sub-agent is announced with. Face A is `role`, because `delegate` is the single generation of face D.
fn mode(style: DelegationStyle, single: bool) -> &'static str {
    match style {
        DelegationStyle::Delegate => "role",
        DelegationStyle::Spawn if single => "delegate",
        DelegationStyle::Run
        | DelegationStyle::Subagent
        | DelegationStyle::Dispatch
        | DelegationStyle::Spawn => style.name(),
    }
}

/// The arguments of a call as a JSON object, or what the model wrote if it is not one.
fn arguments(text: &str) -> Value {
    match json::parse(text) {
        Ok(arguments @ Value::Object(_)) => arguments,
        Ok(_) | Err(_) => Value::String(text.to_owned()),
    }
}

/// Is called with the id of a sub-agent and what it did.
pub type Callback<T> = Box<dyn FnMut(&str, &T) + Send>;

/// Is called when a sub-agent begins.
pub type OnStart = Box<dyn FnMut(&SubagentInfo) + Send>;

/// A closure for each kind of event; those that are absent are not called.
#[derive(Default)]
#[expect(missing_docs, reason = "each is named after the event that it is called with")]
pub struct SubagentCallbacks {
    pub on_start: Option<OnStart>,
    pub on_stream_delta: Option<Callback<str>>,
    pub on_tool_call_start: Option<Callback<SubagentToolCall>>,
    pub on_tool_call_end: Option<Callback<SubagentToolResult>>,
    pub on_complete: Option<Callback<SubagentResult>>,
    pub on_error: Option<Callback<str>>,
}

impl SubagentCallbacks {
    /// Calls the closure for an event.
    pub fn call(&mut self, event: &Lifecycle) {
        match event {
            Lifecycle::Start(info) => {
                if let Some(call) = &mut self.on_start {
                    call(info);
                }
            }
            Lifecycle::StreamDelta { id, text } => {
                if let Some(call) = &mut self.on_stream_delta {
                    call(id, text);
                }
            }
            Lifecycle::ToolCallStart { id, call: tool_call } => {
                if let Some(call) = &mut self.on_tool_call_start {
                    call(id, tool_call);
                }
            }
            Lifecycle::ToolCallEnd { id, result } => {
                if let Some(call) = &mut self.on_tool_call_end {
                    call(id, result);
                }
            }
            Lifecycle::Complete { id, result } => {
                if let Some(call) = &mut self.on_complete {
                    call(id, result);
                }
            }
            Lifecycle::Error { id, error } => {
                if let Some(call) = &mut self.on_error {
                    call(id, error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_an_object_or_what_the_model_wrote() {
        assert_eq!(arguments(r#"{"text":"x"}"#), json!({ "text": "x" }));
        for other in ["", r#"{"text":"#, "[1]", "null", r#"{"a":1,"a":2}"#] {
            assert_eq!(arguments(other), json!(other));
        }
    }
}
