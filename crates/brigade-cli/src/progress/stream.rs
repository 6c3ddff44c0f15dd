//! `stream-json`: one JSON object a line.

use brigade::Live;
use brigade::lifecycle::{Lifecycle, Observer};
use brigade_core::account;
use brigade_core::view::Node;
use brigade_core::{Event, Record, SessionId};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::follow::View;
use crate::output;

/// Writes all that happens.
#[derive(Default)]
pub(crate) struct Stream {
    observer: Observer,
    pending: String,
}

impl Stream {
    /// Sub-agents that an earlier runner had started and not ended begin again for this reader.
    pub(super) fn remember(&mut self, records: &[Record], view: &View) -> Result<(), Failure> {
        let mut open: Vec<(String, SessionId, Lifecycle)> = Vec::new();
        for record in records {
            for event in self.observer.observe(&Live::Fact(record.clone().into())) {
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

    pub(super) fn see(&mut self, live: &Live, view: &View) -> Result<(), Failure> {
        let session = match live {
            Live::Fact(record) => {
                self.push(&fact(record, view))?;
                &record.session
            }
            Live::Delta { session, turn, text } => {
                let mut line = place(session, view);
                line.extend(provisional("delta"));
                line.insert("turn".to_owned(), json!(turn));
                line.insert("text".to_owned(), json!(&**text));
                self.push(&Value::Object(line))?;
                session
            }
            Live::Waiting { session, why } => {
                let mut line = place(session, view);
                line.extend(provisional("waiting"));
                line.insert("why".to_owned(), json!(why));
                self.push(&Value::Object(line))?;
                session
            }
            Live::Discarded { session, turn } => {
                let mut line = place(session, view);
                line.extend(provisional("discarded"));
                line.insert("turn".to_owned(), json!(turn));
                self.push(&Value::Object(line))?;
                session
            }
        };
        for event in self.observer.observe(live) {
            self.push(&Value::Object(lifecycle(&event, session, view)))?;
        }
        Ok(())
    }

    fn push(&mut self, line: &Value) -> Result<(), Failure> {
        self.pending.push_str(&output::json_line(line)?);
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        if self.pending.is_empty() {
            return Ok(());
        }
        output::raw(&std::mem::take(&mut self.pending))
    }
}

fn provisional(kind: &str) -> [(String, Value); 2] {
    [("type".to_owned(), json!(kind)), ("live".to_owned(), json!(true))]
}

/// Where in the tree something happened.
fn place(session: &SessionId, view: &View) -> Map<String, Value> {
    let node = view.tree.node(session);
    let mut line = Map::new();
    line.insert("session".to_owned(), json!(session));
    line.insert("parent".to_owned(), json!(node.and_then(|node| node.parent.as_ref())));
    line.insert("depth".to_owned(), json!(node.map_or(0, |node| node.depth)));
    line.insert("agent".to_owned(), json!(node.map_or("", |node| node.label.as_str())));
    line.insert("key".to_owned(), json!(node.map(|node| node.key())));
    line
}

/// A message of an agent in JSON output: the role stands in front, as the runtime knows it.
pub(crate) fn message(role: &str, text: &str) -> String {
    format!("[{role}]: {text}")
}

/// A fact with its place. The hash of the agent's definition is `definition`, since `agent` says who it is.
pub(crate) fn fact(record: &Record, view: &View) -> Value {
    let mut line = match serde_json::to_value(&record.event) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    if let Some(definition) = line.remove("agent") {
        line.insert("definition".to_owned(), definition);
    }
    name_money(&mut line);
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
    line.extend(place(&record.session, view));
    line.insert("seq".to_owned(), json!(record.seq));
    line.insert("at".to_owned(), json!(record.at));
    Value::Object(line)
}

/// Fields of facts that are amounts, or have such in them. What models and tools wrote is never looked into.
const AMOUNTS: [&str; 9] =
    ["spent", "reserved", "lent", "needed", "in_doubt", "overrun", "held", "reported", "budget"];

/// Says the unit of all money in a fact.
fn name_money(fields: &mut Map<String, Value>) {
    for (key, value) in fields {
        let Value::Object(inner) = value else { continue };
        if AMOUNTS.contains(&key.as_str()) {
            account::name_units(inner);
            name_money(inner);
        } else if key == "grant" {
            name_money(inner);
        }
    }
}

fn lifecycle(event: &Lifecycle, session: &SessionId, view: &View) -> Map<String, Value> {
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
    let mut line = place(session, view);
    line.insert("type".to_owned(), json!(kind));
    line.insert("id".to_owned(), json!(id));
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    line
}
