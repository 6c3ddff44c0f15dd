//! Rows of an agent tree, folded to a maximum number.

use std::collections::HashSet;

use brigade_core::view::{Node, Tree};
use brigade_core::{SessionId, Spent};

use super::status_counts::{AgentStatus, StatusCounts};

/// Rows and totals of a tree.
pub(crate) struct Overview<'a> {
    /// Rows that fit.
    pub(crate) rows: Vec<Row<'a>>,
    /// Status counts of all agents.
    pub(crate) counts: StatusCounts,
    /// Usage of all agents.
    pub(crate) spent: Spent,
    /// Turns of all agents.
    pub(crate) turns: u64,
}

/// Row of a tree.
pub(crate) struct Row<'a> {
    /// Branch lines before the content.
    pub(crate) prefix: String,
    pub(crate) content: RowContent<'a>,
}

/// Content of a row.
#[derive(Clone, Copy)]
pub(crate) enum RowContent<'a> {
    /// Agent, and the number of its children that have not ended.
    Agent(&'a Node, usize),
    /// Agents that do not fit, by status.
    Folded(StatusCounts),
}

/// Rows of a tree, at most `max_rows`. Agents that request approval come first, with some failed ones in a quarter of
/// the rows. Then come running agents, other failed ones, waiting ones and completed ones. Each is shown with all its
/// ancestors.
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

/// All agents of a tree, each after its parent.
struct TreeLayout<'a> {
    items: Vec<LayoutItem<'a>>,
}

struct LayoutItem<'a> {
    node: &'a Node,
    status: AgentStatus,
    /// Index of the parent.
    parent: Option<usize>,
    /// Number of direct children that are not shown.
    hidden: usize,
    /// Number of direct children that have not ended.
    active: usize,
    is_shown: bool,
    /// Whether it waits for an approval.
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

    /// Selects the agents to show.
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

    /// Number of rows that showing an agent adds, with its ancestors that are not shown yet, which are put into
    /// `missing`.
    fn added_rows(&self, index: usize, missing: &mut Vec<usize>) -> isize {
        missing.clear();
        let mut rows = 0;
        let mut next = Some(index);
        while let Some((index, item)) = next.and_then(|index| Some((index, self.items.get(index)?))) {
            let below_is_shown = usize::from(!missing.is_empty());
            if item.is_shown {
                // The last of the folded agents takes their row.
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
        // Nearest ancestor that is shown, for each agent that is not.
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

/// Shown and folded children of each agent.
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
        let record = |seq, event| Record {
            session: root.clone(),
            seq,
            pos: brigade_core::Cursor::new(seq),
            at: 0,
            v: 1,
            event,
        };
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
