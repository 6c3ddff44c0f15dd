//! Bottom part of the terminal, redrawn in place.
//!
//! Without a footer, the hidden cursor rests on the first line of the frame. The terminal keeps that position when it
//! is resized, however it rewraps the lines, and no part of the frame scrolls out of the window. Lines end with a
//! carriage return too, so frames look the same in raw mode.

use unicode_width::UnicodeWidthChar;

/// Start and end of a frame that the terminal shows in one step.
const BEGIN: &str = "\u{1b}[?2026h";
const END: &str = "\u{1b}[?2026l";
const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";
const CLEAR_BELOW: &str = "\u{1b}[J";
/// Clears from the start of a line to the end of the screen. In the top left corner, some terminals move cleared
/// content into the scrollback, so the line is cleared first and then everything below it.
const CLEAR_FROM_HERE: &str = "\u{1b}7\u{1b}[2K\u{1b}[B\u{1b}[J\u{1b}8";
const CLEAR_TO_END_OF_LINE: &str = "\u{1b}[K";
/// Disables line wrapping while a frame is written: the window may have become narrower since the layout.
const CUT_LINES: &str = "\u{1b}[?7l";
const BREAK_LINES: &str = "\u{1b}[?7h";
const RESET: &str = "\u{1b}[0m";

/// Lines below the tree: an approval prompt, or an input line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Sanitized lines that may contain styles. Long lines are wrapped.
    pub(crate) lines: Vec<String>,
    /// Row and column of the cursor in the unwrapped lines.
    pub(crate) cursor: Option<Position>,
}

/// Columns and rows.
pub(super) type Size = (usize, usize);

/// Row and column.
pub(super) type Position = (usize, usize);

/// Line of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrameLine {
    /// Text with its styles.
    pub(super) shown: String,
    /// Width in columns.
    pub(super) width: usize,
}

/// Content of the terminal as last drawn.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    drawn: Option<Drawn>,
}

#[derive(Debug)]
struct Drawn {
    lines: Vec<FrameLine>,
    /// Row and column.
    cursor: Option<Position>,
    size: Size,
}

impl Canvas {
    /// Maximum number of rows of a frame.
    pub(super) fn rows((_, height): Size) -> usize {
        height.saturating_sub(1).max(1)
    }

    /// Output that draws these lines. Empty if they are already on the screen.
    pub(super) fn draw(&mut self, lines: Vec<FrameLine>, cursor: Option<Position>, size: Size) -> String {
        let is_unchanged =
            |drawn: &Drawn| drawn.lines == lines && drawn.cursor == cursor && drawn.size == size;
        if self.drawn.as_ref().is_some_and(is_unchanged) {
            return String::new();
        }
        let mut frame = format!("{BEGIN}{}", self.move_home(size));
        if self.drawn.as_ref().is_none_or(|drawn| drawn.size != size) {
            frame.push_str(CLEAR_FROM_HERE);
        }
        self.add(lines, cursor, size, &mut frame);
        frame + END
    }

    /// Output that prints sanitized text above these lines.
    pub(super) fn print_above(
        &mut self,
        text: &str,
        lines: Vec<FrameLine>,
        cursor: Option<Position>,
        size: Size,
    ) -> String {
        let mut frame = format!("{BEGIN}{}{CLEAR_FROM_HERE}", self.move_home(size));
        frame.push_str(&text.replace('\n', "\r\n"));
        frame.push_str("\r\n");
        self.add(lines, cursor, size, &mut frame);
        frame + END
    }

    /// Output that removes the frame.
    pub(super) fn clear(&mut self, size: Size) -> String {
        if self.drawn.is_none() {
            return String::new();
        }
        let home = self.move_home(size);
        self.drawn = None;
        format!("{BEGIN}{home}{CLEAR_FROM_HERE}{SHOW_CURSOR}{END}")
    }

    /// Moves the hidden cursor to the first line. A window that became narrower has wrapped the lines above it.
    fn move_home(&self, (columns, height): Size) -> String {
        let Some((drawn, (row, column))) = self.drawn.as_ref().and_then(|d| Some((d, d.cursor?))) else {
            return format!("{HIDE_CURSOR}\r");
        };
        let rows = |width: usize| width.div_ceil(columns.max(1)).max(1);
        let above: usize = drawn.lines.iter().take(row).map(|line| rows(line.width)).sum();
        let up = (above + column / columns.max(1)).min(height.saturating_sub(1));
        format!("{HIDE_CURSOR}\r{}", cursor_up(up))
    }

    fn add(&mut self, lines: Vec<FrameLine>, cursor: Option<Position>, size: Size, frame: &mut String) {
        frame.push_str(CUT_LINES);
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                frame.push_str("\r\n");
            }
            frame.push_str(&line.shown);
            frame.push_str(CLEAR_TO_END_OF_LINE);
        }
        frame.push_str(CLEAR_BELOW);
        frame.push_str(BREAK_LINES);
        let last = lines.len().saturating_sub(1);
        let (row, column) = cursor.unwrap_or((0, 0));
        frame.push('\r');
        frame.push_str(&cursor_up(last.saturating_sub(row)));
        if column > 0 {
            frame.push_str(&format!("\u{1b}[{column}C"));
        }
        if cursor.is_some() {
            frame.push_str(SHOW_CURSOR);
        }
        self.drawn = Some(Drawn { lines, cursor, size });
    }
}

fn cursor_up(rows: usize) -> String {
    if rows == 0 { String::new() } else { format!("\u{1b}[{rows}A") }
}

impl Footer {
    /// Wraps the lines to `columns` and maps the cursor to them. Keeps at most `max_rows` rows: those that end at the
    /// cursor, or the last ones.
    pub(super) fn lay_out(&self, columns: usize, max_rows: usize) -> (Vec<FrameLine>, Option<Position>) {
        let mut rows = Vec::new();
        let mut cursor = None;
        for (number, line) in self.lines.iter().enumerate() {
            let cursor_column = self.cursor.filter(|(row, _)| *row == number).map(|(_, column)| column);
            let first = rows.len();
            let (broken, at) = wrap_styled(line, columns.max(2), cursor_column);
            rows.extend(broken);
            cursor = at.map(|(row, column)| (first + row, column)).or(cursor);
        }
        let end = cursor.map_or(rows.len(), |(row, _)| (row + 1).max(max_rows)).min(rows.len());
        let begin = end.saturating_sub(max_rows);
        let visible = rows.drain(begin..end).collect();
        (visible, cursor.map(|(row, column)| (row.saturating_sub(begin), column)))
    }
}

/// Splits a styled line into pieces of `columns`, each with the style it starts in, and maps a column to its piece.
fn wrap_styled(
    text: &str,
    columns: usize,
    cursor_column: Option<usize>,
) -> (Vec<FrameLine>, Option<Position>) {
    let mut pieces = vec![FrameLine { shown: String::new(), width: 0 }];
    let mut cursor = None;
    let mut style = String::new();
    let mut passed = 0;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            let mut sequence = String::from(c);
            for c in rest.by_ref() {
                sequence.push(c);
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
            if sequence == RESET {
                style.clear()
            } else {
                style.push_str(&sequence)
            }
            if let Some(piece) = pieces.last_mut() {
                piece.shown.push_str(&sequence);
            }
            continue;
        }
        let width = c.width().unwrap_or(0);
        if pieces.last().is_some_and(|piece| piece.width + width > columns) {
            if let Some(piece) = pieces.last_mut()
                && !style.is_empty()
            {
                piece.shown.push_str(RESET);
            }
            pieces.push(FrameLine { shown: style.clone(), width: 0 });
        }
        let row = pieces.len() - 1;
        let Some(piece) = pieces.last_mut() else { break };
        if cursor_column.is_some_and(|column| column <= passed) && cursor.is_none() {
            cursor = Some((row, piece.width));
        }
        piece.shown.push(c);
        piece.width += width;
        passed += width;
    }
    if cursor_column.is_some() && cursor.is_none() {
        if pieces.last().is_some_and(|piece| piece.width >= columns) {
            pieces.push(FrameLine { shown: String::new(), width: 0 });
        }
        cursor = pieces.last().map(|piece| (pieces.len() - 1, piece.width));
    }
    (pieces, cursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> FrameLine {
        FrameLine { shown: text.to_owned(), width: text.len() }
    }

    fn texts(lines: &[FrameLine]) -> Vec<&str> {
        lines.iter().map(|line| line.shown.as_str()).collect()
    }

    #[test]
    fn unchanged_frame_is_not_sent_again() {
        let mut canvas = Canvas::default();
        assert!(canvas.draw(vec![line("a")], None, (80, 24)).contains('a'));
        assert_eq!(canvas.draw(vec![line("a")], None, (80, 24)), "");
        assert!(canvas.draw(vec![line("a")], None, (79, 24)).contains('a'), "the window has changed");
        assert!(canvas.draw(vec![line("b")], None, (79, 24)).contains('b'));
        assert!(!canvas.clear((79, 24)).is_empty());
        assert_eq!(canvas.clear((79, 24)), "", "there is nothing to take away");
    }

    #[test]
    fn narrower_window_counts_wrapped_lines_above_the_cursor() {
        let mut canvas = Canvas::default();
        let lines = vec![line(&"x".repeat(50)), line("short"), line("> typed")];
        canvas.draw(lines.clone(), Some((2, 7)), (80, 24));
        assert!(canvas.move_home((80, 24)).ends_with("\u{1b}[2A"));
        assert!(canvas.move_home((20, 24)).ends_with("\u{1b}[4A"));
        assert!(canvas.move_home((5, 24)).ends_with("\u{1b}[12A"));
        assert!(canvas.move_home((5, 4)).ends_with("\u{1b}[3A"));
        canvas.draw(lines, None, (80, 24));
        assert!(canvas.move_home((5, 24)).ends_with('\r'), "the cursor rests at the top");
    }

    #[test]
    fn late_frame_in_a_narrower_window_leaves_no_remains() {
        let mut terminal = avt::Terminal::new(20, 8).unwrap();
        let mut canvas = Canvas::default();
        let lines = || vec![line(&"x".repeat(50)), line(&"y".repeat(50))];
        terminal.feed(canvas.draw(lines(), None, (80, 8)).as_str());
        terminal.feed(canvas.draw(vec![line("a"), line("b")], None, (20, 8)).as_str());
        assert_eq!(terminal.screen().text()[..3], ["a", "b", ""]);
        terminal.feed(canvas.print_above(&"z".repeat(25), vec![line("a")], None, (20, 8)).as_str());
        assert_eq!(terminal.screen().text()[..3], ["z".repeat(25).as_str(), "a", ""]);
    }

    #[test]
    fn footer_wraps_to_the_window_and_tracks_its_cursor() {
        let footer = |text: &str, cursor| Footer { lines: vec!["head".into(), text.into()], cursor };
        let (lines, cursor) = footer("> 0123456789", Some((1, 12))).lay_out(8, 9);
        assert_eq!((texts(&lines), cursor), (vec!["head", "> 012345", "6789"], Some((2, 4))));
        let (lines, cursor) = footer("> 012345", Some((1, 8))).lay_out(8, 9);
        assert_eq!((texts(&lines), cursor), (vec!["head", "> 012345", ""], Some((2, 0))));
        let (lines, cursor) = footer("a日本語", Some((1, 3))).lay_out(4, 9);
        assert_eq!((texts(&lines), cursor), (vec!["head", "a日", "本語"], Some((2, 0))));
        let (lines, cursor) = footer("\u{1b}[31mabcd\u{1b}[0mef", None).lay_out(3, 9);
        let styled = vec!["hea", "d", "\u{1b}[31mabc\u{1b}[0m", "\u{1b}[31md\u{1b}[0mef"];
        assert_eq!((texts(&lines), cursor), (styled, None));
    }

    #[test]
    fn tall_footer_keeps_the_rows_around_the_cursor() {
        let lines: Vec<String> = (0..6).map(|number| number.to_string()).collect();
        let lay_out = |cursor| {
            let footer = Footer { lines: lines.clone(), cursor };
            let (lines, cursor) = footer.lay_out(10, 2);
            (texts(&lines).concat(), cursor)
        };
        assert_eq!(lay_out(None), ("45".to_owned(), None));
        assert_eq!(lay_out(Some((3, 1))), ("23".to_owned(), Some((1, 1))));
        assert_eq!(lay_out(Some((0, 0))), ("01".to_owned(), Some((0, 0))));
    }
}
