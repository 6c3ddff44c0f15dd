//! A whole tree as Markdown. Foreign text is inside fences that it cannot close. Unsafe links are removed from it, for
//! readers that render the content of a fence.

use brigade_core::SessionId;
use brigade_core::view::Node;

use super::links::harmless;
use super::story::{Began, Call, Child, Item, Question, Story, Turn, capital, cost};
use super::tale::{Tale, anchor, fate, fate_of};
use super::{Content, fit};
use crate::clock;
use crate::safe;
use crate::units;

/// Outputs that are longer are folded.
const FOLDED_LINES: usize = 12;
/// How much of an argument is shown.
const LONGEST_ARGUMENT: usize = 200;
/// Headings that are deeper have the same level.
const DEEPEST: u32 = 5;

/// The tree as a document.
pub(crate) fn document(tale: &Tale) -> String {
    let mut page = Page { text: String::new(), root: tale.view.root.clone() };
    page.head(tale);
    page.agents(tale);
    for (node, story) in tale.stories() {
        page.agent(tale, node, &story);
    }
    page.text
}

struct Page {
    text: String,
    root: SessionId,
}

impl Page {
    fn head(&mut self, tale: &Tale) {
        let root = &tale.view.root;
        let branch = tale.branch(root);
        self.paragraph(&format!("# {}", inline(&tale.title())));
        if let Some(fault) = &tale.fault {
            self.paragraph(&format!(
                "> **Not all of this session can be read:** {}",
                inline(&safe::line(fault))
            ));
        }
        let usage = branch.spent.usage;
        let began = tale.root().map(|node| clock::shown(node.started_at)).unwrap_or_default();
        let rows = [
            ("session", format!("`{root}`")),
            ("outcome", tale.root().map(|node| inline(&fate(node).text)).unwrap_or_default()),
            ("began", began),
            ("time", units::elapsed(branch.time)),
            ("agents", branch.agents.to_string()),
            ("turns", branch.turns.to_string()),
            ("tokens", format!("{} in, {} out", usage.input_total(), usage.output)),
            ("cost", units::brief_cost(&branch.spent)),
        ];
        let rows: Vec<String> = rows.iter().map(|(key, value)| format!("| {key} | {value} |")).collect();
        self.paragraph(&format!("| | |\n|---|---|\n{}", rows.join("\n")));
    }

    fn agents(&mut self, tale: &Tale) {
        self.paragraph("## Agents");
        let mut table = "| agent | outcome | turns | tokens | cost | time | Σ tokens | Σ cost | Σ time |\n\
                         |---|---|--:|--:|--:|--:|--:|--:|--:|"
            .to_owned();
        for row in tale.rows() {
            let Content::Agent(node, _) = row.content else { continue };
            let (own, branch) = (&node.own, tale.branch(&node.session));
            let name =
                format!("{}[{}](#{})", row.prefix, inline(&safe::line(&node.label)), anchor(&node.session));
            let time = units::elapsed(tale.view.tree.working_time([&node.session], None));
            table.push_str(&format!(
                "\n| {name} | {} | {} | {} | {} | {time} | {} | {} | {} |",
                inline(&fate(node).text),
                node.turns,
                own.usage.total(),
                units::brief_cost(own),
                branch.spent.usage.total(),
                units::brief_cost(&branch.spent),
                units::elapsed(branch.time),
            ));
        }
        self.paragraph(&table);
        self.paragraph("Σ is the agent with all below it.");
    }

    fn agent(&mut self, tale: &Tale, node: &Node, story: &Story<'_>) {
        let above = tale.root().map_or(0, |root| root.depth);
        let level = node.depth.saturating_sub(above).saturating_add(2).min(DEEPEST);
        self.paragraph(&format!("<a id=\"{}\"></a>", anchor(&node.session)));
        self.heading(level, &inline(&safe::line(&node.label)));
        self.paragraph(&format!("`{}`", node.session));
        for item in &story.items {
            self.item(item, level + 1);
        }
    }

    fn item(&mut self, item: &Item<'_>, level: u32) {
        match item {
            Item::Began(began) => self.began(began, level),
            Item::Heard { from, text } => {
                self.heading(level, &format!("{} says", capital(from)));
                self.words(text);
            }
            Item::Turn(turn) => self.turn(turn, level),
            Item::Compacted { keep_from, summary } => {
                self.heading(level, &format!("Turns before {keep_from} became a summary"));
                self.words(summary);
            }
            Item::Note(note) => self.paragraph(&format!("*{}*", inline(&safe::line(note)))),
            Item::Trouble(trouble) => self.paragraph(&format!("**✗ {}**", inline(&safe::line(trouble)))),
            Item::Ended { outcome, spent, took, result } => {
                let fate = fate_of(&outcome.status);
                self.heading(level, &format!("Ended: {}", inline(&fate.text)));
                self.paragraph(&format!(
                    "Used {} with all below, in {}.",
                    cost(spent),
                    units::elapsed(*took)
                ));
                self.warnings(&outcome.warnings);
                if let Some(result) = result {
                    self.words(result);
                }
            }
        }
    }

    fn began(&mut self, began: &Began<'_>, level: u32) {
        let mut line = format!("Began {}; may use {}.", clock::shown(began.at), began.allowance());
        if let Some(parent) = began.parent {
            let parent = match self.root.contains(parent) {
                true => format!("[`{parent}`](#{})", anchor(parent)),
                false => format!("`{parent}`"),
            };
            line.push_str(&format!(" Delegated by {parent} through {}.", began.delegation.face));
        }
        self.paragraph(&line);
        self.warnings(&began.delegation.warnings);
        if !began.delegation.task.is_empty() {
            self.heading(level, &format!("{} asks", capital(began.asker())));
            self.words(began.delegation.task.as_str());
        }
        if let Some(context) = &began.delegation.context {
            self.paragraph("With this to know:");
            self.output(context.as_str(), "text");
        }
    }

    fn turn(&mut self, turn: &Turn<'_>, level: u32) {
        let remark = turn.remark.map(|remark| format!(" ({remark})")).unwrap_or_default();
        self.heading(level, &format!("Turn {}{remark}", turn.number));
        self.paragraph(&format!("*{}*", cost(&turn.spent)));
        if !turn.text.trim().is_empty() {
            self.words(turn.text);
        }
        for aside in &turn.asides {
            self.paragraph(&format!("*{}*", inline(&fit(&safe::line(aside), LONGEST_ARGUMENT))));
        }
        turn.calls.iter().for_each(|call| self.call(call));
    }

    fn call(&mut self, call: &Call<'_>) {
        let mark = match call.output {
            None => "?",
            Some(output) if output.is_error() => "✗",
            Some(_) => "✓",
        };
        let mut line = format!("{mark} **{}**", inline(&safe::line(call.name)));
        let telling = call.telling();
        if !telling.is_empty() {
            line.push_str(&format!(" {}", span(&fit(&telling, LONGEST_ARGUMENT))));
        }
        for (key, value) in call.others() {
            line.push_str(&format!(
                ", {} {}",
                inline(&key),
                span(&fit(&safe::line(&value), LONGEST_ARGUMENT))
            ));
        }
        self.paragraph(&line);
        call.questions.iter().for_each(|question| self.question(question));
        call.children.iter().for_each(|child| self.child(child));
        if let Some(said) = call.said {
            self.paragraph("Said to the person:");
            return self.words(said);
        }
        if let Some(change) = &call.change {
            if let Some(remark) = change.remark {
                self.paragraph(&format!("*{remark}*"));
            }
            self.output(&change.diff, "diff");
        }
        match call.told_output() {
            Some(text) => self.output(text, "text"),
            None if call.output.is_none() => self.paragraph("*no result*"),
            None => {}
        }
    }

    fn question(&mut self, question: &Question<'_>) {
        if !question.what.is_empty() {
            self.paragraph(&format!("Asked: {}", inline(&safe::line(question.what))));
        }
        let answer = question.answer.as_deref().unwrap_or("not answered yet");
        self.paragraph(&format!("Answer: {}", inline(&safe::line(answer))));
    }

    fn child(&mut self, child: &Child<'_>) {
        let (label, place) = (inline(&safe::line(child.label)), anchor(child.session));
        let returned = match &child.returned {
            None => "not returned yet".to_owned(),
            Some((outcome, spent, took)) => format!(
                "{}, after {}, {}",
                inline(&fate_of(&outcome.status).text),
                units::elapsed(*took),
                cost(spent)
            ),
        };
        self.paragraph(&format!("→ [{label}](#{place}) `{}`: {returned}", child.session));
    }

    fn warnings(&mut self, warnings: &[String]) {
        warnings
            .iter()
            .for_each(|warning| self.paragraph(&format!("> warning: {}", inline(&safe::line(warning)))));
    }

    fn heading(&mut self, level: u32, text: &str) {
        let signs: String = (0..level).map(|_| '#').collect();
        self.paragraph(&format!("{signs} {text}"));
    }

    fn words(&mut self, text: &str) {
        self.paragraph(&fenced(&harmless(text), "markdown"));
    }

    /// What a tool gave: folded where it is long.
    fn output(&mut self, text: &str, language: &str) {
        let lines = text.trim_end().lines().count();
        if lines <= FOLDED_LINES || language == "diff" {
            return self.paragraph(&fenced(text, language));
        }
        let summary = units::lines(lines);
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

/// Text in a fence that is longer than any run of its sign within.
fn fenced(text: &str, language: &str) -> String {
    let text = safe::lines(text.trim_end());
    let fence = "`".repeat(longest_run(&text).saturating_add(1).max(3));
    format!("{fence}{language}\n{text}\n{fence}")
}

/// One line of code within a line of text.
fn span(text: &str) -> String {
    if text.is_empty() {
        return "\"\"".to_owned();
    }
    let fence = "`".repeat(longest_run(text) + 1);
    // A blank keeps a sign of the content from the fence; readers take it away again.
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

/// One line of text in which nothing is markup.
fn inline(text: &str) -> String {
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
    fn nothing_closes_its_fence() {
        assert_eq!(fenced("a", "text"), "```text\na\n```");
        assert_eq!(fenced("```\nx\n`````", "text"), "``````text\n```\nx\n`````\n``````");
        assert_eq!(span("a`b``c"), "```a`b``c```");
        assert_eq!(span("`a"), "`` `a ``");
        assert_eq!(inline("<b>|[x](y)"), "\\<b\\>\\|\\[x\\](y)");
    }
}
