//! What is asked of an agent and what comes of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::grant::Budget;
use crate::permission::Mode;
use crate::remote_context::RemoteContext;
use crate::text::Text;

/// The tool family that a delegation came through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelegationStyle {
    /// No family: a person started the session.
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
    /// The name in config and output.
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

/// What is asked of an agent, whatever family it came through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delegation {
    /// The family it came through.
    #[serde(rename = "face")]
    pub style: DelegationStyle,
    /// The id of the agent that was asked for by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The external agent that is to do it: `server`, or `server/agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// The role, label or title, in the caller's spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The label or description as the caller wrote it, if `role` shows it escaped or shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    /// What to do.
    pub task: Text,
    /// What to know for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Text>,
    /// The whitelist of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The turn limit of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The budget of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The time limit of the call, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// The prompt that asks for the report, where the family has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Text>,
    /// How many bytes of that report the caller reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_bytes: Option<usize>,
    /// A system prompt of the call's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<Text>,
    /// The JSON Schema that the result has to fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Text>,
    /// Whether the caller goes on while the child works.
    #[serde(skip_serializing_if = "is_foreground")]
    #[serde(rename = "waiting")]
    pub execution: Execution,
    /// Whether it is a single generation: no tools, no loop.
    #[serde(skip_serializing_if = "is_false")]
    pub single: bool,
    /// The rank of a face-D delegation in its tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// What the caller should know about how the call was understood, such as tool names that do not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Where it came from, where it came from another process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "hop")]
    pub remote_context: Option<Box<RemoteContext>>,
    /// The configured mode when a round at the top began. Absent if the user chose the mode for this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured_mode: Option<Mode>,
    /// Environment that the agent at the top is told of. Later rounds keep it, so that their requests begin alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Box<Environment>>,
}

/// Environment of a session when it began. The folder and the mode are part of the authority.
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
    /// The label or description as the caller wrote it.
    pub fn full_title(&self) -> &str {
        self.title.as_ref().map(Text::as_str).or(self.role.as_deref()).unwrap_or_default()
    }

    /// The name that the session is shown by: its role, its agent, or `lead` at the top of a tree.
    pub fn label(&self) -> &str {
        self.role.as_deref().or(self.agent.as_deref()).unwrap_or("lead")
    }
}

/// Whether the caller of a delegation waits for its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// The call is answered by the child's end.
    #[default]
    Foreground,
    /// The call is answered at once; the end is heard later, and waited for where the caller would end.
    Background,
    /// The same, but a caller that would end leaves the child to itself.
    Detachable,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_foreground(execution: &Execution) -> bool {
    *execution == Execution::Foreground
}

/// How a round of a session ended: its one terminal state and what it had to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The terminal state.
    #[serde(flatten)]
    pub status: Status,
    /// The result, or what there is of it.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub text: Text,
    /// What the caller should know beside the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The terminal states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    /// It finished.
    Done,
    /// A limit stopped it; the text is what was achieved.
    Incomplete {
        /// The limit.
        limit: LimitKind,
    },
    /// It could not go on.
    Failed {
        /// Why.
        cause: String,
    },
    /// It was told to stop.
    Cancelled {
        /// By whom.
        by: String,
    },
    /// Nobody can say what became of it.
    Lost {
        /// What is known.
        cause: String,
    },
    /// It goes on by itself, within what it was lent.
    Detached,
}

impl Status {
    /// One word for it.
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
    /// An outcome without warnings.
    pub fn new(status: Status, text: impl Into<Text>) -> Outcome {
        Outcome { status, text: text.into(), warnings: Vec::new() }
    }

    /// The last line that the runtime adds for the model, where the run was not plainly complete.
    pub fn note(&self) -> Option<String> {
        let mut notes = Vec::new();
        if let Status::Incomplete { limit } = &self.status {
            notes.push(format!("(incomplete: {limit})"));
        }
        notes.extend(self.warnings.iter().map(|warning| format!("(warning: {warning})")));
        (!notes.is_empty()).then(|| notes.join(" "))
    }
}

/// The limits that can stop a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum LimitKind {
    Turns,
    Tokens,
    Usd,
    Time,
    Agents,
    /// The same calls with the same results, over and over.
    Loop,
    /// A permission that an external agent needs and was denied.
    Permission,
}

impl LimitKind {
    /// The limit in a sentence.
    pub fn label(self) -> &'static str {
        match self {
            LimitKind::Turns => "turn limit",
            LimitKind::Tokens => "token limit",
            LimitKind::Usd => "cost limit",
            LimitKind::Time => "time limit",
            LimitKind::Agents => "agent limit",
            LimitKind::Loop => "repeated-call limit",
            LimitKind::Permission => "permissions",
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
