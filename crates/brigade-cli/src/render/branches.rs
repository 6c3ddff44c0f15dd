//! What each branch of a tree cost and how long it took: the agent's own part, and with all below it.

use brigade_core::view::{Doing, Node, Tree};
use brigade_core::{Amount, SessionId, Spent, Status};

use super::story::{count, ending};
use super::table::{in_doubt, outcome};
use super::{Content, fit, hanging, layout, overview, wrapped};
use crate::follow::View;
use crate::safe;
use crate::terminal::Colour;
use crate::units;

/// The most agents that are listed, unless all are wanted.
const MOST_ROWS: usize = 60;
/// The most causes that are told below the table.
const MOST_CAUSES: usize = 20;
const LABEL: usize = 40;
const NARROW_LABEL: usize = 18;
const STATE: usize = 18;
/// Columns that have less room than this have short names in them.
const NARROW: usize = 60;
/// The columns that are left out first where there is little room.
const LEFT_OUT: [usize; 8] = [7, 3, 4, 10, 6, 2, 8, 9];
const HEADS: [&str; 11] =
    ["agent", "outcome", "id", "turns", "tokens", "cost", "time", "Σ agents", "Σ tokens", "Σ cost", "Σ time"];

/// How much of a tree is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breadth {
    /// As many agents as fit a few screens.
    Folded,
    /// All.
    Whole,
}

/// What an agent and all below it did and used up.
pub(crate) struct Branch {
    /// How many agents.
    pub(crate) agents: usize,
    /// Model calls that were answered.
    pub(crate) turns: u64,
    /// What they used up.
    pub(crate) spent: Spent,
    /// How long somebody of them worked, in milliseconds.
    pub(crate) time: u64,
}

impl Branch {
    /// The branch that begins with a session.
    pub(crate) fn of(tree: &Tree, root: &SessionId) -> Branch {
        let nodes = tree.walk(root);
        Branch {
            agents: nodes.len(),
            turns: nodes.iter().map(|node| node.turns).sum(),
            spent: nodes.iter().fold(Spent::default(), |sum, node| sum.plus(node.own)),
            time: tree.working_time(nodes.iter().map(|node| &node.session), None),
        }
    }
}

/// The tree as a table, and why agents did not finish below it, in at most so many columns.
pub(crate) fn branches(view: &View, breadth: Breadth, colour: Colour, room: usize) -> String {
    let most = if breadth == Breadth::Whole { usize::MAX / 2 } else { MOST_ROWS };
    let mut lines = vec![HEADS.map(str::to_owned)];
    let rows = overview(&view.tree, &view.root, most).rows;
    let label = if room < NARROW { NARROW_LABEL } else { LABEL };
    for row in &rows {
        lines.push(match row.content {
            Content::Agent(node, _) => {
                cells(view, node, fit(&format!("{}{}", row.prefix, safe::line(&node.label)), label))
            }
            Content::Folded(tally) => {
                let mut cells = std::array::from_fn(|_| String::new());
                cells[0] = format!("{}… {tally} (--full)", row.prefix);
                cells
            }
        });
    }
    let mut text = layout(&lines, colour, room, 3, &LEFT_OUT);
    let spent = view.tree.spent(&view.root);
    text.push_str(&in_doubt(&spent, room));
    if spent.reported != Amount::default() {
        let (tokens, usd) = (units::short(spent.reported.tokens), units::shown_dollars(spent.reported.usd));
        let agents = match spent.reported.agents {
            0 => String::new(),
            agents => format!(" and started {}", count(agents, "sub-agent")),
        };
        let reported =
            format!("external agents say they used {tokens} tokens, {usd}{agents}, on their own account");
        text.push_str(&format!("{}\n", wrapped(&reported, room)));
    }
    text.push_str(&causes(view, colour, room));
    text
}

fn cells(view: &View, node: &Node, label: String) -> [String; 11] {
    let tokens = |spent: &Spent| units::short(spent.usage.total());
    let mut cells = [
        label,
        fit(&outcome(&node.doing).0, STATE),
        path(&node.session).to_owned(),
        node.turns.to_string(),
        tokens(&node.own),
        units::cost(&node.own),
        units::elapsed(view.tree.working_time([&node.session], None)),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    ];
    if !node.children.is_empty() {
        let branch = Branch::of(&view.tree, &node.session);
        cells[7] = branch.agents.to_string();
        cells[8] = tokens(&branch.spent);
        cells[9] = units::brief_cost(&branch.spent);
        cells[10] = units::elapsed(branch.time);
    }
    cells
}

/// What stands after the first part of an id: where in its tree the session is.
pub(crate) fn path(session: &SessionId) -> &str {
    session.as_str().find('.').map_or("", |dot| &session.as_str()[dot..])
}

/// Why agents did not finish, a line each.
fn causes(view: &View, colour: Colour, room: usize) -> String {
    let nodes = view.tree.walk(&view.root);
    let unfinished = nodes.into_iter().filter_map(|node| match &node.doing {
        Doing::Ended(outcome) if !matches!(outcome.status, Status::Done | Status::Detached) => {
            Some((node, &outcome.status))
        }
        _ => None,
    });
    let unfinished: Vec<(&Node, &Status)> = unfinished.collect();
    let mut text = String::new();
    for (node, status) in unfinished.iter().take(MOST_CAUSES) {
        let line = safe::line(&format!("{} {}", node.label, ending(status)));
        let path = path(&node.session);
        let lines = hanging(format!("✗ {line} {path}").trim_end(), room, 2);
        for line in lines {
            // The path ends the last line.
            let (line, path) = line.strip_suffix(path).map_or((line.as_str(), ""), |line| (line, path));
            text.push_str(&format!("{}{}\n", colour.paint("31", line), colour.paint("2", path)));
        }
    }
    if unfinished.len() > MOST_CAUSES {
        let more = count((unfinished.len() - MOST_CAUSES) as u64, "more agent");
        text.push_str(&format!("✗ … and {more} that did not finish\n"));
    }
    text
}
