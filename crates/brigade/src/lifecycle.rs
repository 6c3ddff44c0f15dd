//! Lifecycle events of sub-agents. There are six kinds in a fixed order: start, then deltas and tool calls, then
//! exactly one of complete and error.

use std::collections::{HashMap, HashSet};

use brigade_core::delegation::Status;
use brigade_core::delegation_styles::DelegationStyles;
use brigade_core::message::OutputStatus;
use brigade_core::view::key;
use brigade_core::{CallId, Event, Record, SessionId, ToolCall, ToolOutput, json};
use serde::Serialize;
use serde_json::Value;

use crate::event_stream::RunEvent;

/// Identity of a sub-agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubagentInfo {
    /// Key of the sub-agent in this run.
    pub id: String,
    /// Role or title.
    pub description: String,
    /// Kind of the delegation: `role`, `subagent`, `dispatch` or `spawn`, or `delegate` for a single generation.
    pub mode: String,
}

/// A tool call of a sub-agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubagentToolCall {
    /// Id of the call, unique in the sub-agent's session. Its result has the same id.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as JSON, or a string with the raw text if that is not a JSON object.
    pub arguments: Value,
    /// The provider's id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

/// Result of a tool call of a sub-agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubagentToolResult {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Text that the sub-agent's model reads.
    pub text: String,
    /// Whether the call succeeded.
    pub status: OutputStatus,
}

/// Result of a sub-agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubagentResult {
    /// Final text.
    pub text: String,
    /// Number of model calls.
    pub turns: u64,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// Lifecycle event of a sub-agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Lifecycle {
    /// The sub-agent starts.
    Start(SubagentInfo),
    /// The sub-agent streams text. Provisional.
    StreamDelta {
        /// Id of the sub-agent.
        id: String,
        /// The new text.
        text: String,
    },
    /// The sub-agent calls a tool.
    ToolCallStart {
        /// Id of the sub-agent.
        id: String,
        /// The call.
        call: SubagentToolCall,
    },
    /// A tool call has ended.
    ToolCallEnd {
        /// Id of the sub-agent.
        id: String,
        /// Result of the call.
        result: SubagentToolResult,
    },
    /// The sub-agent completed its task, or as much as its limits allowed.
    Complete {
        /// Id of the sub-agent.
        id: String,
        /// Result of the sub-agent.
        result: SubagentResult,
    },
    /// The sub-agent failed or was stopped.
    Error {
        /// Id of the sub-agent.
        id: String,
        /// Cause of the failure.
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

/// Derives lifecycle events from the run events of a tree.
#[derive(Default)]
pub struct Observer {
    subagents: HashMap<SessionId, Subagent>,
}

impl Observer {
    /// Creates an observer that has seen no event.
    pub fn new() -> Observer {
        Observer::default()
    }

    /// Returns the lifecycle events that follow from a run event.
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
            if !delegation.style.has_tools() {
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
            // The mode does not depend on the settings of the style.
            let mode = DelegationStyles::default().of(delegation).mode(delegation).to_owned();
            return vec![Lifecycle::Start(SubagentInfo { id, description, mode })];
        }
        if let Event::Ended { outcome, .. } = &record.event {
            let Some(subagent) = self.subagents.remove(&record.session) else { return Vec::new() };
            return vec![subagent.end(&outcome.status, outcome.text.to_string(), record.at)];
        }
        if let Event::Returned { child, outcome, .. } = &record.event
            && matches!(outcome.status, Status::Lost { .. } | Status::Detached)
            && let Some(subagent) = self.subagents.remove(child)
        {
            // The sub-agent's own log has no end yet, because it is detached or its outcome is unknown.
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

    /// Starts a call once, even if it is refused before it runs or runs again after a crash.
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

/// Arguments of a call as a JSON object, or the raw text if they are not one.
fn arguments(text: &str) -> Value {
    match json::parse(text) {
        Ok(arguments @ Value::Object(_)) => arguments,
        Ok(_) | Err(_) => Value::String(text.to_owned()),
    }
}

/// Closure that receives the id of a sub-agent and an event value.
pub type Callback<T> = Box<dyn FnMut(&str, &T) + Send>;

/// Closure that receives the start of a sub-agent.
pub type OnStart = Box<dyn FnMut(&SubagentInfo) + Send>;

/// Optional closures, one per kind of event.
#[derive(Default)]
#[expect(missing_docs, reason = "each field is named after the event that it receives")]
pub struct SubagentCallbacks {
    pub on_start: Option<OnStart>,
    pub on_stream_delta: Option<Callback<str>>,
    pub on_tool_call_start: Option<Callback<SubagentToolCall>>,
    pub on_tool_call_end: Option<Callback<SubagentToolResult>>,
    pub on_complete: Option<Callback<SubagentResult>>,
    pub on_error: Option<Callback<str>>,
}

impl SubagentCallbacks {
    /// Calls the closure for an event, if there is one.
    pub fn call(&mut self, event: &Lifecycle) {
        match event {
            Lifecycle::Start(info) => {
                if let Some(call) = &mut self.on_start {
                    call(info);
                }
            }
            Lifecycle::StreamDelta { id, text } => notify(&mut self.on_stream_delta, id, text),
            Lifecycle::ToolCallStart { id, call } => notify(&mut self.on_tool_call_start, id, call),
            Lifecycle::ToolCallEnd { id, result } => notify(&mut self.on_tool_call_end, id, result),
            Lifecycle::Complete { id, result } => notify(&mut self.on_complete, id, result),
            Lifecycle::Error { id, error } => notify(&mut self.on_error, id, error),
        }
    }
}

fn notify<T: ?Sized>(callback: &mut Option<Callback<T>>, id: &str, event: &T) {
    if let Some(callback) = callback {
        callback(id, event);
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
