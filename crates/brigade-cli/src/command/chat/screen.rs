//! Terminal of a chat: the conversation scrolls up, with the tree and the input line below it.

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
/// The input line may take one part in this many of the window's rows.
const INPUT_ROWS_DIVISOR: usize = 3;

/// Terminal state, which is restored on drop.
pub(super) struct Screen {
    tree: LiveTree,
    colour: Colour,
    /// Empty tree, for when no agents are running.
    empty_view: RunView,
    _raw: RawTerminal,
}

/// Lines below the conversation.
pub(super) struct Frame<'a> {
    /// Tree, while agents are running.
    pub(super) view: Option<&'a RunView>,
    /// Incomplete text of the reply.
    pub(super) pending: Vec<String>,
    /// Notice about the next key.
    pub(super) notice: Option<&'a str>,
    /// Input line.
    pub(super) line: Layout,
}

impl Screen {
    /// Takes over the terminal.
    pub(super) fn enter(colour: Colour) -> Result<Screen, CliError> {
        let raw = RawTerminal::enter()?;
        let empty_view = RunView::new(SessionId::root(0));
        Ok(Screen { tree: LiveTree::new(colour), colour, empty_view, _raw: raw })
    }

    /// Maximum rows of the input line in this window.
    pub(super) fn line_rows() -> usize {
        (terminal::size().1 / INPUT_ROWS_DIVISOR).max(1)
    }

    /// Draws the frame.
    pub(super) fn draw(&mut self, frame: Frame<'_>) {
        let view = self.set(frame);
        self.tree.draw(view.unwrap_or(&self.empty_view));
    }

    /// Prints lines above the frame. They must be safe.
    pub(super) fn print_lines(&mut self, lines: &[String], frame: Frame<'_>) {
        let view = self.set(frame);
        self.tree.print(view.unwrap_or(&self.empty_view), &lines.join("\n"));
    }

    /// Removes the frame, so that others can write. The next draw restores it.
    pub(super) fn clear(&mut self) {
        self.tree.clear();
    }

    /// Clears the window.
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
