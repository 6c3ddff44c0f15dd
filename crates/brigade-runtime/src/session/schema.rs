//! Validation of results against a JSON Schema.

use brigade_core::event::Speaker;
use brigade_core::{Event, Outcome, Status, Text};

use super::Driver;
use crate::schema::{ResultSchema, ValidationError};

/// Number of times that a result is requested again after it did not match.
const MAX_SCHEMA_RETRIES: u32 = 2;

impl Driver {
    /// Returns the outcome to record. With a schema, that is JSON that matches it. Returns none if the agent was
    /// told what is wrong and has to try again.
    pub(super) fn validate_result(&mut self, outcome: Outcome) -> Option<Outcome> {
        let schema = self.state().round().and_then(|round| round.delegation.schema.clone());
        let (Some(schema), Status::Done) = (schema, &outcome.status) else { return Some(outcome) };
        let schema = ResultSchema::parse(schema.as_str()).map_err(ValidationError::from);
        match schema.and_then(|schema| schema.validate(outcome.text.as_str())) {
            Ok(json) => Some(Outcome { text: Text::from(json), ..outcome }),
            Err(cause) if self.state().reminders() < MAX_SCHEMA_RETRIES => {
                let text =
                    format!("Your result does not match the schema: {cause}. Reply again with JSON only.");
                self.record(Event::Heard { from: Speaker::Runtime, text: text.into() });
                None
            }
            Err(cause) => {
                let cause = format!("the result does not match the schema: {cause}");
                Some(Outcome { status: Status::Failed { cause }, ..outcome })
            }
        }
    }
}
