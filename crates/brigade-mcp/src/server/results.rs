//! Conversion of results to the protocol.

use brigade_core::delegation::LimitKind;
use brigade_core::text::truncate_bytes;
use brigade_core::usage_report::UsageReport;
use brigade_core::view::{Activity, Node};
use brigade_core::{Outcome, SessionId, Spent, Status, ToolOutput};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Value, json};

use crate::server::sessions::{FoundSession, LimitSource, RunStatus};
use crate::server::text;

/// The `_meta` key for the session id of a call.
const SESSION_META_KEY: &str = "brigade/session";
/// Maximum number of agents that a status lists.
const MAX_LISTED_AGENTS: usize = 100;
/// Maximum size of a result that one call returns.
const MAX_READ_BYTES: usize = 16_384;

/// A successful text result.
pub(crate) fn done(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// An error that the model can read and act on.
pub(crate) fn failed(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// The result of a call.
pub(crate) fn from_call(output: &ToolOutput, session: &SessionId, spent: &Spent) -> CallToolResult {
    let text = output.text.to_string();
    with_session(if output.is_error() { failed(text) } else { done(text) }, session, spent)
}

/// Explains why a call ended without a result, and how to fix it.
pub(crate) fn missing_result_message(outcome: &Outcome, limit_source: LimitSource) -> String {
    let word = outcome.status.as_str();
    let cause = match &outcome.status {
        Status::Incomplete { limit } => {
            let limit_name = limit.label();
            format!(
                "reached the {limit_name} before returning a result; {}",
                raise_limit_hint(*limit, limit_source)
            )
        }
        Status::Failed { cause } | Status::Lost { cause } => text::one_line(cause, 500),
        Status::Cancelled { by } => format!("stopped by {}", text::one_line(by, 64)),
        Status::Done | Status::Detached => "there was no result".to_owned(),
    };
    match outcome.text.as_str().trim() {
        "" => format!("{word}: {cause}"),
        text => format!("{word}: {cause}\n{text}"),
    }
}

/// The option that raises a limit.
fn raise_limit_hint(limit: LimitKind, limit_source: LimitSource) -> String {
    let flag = match limit {
        LimitKind::Turns => "--set limits.lead_turns=N",
        LimitKind::Tokens => "--budget-tokens N",
        LimitKind::Usd => "--budget-usd N",
        LimitKind::Time => "--timeout TIME",
        LimitKind::Agents => "--max-agents N",
        LimitKind::Loop => "--set limits.loop_limit=N",
        LimitKind::Permission => {
            return "start `brigade mcp` with a less restrictive mode (--mode MODE)".to_owned();
        }
    };
    match limit_source {
        LimitSource::Server => format!("start `brigade mcp` with a higher limit ({flag})"),
        LimitSource::Caller => {
            format!("raise the budget of the call, or start `brigade mcp` with a higher limit ({flag})")
        }
    }
}

/// Adds the session id and usage to a result.
pub(crate) fn with_session(mut result: CallToolResult, session: &SessionId, spent: &Spent) -> CallToolResult {
    let mut meta = MetaObject::new();
    meta.insert(SESSION_META_KEY.to_owned(), json!(session.as_str()));
    UsageReport::from(spent).write_meta(&mut meta);
    result.meta = Some(meta);
    result
}

fn dollars(nano: u64) -> f64 {
    nano as f64 / 1e9
}

/// Status of a tree, as text and as structured content.
pub(crate) fn status(found: &FoundSession) -> CallToolResult {
    let (state, note) = state(found);
    let spent = found.spent();
    let nodes: Vec<&Node> = found.tree.walk(&found.session);
    let noun = if spent.agents == 1 { "agent" } else { "agents" };
    let mut lines = vec![format!(
        "{} {state}; {} {noun}, {} tokens, ${:.4}{note}",
        found.session,
        spent.agents,
        spent.amount().tokens,
        dollars(spent.usd)
    )];
    let agent_nodes = || nodes.iter().filter(|node| node.session != found.root);
    for node in agent_nodes().take(MAX_LISTED_AGENTS) {
        lines.push(format!("- {} [{}]: {}", text::one_line(&node.label, 64), node.session, activity(node)));
    }
    if agent_nodes().count() > MAX_LISTED_AGENTS {
        lines.push(format!("- and {} more", agent_nodes().count() - MAX_LISTED_AGENTS));
    }
    let questions: Vec<_> =
        found.tree.pending_approvals().filter(|question| found.session.contains(&question.session)).collect();
    for question in &questions {
        let what = text::one_line(question.what.as_str(), 200);
        let host = question.host.as_ref().map(|host| format!("connect to {host} during "));
        let what = format!("{}{what}", host.unwrap_or_default());
        lines.push(format!(
            "{} requests approval: {what} (answer with `brigade answer {}`)",
            question.session,
            question.name()
        ));
    }
    let agents: Vec<Value> = agent_nodes()
        .take(MAX_LISTED_AGENTS)
        .map(|node| {
            json!({
                "session_id": node.session.as_str(),
                "name": text::one_line(&node.label, 64),
                "state": activity(node),
                "turns": node.turns,
                "tokens": node.own_usage.amount().tokens,
            })
        })
        .collect();
    let mut result = done(lines.join("\n"));
    result.structured_content = Some(json!({
        "session_id": found.session.as_str(),
        "state": state,
        "spent": UsageReport::from(&spent).to_json(),
        "agents": agents,
        "open_questions": questions.iter().map(|question| question.name()).collect::<Vec<_>>(),
    }));
    result
}

/// State of the requested session, and a hint for the caller.
fn state(found: &FoundSession) -> (&'static str, String) {
    let ended = found.outcome().filter(|_| found.is_over(&found.session));
    match (ended.map(|outcome| &outcome.status), found.run_status) {
        // The root session only forwards a call, so it is done whatever the result of the call.
        (Some(Status::Done), _) if found.call_failed() => ("failed", String::new()),
        (Some(status), _) => (status.as_str(), String::new()),
        (None, RunStatus::Running) => ("running", String::new()),
        (None, RunStatus::Interrupted) => ("interrupted", format!("; {}", resume(&found.root))),
        (None, RunStatus::Ended) => ("over", String::new()),
    }
}

/// Hint for a tree that no process is running.
pub(crate) fn resume(root: &SessionId) -> String {
    format!("the process that ran it has ended. Resume it with `brigade resume {root}`")
}

fn activity(node: &Node) -> String {
    match &node.activity {
        Activity::Pending => "waiting".to_owned(),
        Activity::Thinking => "thinking".to_owned(),
        Activity::Tool(tool) => format!("using {}", text::one_line(tool, 64)),
        Activity::Delegating => "waiting for its sub-agents".to_owned(),
        Activity::WrappingUp => "finishing".to_owned(),
        Activity::Compacting => "compacting the conversation".to_owned(),
        Activity::Ended(outcome) => outcome.status.as_str().to_owned(),
    }
}

/// Returns a range of a text, starting at a byte offset.
pub(crate) fn range(full: &str, offset: u64, limit: Option<u64>) -> String {
    let mut from = usize::try_from(offset).unwrap_or(usize::MAX).min(full.len());
    while !full.is_char_boundary(from) {
        from -= 1;
    }
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(MAX_READ_BYTES)
        .clamp(4, MAX_READ_BYTES);
    let slice = truncate_bytes(full.get(from..).unwrap_or_default(), limit);
    let end = from + slice.len();
    match end == full.len() {
        true if from == 0 => slice.to_owned(),
        true => format!("{slice}\n(end of the result, {} bytes in total)", full.len()),
        false => format!("{slice}\n(bytes {from} to {end} of {}; continue with offset {end})", full.len()),
    }
}

/// Lists several trees, one per line.
pub(crate) fn list(found: &[FoundSession]) -> CallToolResult {
    if found.is_empty() {
        return done("No sessions have been started here yet.");
    }
    let lines = found.iter().map(|found| {
        let task =
            found.tree.node(&found.root).map(|node| text::one_line(&node.task, 80)).unwrap_or_default();
        format!("{} {}: {task}", found.root, state(found).0)
    });
    let mut result = done(lines.collect::<Vec<_>>().join("\n"));
    let sessions: Vec<Value> = found
        .iter()
        .map(|found| json!({ "session_id": found.root.as_str(), "state": state(found).0 }))
        .collect();
    result.structured_content = Some(json!({ "sessions": sessions }));
    result
}
