//! Who worked for whom, one row each, folded to a number of rows.

use std::collections::HashSet;

use brigade_core::view::{Node, Tree};
use brigade_core::{SessionId, Spent};

use super::status_counts::{AgentStatus, StatusCounts};

/// A tree in rows, and in numbers.
pub(crate) struct Overview<'a> {
    /// The rows that there is room for.
    pub(crate) rows: Vec<Row<'a>>,
    /// How far the agents are, all of them.
    pub(crate) counts: StatusCounts,
    /// What they used up.
    pub(crate) spent: Spent,
    /// Their turns.
    pub(crate) turns: u64,
}

/// A row of a tree.
pub(crate) struct Row<'a> {
    /// The branches that lead to it.
    pub(crate) prefix: String,
    /// What it is.
    pub(crate) content: RowContent<'a>,
}

/// What a row is.
#[derive(Clone, Copy)]
pub(crate) enum RowContent<'a> {
    /// An agent, and how many of its children have not ended.
    Agent(&'a Node, usize),
    /// So many more, of which there is no room to speak.
    Folded(StatusCounts),
}

/// The rows of a tree, at most `most`. Those that ask are shown first, with some that failed in a quarter of the rows,
/// then those that work, others that failed, those that wait and those that are done; each beneath all above it.
pub(crate) fn overview<'a>(tree: &'a Tree, root: &SessionId, max_rows: usize) -> Overview<'a> {
    let mut layout = TreeLayout::of(tree, root);
    layout.select_rows(max_rows);
    let mut overview =
        Overview { rows: layout.rows(), counts: StatusCounts::default(), spent: Spent::default(), turns: 0 };
    for item in &layout.items {
        overview.counts.add(item.status);
        overview.spent = overview.spent.plus(item.node.own_usage);
        overview.turns += item.node.turns;
    }
    overview
}

/// All agents of a tree, each after the one above it.
struct TreeLayout<'a> {
    items: Vec<LayoutItem<'a>>,
}

struct LayoutItem<'a> {
    node: &'a Node,
    status: AgentStatus,
    /// The place of the one above it.
    parent: Option<usize>,
    /// How many directly below it are not shown.
    hidden: usize,
    /// How many directly below it have not ended.
    active: usize,
    is_shown: bool,
    /// Whether a person is to answer it something.
    is_asking: bool,
}

impl<'a> TreeLayout<'a> {
    fn of(tree: &'a Tree, root: &SessionId) -> TreeLayout<'a> {
        let asking: HashSet<&SessionId> =
            tree.pending_approvals().map(|question| &question.session).collect();
        let mut items: Vec<LayoutItem<'a>> = Vec::new();
        let mut stack = vec![(root, None)];
        while let Some((session, parent)) = stack.pop() {
            let Some(node) = tree.node(session) else { continue };
            let status = AgentStatus::of(&node.activity);
            if let Some(parent) = parent.and_then(|parent: usize| items.get_mut(parent)) {
                parent.hidden += 1;
                parent.active += usize::from(status.is_active());
            }
            let index = items.len();
            let is_asking = asking.contains(session);
            items.push(LayoutItem { node, status, parent, hidden: 0, active: 0, is_shown: false, is_asking });
            stack.extend(node.children.iter().rev().map(|child| (child, Some(index))));
        }
        TreeLayout { items }
    }

    /// Decides who is shown.
    fn select_rows(&mut self, max_rows: usize) {
        let mut failed = 0;
        let mut rank = |index: usize, item: &LayoutItem<'_>| match item.status {
            _ if index == 0 => 0,
            _ if item.is_asking => 1,
            AgentStatus::Working => 2,
            AgentStatus::Waiting => 4,
            AgentStatus::Done => 5,
            AgentStatus::Failed | AgentStatus::Incomplete | AgentStatus::Cancelled => {
                failed += 1;
                if failed <= max_rows / 4 { 1 } else { 3 }
            }
        };
        let indexed_items = self.items.iter().enumerate();
        let mut order: Vec<(u8, usize)> =
            indexed_items.map(|(index, item)| (rank(index, item), index)).collect();
        order.sort_unstable();
        let mut rows = 0;
        let mut missing = Vec::new();
        for (_, index) in order {
            let more = self.added_rows(index, &mut missing);
            if index == 0 || rows + more <= max_rows as isize {
                rows += more;
                missing.iter().for_each(|index| self.show(*index));
            }
        }
    }

    /// How many rows more there are with an agent and all above it that are `missing` yet.
    fn added_rows(&self, index: usize, missing: &mut Vec<usize>) -> isize {
        missing.clear();
        let mut rows = 0;
        let mut next = Some(index);
        while let Some((index, item)) = next.and_then(|index| Some((index, self.items.get(index)?))) {
            let below_is_shown = usize::from(!missing.is_empty());
            if item.is_shown {
                // Whoever was the last of the folded ones takes their row.
                return rows - isize::from(item.hidden == below_is_shown && item.hidden > 0);
            }
            rows += 1 + isize::from(item.hidden > below_is_shown);
            missing.push(index);
            next = item.parent;
        }
        rows
    }

    fn show(&mut self, index: usize) {
        let Some(item) = self.items.get_mut(index) else { return };
        item.is_shown = true;
        if let Some(parent) = item.parent.and_then(|parent| self.items.get_mut(parent)) {
            parent.hidden -= 1;
        }
    }

    fn rows(&self) -> Vec<Row<'a>> {
        let mut shown_rows = ShownRows { shown: vec![Vec::new(); self.items.len()], folded: Vec::new() };
        // The one that speaks for an agent that is not shown: the lowest above it that is.
        let mut shown_ancestors: Vec<usize> = Vec::with_capacity(self.items.len());
        shown_rows.folded.resize(self.items.len(), StatusCounts::default());
        for (index, item) in self.items.iter().enumerate() {
            let parent = item.parent.unwrap_or(0);
            if item.is_shown {
                shown_ancestors.push(index);
                if item.parent.is_some()
                    && let Some(shown) = shown_rows.shown.get_mut(parent)
                {
                    shown.push(index);
                }
            } else {
                let ancestor = shown_ancestors.get(parent).copied().unwrap_or(0);
                shown_ancestors.push(ancestor);
                if let Some(counts) = shown_rows.folded.get_mut(ancestor) {
                    counts.add(item.status);
                }
            }
        }
        let mut rows = Vec::new();
        self.add(0, String::new(), "", &shown_rows, &mut rows);
        rows
    }

    fn add(
        &self,
        index: usize,
        prefix: String,
        below: &str,
        shown_rows: &ShownRows,
        rows: &mut Vec<Row<'a>>,
    ) {
        let Some(item) = self.items.get(index) else { return };
        rows.push(Row { prefix, content: RowContent::Agent(item.node, item.active) });
        let (Some(shown), Some(folded)) = (shown_rows.shown.get(index), shown_rows.folded.get(index)) else {
            return;
        };
        for (number, child) in shown.iter().enumerate() {
            let is_last = number + 1 == shown.len() && folded.sum() == 0;
            let (branch, trunk) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.add(*child, format!("{below}{branch}"), &format!("{below}{trunk}"), shown_rows, rows);
        }
        if folded.sum() > 0 {
            rows.push(Row { prefix: format!("{below}└─ "), content: RowContent::Folded(*folded) });
        }
    }
}

/// Who is shown beneath whom, and who is not.
struct ShownRows {
    shown: Vec<Vec<usize>>,
    folded: Vec<StatusCounts>,
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
        let started = Event::Started {
            delegation: Delegation::default().into(),
            agent: hash,
            grant,
            parent: None,
            depth: 0,
        };
        let mut records = vec![record(0, started)];
        for index in 0..children {
            let call = CallId { turn: 1, index };
            let child = root.child(call);
            let delegated =
                Event::Delegated { call, child, delegation: delegation().into(), agent: hash, grant };
            records.push(record(u64::from(index) + 1, delegated));
        }
        (Tree::fold(&records), root)
    }

    #[test]
    fn large_tree_is_folded_to_the_row_limit() {
        let (tree, root) = tree_with(10_000);
        for max_rows in [1, 2, 3, 10, 40] {
            let rows = overview(&tree, &root, max_rows).rows;
            assert!(rows.len() <= max_rows.max(2), "{} rows for {max_rows}", rows.len());
            let shown = rows.iter().filter(|row| matches!(row.content, RowContent::Agent(..))).count() - 1;
            let hidden: usize = rows
                .iter()
                .map(|row| if let RowContent::Folded(counts) = row.content { counts.sum() } else { 0 })
                .sum();
            assert_eq!(shown + hidden, 10_000);
        }
    }

    #[test]
    fn small_tree_is_shown_in_full() {
        let (tree, root) = tree_with(2);
        let rows = overview(&tree, &root, 10).rows;
        let prefixes: Vec<&str> = rows.iter().map(|row| row.prefix.as_str()).collect();
        assert_eq!(prefixes, ["", "├─ ", "└─ "]);
    }
}
