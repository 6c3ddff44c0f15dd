//! Tool call with everything that belongs to it.

use std::borrow::Cow;

use brigade_core::delegation::Outcome;
use brigade_core::network::Target;
use brigade_core::{CallId, Hash, SessionId, Spent, ToolCall, ToolOutput};
use serde_json::{Map, Value};

use super::change::FileChange;
use crate::sanitize;

/// Arguments that describe a call best, in order of preference.
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

/// Tool call of the model.
pub(crate) struct CallItem<'a> {
    pub(crate) id: CallId,
    /// Name of the tool.
    pub(crate) name: &'a str,
    /// Arguments as the model wrote them.
    pub(crate) raw: &'a str,
    /// Arguments, if they are an object.
    pub(crate) arguments: Map<String, Value>,
    /// Effect on a file.
    pub(crate) change: Option<FileChange>,
    /// Result.
    pub(crate) output: Option<&'a ToolOutput>,
    /// Duration in milliseconds.
    pub(crate) took: Option<u64>,
    /// Sessions that it started.
    pub(crate) children: Vec<Child<'a>>,
    /// Approval requests for it.
    pub(crate) approvals: Vec<ApprovalItem<'a>>,
    /// Text that it sent to the user.
    pub(crate) user_message: Option<&'a str>,
    /// Start time, as far as it is known.
    pub(super) at: u64,
    /// Hash of the file before and after an edit.
    pub(super) before: Option<Hash>,
    pub(super) after: Option<Hash>,
}

/// Session that a call started.
pub(crate) struct Child<'a> {
    pub(crate) session: &'a SessionId,
    /// Role, or id of the agent.
    pub(crate) label: &'a str,
    /// Outcome, usage and duration, if it has ended.
    pub(crate) returned: Option<(&'a Outcome, Spent, u64)>,
    /// Start time.
    pub(super) at: u64,
}

/// Approval request for a call, or for a connection of a running call.
pub(crate) struct ApprovalItem<'a> {
    /// Reason for the request, after the host that it is about.
    pub(crate) what: Cow<'a, str>,
    /// Host that the call connects to.
    pub(super) host: Option<&'a Target>,
    /// Answer and its author.
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

    /// Adds an answer to its request. Only the first answer to a request about a host counts.
    pub(super) fn approval_answered(&mut self, host: Option<&'a Target>, answer: String) {
        let is_meant = |approval: &&mut ApprovalItem<'_>| approval.answer.is_none() && approval.host == host;
        match self.approvals.iter_mut().rev().find(is_meant) {
            Some(approval) => approval.answer = Some(answer),
            None if host.is_some() => {}
            None => self.approvals.push(ApprovalItem { what: "".into(), host, answer: Some(answer) }),
        }
    }

    /// Whether the call failed.
    pub(crate) fn failed(&self) -> bool {
        self.output.is_some_and(ToolOutput::is_error)
    }

    /// String argument by name.
    pub(super) fn argument(&self, key: &str) -> Option<&str> {
        self.arguments.get(key)?.as_str()
    }

    /// Argument that describes the call best, on one line. Empty if it is the message to the user.
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

    /// Other arguments, as the model wrote them. Those shown as a diff are omitted.
    pub(crate) fn other_arguments(&self) -> Vec<(String, String)> {
        let main_argument = self.main_argument_key();
        let other_arguments = self.arguments.iter().filter(|(key, _)| {
            Some(key.as_str()) != main_argument
                && (self.change.is_none() || !matches!(&***key, "old" | "new" | "content"))
        });
        other_arguments.map(|(key, value)| (sanitize::line(key), plain(value))).collect()
    }

    /// Output, unless the diff shows all of it.
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

/// Value for display. A string has no quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
