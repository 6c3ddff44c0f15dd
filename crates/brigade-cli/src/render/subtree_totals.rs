//! Table of cost and time: each agent's own, and the totals of its subtree.

use brigade_core::view::{Activity, Node};
use brigade_core::{Resources, SessionId, Spent, Status};

use super::table::{outcome_cell, unconfirmed};
use super::timeline::status_text;
use super::{RowContent, fit, layout, overview, wrap_hanging, wrap_text};
use crate::follow::RunView;
use crate::sanitize;
use crate::terminal::Colour;
use crate::units;

/// Maximum number of agents listed, unless all are requested.
const MAX_ROWS: usize = 60;
/// Maximum number of failure causes listed below the table.
const MAX_CAUSES: usize = 20;
const MAX_LABEL_COLUMNS: usize = 40;
const MAX_NARROW_LABEL_COLUMNS: usize = 18;
const MAX_OUTCOME_COLUMNS: usize = 18;
/// Tables narrower than this use short labels.
const NARROW_COLUMNS: usize = 60;
/// Columns in the order in which they are dropped if there is not enough room.
const COLUMN_DROP_ORDER: [usize; 8] = [7, 3, 4, 10, 6, 2, 8, 9];
const HEADERS: [&str; 11] =
    ["agent", "outcome", "id", "turns", "tokens", "cost", "time", "Σ agents", "Σ tokens", "Σ cost", "Σ time"];

/// Amount of a tree that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeDetail {
    /// At most [`MAX_ROWS`] agents.
    Folded,
    Full,
}

/// Tree as a table of at most `room` columns, followed by the causes of failures.
pub(crate) fn subtree_totals(view: &RunView, detail: TreeDetail, colour: Colour, room: usize) -> String {
    let max_rows = if detail == TreeDetail::Full { usize::MAX / 2 } else { MAX_ROWS };
    let mut lines = vec![HEADERS.map(str::to_owned)];
    let rows = overview(&view.tree, &view.root, max_rows).rows;
    let label = if room < NARROW_COLUMNS { MAX_NARROW_LABEL_COLUMNS } else { MAX_LABEL_COLUMNS };
    for row in &rows {
        lines.push(match row.content {
            RowContent::Agent(node, _) => {
                cells(view, node, fit(&format!("{}{}", row.prefix, sanitize::line(&node.label)), label))
            }
            RowContent::Folded(counts) => {
                let mut cells = std::array::from_fn(|_| String::new());
                cells[0] = format!("{}… {counts} (--full)", row.prefix);
                cells
            }
        });
    }
    let mut text = layout(&lines, colour, room, 3, &COLUMN_DROP_ORDER);
    let spent = view.tree.spent(&view.root);
    text.push_str(&unconfirmed(&spent, room));
    if spent.reported != Resources::default() {
        let (tokens, usd) =
            (units::format_compact(spent.reported.tokens), units::format_dollars(spent.reported.usd));
        let agents = match spent.reported.agents {
            0 => String::new(),
            agents => format!(" and {}", units::count(agents, "sub-agent")),
        };
        let reported = format!("reported by external agents: {tokens} tokens, {usd}{agents}");
        text.push_str(&format!("{}\n", wrap_text(&reported, room)));
    }
    text.push_str(&failure_causes(view, colour, room));
    text
}

fn cells(view: &RunView, node: &Node, label: String) -> [String; 11] {
    let tokens = |spent: &Spent| units::format_compact(spent.usage.total());
    let mut cells = [
        label,
        fit(&outcome_cell(&node.activity).0, MAX_OUTCOME_COLUMNS),
        session_path(&node.session).to_owned(),
        node.turns.to_string(),
        tokens(&node.own_usage),
        units::format_cost(&node.own_usage),
        units::format_elapsed(view.tree.working_time([&node.session], None)),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    ];
    if !node.children.is_empty() {
        let totals = view.tree.totals(&node.session);
        cells[7] = totals.agents.to_string();
        cells[8] = tokens(&totals.spent);
        cells[9] = units::brief_cost(&totals.spent);
        cells[10] = units::format_elapsed(totals.time);
    }
    cells
}

/// Part of a session id that locates the session in its tree.
pub(crate) fn session_path(session: &SessionId) -> &str {
    session.as_str().find('.').map_or("", |dot| &session.as_str()[dot..])
}

/// Causes of agents that did not finish, one per line.
fn failure_causes(view: &RunView, colour: Colour, room: usize) -> String {
    let nodes = view.tree.walk(&view.root);
    let unfinished = nodes.into_iter().filter_map(|node| match &node.activity {
        Activity::Ended(outcome) if !matches!(outcome.status, Status::Done | Status::Detached) => {
            Some((node, &outcome.status))
        }
        _ => None,
    });
    let unfinished: Vec<(&Node, &Status)> = unfinished.collect();
    let mut text = String::new();
    for (node, status) in unfinished.iter().take(MAX_CAUSES) {
        let line = sanitize::line(&format!("{} {}", node.label, status_text(status)));
        let path = session_path(&node.session);
        let lines = wrap_hanging(format!("✗ {line} {path}").trim_end(), room, 2);
        for line in lines {
            // The path ends the last line.
            let (line, path) = line.strip_suffix(path).map_or((line.as_str(), ""), |line| (line, path));
            text.push_str(&format!("{}{}\n", colour.paint("31", line), colour.paint("2", path)));
        }
    }
    if unfinished.len() > MAX_CAUSES {
        let more = units::count(unfinished.len() - MAX_CAUSES, "more unfinished agent");
        text.push_str(&format!("✗ … and {more}\n"));
    }
    text
}
