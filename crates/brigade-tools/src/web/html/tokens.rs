//! Tokens of a page, by a tokenizer of the HTML standard that is linear in the length of the page.
//!
//! Non-content is dropped here: comments, declarations, and the text of scripts, styles and similar elements.

use html5gum::{HtmlString, StartTag, State, StringReader, Tokenizer};

/// Token of a page. Names are in lower case, and character references are resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    Text(String),
    Title(String),
    Start { name: String, attributes: Attributes, closed: bool },
    End { name: String },
}

/// Attributes that the conversion uses; the first of two with the same name wins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) href: Option<String>,
    pub(super) src: Option<String>,
    pub(super) alt: Option<String>,
    pub(super) class: Option<String>,
    pub(super) style: Option<String>,
    pub(super) start: Option<String>,
    pub(super) hidden: Option<String>,
    pub(super) open: Option<String>,
}

impl Attributes {
    fn of(tag: &StartTag<()>) -> Attributes {
        let value = |name: &str| tag.attributes.get(name.as_bytes()).map(|value| text(value));
        Attributes {
            href: value("href"),
            src: value("src"),
            alt: value("alt"),
            class: value("class"),
            style: value("style"),
            start: value("start"),
            hidden: value("hidden"),
            open: value("open"),
        }
    }

    /// Whether the attributes hide the element.
    pub(super) fn is_hidden(&self) -> bool {
        let by_style = |style: &String| {
            let style: String = style.chars().filter(|letter| !letter.is_whitespace()).collect();
            let style = style.to_ascii_lowercase();
            style.contains("display:none") || style.contains("visibility:hidden")
        };
        self.hidden.is_some() || self.style.as_ref().is_some_and(by_style)
    }
}

/// Iterator over the tokens of a page.
pub(super) struct Tokens<'a> {
    tokenizer: Tokenizer<StringReader<'a>>,
    /// Open element whose content is not markup.
    raw: Option<RawText>,
}

/// Element whose content is not markup.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RawText {
    Title,
    Dropped,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(page: &'a str) -> Self {
        Tokens { tokenizer: Tokenizer::new(page), raw: None }
    }

    /// Reads the content of an element that is not markup up to its end tag. The tokenizer does not do this by itself,
    /// because in the standard it depends on the tree.
    fn enter_raw_text(&mut self, name: &[u8]) {
        let state = match name {
            b"title" | b"textarea" => State::RcData,
            b"script" => State::ScriptData,
            b"style" | b"iframe" | b"noembed" | b"noframes" | b"xmp" => State::RawText,
            _ => return,
        };
        self.tokenizer.set_state(state);
        self.raw = Some(if name == b"title" { RawText::Title } else { RawText::Dropped });
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        loop {
            let Ok(token) = self.tokenizer.next()?;
            match token {
                html5gum::Token::StartTag(tag) => {
                    self.enter_raw_text(&tag.name);
                    if self.raw.is_none() {
                        let attributes = Attributes::of(&tag);
                        return Some(Token::Start {
                            name: text(&tag.name),
                            attributes,
                            closed: tag.self_closing,
                        });
                    }
                }
                html5gum::Token::EndTag(tag) => {
                    if self.raw.take().is_none() {
                        return Some(Token::End { name: text(&tag.name) });
                    }
                }
                html5gum::Token::String(string) => match self.raw {
                    None => return Some(Token::Text(text(&string))),
                    Some(RawText::Title) => return Some(Token::Title(text(&string))),
                    Some(RawText::Dropped) => {}
                },
                html5gum::Token::Comment(_) | html5gum::Token::Doctype(_) | html5gum::Token::Error(_) => {}
            }
        }
    }
}

fn text(bytes: &HtmlString) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &str) -> String {
        let shown = |token| match token {
            Token::Text(text) => text,
            Token::Title(text) => format!("T[{text}]"),
            Token::Start { name, attributes, closed } => {
                format!(
                    "<{name} {}{}>",
                    attributes.href.as_deref().unwrap_or("-"),
                    if closed { "/" } else { "" }
                )
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
            ("<title>a &amp; <b></TITLE>b", "T[a & <b>]b"),
            ("<script>if (a </b> '</scripty>') </script >x<STYLE>p{}</style>y", "xy"),
            ("a<script>b", "a"),
            ("a<b c='", "a"),
            ("a<!-- b", "a"),
            ("a</", "a</"),
            (
                "Q&amp;A &lt;b&gt; &eacute;&#150;&#0;&#x1D11E; AT&T &unknown;",
                "Q&A <b> é–\u{fffd}\u{1d11e} AT&T &unknown;",
            ),
            ("<a href='?a=1&lt=2&copy=3&amp;b'>", "<a ?a=1&lt=2&copy=3&b>"),
            ("<noscript><b>c</b></noscript>", "<noscript -><b ->c</b></noscript>"),
            ("a<", "a<"),
        ] {
            assert_eq!(names(page), expected, "{page}");
        }
    }

    /// CPU time of this thread, which does not depend on what else runs.
    fn cpu_time() -> std::time::Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::try_from(time).unwrap()
    }

    #[test]
    fn tokenizer_is_linear_on_hostile_input() {
        let begun = cpu_time();
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
            let page = piece.repeat((1 << 18) / piece.len());
            let length: usize =
                Tokens::new(&page).map(|token| matches!(token, Token::Text(_)) as usize).sum();
            assert!(length <= page.len());
        }
        // A quadratic search takes minutes for any one of these pages.
        assert!(cpu_time() - begun < std::time::Duration::from_secs(10));
    }
}
