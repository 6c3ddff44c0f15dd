//! What of a running tree is said in the conversation.

use std::collections::HashSet;

use brigade::Live;
use brigade_core::delegation::{Outcome, Status};
use brigade_core::event::{CallFault, Speaker};
use brigade_core::state::Purpose;
use brigade_core::{Event, Record, SessionId};

use super::plain::trouble;
use super::talk::beside;
use crate::follow::View;
use crate::progress;
use crate::render::{Markdown, fit};
use crate::safe;
use crate::terminal::Colour;

/// How much of a result is shown where it is only announced.
const FIRST_LINE: usize = 160;
/// How many messages of an earlier conversation are shown, and how much of each.
const RECALLED: usize = 6;
const RECALLED_LINES: usize = 12;

/// Says what the session at the top says, and what the person should know of the others.
pub(super) struct Voice {
    colour: Colour,
    columns: usize,
    root: SessionId,
    /// Children that work in the background: their end is announced.
    beside: HashSet<SessionId>,
    markdown: Markdown,
    /// What was shown of the reply that is being written.
    shown: String,
    /// The last whole reply, and its turn: what comes of it later was on its way for too long.
    replied: String,
    turn: u32,
    /// Whether the attempt of which something was shown came to nothing.
    was_cut: bool,
    /// What the model is asked for.
    purpose: Purpose,
    last: Kind,
}

/// What was said last: an empty line stands between the kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Empty,
    Words,
    Note,
}

impl Voice {
    /// Nothing said yet.
    pub(super) fn new(root: SessionId, colour: Colour, beside: HashSet<SessionId>) -> Voice {
        Voice {
            colour,
            columns: 80,
            root,
            beside,
            markdown: Markdown::new(colour, 80),
            shown: String::new(),
            replied: String::new(),
            turn: 0,
            was_cut: false,
            purpose: Purpose::Turn,
            last: Kind::Empty,
        }
    }

    /// The window has so many columns: text that begins from now on is broken there.
    pub(super) fn set_columns(&mut self, columns: usize) {
        self.columns = columns;
    }

    /// The last lines of what is being said and not complete.
    pub(super) fn pending(&self, most: usize) -> Vec<String> {
        self.markdown.pending(most)
    }

    /// What there is to say about something that happened.
    pub(super) fn see(&mut self, live: &Live, view: &View) -> Vec<String> {
        match live {
            Live::Delta { session, turn, text } if *session == self.root && *turn > self.turn => {
                self.stream(text)
            }
            Live::Discarded { session, .. } if *session == self.root => {
                self.was_cut |= !std::mem::take(&mut self.shown).is_empty();
                self.whole()
            }
            Live::Fact(record) => {
                self.beside.extend(beside(record).cloned());
                match progress::said(live, view) {
                    Some(words) => self.note(None, &words),
                    None => self.fact(record, view),
                }
            }
            Live::Delta { .. } | Live::Discarded { .. } | Live::Waiting { .. } => Vec::new(),
        }
    }

    /// How the round ended, as far as it was not said yet.
    pub(super) fn end(&mut self, outcome: &Outcome) -> Vec<String> {
        let mut lines = self.whole();
        self.shown.clear();
        let text = outcome.text.as_str();
        if text != self.replied && outcome.status == Status::Done {
            lines.extend(self.words(text));
        }
        for warning in &outcome.warnings {
            lines.extend(self.note(Some("33"), &format!("warning: {}", safe::line(warning))));
        }
        if let Some(words) = trouble(&outcome.status) {
            lines.extend(self.note(Some("33"), &words));
        }
        lines
    }

    /// Something from outside that stands among the words.
    pub(super) fn aside(&mut self, lines: Vec<String>) -> Vec<String> {
        self.spaced(Kind::Note, lines)
    }

    /// An empty line, unless there is one.
    pub(super) fn rest(&mut self) -> Vec<String> {
        self.spaced(Kind::Empty, Vec::new())
    }

    fn fact(&mut self, record: &Record, view: &View) -> Vec<String> {
        if let Event::Returned { child, outcome, .. } = &record.event
            && self.beside.remove(child)
            && outcome.status != Status::Detached
        {
            let label = view.tree.node(child).map_or("", |node| node.label.as_str());
            return self.note(Some("36"), &announced(label, outcome));
        }
        if record.session != self.root {
            return Vec::new();
        }
        match &record.event {
            Event::Called { purpose, .. } => {
                self.purpose = *purpose;
                self.was_cut = false;
                Vec::new()
            }
            Event::Replied { turn, reply, .. } if self.purpose != Purpose::Compaction => {
                self.turn = *turn;
                self.replied(reply.text.as_str())
            }
            Event::CallFailed { cause, .. } => self.failed(cause),
            Event::ToolEnded { call, output } => {
                let what = view.call(&record.session, *call);
                if output.is_error() {
                    let cause = first_line(output.text.as_str());
                    return self.note(Some("31"), &format!("· {what}: {cause}"));
                }
                self.note(Some("2"), &format!("· {what}"))
            }
            Event::Compacted { .. } => self.note(Some("2"), "(what was said before is a summary now)"),
            Event::LimitReached { which } => {
                self.note(Some("33"), &format!("the limit of {which} is reached"))
            }
            _ => Vec::new(),
        }
    }

    fn stream(&mut self, text: &str) -> Vec<String> {
        if self.shown.is_empty() {
            self.markdown = Markdown::new(self.colour, self.columns);
        }
        self.shown.push_str(text);
        let lines = self.markdown.push(text);
        self.spaced(Kind::Words, lines)
    }

    /// All of a text that has not been shown.
    fn whole(&mut self) -> Vec<String> {
        let lines = self.markdown.end();
        self.spaced(Kind::Words, lines)
    }

    fn words(&mut self, text: &str) -> Vec<String> {
        self.shown.clear();
        let mut lines = self.stream(text);
        lines.extend(self.whole());
        self.shown.clear();
        lines
    }

    fn replied(&mut self, text: &str) -> Vec<String> {
        self.replied = text.to_owned();
        let shown = std::mem::take(&mut self.shown);
        if let Some(rest) = text.strip_prefix(shown.as_str()).filter(|_| !shown.is_empty()) {
            let rest = self.markdown.push(rest);
            let mut lines = self.spaced(Kind::Words, rest);
            lines.extend(self.whole());
            return lines;
        }
        let mut lines = self.whole();
        if !shown.is_empty() {
            lines.extend(self.note(Some("2"), "(some of it was missed; here is the whole)"));
        }
        lines.extend(self.words(text));
        lines
    }

    fn failed(&mut self, cause: &CallFault) -> Vec<String> {
        let mut lines = self.whole();
        let was_cut = std::mem::take(&mut self.was_cut) || !self.shown.is_empty();
        self.shown.clear();
        let words = match cause {
            CallFault::Transient { .. } if was_cut => "(that reply was cut off; asking again)".to_owned(),
            CallFault::Transient { message } => {
                format!("(the model failed: {}; asking again)", safe::line(message))
            }
            CallFault::GivenUp { .. } => format!("({})", safe::line(&cause.to_string())),
            CallFault::Fatal { .. } | CallFault::Overflow { .. } if was_cut => {
                "(that reply was cut off)".to_owned()
            }
            CallFault::Fatal { .. }
            | CallFault::Overflow { .. }
            | CallFault::Interrupted
            | CallFault::Stopped
            | CallFault::Unaffordable => return lines,
        };
        lines.extend(self.note(Some("2"), &words));
        lines
    }

    fn note(&mut self, style: Option<&str>, text: &str) -> Vec<String> {
        let text = safe::lines(text);
        let lines = text
            .lines()
            .map(|line| style.map_or_else(|| line.to_owned(), |style| self.colour.paint(style, line)));
        let lines = lines.collect();
        self.spaced(Kind::Note, lines)
    }

    fn spaced(&mut self, kind: Kind, lines: Vec<String>) -> Vec<String> {
        if lines.is_empty() && kind != Kind::Empty {
            return lines;
        }
        let before = std::mem::replace(&mut self.last, kind);
        let gap = (before != kind && before != Kind::Empty).then(String::new);
        gap.into_iter().chain(lines).collect()
    }
}

/// How the end of an agent is announced.
pub(super) fn announced(label: &str, outcome: &Outcome) -> String {
    let label = safe::line(label);
    let result = match first_line(outcome.text.as_str()) {
        line if line.is_empty() => String::new(),
        line => format!(": {line}"),
    };
    match &outcome.status {
        Status::Done | Status::Detached => format!("{label} is done{result}"),
        Status::Incomplete { limit } => format!("{label} reached its limit of {limit}{result}"),
        Status::Failed { cause } => format!("{label} failed: {}", first_line(cause)),
        Status::Lost { cause } => format!("{label} is lost: {}", first_line(cause)),
        Status::Cancelled { .. } => format!("{label} was stopped{result}"),
    }
}

fn first_line(text: &str) -> String {
    fit(&safe::line(text.trim().lines().next().unwrap_or_default()), FIRST_LINE)
}

/// What the person says, as it stands in the conversation.
pub(super) fn echo(text: &str, colour: Colour) -> Vec<String> {
    let lines = safe::lines(text);
    let marks = std::iter::once("> ").chain(std::iter::repeat("  "));
    lines.lines().zip(marks).map(|(line, mark)| colour.paint("1", &format!("{mark}{line}"))).collect()
}

/// The last messages of an earlier conversation.
pub(super) fn recalled(records: &[Record], colour: Colour, columns: usize) -> Vec<String> {
    let mut messages: Vec<Vec<String>> = Vec::new();
    for record in records {
        match &record.event {
            Event::Started { delegation, .. } if !delegation.task.is_empty() => {
                messages.push(echo(delegation.task.as_str(), colour));
            }
            Event::Heard { from: Speaker::Person | Speaker::Parent, text } => {
                messages.push(echo(text.as_str(), colour))
            }
            Event::Ended { outcome, .. } if !outcome.text.is_empty() => {
                let mut markdown = Markdown::new(colour, columns);
                let mut lines = markdown.push(outcome.text.as_str());
                lines.extend(markdown.end());
                messages.push(lines);
            }
            _ => {}
        }
    }
    let first = messages.len().saturating_sub(RECALLED);
    let mut lines = Vec::new();
    for message in messages.drain(first..) {
        let more = message.len().saturating_sub(RECALLED_LINES);
        lines.extend(message.into_iter().take(RECALLED_LINES));
        if more > 0 {
            lines.push(colour.paint("2", &format!("(and {more} more lines)")));
        }
        lines.push(String::new());
    }
    lines
}

#[cfg(test)]
mod tests {
    use brigade_core::delegation::Waiting;
    use brigade_core::message::Stop;
    use brigade_core::{Amount, Budget, CallId, Delegation, Grant, Hash, Limit, Reply, Spent};

    use super::*;

    const CALL: CallId = CallId { turn: 1, index: 0 };

    struct Story {
        root: SessionId,
        voice: Voice,
        view: View,
        seq: u64,
        said: Vec<String>,
    }

    impl Story {
        fn new() -> Story {
            let root = SessionId::root(1);
            let voice = Voice::new(root.clone(), Colour::Off, HashSet::new());
            let mut story = Story { view: View::new(root.clone()), root, voice, seq: 0, said: Vec::new() };
            let delegation = Delegation::default();
            story.fact(Event::Started { delegation, agent: hash(), grant: grant(), parent: None, depth: 0 });
            story
        }

        fn see(&mut self, live: &Live) {
            if let Live::Fact(record) = live {
                self.view.apply(record);
            }
            self.said.extend(self.voice.see(live, &self.view));
        }

        fn fact(&mut self, event: Event) {
            let record = Record { session: self.root.clone(), seq: self.seq, pos: 0, at: 0, v: 1, event };
            self.seq += 1;
            self.see(&Live::Fact(record.into()));
        }

        fn delta(&mut self, text: &str) {
            self.see(&Live::Delta { session: self.root.clone(), turn: 1, text: text.into() });
        }

        fn called(&mut self, purpose: Purpose) {
            let reserved = Amount::default();
            self.fact(Event::Called { turn: 1, attempt: 1, purpose, reserved, request: hash() });
        }

        fn replied(&mut self, text: &str) {
            let reply = Reply { text: text.into(), calls: Vec::new(), opaque: Vec::new(), stop: Stop::End };
            self.fact(Event::Replied { turn: 1, reply, spent: Spent::default() });
        }

        fn ended(&mut self, status: Status, text: &str) {
            let outcome = Outcome { status, text: text.into(), warnings: Vec::new() };
            self.said.extend(self.voice.end(&outcome));
        }

        fn delegated(&mut self, role: &str, waiting: Waiting) -> SessionId {
            let child = self.root.child(CallId { index: self.seq as u32, ..CALL });
            let delegation = Delegation { role: Some(role.to_owned()), waiting, ..Delegation::default() };
            let (agent, grant) = (hash(), grant());
            self.fact(Event::Delegated { call: CALL, child: child.clone(), delegation, agent, grant });
            child
        }

        fn returned(&mut self, child: SessionId, status: Status, text: &str) {
            let outcome = Outcome { status, text: text.into(), warnings: Vec::new() };
            self.fact(Event::Returned { child, outcome, spent: Spent::default() });
        }
    }

    fn hash() -> Hash {
        Hash::of(b"")
    }

    fn grant() -> Grant {
        Grant { authority: hash(), budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited }
    }

    #[test]
    fn a_reply_is_said_once_however_it_came() {
        for pieces in [&["one ", "two\n\nthr", "ee"][..], &["one two\n\n"], &[]] {
            let mut story = Story::new();
            story.called(Purpose::Turn);
            pieces.iter().for_each(|piece| story.delta(piece));
            story.replied("one two\n\nthree");
            story.ended(Status::Done, "one two\n\nthree");
            assert_eq!(story.said, ["one two", "", "three"], "in {pieces:?}");
        }
    }

    #[test]
    fn a_reply_of_which_something_was_missed_is_said_again() {
        let mut story = Story::new();
        story.called(Purpose::Turn);
        story.delta("one\n\n");
        story.delta("three");
        story.replied("one\n\ntwo\n\nthree");
        story.delta("three, which was late");
        let again = [
            "one",
            "",
            "three",
            "",
            "(some of it was missed; here is the whole)",
            "",
            "one",
            "",
            "two",
            "",
            "three",
        ];
        assert_eq!(story.said, again);
    }

    #[test]
    fn a_reply_that_was_cut_off_is_told_apart_from_the_next() {
        for is_late in [false, true] {
            let mut story = Story::new();
            story.called(Purpose::Turn);
            story.delta("ha");
            story.delta("lf");
            let discarded = Live::Discarded { session: story.root.clone(), turn: 1 };
            let cause = CallFault::Transient { message: "gone".to_owned() };
            if !is_late {
                story.see(&discarded);
            }
            story.fact(Event::CallFailed { turn: 1, attempt: 1, cause, spent: Spent::default() });
            if is_late {
                story.see(&discarded);
            }
            story.delta("whole");
            story.replied("whole");
            let told = ["half", "", "(that reply was cut off; asking again)", "", "whole"];
            assert_eq!(story.said, told, "late: {is_late}");
        }
    }

    #[test]
    fn a_summary_of_earlier_turns_is_no_reply() {
        let mut story = Story::new();
        story.called(Purpose::Compaction);
        story.replied("the summary");
        story.fact(Event::Compacted { summary: "the summary".into(), keep_from: 1 });
        assert_eq!(story.said, ["(what was said before is a summary now)"]);
    }

    #[test]
    fn only_what_works_in_the_background_is_announced() {
        let mut story = Story::new();
        let awaited = story.delegated("Awaited", Waiting::Foreground);
        let beside = story.delegated("Scout\u{1b}[2J", Waiting::Background);
        let apart = story.delegated("Apart", Waiting::Detachable);
        story.returned(awaited, Status::Done, "awaited");
        story.returned(beside, Status::Done, "\n quiet\u{7}\nmore");
        story.returned(apart, Status::Detached, "");
        assert_eq!(story.said, ["Scout\\u{1b}[2J is done: quiet\\u{7}"]);
    }

    #[test]
    fn an_end_that_is_no_success_is_explained() {
        let mut story = Story::new();
        story.called(Purpose::Turn);
        story.delta("half");
        story.ended(Status::Cancelled { by: "the person".to_owned() }, "half");
        assert_eq!(story.said, ["half", "", "stopped by the person"]);
        let failed = Outcome {
            status: Status::Failed { cause: "no\nluck".into() },
            text: "".into(),
            warnings: Vec::new(),
        };
        assert_eq!(announced("Scout", &failed), "Scout failed: no");
    }

    #[test]
    fn what_was_said_before_is_recalled_in_part() {
        let record = |event| Record { session: SessionId::root(1), seq: 0, pos: 0, at: 0, v: 1, event };
        let heard = |text: &str| record(Event::Heard { from: Speaker::Person, text: text.into() });
        let ended = |text: &str| {
            let outcome = Outcome { status: Status::Done, text: text.into(), warnings: Vec::new() };
            record(Event::Ended { outcome, spent: Spent::default() })
        };
        let mut records: Vec<Record> =
            (0..5).flat_map(|n| [heard(&format!("q{n}")), ended(&format!("a{n}"))]).collect();
        assert_eq!(recalled(&records, Colour::Off, 80).join("|"), "> q2||a2||> q3||a3||> q4||a4|");
        records.push(ended(&"line\n\n".repeat(20)));
        assert!(recalled(&records, Colour::Off, 80).contains(&"(and 27 more lines)".to_owned()));
    }
}
