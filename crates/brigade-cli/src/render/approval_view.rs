//! View of an approval request: the requesting agent, the reason, and the complete call. An edit is shown as a diff.
//!
//! No part of a call is left out, because harmful content hides where users do not look. Long runs of spaces that
//! would push it out of sight are replaced by their count. Only a long diff is shortened. It says so, and it can be
//! shown in full.

use std::sync::LazyLock;

use brigade::{Toolbox, Workspace};
use brigade_core::message::Category;
use brigade_core::view::{PendingApproval, Tree};
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{FileChange, fit, wrap_items};
use crate::preview::{self, Preview};
use crate::redaction;
use crate::sanitize;
use crate::terminal::Colour;
use crate::units;

/// Longer runs of spaces are replaced by their count.
const MAX_BLANKS: usize = 24;
/// Longer runs of empty lines are replaced by their count.
const MAX_EMPTY_LINES: usize = 3;
/// Minimum width that a call is wrapped to.
const MIN_TEXT_COLUMNS: usize = 16;
/// Prefix of every line of a call, so that none looks like other output.
const MARGIN: &str = "  │ ";
/// Prefix of the continuation of a wrapped line.
const CONTINUATION_MARGIN: &str = "  ┆ ";
/// Rows of a diff that are shown at first.
const MAX_DIFF_ROWS: usize = 60;
/// Excess rows that are still shown, because a note about them would be as long.
const DIFF_ROWS_MARGIN: usize = 3;
/// Deepest indentation in a diff that is shown unchanged.
const MAX_INDENT_COLUMNS: usize = 80;
/// Replacement for a tab in a diff.
const TAB: &str = "    ";
/// Maximum width of a path or a command in a headline.
const MAX_SUBJECT_COLUMNS: usize = 120;

/// Tools that describe their calls.
static BUILT_IN: LazyLock<Toolbox> = LazyLock::new(Toolbox::standard);

/// Presentation of an approval request.
#[derive(Clone, Copy)]
pub(crate) struct ViewOptions<'a> {
    pub(crate) columns: usize,
    pub(crate) colour: Colour,
    /// Workspace with the files that an edit is compared with, if available.
    pub(crate) workspace: Option<&'a Workspace>,
    pub(crate) diff_detail: DiffDetail,
}

/// Amount of a long diff that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiffDetail {
    /// Its first rows.
    Bounded,
    Full,
}

/// Approval request as lines.
pub(crate) struct RenderedApproval {
    /// Sanitized lines that may contain styles.
    pub(crate) lines: Vec<String>,
    /// Whether part of the diff is hidden.
    pub(crate) is_cut: bool,
}

/// Path of agents from the root to the requesting one.
pub(crate) fn lineage(approval: &PendingApproval, tree: &Tree) -> String {
    let labels: Vec<String> = tree.lineage(&approval.session).into_iter().map(sanitize::line).collect();
    if labels.is_empty() { approval.session.to_string() } else { labels.join(" › ") }
}

/// One-sentence summary, such as `lead wants to edit src/lib.rs`.
pub(crate) fn headline(approval: &PendingApproval, tree: &Tree) -> String {
    let running = match &approval.host {
        Some(_) => format!(" (running: {})", running(approval)),
        None => String::new(),
    };
    format!("{} wants to {}{running}", lineage(approval, tree), action(approval))
}

/// Action that requires the approval, such as `edit src/lib.rs` or `connect to registry.example:443`.
pub(crate) fn action(approval: &PendingApproval) -> String {
    match &approval.host {
        Some(host) => format!("connect to {host}"),
        None => call_action(approval),
    }
}

/// Short form of the call that runs, such as `npm install`.
fn running(approval: &PendingApproval) -> String {
    let arguments: Value = serde_json::from_str(approval.arguments()).unwrap_or_default();
    let tool = BUILT_IN.get(approval.tool());
    match tool.and_then(|tool| Some((tool.spec().category, tool.title(&arguments)?))) {
        Some((Category::Execute, title)) if is_plain(&title.object) => title.object,
        Some((Category::Execute, _)) => "a command".to_owned(),
        _ => sanitize::line(approval.tool()),
    }
}

/// Call as a verb with its object, such as `edit src/lib.rs`.
fn call_action(approval: &PendingApproval) -> String {
    let arguments: Value = serde_json::from_str(&redaction::json(approval.arguments())).unwrap_or_default();
    let tool = BUILT_IN.get(approval.tool());
    let title = tool.and_then(|tool| Some((tool.spec().category, tool.title(&arguments)?)));
    match title {
        Some((Category::Execute, title)) if is_plain(&title.object) => {
            format!("{} `{}`", title.verb.to_lowercase(), title.object)
        }
        Some((Category::Execute, title)) => format!("{} a command", title.verb.to_lowercase()),
        Some((_, title)) => format!("{} {}", title.verb.to_lowercase(), path_text(&title.object)),
        None => format!("call {}", sanitize::line(approval.tool())),
    }
}

/// Path within a sentence. It is quoted if it could be mistaken for words of the sentence.
fn path_text(path: &str) -> String {
    let path = fit(&sanitize::line(path), MAX_SUBJECT_COLUMNS);
    let is_plain = |c: char| c.is_alphanumeric() || "._/-+@…".contains(c);
    if path.chars().all(is_plain) { path } else { format!("`{path}`") }
}

/// Whether a command is short, and cannot be mistaken for something else.
fn is_plain(command: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " ._/-=:@+,".contains(c);
    command.len() <= MAX_SUBJECT_COLUMNS && command.chars().all(is_plain) && !command.trim().is_empty()
}

/// Renders the request, complete except for the end of a long diff.
pub(crate) fn render(approval: &PendingApproval, tree: &Tree, options: ViewOptions<'_>) -> RenderedApproval {
    let head = format!("{} ({})", headline(approval, tree), sanitize::line(&approval.why));
    let mut lines = wrap_items(head.split(' '), " ", options.columns);
    let preview = options.workspace.and_then(|workspace| preview::preview_edit(approval, workspace));
    let remark = match preview {
        Some(Preview::Changes { path, is_new, change }) => {
            let (rows, is_cut) = diff(&change, options);
            let of_file = if is_new { "new file, " } else { "" };
            let numbers = format!("{of_file}+{} -{}", change.added, change.removed);
            push_broken(&mut lines, &format!("{} ({numbers})", sanitize::line(&path)), options);
            lines.extend(rows);
            return RenderedApproval { lines, is_cut };
        }
        Some(Preview::Fails { reason }) => Some(format!("This call would fail: {}", sanitize::line(&reason))),
        None => None,
    };
    for line in remark.into_iter().chain(argument_lines(&redaction::json(approval.arguments()))) {
        push_broken(&mut lines, &line, options);
    }
    RenderedApproval { lines, is_cut: false }
}

/// Adds a line of a call behind the margin, wrapped to fit.
fn push_broken(lines: &mut Vec<String>, line: &str, options: ViewOptions<'_>) {
    for (number, part) in break_line(line, text_columns(options)).into_iter().enumerate() {
        lines.push(format!("{}{part}", if number == 0 { MARGIN } else { CONTINUATION_MARGIN }));
    }
}

fn text_columns(options: ViewOptions<'_>) -> usize {
    options.columns.saturating_sub(MARGIN.width()).max(MIN_TEXT_COLUMNS)
}

/// Rows of a diff, and whether some are hidden.
fn diff(change: &FileChange, options: ViewOptions<'_>) -> (Vec<String>, bool) {
    let diff = change.diff.strip_suffix('\n').unwrap_or(&change.diff);
    if diff.is_empty() {
        return (vec![format!("{MARGIN}No changes.")], false);
    }
    let lines: Vec<&str> = diff.split('\n').collect();
    // If every line ends like this, the mark carries no information.
    let is_text = |line: &&&str| line.starts_with(['+', '-', ' ']);
    let is_crlf = lines.iter().filter(is_text).all(|line| line.ends_with('\r'));
    // Row at which each line ends.
    let (mut rows, mut ends) = (Vec::new(), Vec::new());
    for line in lines {
        let line = if is_crlf { line.strip_suffix('\r').unwrap_or(line) } else { line };
        rows.extend(diff_line(line, options));
        ends.push(rows.len());
    }
    if options.diff_detail == DiffDetail::Full || rows.len() <= MAX_DIFF_ROWS + DIFF_ROWS_MARGIN {
        return (rows, false);
    }
    rows.truncate(MAX_DIFF_ROWS);
    let shown = ends.iter().filter(|end| **end <= MAX_DIFF_ROWS).count();
    let is_within_line = shown.checked_sub(1).map_or(0, |last| ends[last]) < MAX_DIFF_ROWS;
    let hidden = match (is_within_line, ends.len() - shown) {
        (false, count) => format!("{} hidden", units::count(count, "more line")),
        (true, 1) => "rest of this line hidden".to_owned(),
        (true, count) => format!("rest of this line and {} hidden", units::count(count - 1, "more line")),
    };
    rows.push(format!("{MARGIN}⟨{hidden}⟩"));
    (rows, true)
}

/// Line of a diff, in the colour of its kind.
fn diff_line(line: &str, options: ViewOptions<'_>) -> Vec<String> {
    let (sign, text) = line.split_at(line.chars().next().map_or(0, char::len_utf8));
    let style = match sign {
        "+" => "32",
        "-" => "31",
        "@" => "36",
        _ => "",
    };
    let parts = break_line(&indented(text), text_columns(options).saturating_sub(1));
    let row = |(number, part): (usize, String)| {
        let (margin, sign) = if number == 0 { (MARGIN, sign) } else { (CONTINUATION_MARGIN, " ") };
        format!("{margin}{}", options.colour.paint(style, &format!("{sign}{part}")))
    };
    parts.into_iter().enumerate().map(row).collect()
}

/// Line of a file. Its indentation is kept, unless it is deep enough to hide something.
fn indented(text: &str) -> String {
    let text = text.replace('\t', TAB);
    let rest = text.trim_start_matches(' ');
    match text.len() - rest.len() {
        indent @ 0..=MAX_INDENT_COLUMNS => format!("{}{}", " ".repeat(indent), count_blanks(rest)),
        _ => count_blanks(&text),
    }
}

/// Splits a line into pieces that fit, and keeps every space.
fn break_line(line: &str, room: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut used = 0;
    for letter in line.chars() {
        let width = letter.width().unwrap_or(0);
        if used + width > room {
            parts.push(String::new());
            used = 0;
        }
        used += width;
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts
}

/// Arguments of a call: each with its name and the path first, or a single one without a name.
fn argument_lines(arguments: &str) -> Vec<String> {
    let Ok(Value::Object(fields)) = serde_json::from_str(arguments) else {
        return visible_lines(arguments);
    };
    let is_plain = fields.len() == 1;
    let mut lines = Vec::new();
    let (path, rest): (Vec<_>, Vec<_>) = fields.iter().partition(|(name, _)| *name == "path");
    for (name, value) in path.into_iter().chain(rest) {
        let name = sanitize::line(name);
        match value {
            Value::String(text) if is_plain => lines.extend(visible_lines(text)),
            Value::String(text) if !text.contains('\n') => {
                lines.extend(visible_lines(text).iter().map(|line| format!("{name}: {line}")));
            }
            Value::String(text) => {
                lines.push(format!("{name}:"));
                lines.extend(visible_lines(text).iter().map(|line| format!("  {line}")));
            }
            other => lines.push(format!("{name}: {}", visible_lines(&other.to_string()).join(" "))),
        }
    }
    lines
}

/// Splits text into lines, and makes invisible and oversized content visible.
fn visible_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut empty = 0;
    for line in text.split('\n') {
        if line.trim().is_empty() {
            empty += 1;
            continue;
        }
        push_empty_lines(&mut lines, &mut empty);
        lines.push(count_blanks(line));
    }
    push_empty_lines(&mut lines, &mut empty);
    lines
}

fn push_empty_lines(lines: &mut Vec<String>, empty: &mut usize) {
    let count = std::mem::take(empty);
    if count > MAX_EMPTY_LINES {
        lines.push(format!("⟨{count} empty lines⟩"));
    } else {
        lines.extend(std::iter::repeat_n(String::new(), count));
    }
}

/// Replaces long runs of spaces by their count, and escapes other kinds of spaces.
fn count_blanks(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut blanks = 0;
    for letter in line.chars().map(Some).chain([None]) {
        if letter == Some(' ') {
            blanks += 1;
            continue;
        }
        match std::mem::take(&mut blanks) {
            few @ 0..=MAX_BLANKS => shown.extend(std::iter::repeat_n(' ', few)),
            many => shown.push_str(&format!("⟨{many} spaces⟩")),
        }
        match letter {
            Some(letter) if is_invisible(letter) => shown.extend(letter.escape_unicode()),
            Some(letter) => shown.push(letter),
            None => {}
        }
    }
    sanitize::lines(&shown).into_owned()
}

/// Whether a character is invisible, or changes its neighbours, and is not a plain space.
fn is_invisible(letter: char) -> bool {
    letter.is_whitespace()
        || letter.width() == Some(0)
        || matches!(letter,
            '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{e0100}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    use brigade_core::event::Answer;
    use brigade_core::{CallId, SessionId};
    use serde_json::json;

    use super::*;

    #[test]
    fn end_of_a_padded_command_is_visible() {
        let command = format!("ls{};rm -rf ~\u{202e}\u{1b}[2K\u{200b}", " ".repeat(5000));
        let lines = argument_lines(&serde_json::json!({ "command": command }).to_string());
        assert_eq!(lines, [r"ls⟨5000 spaces⟩;rm -rf ~\u{202e}\u{1b}[2K\u{200b}"]);
        let command = format!("ls{}rm -rf ~", "\n".repeat(400));
        assert_eq!(
            argument_lines(&serde_json::json!({ "command": command }).to_string()),
            ["ls", "⟨399 empty lines⟩", "rm -rf ~"]
        );
        assert_eq!(count_blanks("a\u{2800}\u{301}\u{fe0f}\u{3164}b"), r"a\u{2800}\u{301}\u{fe0f}\u{3164}b");
        assert_eq!(count_blanks("a\u{a0}\u{3000}\tb\rc"), r"a\u{a0}\u{3000}\u{9}b\u{d}c");
    }

    #[test]
    fn long_lines_break_within_the_margin() {
        assert_eq!(break_line("  abcdefg", 5), ["  abc", "defg"]);
        assert_eq!(break_line("日本語", 5), ["日本", "語"]);
        assert_eq!(break_line("", 5), [""]);
    }

    #[test]
    fn all_arguments_are_shown_with_their_names() {
        let lines =
            argument_lines(r#"{"content":"one\n\n  two\n","path":"a.txt","mode":7,"\u001b[2Jx":true}"#);
        assert_eq!(
            lines,
            ["path: a.txt", "content:", "  one", "  ", "    two", "  ", "mode: 7", r"\u{1b}[2Jx: true"]
        );
        assert_eq!(argument_lines("not json \u{1b}[2J"), [r"not json \u{1b}[2J"]);
    }

    fn approval(tool: &str, arguments: Value) -> PendingApproval {
        PendingApproval {
            session: SessionId::root(1),
            call: CallId { turn: 1, index: 0 },
            host: None,
            what: format!("{tool} {arguments}").into(),
            why: "this mode requires approval".to_owned(),
            always: None,
            asked_at: 0,
            until: 0,
            default: Answer::Deny { word: None },
        }
    }

    #[test]
    fn headline_names_the_action_and_its_object() {
        let action = |tool: &str, arguments: Value| action(&approval(tool, arguments));
        assert_eq!(
            action("edit_file", json!({"path": "src/lib.rs", "old": "a", "new": "b"})),
            "edit src/lib.rs"
        );
        assert_eq!(action("write_file", json!({"path": "a b (yes)", "content": ""})), "write `a b (yes)`");
        assert_eq!(action("shell", json!({"command": "cargo test -p x"})), "run `cargo test -p x`");
        assert_eq!(action("shell", json!({"command": "ls`; rm -rf ~"})), "run a command");
        assert_eq!(action("mcp__x__y", json!({"path": "a"})), "call mcp__x__y");
        assert_eq!(
            action("edit_file", json!({"path": "a\u{1b}[2J", "old": "", "new": ""})),
            r"edit `a\u{1b}[2J`"
        );
    }

    #[test]
    fn headline_names_the_host_and_the_running_command() {
        let headline = |tool: &str, arguments: Value| {
            let host = "registry.example:443".parse().ok();
            headline(&PendingApproval { host, ..approval(tool, arguments) }, &Tree::default())
        };
        let who = SessionId::root(1);
        assert_eq!(
            headline("shell", json!({"command": "npm install"})),
            format!("{who} wants to connect to registry.example:443 (running: npm install)")
        );
        assert_eq!(
            headline("shell", json!({"command": "ls) and nothing else"})),
            format!("{who} wants to connect to registry.example:443 (running: a command)")
        );
        assert_eq!(
            headline("mcp__x__y", json!({})),
            format!("{who} wants to connect to registry.example:443 (running: mcp__x__y)")
        );
    }

    fn rows(before: &str, after: &str, diff_detail: DiffDetail) -> (Vec<String>, bool) {
        let options = ViewOptions { columns: 24, colour: Colour::Off, workspace: None, diff_detail };
        diff(&FileChange::between(before, after, None), options)
    }

    #[test]
    fn diff_keeps_indentation_and_shows_invisible_characters() {
        let (rows, is_cut) =
            rows("fn a() {\n\told\n}\n", "fn a() {\n    new\u{200b}\n}\n", DiffDetail::Bounded);
        assert!(!is_cut);
        assert_eq!(
            rows,
            ["  │ @@ -1,3 +1,3 @@", "  │  fn a() {", "  │ -    old", r"  │ +    new\u{200b}", "  │  }"]
        );
        let (rows, _) = super::tests::rows("a\r\n", "b\r\n", DiffDetail::Bounded);
        assert_eq!(rows[1..], ["  │ -a", "  │ +b"]);
        let (rows, _) = super::tests::rows("a\r\n", "a\n", DiffDetail::Bounded);
        assert_eq!(rows[1..], [r"  │ -a\u{d}", "  │ +a"]);
        assert_eq!(super::tests::rows("a", "a", DiffDetail::Bounded).0, ["  │ No changes."]);
    }

    #[test]
    fn long_diff_counts_hidden_lines_and_can_be_shown_in_full() {
        let many: String = (0..100).map(|number| format!("{number}\n")).collect();
        let (bounded, is_cut) = rows("", &many, DiffDetail::Bounded);
        assert!(is_cut);
        assert_eq!(bounded.len(), MAX_DIFF_ROWS + 1);
        assert_eq!(bounded[MAX_DIFF_ROWS], "  │ ⟨41 more lines hidden⟩");
        let (whole, is_cut) = rows("", &many, DiffDetail::Full);
        assert_eq!((whole.len(), is_cut), (101, false));
        // A note in place of two lines would save nothing.
        let few: String = (0..MAX_DIFF_ROWS + 1).map(|number| format!("{number}\n")).collect();
        assert!(!rows("", &few, DiffDetail::Bounded).1);
        let long = format!("{}\nb\nc\n", "x".repeat(5000));
        let (bounded, _) = rows("", &long, DiffDetail::Bounded);
        assert_eq!(bounded[MAX_DIFF_ROWS], "  │ ⟨rest of this line and 2 more lines hidden⟩");
    }
}
