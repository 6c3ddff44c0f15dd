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
use crate::render::{Markdown, fit, hanging};
use crate::safe;
use crate::terminal::Colour;

/// Mark of a tool call.
const BULLET: &str = "· ";
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
            Event::ToolEnded { call, output, .. } => {
                let what = view.call(&record.session, *call);
                if output.is_error() {
                    let cause = first_line(output.text.as_str());
                    return self.note(Some("31"), &format!("· {what}: {cause}"));
                }
                self.note(Some("2"), &format!("· {what}"))
            }
            Event::Compacted { .. } => self.note(Some("2"), "(what was said before is a summary now)"),
            Event::LimitReached { which, .. } => {
                self.note(Some("33"), &format!("reached the {}", which.phrase()))
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
            | CallFault::Cut { .. }
            | CallFault::Interrupted
            | CallFault::Stopped
            | CallFault::Unaffordable => return lines,
        };
        lines.extend(self.note(Some("2"), &words));
        lines
    }

    fn note(&mut self, style: Option<&str>, text: &str) -> Vec<String> {
        let text = safe::lines(text);
        let lines = text.lines().flat_map(|line| {
            let mark = if line.starts_with(BULLET) { BULLET.chars().count() } else { 0 };
            let indent = line.len() - line.trim_start_matches(' ').len();
            hanging(line, self.columns, indent + mark)
        });
        let lines =
            lines.map(|line| style.map_or_else(|| line.clone(), |style| self.colour.paint(style, &line)));
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
        Status::Incomplete { limit } => format!("{label} reached its {}{result}", limit.phrase()),
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
mod tests;
