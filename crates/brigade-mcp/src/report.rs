//! Results in the words of the protocol.

use brigade_core::account::Account;
use brigade_core::delegation::Which;
use brigade_core::text::cut;
use brigade_core::view::{Doing, Node};
use brigade_core::{Outcome, SessionId, Spent, Status, ToolOutput};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Value, json};

use crate::sessions::{Found, Lent, Life};
use crate::text;

/// The key of `_meta` that the session of a call stands under.
const SESSION: &str = "brigade/session";
/// How many agents of a tree are listed.
const MOST_AGENTS: usize = 100;
/// How much of a result one call reads, in bytes.
const MOST_READ: usize = 16_384;

/// A plain result.
pub(crate) fn done(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A failure that a model can read and act on.
pub(crate) fn failed(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// What a call gave.
pub(crate) fn of_call(output: &ToolOutput, session: &SessionId, spent: &Spent) -> CallToolResult {
    let text = output.text.to_string();
    with_session(if output.is_error() { failed(text) } else { done(text) }, session, spent)
}

/// Why a call that has ended gave nothing, and what helps.
pub(crate) fn without_result(outcome: &Outcome, lent: Lent) -> String {
    let word = outcome.status.word();
    let cause = match &outcome.status {
        Status::Incomplete { limit } => {
            let limit_name = limit.phrase();
            format!("stopped at the {limit_name} before there was a result; {}", more(*limit, lent))
        }
        Status::Failed { cause } | Status::Lost { cause } => text::line(cause, 500),
        Status::Cancelled { by } => format!("stopped by {}", text::line(by, 64)),
        Status::Done | Status::Detached => "there was no result".to_owned(),
    };
    match outcome.text.as_str().trim() {
        "" => format!("{word}: {cause}"),
        text => format!("{word}: {cause}\n{text}"),
    }
}

/// What raises a limit.
fn more(limit: Which, lent: Lent) -> String {
    let flag = match limit {
        Which::Turns => "--set limits.lead_turns=N",
        Which::Tokens => "--budget-tokens N",
        Which::Usd => "--budget-usd N",
        Which::Time => "--timeout TIME",
        Which::Agents => "--max-agents N",
        Which::Loop => "--set limits.loop_limit=N",
        Which::Permission => "--mode MODE",
    };
    match lent {
        Lent::Here => format!("start brigade mcp with a higher one: {flag}"),
        Lent::ByCaller => format!("the caller lent too little, or brigade mcp needs a higher one: {flag}"),
    }
}

/// Says which session a result comes from, and what that has cost.
pub(crate) fn with_session(mut result: CallToolResult, session: &SessionId, spent: &Spent) -> CallToolResult {
    let mut meta = MetaObject::new();
    meta.insert(SESSION.to_owned(), json!(session.as_str()));
    Account::from(spent).put(&mut meta);
    result.meta = Some(meta);
    result
}

fn dollars(nano: u64) -> f64 {
    nano as f64 / 1e9
}

/// The state of a tree, for people and for programs.
pub(crate) fn status(found: &Found) -> CallToolResult {
    let (state, note) = state(found);
    let spent = found.spent();
    let nodes: Vec<&Node> = found.tree.walk(&found.session);
    let mut lines = vec![format!(
        "{} {state}; {} agents, {} tokens, ${:.4}{note}",
        found.session,
        spent.agents,
        spent.amount().tokens,
        dollars(spent.usd)
    )];
    let workers = || nodes.iter().filter(|node| node.session != found.root);
    for node in workers().take(MOST_AGENTS) {
        lines.push(format!("- {} [{}]: {}", text::line(&node.label, 64), node.session, doing(node)));
    }
    if workers().count() > MOST_AGENTS {
        lines.push(format!("- and {} more", workers().count() - MOST_AGENTS));
    }
    let questions: Vec<_> =
        found.tree.questions().filter(|question| found.session.contains(&question.session)).collect();
    for question in &questions {
        let what = text::line(question.what.as_str(), 200);
        lines.push(format!("? {} asks: {what} (brigade answer {})", question.session, question.name()));
    }
    let agents: Vec<Value> = workers()
        .take(MOST_AGENTS)
        .map(|node| {
            json!({
                "session_id": node.session.as_str(),
                "name": text::line(&node.label, 64),
                "state": doing(node),
                "turns": node.turns,
                "tokens": node.own.amount().tokens,
            })
        })
        .collect();
    let mut result = done(lines.join("\n"));
    result.structured_content = Some(json!({
        "session_id": found.session.as_str(),
        "state": state,
        "spent": Account::from(&spent).to_json(),
        "agents": agents,
        "open_questions": questions.iter().map(|question| question.name()).collect::<Vec<_>>(),
    }));
    result
}

/// State of the session that was asked about, and what can be done about it.
fn state(found: &Found) -> (&'static str, String) {
    let ended = found.outcome().filter(|_| found.is_over(&found.session));
    match (ended.map(|outcome| &outcome.status), found.life) {
        // The session at the top only forwards a call, so it is done whatever the call gave.
        (Some(Status::Done), _) if found.call_failed() => ("failed", String::new()),
        (Some(status), _) => (status.word(), String::new()),
        (None, Life::Running) => ("running", String::new()),
        (None, Life::Interrupted) => ("interrupted", format!("; {}", resume(&found.root))),
        (None, Life::Over) => ("over", String::new()),
    }
}

/// What to do about a tree that nobody runs.
pub(crate) fn resume(root: &SessionId) -> String {
    format!("the process that ran it has ended; `brigade resume {root}` goes on with it")
}

fn doing(node: &Node) -> String {
    match &node.doing {
        Doing::Waiting => "waiting".to_owned(),
        Doing::Thinking => "thinking".to_owned(),
        Doing::Tool(tool) => format!("using {}", text::line(tool, 64)),
        Doing::Delegating => "waiting for its agents".to_owned(),
        Doing::Finishing => "finishing".to_owned(),
        Doing::Summarising => "summing up".to_owned(),
        Doing::Ended(outcome) => outcome.status.word().to_owned(),
    }
}

/// A part of a text, from a byte on.
pub(crate) fn range(whole: &str, offset: u64, limit: Option<u64>) -> String {
    let mut from = usize::try_from(offset).unwrap_or(usize::MAX).min(whole.len());
    while !whole.is_char_boundary(from) {
        from -= 1;
    }
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MOST_READ).clamp(4, MOST_READ);
    let part = cut(whole.get(from..).unwrap_or_default(), limit);
    let end = from + part.len();
    match end == whole.len() {
        true if from == 0 => part.to_owned(),
        true => format!("{part}\n(end of {} bytes)", whole.len()),
        false => format!("{part}\n(bytes {from} to {end} of {}; go on with offset {end})", whole.len()),
    }
}

/// Several trees, a line each.
pub(crate) fn list(found: &[Found]) -> CallToolResult {
    if found.is_empty() {
        return done("No session was started here yet.");
    }
    let lines = found.iter().map(|found| {
        let task = found.tree.node(&found.root).map(|node| text::line(&node.task, 80)).unwrap_or_default();
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
