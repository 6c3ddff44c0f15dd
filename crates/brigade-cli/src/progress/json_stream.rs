//! `stream-json`: one JSON object per line.

use brigade::RunEvent;
use brigade::lifecycle::{Lifecycle, Observer, SubagentInfo};
use brigade_core::usage_report;
use brigade_core::view::Node;
use brigade_core::{Event, Record, SessionId};
use serde_json::{Map, Value, json};

use crate::error::CliError;
use crate::follow::RunView;
use crate::output;

/// Writes all events as JSON.
#[derive(Default)]
pub(crate) struct JsonStream {
    observer: Observer,
    pending: String,
}

impl JsonStream {
    /// Reports the start of sub-agents again that an earlier process had started and that have not ended.
    pub(super) fn replay(&mut self, records: &[Record], view: &RunView) -> Result<(), CliError> {
        let mut open: Vec<(String, SessionId, Lifecycle)> = Vec::new();
        for record in records {
            for event in self.observer.observe(&RunEvent::Record(record.clone().into())) {
                match &event {
                    Lifecycle::Start(info) => open.push((info.id.clone(), record.session.clone(), event)),
                    Lifecycle::Complete { id, .. } | Lifecycle::Error { id, .. } => {
                        open.retain(|(other, _, _)| other != id);
                    }
                    Lifecycle::StreamDelta { .. }
                    | Lifecycle::ToolCallStart { .. }
                    | Lifecycle::ToolCallEnd { .. } => {}
                }
            }
        }
        for (_, session, event) in open {
            self.push(&located(&session, view, lifecycle(&event)))?;
        }
        Ok(())
    }

    pub(super) fn on_event(&mut self, run_event: &RunEvent, view: &RunView) -> Result<(), CliError> {
        let session = match run_event {
            RunEvent::Record(record) => {
                self.push(&event_json(record, view))?;
                &record.session
            }
            RunEvent::Delta { session, turn, text } => {
                let fields = json!({ "type": "delta", "live": true, "turn": turn, "text": &**text });
                self.push(&located(session, view, fields))?;
                session
            }
            RunEvent::Waiting { session, why } => {
                self.push(&located(session, view, json!({ "type": "waiting", "live": true, "why": why })))?;
                session
            }
            RunEvent::Discarded { session, turn } => {
                self.push(&located(
                    session,
                    view,
                    json!({ "type": "discarded", "live": true, "turn": turn }),
                ))?;
                session
            }
        };
        for event in self.observer.observe(run_event) {
            self.push(&located(session, view, lifecycle(&event)))?;
        }
        Ok(())
    }

    fn push(&mut self, line: &Value) -> Result<(), CliError> {
        self.pending.push_str(&output::json_line(line)?);
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), CliError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        output::raw(&std::mem::take(&mut self.pending))
    }
}

/// Line of an event of a session: the session's place in the tree, and the fields of the event.
fn located(session: &SessionId, view: &RunView, fields: Value) -> Value {
    let mut line = location_fields(session, view);
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    Value::Object(line)
}

/// Fields that locate an event in the tree.
fn location_fields(session: &SessionId, view: &RunView) -> Map<String, Value> {
    let node = view.tree.node(session);
    let mut line = Map::new();
    line.insert("session".to_owned(), json!(session));
    line.insert("parent".to_owned(), json!(node.and_then(|node| node.parent.as_ref())));
    line.insert("depth".to_owned(), json!(node.map_or(0, |node| node.depth)));
    line.insert("agent".to_owned(), json!(node.map_or("", |node| node.label.as_str())));
    line.insert("key".to_owned(), json!(node.map(|node| node.key())));
    line
}

/// Message of an agent in JSON output, with the role as the runtime knows it as a prefix.
pub(crate) fn message(role: &str, text: &str) -> String {
    format!("[{role}]: {text}")
}

/// Record as JSON, with its location. The hash of the agent's definition is `definition`, since `agent` is its id.
pub(crate) fn event_json(record: &Record, view: &RunView) -> Value {
    let mut line = match serde_json::to_value(&record.event) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    if let Some(definition) = line.remove("agent") {
        line.insert("definition".to_owned(), definition);
    }
    add_money_units(&mut line);
    if let Event::Said { text, .. } = &record.event {
        let role = view.tree.node(&record.session).map_or("", |node| node.label.as_str());
        line.insert("text".to_owned(), json!(message(role, text.as_str())));
    }
    line.insert("type".to_owned(), json!(record.event.kind()));
    if matches!(record.event, Event::Ended { .. })
        && let Some(metadata) = view.tree.node(&record.session).and_then(Node::metadata)
    {
        line.insert("metadata".to_owned(), json!(metadata));
    }
    line.extend(location_fields(&record.session, view));
    line.insert("seq".to_owned(), json!(record.seq));
    line.insert("at".to_owned(), json!(record.at));
    Value::Object(line)
}

/// Fields of events that are amounts or contain amounts. Text of models and tools is never searched for them.
const AMOUNT_KEYS: [&str; 9] =
    ["spent", "reserved", "lent", "needed", "in_doubt", "overrun", "held", "reported", "budget"];

/// Adds the unit to all amounts of money in an event.
fn add_money_units(fields: &mut Map<String, Value>) {
    for (key, value) in fields {
        let Value::Object(inner) = value else { continue };
        if AMOUNT_KEYS.contains(&key.as_str()) {
            usage_report::add_cost_units(inner);
            add_money_units(inner);
        } else if key == "grant" {
            add_money_units(inner);
        }
    }
}

fn lifecycle(event: &Lifecycle) -> Value {
    match event {
        Lifecycle::Start(SubagentInfo { id, description, mode }) => {
            json!({ "type": "subagent_start", "id": id, "description": description, "mode": mode })
        }
        Lifecycle::StreamDelta { id, text } => {
            json!({ "type": "subagent_stream_delta", "id": id, "text": text, "live": true })
        }
        Lifecycle::ToolCallStart { id, call } => {
            json!({ "type": "subagent_tool_call_start", "id": id, "call": call })
        }
        Lifecycle::ToolCallEnd { id, result } => {
            json!({ "type": "subagent_tool_call_end", "id": id, "result": result })
        }
        Lifecycle::Complete { id, result } => json!({
            "type": "subagent_complete",
            "id": id,
            "text": result.text,
            "turns": result.turns,
            "duration_ms": result.duration_ms,
        }),
        Lifecycle::Error { id, error } => json!({ "type": "subagent_error", "id": id, "error": error }),
    }
}
