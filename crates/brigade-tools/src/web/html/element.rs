//! HTML elements and their meaning for the conversion.

/// Kind of element, as far as the conversion distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Link,
    Strong,
    Emphasis,
    Struck,
    Quoted,
    Code,
    Heading(usize),
    Paragraph,
    Block,
    List,
    Numbered,
    Item,
    Term,
    Definition,
    Quotation,
    Preformatted,
    Table,
    /// Table section that contains rows.
    Rows,
    Row,
    Cell,
    Button,
    Dialog,
    Break,
    Rule,
    Image,
    Base,
    /// Void element that shows nothing.
    Empty,
    /// Element without readable content.
    Unreadable,
    /// Any other element, which is ignored.
    Other,
}

use Element::*;

/// Predicate on elements.
type ElementTest = fn(Element) -> bool;

impl Element {
    pub(super) fn of(name: &str) -> Element {
        match name {
            "a" => Link,
            "b" | "strong" => Strong,
            "i" | "em" => Emphasis,
            "s" | "del" | "strike" => Struck,
            "q" => Quoted,
            "code" | "kbd" | "samp" | "tt" => Code,
            "h1" => Heading(1),
            "h2" => Heading(2),
            "h3" => Heading(3),
            "h4" => Heading(4),
            "h5" => Heading(5),
            "h6" => Heading(6),
            "p" => Paragraph,
            "address" | "article" | "aside" | "body" | "caption" | "center" | "details" | "div" | "dl"
            | "fieldset" | "figcaption" | "figure" | "footer" | "form" | "header" | "hgroup" | "html"
            | "legend" | "main" | "nav" | "search" | "section" | "summary" => Block,
            "ul" | "menu" => List,
            "ol" => Numbered,
            "li" => Item,
            "dt" => Term,
            "dd" => Definition,
            "blockquote" => Quotation,
            "pre" | "listing" => Preformatted,
            "table" => Table,
            "tbody" | "thead" | "tfoot" => Rows,
            "tr" => Row,
            "td" | "th" => Cell,
            "button" => Button,
            "dialog" => Dialog,
            "br" => Break,
            "hr" => Rule,
            "img" => Image,
            "base" => Base,
            "area" | "col" | "embed" | "input" | "link" | "meta" | "source" | "track" | "wbr" => Empty,
            "audio" | "canvas" | "datalist" | "map" | "math" | "object" | "select" | "svg" | "template"
            | "video" => Unreadable,
            _ => Other,
        }
    }

    /// Whether the element never has content.
    pub(super) fn is_void(self) -> bool {
        matches!(self, Break | Rule | Image | Base | Empty)
    }

    /// Returns which open elements with an optional end tag this one ends, and which elements keep them open.
    pub(super) fn ends(self) -> Option<(ElementTest, ElementTest)> {
        let (ends, fence): (ElementTest, ElementTest) = match self {
            Item => (|e| e == Item, |e| matches!(e, List | Numbered | Table | Cell)),
            Term | Definition => (|e| matches!(e, Term | Definition), |e| matches!(e, Block | Table | Cell)),
            Cell => (|e| e == Cell, |e| matches!(e, Row | Table)),
            Row | Rows => (|e| e == Row, |e| e == Table),
            Link => (|e| e == Link, |e| matches!(e, Table | Cell)),
            Heading(_) | Paragraph | Block | List | Numbered | Quotation | Preformatted | Table | Rule
            | Dialog => (|e| e == Paragraph, |e| matches!(e, Button | Table | Cell)),
            Strong | Emphasis | Struck | Quoted | Code | Button | Break | Image | Base | Empty
            | Unreadable | Other => return None,
        };
        Some((ends, fence))
    }

    /// Whether the end tag of this element ends nothing outside of `outer`.
    pub(super) fn stays_within(self, outer: Element) -> bool {
        match self {
            Table | Rows | Row | Cell => outer == Table,
            _ => matches!(outer, Table | Cell),
        }
    }
}
