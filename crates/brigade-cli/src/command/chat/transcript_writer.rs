//! Conversation lines for the events of a running tree.

use std::collections::HashSet;

use brigade::RunEvent;
use brigade_core::delegation::{Outcome, Status};
use brigade_core::event::{CallFault, Speaker};
use brigade_core::state::Purpose;
use brigade_core::{Event, Record, SessionId};

use super::conversation::background_child;
use super::line_mode::status_notice;
use crate::follow::RunView;
use crate::progress;
use crate::render::{Markdown, fit, wrap_hanging};
use crate::sanitize;
use crate::terminal::Colour;
use crate::units;

/// Mark of a tool call.
const BULLET: &str = "· ";
/// Columns of a result in an announcement.
const MAX_RESULT_COLUMNS: usize = 160;
/// Maximum number of earlier messages that are shown, and lines of each.
const MAX_RECALLED_MESSAGES: usize = 6;
const MAX_RECALLED_LINES: usize = 12;

/// Writes the replies of the root session, and notices about other sessions.
pub(super) struct TranscriptWriter {
    colour: Colour,
    columns: usize,
    root: SessionId,
    /// Children that work in the background. Their end is announced.
    background_children: HashSet<SessionId>,
    markdown: Markdown,
    /// Shown part of the current reply.
    streamed: String,
    /// Last complete reply, and its turn. Deltas of it that arrive later are ignored.
    replied: String,
    turn: u32,
    /// Whether the attempt whose text was shown has failed.
    was_cut: bool,
    /// Purpose of the current model call.
    purpose: Purpose,
    last: BlockKind,
}

/// Kind of the last output. Different kinds are separated by an empty line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Empty,
    Text,
    Note,
}

impl TranscriptWriter {
    /// Creates a writer without output.
    pub(super) fn new(
        root: SessionId,
        colour: Colour,
        background_children: HashSet<SessionId>,
    ) -> TranscriptWriter {
        TranscriptWriter {
            colour,
            columns: 80,
            root,
            background_children,
            markdown: Markdown::new(colour, 80),
            streamed: String::new(),
            replied: String::new(),
            turn: 0,
            was_cut: false,
            purpose: Purpose::Turn,
            last: BlockKind::Empty,
        }
    }

    /// Sets the width of the window. It applies to text that begins later.
    pub(super) fn set_columns(&mut self, columns: usize) {
        self.columns = columns;
    }

    /// Last lines of the incomplete text.
    pub(super) fn pending(&self, max_lines: usize) -> Vec<String> {
        self.markdown.pending(max_lines)
    }

    /// Lines for an event.
    pub(super) fn show_event(&mut self, live: &RunEvent, view: &RunView) -> Vec<String> {
        match live {
            RunEvent::Delta { session, turn, text } if *session == self.root && *turn > self.turn => {
                self.stream(text)
            }
            RunEvent::Discarded { session, .. } if *session == self.root => {
                self.was_cut |= !std::mem::take(&mut self.streamed).is_empty();
                self.flush()
            }
            RunEvent::Record(record) => {
                self.background_children.extend(background_child(record).cloned());
                match progress::message_line(live, view) {
                    Some(text) => self.note(None, &text),
                    None => self.show_record(record, view),
                }
            }
            RunEvent::Delta { .. } | RunEvent::Discarded { .. } | RunEvent::Waiting { .. } => Vec::new(),
        }
    }

    /// Lines for the end of a round that were not shown yet.
    pub(super) fn end(&mut self, outcome: &Outcome) -> Vec<String> {
        let mut lines = self.flush();
        self.streamed.clear();
        let text = outcome.text.as_str();
        if text != self.replied && outcome.status == Status::Done {
            lines.extend(self.show_text(text));
        }
        for warning in &outcome.warnings {
            lines.extend(self.note(Some("33"), &format!("warning: {}", sanitize::line(warning))));
        }
        if let Some(text) = status_notice(&outcome.status) {
            lines.extend(self.note(Some("33"), &text));
        }
        lines
    }

    /// Lines from another source, as a note.
    pub(super) fn note_lines(&mut self, lines: Vec<String>) -> Vec<String> {
        self.with_spacing(BlockKind::Note, lines)
    }

    /// Empty line, unless the last one is empty.
    pub(super) fn blank_line(&mut self) -> Vec<String> {
        self.with_spacing(BlockKind::Empty, Vec::new())
    }

    fn show_record(&mut self, record: &Record, view: &RunView) -> Vec<String> {
        if let Event::Returned { child, outcome, .. } = &record.event
            && self.background_children.remove(child)
            && outcome.status != Status::Detached
        {
            return self.note(Some("36"), &end_notice(&view.label(child), outcome));
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
                let what = view.call_label(&record.session, *call);
                if output.is_error() {
                    let cause = first_line(output.text.as_str());
                    return self.note(Some("31"), &format!("· {what}: {cause}"));
                }
                self.note(Some("2"), &format!("· {what}"))
            }
            Event::Compacted { .. } => {
                self.note(Some("2"), "(the conversation so far was replaced with a summary)")
            }
            Event::LimitReached { which, .. } => {
                self.note(Some("33"), &format!("reached the {}", which.label()))
            }
            _ => Vec::new(),
        }
    }

    fn stream(&mut self, text: &str) -> Vec<String> {
        if self.streamed.is_empty() {
            self.markdown = Markdown::new(self.colour, self.columns);
        }
        self.streamed.push_str(text);
        let lines = self.markdown.push(text);
        self.with_spacing(BlockKind::Text, lines)
    }

    /// Lines of text that was not shown yet.
    fn flush(&mut self) -> Vec<String> {
        let lines = self.markdown.end();
        self.with_spacing(BlockKind::Text, lines)
    }

    fn show_text(&mut self, text: &str) -> Vec<String> {
        self.streamed.clear();
        let mut lines = self.stream(text);
        lines.extend(self.flush());
        self.streamed.clear();
        lines
    }

    fn replied(&mut self, text: &str) -> Vec<String> {
        self.replied = text.to_owned();
        let streamed = std::mem::take(&mut self.streamed);
        if let Some(rest) = text.strip_prefix(streamed.as_str()).filter(|_| !streamed.is_empty()) {
            let rest = self.markdown.push(rest);
            let mut lines = self.with_spacing(BlockKind::Text, rest);
            lines.extend(self.flush());
            return lines;
        }
        let mut lines = self.flush();
        if !streamed.is_empty() {
            lines.extend(
                self.note(Some("2"), "(part of the streamed text was lost; the complete reply follows)"),
            );
        }
        lines.extend(self.show_text(text));
        lines
    }

    fn failed(&mut self, cause: &CallFault) -> Vec<String> {
        let mut lines = self.flush();
        let was_cut = std::mem::take(&mut self.was_cut) || !self.streamed.is_empty();
        self.streamed.clear();
        let text = match cause {
            CallFault::Transient { .. } if was_cut => "(the reply was cut off; retrying)".to_owned(),
            CallFault::Transient { message } => {
                format!("(the model call failed: {}; retrying)", sanitize::line(message))
            }
            CallFault::GivenUp { .. } => format!("({})", sanitize::line(&cause.to_string())),
            CallFault::Fatal { .. } | CallFault::Overflow { .. } if was_cut => {
                "(the reply was cut off)".to_owned()
            }
            CallFault::Fatal { .. }
            | CallFault::Overflow { .. }
            | CallFault::Cut { .. }
            | CallFault::Interrupted
            | CallFault::Stopped
            | CallFault::Unaffordable => return lines,
        };
        lines.extend(self.note(Some("2"), &text));
        lines
    }

    fn note(&mut self, style: Option<&str>, text: &str) -> Vec<String> {
        let text = sanitize::lines(text);
        let lines = text.lines().flat_map(|line| {
            let mark = if line.starts_with(BULLET) { BULLET.chars().count() } else { 0 };
            let indent = line.len() - line.trim_start_matches(' ').len();
            wrap_hanging(line, self.columns, indent + mark)
        });
        let lines =
            lines.map(|line| style.map_or_else(|| line.clone(), |style| self.colour.paint(style, &line)));
        let lines = lines.collect();
        self.with_spacing(BlockKind::Note, lines)
    }

    fn with_spacing(&mut self, kind: BlockKind, lines: Vec<String>) -> Vec<String> {
        if lines.is_empty() && kind != BlockKind::Empty {
            return lines;
        }
        let before = std::mem::replace(&mut self.last, kind);
        let gap = (before != kind && before != BlockKind::Empty).then(String::new);
        gap.into_iter().chain(lines).collect()
    }
}

/// Announcement of an agent's end.
pub(super) fn end_notice(label: &str, outcome: &Outcome) -> String {
    let label = sanitize::line(label);
    let result = match first_line(outcome.text.as_str()) {
        line if line.is_empty() => String::new(),
        line => format!(": {line}"),
    };
    match &outcome.status {
        Status::Done | Status::Detached => format!("{label} is done{result}"),
        Status::Incomplete { limit } => format!("{label} reached its {}{result}", limit.label()),
        Status::Failed { cause } => format!("{label} failed: {}", first_line(cause)),
        Status::Lost { cause } => format!("{label}: outcome unknown: {}", first_line(cause)),
        Status::Cancelled { .. } => format!("{label} was stopped{result}"),
    }
}

fn first_line(text: &str) -> String {
    fit(&sanitize::line(text.trim().lines().next().unwrap_or_default()), MAX_RESULT_COLUMNS)
}

/// Message of the user, as it is shown in the conversation.
pub(super) fn echo(text: &str, colour: Colour) -> Vec<String> {
    let lines = sanitize::lines(text);
    let marks = std::iter::once("> ").chain(std::iter::repeat("  "));
    lines.lines().zip(marks).map(|(line, mark)| colour.paint("1", &format!("{mark}{line}"))).collect()
}

/// Last messages of an earlier conversation.
pub(super) fn recent_messages(records: &[Record], colour: Colour, columns: usize) -> Vec<String> {
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
    let first = messages.len().saturating_sub(MAX_RECALLED_MESSAGES);
    let mut lines = Vec::new();
    for message in messages.drain(first..) {
        let more = message.len().saturating_sub(MAX_RECALLED_LINES);
        lines.extend(message.into_iter().take(MAX_RECALLED_LINES));
        if more > 0 {
            lines.push(colour.paint("2", &format!("(and {})", units::count(more, "more line"))));
        }
        lines.push(String::new());
    }
    lines
}

#[cfg(test)]
mod tests;
