//! Arguments of the session tools.

use rmcp::model::JsonObject;
use serde_json::Value;

use super::StartError;

pub(super) struct Arguments(JsonObject);

impl Arguments {
    pub(super) fn new(arguments: JsonObject) -> Arguments {
        Arguments(arguments)
    }

    /// Returns a required string.
    pub(super) fn text(&self, key: &str) -> Result<&str, StartError> {
        self.optional_text(key)?.ok_or_else(|| StartError::Refused(format!("Missing '{key}' argument")))
    }

    /// Returns an optional string.
    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&str>, StartError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(StartError::Refused(format!("Invalid '{key}' argument: expected a string"))),
        }
    }

    /// Returns an optional number.
    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, StartError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| {
                StartError::Refused(format!("Invalid '{key}' argument: expected a non-negative integer"))
            }),
        }
    }
}
