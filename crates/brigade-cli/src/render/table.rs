//! What each agent cost.

use brigade_core::view::Doing;
use brigade_core::{Spent, Status};

use super::{Content, Overview, elapsed, fit, overview, pad, width};
use crate::follow::View;
use crate::safe;
use crate::terminal::Colour;
use crate::units;

/// The most agents that are listed at the end of a run; the rest is folded.
const MOST_ROWS: usize = 24;
const LABEL: usize = 36;
/// The least that is left for the outcomes.
const OUTCOME: usize = 10;
/// The columns that are left out first where there is little room: turns, out, in, time.
const LEFT_OUT: [usize; 4] = [1, 3, 2, 5];

/// The tree with what each agent did and used up, and the sum, in at most so many columns.
pub(crate) fn costs(view: &View, colour: Colour, columns: usize) -> String {
    table(view, colour, columns, usize::MAX / 2)
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

/// The same with few rows: whoever did not succeed is among them, others are counted.
pub(crate) fn summary(view: &View, colour: Colour, columns: usize) -> String {
    table(view, colour, columns, MOST_ROWS)
}

fn table(view: &View, colour: Colour, columns: usize, most: usize) -> String {
    let overview = overview(&view.tree, &view.root, most);
    let mut lines = vec![["agent", "turns", "in", "out", "cost", "time"].map(str::to_owned)];
    let mut outcomes = vec![(String::from("outcome"), "2")];
    for row in &overview.rows {
        match row.content {
            Content::Agent(node, _) => {
                let name = fit(&format!("{}{}", row.prefix, safe::line(&node.label)), LABEL.min(columns / 2));
                lines.push(cells(name, node.turns, &node.own, elapsed(&view.tree, node)));
                outcomes.push(outcome(&node.doing));
            }
            Content::Folded(tally) => {
                lines.push(std::array::from_fn(|column| match column {
                    0 => format!("{}…", row.prefix),
                    _ => String::new(),
                }));
                outcomes.push((tally.to_string(), "2"));
            }
        }
    }
    if overview.rows.len() > 1 {
        let time = view.tree.node(&view.root).map_or(0, |root| elapsed(&view.tree, root));
        lines.push(cells("total".to_owned(), overview.turns, &overview.spent, time));
        outcomes.push((total(&overview), "2"));
    }
    let numbers = layout(&lines, Colour::Off, columns.saturating_sub(OUTCOME + 2), 1, &LEFT_OUT);
    let widest = numbers.lines().map(width).max().unwrap_or(0);
    let room = columns.saturating_sub(widest + 2);
    let mut text = String::new();
    for (number, (line, (outcome, style))) in numbers.lines().zip(&outcomes).enumerate() {
        let style = if number == 0 { "2" } else { style };
        let line = if number == 0 { colour.paint("2", &pad(line, widest)) } else { pad(line, widest) };
        let row = format!("{line}  {}", colour.paint(style, &fit(outcome, room)));
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

fn cells(name: String, turns: u64, spent: &Spent, millis: u64) -> [String; 6] {
    let [input, output, cost] = amounts(spent);
    [name, turns.to_string(), input, output, cost, units::elapsed(millis)]
}

fn amounts(spent: &Spent) -> [String; 3] {
    let usage = spent.usage;
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    [units::short(input), units::short(usage.output), units::cost(spent)]
}

/// What became of all agents together.
fn total(overview: &Overview<'_>) -> String {
    match overview.spent.in_doubt.tokens {
        0 => overview.tally.to_string(),
        tokens => format!("{} tok in doubt; {}", units::short(tokens), overview.tally),
    }
}

/// What became of an agent, in words and in a style.
pub(super) fn outcome(doing: &Doing) -> (String, &'static str) {
    match doing {
        Doing::Waiting => ("waiting".to_owned(), "2"),
        Doing::Thinking | Doing::Tool(_) | Doing::Delegating | Doing::Finishing | Doing::Summarising => {
            ("unfinished".to_owned(), "33")
        }
        Doing::Ended(outcome) => ended(&outcome.status),
    }
}

/// How an agent ended, in words and in a style.
pub(crate) fn ended(status: &Status) -> (String, &'static str) {
    match status {
        Status::Done | Status::Detached => (status.word().to_owned(), "32"),
        Status::Incomplete { limit } => (format!("incomplete: {limit}"), "33"),
        Status::Failed { cause } | Status::Lost { cause } => {
            (format!("{}: {}", status.word(), safe::line(cause)), "31")
        }
        Status::Cancelled { .. } => (status.word().to_owned(), "31"),
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
        std::array::from_fn(|column| lines.iter().map(|line| width(&line[column])).max().unwrap_or(0));
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
            let (cell, room) = (&line[*column], widths[*column]);
            match *column < texts {
                true => pad(cell, room),
                false => format!("{}{cell}", " ".repeat(room.saturating_sub(width(cell)))),
            }
        });
        let row = cells.collect::<Vec<_>>().join("  ");
        let row = row.trim_end();
        text.push_str(&if number == 0 { colour.paint("2", row) } else { row.to_owned() });
        text.push('\n');
    }
    text
}
