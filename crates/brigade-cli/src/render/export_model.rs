//! Run tree as input of the document exports.

use std::collections::HashMap;

use brigade_core::view::{Activity, Node, Totals};
use brigade_core::{Record, SessionId, Status};

use super::table::outcome_cell;
use super::timeline::{Timeline, status_text};
use super::{Row, fit, overview, subtree_totals};
use crate::follow::RunView;
use crate::sanitize;

/// Maximum width of a title.
const MAX_TITLE_COLUMNS: usize = 100;

/// Complete run tree.
pub(crate) struct ExportedRun {
    /// View of its log.
    pub(crate) view: RunView,
    pub(crate) records: Vec<Record>,
    /// Reason why the rest of the log cannot be read, if so.
    pub(crate) fault: Option<String>,
}

/// Outcome of an agent, as a word and as text.
pub(crate) struct OutcomeLabel {
    /// One word, usable as a CSS class.
    pub(crate) word: &'static str,
    /// The word, with the reason if there is one.
    pub(crate) text: String,
}

impl ExportedRun {
    /// First line of the task.
    pub(crate) fn title(&self) -> String {
        let task = self.root().map_or("", |node| node.task.trim());
        let line = sanitize::line(task.lines().next().unwrap_or_default());
        if line.is_empty() { self.view.root.to_string() } else { fit(&line, MAX_TITLE_COLUMNS) }
    }

    /// Root agent.
    pub(crate) fn root(&self) -> Option<&Node> {
        self.view.tree.node(&self.view.root)
    }

    /// Every agent with its timeline, depth first.
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

    /// Every agent as a row of the tree.
    pub(crate) fn rows(&self) -> Vec<Row<'_>> {
        overview(&self.view.tree, &self.view.root, usize::MAX / 2).rows
    }

    /// Totals of an agent and its descendants.
    pub(crate) fn totals(&self, session: &SessionId) -> Totals {
        self.view.tree.totals(session)
    }
}

/// Outcome of an agent.
pub(crate) fn outcome_label(node: &Node) -> OutcomeLabel {
    match &node.activity {
        Activity::Ended(outcome) => status_label(&outcome.status),
        activity => OutcomeLabel { word: "unfinished", text: outcome_cell(activity).0 },
    }
}

/// Label of a status.
pub(crate) fn status_label(status: &Status) -> OutcomeLabel {
    OutcomeLabel { word: status.as_str(), text: sanitize::line(&status_text(status)) }
}

/// Anchor of a session in a document.
pub(crate) fn anchor(session: &SessionId) -> String {
    format!("agent{}", subtree_totals::session_path(session).replace('.', "_"))
}
