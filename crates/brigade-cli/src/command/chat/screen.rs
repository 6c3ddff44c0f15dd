//! The terminal while there is a chat on it: what is said scrolls up, beneath it the tree and the line that is typed.

use crate::failure::Failure;
use crate::follow::View;
use crate::keyboard::RawTerminal;
use crate::keyboard::editor::Layout;
use crate::output;
use crate::progress::{Footer, LiveTree};
use crate::render::filled;
use crate::terminal::{self, Colour};
use brigade_core::SessionId;

const CLEAR: &str = "\u{1b}[H\u{1b}[2J";
/// Of the window's rows, how many the line that is typed may take.
const LINE_ROWS: usize = 3;

/// The terminal. When it is dropped, it is as it was before.
pub(super) struct Screen {
    tree: LiveTree,
    colour: Colour,
    /// A tree of nobody, for when nobody works.
    nobody: View,
    _raw: RawTerminal,
}

/// What stands beneath what was said.
pub(super) struct Frame<'a> {
    /// The tree, while somebody works.
    pub(super) view: Option<&'a View>,
    /// What is being said and not complete.
    pub(super) pending: Vec<String>,
    /// A word on what the next key does.
    pub(super) notice: Option<&'a str>,
    /// The line that is typed.
    pub(super) line: Layout,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn enter(colour: Colour) -> Result<Screen, Failure> {
        let raw = RawTerminal::enter()?;
        let nobody = View::new(SessionId::root(0));
        Ok(Screen { tree: LiveTree::new(colour), colour, nobody, _raw: raw })
    }

    /// The rows that the line may take in this window.
    pub(super) fn line_rows() -> usize {
        (terminal::size().1 / LINE_ROWS).max(1)
    }

    /// Shows the frame.
    pub(super) fn draw(&mut self, frame: Frame<'_>) {
        let view = self.set(frame);
        self.tree.draw(view.unwrap_or(&self.nobody));
    }

    /// Puts lines, which are safe, above the frame.
    pub(super) fn say(&mut self, lines: &[String], frame: Frame<'_>) {
        let view = self.set(frame);
        self.tree.print(view.unwrap_or(&self.nobody), &lines.join("\n"));
    }

    /// Takes the frame away, so that others can write. The next drawing brings it back.
    pub(super) fn clear(&mut self) {
        self.tree.clear();
    }

    /// An empty window.
    pub(super) fn wipe(&mut self) {
        self.tree.clear();
        output::paint(CLEAR);
    }

    fn set<'a>(&mut self, frame: Frame<'a>) -> Option<&'a View> {
        let Layout { mut lines, cursor: (row, column) } = frame.line;
        let columns = terminal::size().0.saturating_sub(1);
        let notice = frame.notice.map_or_else(Vec::new, |notice| filled(notice.split(' '), " ", columns));
        let above = notice.len();
        lines.splice(0..0, notice.iter().map(|line| self.colour.paint("2", line)));
        self.tree.set_header(frame.pending);
        self.tree.set_footer(Some(Footer { lines, cursor: Some((row + above, column)) }));
        frame.view
    }
}
