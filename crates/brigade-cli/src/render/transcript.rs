//! What was said and done in one session, for a terminal.

use brigade_core::Record;
use brigade_core::delegation::Status;

use super::story::{Began, Call, Change, Child, Item, Question, Story, Turn, cost, count, ending};
use super::{hanging, width, wrapped_markdown};
use crate::clock;
use crate::safe;
use crate::terminal::Colour;
use crate::units;

/// How many lines of an output, and of a diff, are shown.
const FOLDED_LINES: usize = 8;
const FOLDED_DIFF: usize = 40;
/// How much of one line is shown: of an output, and of a call.
const FOLDED_LINE: usize = 400;
const FOLDED_CALL: usize = 110;

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// How much of long texts is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outputs {
    /// Their first lines.
    Folded,
    /// All of them.
    Whole,
}

/// The records of a session as text that is safe for a terminal, in lines of so many columns.
pub(crate) fn transcript(records: &[Record], outputs: Outputs, colour: Colour, columns: usize) -> String {
    let mut page = Page { text: String::new(), outputs, colour, columns };
    for item in &Story::of(records).items {
        page.item(item, records);
    }
    page.text
}

struct Page {
    text: String,
    outputs: Outputs,
    colour: Colour,
    columns: usize,
}

impl Page {
    fn item(&mut self, item: &Item<'_>, records: &[Record]) {
        match item {
            Item::Began(began) => self.began(began, records),
            Item::Heard { from, text } => {
                self.heading(CYAN, &format!("{from} says"), "");
                self.words(text);
            }
            Item::Turn(turn) => self.turn(turn),
            Item::Compacted { keep_from, summary } => {
                self.heading(YELLOW, &format!("turns before {keep_from} became a summary"), "");
                self.output(summary, 2);
            }
            Item::Note(note) => self.heading(DIM, note, ""),
            Item::Trouble(trouble) => self.heading(RED, trouble, ""),
            Item::Ended { outcome, spent, took, result } => {
                let style = if outcome.status == Status::Done { GREEN } else { RED };
                let used = format!("{} with all below, in {}", cost(spent), units::elapsed(*took));
                self.heading(style, &format!("ended: {}", ending(&outcome.status)), &used);
                self.warnings(&outcome.warnings);
                if let Some(result) = result {
                    self.words(result);
                }
            }
        }
    }

    fn began(&mut self, began: &Began<'_>, records: &[Record]) {
        let session = records.first().map(|record| record.session.to_string()).unwrap_or_default();
        self.heading(BOLD, began.label, &session);
        self.line(2, DIM, &format!("began {}, may use {}", clock::shown(began.at), began.allowance()));
        if let Some(parent) = began.parent {
            let (depth, face) = (began.depth, began.delegation.face);
            self.line(2, DIM, &format!("delegated by {parent}, depth {depth}, through {face}"));
        }
        self.warnings(&began.delegation.warnings);
        if !began.delegation.task.is_empty() {
            self.heading(CYAN, &format!("{} asks", began.asker()), "");
            self.words(began.delegation.task.as_str());
        }
        if let Some(context) = &began.delegation.context {
            self.line(2, DIM, "with this to know:");
            self.output(context.as_str(), 2);
        }
    }

    fn turn(&mut self, turn: &Turn<'_>) {
        let remark = turn.remark.map(|remark| format!("{remark}; ")).unwrap_or_default();
        self.heading(BOLD, &format!("turn {}", turn.number), &format!("{remark}{}", cost(&turn.spent)));
        if !turn.text.trim().is_empty() {
            self.words(turn.text);
        }
        for aside in &turn.asides {
            self.line(2, DIM, &shortened(&safe::line(aside), FOLDED_LINE));
        }
        for call in &turn.calls {
            self.call(call);
        }
    }

    fn call(&mut self, call: &Call<'_>) {
        let (mark, style) = match call.output {
            None => ("?", YELLOW),
            Some(output) if output.is_error() => ("✗", RED),
            Some(_) => ("✓", GREEN),
        };
        let mut what = call.telling();
        for (key, value) in call.others() {
            what.push_str(&format!(" {key}={}", safe::line(&value)));
        }
        let what = match self.outputs {
            Outputs::Folded => shortened(what.trim(), FOLDED_CALL),
            Outputs::Whole => what.trim().to_owned(),
        };
        let (name, id) = (safe::line(call.name), format!("[{}]", call.id));
        let head = format!("  {mark} {id} {name}");
        let painted = format!(
            "  {} {} {}",
            self.colour.paint(style, mark),
            self.colour.paint(DIM, &id),
            self.colour.paint(BOLD, &name)
        );
        let call_line = format!("{head} {what}");
        for line in hanging(call_line.trim_end(), self.columns, 4) {
            let line =
                line.strip_prefix(&head).map_or_else(|| line.clone(), |rest| format!("{painted}{rest}"));
            self.push(0, &line);
        }
        call.questions.iter().for_each(|question| self.question(question));
        call.children.iter().for_each(|child| self.child(child));
        if let Some(said) = call.said {
            self.line(4, CYAN, "said to the person:");
            self.output(said, 4);
            return;
        }
        if let Some(change) = &call.change {
            self.change(change);
        }
        match call.told_output() {
            Some(text) if call.failed() => {
                self.line(4, RED, "failed:");
                self.output(text, 4);
            }
            Some(text) => self.output(text, 4),
            None if call.output.is_none() => self.line(4, YELLOW, "no result"),
            None => {}
        }
    }

    fn question(&mut self, question: &Question<'_>) {
        if !question.what.is_empty() {
            self.line(4, YELLOW, &format!("asked: {}", question.what));
        }
        match &question.answer {
            Some(answer) => self.line(4, YELLOW, &format!("answered: {answer}")),
            None => self.line(4, YELLOW, "not answered yet"),
        }
    }

    fn child(&mut self, child: &Child<'_>) {
        self.line(4, CYAN, &format!("delegated to {} as {}", child.label, child.session));
        match &child.returned {
            None => self.line(4, YELLOW, "not returned yet"),
            Some((outcome, spent, took)) => {
                let style = if outcome.status == Status::Done { GREEN } else { RED };
                let (how, took) = (ending(&outcome.status), units::elapsed(*took));
                let agents = match spent.agents {
                    0 => String::new(),
                    agents => format!(" and {} below", count(agents, "agent")),
                };
                self.line(4, style, &format!("returned {how}, after {took}; used {}{agents}", cost(spent)));
            }
        }
    }

    fn change(&mut self, change: &Change) {
        if let Some(remark) = change.remark {
            self.line(4, DIM, remark);
        }
        let most = if self.outputs == Outputs::Whole { usize::MAX } else { FOLDED_DIFF };
        for line in change.diff.lines().take(most) {
            let style = match line.as_bytes().first() {
                Some(b'+') => GREEN,
                Some(b'-') => RED,
                Some(b'@') => CYAN,
                _ => "",
            };
            let shown = self.safe_line(line);
            let painted = if style.is_empty() { shown } else { self.colour.paint(style, &shown) };
            self.push(4, &painted);
        }
        self.hidden(change.diff.lines().count(), most, 4);
    }

    /// A line at the margin, and what is said of it more quietly.
    fn heading(&mut self, style: &str, what: &str, more: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let (what, more) = (safe::line(what), safe::line(more));
        if width(&what) + 2 + width(&more) <= self.columns {
            let (what, more) = (self.colour.paint(style, &what), self.colour.paint(DIM, &more));
            self.push(0, &format!("{what}  {more}"));
            return;
        }
        for line in hanging(&what, self.columns, 2) {
            self.push(0, &self.colour.paint(style, &line));
        }
        if !more.is_empty() {
            self.line(2, DIM, &more);
        }
    }

    fn line(&mut self, indent: usize, style: &str, text: &str) {
        for line in hanging(&safe::line(text), self.columns.saturating_sub(indent), 0) {
            self.push(indent, &self.colour.paint(style, &line));
        }
    }

    fn warnings(&mut self, warnings: &[String]) {
        warnings.iter().for_each(|warning| self.line(2, YELLOW, &format!("warning: {warning}")));
    }

    /// What somebody said, whole.
    fn words(&mut self, text: &str) {
        let text = safe::lines(text.trim_end());
        for line in wrapped_markdown(&text, self.columns.saturating_sub(2)).lines() {
            self.push(2, line);
        }
    }

    /// What a tool gave, behind a bar, so that no line of it passes for one of ours.
    fn output(&mut self, text: &str, indent: usize) {
        let most = if self.outputs == Outputs::Whole { usize::MAX } else { FOLDED_LINES };
        let bar = self.colour.paint(DIM, "│");
        let text = text.trim_end();
        for line in text.lines().take(most) {
            for line in hanging(&self.safe_line(line), self.columns.saturating_sub(indent + 2), 0) {
                self.push(indent, &format!("{bar} {line}"));
            }
        }
        self.hidden(text.lines().count(), most, indent);
    }

    fn hidden(&mut self, lines: usize, most: usize, indent: usize) {
        if lines > most {
            let hidden = count((lines - most) as u64, "more line");
            self.line(indent, DIM, &format!("… {hidden} (--full)"));
        }
    }

    fn safe_line(&self, line: &str) -> String {
        let line = safe::lines(line);
        if self.outputs == Outputs::Whole { line.into_owned() } else { shortened(&line, FOLDED_LINE) }
    }

    fn push(&mut self, indent: usize, text: &str) {
        let line = format!("{}{text}", " ".repeat(indent));
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}

/// The beginning of a line, and how much there is more. A rest that is no longer than the remark about it is shown.
fn shortened(line: &str, most: usize) -> String {
    let hidden = line.chars().count().saturating_sub(most);
    let remark = format!("… ({hidden} more characters)");
    if hidden <= remark.chars().count() {
        return line.to_owned();
    }
    let kept: String = line.chars().take(most).collect();
    format!("{kept}{remark}")
}

#[cfg(test)]
mod tests {
    use brigade_core::event::{Answer, CallFault, Effect, Speaker};
    use brigade_core::{
        Budget, CallId, Delegation, Event, Grant, Hash, Limit, Outcome, Purpose, Reply, SessionId, Spent,
        ToolCall, ToolOutput,
    };

    use super::*;

    fn log(events: Vec<Event>) -> Vec<Record> {
        let record =
            |(seq, event)| Record { session: SessionId::root(1), seq, pos: seq, at: seq * 100, v: 1, event };
        (0..).zip(events).map(record).collect()
    }

    fn started(task: &str) -> Event {
        let hash = Hash::of(b"");
        let grant =
            Grant { authority: hash, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        let delegation = Delegation { task: task.into(), ..Delegation::default() };
        Event::Started { delegation: delegation.into(), agent: hash, grant, parent: None, depth: 0 }
    }

    fn called(purpose: Purpose) -> Event {
        let reserved = brigade_core::Amount::default();
        Event::Called { turn: 1, attempt: 1, purpose, reserved, input: 0, request: Hash::of(b"") }
    }

    fn replied(turn: u32, text: &str, calls: &[(&str, &str)]) -> Event {
        let call = |(name, arguments): &(&str, &str)| ToolCall {
            name: (*name).to_owned(),
            arguments: (*arguments).into(),
            provider_id: None,
        };
        let calls = calls.iter().map(call).collect();
        Event::Replied {
            turn,
            reply: Reply { text: text.into(), calls, ..Reply::default() },
            spent: Spent::default(),
            waited_ms: 0,
        }
    }

    #[test]
    fn what_seldom_happens_is_told_too() {
        let (first, second) = (CallId { turn: 1, index: 0 }, CallId { turn: 1, index: 1 });
        let asked = |call| Event::Asked {
            call,
            what: "shell {}".into(),
            why: "Run it?".to_owned(),
            always: None,
            until: 0,
            default: Answer::Deny { word: None },
        };
        let text = transcript(
            &log(vec![
                started("the task"),
                called(Purpose::Turn),
                Event::call_failed(1, 1, CallFault::Interrupted, Spent::default()),
                Event::Resumed { epoch: 2, downtime: 90_000, mode: None },
                replied(1, "", &[("shell", "{\"command\":\"make\"}"), ("shell", "no json")]),
                asked(first),
                asked(second),
                Event::Answered { call: first, answer: Answer::Once, by: "ann".to_owned() },
                Event::tool_started(first, Effect::Opaque),
                Event::tool_ended(first, ToolOutput::ok("made\u{1b}[2J")),
                Event::Heard { from: Speaker::Person, text: "also\nthis".into() },
                called(Purpose::Compaction),
                replied(2, "all of it, short", &[]),
                Event::Compacted { summary: "all of it, short".into(), keep_from: 1 },
                Event::limit_reached(brigade_core::delegation::Which::Turns),
                called(Purpose::Grace),
                replied(3, "So far.", &[]),
                Event::CancelAsked { by: "bob".to_owned() },
                Event::tool_ended(CallId { turn: 9, index: 0 }, ToolOutput::ok("")),
                Event::Ended {
                    outcome: Outcome::new(Status::Cancelled { by: "bob".to_owned() }, "what there is"),
                    spent: Spent::default(),
                },
            ]),
            Outputs::Folded,
            Colour::Off,
            usize::MAX,
        );
        insta::assert_snapshot!(text, @r"
        lead  aaaaaaaaaaaaaaaaaaaaaaaaab
          began 1970-01-01 00:00:00 UTC, may use 1 turn

        the person asks
          the task

        turn 1, attempt 1 failed: the runner ended while the model was answering

        resumed after 1m30s in which nobody ran it

        turn 1  0 tokens in, 0 out, $0.0000
          ✓ [1-0] shell make
            asked: Run it?
            answered: yes, says ann
            │ made\u{1b}[2J
          ? [1-1] shell no json
            asked: Run it?
            not answered yet
            no result

        the person says
          also
          this

        summarised what was said before: 0 tokens in, 0 out, $0.0000

        turns before 1 became a summary
          │ all of it, short

        reached the turn limit

        turn 3  last word; 0 tokens in, 0 out, $0.0000
          So far.

        asked to stop by bob

        tool ended, for a call that is not in this log

        ended: cancelled by bob  0 tokens in, 0 out, $0.0000 with all below, in 1.9s
          what there is
        ");
    }

    #[test]
    fn long_outputs_are_folded_unless_all_is_wanted() {
        let long: String = (0..50).map(|line| format!("line {line} {}\n", "x".repeat(500))).collect();
        let call = CallId { turn: 1, index: 0 };
        let records = log(vec![
            started("t"),
            replied(1, "", &[("read_file", "{\"path\":\"a\"}")]),
            Event::tool_ended(call, ToolOutput::ok(long.as_str())),
        ]);
        let folded = transcript(&records, Outputs::Folded, Colour::Off, usize::MAX);
        assert!(
            folded.contains("… 42 more lines (--full)") && folded.contains("more characters)"),
            "{folded}"
        );
        let whole = transcript(&records, Outputs::Whole, Colour::Off, usize::MAX);
        assert!(long.lines().all(|line| whole.contains(line)) && !whole.contains('…'), "{whole}");
    }

    #[test]
    fn a_rest_that_is_shorter_than_its_remark_is_shown() {
        assert_eq!(shortened(&"x".repeat(12), 10), "x".repeat(12));
        assert_eq!(shortened(&"x".repeat(32), 10), "x".repeat(32));
        assert_eq!(shortened(&"x".repeat(60), 10), format!("{}… (50 more characters)", "x".repeat(10)));
    }

    #[test]
    fn colours_are_ours_alone() {
        let call = CallId { turn: 1, index: 0 };
        let arguments = "{\"path\":\"a\",\"content\":\"\\u001b[31mred\"}";
        let records = log(vec![
            started("\u{1b}[31m"),
            replied(1, "\u{1b}[31m", &[("write_file", arguments), ("\u{1b}[31m", "\u{1b}[31m")]),
            Event::tool_ended(call, ToolOutput::ok("done")),
        ]);
        let plain = transcript(&records, Outputs::Folded, Colour::Off, usize::MAX);
        assert!(!plain.contains('\u{1b}') && plain.contains("+\\u{1b}[31mred"), "{plain}");
        let painted = transcript(&records, Outputs::Folded, Colour::On, usize::MAX);
        assert!(painted.contains("\u{1b}[32m+\\u{1b}[31mred\u{1b}[0m"), "{painted}");
    }
}
