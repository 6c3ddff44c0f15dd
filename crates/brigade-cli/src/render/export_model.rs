//! A whole tree as it is told in a document.

use std::collections::HashMap;

use brigade_core::view::{Activity, Node};
use brigade_core::{Record, SessionId, Status};

use super::table::outcome_cell;
use super::timeline::{Timeline, status_text};
use super::{Row, SubtreeTotals, fit, overview, subtree_totals};
use crate::follow::RunView;
use crate::sanitize;

/// How long a title is.
const MAX_TITLE_COLUMNS: usize = 100;

/// All that is known of a tree.
pub(crate) struct ExportedRun {
    /// The projection of its log.
    pub(crate) view: RunView,
    /// The log.
    pub(crate) records: Vec<Record>,
    /// Why there is no more of it, where some of it cannot be read.
    pub(crate) fault: Option<String>,
}

/// What became of an agent, in a word and in whole.
pub(crate) struct OutcomeLabel {
    /// A word that can be a class.
    pub(crate) word: &'static str,
    /// The word, and the reason where there is one.
    pub(crate) text: String,
}

impl ExportedRun {
    /// The first line of the task.
    pub(crate) fn title(&self) -> String {
        let task = self.root().map_or("", |node| node.task.trim());
        let line = sanitize::line(task.lines().next().unwrap_or_default());
        if line.is_empty() { self.view.root.to_string() } else { fit(&line, MAX_TITLE_COLUMNS) }
    }

    /// The agent at the top.
    pub(crate) fn root(&self) -> Option<&Node> {
        self.view.tree.node(&self.view.root)
    }

    /// Every agent with what happened to it, depth first.
    pub(crate) fn timelines(&self) -> Vec<(&Node, Timeline<'_>)> {
        let mut logs: HashMap<&SessionId, Vec<&Record>> = HashMap::new();
        for record in &self.records {
            logs.entry(&record.session).or_default().push(record);
        }
        let nodes = self.view.tree.walk(&self.view.root);
        nodes
            .into_iter()
            .map(|node| (node, Timeline::of(logs.remove(&node.session).unwrap_or_default())))
            .collect()
    }

    /// Every agent in its place.
    pub(crate) fn rows(&self) -> Vec<Row<'_>> {
        overview(&self.view.tree, &self.view.root, usize::MAX / 2).rows
    }

    /// An agent and all below it.
    pub(crate) fn totals(&self, session: &SessionId) -> SubtreeTotals {
        SubtreeTotals::of(&self.view.tree, session)
    }
}

/// What became of an agent.
pub(crate) fn outcome_label(node: &Node) -> OutcomeLabel {
    match &node.activity {
        Activity::Ended(outcome) => status_label(&outcome.status),
        activity => OutcomeLabel { word: "unfinished", text: outcome_cell(activity).0 },
    }
}

/// What a status says.
pub(crate) fn status_label(status: &Status) -> OutcomeLabel {
    OutcomeLabel { word: status.as_str(), text: sanitize::line(&status_text(status)) }
}

/// The name of the place in a document where a session is told.
pub(crate) fn anchor(session: &SessionId) -> String {
    format!("agent{}", subtree_totals::session_path(session).replace('.', "_"))
}
