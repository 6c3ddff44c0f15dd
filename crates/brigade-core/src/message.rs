//! Messages to and from models.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::CallId;
use crate::text::Text;

/// Complete reply of a model. A stream becomes a reply only when its terminal event has arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// Text of the reply.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub text: Text,
    /// Tool calls, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Blocks that the provider requires back unchanged, such as reasoning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub opaque: Vec<Text>,
    /// Reason why the model stopped.
    pub stop: Stop,
}

/// Reason why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The reply is complete.
    #[default]
    End,
    /// The reply contains tool calls.
    Calls,
    /// The output limit was reached.
    Length,
    /// The model refused.
    Refusal,
    /// An external agent ended after it was denied a permission that it needs.
    Denied,
}

/// Tool call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments, as the JSON text that the model wrote.
    pub arguments: Text,
    /// Provider's id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

/// Result of a tool call for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// Text that the model reads.
    pub text: Text,
    /// Whether the call succeeded.
    #[serde(default)]
    pub status: OutputStatus,
}

/// Whether a call succeeded. A failure is data for the model and never ends its loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStatus {
    /// The call succeeded.
    #[default]
    Ok,
    /// The call failed; the text contains the cause.
    Error,
}

impl ToolOutput {
    /// Creates a successful result.
    pub fn ok(text: impl Into<Text>) -> ToolOutput {
        ToolOutput { text: text.into(), status: OutputStatus::Ok }
    }

    /// Creates a failed result, with a text that helps the model to adapt.
    pub fn error(text: impl Into<Text>) -> ToolOutput {
        ToolOutput { text: text.into(), status: OutputStatus::Error }
    }

    /// Whether the call failed.
    pub fn is_error(&self) -> bool {
        self.status == OutputStatus::Error
    }
}

/// Refusal of a call or request, as the agent that made it reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl<T: Into<String>> From<T> for Refusal {
    fn from(text: T) -> Refusal {
        Refusal(text.into())
    }
}

/// Message of a request. Every call in an [`Message::Assistant`] has its result in the [`Message::Results`] that
/// directly follows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Message to the model.
    User(Text),
    /// Reply of the model.
    Assistant(Arc<Reply>),
    /// Results of its calls, in the order of the calls.
    Results(Vec<CallResult>),
}

/// Result of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// Id of the call.
    pub call: CallId,
    /// Provider's id of the call.
    pub provider_id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// Output of the call.
    pub output: ToolOutput,
}

/// Description of a tool for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Name of the tool.
    pub name: String,
    /// Description of what the tool does and when to use it.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
    /// Category of the tool.
    pub category: Category,
}

impl ToolSpec {
    /// Tool that starts sub-agents.
    pub(crate) fn delegation(name: &str, description: impl Into<String>, schema: Value) -> ToolSpec {
        let (name, description) = (name.to_owned(), description.into());
        ToolSpec { name, description, schema, category: Category::Subagent }
    }

    /// Approximate number of bytes that the spec adds to a request.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.schema.to_string().len()
    }
}

/// Category of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variant names are self-explanatory")]
pub enum Category {
    Read,
    Edit,
    Search,
    Fetch,
    Execute,
    Memory,
    Vfs,
    Task,
    Subagent,
    Other,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_of_a_spec_are_those_of_its_texts() {
        let (name, description) = ("grep".to_owned(), "Finds text".to_owned());
        let spec = ToolSpec { name, description, schema: json!({ "a": 1 }), category: Category::Search };
        assert_eq!(spec.bytes(), 4 + 10 + r#"{"a":1}"#.len());
    }

    #[test]
    fn output_is_an_error_only_if_its_status_says_so() {
        assert!(ToolOutput::error("denied").is_error() && !ToolOutput::ok("done").is_error());
    }
}
