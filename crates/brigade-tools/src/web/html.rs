//! Converts HTML to Markdown in one pass.
//!
//! There is no tree, only a bounded stack of open elements. An element that is nested too deeply is ignored while
//! its text stays, and the cost per element is constant. Scripts, styles, comments and hidden elements are dropped.
//! See `docs/adr/0004-web-fetch.md`.

mod code;
mod element;
mod table;
#[cfg(test)]
mod tests;
mod tokens;
mod writer;

use std::borrow::Cow;

use url::Url;

use super::super::files::StopSignal;
use code::language;
use element::Element;
use table::Table;
use tokens::{Attributes, Token, Tokens};
use writer::{Gap, Mark, Writer};

/// Maximum depth of nested elements.
const MAX_DEPTH: usize = 256;
/// Maximum number of elements of a page.
const MAX_ELEMENTS: usize = 250_000;
/// Maximum number of links and images whose URL is shown.
const MAX_LINKS: u32 = 10_000;
/// Maximum length of a shown URL.
const MAX_URL_BYTES: usize = 2048;
const MAX_TITLE_BYTES: usize = 300;
/// Number of tokens between two checks of the stop signal.
const TOKENS_PER_STOP_CHECK: usize = 1024;

/// Result of a conversion.
pub(super) struct ConvertedPage {
    pub(super) markdown: String,
    /// Limit that truncated the page, if any.
    pub(super) truncated_by: Option<PageLimit>,
}

/// Limit that ended the conversion early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageLimit {
    Elements,
    Length,
    Time,
}

/// Converts a page from the URL `base` to at most `limit` bytes of Markdown.
pub(super) fn convert(html: &str, base: &Url, limit: usize, stop: &StopSignal) -> ConvertedPage {
    let mut conversion = Conversion {
        base: Cow::Borrowed(base),
        writer: Writer::new(limit),
        title: None,
        open: Vec::new(),
        too_deep: Vec::new(),
        hidden: 0,
        tables: Vec::new(),
        links: 0,
    };
    let mut elements = 0;
    let mut truncated_by = None;
    for (count, token) in Tokens::new(html).enumerate() {
        elements += usize::from(matches!(token, Token::Start { .. }));
        if elements > MAX_ELEMENTS {
            truncated_by = Some(PageLimit::Elements);
        } else if conversion.writer.is_full() {
            truncated_by = Some(PageLimit::Length);
        } else if count % TOKENS_PER_STOP_CHECK == 0 && stop.is_stopped() {
            truncated_by = Some(PageLimit::Time);
        }
        if truncated_by.is_some() {
            break;
        }
        conversion.take(token);
    }
    conversion.close_to(0);
    truncated_by = truncated_by.or(conversion.writer.is_full().then_some(PageLimit::Length));
    let body = conversion.writer.finish();
    let markdown = match conversion.title {
        Some(title) if body.lines().next() != Some(&format!("# {title}")) => {
            format!("Title: {title}\n\n{body}\n")
        }
        _ if body.is_empty() => body,
        _ => body + "\n",
    };
    ConvertedPage { markdown, truncated_by }
}

/// Open element.
struct Open {
    name: String,
    element: Element,
    undo: Undo,
    hidden: bool,
}

/// Action at the end of an element.
enum Undo {
    Nothing,
    Separate(Gap),
    Heading,
    Indent,
    /// List, with the number of its next item if it is ordered.
    List(Option<u32>),
    Mark(Mark),
    Quoted,
    Code,
    Preformatted {
        language: String,
    },
    Row,
    Cell,
    Table,
}

/// Open table.
enum Tabular {
    /// Table with data.
    Data(Table),
    /// Table that only arranges the page.
    Layout,
}

struct Conversion<'a> {
    base: Cow<'a, Url>,
    writer: Writer,
    title: Option<String>,
    open: Vec<Open>,
    /// Elements beyond the maximum depth: whether each is hidden.
    too_deep: Vec<bool>,
    /// Number of open elements that are hidden.
    hidden: usize,
    tables: Vec<Tabular>,
    links: u32,
}

impl Conversion<'_> {
    fn take(&mut self, token: Token) {
        match token {
            Token::Text(text) if self.hidden == 0 => self.writer.text(&text),
            Token::Title(title) if self.title.is_none() && self.hidden == 0 => {
                let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
                let cut = title.floor_char_boundary(MAX_TITLE_BYTES);
                self.title = title.get(..cut).filter(|title| !title.is_empty()).map(str::to_owned);
            }
            Token::Text(_) | Token::Title(_) => {}
            Token::Start { name, attributes, closed } => self.start(name, &attributes, closed),
            Token::End { name } => self.end(&name),
        }
    }

    fn start(&mut self, name: String, attributes: &Attributes, closed: bool) {
        let element = Element::of(&name);
        if self.too_deep.is_empty()
            && let Some((ends, fence)) = element.ends()
        {
            let found = self.open.iter().rposition(|open| ends(open.element) || fence(open.element));
            if let Some(at) = found
                && self.open.get(at).is_some_and(|open| ends(open.element))
            {
                self.close_to(at);
            }
        }
        let hides = attributes.is_hidden();
        if element.is_void() {
            if self.hidden == 0 && !hides {
                self.void(element, attributes);
            }
            return;
        }
        let unreadable = element == Element::Unreadable;
        // Only drawings and unknown elements can be self-closing, and elements within hidden ones.
        if closed && (unreadable || element == Element::Other || self.hidden > 0) {
            return;
        }
        let hidden = unreadable || hides || (element == Element::Dialog && attributes.open.is_none());
        self.hidden += usize::from(hidden);
        if element == Element::Other && self.hidden == 0 {
            return;
        }
        if self.open.len() >= MAX_DEPTH {
            self.too_deep.push(hidden);
            return;
        }
        let undo = if self.hidden > 0 { Undo::Nothing } else { self.begin(element, attributes) };
        self.open.push(Open { name, element, undo, hidden });
    }

    fn end(&mut self, name: &str) {
        let element = Element::of(name);
        // Unknown elements are tracked only within hidden ones, to find the end of those.
        if element.is_void() || (element == Element::Other && self.hidden == 0) {
            return;
        }
        if let Some(hidden) = self.too_deep.pop() {
            self.hidden -= usize::from(hidden);
            return;
        }
        for (at, open) in self.open.iter().enumerate().rev() {
            if open.element == element && open.name == name {
                return self.close_to(at);
            }
            if element.stays_within(open.element) {
                return;
            }
        }
    }

    /// Closes all elements but the outermost `length`.
    fn close_to(&mut self, length: usize) {
        while self.open.len() > length
            && let Some(open) = self.open.pop()
        {
            self.hidden -= usize::from(open.hidden);
            self.undo(open.undo);
        }
    }

    fn undo(&mut self, undo: Undo) {
        let writer = &mut self.writer;
        match undo {
            Undo::Nothing => {}
            Undo::Separate(gap) => writer.separate(gap),
            Undo::Heading => writer.end_heading(),
            Undo::Indent => {
                writer.outdent();
                writer.separate(Gap::Line);
            }
            Undo::List(_) => self.separate_list(),
            Undo::Mark(mark) => writer.unmark(&mark),
            Undo::Quoted => writer.literal("\""),
            Undo::Code => self.end_code(),
            Undo::Preformatted { language } => self.end_preformatted(&language),
            Undo::Row => match self.tables.last_mut() {
                Some(Tabular::Data(table)) => table.end_row(),
                _ => writer.separate(Gap::Line),
            },
            Undo::Cell => match (self.tables.last_mut(), writer.end_cell()) {
                (Some(Tabular::Data(table)), Some(text)) => table.cell(text),
                _ => writer.separate(Gap::Space),
            },
            Undo::Table => {
                if let Some(Tabular::Data(mut table)) = self.tables.pop() {
                    table.end_row();
                    writer.lines(table.lines().iter().map(String::as_str));
                }
                self.writer.separate(Gap::Paragraph);
            }
        }
    }

    /// Applies the start of an element and returns the action for its end.
    fn begin(&mut self, element: Element, attributes: &Attributes) -> Undo {
        match element {
            Element::Strong => self.mark(Mark::Strong),
            Element::Emphasis => self.mark(Mark::Emphasis),
            Element::Struck => self.mark(Mark::Struck),
            Element::Link => match self.link_target(attributes.href.as_deref()) {
                Some(address) => self.mark(Mark::Link(self.links, address)),
                None => Undo::Nothing,
            },
            Element::Quoted => {
                self.writer.literal("\"");
                Undo::Quoted
            }
            Element::Code => self.begin_code(attributes),
            Element::Preformatted => {
                self.convert_to_layout();
                let begun = self.writer.begin_verbatim();
                if begun { Undo::Preformatted { language: language(attributes) } } else { Undo::Nothing }
            }
            Element::Heading(level) => {
                self.convert_to_layout();
                let begun = self.writer.begin_heading(level);
                if begun { Undo::Heading } else { Undo::Separate(Gap::Paragraph) }
            }
            Element::Paragraph | Element::Block | Element::Dialog => {
                self.writer.separate(Gap::Paragraph);
                Undo::Separate(Gap::Paragraph)
            }
            Element::List | Element::Numbered => {
                self.separate_list();
                let first =
                    attributes.start.as_deref().and_then(|text| text.trim().parse().ok()).unwrap_or(1);
                Undo::List((element == Element::Numbered).then_some(first))
            }
            Element::Item => {
                let bullet = self.bullet();
                self.indent(Gap::Line, Some(&bullet), &" ".repeat(bullet.len()))
            }
            Element::Term => {
                self.writer.separate(Gap::Line);
                self.mark(Mark::Strong)
            }
            Element::Definition => self.indent(Gap::Line, Some(": "), "  "),
            Element::Quotation => self.indent(Gap::Paragraph, None, "> "),
            Element::Table => {
                self.convert_to_layout();
                self.writer.separate(Gap::Paragraph);
                self.tables.push(Tabular::Data(Table::default()));
                Undo::Table
            }
            Element::Row => Undo::Row,
            Element::Cell => {
                if matches!(self.tables.last(), Some(Tabular::Data(_))) {
                    self.writer.begin_cell();
                }
                Undo::Cell
            }
            Element::Rows | Element::Button | Element::Other => Undo::Nothing,
            Element::Break | Element::Rule | Element::Image | Element::Base | Element::Empty => Undo::Nothing,
            Element::Unreadable => Undo::Nothing,
        }
    }

    fn void(&mut self, element: Element, attributes: &Attributes) {
        match element {
            Element::Break => self.writer.separate(Gap::Line),
            Element::Rule => self.writer.lines(["---"].into_iter()),
            Element::Image => {
                let alt = attributes.alt.as_deref().unwrap_or_default();
                if alt.trim().is_empty() {
                    return;
                }
                let Some(address) = self.link_target(attributes.src.as_deref()) else {
                    return self.writer.text(alt);
                };
                self.writer.literal("![");
                self.writer.text(alt.trim());
                self.writer.literal(&format!("]({address})"));
            }
            Element::Base => {
                let found = attributes.href.as_deref().and_then(|href| self.resolve_url(href));
                if let (Cow::Borrowed(_), Some(base)) = (&self.base, found) {
                    self.base = Cow::Owned(base);
                }
            }
            _ => {}
        }
    }

    fn mark(&mut self, mark: Mark) -> Undo {
        if self.writer.mark(mark.clone()) { Undo::Mark(mark) } else { Undo::Nothing }
    }

    fn indent(&mut self, gap: Gap, bullet: Option<&str>, rest: &str) -> Undo {
        self.writer.separate(gap);
        if self.writer.indent(bullet, rest) { Undo::Indent } else { Undo::Separate(gap) }
    }

    /// Separates a list from the text before it. A list within an item belongs to the item; any other is a block of
    /// its own.
    fn separate_list(&mut self) {
        let nested = self.open.iter().any(|open| open.element == Element::Item);
        self.writer.separate(if nested { Gap::Line } else { Gap::Paragraph });
    }

    /// Returns the prefix of the next item of the innermost list.
    fn bullet(&mut self) -> String {
        let list = self.open.iter_mut().rev().find_map(|open| match &mut open.undo {
            Undo::List(number) => Some(number),
            _ => None,
        });
        match list {
            Some(Some(number)) => {
                let bullet = format!("{number}. ");
                *number = number.saturating_add(1);
                bullet
            }
            Some(None) | None => "- ".to_owned(),
        }
    }

    /// Converts a table to plain text if a cell contains a heading, a code block or another table: such a table
    /// arranges the page.
    fn convert_to_layout(&mut self) {
        let Some(Tabular::Data(table)) = self.tables.last_mut() else { return };
        let mut table = std::mem::take(table);
        let unfinished = self.writer.end_cell();
        let rest = table.take_row();
        let (lines, rest) = (table.lines(), rest.iter().chain(&unfinished).filter(|cell| !cell.is_empty()));
        let text = lines.iter().chain(rest).map(String::as_str);
        self.writer.lines(text);
        if let Some(last) = self.tables.last_mut() {
            *last = Tabular::Layout;
        }
    }

    /// Returns the absolute URL of a link, if it can be visited.
    fn link_target(&mut self, href: Option<&str>) -> Option<String> {
        let href = href.filter(|text| !text.trim_start().starts_with('#'))?;
        if self.links >= MAX_LINKS {
            return None;
        }
        let address = String::from(self.resolve_url(href)?);
        self.links += 1;
        (address.len() <= MAX_URL_BYTES).then(|| address.replace('(', "%28").replace(')', "%29"))
    }

    fn resolve_url(&self, href: &str) -> Option<Url> {
        if href.len() > MAX_URL_BYTES {
            return None;
        }
        let address = self.base.join(href.trim()).ok()?;
        matches!(address.scheme(), "http" | "https").then_some(address)
    }
}

/// Returns the text of an HTML fragment, without its tags.
pub(super) fn strip_tags(html: &str) -> String {
    let text = |token| match token {
        Token::Text(text) => Some(text),
        Token::Title(_) | Token::Start { .. } | Token::End { .. } => None,
    };
    Tokens::new(html).filter_map(text).collect()
}
