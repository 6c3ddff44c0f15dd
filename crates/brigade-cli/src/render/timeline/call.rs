//! A tool call and all that belongs to it.

use brigade_core::delegation::Outcome;
use brigade_core::{CallId, Hash, SessionId, Spent, ToolCall, ToolOutput};
use serde_json::{Map, Value};

use super::change::FileChange;
use crate::sanitize;

/// The arguments that say most of a call, the first of them first.
const MAIN_ARGUMENT_KEYS: [&str; 17] = [
    "command",
    "pattern",
    "path",
    "url",
    "query",
    "role",
    "label",
    "agent_id",
    "agent",
    "title",
    "name",
    "key",
    "text",
    "task",
    "task_prompt",
    "prompt",
    "session_id",
];

/// A call that the model made.
pub(crate) struct CallItem<'a> {
    /// Its id.
    pub(crate) id: CallId,
    /// The tool.
    pub(crate) name: &'a str,
    /// The arguments as the model wrote them.
    pub(crate) raw: &'a str,
    /// The arguments, where they are an object.
    pub(crate) arguments: Map<String, Value>,
    /// What it did to a file.
    pub(crate) change: Option<FileChange>,
    /// What it gave.
    pub(crate) output: Option<&'a ToolOutput>,
    /// How long it took, in milliseconds.
    pub(crate) took: Option<u64>,
    /// The sessions that it started.
    pub(crate) children: Vec<Child<'a>>,
    /// What somebody was asked about it.
    pub(crate) approvals: Vec<ApprovalItem<'a>>,
    /// What it said to the person.
    pub(crate) user_message: Option<&'a str>,
    /// When it began, as far as is known.
    pub(super) at: u64,
    /// The content that an edit found and left.
    pub(super) before: Option<Hash>,
    pub(super) after: Option<Hash>,
}

/// A session that a call started.
pub(crate) struct Child<'a> {
    /// The session.
    pub(crate) session: &'a SessionId,
    /// The role, or the agent's id.
    pub(crate) label: &'a str,
    /// How it ended, what it used up and how long it took, if it has ended.
    pub(crate) returned: Option<(&'a Outcome, Spent, u64)>,
    /// When it was started.
    pub(super) at: u64,
}

/// What somebody was asked about a call.
pub(crate) struct ApprovalItem<'a> {
    /// The question.
    pub(crate) what: &'a str,
    /// The answer and who gave it.
    pub(crate) answer: Option<String>,
}

impl<'a> CallItem<'a> {
    pub(super) fn new(id: CallId, call: &'a ToolCall, at: u64) -> CallItem<'a> {
        let raw = call.arguments.as_str();
        let arguments = match serde_json::from_str(raw) {
            Ok(Value::Object(arguments)) => arguments,
            _ => Map::new(),
        };
        CallItem {
            id,
            name: &call.name,
            raw,
            arguments,
            change: None,
            output: None,
            took: None,
            children: Vec::new(),
            approvals: Vec::new(),
            user_message: None,
            at,
            before: None,
            after: None,
        }
    }

    pub(super) fn started(&mut self, at: u64, before: Option<Hash>, after: Option<Hash>) {
        self.at = at;
        self.before = before;
        self.after = after;
    }

    /// Whether it failed.
    pub(crate) fn failed(&self) -> bool {
        self.output.is_some_and(ToolOutput::is_error)
    }

    /// A string among the arguments.
    pub(super) fn argument(&self, key: &str) -> Option<&str> {
        self.arguments.get(key)?.as_str()
    }

    /// The argument that says most, in one line; nothing where it is what the person was told.
    pub(crate) fn main_argument(&self) -> String {
        match self.main_argument_key() {
            Some(_) if self.user_message.is_some() => String::new(),
            Some(key) => sanitize::line(self.argument(key).unwrap_or_default()),
            None if self.arguments.is_empty() && !matches!(self.raw.trim(), "" | "{}") => {
                sanitize::line(self.raw)
            }
            None => String::new(),
        }
    }

    /// The other arguments, in the words of the model. What is shown as a diff is left out.
    pub(crate) fn other_arguments(&self) -> Vec<(String, String)> {
        let main_argument = self.main_argument_key();
        let other_arguments = self.arguments.iter().filter(|(key, _)| {
            Some(key.as_str()) != main_argument
                && (self.change.is_none() || !matches!(&***key, "old" | "new" | "content"))
        });
        other_arguments.map(|(key, value)| (sanitize::line(key), plain(value))).collect()
    }

    /// The output, unless all that it says is shown as a diff.
    pub(crate) fn shown_output(&self) -> Option<&'a str> {
        let is_shown = self.change.is_some() && !self.failed();
        self.output.map(|output| output.text.as_str()).filter(|text| !is_shown && !text.trim().is_empty())
    }

    fn main_argument_key(&self) -> Option<&'static str> {
        MAIN_ARGUMENT_KEYS
            .into_iter()
            .find(|key| self.argument(key).is_some_and(|value| !value.trim().is_empty()))
    }
}

/// A value as people read it: a text without its quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
