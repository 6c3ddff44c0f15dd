//! What an external agent told beside its words: kept in the record with its reply, and read again to be shown.

use std::fmt;

use agent_client_protocol::v1::schema::{ToolCallStatus, ToolKind};
use serde::{Deserialize, Serialize};

/// One thing that it told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum AgentUpdate {
    /// What it thought.
    Thought {
        /// In its words.
        thought: String,
    },
    /// What it means to do.
    Plan {
        /// Step by step.
        plan: Vec<String>,
    },
    /// Something that it did by itself, or that became of that.
    ToolCall {
        /// What it calls it.
        tool_call: Option<String>,
        /// What kind of work it says that it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<ToolKind>,
        /// How far it is.
        #[serde(default)]
        status: Option<ToolCallStatus>,
    },
    /// A sub-agent that it started.
    SubAgent {
        /// What it calls the sub-agent.
        sub_agent: String,
        /// What the sub-agent is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        /// How far the sub-agent is, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
}

/// All of one reply, as it stands in the record.
#[derive(Serialize, Deserialize)]
struct StoredUpdates {
    external: Vec<AgentUpdate>,
}

impl AgentUpdate {
    /// Writes them for the record.
    pub(super) fn write(updates: Vec<AgentUpdate>) -> Option<String> {
        serde_json::to_string(&StoredUpdates { external: updates }).ok()
    }

    /// Reads what a block of a reply says that the model alone understands; nothing where it is of another kind.
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
                let what = tool_call.as_deref().filter(|what| !what.is_empty()).unwrap_or("a tool call");
                match status {
                    Some(ToolCallStatus::Completed) => write!(f, "done by itself: {what}"),
                    Some(ToolCallStatus::Failed) => write!(f, "failed by itself: {what}"),
                    _ => write!(f, "does by itself: {what}"),
                }?;
                // Its names are words in snake case.
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
                "does by itself: Read a.txt (read)",
                "failed by itself: a tool call",
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
