//! Markdown export of a run tree. Untrusted text is inside fences that it cannot close. Unsafe links are removed from
//! it, for viewers that render the content of a fence.

use brigade_core::SessionId;
use brigade_core::view::Node;

use super::export_model::{ExportedRun, anchor, outcome_label, status_label};
use super::links::remove_unsafe_links;
use super::timeline::{ApprovalItem, CallItem, Child, Item, RoundStarted, Timeline, Turn, usage_text};
use super::{RowContent, fit};
use crate::clock;
use crate::sanitize;
use crate::units;

/// Longer outputs are collapsed.
const MAX_OPEN_LINES: usize = 12;
/// Maximum width of an argument.
const MAX_ARGUMENT_COLUMNS: usize = 200;
/// Deeper headings have the same level.
const MAX_HEADING_LEVEL: usize = 5;

/// Run tree as a Markdown document.
pub(crate) fn export_markdown(run: &ExportedRun) -> String {
    let mut page = MarkdownPage { text: String::new(), root: run.view.root.clone() };
    page.head(run);
    page.agents(run);
    for (node, timeline) in run.timelines() {
        page.agent(run, node, &timeline);
    }
    page.text
}

struct MarkdownPage {
    text: String,
    root: SessionId,
}

impl MarkdownPage {
    fn head(&mut self, run: &ExportedRun) {
        let root = &run.view.root;
        let totals = run.totals(root);
        self.paragraph(&format!("# {}", escape_markdown(&run.title())));
        if let Some(fault) = &run.fault {
            self.paragraph(&format!("> **Part of this session cannot be read:** {}", escaped_line(fault)));
        }
        let usage = totals.spent.usage;
        let started = run.root().map(|node| clock::format_utc(node.started_at)).unwrap_or_default();
        let rows = [
            ("session", format!("`{root}`")),
            (
                "outcome",
                run.root().map(|node| escape_markdown(&outcome_label(node).text)).unwrap_or_default(),
            ),
            ("started", started),
            ("time", units::format_elapsed(totals.time)),
            ("agents", totals.agents.to_string()),
            ("turns", totals.turns.to_string()),
            ("tokens", format!("{} in, {} out", usage.input_total(), usage.output)),
            ("cost", units::brief_cost(&totals.spent)),
        ];
        let rows: Vec<String> = rows.iter().map(|(key, value)| format!("| {key} | {value} |")).collect();
        self.paragraph(&format!("| | |\n|---|---|\n{}", rows.join("\n")));
    }

    fn agents(&mut self, run: &ExportedRun) {
        self.paragraph("## Agents");
        let mut table = "| agent | outcome | turns | tokens | cost | time | Σ tokens | Σ cost | Σ time |\n\
                         |---|---|--:|--:|--:|--:|--:|--:|--:|"
            .to_owned();
        for row in run.rows() {
            let RowContent::Agent(node, _) = row.content else { continue };
            let (own, totals) = (&node.own_usage, run.totals(&node.session));
            let name = format!("{}[{}](#{})", row.prefix, escaped_line(&node.label), anchor(&node.session));
            let time = units::format_elapsed(run.view.tree.working_time([&node.session], None));
            table.push_str(&format!(
                "\n| {name} | {} | {} | {} | {} | {time} | {} | {} | {} |",
                escape_markdown(&outcome_label(node).text),
                node.turns,
                own.usage.total(),
                units::brief_cost(own),
                totals.spent.usage.total(),
                units::brief_cost(&totals.spent),
                units::format_elapsed(totals.time),
            ));
        }
        self.paragraph(&table);
        self.paragraph("Σ: the agent and its descendants.");
    }

    fn agent(&mut self, run: &ExportedRun, node: &Node, timeline: &Timeline<'_>) {
        let above = run.root().map_or(0, |root| root.depth);
        let level = (node.depth.saturating_sub(above) as usize).saturating_add(2).min(MAX_HEADING_LEVEL);
        self.paragraph(&format!("<a id=\"{}\"></a>", anchor(&node.session)));
        self.heading(level, &escaped_line(&node.label));
        self.paragraph(&format!("`{}`", node.session));
        for item in &timeline.items {
            self.item(item, level + 1);
        }
    }

    fn item(&mut self, item: &Item<'_>, level: usize) {
        match item {
            Item::RoundStarted(started) => self.round_started(started, level),
            Item::Message { from, text } => {
                self.heading(level, &format!("Message from {from}"));
                self.message_block(text);
            }
            Item::Turn(turn) => self.turn(turn, level),
            Item::Compacted { keep_from, summary } => {
                self.heading(level, &format!("Turns before turn {keep_from} were summarized"));
                self.message_block(summary);
            }
            Item::Note(note) => self.paragraph(&format!("*{}*", escaped_line(note))),
            Item::Problem(problem) => self.paragraph(&format!("**✗ {}**", escaped_line(problem))),
            Item::RoundEnded { outcome, used, result } => {
                let status = status_label(&outcome.status);
                self.heading(level, &format!("Ended: {}", escape_markdown(&status.text)));
                self.paragraph(&format!("Used {used}."));
                self.warnings(&outcome.warnings);
                if let Some(result) = result {
                    self.message_block(result);
                }
            }
        }
    }

    fn round_started(&mut self, started: &RoundStarted<'_>, level: usize) {
        let mut line =
            format!("Started {}; budget: {}.", clock::format_utc(started.at), started.budget_text());
        if let Some(parent) = started.parent {
            let parent = match self.root.contains(parent) {
                true => format!("[`{parent}`](#{})", anchor(parent)),
                false => format!("`{parent}`"),
            };
            line.push_str(&format!(" Delegated by {parent} with {}.", started.delegation.style));
        }
        self.paragraph(&line);
        self.warnings(&started.delegation.warnings);
        if !started.delegation.task.is_empty() {
            self.heading(level, &format!("Task from {}", started.requester()));
            self.message_block(started.delegation.task.as_str());
        }
        if let Some(context) = &started.delegation.context {
            self.paragraph("Context:");
            self.output(context.as_str(), "text");
        }
    }

    fn turn(&mut self, turn: &Turn<'_>, level: usize) {
        let remark = turn.remark.map(|remark| format!(" ({remark})")).unwrap_or_default();
        self.heading(level, &format!("Turn {}{remark}", turn.number));
        self.paragraph(&format!("*{}*", turn.used));
        if !turn.text.trim().is_empty() {
            self.message_block(turn.text);
        }
        for side_note in &turn.side_notes {
            self.paragraph(&format!(
                "*{}*",
                escape_markdown(&fit(&sanitize::line(side_note), MAX_ARGUMENT_COLUMNS))
            ));
        }
        turn.calls.iter().for_each(|call| self.call(call));
    }

    fn call(&mut self, call: &CallItem<'_>) {
        let mark = match call.output {
            None => "?",
            Some(output) if output.is_error() => "✗",
            Some(_) => "✓",
        };
        let mut line = format!("{mark} **{}**", escaped_line(call.name));
        let main_argument = call.main_argument();
        if !main_argument.is_empty() {
            line.push_str(&format!(" {}", code_span(&fit(&main_argument, MAX_ARGUMENT_COLUMNS))));
        }
        for (key, value) in call.other_arguments() {
            line.push_str(&format!(
                ", {} {}",
                escape_markdown(&key),
                code_span(&fit(&sanitize::line(&value), MAX_ARGUMENT_COLUMNS))
            ));
        }
        self.paragraph(&line);
        call.approvals.iter().for_each(|approval| self.approval(approval));
        call.children.iter().for_each(|child| self.child(child));
        if let Some(message) = call.user_message {
            self.paragraph("Message to the user:");
            return self.message_block(message);
        }
        if let Some(change) = &call.change {
            if let Some(remark) = change.remark {
                self.paragraph(&format!("*{remark}*"));
            }
            self.output(&change.diff, "diff");
        }
        match call.shown_output() {
            Some(text) => self.output(text, "text"),
            None if call.output.is_none() => self.paragraph("*no result*"),
            None => {}
        }
    }

    fn approval(&mut self, approval: &ApprovalItem<'_>) {
        if !approval.what.is_empty() {
            self.paragraph(&format!("Approval requested: {}", escaped_line(&approval.what)));
        }
        let answer = approval.answer.as_deref().unwrap_or("pending");
        self.paragraph(&format!("Answer: {}", escaped_line(answer)));
    }

    fn child(&mut self, child: &Child<'_>) {
        let (label, target) = (escaped_line(child.label), anchor(child.session));
        let returned = match &child.returned {
            None => "still running".to_owned(),
            Some((outcome, spent, took)) => format!(
                "{}, after {}, {}",
                escape_markdown(&status_label(&outcome.status).text),
                units::format_elapsed(*took),
                usage_text(spent)
            ),
        };
        self.paragraph(&format!("→ [{label}](#{target}) `{}`: {returned}", child.session));
    }

    fn warnings(&mut self, warnings: &[String]) {
        warnings.iter().for_each(|warning| self.paragraph(&format!("> warning: {}", escaped_line(warning))));
    }

    fn heading(&mut self, level: usize, text: &str) {
        self.paragraph(&format!("{} {text}", "#".repeat(level)));
    }

    fn message_block(&mut self, text: &str) {
        self.paragraph(&fenced(&remove_unsafe_links(text), "markdown"));
    }

    /// Adds the output of a tool, collapsed if it is long.
    fn output(&mut self, text: &str, language: &str) {
        let lines = text.trim_end().lines().count();
        if lines <= MAX_OPEN_LINES || language == "diff" {
            return self.paragraph(&fenced(text, language));
        }
        let summary = units::count(lines, "line");
        self.paragraph(&format!("<details><summary>{summary}</summary>"));
        self.paragraph(&fenced(text, language));
        self.paragraph("</details>");
    }

    fn paragraph(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.text.push('\n');
    }
}

/// Wraps text in a fence that is longer than any run of its character in the text.
fn fenced(text: &str, language: &str) -> String {
    let text = sanitize::lines(text.trim_end());
    let fence = "`".repeat(longest_run(&text).saturating_add(1).max(3));
    format!("{fence}{language}\n{text}\n{fence}")
}

/// Inline code on one line.
fn code_span(text: &str) -> String {
    if text.is_empty() {
        return "\"\"".to_owned();
    }
    let fence = "`".repeat(longest_run(text) + 1);
    // A space separates a backtick of the content from the delimiter. Viewers remove it.
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

fn longest_run(text: &str) -> usize {
    let (mut longest, mut run) = (0, 0);
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Untrusted text on one line, without markup.
fn escaped_line(text: &str) -> String {
    escape_markdown(&sanitize::line(text))
}

/// Escapes one line of text so that nothing in it is markup.
fn escape_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '&' | '~' | '#' | '!') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_cannot_close_its_fence() {
        assert_eq!(fenced("a", "text"), "```text\na\n```");
        assert_eq!(fenced("```\nx\n`````", "text"), "``````text\n```\nx\n`````\n``````");
        assert_eq!(code_span("a`b``c"), "```a`b``c```");
        assert_eq!(code_span("`a"), "`` `a ``");
        assert_eq!(escape_markdown("<b>|[x](y)"), "\\<b\\>\\|\\[x\\](y)");
    }
}
