//! Wrapping of styled text.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::sanitize;
use crate::terminal::Colour;

/// Style of a piece of text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TextStyle {
    pub(super) bold: bool,
    pub(super) italic: bool,
    pub(super) struck: bool,
    pub(super) dim: bool,
    pub(super) code: bool,
}

impl TextStyle {
    fn codes(self) -> String {
        let all =
            [(self.bold, "1"), (self.dim, "2"), (self.italic, "3"), (self.struck, "9"), (self.code, "36")];
        all.iter().filter(|(is_so, _)| *is_so).map(|(_, code)| *code).collect::<Vec<_>>().join(";")
    }

    /// Applies the style to a text.
    pub(super) fn paint(self, text: &str, colour: Colour) -> String {
        colour.paint(&self.codes(), text)
    }
}

/// Pieces of text with their styles.
#[derive(Debug, Default, Clone)]
pub(super) struct StyledText {
    pieces: Vec<(TextStyle, String)>,
}

impl StyledText {
    /// Adds untrusted text, which is sanitized here.
    pub(super) fn push(&mut self, style: TextStyle, text: &str) {
        let text = sanitize::lines(text).replace('\t', " ");
        match self.pieces.last_mut() {
            Some((last, before)) if *last == style => before.push_str(&text),
            Some(_) | None => self.pieces.push((style, text)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.iter().all(|(_, text)| text.is_empty())
    }

    /// Text without styles.
    pub(super) fn plain(&self) -> String {
        self.pieces.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Width on one line.
    pub(super) fn width(&self) -> usize {
        self.plain().width()
    }

    /// Styled text on one line.
    pub(super) fn on_one_line(&self, colour: Colour) -> String {
        self.pieces.iter().map(|(style, text)| style.paint(&text.replace('\n', " "), colour)).collect()
    }

    /// Lines of at most `columns`, broken at spaces if possible.
    pub(super) fn lines(&self, columns: usize, colour: Colour) -> Vec<String> {
        let mut breaker =
            LineBreaker { columns: columns.max(1), colour, lines: Vec::new(), line: Vec::new(), used: 0 };
        let mut word = Vec::new();
        for (style, text) in &self.pieces {
            for part in text.split_inclusive([' ', '\n']) {
                let letters = part.trim_end_matches([' ', '\n']);
                if !letters.is_empty() {
                    word.push((*style, letters.to_owned()));
                }
                if part.len() > letters.len() {
                    breaker.word(std::mem::take(&mut word));
                    breaker.blank(*style, part.ends_with('\n'));
                }
            }
        }
        breaker.word(word);
        breaker.end_line();
        breaker.lines
    }
}

/// Builds lines from words.
struct LineBreaker {
    columns: usize,
    colour: Colour,
    lines: Vec<String>,
    line: Vec<(TextStyle, String)>,
    used: usize,
}

impl LineBreaker {
    fn word(&mut self, word: Vec<(TextStyle, String)>) {
        let width: usize = word.iter().map(|(_, text)| text.width()).sum();
        // Scripts with wide characters have no spaces between words, so their lines may break anywhere.
        let is_wide = |text: &str| text.graphemes(true).any(|grapheme| grapheme.width() > 1);
        let breaks = width > self.columns || word.iter().any(|(_, text)| is_wide(text));
        if self.used + width > self.columns && self.used > 0 && !breaks {
            self.end_line();
        }
        for (style, text) in word {
            for grapheme in text.graphemes(true) {
                if self.used + grapheme.width() > self.columns && self.used > 0 {
                    self.end_line();
                }
                self.add(style, grapheme);
            }
        }
    }

    fn blank(&mut self, style: TextStyle, is_line_end: bool) {
        if is_line_end {
            self.end_line();
        } else if self.used > 0 && self.used < self.columns {
            // A space between two pieces of the same style has that style too, so that strikethrough has no gaps.
            self.add(style, " ");
        }
    }

    fn add(&mut self, style: TextStyle, text: &str) {
        self.used += text.width();
        match self.line.last_mut() {
            Some((last, before)) if *last == style => before.push_str(text),
            Some(_) | None => self.line.push((style, text.to_owned())),
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return;
        }
        self.used = 0;
        let painted: String = line.iter().map(|(style, text)| style.paint(text, self.colour)).collect();
        self.lines.push(painted.trim_end().to_owned());
    }
}

/// Wraps one line of plain text to `columns`.
pub(super) fn wrap_plain(line: &str, columns: usize) -> Vec<String> {
    let mut flow = StyledText::default();
    flow.push(TextStyle::default(), line);
    let lines = flow.lines(columns, Colour::Off);
    if lines.is_empty() { vec![String::new()] } else { lines }
}
