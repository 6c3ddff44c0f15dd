//! Streaming Markdown renderer for a terminal: a block is shown once it is complete, code line by line.
//!
//! The input is untrusted; the output lines are sanitized.

mod block;
mod flow;

use crate::render::fit;
use crate::sanitize;
use crate::terminal::Colour;

/// Longer blocks are shown in parts.
const MAX_BLOCK_BYTES: usize = 32 * 1024;
/// Indentation of code, which sets it apart without colours too.
const CODE_INDENT: &str = "    ";

/// Renderer for text that is still arriving.
#[derive(Debug)]
pub(crate) struct Markdown {
    colour: Colour,
    columns: usize,
    /// Line that is not complete yet.
    line: String,
    /// Complete lines of an incomplete block.
    block: String,
    fence: Option<Fence>,
    /// Whether an empty line is due before the next block.
    gap: Gap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    /// Nothing was shown yet.
    Start,
    /// The last block ended.
    Due,
    /// The last block was a list item. The next item follows without an empty line.
    Item,
}

/// Code block that has not ended.
#[derive(Debug)]
struct Fence {
    mark: char,
    length: usize,
    indent: usize,
}

impl Markdown {
    /// Creates a renderer for a window of `columns`.
    pub(crate) fn new(colour: Colour, columns: usize) -> Markdown {
        let (line, block) = (String::new(), String::new());
        Markdown { colour, columns: columns.max(10), line, block, fence: None, gap: Gap::Start }
    }

    /// Adds text, and returns the lines that are ready.
    pub(crate) fn push(&mut self, text: &str) -> Vec<String> {
        let mut ready = Vec::new();
        for piece in text.split_inclusive('\n') {
            self.line.push_str(piece);
            if piece.ends_with('\n') {
                let line = std::mem::take(&mut self.line);
                self.take_line(line.trim_end_matches(['\n', '\r']), &mut ready);
            } else if self.line.len() > MAX_BLOCK_BYTES {
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut ready);
            }
        }
        ready
    }

    /// Ends the text, and returns the remaining lines.
    pub(crate) fn end(&mut self) -> Vec<String> {
        let mut ready = Vec::new();
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, &mut ready);
        }
        self.flush(&mut ready);
        self.fence = None;
        ready
    }

    /// Last lines of the incomplete block as plain text, at most `max_lines`.
    pub(crate) fn pending(&self, max_lines: usize) -> Vec<String> {
        let text = format!("{}{}", self.block, self.line);
        let text = sanitize::lines(text.trim_end()).replace('\t', "    ");
        if text.is_empty() {
            return Vec::new();
        }
        let lines: Vec<String> = text.lines().flat_map(|line| flow::wrap_plain(line, self.columns)).collect();
        let first = lines.len().saturating_sub(max_lines);
        lines[first..].iter().map(|line| self.colour.paint("2", &fit(line, self.columns))).collect()
    }

    fn take_line(&mut self, line: &str, ready: &mut Vec<String>) {
        if let Some(fence) = &self.fence {
            if fence.is_closed_by(line) {
                self.fence = None;
                self.gap = Gap::Due;
            } else {
                let code = sanitize::lines(fence.unindented(line)).replace('\t', "    ");
                let indent = " ".repeat(fence.indent);
                ready.push(format!("{indent}{CODE_INDENT}{}", self.colour.paint("36", &code)));
            }
            return;
        }
        if let Some(fence) = Fence::opened_by(line) {
            self.flush(ready);
            self.add_gap(ready, Gap::Due);
            self.fence = Some(fence);
            return;
        }
        if self.starts_new_block(line) || self.block.len() + line.len() > MAX_BLOCK_BYTES {
            self.flush(ready);
        }
        if line.trim().is_empty() && !self.is_list() {
            self.flush(ready);
            return;
        }
        self.block.push_str(line);
        self.block.push('\n');
        if block::is_heading(line) {
            self.flush(ready);
        }
    }

    /// Whether a line cannot belong to the block before it.
    fn starts_new_block(&self, line: &str) -> bool {
        let ends_with_blank = self.block.ends_with("\n\n");
        let is_indented = line.starts_with([' ', '\t']);
        block::is_heading(line)
            || block::is_item(line) && (self.is_list() || ends_with_blank)
            || self.is_list() && ends_with_blank && !is_indented && !line.trim().is_empty()
            || block::is_table_row(line) != self.is_table() && !self.block.is_empty() && !self.is_list()
    }

    fn is_list(&self) -> bool {
        self.block.lines().next().is_some_and(block::is_item)
    }

    fn is_table(&self) -> bool {
        self.block.lines().next().is_some_and(block::is_table_row)
    }

    fn flush(&mut self, ready: &mut Vec<String>) {
        let block = std::mem::take(&mut self.block);
        if block.trim().is_empty() {
            return;
        }
        let is_item = block.lines().next().is_some_and(block::is_item);
        self.add_gap(ready, if is_item { Gap::Item } else { Gap::Due });
        ready.extend(block::render(&block, self.colour, self.columns));
    }

    /// Adds an empty line between blocks, but not between list items.
    fn add_gap(&mut self, ready: &mut Vec<String>, next: Gap) {
        let follows = self.gap == Gap::Item && next == Gap::Item;
        if self.gap != Gap::Start && !follows {
            ready.push(String::new());
        }
        self.gap = next;
    }
}

impl Fence {
    fn opened_by(line: &str) -> Option<Fence> {
        let trimmed = line.trim_start_matches(' ');
        let mark = trimmed.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let length = trimmed.chars().take_while(|c| *c == mark).count();
        let info = &trimmed[length..];
        let is_fence = length >= 3 && !(mark == '`' && info.contains('`'));
        is_fence.then(|| Fence { mark, length, indent: (line.len() - trimmed.len()).min(8) })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.chars().count() >= self.length && line.chars().all(|c| c == self.mark)
    }

    /// Line of code without the indentation of its fence.
    fn unindented<'a>(&self, line: &'a str) -> &'a str {
        let blanks = line.chars().take(self.indent).take_while(|c| *c == ' ').count();
        &line[blanks..]
    }
}

#[cfg(test)]
mod tests;
