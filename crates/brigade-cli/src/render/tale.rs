//! A whole tree as it is told in a document.

use std::collections::HashMap;

use brigade_core::view::{Doing, Node};
use brigade_core::{Record, SessionId, Status};

use super::story::{Story, ending};
use super::table::outcome;
use super::{Branch, Row, branches, fit, overview};
use crate::follow::View;
use crate::safe;

/// How long a title is.
const TITLE: usize = 100;

/// All that is known of a tree.
pub(crate) struct Tale {
    /// The projection of its log.
    pub(crate) view: View,
    /// The log.
    pub(crate) records: Vec<Record>,
    /// Why there is no more of it, where some of it cannot be read.
    pub(crate) fault: Option<String>,
}

/// What became of an agent, in a word and in whole.
pub(crate) struct Fate {
    /// A word that can be a class.
    pub(crate) word: &'static str,
    /// The word, and the reason where there is one.
    pub(crate) text: String,
}

impl Tale {
    /// The first line of the task.
    pub(crate) fn title(&self) -> String {
        let task = self.root().map_or("", |node| node.task.trim());
        let line = safe::line(task.lines().next().unwrap_or_default());
        if line.is_empty() { self.view.root.to_string() } else { fit(&line, TITLE) }
    }

    /// The agent at the top.
    pub(crate) fn root(&self) -> Option<&Node> {
        self.view.tree.node(&self.view.root)
    }

    /// Every agent with what happened to it, depth first.
    pub(crate) fn stories(&self) -> Vec<(&Node, Story<'_>)> {
        let mut logs: HashMap<&SessionId, Vec<&Record>> = HashMap::new();
        for record in &self.records {
            logs.entry(&record.session).or_default().push(record);
        }
        let nodes = self.view.tree.walk(&self.view.root);
        nodes
            .into_iter()
            .map(|node| (node, Story::of(logs.remove(&node.session).unwrap_or_default())))
            .collect()
    }

    /// Every agent in its place.
    pub(crate) fn rows(&self) -> Vec<Row<'_>> {
        overview(&self.view.tree, &self.view.root, usize::MAX / 2).rows
    }

    /// An agent and all below it.
    pub(crate) fn branch(&self, session: &SessionId) -> Branch {
        Branch::of(&self.view.tree, session)
    }
}

/// What became of an agent.
pub(crate) fn fate(node: &Node) -> Fate {
    match &node.doing {
        Doing::Ended(outcome) => fate_of(&outcome.status),
        doing => Fate { word: "unfinished", text: outcome(doing).0 },
    }
}

/// What a status says.
pub(crate) fn fate_of(status: &Status) -> Fate {
    Fate { word: status.word(), text: safe::line(&ending(status)) }
}

/// The name of the place in a document where a session is told.
pub(crate) fn anchor(session: &SessionId) -> String {
    format!("agent{}", branches::path(session).replace('.', "_"))
}
