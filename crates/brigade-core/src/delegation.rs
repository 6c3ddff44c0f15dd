//! Delegations and their outcomes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::grant::Budget;
use crate::permission::Mode;
use crate::remote_context::RemoteContext;
use crate::text::Text;

/// Tool family that a delegation came through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelegationStyle {
    /// No tool: the user started the session.
    #[default]
    Run,
    /// `delegate`: a role and a task.
    Delegate,
    /// `subagent`: a recursive helper.
    Subagent,
    /// `subagent_dispatch`: a defined agent.
    Dispatch,
    /// `subagent_spawn`, `subagent_delegate`: a nested loop.
    Spawn,
}

impl DelegationStyle {
    /// Whether a tool starts its sessions, and not the user.
    pub fn has_tools(self) -> bool {
        self != DelegationStyle::Run
    }

    /// Returns the name in config and output.
    pub fn name(self) -> &'static str {
        match self {
            DelegationStyle::Run => "run",
            DelegationStyle::Delegate => "delegate",
            DelegationStyle::Subagent => "subagent",
            DelegationStyle::Dispatch => "dispatch",
            DelegationStyle::Spawn => "spawn",
        }
    }
}

impl fmt::Display for DelegationStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Task for an agent, whatever its delegation style.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delegation {
    /// Delegation style.
    #[serde(rename = "face")]
    pub style: DelegationStyle,
    /// Id of the agent, if it was requested by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// External agent that runs the task: `server`, or `server/agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// Role, label or title, in the caller's spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Label or description as the caller wrote it, if `role` contains it escaped or shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    /// Task to do.
    pub task: Text,
    /// Background for the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Text>,
    /// Tool whitelist of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Turn limit of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Budget of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Time limit of the call, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Prompt that requests the report, if the style has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Text>,
    /// Maximum number of bytes of the report that the caller reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_bytes: Option<usize>,
    /// System prompt of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<Text>,
    /// JSON Schema that the result must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Text>,
    /// Whether the caller continues while the child works.
    #[serde(skip_serializing_if = "is_foreground")]
    #[serde(rename = "waiting")]
    pub execution: Execution,
    /// Whether the task is a single generation: no tools, no loop.
    #[serde(skip_serializing_if = "is_false")]
    pub single: bool,
    /// Number of a `subagent_spawn` or `subagent_delegate` call in its tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Warnings for the caller about how the call was understood, such as unknown tool names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Context of the calling process, if the task came from another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "hop")]
    pub remote_context: Option<Box<RemoteContext>>,
    /// Configured mode when a top-level round began. Absent if the user chose the mode for this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured_mode: Option<Mode>,
    /// Environment that the top-level agent is told about. Later rounds keep it, so that their requests share a
    /// prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Box<Environment>>,
}

/// Environment of a session when it started. The folder and the mode are part of the authority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Operating system and processor.
    pub system: String,
    /// Date, such as `2026-11-16 (UTC)`.
    pub date: String,
    /// Branch and state of the git repository, if the folder is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<String>,
}

impl Delegation {
    /// Returns the label or description as the caller wrote it.
    pub fn full_title(&self) -> &str {
        self.title.as_ref().map(Text::as_str).or(self.role.as_deref()).unwrap_or_default()
    }

    /// Returns the display name of the session: its role, its agent, or `lead` at the top of a tree.
    pub fn label(&self) -> &str {
        self.role.as_deref().or(self.agent.as_deref()).unwrap_or("lead")
    }
}

/// Whether the caller of a delegation waits for its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// The child's outcome is the result of the call.
    #[default]
    Foreground,
    /// The call returns at once. The outcome is delivered later, and the caller waits for it before it ends.
    Background,
    /// Like `Background`, but a caller that ends detaches the child.
    Detachable,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_foreground(execution: &Execution) -> bool {
    *execution == Execution::Foreground
}

/// Outcome of one round: its terminal status and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Terminal status.
    #[serde(flatten)]
    pub status: Status,
    /// Result, possibly partial.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub text: Text,
    /// Warnings for the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Terminal statuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    /// The round finished.
    Done,
    /// A limit stopped the round; the text is its partial result.
    Incomplete {
        /// Limit that was reached.
        limit: LimitKind,
    },
    /// The round failed.
    Failed {
        /// Cause of the failure.
        cause: String,
    },
    /// The round was cancelled.
    Cancelled {
        /// Name of the canceller.
        by: String,
    },
    /// The outcome is unknown.
    Lost {
        /// Known details.
        cause: String,
    },
    /// The session continues detached, within its loan.
    Detached,
}

impl Status {
    /// Returns the status as one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Status::Done => "done",
            Status::Incomplete { .. } => "incomplete",
            Status::Failed { .. } => "failed",
            Status::Cancelled { .. } => "cancelled",
            Status::Lost { .. } => "lost",
            Status::Detached => "detached",
        }
    }
}

impl Outcome {
    /// Creates an outcome without warnings.
    pub fn new(status: Status, text: impl Into<Text>) -> Outcome {
        Outcome { status, text: text.into(), warnings: Vec::new() }
    }

    /// Returns the final line that the runtime adds for the model, unless the run completed without warnings.
    pub fn note(&self) -> Option<String> {
        let mut notes = Vec::new();
        if let Status::Incomplete { limit } = &self.status {
            notes.push(format!("(incomplete: {limit})"));
        }
        notes.extend(self.warnings.iter().map(|warning| format!("(warning: {warning})")));
        (!notes.is_empty()).then(|| notes.join(" "))
    }
}

/// Limits that can stop a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variant names are self-explanatory")]
pub enum LimitKind {
    Turns,
    Tokens,
    Usd,
    Time,
    Agents,
    /// Repetition of the same calls with the same results.
    Loop,
    /// Permission that an external agent needs and was denied.
    Permission,
}

impl LimitKind {
    /// Returns the limit as a phrase.
    pub fn label(self) -> &'static str {
        match self {
            LimitKind::Turns => "turn limit",
            LimitKind::Tokens => "token limit",
            LimitKind::Usd => "cost limit",
            LimitKind::Time => "time limit",
            LimitKind::Agents => "agent limit",
            LimitKind::Loop => "repeated-call limit",
            LimitKind::Permission => "permission limit",
        }
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitKind::Turns => "turns",
            LimitKind::Tokens => "tokens",
            LimitKind::Usd => "usd",
            LimitKind::Time => "time",
            LimitKind::Agents => "agents",
            LimitKind::Loop => "loop",
            LimitKind::Permission => "permission",
        })
    }
}

#[cfg(test)]
mod tests;
