//! Updates of an external agent other than its text. They are stored with its reply and shown in transcripts.

use std::fmt;

use agent_client_protocol_schema::v1::{ToolCallStatus, ToolKind};
use serde::{Deserialize, Serialize};

/// An update.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum AgentUpdate {
    /// Reasoning.
    Thought {
        /// The text.
        thought: String,
    },
    /// A plan.
    Plan {
        /// The steps.
        plan: Vec<String>,
    },
    /// A tool call that the agent ran itself.
    ToolCall {
        /// Its title.
        tool_call: Option<String>,
        /// The reported kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<ToolKind>,
        /// The last reported status.
        #[serde(default)]
        status: Option<ToolCallStatus>,
    },
    /// A sub-agent that the agent started.
    SubAgent {
        /// Its name.
        sub_agent: String,
        /// Its task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        /// Its last reported state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
}

/// The updates of one reply, as they are stored.
#[derive(Serialize, Deserialize)]
struct StoredUpdates {
    external: Vec<AgentUpdate>,
}

impl AgentUpdate {
    /// Serializes updates for the log.
    pub(super) fn write(updates: Vec<AgentUpdate>) -> Option<String> {
        serde_json::to_string(&StoredUpdates { external: updates }).ok()
    }

    /// Parses an opaque block of a reply. Returns nothing for a block of another model.
    pub fn read(block: &str) -> Vec<AgentUpdate> {
        serde_json::from_str(block).map(|stored: StoredUpdates| stored.external).unwrap_or_default()
    }
}

impl fmt::Display for AgentUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentUpdate::Thought { thought } => write!(f, "thought: {}", thought.trim()),
            AgentUpdate::Plan { plan } => write!(f, "plan: {}", plan.join("; ")),
            AgentUpdate::SubAgent { sub_agent, task, state } => {
                write!(f, "sub-agent {sub_agent}")?;
                if let Some(task) = task {
                    write!(f, ": {task}")?;
                }
                state.as_ref().map_or(Ok(()), |state| write!(f, " ({state})"))
            }
            AgentUpdate::ToolCall { tool_call, kind, status } => {
                let what = tool_call.as_deref().filter(|what| !what.is_empty()).unwrap_or("untitled");
                match status {
                    Some(ToolCallStatus::Completed) => write!(f, "tool call done: {what}"),
                    Some(ToolCallStatus::Failed) => write!(f, "tool call failed: {what}"),
                    _ => write!(f, "tool call: {what}"),
                }?;
                // The names of the kinds are in snake case.
                match kind.and_then(|kind| serde_json::to_value(kind).ok()) {
                    Some(serde_json::Value::String(kind)) => write!(f, " ({})", kind.replace('_', " ")),
                    _ => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_read_back_and_displayed() {
        let updates = vec![
            AgentUpdate::Thought { thought: " hm\n".to_owned() },
            AgentUpdate::Plan { plan: vec!["look".to_owned(), "mend".to_owned()] },
            AgentUpdate::ToolCall {
                tool_call: Some("Read a.txt".to_owned()),
                kind: Some(ToolKind::Read),
                status: Some(ToolCallStatus::Pending),
            },
            AgentUpdate::ToolCall { tool_call: None, kind: None, status: Some(ToolCallStatus::Failed) },
            AgentUpdate::SubAgent {
                sub_agent: "Scout".to_owned(),
                task: Some("find it".to_owned()),
                state: Some("done".to_owned()),
            },
            AgentUpdate::SubAgent { sub_agent: "s1".to_owned(), task: None, state: None },
        ];
        let block = AgentUpdate::write(updates.clone()).unwrap();
        assert_eq!(AgentUpdate::read(&block), updates);
        let labels: Vec<String> = updates.iter().map(AgentUpdate::to_string).collect();
        assert_eq!(
            labels,
            [
                "thought: hm",
                "plan: look; mend",
                "tool call: Read a.txt (read)",
                "tool call failed: untitled",
                "sub-agent Scout: find it (done)",
                "sub-agent s1"
            ]
        );
    }

    #[test]
    fn blocks_of_other_models_are_not_updates() {
        for block in ["", "{}", r#"{"type":"thinking","thinking":"x"}"#, r#"{"external":[{"odd":1}]}"#] {
            assert_eq!(AgentUpdate::read(block), [], "{block}");
        }
    }
}
