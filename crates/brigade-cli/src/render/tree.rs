//! Who worked for whom, one row each, folded to a number of rows.

use std::collections::BTreeSet;

use brigade_core::view::{Doing, Node, Tree};
use brigade_core::{SessionId, Status};

/// A row of a tree.
pub(crate) struct Row<'a> {
    /// The branches that lead to it.
    pub(crate) prefix: String,
    /// What it is.
    pub(crate) content: Content<'a>,
}

/// What a row is.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    /// An agent.
    Agent(&'a Node),
    /// So many more, of which there is no room to speak.
    Folded(usize),
}

/// The rows of a tree, at most `most`. Those that work are shown first, then those that did not succeed.
pub(crate) fn rows<'a>(tree: &'a Tree, root: &SessionId, most: usize) -> Vec<Row<'a>> {
    let nodes = tree.walk(root);
    let everything = nodes.len();
    if everything <= most {
        return Folded { tree, shown: None }.rows(root);
    }
    let mut ranked: Vec<&Node> = nodes;
    ranked.sort_by_key(|node| rank(node));
    for count in (1..=most).rev() {
        let folded = Folded { tree, shown: Some(chosen(tree, root, &ranked, count)) };
        let rows = folded.rows(root);
        if rows.len() <= most || count == 1 {
            return rows;
        }
    }
    Vec::new()
}

fn rank(node: &Node) -> u8 {
    match &node.doing {
        Doing::Thinking | Doing::Tool(_) | Doing::Finishing | Doing::Delegating | Doing::Summarising => 0,
        Doing::Waiting => 1,
        Doing::Ended(outcome) if outcome.status == Status::Done => 3,
        Doing::Ended(_) => 2,
    }
}

/// The first `count` of the ranked sessions, each with those above it.
fn chosen<'a>(
    tree: &'a Tree,
    root: &SessionId,
    ranked: &[&'a Node],
    count: usize,
) -> BTreeSet<&'a SessionId> {
    let mut shown = BTreeSet::new();
    for node in ranked {
        let mut missing = Vec::new();
        let mut above = Some(*node);
        while let Some(node) = above.filter(|node| !shown.contains(&node.session)) {
            missing.push(&node.session);
            above =
                node.parent.as_ref().filter(|_| node.session != *root).and_then(|parent| tree.node(parent));
        }
        if shown.len() + missing.len() <= count {
            shown.extend(missing);
        }
        if shown.len() == count {
            break;
        }
    }
    shown
}

struct Folded<'a> {
    tree: &'a Tree,
    /// Everything, where it is none.
    shown: Option<BTreeSet<&'a SessionId>>,
}

impl<'a> Folded<'a> {
    fn rows(&self, root: &SessionId) -> Vec<Row<'a>> {
        let mut rows = Vec::new();
        if let Some(node) = self.tree.node(root) {
            self.add(node, String::new(), String::new(), &mut rows);
        }
        rows
    }

    fn add(&self, node: &'a Node, prefix: String, below: String, rows: &mut Vec<Row<'a>>) {
        rows.push(Row { prefix, content: Content::Agent(node) });
        let is_shown = |child: &&Node| self.shown.as_ref().is_none_or(|shown| shown.contains(&child.session));
        let children: Vec<&Node> = node.children.iter().filter_map(|child| self.tree.node(child)).collect();
        let visible: Vec<&Node> = children.iter().copied().filter(is_shown).collect();
        let folded = children.len() - visible.len();
        for (index, child) in visible.iter().enumerate() {
            let last = index + 1 == visible.len() && folded == 0;
            let (branch, trunk) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.add(child, format!("{below}{branch}"), format!("{below}{trunk}"), rows);
        }
        if folded > 0 {
            rows.push(Row { prefix: format!("{below}└─ "), content: Content::Folded(folded) });
        }
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::{Budget, CallId, Delegation, Event, Grant, Hash, Limit, Record};

    use super::*;

    fn tree_with(children: u32) -> (Tree, SessionId) {
        let root = SessionId::root(1);
        let hash = Hash::of(b"");
        let grant =
            Grant { authority: hash, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        let delegation = || Delegation { role: Some("worker".to_owned()), ..Delegation::default() };
        let record = |seq, event| Record { session: root.clone(), seq, pos: seq, at: 0, v: 1, event };
        let started =
            Event::Started { delegation: Delegation::default(), agent: hash, grant, parent: None, depth: 0 };
        let mut records = vec![record(0, started)];
        for index in 0..children {
            let call = CallId { turn: 1, index };
            let child = root.child(call);
            let delegated = Event::Delegated { call, child, delegation: delegation(), agent: hash, grant };
            records.push(record(u64::from(index) + 1, delegated));
        }
        (Tree::fold(&records), root)
    }

    #[test]
    fn a_large_tree_is_folded_to_the_rows_there_are() {
        let (tree, root) = tree_with(10_000);
        for most in [1, 2, 3, 10, 40] {
            let rows = rows(&tree, &root, most);
            assert!(rows.len() <= most.max(2), "{} rows for {most}", rows.len());
            let shown = rows.iter().filter(|row| matches!(row.content, Content::Agent(_))).count() - 1;
            let hidden: usize =
                rows.iter().map(|row| if let Content::Folded(count) = row.content { count } else { 0 }).sum();
            assert_eq!(shown + hidden, 10_000);
        }
    }

    #[test]
    fn a_small_tree_is_shown_whole() {
        let (tree, root) = tree_with(2);
        let rows = rows(&tree, &root, 10);
        let prefixes: Vec<&str> = rows.iter().map(|row| row.prefix.as_str()).collect();
        assert_eq!(prefixes, ["", "├─ ", "└─ "]);
    }
}
