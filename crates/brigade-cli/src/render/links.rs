//! Removal of links in untrusted Markdown, except those to web pages, mail addresses and the same document.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag};

const SCHEMES: [&str; 3] = ["http", "https", "mailto"];
/// Parts of tags that run or contain a program.
const UNSAFE_IN_TAG: [&str; 3] = ["javascript", "vbscript", "data:"];
const REMOVED_NOTE: &str = "(link removed)";
/// Removing a link may uncover another one. Text with more layers than this loses all its brackets.
const MAX_LAYERS: usize = 8;

/// Removes links to anything but web pages, mail addresses and relative targets from Markdown.
pub(super) fn remove_unsafe_links(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for _ in 0..MAX_LAYERS {
        let edits = edits(&text);
        if edits.is_empty() {
            return text;
        }
        let mut changed = text.into_owned();
        for (range, replacement) in edits.into_iter().rev() {
            changed.replace_range(range, &replacement);
        }
        text = Cow::Owned(changed);
    }
    Cow::Owned(text.replace('[', "\\[").replace('<', "\\<"))
}

/// Replacements by range, in order and without overlaps.
fn edits(text: &str) -> Vec<(Range<usize>, String)> {
    let parser = Parser::new_ext(text, Options::all());
    let definitions = parser.reference_definitions().iter().map(|(_, definition)| definition);
    let hostile = definitions.filter(|definition| !is_safe_address(&definition.dest));
    let mut edits: Vec<_> =
        hostile.map(|definition| (definition.span.clone(), REMOVED_NOTE.to_owned())).collect();
    // Unsafe link that is open: its range, and the range of its text.
    let mut open: Option<(Range<usize>, Option<Range<usize>>)> = None;
    for (event, range) in parser.into_offset_iter() {
        match (&mut open, event) {
            (Some((link, shown)), _) if range.end <= link.end && range != *link => {
                let (from, to) = shown.as_ref().map_or((range.start, 0), |shown| (shown.start, shown.end));
                *shown = Some(from..to.max(range.end));
            }
            (Some((link, shown)), Event::End(_)) if range == *link => {
                edits.push((link.clone(), link_replacement(text, shown.clone())));
                open = None;
            }
            (_, Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }))
                if !is_safe_address(&dest_url) =>
            {
                open = Some((range, None));
            }
            (_, Event::Html(tag) | Event::InlineHtml(tag)) if is_unsafe_tag(&tag) => {
                edits.push((range.start..range.start, "\\".to_owned()));
            }
            _ => {}
        }
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut end = 0;
    edits.retain(|(range, _)| {
        let is_free = range.start >= end;
        end = if is_free { range.end } else { end };
        is_free
    });
    edits
}

/// Text of a link without its target. An autolink has no text.
fn link_replacement(text: &str, shown: Option<Range<usize>>) -> String {
    let shown = shown.and_then(|shown| text.get(shown)).unwrap_or_default();
    if shown.is_empty() || !is_safe_address(shown) {
        REMOVED_NOTE.to_owned()
    } else {
        format!("{shown} {REMOVED_NOTE}")
    }
}

/// Whether an address is relative or has a harmless scheme. Browsers ignore white space and control characters.
fn is_safe_address(address: &str) -> bool {
    let address: String = address.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    let Some((scheme, _)) = address.split_once(':') else { return true };
    scheme.contains(['/', '?', '#']) || SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// Whether a tag may lead to executable content. Characters that are written as entities could be anything.
fn is_unsafe_tag(tag: &str) -> bool {
    let tag: String = tag.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    let tag = tag.to_ascii_lowercase();
    tag.contains('=') && (tag.contains('&') || UNSAFE_IN_TAG.iter().any(|hostile| tag.contains(hostile)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that a reader could follow.
    fn addresses(text: &str) -> Vec<String> {
        let events = Parser::new_ext(text, Options::all());
        let address = |event: Event<'_>| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.to_string())
            }
            Event::Html(tag) | Event::InlineHtml(tag) => {
                Some(tag.to_string()).filter(|tag| tag.contains('='))
            }
            _ => None,
        };
        events.filter_map(address).collect()
    }

    #[test]
    fn unsafe_links_are_removed_in_every_syntax() {
        for hostile in [
            "[x](javascript:alert(1))",
            "a [x **y**](JaVaScRiPt:alert(1) \"title\") b",
            "[x](javascript&#58;alert(1))",
            "[x](&#x6a;avascript:alert(1))",
            "[x](javascript&colon;alert(1))",
            "[x](java&Tab;script:alert(1))",
            "[x](<java\tscript:alert(1)>)",
            "[x](\u{1}javascript:alert(1))",
            "[x](java\\script\\:alert(1))",
            "![x](data:text/html,<script>)",
            "[x](vbscript:x)",
            "[x](file:///etc/passwd)",
            "<javascript:alert(1)>",
            "[x][a]\n\n[a]: javascript:alert(1)",
            "[a]\n\n[a]: <data:x>\n",
            "[[x](javascript:a)](javascript:b)",
            "[![x](javascript:a)](https://b.example)",
            "<a href=javascript:alert(1)>x</a>",
            "<a href='java\nscript:alert(1)'>x</a>",
            "<a href=\"&#106;avascript:alert(1)\">x</a>",
            "> * [x](javascript:alert(1))\n\n| [y](data:x) |\n|---|\n| [z](vbscript:x) |",
        ] {
            let left = remove_unsafe_links(hostile);
            for address in addresses(&left) {
                assert_eq!(address, "https://b.example", "{hostile:?} became {left:?}");
            }
        }
    }

    #[test]
    fn link_text_is_kept() {
        assert_eq!(
            remove_unsafe_links("see [the *page*](javascript:x), now"),
            "see the *page* (link removed), now"
        );
        assert_eq!(remove_unsafe_links("<javascript:x>"), "(link removed)");
        assert_eq!(remove_unsafe_links("[unused]: javascript:x"), "(link removed)");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in [
            "[x](https://a.example/b?c=javascript:d) [y](../docs/a:b.md#c) <https://a.example> <me@a.example>",
            "[z](mailto:me@a.example) Vec<String> a < b, `[x](javascript:y)`\n\n    [x](javascript:y)\n",
            "```html\n<a href=\"javascript:x\">\n```\n[unused]: https://a.example\n",
            "javascript: is a scheme",
        ] {
            assert!(
                matches!(remove_unsafe_links(text), Cow::Borrowed(same) if same == text),
                "{text} {}",
                remove_unsafe_links(text)
            );
        }
    }

    #[test]
    fn deeply_nested_links_are_removed() {
        let deep = format!("{}x{}", "[".repeat(200), "](javascript:y)".repeat(200));
        assert_eq!(addresses(&remove_unsafe_links(&deep)), Vec::<String>::new());
    }
}
