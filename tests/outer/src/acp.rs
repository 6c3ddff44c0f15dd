//! Validation of ACP messages against the official JSON Schema.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use crate::counterpart::tools;
use crate::wire::{Side, WireLine};

/// The schema of the package `@agentclientprotocol/sdk`, made strict. It permits unknown keys everywhere, but
/// the protocol does so only under `_meta`.
pub struct AcpSchema {
    definitions: Map<String, Value>,
    compiled: RefCell<HashMap<String, Validator>>,
}

/// Requests without a response in a recording.
#[derive(Default)]
struct OpenRequests {
    sent_ids: HashSet<String>,
    received_methods: HashMap<String, String>,
}

const KEYS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

impl AcpSchema {
    /// Loads the schema that `scripts/test` installed, including its unstable part.
    pub fn load() -> AcpSchema {
        let path = tools("acp/node_modules/@agentclientprotocol/sdk/schema/v1/schema.unstable.json");
        let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let definitions = schema["$defs"].as_object().unwrap().clone();
        let mut closed = definitions.clone();
        closed.values_mut().for_each(|schema| close_below(schema, &definitions));
        AcpSchema { definitions: closed, compiled: RefCell::default() }
    }

    /// Returns the violations in the messages that one side sent.
    pub fn violations(&self, wire: &[WireLine], ours: Side) -> Vec<String> {
        let mut open = OpenRequests::default();
        let mut violations = Vec::new();
        for line in wire {
            if line.from == ours {
                let problems = self.check_message(line, ours, &mut open).err();
                violations.extend(problems.map(|problems| format!("{problems}: {}", line.text)));
            } else {
                open.record(&line.message());
            }
        }
        violations
    }

    fn check_message(&self, line: &WireLine, ours: Side, open: &mut OpenRequests) -> Result<(), String> {
        let message: Value = serde_json::from_str(&line.text).map_err(|error| error.to_string())?;
        let keys = message.as_object().ok_or("not an object")?.keys();
        if let Some(key) = keys.into_iter().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("the key '{key}'"));
        }
        if message["jsonrpc"] != "2.0" {
            return Err("no jsonrpc 2.0".to_owned());
        }
        let params = message.get("params").cloned().unwrap_or_else(|| json!({}));
        match (message["method"].as_str(), message.get("id")) {
            (Some(method), Some(id)) => {
                if !open.sent_ids.insert(id.to_string()) {
                    return Err("an id for the second time".to_owned());
                }
                self.check_method("Request", ours.other(), method, &params)
            }
            (Some(method), None) => self.check_method("Notification", ours.other(), method, &params),
            (None, Some(id)) => self.check_response(&message, id, ours, open),
            (None, None) => Err("neither method nor id".to_owned()),
        }
    }

    fn check_response(
        &self,
        message: &Value,
        id: &Value,
        ours: Side,
        open: &mut OpenRequests,
    ) -> Result<(), String> {
        let method = open.received_methods.remove(&id.to_string());
        match (message.get("result"), message.get("error"), method) {
            (None, Some(error), Some(_)) => self.check_type("Error", error),
            // The response to an unreadable request has no id.
            (None, Some(error), None) if id.is_null() => self.check_type("Error", error),
            (Some(result), None, Some(method)) => self.check_method("Response", ours, &method, result),
            (_, _, None) => Err("an answer to nothing".to_owned()),
            (_, _, Some(_)) => Err("neither result nor error, or both".to_owned()),
        }
    }

    /// Validates a value against the schema of a method that this side serves.
    fn check_method(&self, kind: &str, served_by: Side, method: &str, value: &Value) -> Result<(), String> {
        // Extension methods start with an underscore.
        if method.starts_with('_') {
            return Ok(());
        }
        let side = [served_by.as_str(), "protocol"];
        let found = self.definitions.iter().find(|(name, schema)| {
            let serves = schema["x-side"].as_str().is_some_and(|word| side.contains(&word));
            name.ends_with(kind) && serves && schema["x-method"] == method
        });
        let (name, _) = found.ok_or_else(|| format!("no {kind} '{method}' to the {}", served_by.as_str()))?;
        self.check_type(name, value)
    }

    fn check_type(&self, name: &str, value: &Value) -> Result<(), String> {
        let mut compiled = self.compiled.borrow_mut();
        let validator = compiled.entry(name.to_owned()).or_insert_with(|| self.compile(name));
        let problems: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{} at '{}'", error, error.instance_path()))
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(format!("no {name}: {}", problems.join("; "))) }
    }

    fn compile(&self, name: &str) -> Validator {
        let mut schema = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema" });
        schema["$ref"] = json!(format!("#/$defs/{name}"));
        schema["$defs"] = Value::Object(self.definitions.clone());
        close_schema(&mut schema, &self.definitions);
        jsonschema::validator_for(&schema).unwrap()
    }
}

impl OpenRequests {
    fn record(&mut self, message: &Value) {
        if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
            self.received_methods.insert(id.to_string(), method.to_owned());
        }
    }
}

/// Rejects keys that the schema does not list, if it lists any.
fn close_schema(schema: &mut Value, definitions: &Map<String, Value>) {
    if lists_keys(schema, definitions)
        && let Some(schema) = schema.as_object_mut()
    {
        schema.insert("unevaluatedProperties".to_owned(), json!(false));
    }
}

/// Closes the schemas of properties and items. The parts of a combined schema are not closed, because each of
/// them lists only some of the keys.
fn close_below(schema: &mut Value, definitions: &Map<String, Value>) {
    let Some(schema) = schema.as_object_mut() else { return };
    for (key, subschema) in schema {
        match (key.as_str(), subschema) {
            ("properties", Value::Object(properties)) => {
                for value in properties.values_mut() {
                    close_schema(value, definitions);
                    close_below(value, definitions);
                }
            }
            ("items", subschema) => {
                close_schema(subschema, definitions);
                close_below(subschema, definitions);
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => {
                parts.iter_mut().for_each(|subschema| close_below(subschema, definitions));
            }
            _ => {}
        }
    }
}

/// Whether a schema lists keys, itself or in its parts.
fn lists_keys(schema: &Value, definitions: &Map<String, Value>) -> bool {
    let below = |subschema: &Value| lists_keys(subschema, definitions);
    let parts = ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
    let reference = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    let named = reference.and_then(|name| definitions.get(name));
    schema.get("properties").is_some() || parts.into_iter().any(below) || named.is_some_and(below)
}
