//! Who worked for whom, one row each, folded to a number of rows.

use std::collections::HashSet;

use brigade_core::view::{Node, Tree};
use brigade_core::{SessionId, Spent};

use super::stage::{Stage, Tally};

/// A tree in rows, and in numbers.
pub(crate) struct Overview<'a> {
    /// The rows that there is room for.
    pub(crate) rows: Vec<Row<'a>>,
    /// How far the agents are, all of them.
    pub(crate) tally: Tally,
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
    pub(crate) content: Content<'a>,
}

/// What a row is.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    /// An agent, and how many of its children have not ended.
    Agent(&'a Node, usize),
    /// So many more, of which there is no room to speak.
    Folded(Tally),
}

/// The rows of a tree, at most `most`. Those that ask are shown first, with some that failed in a quarter of the rows,
/// then those that work, others that failed, those that wait and those that are done; each beneath all above it.
pub(crate) fn overview<'a>(tree: &'a Tree, root: &SessionId, most: usize) -> Overview<'a> {
    let mut sketch = Sketch::of(tree, root);
    sketch.choose(most);
    let mut overview =
        Overview { rows: sketch.rows(), tally: Tally::default(), spent: Spent::default(), turns: 0 };
    for item in &sketch.items {
        overview.tally.add(item.stage);
        overview.spent = overview.spent.plus(item.node.own);
        overview.turns += item.node.turns;
    }
    overview
}

/// All agents of a tree, each after the one above it.
struct Sketch<'a> {
    items: Vec<Item<'a>>,
}

struct Item<'a> {
    node: &'a Node,
    stage: Stage,
    /// The place of the one above it.
    above: Option<usize>,
    /// How many directly below it are not shown.
    hidden: usize,
    /// How many directly below it have not ended.
    active: usize,
    is_shown: bool,
    /// Whether a person is to answer it something.
    is_asking: bool,
}

impl<'a> Sketch<'a> {
    fn of(tree: &'a Tree, root: &SessionId) -> Sketch<'a> {
        let asking: HashSet<&SessionId> = tree.questions().map(|question| &question.session).collect();
        let mut items: Vec<Item<'a>> = Vec::new();
        let mut stack = vec![(root, None)];
        while let Some((session, above)) = stack.pop() {
            let Some(node) = tree.node(session) else { continue };
            let stage = Stage::of(&node.doing);
            if let Some(above) = above.and_then(|above: usize| items.get_mut(above)) {
                above.hidden += 1;
                above.active += usize::from(stage.is_active());
            }
            let place = items.len();
            let is_asking = asking.contains(session);
            items.push(Item { node, stage, above, hidden: 0, active: 0, is_shown: false, is_asking });
            stack.extend(node.children.iter().rev().map(|child| (child, Some(place))));
        }
        Sketch { items }
    }

    /// Decides who is shown.
    fn choose(&mut self, most: usize) {
        let mut trouble = 0;
        let mut rank = |place: usize, item: &Item<'_>| match item.stage {
            _ if place == 0 => 0,
            _ if item.is_asking => 1,
            Stage::Working => 2,
            Stage::Waiting => 4,
            Stage::Done => 5,
            Stage::Failed | Stage::Incomplete | Stage::Cancelled => {
                trouble += 1;
                if trouble <= most / 4 { 1 } else { 3 }
            }
        };
        let places = self.items.iter().enumerate();
        let mut order: Vec<(u8, usize)> = places.map(|(place, item)| (rank(place, item), place)).collect();
        order.sort_unstable();
        let mut rows = 0;
        let mut missing = Vec::new();
        for (_, place) in order {
            let more = self.would_add(place, &mut missing);
            if place == 0 || rows + more <= most as isize {
                rows += more;
                missing.iter().for_each(|place| self.show(*place));
            }
        }
    }

    /// How many rows more there are with an agent and all above it that are `missing` yet.
    fn would_add(&self, place: usize, missing: &mut Vec<usize>) -> isize {
        missing.clear();
        let mut rows = 0;
        let mut next = Some(place);
        while let Some((place, item)) = next.and_then(|place| Some((place, self.items.get(place)?))) {
            let below_is_shown = usize::from(!missing.is_empty());
            if item.is_shown {
                // Whoever was the last of the folded ones takes their row.
                return rows - isize::from(item.hidden == below_is_shown && item.hidden > 0);
            }
            rows += 1 + isize::from(item.hidden > below_is_shown);
            missing.push(place);
            next = item.above;
        }
        rows
    }

    fn show(&mut self, place: usize) {
        let Some(item) = self.items.get_mut(place) else { return };
        item.is_shown = true;
        if let Some(above) = item.above.and_then(|above| self.items.get_mut(above)) {
            above.hidden -= 1;
        }
    }

    fn rows(&self) -> Vec<Row<'a>> {
        let mut branches = Branches { shown: vec![Vec::new(); self.items.len()], folded: Vec::new() };
        // The one that speaks for an agent that is not shown: the lowest above it that is.
        let mut spoken_for: Vec<usize> = Vec::with_capacity(self.items.len());
        branches.folded.resize(self.items.len(), Tally::default());
        for (place, item) in self.items.iter().enumerate() {
            let above = item.above.unwrap_or(0);
            if item.is_shown {
                spoken_for.push(place);
                if item.above.is_some()
                    && let Some(shown) = branches.shown.get_mut(above)
                {
                    shown.push(place);
                }
            } else {
                let speaker = spoken_for.get(above).copied().unwrap_or(0);
                spoken_for.push(speaker);
                if let Some(tally) = branches.folded.get_mut(speaker) {
                    tally.add(item.stage);
                }
            }
        }
        let mut rows = Vec::new();
        self.add(0, String::new(), "", &branches, &mut rows);
        rows
    }

    fn add(&self, place: usize, prefix: String, below: &str, branches: &Branches, rows: &mut Vec<Row<'a>>) {
        let Some(item) = self.items.get(place) else { return };
        rows.push(Row { prefix, content: Content::Agent(item.node, item.active) });
        let (Some(shown), Some(folded)) = (branches.shown.get(place), branches.folded.get(place)) else {
            return;
        };
        for (number, child) in shown.iter().enumerate() {
            let is_last = number + 1 == shown.len() && folded.sum() == 0;
            let (branch, trunk) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.add(*child, format!("{below}{branch}"), &format!("{below}{trunk}"), branches, rows);
        }
        if folded.sum() > 0 {
            rows.push(Row { prefix: format!("{below}└─ "), content: Content::Folded(*folded) });
        }
    }
}

/// Who is shown beneath whom, and who is not.
struct Branches {
    shown: Vec<Vec<usize>>,
    folded: Vec<Tally>,
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
    fn a_large_tree_is_folded_to_the_rows_there_are() {
        let (tree, root) = tree_with(10_000);
        for most in [1, 2, 3, 10, 40] {
            let rows = overview(&tree, &root, most).rows;
            assert!(rows.len() <= most.max(2), "{} rows for {most}", rows.len());
            let shown = rows.iter().filter(|row| matches!(row.content, Content::Agent(..))).count() - 1;
            let hidden: usize = rows
                .iter()
                .map(|row| if let Content::Folded(tally) = row.content { tally.sum() } else { 0 })
                .sum();
            assert_eq!(shown + hidden, 10_000);
        }
    }

    #[test]
    fn a_small_tree_is_shown_whole() {
        let (tree, root) = tree_with(2);
        let rows = overview(&tree, &root, 10).rows;
        let prefixes: Vec<&str> = rows.iter().map(|row| row.prefix.as_str()).collect();
        assert_eq!(prefixes, ["", "├─ ", "└─ "]);
    }
}
