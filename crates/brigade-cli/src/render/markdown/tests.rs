use unicode_width::UnicodeWidthStr;

use super::*;

fn shown(text: &str, columns: usize) -> Vec<String> {
    let mut markdown = Markdown::new(Colour::Off, columns);
    let mut lines = markdown.push(text);
    lines.extend(markdown.end());
    lines
}

#[test]
fn blocks_are_separated() {
    let text = "# Title\nSome *soft* and **hard** words\nin two lines, `code` too.\n\n- one\n- two\n  more of two\n\n1. first\n2. second\n   - below\n\nEnd.";
    assert_eq!(
        shown(text, 60),
        [
            "Title",
            "",
            "Some soft and hard words",
            "in two lines, `code` too.",
            "",
            "- one",
            "- two",
            "  more of two",
            "1. first",
            "2. second",
            "   - below",
            "",
            "End."
        ]
    );
}

#[test]
fn paragraphs_wrap_at_words_and_list_items_hang() {
    assert_eq!(shown("one two three four", 10), ["one two", "three four"]);
    assert_eq!(shown("- one two three four", 10), ["- one two", "  three", "  four"]);
    assert_eq!(shown("> one two three", 10), ["│ one two", "│ three"]);
    assert_eq!(shown("日本語日本語日本語", 10), ["日本語日本", "語日本語"]);
    assert_eq!(shown("a: 日本語日本語", 10), ["a: 日本語", "日本語"]);
    assert_eq!(shown("a supercalifragilistic", 10), ["a supercal", "ifragilist", "ic"]);
    assert_eq!(shown("supercalifragilistic", 10), ["supercalif", "ragilistic"]);
}

#[test]
fn code_is_verbatim_and_emitted_line_by_line() {
    let mut markdown = Markdown::new(Colour::Off, 20);
    assert_eq!(markdown.push("Look:\n```rust\nfn main() {\n"), ["Look:", "", "    fn main() {"]);
    assert_eq!(
        markdown.push("    a_very_long_line_that_no_one_breaks();\n"),
        ["        a_very_long_line_that_no_one_breaks();"]
    );
    assert_eq!(markdown.push("# no heading\n"), ["    # no heading"]);
    assert_eq!(markdown.push("```\nDone."), Vec::<String>::new());
    assert_eq!(markdown.end(), ["", "Done."]);
    assert_eq!(shown("~~~~\n```\n~~~~\nx", 20), ["    ```", "", "x"]);
    assert_eq!(shown("```a``` is no fence", 40), ["`a` is no fence"]);
    assert_eq!(shown("- item:\n  ```\n  code\n  ```\n", 40), ["- item:", "", "      code"]);
}

#[test]
fn links_show_their_address() {
    assert_eq!(shown("[here](https://a.example/x)", 60), ["here (https://a.example/x)"]);
    assert_eq!(shown("<https://a.example>", 60), ["https://a.example"]);
    assert_eq!(shown("![a picture](p.png)", 60), ["a picture (p.png)"]);
    assert_eq!(
        shown("[https://good.example](https://evil.example)", 80),
        ["https://good.example (https://evil.example)"]
    );
}

#[test]
fn tables_are_aligned_or_become_lists() {
    let table = "| name | size |\n|------|-----:|\n| a | 1 |\n| 日本 | 22 |\n\nafter";
    assert_eq!(shown(table, 40), ["name  size", "────  ────", "a     1", "日本  22", "", "after"]);
    assert_eq!(
        shown("|name|what it is about|\n|-|-|\n|alpha|beta gamma delta|\n", 20),
        ["- name: alpha", "  what it is about:", "  beta gamma delta"]
    );
}

#[test]
fn control_sequences_are_escaped() {
    let hostile = "a\u{1b}[2J &#27;[31m &#x9b;1m `\u{7}` [x](http://a/\u{1b}]0;t\u{7}) \u{202e}\n\n```\n\u{1b}c\n```\n\n    \u{1b}[H\n\n| \u{1b}[1m |\n|-|\n| &#8; |\n\n# \u{9b}2J\n\n<b \u{1b}>";
    for colour in [Colour::On, Colour::Off] {
        let mut markdown = Markdown::new(colour, 60);
        let mut lines = Vec::new();
        for character in hostile.chars() {
            lines.extend(markdown.push(&character.to_string()));
            lines.extend(markdown.pending(3));
        }
        lines.extend(markdown.end());
        for line in &lines {
            // Only our own colours remain.
            let mut rest = line.clone();
            while let Some(at) = rest.find("\u{1b}[") {
                let end = rest[at..].find('m').unwrap();
                assert!(rest[at + 2..at + end].chars().all(|c| c.is_ascii_digit() || c == ';'), "{line:?}");
                rest.replace_range(at..=at + end, "");
            }
            assert!(!rest.chars().any(char::is_control), "{line:?}");
            assert!(!rest.contains('\u{202e}'), "{line:?}");
        }
    }
}

#[test]
fn chunking_does_not_change_the_output() {
    let text = "# T\n\npara *with\nlines*\n- a\n\n- b\n\n  still b\n\nnext\n```\ncode\n\nmore\n```\n|a|b|\n|-|-|\n|1|2|\ntail\n\n---\n\nlast";
    let whole = shown(text, 40);
    for size in 1..9 {
        let mut markdown = Markdown::new(Colour::Off, 40);
        let mut lines = Vec::new();
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(size) {
            lines.extend(markdown.push(&piece.iter().collect::<String>()));
        }
        lines.extend(markdown.end());
        assert_eq!(lines, whole, "in pieces of {size}");
    }
    assert!(whole.contains(&"  still b".to_owned()), "{whole:?}");
}

#[test]
fn pending_text_can_be_previewed() {
    let mut markdown = Markdown::new(Colour::Off, 10);
    assert!(markdown.push("one two three four").is_empty());
    assert_eq!(markdown.pending(1), ["three four"]);
    assert_eq!(markdown.pending(5), ["one two", "three four"]);
    assert_eq!(markdown.push("\n\n"), ["one two", "three four"]);
    assert!(markdown.pending(5).is_empty());
}

#[test]
fn text_stays_within_the_window() {
    let text = "# A long heading of many words\n\n- 日本語 item with *looks* and `code of length`\n  1. nested deeper and deeper\n\n> quoted words that go on\n\n|a|b|\n|-|-|\n|some words|more words|\n";
    for columns in 12..60 {
        for line in shown(text, columns) {
            assert!(line.width() <= columns, "{columns}: {line:?}");
        }
    }
}

#[test]
fn styles_become_colours_if_enabled() {
    let mut markdown = Markdown::new(Colour::On, 40);
    let mut lines = markdown.push("**b** *i* `c` ~~s~~");
    lines.extend(markdown.end());
    assert_eq!(lines, ["\u{1b}[1mb\u{1b}[0m \u{1b}[3mi\u{1b}[0m \u{1b}[36mc\u{1b}[0m \u{1b}[9ms\u{1b}[0m"]);
}

#[test]
fn deep_nesting_stays_readable() {
    for mark in ["> ", "- ", "1. "] {
        let lines = shown(&format!("{}deep", mark.repeat(3000)), 80);
        assert!(lines.last().unwrap().ends_with("deep"));
        assert!(lines.iter().all(|line| line.width() < 80), "{:?}", lines.last());
    }
}
