//! Live tree on standard error, redrawn in place.

use brigade_core::Spent;
use brigade_core::view::{Activity, Node};

use super::canvas::{Canvas, Footer, FrameLine, Position, Size};
use crate::follow::RunView;
use crate::output;
use crate::render::{self, Row, RowContent, fit, overview, pad};
use crate::sanitize;
use crate::suspend;
use crate::terminal::{self, Colour};
use crate::units;

/// Maximum number of lines that are drawn, however high the terminal is.
const MAX_TREE_LINES: usize = 40;

/// Live tree on a terminal.
pub(crate) struct LiveTree {
    colour: Colour,
    canvas: Canvas,
    /// Temporary lines above the tree.
    header: Vec<String>,
    footer: Option<Footer>,
    /// [`suspend::resume_count`] at the last drawing.
    resumes: u32,
}

impl LiveTree {
    pub(crate) fn new(colour: Colour) -> LiveTree {
        let resumes = suspend::resume_count();
        LiveTree { colour, canvas: Canvas::default(), header: Vec::new(), footer: None, resumes }
    }

    /// Canvas to draw on. After the process was suspended, the cursor is where the shell left it, and drawing
    /// restarts there.
    fn canvas(&mut self) -> &mut Canvas {
        let resumes = suspend::resume_count();
        if std::mem::replace(&mut self.resumes, resumes) != resumes {
            self.canvas = Canvas::default();
        }
        &mut self.canvas
    }

    /// Whether it is drawn in colours.
    pub(super) fn colour(&self) -> Colour {
        self.colour
    }

    /// Draws the tree in its current state.
    pub(crate) fn draw(&mut self, view: &RunView) {
        let size = terminal::size();
        let (lines, cursor) = self.frame(view, size);
        output::write_stderr(&self.canvas().draw(lines, cursor, size));
    }

    /// Prints a line above the tree.
    pub(super) fn say(&mut self, view: &RunView, text: &str) {
        self.print(view, &render::wrap_text(&sanitize::lines(text), terminal::size().0));
    }

    /// Prints sanitized lines, which may contain styles, above the tree.
    pub(crate) fn print(&mut self, view: &RunView, text: &str) {
        let size = terminal::size();
        let (lines, cursor) = self.frame(view, size);
        output::write_stderr(&self.canvas().print_above(text, lines, cursor, size));
    }

    /// Sets the lines above the tree for the next drawing. They are sanitized, and shown as far as there is room.
    pub(crate) fn set_header(&mut self, header: Vec<String>) {
        self.header = header;
    }

    /// Sets the lines below the tree for the next drawing.
    pub(crate) fn set_footer(&mut self, footer: Option<Footer>) {
        self.footer = footer;
    }

    /// Removes the tree from the terminal.
    pub(crate) fn clear(&mut self) {
        output::write_stderr(&self.canvas().clear(terminal::size()));
    }

    /// Lines of the tree and the footer, and the position of the cursor.
    fn frame(&self, view: &RunView, size: Size) -> (Vec<FrameLine>, Option<Position>) {
        let max_rows = Canvas::rows(size);
        // A terminal wraps a line only after its last column is used.
        let width = size.0.saturating_sub(1).max(1);
        let (footer, cursor) = match &self.footer {
            Some(footer) => footer.lay_out(width, max_rows.saturating_sub(1).max(1)),
            None => (Vec::new(), None),
        };
        let mut lines =
            self.lines(view, width, max_rows.saturating_sub(footer.len()).clamp(1, MAX_TREE_LINES));
        lines.truncate(max_rows.saturating_sub(footer.len()));
        let header = Footer { lines: self.header.clone(), cursor: None };
        let (header, _) = header.lay_out(width, max_rows.saturating_sub(lines.len() + footer.len()));
        lines.splice(0..0, header);
        let cursor = cursor.map(|(row, column)| (lines.len() + row, column));
        lines.extend(footer);
        (lines, cursor)
    }

    fn lines(&self, view: &RunView, width: usize, max_rows: usize) -> Vec<FrameLine> {
        // A tree of one agent needs no total.
        let is_alone = view.tree.node(&view.root).is_none_or(|node| node.children.is_empty());
        let overview =
            overview(&view.tree, &view.root, if is_alone { max_rows } else { max_rows.saturating_sub(1) });
        let widest =
            overview.rows.iter().map(|row| render::width(&row.prefix) + render::width(&label(row))).max();
        let columns = Columns::within(width, widest.unwrap_or(0));
        let mut lines: Vec<FrameLine> =
            overview.rows.iter().map(|row| self.row(row, view, &columns, width)).collect();
        if !is_alone && let Some(root) = view.tree.node(&view.root) {
            let agents = overview.counts.sum();
            let numbers =
                columns.numbers(overview.turns, &overview.spent, render::working_time(&view.tree, root));
            let state = overview.counts.to_string();
            lines.push(self.line(
                ("", &format!("{agents} agents")),
                &numbers,
                (&state, "2"),
                &columns,
                width,
            ));
        }
        lines
    }

    fn row(&self, row: &Row<'_>, view: &RunView, columns: &Columns, width: usize) -> FrameLine {
        let (node, active) = match row.content {
            RowContent::Agent(node, active) => (node, active),
            RowContent::Folded(counts) => {
                let text = fit(&format!("{}… {counts}", row.prefix), width);
                return FrameLine { width: render::width(&text), shown: self.colour.paint("2", &text) };
            }
        };
        let numbers = columns.numbers(node.turns, &node.own_usage, render::working_time(&view.tree, node));
        let (doing, style) = doing(node, active, view);
        self.line((&row.prefix, &label(row)), &numbers, (&doing, style), columns, width)
    }

    /// Formats a line: the branches and the name, the numbers, and the activity in a style. The activity comes last
    /// and is not padded, so that a narrower window wraps few lines.
    fn line(
        &self,
        (prefix, name): (&str, &str),
        numbers: &str,
        (doing, style): (&str, &str),
        columns: &Columns,
        width: usize,
    ) -> FrameLine {
        let beside_name = columns.name.saturating_sub(render::width(name));
        let prefix = shorten_prefix(prefix, beside_name.max(columns.name / 2));
        let name_width = columns.name.saturating_sub(render::width(&prefix));
        let name = pad(&fit(name, name_width), name_width);
        let before = columns.name + 1 + if numbers.is_empty() { 0 } else { numbers.len() + 2 };
        let Some(room) = width.checked_sub(before) else {
            return FrameLine { width: columns.name, shown: format!("{prefix}{name}") };
        };
        let doing = fit(doing, room);
        let shown = [
            self.colour.paint("2", &prefix),
            self.colour.paint("1", &name),
            " ".to_owned(),
            self.colour.paint("2", numbers),
            if numbers.is_empty() { String::new() } else { "  ".to_owned() },
            self.colour.paint(style, &doing),
        ];
        FrameLine { shown: shown.concat(), width: before + render::width(&doing) }
    }
}

impl Drop for LiveTree {
    /// Shows the cursor again in any case.
    fn drop(&mut self) {
        self.clear();
    }
}

fn label(row: &Row<'_>) -> String {
    match row.content {
        RowContent::Agent(node, _) => sanitize::line(&node.label),
        RowContent::Folded(_) => String::new(),
    }
}

/// Branches that lead to an agent. If there are too many, the outermost are dropped.
fn shorten_prefix(prefix: &str, room: usize) -> String {
    let excess = prefix.chars().count().saturating_sub(room);
    if excess == 0 {
        return prefix.to_owned();
    }
    let rest: String = prefix.chars().skip(excess + 1).collect();
    format!("…{rest}")
}

/// Columns that fit beside the names.
struct Columns {
    name: usize,
    detail: NumberDetail,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NumberDetail {
    Nothing,
    Time,
    Tokens,
    All,
}

impl Columns {
    fn within(width: usize, widest_name: usize) -> Columns {
        let detail = match width {
            0..=29 => NumberDetail::Nothing,
            30..=49 => NumberDetail::Time,
            50..=79 => NumberDetail::Tokens,
            _ => NumberDetail::All,
        };
        let max_name = (width * 2 / 5).max(1);
        Columns { name: widest_name.clamp(max_name.min(8), max_name), detail }
    }

    fn numbers(&self, turns: u64, spent: &Spent, millis: u64) -> String {
        let time = units::format_elapsed(millis);
        let tokens = units::format_compact(spent.usage.total());
        match self.detail {
            NumberDetail::Nothing => String::new(),
            NumberDetail::Time => format!("{time:>6}"),
            NumberDetail::Tokens => format!("{tokens:>5} tok {time:>6}"),
            NumberDetail::All => {
                let turns = format!("{turns} {}", if turns == 1 { "turn " } else { "turns" });
                format!("{turns:>9} {tokens:>5} tok {:>8} {time:>6}", units::brief_cost(spent))
            }
        }
    }
}

/// Activity of an agent, as text and style.
fn doing(node: &Node, active: usize, view: &RunView) -> (String, &'static str) {
    if let Some(approval) = view.tree.pending_approval(&node.session) {
        if let Some(host) = &approval.host {
            return (format!("needs approval: connect to {host}"), "33;1");
        }
        return (format!("needs approval: {}", view.call_label(&node.session, approval.call)), "33;1");
    }
    match &node.activity {
        Activity::Pending => ("queued".to_owned(), "2"),
        Activity::Thinking if view.wait_reason(&node.session).is_some() => {
            (view.wait_reason(&node.session).unwrap_or_default().to_owned(), "33")
        }
        Activity::Thinking => {
            let after = view.last_call(&node.session).map(|after| format!(", {after}")).unwrap_or_default();
            (format!("thinking{after}"), "36")
        }
        Activity::Tool(name) => {
            (view.doing(&node.session).map_or_else(|| sanitize::line(name), str::to_owned), "33")
        }
        Activity::Delegating => {
            let in_line = match view.queued_delegations(&node.session) {
                0 => String::new(),
                count => format!(", {count} queued"),
            };
            match active {
                0 if in_line.is_empty() => ("reading results".to_owned(), "36"),
                1 => (format!("waiting for 1 agent{in_line}"), "2"),
                count => (format!("waiting for {count} agents{in_line}"), "2"),
            }
        }
        Activity::Compacting => ("compacting".to_owned(), "33"),
        Activity::WrappingUp => ("wrapping up".to_owned(), "33"),
        Activity::Ended(outcome) => render::status_cell(&outcome.status),
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::{Budget, CallId, Delegation, Event, Grant, Hash, Limit, Record, SessionId};

    use super::*;

    /// Chain of agents, each of which delegated to the next.
    fn chain(depth: u32) -> RunView {
        let root = SessionId::root(1);
        let hash = Hash::of(b"");
        let grant =
            Grant { authority: hash, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        let delegation = |role: &str| Delegation { role: Some(role.to_owned()), ..Delegation::default() };
        let mut view = RunView::new(root.clone());
        let mut session = root;
        let call = CallId { turn: 1, index: 0 };
        for depth in 0..depth {
            let parent = session.parent();
            let role = "a 日本語 role \u{1b}[2J";
            let started =
                Event::Started { delegation: delegation(role).into(), agent: hash, grant, parent, depth };
            let child = session.child(call);
            let delegated = Event::Delegated {
                call,
                child: child.clone(),
                delegation: delegation(role).into(),
                agent: hash,
                grant,
            };
            for (seq, event) in (0..).zip([started, delegated]) {
                view.apply(&Record {
                    session: session.clone(),
                    seq,
                    pos: brigade_core::Cursor::new(seq),
                    at: 0,
                    v: 1,
                    event,
                });
            }
            session = child;
        }
        view
    }

    #[test]
    fn no_line_is_wider_than_the_window() {
        let view = chain(9);
        for colour in [Colour::Off, Colour::On] {
            for width in 1..120 {
                for line in LiveTree::new(colour).lines(&view, width, 20) {
                    assert!(line.width <= width, "{} columns for {width}: {}", line.width, line.shown);
                    assert!(
                        colour == Colour::On || render::width(&line.shown) == line.width,
                        "{}",
                        line.shown
                    );
                    assert!(colour == Colour::On || !line.shown.contains('\u{1b}'), "{}", line.shown);
                }
            }
        }
    }
}
