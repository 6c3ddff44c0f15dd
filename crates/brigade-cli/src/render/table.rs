//! What each agent cost.

use brigade_core::view::{Doing, Node};
use brigade_core::{Spent, Status};
use unicode_width::UnicodeWidthStr;

use super::{Content, fit, pad, rows};
use crate::clock;
use crate::follow::View;
use crate::safe;
use crate::terminal::Colour;
use crate::units;

/// The most agents that are listed.
const MOST_ROWS: usize = 60;
const LABEL: usize = 36;
const STATE: usize = 18;
/// The columns that are left out first where there is little room: turns, out, in, time.
const LEFT_OUT: [usize; 4] = [2, 4, 3, 6];

/// The tree with what each agent did and used up, and the sum, in at most so many columns.
pub(crate) fn costs(view: &View, colour: Colour, columns: usize) -> String {
    let rows = rows(&view.tree, &view.root, MOST_ROWS);
    let mut lines = vec![["agent", "state", "turns", "in", "out", "cost", "time"].map(str::to_owned)];
    for row in &rows {
        lines.push(match row.content {
            Content::Agent(node) => cells(&row.prefix, node),
            Content::Folded(count) => {
                let mut cells = std::array::from_fn(|_| String::new());
                cells[0] = format!("{}… and {count} more", row.prefix);
                cells
            }
        });
    }
    if rows.len() > 1 {
        lines.push(total(view));
    }
    layout(&lines, colour, columns, 2, &LEFT_OUT)
}

/// What all sessions of each agent used up, and the sum, in at most so many columns.
pub(crate) fn costs_by_agent(view: &View, colour: Colour, columns: usize) -> String {
    let mut sums: Vec<(&str, usize, Spent)> = Vec::new();
    let nodes = view.tree.walk(&view.root);
    for node in &nodes {
        match sums.iter_mut().find(|(label, _, _)| *label == node.label) {
            Some((_, count, spent)) => (*count, *spent) = (*count + 1, spent.plus(node.own)),
            None => sums.push((&node.label, 1, node.own)),
        }
    }
    let line = |label: String, count: usize, spent: &Spent| {
        let [input, output, cost] = amounts(spent);
        [label, count.to_string(), input, output, cost]
    };
    let mut lines = vec![["agent", "sessions", "in", "out", "cost"].map(str::to_owned)];
    lines
        .extend(sums.iter().map(|(label, count, spent)| line(fit(&safe::line(label), LABEL), *count, spent)));
    lines.push(line("total".to_owned(), nodes.len(), &view.tree.spent(&view.root)));
    layout(&lines, colour, columns, 1, &[1, 3, 2])
}

fn cells(prefix: &str, node: &Node) -> [String; 7] {
    let end = if matches!(node.doing, Doing::Ended(_)) { node.changed_at } else { clock::now() };
    let label = format!("{prefix}{}", safe::line(&node.label));
    let [input, output, cost] = amounts(&node.own);
    let time = units::elapsed(end.saturating_sub(node.started_at));
    [
        fit(&label, LABEL),
        fit(&state_word(&node.doing), STATE),
        node.turns.to_string(),
        input,
        output,
        cost,
        time,
    ]
}

fn amounts(spent: &Spent) -> [String; 3] {
    let usage = spent.usage;
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    [units::short(input), units::short(usage.output), units::shown_dollars(spent.usd)]
}

fn total(view: &View) -> [String; 7] {
    let spent = view.tree.spent(&view.root);
    let turns: u64 = view.tree.walk(&view.root).iter().map(|node| node.turns).sum();
    let [input, output, cost] = amounts(&spent);
    let doubt = match spent.in_doubt.tokens {
        0 => String::new(),
        tokens => format!("{} tok in doubt", units::short(tokens)),
    };
    ["total".to_owned(), doubt, turns.to_string(), input, output, cost, String::new()]
}

/// What became of an agent, in a word or two.
pub(super) fn state_word(doing: &Doing) -> String {
    match doing {
        Doing::Waiting => "waiting".to_owned(),
        Doing::Thinking | Doing::Tool(_) | Doing::Delegating | Doing::Finishing | Doing::Summarising => {
            "unfinished".to_owned()
        }
        Doing::Ended(outcome) => match &outcome.status {
            Status::Incomplete { limit } => format!("incomplete: {limit}"),
            status => status.word().to_owned(),
        },
    }
}

/// Lays cells out, the first columns as texts and all others as numbers. Where they do not fit side by side, the least
/// telling columns are left out.
pub(crate) fn layout<const N: usize>(
    lines: &[[String; N]],
    colour: Colour,
    room: usize,
    texts: usize,
    left_out: &[usize],
) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| lines.iter().map(|line| line[column].width()).max().unwrap_or(0));
    // A column with nothing below its head says nothing.
    let says = |column: &usize| *column == 0 || lines.iter().skip(1).any(|line| !line[*column].is_empty());
    let mut columns: Vec<usize> = (0..N).filter(says).collect();
    for dispensable in left_out {
        let needed: usize = columns.iter().map(|column| widths[*column] + 2).sum();
        if needed <= room.saturating_add(2) {
            break;
        }
        columns.retain(|column| column != dispensable);
    }
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells = columns.iter().map(|column| {
            let (cell, width) = (&line[*column], widths[*column]);
            match *column < texts {
                true => pad(cell, width),
                false => format!("{}{cell}", " ".repeat(width.saturating_sub(cell.width()))),
            }
        });
        let row = cells.collect::<Vec<_>>().join("  ");
        let row = row.trim_end();
        text.push_str(&if number == 0 { colour.paint("2", row) } else { row.to_owned() });
        text.push('\n');
    }
    text
}
