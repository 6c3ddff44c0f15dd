//! Results that have to fit a JSON Schema.

use brigade_core::event::Speaker;
use brigade_core::{Event, Outcome, Status, Text, json};
use serde_json::Value;

use super::Driver;

/// How often a result that does not fit is asked for again.
const RETRIES: u32 = 2;

impl Driver {
    /// The outcome as it is to be recorded, where the delegation asks for a schema: JSON that fits. Nothing where the
    /// agent is told what is wrong and goes on.
    pub(super) fn fit_to_schema(&mut self, outcome: Outcome) -> Option<Outcome> {
        let schema = self.state.round().and_then(|round| round.delegation.schema.clone());
        let (Some(schema), Status::Done) = (schema, &outcome.status) else { return Some(outcome) };
        match fitted(schema.as_str(), outcome.text.as_str()) {
            Ok(json) => Some(Outcome { text: Text::from(json), ..outcome }),
            Err(cause) if self.state.reminders() < RETRIES => {
                let words =
                    format!("Your result does not fit the schema: {cause}. Answer again, with JSON only.");
                self.record(Event::Heard { from: Speaker::Runtime, text: words.into() });
                None
            }
            Err(cause) => {
                let cause = format!("the result does not fit the schema: {cause}");
                Some(Outcome { status: Status::Failed { cause }, ..outcome })
            }
        }
    }
}

/// Says what is wrong with a schema, before anybody works for it.
pub(super) fn check_schema(schema: &str) -> Result<(), String> {
    let parsed: Result<Value, _> = serde_json::from_str(schema);
    let parsed = parsed.map_err(|cause| format!("Invalid 'schema' argument: {cause}"))?;
    jsonschema::validator_for(&parsed)
        .map(drop)
        .map_err(|cause| format!("Invalid 'schema' argument: {cause}"))
}

/// The JSON in a text, if it fits.
fn fitted(schema: &str, text: &str) -> Result<String, String> {
    let schema: Value =
        serde_json::from_str(schema).map_err(|cause| format!("the schema is no JSON: {cause}"))?;
    let validator =
        jsonschema::validator_for(&schema).map_err(|cause| format!("the schema is not valid: {cause}"))?;
    let value = json::parse(unfenced(text)).map_err(|cause| format!("it is no JSON: {cause}"))?;
    match validator.iter_errors(&value).next() {
        None => Ok(value.to_string()),
        Some(error) => {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "the whole".to_owned() } else { place };
            let shown: String = error.to_string().chars().take(400).collect();
            Err(format!("{shown} (at {place})"))
        }
    }
}

/// Models like to put JSON into a fenced block.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner)).trim()
}
