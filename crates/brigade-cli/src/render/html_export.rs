//! HTML export of a run tree: one self-contained page without scripts, other files or network access.
//!
//! Text of other origin passes through `text` or `line`, which remove markup and control characters.

use std::borrow::Cow;

use brigade_core::SessionId;
use brigade_core::view::Node;

use super::RowContent;
use super::export_model::{ExportedRun, OutcomeLabel, anchor, outcome_label, status_label};
use super::timeline::{
    ApprovalItem, CallItem, Child, FileChange, Item, RoundStarted, Timeline, Turn, usage_text,
};
use crate::clock;
use crate::sanitize;
use crate::units;

/// Style sheet of the page.
const STYLE: &str = include_str!("html.css");
/// Outputs with more lines start collapsed.
const MAX_OPEN_LINES: usize = 8;
/// Diffs with more lines start collapsed.
const MAX_OPEN_DIFF_LINES: usize = 60;

/// Run tree as an HTML page.
pub(crate) fn export_html(run: &ExportedRun) -> String {
    let title = line(&run.title());
    let mut page = HtmlPage { html: String::new(), root: run.view.root.clone() };
    page.push(&format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    ));
    page.head(run, &title);
    page.agents(run);
    for (node, timeline) in run.timelines() {
        page.agent(node, &timeline);
    }
    page.push("</main>\n</body>\n</html>\n");
    page.html
}

struct HtmlPage {
    html: String,
    root: SessionId,
}

impl HtmlPage {
    fn push(&mut self, html: &str) {
        self.html.push_str(html);
    }

    fn head(&mut self, run: &ExportedRun, title: &str) {
        let root = &run.view.root;
        let totals = run.totals(root);
        let usage = totals.spent.usage;
        self.push(&format!("<header>\n<h1>{title}</h1>\n<p class=\"sub\">"));
        if let Some(node) = run.root() {
            self.push(&format!(
                "{} <span>{}</span> ",
                badge(&outcome_label(node)),
                clock::format_utc(node.started_at)
            ));
        }
        self.push(&format!("<code>{root}</code></p>\n<dl class=\"facts\">\n"));
        let facts = [
            ("cost", units::brief_cost(&totals.spent)),
            ("time", units::format_elapsed(totals.time)),
            ("agents", totals.agents.to_string()),
            ("turns", totals.turns.to_string()),
            ("tokens in", units::format_compact(usage.input_total())),
            ("tokens out", units::format_compact(usage.output)),
        ];
        for (key, value) in facts {
            self.push(&format!("<div><dt>{key}</dt><dd>{value}</dd></div>\n"));
        }
        self.push("</dl>\n");
        if totals.spent.unconfirmed.tokens > 0 {
            let tokens = units::format_compact(totals.spent.unconfirmed.tokens);
            self.push(&format!("<p class=\"trouble\">Up to {tokens} more tokens may have been billed for replies that did not arrive.</p>\n"));
        }
        if let Some(fault) = &run.fault {
            self.push(&format!(
                "<p class=\"trouble\">Part of this session cannot be read: {}</p>\n",
                line(fault)
            ));
        }
        self.push("</header>\n");
    }

    fn agents(&mut self, run: &ExportedRun) {
        let whole = run.totals(&run.view.root);
        let share = |part: u64, all: u64| (u128::from(part) * 100).checked_div(u128::from(all)).unwrap_or(0);
        self.push(
            "<nav aria-label=\"Agents\">\n<h2>Agents</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>agent</th><th>outcome</th>\
             <th class=\"n\">turns</th><th class=\"n\">tokens</th><th class=\"n\">cost</th><th class=\"n\">time</th>\
             <th class=\"n sum\">Σ tokens</th><th class=\"n\">Σ cost</th><th class=\"n\">Σ time</th></tr></thead>\n<tbody>\n",
        );
        for row in run.rows() {
            let RowContent::Agent(node, _) = row.content else { continue };
            let totals = run.totals(&node.session);
            // If nothing cost money, the share is computed from the tokens.
            let share = match whole.spent.usd {
                0 => share(totals.spent.usage.total(), whole.spent.usage.total()),
                all => share(totals.spent.usd, all),
            };
            self.push(&format!(
                "<tr><td><span class=\"twig\">{}</span><a href=\"#{}\">{}</a></td><td>{}</td><td class=\"n\">{}</td>\
                 <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n sum\">{}</td>\
                 <td class=\"n bar\" style=\"--share:{share}%\">{}</td><td class=\"n\">{}</td></tr>\n",
                row.prefix.replace(' ', "\u{a0}"),
                anchor(&node.session),
                line(&node.label),
                badge(&outcome_label(node)),
                node.turns,
                units::format_compact(node.own_usage.usage.total()),
                units::format_cost(&node.own_usage),
                units::format_elapsed(run.view.tree.working_time([&node.session], None)),
                units::format_compact(totals.spent.usage.total()),
                units::brief_cost(&totals.spent),
                units::format_elapsed(totals.time),
            ));
        }
        self.push(
            "</tbody>\n</table></div>\n<p class=\"hint\">Σ: the agent and its descendants.</p>\n</nav>\n",
        );
    }

    fn agent(&mut self, node: &Node, timeline: &Timeline<'_>) {
        self.push(&format!(
            "<section id=\"{}\">\n<details class=\"agent\" open>\n<summary><h2>{}</h2>{}<code>{}</code></summary>\n",
            anchor(&node.session),
            line(&node.label),
            badge(&outcome_label(node)),
            node.session
        ));
        for item in &timeline.items {
            self.item(item);
        }
        self.push("</details>\n</section>\n");
    }

    fn item(&mut self, item: &Item<'_>) {
        match item {
            Item::RoundStarted(started) => self.round_started(started),
            Item::Message { from, text } => {
                self.message_block("heard", &format!("Message from {}", line(from)), "", text)
            }
            Item::Turn(turn) => self.turn(turn),
            Item::Compacted { keep_from, summary } => {
                self.message_block(
                    "compacted",
                    &format!("Turns before turn {keep_from} were summarized"),
                    "",
                    summary,
                );
            }
            Item::Note(note) => self.push(&format!("<p class=\"note\">{}</p>\n", line(note))),
            Item::Problem(problem) => self.push(&format!("<p class=\"trouble\">{}</p>\n", line(problem))),
            Item::RoundEnded { outcome, used, result } => {
                self.push(&format!(
                    "<div class=\"end\">{}<small>{used}</small></div>\n",
                    badge(&status_label(&outcome.status))
                ));
                self.warnings(&outcome.warnings);
                if let Some(result) = result {
                    self.message_block("result", "Result", "", result);
                }
            }
        }
    }

    fn round_started(&mut self, started: &RoundStarted<'_>) {
        let mut note =
            format!("Started {}; budget: {}.", clock::format_utc(started.at), line(&started.budget_text()));
        if let Some(parent) = started.parent {
            let parent = match self.root.contains(parent) {
                true => format!("<a href=\"#{}\"><code>{parent}</code></a>", anchor(parent)),
                false => format!("<code>{parent}</code>"),
            };
            note.push_str(&format!(" Delegated by {parent} with {}.", started.delegation.style));
        }
        self.push(&format!("<p class=\"note\">{note}</p>\n"));
        self.warnings(&started.delegation.warnings);
        if !started.delegation.task.is_empty() {
            self.message_block(
                "heard",
                &format!("Task from {}", started.requester()),
                "",
                started.delegation.task.as_str(),
            );
        }
        if let Some(context) = &started.delegation.context {
            self.folded("Context", context.as_str());
        }
    }

    /// Message block with its sender.
    fn message_block(&mut self, class: &str, who: &str, more: &str, content: &str) {
        let body = prose(content);
        self.push(&format!(
            "<article class=\"{class}\"><h3>{who}<small>{more}</small></h3>\n<div class=\"prose\">{body}</div></article>\n"
        ));
    }

    fn turn(&mut self, turn: &Turn<'_>) {
        let remark = turn.remark.map(|remark| format!(" ({remark})")).unwrap_or_default();
        self.push(&format!(
            "<article class=\"turn\"><h3>Turn {}{remark}<small>{}</small></h3>\n",
            turn.number, turn.used
        ));
        if !turn.text.trim().is_empty() {
            self.push(&format!("<div class=\"prose\">{}</div>\n", prose(turn.text)));
        }
        for side_note in &turn.side_notes {
            self.push(&format!("<p class=\"note\">{}</p>\n", line(side_note)));
        }
        turn.calls.iter().for_each(|call| self.call(call));
        self.push("</article>\n");
    }

    fn call(&mut self, call: &CallItem<'_>) {
        let (class, mark) = match call.output {
            None => ("open-ended", "?"),
            Some(output) if output.is_error() => ("failed", "✗"),
            Some(_) => ("ok", "✓"),
        };
        let output = call.user_message.or(call.shown_output());
        let lines = output.map_or(0, |output| output.trim_end().lines().count());
        let is_open = call.failed()
            || !call.approvals.is_empty()
            || call.user_message.is_some()
            || call
                .change
                .as_ref()
                .map_or(lines <= MAX_OPEN_LINES, |change| change.diff.lines().count() <= MAX_OPEN_DIFF_LINES);
        let size = match &call.change {
            Some(FileChange { added, removed: 0, .. }) => format!("<ins>+{added}</ins>"),
            Some(FileChange { added: 0, removed, .. }) => format!("<del>−{removed}</del>"),
            Some(FileChange { added, removed, .. }) => format!("<ins>+{added}</ins> <del>−{removed}</del>"),
            None if call.user_message.is_some() => "message to the user".to_owned(),
            None if lines > 0 => units::count(lines, "line"),
            None => String::new(),
        };
        let took = call.took.map(units::format_elapsed).unwrap_or_default();
        let open = if is_open { " open" } else { "" };
        self.push(&format!(
            "<details class=\"call {class}\"{open}><summary><span class=\"mark\">{mark}</span><b>{}</b>\
             <span class=\"what\">{}</span><span class=\"size\">{size}</span><span class=\"took\">{took}</span></summary>\n",
            line(call.name),
            escape_html(&call.main_argument()),
        ));
        self.arguments(call);
        call.approvals.iter().for_each(|approval| self.approval(approval));
        call.children.iter().for_each(|child| self.child(child));
        if let Some(change) = &call.change {
            self.change(change);
        }
        match output {
            Some(output) => self.push(&format!("<pre>{}</pre>\n", text(output.trim_end()))),
            None if call.output.is_none() => self.push("<p class=\"note\">no result</p>\n"),
            None => {}
        }
        self.push("</details>\n");
    }

    fn arguments(&mut self, call: &CallItem<'_>) {
        let other_arguments = call.other_arguments();
        if other_arguments.is_empty() {
            return;
        }
        self.push("<dl class=\"arguments\">");
        for (key, value) in other_arguments {
            self.push(&format!("<dt>{}</dt><dd>{}</dd>", escape_html(&key), text(&value)));
        }
        self.push("</dl>\n");
    }

    fn approval(&mut self, approval: &ApprovalItem<'_>) {
        let answer = approval.answer.as_deref().unwrap_or("pending");
        self.push(&format!(
            "<p class=\"question\"><b>approval requested</b> {}<br><b>answer</b> {}</p>\n",
            line(&approval.what),
            line(answer)
        ));
    }

    fn child(&mut self, child: &Child<'_>) {
        let (label, target) = (line(child.label), anchor(child.session));
        let returned = match &child.returned {
            None => "<small>still running</small>".to_owned(),
            Some((outcome, spent, took)) => {
                let status = badge(&status_label(&outcome.status));
                format!("{status}<small>{}, {}</small>", units::format_elapsed(*took), usage_text(spent))
            }
        };
        self.push(&format!("<p class=\"child\">→ <a href=\"#{target}\">{label}</a> {returned}</p>\n"));
    }

    fn change(&mut self, change: &FileChange) {
        if let Some(remark) = change.remark {
            self.push(&format!("<p class=\"note\">{}</p>\n", line(remark)));
        }
        self.push("<pre class=\"diff\">");
        for row in change.diff.lines() {
            let row_html = text(row);
            match row.as_bytes().first() {
                Some(b'+') => self.push(&format!("<ins>{row_html}\n</ins>")),
                Some(b'-') => self.push(&format!("<del>{row_html}\n</del>")),
                Some(b'@') => self.push(&format!("<i>{row_html}\n</i>")),
                _ => self.push(&format!("<span>{row_html}\n</span>")),
            }
        }
        self.push("</pre>\n");
    }

    fn folded(&mut self, what: &str, body: &str) {
        let size = units::count(body.trim_end().lines().count(), "line");
        let body = text(body.trim_end());
        self.push(&format!(
            "<details class=\"call\"><summary><b>{what}</b><span class=\"what\"></span><span class=\"size\">{size}</span></summary>\n\
             <pre>{body}</pre>\n</details>\n"
        ));
    }

    fn warnings(&mut self, warnings: &[String]) {
        warnings
            .iter()
            .for_each(|warning| self.push(&format!("<p class=\"trouble\">{}</p>\n", line(warning))));
    }
}

/// Badge for an outcome, followed by the reason if there is one.
fn badge(status: &OutcomeLabel) -> String {
    let why = status.text.strip_prefix(status.word).unwrap_or_default().trim_start_matches(':').trim();
    let why = if why.is_empty() {
        String::new()
    } else {
        format!("<span class=\"why\">{}</span>", escape_html(why))
    };
    format!("<span class=\"badge {0}\">{0}</span>{why}", status.word)
}

/// Prose with code blocks as separate elements.
fn prose(source: &str) -> String {
    let mut html = String::new();
    let mut paragraph: Vec<&str> = Vec::new();
    let mut code: Option<Vec<&str>> = None;
    let flush = |paragraph: &mut Vec<&str>, html: &mut String| {
        let joined = paragraph.join("\n");
        if !joined.trim().is_empty() {
            html.push_str(&format!("<p>{}</p>", styled(&text(joined.trim_matches('\n')))));
        }
        paragraph.clear();
    };
    for row in source.trim_end().lines() {
        let is_fence = row.trim_start().starts_with("```");
        match (&mut code, is_fence) {
            (None, true) => {
                flush(&mut paragraph, &mut html);
                code = Some(Vec::new());
            }
            (Some(lines), true) => {
                html.push_str(&format!("<pre>{}</pre>", text(&lines.join("\n"))));
                code = None;
            }
            (Some(lines), false) => lines.push(row),
            (None, false) => paragraph.push(row),
        }
    }
    if let Some(lines) = code {
        html.push_str(&format!("<pre>{}</pre>", text(&lines.join("\n"))));
    }
    flush(&mut paragraph, &mut html);
    html
}

/// Marks up inline code and bold text, in text that is already escaped.
fn styled(escaped: &str) -> String {
    let mut html = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((before, after)) = rest.split_once('`') {
        html.push_str(&strong(before));
        match within(after, "`") {
            Some((code, after)) => {
                html.push_str(&format!("<code>{code}</code>"));
                rest = after;
            }
            None => {
                html.push('`');
                rest = after;
            }
        }
    }
    html.push_str(&strong(rest));
    html
}

fn strong(escaped: &str) -> String {
    let mut html = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((before, after)) = rest.split_once("**") {
        html.push_str(before);
        match within(after, "**") {
            Some((words, after)) => {
                html.push_str(&format!("<strong>{words}</strong>"));
                rest = after;
            }
            None => {
                html.push_str("**");
                rest = after;
            }
        }
    }
    html.push_str(rest);
    html
}

/// Text before the next marker on the same line, and text after the marker.
fn within<'a>(text: &'a str, sign: &str) -> Option<(&'a str, &'a str)> {
    text.split_once(sign).filter(|(inner, _)| !inner.trim().is_empty() && !inner.contains('\n'))
}

/// Escapes text of several lines.
fn text(text: &str) -> String {
    escape_html(&sanitize::lines(text)).into_owned()
}

/// Escapes text of one line.
fn line(text: &str) -> String {
    escape_html(&sanitize::line(text)).into_owned()
}

/// Escapes markup. The caller has removed control characters.
fn escape_html(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut html = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    Cow::Owned(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let source = "a **<b>** `x<y` \u{202e}\n```rust\n</pre><script>\n```\nlast ` one";
        assert_eq!(
            prose(source),
            "<p>a <strong>&lt;b&gt;</strong> <code>x&lt;y</code> \\u{202e}</p><pre>&lt;/pre&gt;&lt;script&gt;</pre><p>last ` one</p>"
        );
    }

    #[test]
    fn unclosed_code_block_is_rendered() {
        assert_eq!(prose("```\nleft open"), "<pre>left open</pre>");
        assert_eq!(prose("``` ```"), "<pre></pre>");
    }
}
