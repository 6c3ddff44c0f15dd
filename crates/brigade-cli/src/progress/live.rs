//! The live tree: drawn on standard error, again in the same place.

use brigade_core::view::{Doing, Node};
use brigade_core::{SessionId, Status};
use unicode_width::UnicodeWidthStr;

use super::canvas::{Canvas, Footer, Line, Size};
use crate::clock;
use crate::follow::View;
use crate::output;
use crate::render::{Content, Row, fit, pad, rows};
use crate::safe;
use crate::terminal::{self, Colour};
use crate::units;

/// The most lines that are drawn, however high the terminal is.
const MOST_LINES: usize = 40;

/// The tree on the terminal.
pub(crate) struct LiveTree {
    colour: Colour,
    canvas: Canvas,
    /// Lines above the tree that are not there to stay.
    header: Vec<String>,
    footer: Option<Footer>,
}

impl LiveTree {
    pub(crate) fn new(colour: Colour) -> LiveTree {
        LiveTree { colour, canvas: Canvas::default(), header: Vec::new(), footer: None }
    }

    /// Whether it is drawn in colours.
    pub(super) fn colour(&self) -> Colour {
        self.colour
    }

    /// Draws the tree as it is now.
    pub(crate) fn draw(&mut self, view: &View) {
        let size = terminal::size();
        let (lines, cursor) = self.frame(view, size);
        output::paint(&self.canvas.draw(lines, cursor, size));
    }

    /// Writes a line above the tree.
    pub(super) fn say(&mut self, view: &View, text: &str) {
        self.print(view, &safe::lines(text));
    }

    /// Writes lines above the tree that are safe already, in styles or without.
    pub(crate) fn print(&mut self, view: &View, text: &str) {
        let size = terminal::size();
        let (lines, cursor) = self.frame(view, size);
        output::paint(&self.canvas.draw_below(text, lines, cursor, size));
    }

    /// What stands above the tree from its next drawing on: lines that are safe, as far as there is room for them.
    pub(crate) fn set_header(&mut self, header: Vec<String>) {
        self.header = header;
    }

    /// What stands beneath the tree from its next drawing on.
    pub(crate) fn set_footer(&mut self, footer: Option<Footer>) {
        self.footer = footer;
    }

    /// Takes the tree away.
    pub(crate) fn clear(&mut self) {
        output::paint(&self.canvas.clear(terminal::size()));
    }

    /// The lines of the tree and of what stands beneath it, and where the cursor is.
    fn frame(&self, view: &View, size: Size) -> (Vec<Line>, Option<(usize, usize)>) {
        let most = Canvas::rows(size);
        // A terminal breaks a line only after its last column is taken.
        let width = size.0.saturating_sub(1).max(1);
        let (footer, cursor) = match &self.footer {
            Some(footer) => footer.laid_out(width, most.saturating_sub(1).max(1)),
            None => (Vec::new(), None),
        };
        let mut lines = self.lines(view, width, most.saturating_sub(footer.len()).clamp(1, MOST_LINES));
        lines.truncate(most.saturating_sub(footer.len()));
        let header = Footer { lines: self.header.clone(), cursor: None };
        let (header, _) = header.laid_out(width, most.saturating_sub(lines.len() + footer.len()));
        lines.splice(0..0, header);
        let cursor = cursor.map(|(row, column)| (lines.len() + row, column));
        lines.extend(footer);
        (lines, cursor)
    }

    fn lines(&self, view: &View, width: usize, most: usize) -> Vec<Line> {
        let rows = rows(&view.tree, &view.root, most);
        let widest = rows.iter().map(|row| label(row).width()).max().unwrap_or(0);
        let columns = Columns::within(width, widest);
        rows.iter().map(|row| self.line(row, view, &columns, width)).collect()
    }

    fn line(&self, row: &Row<'_>, view: &View, columns: &Columns, width: usize) -> Line {
        let name = fit(&label(row), columns.label);
        let node = match row.content {
            Content::Agent(node) => node,
            Content::Folded(_) => {
                return Line { width: name.width(), shown: self.colour.paint("2", &name) };
            }
        };
        let numbers = columns.numbers(node);
        let Some(room) = width.checked_sub(columns.label + 2 + numbers.width()) else {
            let name = fit(&name, width);
            return Line { width: name.width(), shown: name };
        };
        let (doing, style) = doing(node, view);
        let doing = pad(&fit(&doing, room), room);
        let name = pad(&name, columns.label);
        let line_width = name.width() + 1 + doing.width() + 1 + numbers.width();
        let (prefix, rest) = match name.strip_prefix(&row.prefix) {
            Some(rest) => (row.prefix.as_str(), rest),
            None => ("", name.as_str()),
        };
        let shown = format!(
            "{}{} {} {}",
            self.colour.paint("2", prefix),
            self.colour.paint("1", rest),
            self.colour.paint(style, &doing),
            self.colour.paint("2", &numbers)
        );
        Line { shown, width: line_width }
    }
}

impl Drop for LiveTree {
    /// Whatever happens, the cursor is shown again.
    fn drop(&mut self) {
        self.clear();
    }
}

fn label(row: &Row<'_>) -> String {
    match row.content {
        Content::Agent(node) => format!("{}{}", row.prefix, safe::line(&node.label)),
        Content::Folded(count) => format!("{}… and {count} more", row.prefix),
    }
}

/// What fits beside the names.
struct Columns {
    label: usize,
    detail: Detail,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Time,
    Tokens,
    All,
}

impl Columns {
    fn within(width: usize, widest_label: usize) -> Columns {
        let detail = match width {
            0..=49 => Detail::Time,
            50..=69 => Detail::Tokens,
            _ => Detail::All,
        };
        Columns { label: widest_label.clamp(4, (width * 2 / 5).max(4)), detail }
    }

    fn numbers(&self, node: &Node) -> String {
        let end = if matches!(node.doing, Doing::Ended(_)) { node.changed_at } else { clock::now() };
        let time = units::elapsed(end.saturating_sub(node.started_at));
        let tokens = units::short(node.own.usage.total());
        match self.detail {
            Detail::Time => format!("{time:>6}"),
            Detail::Tokens => format!("{tokens:>6} tok {time:>6}"),
            Detail::All => {
                let turns = format!("{} {}", node.turns, if node.turns == 1 { "turn " } else { "turns" });
                format!("{turns:>8} {tokens:>5} tok {:>8} {time:>6}", units::shown_dollars(node.own.usd))
            }
        }
    }
}

/// What an agent does, in words and in a style.
fn doing(node: &Node, view: &View) -> (String, &'static str) {
    if let Some(question) = view.tree.question(&node.session) {
        return (format!("asks: {}", view.call(&node.session, question.call)), "33;1");
    }
    match &node.doing {
        Doing::Waiting => ("waits for its turn".to_owned(), "2"),
        Doing::Thinking if view.waiting(&node.session).is_some() => {
            (view.waiting(&node.session).unwrap_or_default().to_owned(), "33")
        }
        Doing::Thinking => {
            let after = view.after(&node.session).map(|after| format!(", {after}")).unwrap_or_default();
            (format!("thinking{after}"), "36")
        }
        Doing::Tool(name) => {
            (view.doing(&node.session).map_or_else(|| safe::line(name), str::to_owned), "33")
        }
        Doing::Delegating => {
            let active = |session: &&SessionId| {
                view.tree.node(session).is_some_and(|child| !matches!(child.doing, Doing::Ended(_)))
            };
            match node.children.iter().filter(active).count() {
                0 => ("reads the results".to_owned(), "36"),
                1 => ("waits for 1 agent".to_owned(), "2"),
                count => (format!("waits for {count} agents"), "2"),
            }
        }
        Doing::Summarising => ("summarising".to_owned(), "33"),
        Doing::Finishing => ("last word".to_owned(), "33"),
        Doing::Ended(outcome) => match &outcome.status {
            Status::Done | Status::Detached => (outcome.status.word().to_owned(), "32"),
            Status::Incomplete { limit } => (format!("incomplete: {limit}"), "33"),
            Status::Failed { cause } | Status::Lost { cause } => {
                (format!("{}: {}", outcome.status.word(), safe::line(cause)), "31")
            }
            Status::Cancelled { .. } => ("cancelled".to_owned(), "31"),
        },
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::{Budget, CallId, Delegation, Event, Grant, Hash, Limit, Record};

    use super::*;

    /// A chain of agents, each of whom delegated to the next.
    fn chain(depth: u32) -> View {
        let root = SessionId::root(1);
        let hash = Hash::of(b"");
        let grant =
            Grant { authority: hash, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        let delegation = |role: &str| Delegation { role: Some(role.to_owned()), ..Delegation::default() };
        let mut view = View::new(root.clone());
        let mut session = root;
        let call = CallId { turn: 1, index: 0 };
        for depth in 0..depth {
            let parent = session.parent();
            let role = "a 日本語 role \u{1b}[2J";
            let started = Event::Started { delegation: delegation(role), agent: hash, grant, parent, depth };
            let child = session.child(call);
            let delegated = Event::Delegated {
                call,
                child: child.clone(),
                delegation: delegation(role),
                agent: hash,
                grant,
            };
            for (seq, event) in (0..).zip([started, delegated]) {
                view.apply(&Record { session: session.clone(), seq, pos: seq, at: 0, v: 1, event });
            }
            session = child;
        }
        view
    }

    #[test]
    fn no_line_is_wider_than_the_window() {
        let view = chain(9);
        for colour in [Colour::Off, Colour::On] {
            for width in 10..120 {
                for line in LiveTree::new(colour).lines(&view, width, 20) {
                    assert!(line.width <= width, "{} columns for {width}: {}", line.width, line.shown);
                    assert!(colour == Colour::On || line.shown.width() == line.width, "{}", line.shown);
                    assert!(colour == Colour::On || !line.shown.contains('\u{1b}'), "{}", line.shown);
                }
            }
        }
    }
}
