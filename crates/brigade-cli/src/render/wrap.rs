//! Wrapping of text between words.

use super::width;

/// Program name that starts a command in a sentence.
const COMMANDS: [&str; 2] = ["brigade ", "/resume "];

/// Wraps the lines of a text between words to `columns`. Continuation lines are indented like their line. A word or a
/// command that is longer than a line stays whole: the terminal wraps it, and it can still be copied in one piece.
pub(crate) fn wrap_text(text: &str, columns: usize) -> String {
    let lines = text.split('\n').flat_map(|line| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        wrap_hanging(line, columns, indent)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Wraps Markdown. Code and tables are not changed.
pub(crate) fn wrap_markdown(text: &str, columns: usize) -> String {
    let mut is_code = false;
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let start = line.trim_start();
        let is_fence = start.starts_with("```") || start.starts_with("~~~");
        let is_verbatim = is_code || is_fence || start.starts_with('|') || line.starts_with("    ");
        is_code ^= is_fence;
        match is_verbatim {
            true => lines.push(line.to_owned()),
            false => lines.push(wrap_text(line, columns)),
        }
    }
    lines.join("\n")
}

/// Wraps one line to `columns`, and indents all lines but the first.
pub(crate) fn wrap_hanging(line: &str, columns: usize, indent: usize) -> Vec<String> {
    if width(line) <= columns {
        return vec![line.to_owned()];
    }
    let start = line.len() - line.trim_start_matches(' ').len();
    let (mut current, rest) = (line[..start].to_owned(), &line[start..]);
    let mut lines: Vec<String> = Vec::new();
    let mut is_empty = true;
    for word in split_words(rest) {
        if !is_empty && width(&current) + 1 + width(word) > columns {
            lines.push(std::mem::replace(&mut current, " ".repeat(indent)).trim_end().to_owned());
            is_empty = true;
        }
        // Spaces before the first word of a line are not indentation.
        if is_empty && word.is_empty() {
            continue;
        }
        if !is_empty {
            current.push(' ');
        }
        current.push_str(word);
        is_empty = false;
    }
    lines.push(current.trim_end().to_owned());
    lines
}

/// Words between single spaces. A command, up to the end of its sentence, is one word.
fn split_words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let begins = COMMANDS.iter().any(|command| rest.starts_with(command));
        let is_command = begins && words.last().is_none_or(|word: &&str| precedes_command(word));
        let end = match is_command {
            true => [rest.find("; "), rest.find(". ")].into_iter().flatten().min().map(|at| at + 1),
            false => rest.find(' '),
        };
        match end {
            Some(end) => {
                words.push(&rest[..end]);
                rest = &rest[end + 1..];
            }
            None => {
                words.push(rest);
                return words;
            }
        }
    }
}

/// Whether a command may follow this word.
fn precedes_command(word: &str) -> bool {
    word.ends_with(':') || word == "then"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_keep_their_indent() {
        assert_eq!(wrap_text("one two three", 7), "one two\nthree");
        assert_eq!(wrap_text("  one two three", 9), "  one two\n  three");
        assert_eq!(wrap_text("short\n\nlines", 7), "short\n\nlines");
        assert_eq!(wrap_text("one  two", 5), "one\ntwo");
        assert_eq!(wrap_text("日本 日本 日本", 9), "日本 日本\n日本");
        assert_eq!(
            wrap_hanging(" 1  name  why it is offered", 12, 4),
            [" 1  name", "    why it", "    is", "    offered"]
        );
    }

    #[test]
    fn no_word_is_broken_at_any_width() {
        let text =
            "  Stopped at the turn limit of 40: the agents were not done, and nothing recorded is lost.";
        let words: Vec<&str> = text.split_whitespace().collect();
        for columns in 1..120 {
            let shown = wrap_text(text, columns);
            assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), words, "{columns}: {shown}");
            let fits = |line: &str| width(line) <= columns || line.split_whitespace().count() == 1;
            assert!(shown.lines().all(fits), "{columns}: {shown}");
        }
    }

    #[test]
    fn command_stays_in_one_piece() {
        let text = "To continue later: brigade resume abcdefgh --set a=b; to see it: brigade demo";
        assert_eq!(
            wrap_text(text, 20),
            "To continue later:\nbrigade resume abcdefgh --set a=b;\nto see it:\nbrigade demo"
        );
        assert_eq!(
            wrap_text("  brigade resume abcdefgh --set a=b", 20),
            "  brigade resume abcdefgh --set a=b"
        );
        assert_eq!(wrap_text("get it, then brigade run 'a task'", 20), "get it, then\nbrigade run 'a task'");
        assert_eq!(wrap_text("to see a brigade at work", 10), "to see a\nbrigade at\nwork", "that is none");
    }

    #[test]
    fn code_and_tables_stay_as_they_are() {
        let text =
            "some long prose here\n```\nsome long code here\n```\n| a | long table |\n    indented code here";
        assert_eq!(
            wrap_markdown(text, 10),
            "some long\nprose here\n```\nsome long code here\n```\n| a | long table |\n    indented code here"
        );
    }
}
