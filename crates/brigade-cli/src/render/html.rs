//! A whole tree as one page that needs nothing else: no script, no file, no network.
//!
//! All that others said goes through `text` or `line`, which leave no markup and no control character.

use std::borrow::Cow;

use brigade_core::SessionId;
use brigade_core::view::Node;

use super::Content;
use super::story::{Began, Call, Change, Child, Item, Question, Story, Turn, capital, cost};
use super::tale::{Fate, Tale, anchor, fate, fate_of};
use crate::clock;
use crate::safe;
use crate::units;

/// How the page looks.
const STYLE: &str = include_str!("html.css");
/// Outputs of up to so many lines are open.
const OPEN_LINES: usize = 8;
/// Diffs of up to so many lines are open.
const OPEN_DIFF: usize = 60;

/// The tree as a page.
pub(crate) fn html(tale: &Tale) -> String {
    let title = line(&tale.title());
    let mut page = Page { html: String::new(), root: tale.view.root.clone() };
    page.push(&format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    ));
    page.head(tale, &title);
    page.agents(tale);
    for (node, story) in tale.stories() {
        page.agent(node, &story);
    }
    page.push("</main>\n</body>\n</html>\n");
    page.html
}

struct Page {
    html: String,
    root: SessionId,
}

impl Page {
    fn push(&mut self, html: &str) {
        self.html.push_str(html);
    }

    fn head(&mut self, tale: &Tale, title: &str) {
        let root = &tale.view.root;
        let branch = tale.branch(root);
        let usage = branch.spent.usage;
        self.push(&format!("<header>\n<h1>{title}</h1>\n<p class=\"sub\">"));
        if let Some(node) = tale.root() {
            self.push(&format!("{} <span>{}</span> ", badge(&fate(node)), clock::shown(node.started_at)));
        }
        self.push(&format!("<code>{root}</code></p>\n<dl class=\"facts\">\n"));
        let facts = [
            ("cost", units::brief_cost(&branch.spent)),
            ("time", units::elapsed(branch.time)),
            ("agents", branch.agents.to_string()),
            ("turns", branch.turns.to_string()),
            ("tokens in", units::short(usage.input_total())),
            ("tokens out", units::short(usage.output)),
        ];
        for (key, value) in facts {
            self.push(&format!("<div><dt>{key}</dt><dd>{value}</dd></div>\n"));
        }
        self.push("</dl>\n");
        if branch.spent.in_doubt.tokens > 0 {
            let tokens = units::short(branch.spent.in_doubt.tokens);
            self.push(&format!("<p class=\"trouble\">Up to {tokens} more tokens are in doubt: their answers were never seen.</p>\n"));
        }
        if let Some(fault) = &tale.fault {
            self.push(&format!(
                "<p class=\"trouble\">Not all of this session can be read: {}</p>\n",
                line(fault)
            ));
        }
        self.push("</header>\n");
    }

    fn agents(&mut self, tale: &Tale) {
        let whole = tale.branch(&tale.view.root);
        let share = |part: u64, all: u64| (u128::from(part) * 100).checked_div(u128::from(all)).unwrap_or(0);
        self.push(
            "<nav aria-label=\"Agents\">\n<h2>Agents</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>agent</th><th>outcome</th>\
             <th class=\"n\">turns</th><th class=\"n\">tokens</th><th class=\"n\">cost</th><th class=\"n\">time</th>\
             <th class=\"n sum\">Σ tokens</th><th class=\"n\">Σ cost</th><th class=\"n\">Σ time</th></tr></thead>\n<tbody>\n",
        );
        for row in tale.rows() {
            let Content::Agent(node, _) = row.content else { continue };
            let branch = tale.branch(&node.session);
            // Where nothing cost money, tokens say who took most of it.
            let share = match whole.spent.usd {
                0 => share(branch.spent.usage.total(), whole.spent.usage.total()),
                all => share(branch.spent.usd, all),
            };
            self.push(&format!(
                "<tr><td><span class=\"twig\">{}</span><a href=\"#{}\">{}</a></td><td>{}</td><td class=\"n\">{}</td>\
                 <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n sum\">{}</td>\
                 <td class=\"n bar\" style=\"--share:{share}%\">{}</td><td class=\"n\">{}</td></tr>\n",
                row.prefix.replace(' ', "\u{a0}"),
                anchor(&node.session),
                line(&node.label),
                badge(&fate(node)),
                node.turns,
                units::short(node.own.usage.total()),
                units::cost(&node.own),
                units::elapsed(tale.view.tree.working_time([&node.session], None)),
                units::short(branch.spent.usage.total()),
                units::brief_cost(&branch.spent),
                units::elapsed(branch.time),
            ));
        }
        self.push(
            "</tbody>\n</table></div>\n<p class=\"hint\">Σ is the agent with all below it.</p>\n</nav>\n",
        );
    }

    fn agent(&mut self, node: &Node, story: &Story<'_>) {
        self.push(&format!(
            "<section id=\"{}\">\n<details class=\"agent\" open>\n<summary><h2>{}</h2>{}<code>{}</code></summary>\n",
            anchor(&node.session),
            line(&node.label),
            badge(&fate(node)),
            node.session
        ));
        for item in &story.items {
            self.item(item);
        }
        self.push("</details>\n</section>\n");
    }

    fn item(&mut self, item: &Item<'_>) {
        match item {
            Item::Began(began) => self.began(began),
            Item::Heard { from, text } => {
                self.words("heard", &format!("{} says", line(&capital(from))), "", text)
            }
            Item::Turn(turn) => self.turn(turn),
            Item::Compacted { keep_from, summary } => {
                self.words("compacted", &format!("Turns before {keep_from} became a summary"), "", summary);
            }
            Item::Note(note) => self.push(&format!("<p class=\"note\">{}</p>\n", line(note))),
            Item::Trouble(trouble) => self.push(&format!("<p class=\"trouble\">{}</p>\n", line(trouble))),
            Item::Ended { outcome, spent, took, result } => {
                let used = format!("{} with all below, in {}", cost(spent), units::elapsed(*took));
                self.push(&format!(
                    "<div class=\"end\">{}<small>{used}</small></div>\n",
                    badge(&fate_of(&outcome.status))
                ));
                self.warnings(&outcome.warnings);
                if let Some(result) = result {
                    self.words("result", "Result", "", result);
                }
            }
        }
    }

    fn began(&mut self, began: &Began<'_>) {
        let mut note = format!("Began {}; may use {}.", clock::shown(began.at), line(&began.allowance()));
        if let Some(parent) = began.parent {
            let parent = match self.root.contains(parent) {
                true => format!("<a href=\"#{}\"><code>{parent}</code></a>", anchor(parent)),
                false => format!("<code>{parent}</code>"),
            };
            note.push_str(&format!(" Delegated by {parent} through {}.", began.delegation.face));
        }
        self.push(&format!("<p class=\"note\">{note}</p>\n"));
        self.warnings(&began.delegation.warnings);
        if !began.delegation.task.is_empty() {
            self.words(
                "heard",
                &format!("{} asks", capital(began.asker())),
                "",
                began.delegation.task.as_str(),
            );
        }
        if let Some(context) = &began.delegation.context {
            self.folded("What there is to know", context.as_str());
        }
    }

    /// What somebody said, and who.
    fn words(&mut self, class: &str, who: &str, more: &str, said: &str) {
        let body = prose(said);
        self.push(&format!(
            "<article class=\"{class}\"><h3>{who}<small>{more}</small></h3>\n<div class=\"prose\">{body}</div></article>\n"
        ));
    }

    fn turn(&mut self, turn: &Turn<'_>) {
        let remark = turn.remark.map(|remark| format!(" ({remark})")).unwrap_or_default();
        self.push(&format!(
            "<article class=\"turn\"><h3>Turn {}{remark}<small>{}</small></h3>\n",
            turn.number,
            cost(&turn.spent)
        ));
        if !turn.text.trim().is_empty() {
            self.push(&format!("<div class=\"prose\">{}</div>\n", prose(turn.text)));
        }
        for aside in &turn.asides {
            self.push(&format!("<p class=\"note\">{}</p>\n", line(aside)));
        }
        turn.calls.iter().for_each(|call| self.call(call));
        self.push("</article>\n");
    }

    fn call(&mut self, call: &Call<'_>) {
        let (class, mark) = match call.output {
            None => ("open-ended", "?"),
            Some(output) if output.is_error() => ("failed", "✗"),
            Some(_) => ("ok", "✓"),
        };
        let output = call.said.or(call.told_output());
        let lines = output.map_or(0, |output| output.trim_end().lines().count());
        let is_open = call.failed()
            || !call.questions.is_empty()
            || call.said.is_some()
            || call
                .change
                .as_ref()
                .map_or(lines <= OPEN_LINES, |change| change.diff.lines().count() <= OPEN_DIFF);
        let size = match &call.change {
            Some(Change { added, removed: 0, .. }) => format!("<ins>+{added}</ins>"),
            Some(Change { added: 0, removed, .. }) => format!("<del>−{removed}</del>"),
            Some(Change { added, removed, .. }) => format!("<ins>+{added}</ins> <del>−{removed}</del>"),
            None if call.said.is_some() => "said to the person".to_owned(),
            None if lines > 0 => units::lines(lines),
            None => String::new(),
        };
        let took = call.took.map(units::elapsed).unwrap_or_default();
        let open = if is_open { " open" } else { "" };
        self.push(&format!(
            "<details class=\"call {class}\"{open}><summary><span class=\"mark\">{mark}</span><b>{}</b>\
             <span class=\"what\">{}</span><span class=\"size\">{size}</span><span class=\"took\">{took}</span></summary>\n",
            line(call.name),
            escaped(&call.telling()),
        ));
        self.arguments(call);
        call.questions.iter().for_each(|question| self.question(question));
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

    fn arguments(&mut self, call: &Call<'_>) {
        let others = call.others();
        if others.is_empty() {
            return;
        }
        self.push("<dl class=\"arguments\">");
        for (key, value) in others {
            self.push(&format!("<dt>{}</dt><dd>{}</dd>", escaped(&key), text(&value)));
        }
        self.push("</dl>\n");
    }

    fn question(&mut self, question: &Question<'_>) {
        let answer = question.answer.as_deref().unwrap_or("not answered yet");
        self.push(&format!(
            "<p class=\"question\"><b>asked</b> {}<br><b>answer</b> {}</p>\n",
            line(question.what),
            line(answer)
        ));
    }

    fn child(&mut self, child: &Child<'_>) {
        let (label, place) = (line(child.label), anchor(child.session));
        let returned = match &child.returned {
            None => "<small>not returned yet</small>".to_owned(),
            Some((outcome, spent, took)) => {
                let fate = badge(&fate_of(&outcome.status));
                format!("{fate}<small>{}, {}</small>", units::elapsed(*took), cost(spent))
            }
        };
        self.push(&format!("<p class=\"child\">→ <a href=\"#{place}\">{label}</a> {returned}</p>\n"));
    }

    fn change(&mut self, change: &Change) {
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
        let size = units::lines(body.trim_end().lines().count());
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

/// A word for what became of something; the reason follows where there is one.
fn badge(fate: &Fate) -> String {
    let why = fate.text.strip_prefix(fate.word).unwrap_or_default().trim_start_matches(':').trim();
    let why =
        if why.is_empty() { String::new() } else { format!("<span class=\"why\">{}</span>", escaped(why)) };
    format!("<span class=\"badge {0}\">{0}</span>{why}", fate.word)
}

/// Words with their blocks of code set apart.
fn prose(said: &str) -> String {
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
    for row in said.trim_end().lines() {
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

/// Sets off code and strong words, in text that is escaped already.
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

/// What stands before the next sign on the same line, and what follows the sign.
fn within<'a>(text: &'a str, sign: &str) -> Option<(&'a str, &'a str)> {
    text.split_once(sign).filter(|(inner, _)| !inner.trim().is_empty() && !inner.contains('\n'))
}

/// Text of several lines.
fn text(text: &str) -> String {
    escaped(&safe::lines(text)).into_owned()
}

/// Text of one line.
fn line(text: &str) -> String {
    escaped(&safe::line(text)).into_owned()
}

/// Text without markup. Whoever calls it has made sure that no control character is in it.
fn escaped(text: &str) -> Cow<'_, str> {
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
    fn words_leave_no_markup() {
        let said = "a **<b>** `x<y` \u{202e}\n```rust\n</pre><script>\n```\nlast ` one";
        assert_eq!(
            prose(said),
            "<p>a <strong>&lt;b&gt;</strong> <code>x&lt;y</code> \\u{202e}</p><pre>&lt;/pre&gt;&lt;script&gt;</pre><p>last ` one</p>"
        );
    }

    #[test]
    fn what_is_not_closed_is_shown_all_the_same() {
        assert_eq!(prose("```\nleft open"), "<pre>left open</pre>");
        assert_eq!(prose("``` ```"), "<pre></pre>");
    }
}
