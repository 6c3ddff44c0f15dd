//! What the model sees and says.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::CallId;
use crate::text::Text;

/// A whole reply of a model. A stream becomes a reply only when its terminal event has arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// What the model said.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub text: Text,
    /// The tools it wants called, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Blocks that a provider wants back unchanged, such as reasoning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub opaque: Vec<Text>,
    /// Why the model stopped.
    pub stop: Stop,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It was finished.
    #[default]
    End,
    /// It wants tools called.
    Calls,
    /// The output limit cut it off.
    Length,
    /// It refused.
    Refusal,
    /// An external agent ended after it was denied a permission that it needs.
    Denied,
}

/// A tool call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// The arguments, as the JSON text that the model wrote.
    pub arguments: Text,
    /// The provider's own id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

/// What a call gives back to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// What the model reads.
    pub text: Text,
    /// Whether it worked.
    #[serde(default)]
    pub status: OutputStatus,
}

/// Whether a call worked. Failure is data for the model, never an end of its loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStatus {
    /// It worked.
    #[default]
    Ok,
    /// It failed, and the text says why.
    Error,
}

impl ToolOutput {
    /// A result.
    pub fn ok(text: impl Into<Text>) -> ToolOutput {
        ToolOutput { text: text.into(), status: OutputStatus::Ok }
    }

    /// A failure, in words that help the model to adapt.
    pub fn error(text: impl Into<Text>) -> ToolOutput {
        ToolOutput { text: text.into(), status: OutputStatus::Error }
    }

    /// Whether the call failed.
    pub fn is_error(&self) -> bool {
        self.status == OutputStatus::Error
    }
}

/// One message of a request. Every call in an [`Message::Assistant`] is answered in the [`Message::Results`] that
/// follows it at once.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Words to the model.
    User(Text),
    /// What it replied.
    Assistant(Arc<Reply>),
    /// What its calls gave, in the order of the calls.
    Results(Vec<CallResult>),
}

/// The answer to one call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// Our id of the call.
    pub call: CallId,
    /// The provider's id of the call.
    pub provider_id: Option<String>,
    /// The tool that was called.
    pub name: String,
    /// What it gave.
    pub output: ToolOutput,
}

/// What a model is told about a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Value,
    /// What kind of work it does.
    pub category: Category,
}

impl ToolSpec {
    /// About how many bytes this adds to a request.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.schema.to_string().len()
    }
}

/// What kind of work a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Category {
    Read,
    Edit,
    Search,
    Execute,
    Memory,
    Vfs,
    Task,
    Subagent,
    Other,
}
