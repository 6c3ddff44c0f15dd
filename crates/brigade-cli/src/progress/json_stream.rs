//! `stream-json`: one JSON object per line.

use brigade::RunEvent;
use brigade::lifecycle::{Lifecycle, Observer};
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
            self.push(&Value::Object(lifecycle(&event, &session, view)))?;
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
                let mut line = location_fields(session, view);
                line.extend(live_fields("delta"));
                line.insert("turn".to_owned(), json!(turn));
                line.insert("text".to_owned(), json!(&**text));
                self.push(&Value::Object(line))?;
                session
            }
            RunEvent::Waiting { session, why } => {
                let mut line = location_fields(session, view);
                line.extend(live_fields("waiting"));
                line.insert("why".to_owned(), json!(why));
                self.push(&Value::Object(line))?;
                session
            }
            RunEvent::Discarded { session, turn } => {
                let mut line = location_fields(session, view);
                line.extend(live_fields("discarded"));
                line.insert("turn".to_owned(), json!(turn));
                self.push(&Value::Object(line))?;
                session
            }
        };
        for event in self.observer.observe(run_event) {
            self.push(&Value::Object(lifecycle(&event, session, view)))?;
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

fn live_fields(kind: &str) -> [(String, Value); 2] {
    [("type".to_owned(), json!(kind)), ("live".to_owned(), json!(true))]
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

fn lifecycle(event: &Lifecycle, session: &SessionId, view: &RunView) -> Map<String, Value> {
    let (kind, id, fields) = match event {
        Lifecycle::Start(info) => {
            ("subagent_start", &info.id, json!({ "description": info.description, "mode": info.mode }))
        }
        Lifecycle::StreamDelta { id, text } => {
            ("subagent_stream_delta", id, json!({ "text": text, "live": true }))
        }
        Lifecycle::ToolCallStart { id, call } => ("subagent_tool_call_start", id, json!({ "call": call })),
        Lifecycle::ToolCallEnd { id, result } => ("subagent_tool_call_end", id, json!({ "result": result })),
        Lifecycle::Complete { id, result } => (
            "subagent_complete",
            id,
            json!({ "text": result.text, "turns": result.turns, "duration_ms": result.duration_ms }),
        ),
        Lifecycle::Error { id, error } => ("subagent_error", id, json!({ "error": error })),
    };
    let mut line = location_fields(session, view);
    line.insert("type".to_owned(), json!(kind));
    line.insert("id".to_owned(), json!(id));
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    line
}
