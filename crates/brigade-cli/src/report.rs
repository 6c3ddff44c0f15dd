//! JSON report of a run.

use brigade::RunError;
use brigade_core::view::{AgentMessage, CostSummary, FileChange, NodeSummary, StatusSummary};
use brigade_core::{Outcome, SessionId};
use serde::Serialize;

use crate::follow::RunView;
use crate::progress;
use crate::store_advice;

/// Object that `--output-format json` prints, and the last line of `stream-json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    result: &'a str,
    #[serde(flatten)]
    status: StatusSummary,
    session_id: &'a SessionId,
    turns: u64,
    #[serde(flatten)]
    cost: CostSummary,
    agents: Vec<Agent<'a>>,
    messages: Vec<AgentMessage>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

/// One session of the tree, with its own usage.
#[derive(Debug, Serialize)]
pub(crate) struct Agent<'a> {
    #[serde(flatten)]
    summary: NodeSummary<'a>,
    duration_ms: u64,
    /// Files that the session changed with edit tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<FileChange<'a>>,
}

impl<'a> Report<'a> {
    /// Report of a run and its tree.
    pub(crate) fn new(view: &'a RunView, outcome: Result<&'a Outcome, &RunError>) -> Report<'a> {
        let (result, status, warnings) = match outcome {
            Ok(outcome) => {
                (outcome.text.as_str(), StatusSummary::from(&outcome.status), &outcome.warnings[..])
            }
            Err(error) => ("", StatusSummary::failed(store_advice::describe_run(error)), &[][..]),
        };
        let sent = view.tree.agent_messages().iter();
        let messages =
            sent.map(|sent| AgentMessage { text: progress::message(&sent.role, &sent.text), ..sent.clone() });
        Report {
            kind: "result",
            result,
            status,
            session_id: &view.root,
            turns: view.tree.node(&view.root).map_or(0, |node| node.turns),
            cost: CostSummary::from(&view.tree.spent(&view.root)),
            agents: agents(view),
            messages: messages.collect(),
            warnings,
        }
    }
}

/// All sessions of a tree, depth first.
pub(crate) fn agents(view: &RunView) -> Vec<Agent<'_>> {
    let nodes = view.tree.walk(&view.root).into_iter();
    nodes
        .map(|node| Agent {
            summary: node.summary(),
            duration_ms: view.tree.working_time([&node.session], None),
            changes: node.file_changes(),
        })
        .collect()
}
