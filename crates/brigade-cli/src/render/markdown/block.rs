//! Rendering of one complete block: a paragraph, a heading, a list item or a table.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use unicode_width::UnicodeWidthStr;

use super::CODE_INDENT;
use super::flow::{StyledText, TextStyle};
use crate::sanitize;
use crate::terminal::Colour;

/// Deeper nesting is not indented further.
const MAX_NESTING: usize = 12;

/// Whether a line is a complete heading.
pub(super) fn is_heading(line: &str) -> bool {
    let marks = line.chars().take_while(|c| *c == '#').count();
    (1..=6).contains(&marks) && line[marks..].starts_with([' ', '\t'])
}

/// Whether a line starts a top-level list item.
pub(super) fn is_item(line: &str) -> bool {
    let line = line.strip_prefix(' ').unwrap_or(line);
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    let rest = match digits {
        0 => line.strip_prefix(['-', '*', '+']),
        1..=9 => line[digits..].strip_prefix(['.', ')']),
        _ => None,
    };
    // A row of such markers is a thematic break.
    let is_rule = line.len() > 2 && line.chars().all(|c| matches!(c, '-' | '*' | ' '));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t'])) && !is_rule
}

/// Whether a line is a table row.
pub(super) fn is_table_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// Renders a block as lines.
pub(super) fn render(block: &str, colour: Colour, columns: usize) -> Vec<String> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut renderer = BlockRenderer { colour, columns, ..BlockRenderer::default() };
    for event in Parser::new_ext(block, options) {
        renderer.take(event);
    }
    renderer.end_paragraph();
    renderer.lines
}

/// Parser state while a block is rendered.
#[derive(Default)]
struct BlockRenderer {
    colour: Colour,
    columns: usize,
    lines: Vec<String>,
    text: StyledText,
    style: TextStyle,
    heading: Option<HeadingLevel>,
    /// Next number of each open list. `None` for an unordered list.
    lists: Vec<Option<u64>>,
    /// Prefix of the first line of the next paragraph.
    bullet: Option<String>,
    /// Prefixes of every line.
    margins: Vec<String>,
    /// Address of the open link, and the position at which its text starts.
    link: Option<(String, usize)>,
    is_code: bool,
    table: Vec<Vec<StyledText>>,
}

impl BlockRenderer {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => self.code(&text),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.text.push(self.style, &text)
            }
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                // Without colours, backticks mark the code.
                let text = if self.colour == Colour::On { text.to_string() } else { format!("`{text}`") };
                self.text.push(TextStyle { code: true, ..self.style }, &text);
            }
            // Models put line breaks where they want them.
            Event::SoftBreak | Event::HardBreak => self.text.push(self.style, "\n"),
            Event::Rule => {
                self.end_paragraph();
                let rule = "─".repeat(self.text_columns().min(40));
                self.line(&self.colour.paint("2", &rule));
            }
            Event::TaskListMarker(is_done) => {
                self.text.push(self.style, if is_done { "[x] " } else { "[ ] " });
            }
            Event::FootnoteReference(name) => self.text.push(self.style, &format!("[{name}]")),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.heading = Some(level);
                self.style.bold = true;
            }
            Tag::BlockQuote(_) => {
                self.end_paragraph();
                self.margins.push("│ ".to_owned());
            }
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => {
                self.end_paragraph();
                self.is_code = true;
            }
            Tag::List(number) => {
                self.end_paragraph();
                self.lists.push(number);
            }
            Tag::Item => self.item(),
            Tag::Emphasis => self.style.italic = true,
            Tag::Strong => self.style.bold = true,
            Tag::Strikethrough => self.style.struck = true,
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some((dest_url.to_string(), self.text.plain().len()));
            }
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_paragraph(),
            TagEnd::Heading(_) => {
                self.end_paragraph();
                self.style.bold = false;
                self.heading = None;
            }
            TagEnd::BlockQuote(_) => {
                self.end_paragraph();
                self.margins.pop();
            }
            TagEnd::CodeBlock => self.is_code = false,
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::Item => {
                self.end_paragraph();
                self.margins.pop();
                self.bullet = None;
            }
            TagEnd::Emphasis => self.style.italic = false,
            TagEnd::Strong => self.style.bold = self.heading.is_some(),
            TagEnd::Strikethrough => self.style.struck = false,
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                if let Some(row) = self.table.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.end_table(),
            _ => {}
        }
    }

    fn item(&mut self) {
        self.end_paragraph();
        let bullet = match self.lists.last_mut() {
            Some(Some(number)) => {
                let bullet = format!("{number}. ");
                *number = number.saturating_add(1);
                bullet
            }
            Some(None) | None => "- ".to_owned(),
        };
        self.margins.push(" ".repeat(bullet.len()));
        self.bullet = Some(bullet);
    }

    /// Adds the address of a link after its text, unless they are the same.
    fn end_link(&mut self) {
        let Some((address, from)) = self.link.take() else { return };
        let text = self.text.plain();
        let text = text.get(from..).unwrap_or_default();
        let shown = sanitize::line(&address);
        if !address.is_empty() && text != shown && address != format!("mailto:{text}") {
            let address = if text.is_empty() { shown } else { format!(" ({shown})") };
            self.text.push(TextStyle { dim: true, ..TextStyle::default() }, &address);
        }
    }

    fn text_columns(&self) -> usize {
        let margin: usize = self.margins.iter().take(MAX_NESTING).map(|margin| margin.width()).sum();
        self.columns.saturating_sub(margin).max(8)
    }

    fn end_paragraph(&mut self) {
        let flow = std::mem::take(&mut self.text);
        if flow.is_empty() && self.bullet.is_none() {
            return;
        }
        let lines = flow.lines(self.text_columns(), self.colour);
        if lines.is_empty() {
            self.line("");
        }
        lines.iter().for_each(|line| self.line(line));
    }

    /// Adds a line with its prefix: the margin, or the bullet in its place.
    fn line(&mut self, line: &str) {
        let bullet = self.bullet.take();
        let depth = self.margins.len() - usize::from(bullet.is_some() && !self.margins.is_empty());
        let mut margin: String =
            self.margins.iter().take(depth.min(MAX_NESTING)).map(String::as_str).collect();
        margin.push_str(&bullet.unwrap_or_default());
        self.lines.push(format!("{}{line}", self.colour.paint("2", &margin)).trim_end().to_owned());
    }

    fn code(&mut self, text: &str) {
        for line in sanitize::lines(text).lines() {
            let code = self.colour.paint("36", &line.replace('\t', "    "));
            self.line(&format!("{CODE_INDENT}{code}"));
        }
    }

    /// Renders a table in columns if they fit, otherwise each row as a list of its cells.
    fn end_table(&mut self) {
        let rows = std::mem::take(&mut self.table);
        let count = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            rows.iter().filter_map(|row| row.get(column)).map(StyledText::width).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..count).map(width).collect();
        if widths.iter().map(|width| width + 2).sum::<usize>() <= self.text_columns() + 2 {
            self.in_columns(&rows, &widths);
        } else {
            self.in_lists(&rows);
        }
    }

    fn in_columns(&mut self, rows: &[Vec<StyledText>], widths: &[usize]) {
        for (number, row) in rows.iter().enumerate() {
            let cell = |(cell, width): (&StyledText, &usize)| {
                let shown = cell.on_one_line(self.colour);
                format!("{shown}{}", " ".repeat(width.saturating_sub(cell.width())))
            };
            let line = row.iter().zip(widths).map(cell).collect::<Vec<_>>().join("  ");
            if number == 0 {
                let rule = widths.iter().map(|width| "─".repeat(*width)).collect::<Vec<_>>().join("  ");
                self.line(&self.colour.paint("1", line.trim_end()));
                self.line(&self.colour.paint("2", &rule));
            } else {
                self.line(line.trim_end());
            }
        }
    }

    fn in_lists(&mut self, rows: &[Vec<StyledText>]) {
        let Some((head, rows)) = rows.split_first() else { return };
        for row in rows {
            for (index, cell) in row.iter().enumerate() {
                let name = head.get(index).map(StyledText::plain).unwrap_or_default();
                let mut flow = StyledText::default();
                flow.push(TextStyle { bold: true, ..TextStyle::default() }, &format!("{name}: "));
                flow.push(TextStyle::default(), &cell.plain());
                let lead = if index == 0 { "- " } else { "  " };
                for (number, line) in
                    flow.lines(self.text_columns().saturating_sub(2), self.colour).iter().enumerate()
                {
                    self.line(&format!("{}{line}", if number == 0 { lead } else { "  " }));
                }
            }
        }
    }
}
