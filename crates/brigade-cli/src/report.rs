//! JSON report of a run.

use brigade::RunError;
use brigade_core::view::{Activity, Node};
use brigade_core::{Outcome, SessionId, Spent, Status};
use serde::Serialize;

use crate::follow::RunView;
use crate::progress;
use crate::store_advice;
use crate::units;

/// Object that `--output-format json` prints, and the last line of `stream-json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(rename = "type")]
    kind: &'static str,
    result: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    session_id: SessionId,
    turns: u64,
    usage: Usage,
    cost_usd: f64,
    /// Whether `cost_usd` is missing calls of models with unknown prices.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cost_unknown: bool,
    agents: Vec<Agent>,
    messages: Vec<Message>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Usage {
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

/// One session of the tree, with its own usage.
#[derive(Debug, Serialize)]
pub(crate) struct Agent {
    session_id: SessionId,
    parent: Option<SessionId>,
    depth: u32,
    key: String,
    agent: String,
    task: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    turns: u64,
    tool_calls: u64,
    tool_errors: u64,
    usage: Usage,
    cost_usd: f64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cost_unknown: bool,
    duration_ms: u64,
    /// Files that the session changed with edit tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Change>,
}

/// File that an agent changed, with the line counts of all its edits.
#[derive(Debug, Serialize)]
struct Change {
    path: String,
    added: u32,
    removed: u32,
}

#[derive(Debug, Serialize)]
struct Message {
    session: SessionId,
    role: String,
    text: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    fn of(spent: &Spent) -> Usage {
        Usage {
            input_tokens: spent.usage.input,
            output_tokens: spent.usage.output,
            cache_read_tokens: spent.usage.cache_read,
            cache_write_tokens: spent.usage.cache_write,
            in_doubt_tokens: spent.unconfirmed.tokens,
            reported_tokens: spent.reported.tokens,
            reported_usd: units::dollars_as_f64(spent.reported.usd),
            reported_agents: spent.reported.agents,
            cost_not_reported: spent.cost_unreported > 0,
        }
    }
}

impl Report {
    /// Report of a run and its tree.
    pub(crate) fn new(view: &RunView, outcome: Result<&Outcome, &RunError>) -> Report {
        let spent = view.tree.spent(&view.root);
        let (result, status, limit, error, warnings) = match outcome {
            Ok(outcome) => {
                let (limit, error) = details(&outcome.status);
                (outcome.text.to_string(), outcome.status.as_str(), limit, error, outcome.warnings.clone())
            }
            Err(error) => {
                (String::new(), "failed", None, Some(store_advice::describe_run(error)), Vec::new())
            }
        };
        let sent = view.tree.agent_messages().iter();
        let messages = sent.map(|sent| Message {
            session: sent.session.clone(),
            role: sent.role.clone(),
            text: progress::message(&sent.role, &sent.text),
        });
        Report {
            kind: "result",
            result,
            status,
            limit,
            error,
            session_id: view.root.clone(),
            turns: view.tree.node(&view.root).map_or(0, |node| node.turns),
            usage: Usage::of(&spent),
            cost_usd: units::dollars_as_f64(spent.usd),
            cost_unknown: spent.unpriced > 0,
            agents: agents(view),
            messages: messages.collect(),
            warnings,
        }
    }
}

/// All sessions of a tree, depth first.
pub(crate) fn agents(view: &RunView) -> Vec<Agent> {
    view.tree.walk(&view.root).into_iter().map(|node| agent(view, node)).collect()
}

fn agent(view: &RunView, node: &Node) -> Agent {
    let changes = node.changes.iter();
    let changes = changes.map(|(path, lines)| Change {
        path: path.clone(),
        added: lines.added,
        removed: lines.removed,
    });
    let (status, (limit, error)) = match &node.activity {
        Activity::Ended(outcome) => (outcome.status.as_str(), details(&outcome.status)),
        Activity::Pending => ("waiting", (None, None)),
        Activity::Thinking
        | Activity::Tool(_)
        | Activity::Delegating
        | Activity::WrappingUp
        | Activity::Compacting => ("unfinished", (None, None)),
    };
    Agent {
        session_id: node.session.clone(),
        parent: node.parent.clone(),
        depth: node.depth,
        key: node.key(),
        agent: node.label.clone(),
        task: node.task.clone(),
        status,
        limit,
        error,
        turns: node.turns,
        tool_calls: node.tool_calls,
        tool_errors: node.tool_errors,
        usage: Usage::of(&node.own_usage),
        cost_usd: units::dollars_as_f64(node.own_usage.usd),
        cost_unknown: node.own_usage.unpriced > 0,
        duration_ms: view.tree.working_time([&node.session], None),
        changes: changes.collect(),
    }
}

/// Limit and cause of an end that is not a success.
fn details(status: &Status) -> (Option<String>, Option<String>) {
    match status {
        Status::Done | Status::Detached => (None, None),
        Status::Incomplete { limit } => (Some(limit.to_string()), None),
        Status::Failed { cause } | Status::Lost { cause } => (None, Some(cause.clone())),
        Status::Cancelled { by } => (None, Some(format!("cancelled by {by}"))),
    }
}
