//! HTML tokenizer that reads every byte once, whatever the input.
//!
//! Each search that fails consumes the rest of the page, so no input is quadratic. Non-content is dropped here:
//! comments, declarations, and the text of scripts, styles and similar elements.

/// Elements whose content is not markup. The tokenizer drops their content, except for the title.
const RAW_TEXT_ELEMENTS: [&str; 8] =
    ["script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp"];

/// Token of a page. Names are as written, and character references are not resolved yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Text(&'a str),
    Title(&'a str),
    Start { name: &'a str, attributes: Attributes<'a>, closed: bool },
    End { name: &'a str },
}

/// Attributes that the conversion uses; the first of two with the same name wins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attributes<'a> {
    pub(super) href: Option<&'a str>,
    pub(super) src: Option<&'a str>,
    pub(super) alt: Option<&'a str>,
    pub(super) class: Option<&'a str>,
    pub(super) style: Option<&'a str>,
    pub(super) start: Option<&'a str>,
    pub(super) hidden: Option<&'a str>,
    pub(super) open: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    /// Whether the attributes hide the element.
    pub(super) fn is_hidden(&self) -> bool {
        let by_style = |style: &str| {
            let style: String = style.chars().filter(|letter| !letter.is_whitespace()).collect();
            let style = style.to_ascii_lowercase();
            style.contains("display:none") || style.contains("visibility:hidden")
        };
        self.hidden.is_some() || self.style.is_some_and(by_style)
    }

    fn set(&mut self, name: &str, value: &'a str) {
        let slots = [
            ("href", &mut self.href),
            ("src", &mut self.src),
            ("alt", &mut self.alt),
            ("class", &mut self.class),
            ("style", &mut self.style),
            ("start", &mut self.start),
            ("hidden", &mut self.hidden),
            ("open", &mut self.open),
        ];
        if let Some((_, slot)) = slots.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known)) {
            slot.get_or_insert(value);
        }
    }
}

/// Iterator over the tokens of a page.
pub(super) struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(page: &'a str) -> Self {
        Tokens { rest: page }
    }

    /// Consumes this many bytes, or the rest if there are fewer.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Drops everything through `end`, or the rest of the page if it does not occur.
    fn drop_until(&mut self, from: usize, end: &str) {
        let found = self.rest.get(from..).and_then(|rest| rest.find(end));
        self.take(found.map_or(usize::MAX, |at| from + at + end.len()));
    }

    fn drop_comment(&mut self) {
        // `<!-->` is a complete comment, so the search starts within the opening.
        let mut from = 2;
        while let Some(at) = self.rest.get(from..).and_then(|rest| rest.find("--")) {
            let after = from + at + 2;
            let tail = self.rest.get(after..).unwrap_or_default();
            if tail.starts_with('>') || (tail.starts_with("!>") && after > 4) {
                self.take(after + if tail.starts_with('>') { 1 } else { 2 });
                return;
            }
            from += at + 1;
        }
        self.rest = "";
    }

    /// Reads a start tag; `None` if the page ends within it.
    fn start(&mut self) -> Option<Token<'a>> {
        self.take(1);
        let name = self.name();
        let mut attributes = Attributes::default();
        let closed = self.attributes(&mut attributes)?;
        let Some(raw) = RAW_TEXT_ELEMENTS.iter().find(|raw| name.eq_ignore_ascii_case(raw)) else {
            return Some(Token::Start { name, attributes, closed });
        };
        let content = self.raw(raw);
        if *raw == "title" { Some(Token::Title(content)) } else { Some(Token::Text("")) }
    }

    fn name(&mut self) -> &'a str {
        let ends = |byte: u8| byte.is_ascii_whitespace() || byte == b'/' || byte == b'>';
        self.take(self.rest.bytes().position(ends).unwrap_or(usize::MAX))
    }

    /// Reads through the `>` of a tag; true if the tag ends in `/>`.
    fn attributes(&mut self, found: &mut Attributes<'a>) -> Option<bool> {
        let mut closed = false;
        loop {
            let blank = |byte: u8| !byte.is_ascii_whitespace();
            self.take(self.rest.bytes().position(blank).unwrap_or(usize::MAX));
            match self.rest.bytes().next()? {
                b'>' => {
                    self.take(1);
                    return Some(closed);
                }
                b'/' => {
                    self.take(1);
                    closed = true;
                }
                _ => {
                    closed = false;
                    self.attribute(found);
                }
            }
        }
    }

    fn attribute(&mut self, found: &mut Attributes<'a>) {
        // According to the standard an equals sign at the start belongs to the name, so at least one byte is taken.
        let ends = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>' | b'=');
        let length = self.rest.bytes().skip(1).position(ends).map_or(usize::MAX, |at| at + 1);
        let length = if self.rest.is_char_boundary(length) { length } else { usize::MAX };
        let name = self.take(length);
        let tail = self.rest.trim_ascii_start();
        let Some(value) = tail.strip_prefix('=') else {
            found.set(name, "");
            return;
        };
        self.rest = value.trim_ascii_start();
        let value = match self.rest.bytes().next() {
            Some(quote @ (b'"' | b'\'')) => {
                self.take(1);
                let end = self.rest.bytes().position(|byte| byte == quote);
                let value = self.take(end.unwrap_or(usize::MAX));
                self.take(1);
                value
            }
            _ => {
                let ends = |byte: u8| byte.is_ascii_whitespace() || byte == b'>';
                self.take(self.rest.bytes().position(ends).unwrap_or(usize::MAX))
            }
        };
        found.set(name, value);
    }

    /// Takes the content of an element that is not markup, and drops its end tag.
    fn raw(&mut self, name: &str) -> &'a str {
        let mut from = 0;
        while let Some(at) = self.rest.get(from..).and_then(|rest| rest.find("</")) {
            let tail = self.rest.get(from + at + 2..).unwrap_or_default();
            let ends = |byte: u8| byte.is_ascii_whitespace() || byte == b'/' || byte == b'>';
            let same = tail.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
            if same && tail.as_bytes().get(name.len()).copied().is_none_or(ends) {
                let content = self.take(from + at);
                self.drop_until(0, ">");
                return content;
            }
            from += at + 2;
        }
        self.take(usize::MAX)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let mut bytes = self.rest.bytes();
            match (bytes.next()?, bytes.next().unwrap_or(b' ')) {
                (b'<', letter) if letter.is_ascii_alphabetic() => match self.start() {
                    Some(token) => return Some(token),
                    None => self.rest = "",
                },
                (b'<', b'/') if bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic()) => {
                    self.take(2);
                    let name = self.name();
                    self.attributes(&mut Attributes::default());
                    return Some(Token::End { name });
                }
                (b'<', b'!') if self.rest.starts_with("<!--") => self.drop_comment(),
                (b'<', b'!' | b'?' | b'/') => self.drop_until(0, ">"),
                _ => {
                    // The text after a lone `<` is text as well.
                    let length = self.rest.bytes().skip(1).position(|byte| byte == b'<');
                    return Some(Token::Text(self.take(length.map_or(usize::MAX, |at| at + 1))));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &str) -> String {
        let shown = |token| match token {
            Token::Text(text) => text.to_owned(),
            Token::Title(text) => format!("T[{text}]"),
            Token::Start { name, attributes, closed } => {
                format!("<{name} {}{}>", attributes.href.unwrap_or("-"), if closed { "/" } else { "" })
            }
            Token::End { name } => format!("</{name}>"),
        };
        Tokens::new(page).map(shown).collect()
    }

    #[test]
    fn tokens_split_tags_text_and_titles() {
        for (page, expected) in [
            ("a<b>c</b>", "a<b ->c</b>"),
            ("<a href='x>y' HREF=z>1</a >", "<a x>y>1</a>"),
            ("<a\nhref = \"é\"/>", "<a é/>"),
            ("<a =é href=u/v>", "<a u/v>"),
            ("a < b <3 <>", "a < b <3 <>"),
            ("<!doctype html><?x?><![CDATA[a]]></ x>b", "b"),
            ("<!-- a --><!-->b<!--->c<!-- d --!>e<!-- <p> -- > -->f", "bcef"),
            ("<title>a &amp; <b></TITLE>b", "T[a &amp; <b>]b"),
            ("<script>if (a </b> '</scripty>') </script >x<STYLE>p{}</style>y", "xy"),
            ("a<script>b", "a"),
            ("a<b c='", "a"),
            ("a<!-- b", "a"),
            ("a</", "a"),
            ("a<", "a<"),
        ] {
            assert_eq!(names(page), expected, "{page}");
        }
    }

    #[test]
    fn tokenizer_is_linear_on_hostile_input() {
        let begun = std::time::Instant::now();
        for piece in [
            "<a ",
            "<",
            "</",
            "<!--",
            "<!-",
            "--",
            "<script>",
            "</scrip",
            "<a href='",
            "é=<",
            "<a =\u{e9}",
            "&",
        ] {
            let page = piece.repeat((1 << 20) / piece.len());
            let length: usize =
                Tokens::new(&page).map(|token| matches!(token, Token::Text(_)) as usize).sum();
            assert!(length <= page.len());
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    }
}
