//! The terminal while there is a chat on it: what is said scrolls up, beneath it the tree and the line that is typed.

use crate::error::CliError;
use crate::follow::RunView;
use crate::keyboard::RawTerminal;
use crate::keyboard::editor::Layout;
use crate::output;
use crate::progress::{Footer, LiveTree};
use crate::render::wrap_items;
use crate::terminal::{self, Colour};
use brigade_core::SessionId;

const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J";
/// Of the window's rows, how many the line that is typed may take.
const INPUT_ROWS_DIVISOR: usize = 3;

/// The terminal. When it is dropped, it is as it was before.
pub(super) struct Screen {
    tree: LiveTree,
    colour: Colour,
    /// A tree of nobody, for when nobody works.
    empty_view: RunView,
    _raw: RawTerminal,
}

/// What stands beneath what was said.
pub(super) struct Frame<'a> {
    /// The tree, while somebody works.
    pub(super) view: Option<&'a RunView>,
    /// What is being said and not complete.
    pub(super) pending: Vec<String>,
    /// A word on what the next key does.
    pub(super) notice: Option<&'a str>,
    /// The line that is typed.
    pub(super) line: Layout,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn enter(colour: Colour) -> Result<Screen, CliError> {
        let raw = RawTerminal::enter()?;
        let empty_view = RunView::new(SessionId::root(0));
        Ok(Screen { tree: LiveTree::new(colour), colour, empty_view, _raw: raw })
    }

    /// The rows that the line may take in this window.
    pub(super) fn line_rows() -> usize {
        (terminal::size().1 / INPUT_ROWS_DIVISOR).max(1)
    }

    /// Shows the frame.
    pub(super) fn draw(&mut self, frame: Frame<'_>) {
        let view = self.set(frame);
        self.tree.draw(view.unwrap_or(&self.empty_view));
    }

    /// Puts lines, which are safe, above the frame.
    pub(super) fn print_lines(&mut self, lines: &[String], frame: Frame<'_>) {
        let view = self.set(frame);
        self.tree.print(view.unwrap_or(&self.empty_view), &lines.join("\n"));
    }

    /// Takes the frame away, so that others can write. The next drawing brings it back.
    pub(super) fn clear(&mut self) {
        self.tree.clear();
    }

    /// An empty window.
    pub(super) fn clear_screen(&mut self) {
        self.tree.clear();
        output::write_stderr(CLEAR_SCREEN);
    }

    fn set<'a>(&mut self, frame: Frame<'a>) -> Option<&'a RunView> {
        let Layout { mut lines, cursor: (row, column) } = frame.line;
        let columns = terminal::size().0.saturating_sub(1);
        let notice = frame.notice.map_or_else(Vec::new, |notice| wrap_items(notice.split(' '), " ", columns));
        let above = notice.len();
        lines.splice(0..0, notice.iter().map(|line| self.colour.paint("2", line)));
        self.tree.set_header(frame.pending);
        self.tree.set_footer(Some(Footer { lines, cursor: Some((row + above, column)) }));
        frame.view
    }
}
