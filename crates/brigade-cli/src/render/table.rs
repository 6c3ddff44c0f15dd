//! Tables of the cost of each agent and of the files it changed.

use brigade_core::event::ChangedLines;
use brigade_core::view::{Activity, Node};
use brigade_core::{Spent, Status};

use super::{RowContent, fit, overview, pad, width, working_time, wrap_text};
use crate::follow::RunView;
use crate::sanitize;
use crate::terminal::Colour;
use crate::units;

/// Maximum number of agents listed at the end of a run. The rest is summarized.
const MAX_ROWS: usize = 24;
const MAX_LABEL_COLUMNS: usize = 36;
/// Minimum width of the outcome column.
const MIN_OUTCOME_COLUMNS: usize = 10;
/// Columns in the order in which they are dropped if there is not enough room: turns, out, in, time, lines.
const COLUMN_DROP_ORDER: [usize; 5] = [1, 3, 2, 5, 6];
/// Minimum width of the path of a changed file.
const MIN_PATH_COLUMNS: usize = 12;

/// Tree with the usage of each agent and the total, in at most `columns`.
pub(crate) fn costs(view: &RunView, colour: Colour, columns: usize) -> String {
    table(view, colour, columns, usize::MAX / 2)
}

/// Usage by agent, summed over its sessions, and the total, in at most `columns`.
pub(crate) fn costs_by_agent(view: &RunView, colour: Colour, columns: usize) -> String {
    let mut sums: Vec<(&str, usize, Spent)> = Vec::new();
    let nodes = view.tree.walk(&view.root);
    for node in &nodes {
        match sums.iter_mut().find(|(label, _, _)| *label == node.label) {
            Some((_, count, spent)) => (*count, *spent) = (*count + 1, spent.plus(node.own_usage)),
            None => sums.push((&node.label, 1, node.own_usage)),
        }
    }
    let line = |label: String, count: usize, spent: &Spent| {
        let [input, output, cost] = usage_cells(spent);
        [label, count.to_string(), input, output, cost]
    };
    let mut lines = vec![["agent", "sessions", "in", "out", "cost"].map(str::to_owned)];
    lines
        .extend(sums.iter().map(|(label, count, spent)| {
            line(fit(&sanitize::line(label), MAX_LABEL_COLUMNS), *count, spent)
        }));
    lines.push(line("total".to_owned(), nodes.len(), &view.tree.spent(&view.root)));
    layout(&lines, colour, columns, 1, &[1, 3, 2])
}

/// Shorter tree table: agents that did not succeed are listed, others may be summarized.
pub(crate) fn summary(view: &RunView, colour: Colour, columns: usize) -> String {
    table(view, colour, columns, MAX_ROWS)
}

/// Files that agents changed, with the lines added and removed, in at most `columns`. Empty if no change is recorded.
pub(crate) fn changes(view: &RunView, colour: Colour, columns: usize) -> String {
    let nodes = view.tree.walk(&view.root);
    let changes = || nodes.iter().flat_map(|node| node.changes.iter().map(move |change| (*node, change)));
    let count = changes().count();
    if count == 0 {
        return String::new();
    }
    let label = |node: &Node| fit(&sanitize::line(&node.label), MAX_LABEL_COLUMNS.min(columns / 3));
    let widest_label = changes().map(|(node, _)| width(&label(node))).max().unwrap_or(0).max(10);
    let widest_lines = changes().map(|(_, (_, lines))| width(&diff_stat(*lines))).max().unwrap_or(0).max(5);
    let room = columns.saturating_sub(widest_label + widest_lines + 4).max(MIN_PATH_COLUMNS);
    let mut rows = vec![["changed by", "file", "lines"].map(str::to_owned)];
    for (node, (path, lines)) in changes().take(MAX_ROWS) {
        rows.push([label(node), fit_end(&sanitize::line(path), room), diff_stat(*lines)]);
    }
    if count > MAX_ROWS {
        rows.push([format!("… {} more", count - MAX_ROWS), String::new(), String::new()]);
    }
    layout(&rows, colour, columns, 2, &[])
}

/// Added and removed lines.
fn diff_stat(lines: ChangedLines) -> String {
    format!("+{} -{}", lines.added, lines.removed)
}

/// Truncates a path to `columns`. Its end is kept because it says most.
fn fit_end(path: &str, columns: usize) -> String {
    if width(path) <= columns {
        return path.to_owned();
    }
    let mut end: Vec<char> = Vec::new();
    let mut used = 1;
    for c in path.chars().rev() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > columns {
            break;
        }
        end.push(c);
    }
    std::iter::once('…').chain(end.into_iter().rev()).collect()
}

fn table(view: &RunView, colour: Colour, columns: usize, max_rows: usize) -> String {
    let overview = overview(&view.tree, &view.root, max_rows);
    let mut lines = vec![["agent", "turns", "in", "out", "cost", "time", "lines"].map(str::to_owned)];
    let mut outcomes = vec![(String::from("outcome"), "2")];
    for row in &overview.rows {
        match row.content {
            RowContent::Agent(node, _) => {
                let name = fit(
                    &format!("{}{}", row.prefix, sanitize::line(&node.label)),
                    MAX_LABEL_COLUMNS.min(columns / 2),
                );
                lines.push(cells(
                    name,
                    node.turns,
                    &node.own_usage,
                    working_time(&view.tree, node),
                    total_diff_stat(&[node]),
                ));
                outcomes.push(outcome_cell(&node.activity));
            }
            RowContent::Folded(counts) => {
                lines.push(std::array::from_fn(|column| match column {
                    0 => format!("{}…", row.prefix),
                    _ => String::new(),
                }));
                outcomes.push((counts.to_string(), "2"));
            }
        }
    }
    if overview.rows.len() > 1 {
        let time = view.tree.node(&view.root).map_or(0, |root| working_time(&view.tree, root));
        let changed = total_diff_stat(&view.tree.walk(&view.root));
        lines.push(cells("total".to_owned(), overview.turns, &overview.spent, time, changed));
        outcomes.push((overview.counts.to_string(), "2"));
    }
    let numbers =
        layout(&lines, Colour::Off, columns.saturating_sub(MIN_OUTCOME_COLUMNS + 2), 1, &COLUMN_DROP_ORDER);
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
    text.push_str(&unconfirmed(&overview.spent, columns));
    text
}

/// The line on tokens that may have been used, because the reply to a call was never seen. Empty if there are none.
pub(super) fn unconfirmed(spent: &Spent, columns: usize) -> String {
    match spent.unconfirmed.tokens {
        0 => String::new(),
        tokens => {
            let tokens = units::format_compact(tokens);
            let line =
                format!("up to {tokens} more tokens may have been billed for replies that did not arrive");
            format!("{}\n", wrap_text(&line, columns))
        }
    }
}

fn cells(name: String, turns: u64, spent: &Spent, millis: u64, changed: String) -> [String; 7] {
    let [input, output, cost] = usage_cells(spent);
    [name, turns.to_string(), input, output, cost, units::format_elapsed(millis), changed]
}

/// Lines that these agents changed. Empty if they changed no file.
fn total_diff_stat(nodes: &[&Node]) -> String {
    let mut changes = nodes.iter().flat_map(|node| node.changes.values()).peekable();
    if changes.peek().is_none() {
        return String::new();
    }
    diff_stat(changes.fold(ChangedLines::default(), |sum, lines| sum.plus(*lines)))
}

fn usage_cells(spent: &Spent) -> [String; 3] {
    let usage = spent.usage;
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    [units::format_compact(input), units::format_compact(usage.output), units::format_cost(spent)]
}

/// Outcome of an agent, as text and style.
pub(super) fn outcome_cell(activity: &Activity) -> (String, &'static str) {
    match activity {
        Activity::Pending => ("waiting".to_owned(), "2"),
        Activity::Thinking
        | Activity::Tool(_)
        | Activity::Delegating
        | Activity::WrappingUp
        | Activity::Compacting => ("unfinished".to_owned(), "33"),
        Activity::Ended(outcome) => status_cell(&outcome.status),
    }
}

/// Status of an agent that has ended, as text and style.
pub(crate) fn status_cell(status: &Status) -> (String, &'static str) {
    match status {
        Status::Done | Status::Detached => (status.as_str().to_owned(), "32"),
        Status::Incomplete { limit } => (format!("incomplete: {limit}"), "33"),
        Status::Failed { cause } | Status::Lost { cause } => {
            (format!("{}: {}", status.as_str(), sanitize::line(cause)), "31")
        }
        Status::Cancelled { .. } => (status.as_str().to_owned(), "31"),
    }
}

/// Lays out cells: the first columns as text, all others as numbers. If they do not fit side by side, the least
/// important columns are dropped.
pub(crate) fn layout<const N: usize>(
    lines: &[[String; N]],
    colour: Colour,
    room: usize,
    texts: usize,
    drop_order: &[usize],
) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| lines.iter().map(|line| width(&line[column])).max().unwrap_or(0));
    // A column with nothing below its header carries no information.
    let has_values =
        |column: &usize| *column == 0 || lines.iter().skip(1).any(|line| !line[*column].is_empty());
    let mut columns: Vec<usize> = (0..N).filter(has_values).collect();
    for dropped in drop_order {
        let needed: usize = columns.iter().map(|column| widths[*column] + 2).sum();
        if needed <= room.saturating_add(2) {
            break;
        }
        columns.retain(|column| column != dropped);
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

#[cfg(test)]
mod tests {
    use brigade_core::event::Effect;
    use brigade_core::{
        Budget, CallId, Delegation, Event, Extent, Grant, Hash, Limit, Record, Resources, SeenFile,
        SessionId, ToolOutput,
    };

    use super::*;

    /// View of one agent that made these edits: the path, the lines if they were counted, and the outcome.
    fn view(edits: &[(&str, Option<ChangedLines>, ToolOutput)]) -> RunView {
        let root = SessionId::root(1);
        let hash = Hash::of(b"");
        let grant =
            Grant { authority: hash, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        let started = Event::Started {
            delegation: Delegation::default().into(),
            agent: hash,
            grant,
            parent: None,
            depth: 0,
        };
        let mut events = vec![started];
        for (index, (path, lines, output)) in (0..).zip(edits) {
            let call = CallId { turn: 1, index };
            let (effect, before, after, lent) = (Effect::Edit, None, Some(hash), Resources::default());
            events.push(Event::ToolStarted { call, effect, before, after, lent, lines: *lines });
            let seen = SeenFile { path: (*path).to_owned(), hash, extent: Extent::Whole };
            let spent = Spent::default();
            events.push(Event::ToolEnded { call, output: output.clone(), spent, seen: Some(seen.into()) });
        }
        let mut view = RunView::new(root.clone());
        for (seq, event) in (0..).zip(events) {
            view.apply(&Record {
                session: root.clone(),
                seq,
                pos: brigade_core::Cursor::new(seq),
                at: 0,
                v: 1,
                event,
            });
        }
        view
    }

    fn lines(added: u32, removed: u32) -> Option<ChangedLines> {
        Some(ChangedLines { added, removed })
    }

    #[test]
    fn edits_of_one_file_are_summed_without_failed_ones() {
        let ok = || ToolOutput::ok("");
        let view = view(&[
            ("src/a.rs", lines(2, 1), ok()),
            ("b\u{1b}[2J", lines(1, 0), ok()),
            ("src/a.rs", lines(3, 0), ok()),
            ("c", lines(9, 9), ToolOutput::error("no")),
        ]);
        let shown = changes(&view, Colour::Off, 80);
        insta::assert_snapshot!(shown, @r"
        changed by  file        lines
        lead        b\u{1b}[2J  +1 -0
        lead        src/a.rs    +5 -1
        ");
    }

    #[test]
    fn logs_of_earlier_versions_show_no_changes() {
        let view = view(&[("a", None, ToolOutput::ok(""))]);
        assert_eq!(changes(&view, Colour::Off, 80), "");
        assert!(!summary(&view, Colour::Off, 80).contains("lines"));
    }

    #[test]
    fn changes_fit_narrow_windows_and_are_capped() {
        let path = "src/of/a/rather/long/path/with/日本語/calc.py";
        let one = view(&[(path, lines(2, 1), ToolOutput::ok(""))]);
        for columns in [34, 40, 60, 100] {
            let shown = changes(&one, Colour::Off, columns);
            assert!(shown.lines().all(|line| width(line) <= columns), "{columns}: {shown}");
            assert!(shown.contains("calc.py") && shown.contains("+2 -1"), "{shown}");
        }
        let names: Vec<String> = (0..30).map(|number| format!("file{number}")).collect();
        let edits: Vec<_> =
            names.iter().map(|name| (name.as_str(), lines(1, 0), ToolOutput::ok(""))).collect();
        let shown = changes(&view(&edits), Colour::Off, 80);
        assert_eq!(shown.lines().count(), 1 + MAX_ROWS + 1, "{shown}");
        assert!(shown.contains("… 6 more"), "{shown}");
    }
}
