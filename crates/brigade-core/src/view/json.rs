//! JSON of the views, for reports and for programs that show a running tree.
//!
//! Keys are stable. Tokens are counts, costs are dollars, durations are milliseconds, and times are UTC milliseconds.

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{Activity, Node, PendingApproval, Totals};
use crate::amount::dollars_as_f64;
use crate::delegation::{DelegationStyle, LimitKind, Status};
use crate::event::Answer;
use crate::id::{CallId, SessionId};
use crate::money::{Resources, Spent, is_zero};
use crate::network::Target;

/// Usage and cost of a session or a subtree.
#[derive(Debug, Clone, Serialize)]
pub struct CostSummary {
    usage: UsageSummary,
    cost_usd: f64,
    /// Whether `cost_usd` is missing calls of models with unknown prices.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cost_unknown: bool,
}

#[derive(Debug, Clone, Serialize)]
struct UsageSummary {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    in_doubt_tokens: u64,
    /// Usage that external agents report. It is not included in the other totals.
    reported_tokens: u64,
    reported_usd: f64,
    /// Sub-agents that external agents report.
    #[serde(skip_serializing_if = "is_zero")]
    reported_agents: u64,
    /// Whether a cost is missing because an external agent did not report it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cost_not_reported: bool,
}

impl From<&Spent> for CostSummary {
    fn from(spent: &Spent) -> CostSummary {
        let usage = UsageSummary {
            input_tokens: spent.usage.input,
            output_tokens: spent.usage.output,
            cache_read_tokens: spent.usage.cache_read,
            cache_write_tokens: spent.usage.cache_write,
            in_doubt_tokens: spent.unconfirmed.tokens,
            reported_tokens: spent.reported.tokens,
            reported_usd: dollars_as_f64(spent.reported.usd),
            reported_agents: spent.reported.agents,
            cost_not_reported: spent.cost_unreported > 0,
        };
        CostSummary { usage, cost_usd: dollars_as_f64(spent.usd), cost_unknown: spent.unpriced > 0 }
    }
}

/// Status of a session as one word, with the limit or the cause if it is not a success.
#[derive(Debug, Clone, Serialize)]
pub struct StatusSummary {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<LimitKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl StatusSummary {
    /// Creates the summary of a run that failed before its session had an outcome.
    pub fn failed(error: String) -> StatusSummary {
        StatusSummary { error: Some(error), ..StatusSummary::word("failed") }
    }

    fn word(status: &'static str) -> StatusSummary {
        StatusSummary { status, limit: None, error: None }
    }
}

impl From<&Status> for StatusSummary {
    fn from(status: &Status) -> StatusSummary {
        let plain = StatusSummary::word(status.as_str());
        match status {
            Status::Done | Status::Detached => plain,
            Status::Incomplete { limit } => StatusSummary { limit: Some(*limit), ..plain },
            Status::Failed { cause } | Status::Lost { cause } => {
                StatusSummary { error: Some(cause.clone()), ..plain }
            }
            Status::Cancelled { by } => StatusSummary { error: Some(format!("cancelled by {by}")), ..plain },
        }
    }
}

impl From<&Activity> for StatusSummary {
    fn from(activity: &Activity) -> StatusSummary {
        match activity {
            Activity::Ended(outcome) => StatusSummary::from(&outcome.status),
            Activity::Pending => StatusSummary::word("waiting"),
            Activity::Thinking
            | Activity::Tool(_)
            | Activity::Delegating
            | Activity::WrappingUp
            | Activity::Compacting => StatusSummary::word("unfinished"),
        }
    }
}

/// Session with its status, its counts and its own usage.
#[derive(Debug, Clone, Serialize)]
pub struct NodeSummary<'a> {
    session_id: &'a SessionId,
    parent: Option<&'a SessionId>,
    depth: u32,
    key: String,
    agent: &'a str,
    task: &'a str,
    #[serde(flatten)]
    status: StatusSummary,
    turns: u64,
    tool_calls: u64,
    tool_errors: u64,
    #[serde(flatten)]
    cost: CostSummary,
}

/// File that an agent changed, with the line counts of all its edits.
#[derive(Debug, Clone, Serialize)]
pub struct FileChange<'a> {
    path: &'a str,
    added: u32,
    removed: u32,
}

impl Node {
    /// Returns the part of the session that reports and live views share.
    pub fn summary(&self) -> NodeSummary<'_> {
        NodeSummary {
            session_id: &self.session,
            parent: self.parent.as_ref(),
            depth: self.depth,
            key: self.key(),
            agent: &self.label,
            task: &self.task,
            status: StatusSummary::from(&self.activity),
            turns: self.turns,
            tool_calls: self.tool_calls,
            tool_errors: self.tool_errors,
            cost: CostSummary::from(&self.own_usage),
        }
    }

    /// Returns the files that the session changed with edit tools.
    pub fn file_changes(&self) -> Vec<FileChange<'_>> {
        let changes = self.changes.iter();
        changes.map(|(path, lines)| FileChange { path, added: lines.added, removed: lines.removed }).collect()
    }
}

#[derive(Serialize)]
struct NodeJson<'a> {
    #[serde(flatten)]
    summary: NodeSummary<'a>,
    style: DelegationStyle,
    activity: &'static str,
    /// Tool that is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    /// Result of an ended round, possibly partial.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    max_turns: u32,
    /// Resources that the next model call needed, if a budget did not cover it.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<ResourcesJson>,
    started_at: u64,
    changed_at: u64,
    children: &'a [SessionId],
    changes: Vec<FileChange<'a>>,
}

#[derive(Serialize)]
struct ResourcesJson {
    tokens: u64,
    cost_usd: f64,
    agents: u64,
}

impl From<Resources> for ResourcesJson {
    fn from(resources: Resources) -> ResourcesJson {
        let Resources { tokens, usd, agents } = resources;
        ResourcesJson { tokens, cost_usd: dollars_as_f64(usd), agents }
    }
}

/// The keys of [`NodeSummary`] and the live state. `started_at` and `changed_at` are UTC milliseconds.
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (activity, tool, outcome) = match &self.activity {
            Activity::Pending => ("pending", None, None),
            Activity::Thinking => ("thinking", None, None),
            Activity::Tool(tool) => ("tool", Some(tool.as_str()), None),
            Activity::Delegating => ("delegating", None, None),
            Activity::WrappingUp => ("wrapping_up", None, None),
            Activity::Compacting => ("compacting", None, None),
            Activity::Ended(outcome) => ("ended", None, Some(outcome)),
        };
        let node = NodeJson {
            summary: self.summary(),
            style: self.style,
            activity,
            tool,
            result: outcome.map(|outcome| outcome.text.as_str()),
            warnings: outcome.map_or(&[], |outcome| &outcome.warnings),
            max_turns: self.max_turns,
            needed: (!self.needed.is_zero()).then(|| self.needed.into()),
            started_at: self.started_at,
            changed_at: self.changed_at,
            children: &self.children,
            changes: self.file_changes(),
        };
        node.serialize(serializer)
    }
}

#[derive(Serialize)]
struct TotalsJson {
    agents: usize,
    turns: u64,
    tokens: u64,
    cost_usd: f64,
    duration_ms: u64,
    /// Whether `cost_usd` is missing calls of models with unknown prices.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cost_unknown: bool,
}

/// `tokens` are all input and output tokens, `cost_usd` is in dollars, `duration_ms` in milliseconds.
impl Serialize for Totals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let totals = TotalsJson {
            agents: self.agents,
            turns: self.turns,
            tokens: self.spent.usage.total(),
            cost_usd: dollars_as_f64(self.spent.usd),
            duration_ms: self.time,
            cost_unknown: self.spent.unpriced > 0,
        };
        totals.serialize(serializer)
    }
}

#[derive(Serialize)]
struct PendingApprovalJson<'a> {
    question: String,
    session: &'a SessionId,
    call: CallId,
    /// Host and port that the running call connects to, if the request is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a Target>,
    tool: &'a str,
    arguments: Value,
    why: &'a str,
    always: Option<&'a str>,
    asked_at: u64,
    until: u64,
    default: &'a Answer,
}

/// `question` is the name to answer it by, `host` is present if a running call connects to one, and `arguments` are those of the call, `null` if they are not JSON.
/// `asked_at` and `until` are UTC milliseconds.
impl Serialize for PendingApproval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let approval = PendingApprovalJson {
            question: self.name(),
            session: &self.session,
            call: self.call,
            host: self.host.as_ref(),
            tool: self.tool(),
            arguments: serde_json::from_str(self.arguments()).unwrap_or_default(),
            why: &self.why,
            always: self.always.as_deref(),
            asked_at: self.asked_at,
            until: self.until,
            default: &self.default,
        };
        approval.serialize(serializer)
    }
}
