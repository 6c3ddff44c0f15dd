//! Transcript of one session for a terminal.

use brigade_core::Record;
use brigade_core::delegation::Status;

use super::timeline::{
    ApprovalItem, CallItem, Child, FileChange, Item, RoundStarted, Timeline, Turn, status_text, usage_text,
};
use super::{width, wrap_hanging, wrap_markdown};
use crate::clock;
use crate::sanitize;
use crate::terminal::Colour;
use crate::units;

/// Maximum number of lines shown of an output, and of a diff.
const MAX_OUTPUT_LINES: usize = 8;
const MAX_DIFF_LINES: usize = 40;
/// Maximum length of a line of output, and of a call.
const MAX_LINE_CHARS: usize = 400;
const MAX_CALL_CHARS: usize = 110;

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// Amount of long texts that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputDetail {
    /// First lines.
    Folded,
    Full,
}

/// Renders the records of a session as sanitized text.
pub(crate) fn transcript(records: &[Record], detail: OutputDetail, colour: Colour, columns: usize) -> String {
    let mut page = TranscriptPage { text: String::new(), detail, colour, columns };
    for item in &Timeline::of(records).items {
        page.item(item, records);
    }
    page.text
}

struct TranscriptPage {
    text: String,
    detail: OutputDetail,
    colour: Colour,
    columns: usize,
}

impl TranscriptPage {
    fn item(&mut self, item: &Item<'_>, records: &[Record]) {
        match item {
            Item::RoundStarted(started) => self.round_started(started, records),
            Item::Message { from, text } => {
                self.heading(CYAN, &format!("message from {from}"), "");
                self.message_block(text);
            }
            Item::Turn(turn) => self.turn(turn),
            Item::Compacted { keep_from, summary } => {
                self.heading(YELLOW, &format!("turns before turn {keep_from} were summarized"), "");
                self.output(summary, 2);
            }
            Item::Note(note) => self.heading(DIM, note, ""),
            Item::Problem(problem) => self.heading(RED, problem, ""),
            Item::RoundEnded { outcome, used, result } => {
                let style = if outcome.status == Status::Done { GREEN } else { RED };
                self.heading(style, &format!("ended: {}", status_text(&outcome.status)), used);
                self.warnings(&outcome.warnings);
                if let Some(result) = result {
                    self.message_block(result);
                }
            }
        }
    }

    fn round_started(&mut self, started: &RoundStarted<'_>, records: &[Record]) {
        let session = records.first().map(|record| record.session.to_string()).unwrap_or_default();
        self.heading(BOLD, started.label, &session);
        self.line(
            2,
            DIM,
            &format!("started {}, budget: {}", clock::format_utc(started.at), started.budget_text()),
        );
        if let Some(parent) = started.parent {
            let (depth, style) = (started.depth, started.delegation.style);
            self.line(2, DIM, &format!("delegated by {parent}, depth {depth}, with {style}"));
        }
        self.warnings(&started.delegation.warnings);
        if !started.delegation.task.is_empty() {
            self.heading(CYAN, &format!("task from {}", started.requester()), "");
            self.message_block(started.delegation.task.as_str());
        }
        if let Some(context) = &started.delegation.context {
            self.line(2, DIM, "context:");
            self.output(context.as_str(), 2);
        }
    }

    fn turn(&mut self, turn: &Turn<'_>) {
        let remark = turn.remark.map(|remark| format!("{remark}; ")).unwrap_or_default();
        self.heading(BOLD, &format!("turn {}", turn.number), &format!("{remark}{}", turn.used));
        if !turn.text.trim().is_empty() {
            self.message_block(turn.text);
        }
        for side_note in &turn.side_notes {
            self.line(2, DIM, &truncate_with_note(&sanitize::line(side_note), MAX_LINE_CHARS));
        }
        for call in &turn.calls {
            self.call(call);
        }
    }

    fn call(&mut self, call: &CallItem<'_>) {
        let (mark, style) = match call.output {
            None => ("?", YELLOW),
            Some(output) if output.is_error() => ("✗", RED),
            Some(_) => ("✓", GREEN),
        };
        let mut what = call.main_argument();
        for (key, value) in call.other_arguments() {
            what.push_str(&format!(" {key}={}", sanitize::line(&value)));
        }
        let what = match self.detail {
            OutputDetail::Folded => truncate_with_note(what.trim(), MAX_CALL_CHARS),
            OutputDetail::Full => what.trim().to_owned(),
        };
        let (name, id) = (sanitize::line(call.name), format!("[{}]", call.id));
        let head = format!("  {mark} {id} {name}");
        let painted = format!(
            "  {} {} {}",
            self.colour.paint(style, mark),
            self.colour.paint(DIM, &id),
            self.colour.paint(BOLD, &name)
        );
        let call_line = format!("{head} {what}");
        for line in wrap_hanging(call_line.trim_end(), self.columns, 4) {
            let line =
                line.strip_prefix(&head).map_or_else(|| line.clone(), |rest| format!("{painted}{rest}"));
            self.push(0, &line);
        }
        call.approvals.iter().for_each(|approval| self.approval(approval));
        call.children.iter().for_each(|child| self.child(child));
        if let Some(message) = call.user_message {
            self.line(4, CYAN, "message to the user:");
            self.output(message, 4);
            return;
        }
        if let Some(change) = &call.change {
            self.change(change);
        }
        match call.shown_output() {
            Some(text) if call.failed() => {
                self.line(4, RED, "failed:");
                self.output(text, 4);
            }
            Some(text) => self.output(text, 4),
            None if call.output.is_none() => self.line(4, YELLOW, "no result"),
            None => {}
        }
    }

    fn approval(&mut self, approval: &ApprovalItem<'_>) {
        if !approval.what.is_empty() {
            self.line(4, YELLOW, &format!("approval requested: {}", approval.what));
        }
        match &approval.answer {
            Some(answer) => self.line(4, YELLOW, &format!("answered: {answer}")),
            None => self.line(4, YELLOW, "pending"),
        }
    }

    fn child(&mut self, child: &Child<'_>) {
        self.line(4, CYAN, &format!("delegated to {} as {}", child.label, child.session));
        match &child.returned {
            None => self.line(4, YELLOW, "still running"),
            Some((outcome, spent, took)) => {
                let style = if outcome.status == Status::Done { GREEN } else { RED };
                let (how, took) = (status_text(&outcome.status), units::format_elapsed(*took));
                let agents = match spent.agents {
                    0 => String::new(),
                    agents => format!(" and {}", units::count(agents, "sub-agent")),
                };
                self.line(
                    4,
                    style,
                    &format!("ended: {how}, after {took}; used {}{agents}", usage_text(spent)),
                );
            }
        }
    }

    fn change(&mut self, change: &FileChange) {
        if let Some(remark) = change.remark {
            self.line(4, DIM, remark);
        }
        let limit = if self.detail == OutputDetail::Full { usize::MAX } else { MAX_DIFF_LINES };
        for line in change.diff.lines().take(limit) {
            let style = match line.as_bytes().first() {
                Some(b'+') => GREEN,
                Some(b'-') => RED,
                Some(b'@') => CYAN,
                _ => "",
            };
            let shown = self.safe_line(line);
            self.push(4, &self.colour.paint(style, &shown));
        }
        self.hidden_note(change.diff.lines().count(), limit, 4);
    }

    /// Adds a line at the margin, followed by dimmed details.
    fn heading(&mut self, style: &str, what: &str, more: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let (what, more) = (sanitize::line(what), sanitize::line(more));
        if width(&what) + 2 + width(&more) <= self.columns {
            let (what, more) = (self.colour.paint(style, &what), self.colour.paint(DIM, &more));
            self.push(0, &format!("{what}  {more}"));
            return;
        }
        for line in wrap_hanging(&what, self.columns, 2) {
            self.push(0, &self.colour.paint(style, &line));
        }
        if !more.is_empty() {
            self.line(2, DIM, &more);
        }
    }

    fn line(&mut self, indent: usize, style: &str, text: &str) {
        for line in wrap_hanging(&sanitize::line(text), self.columns.saturating_sub(indent), 0) {
            self.push(indent, &self.colour.paint(style, &line));
        }
    }

    fn warnings(&mut self, warnings: &[String]) {
        warnings.iter().for_each(|warning| self.line(2, YELLOW, &format!("warning: {warning}")));
    }

    /// Adds a message in full.
    fn message_block(&mut self, text: &str) {
        let text = sanitize::lines(text.trim_end());
        for line in wrap_markdown(&text, self.columns.saturating_sub(2)).lines() {
            self.push(2, line);
        }
    }

    /// Adds the output of a tool behind a bar, so that no line looks like ours.
    fn output(&mut self, text: &str, indent: usize) {
        let limit = if self.detail == OutputDetail::Full { usize::MAX } else { MAX_OUTPUT_LINES };
        let bar = self.colour.paint(DIM, "│");
        let text = text.trim_end();
        for line in text.lines().take(limit) {
            for line in wrap_hanging(&self.safe_line(line), self.columns.saturating_sub(indent + 2), 0) {
                self.push(indent, &format!("{bar} {line}"));
            }
        }
        self.hidden_note(text.lines().count(), limit, indent);
    }

    fn hidden_note(&mut self, lines: usize, limit: usize, indent: usize) {
        if lines > limit {
            let hidden = units::count(lines - limit, "more line");
            self.line(indent, DIM, &format!("… {hidden} (--full)"));
        }
    }

    fn safe_line(&self, line: &str) -> String {
        let line = sanitize::lines(line);
        if self.detail == OutputDetail::Full {
            line.into_owned()
        } else {
            truncate_with_note(&line, MAX_LINE_CHARS)
        }
    }

    fn push(&mut self, indent: usize, text: &str) {
        let line = format!("{}{text}", " ".repeat(indent));
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}

/// Truncates a line, and notes the number of omitted characters. A rest that is no longer than that note is kept.
fn truncate_with_note(line: &str, limit: usize) -> String {
    let hidden = line.chars().count().saturating_sub(limit);
    let remark = format!("… ({hidden} more characters)");
    if hidden <= remark.chars().count() {
        return line.to_owned();
    }
    let start: String = line.chars().take(limit).collect();
    format!("{start}{remark}")
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
        let record = |(seq, event)| Record {
            session: SessionId::root(1),
            seq,
            pos: brigade_core::Cursor::new(seq),
            at: seq * 100,
            v: 1,
            event,
        };
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
        let reserved = brigade_core::Resources::default();
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
    fn rare_events_are_rendered() {
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
                Event::limit_reached(brigade_core::delegation::LimitKind::Turns),
                called(Purpose::Grace),
                replied(3, "So far.", &[]),
                Event::CancelAsked { by: "bob".to_owned() },
                Event::tool_ended(CallId { turn: 9, index: 0 }, ToolOutput::ok("")),
                Event::Ended {
                    outcome: Outcome::new(Status::Cancelled { by: "bob".to_owned() }, "what there is"),
                    spent: Spent::default(),
                },
            ]),
            OutputDetail::Folded,
            Colour::Off,
            usize::MAX,
        );
        insta::assert_snapshot!(text, @r"
        lead  aaaaaaaaaaaaaaaaaaaaaaaaab
          started 1970-01-01 00:00:00 UTC, budget: 1 turn

        task from the user
          the task

        turn 1, attempt 1 failed: Brigade exited while the model was answering

        resumed after a downtime of 1m30s

        turn 1  0 tokens in, 0 out, $0.0000
          ✓ [1-0] shell make
            approval requested: Run it?
            answered: allowed once (by ann)
            │ made\u{1b}[2J
          ? [1-1] shell no json
            approval requested: Run it?
            pending
            no result

        message from the user
          also
          this

        summarized the earlier conversation: 0 tokens in, 0 out, $0.0000

        turns before turn 1 were summarized
          │ all of it, short

        reached the turn limit

        turn 3  wrap-up; 0 tokens in, 0 out, $0.0000
          So far.

        cancel requested by bob

        tool ended, for a call that is missing from this session

        ended: cancelled by bob  0 tokens in, 0 out, $0.0000 including sub-agents, in 1.9s
          what there is
        ");
    }

    #[test]
    fn connections_are_shown_with_their_answers() {
        let call = CallId { turn: 1, index: 0 };
        let asked = |host: &str| Event::HostAsked {
            call,
            host: host.parse().unwrap(),
            what: "shell {}".into(),
            why: "the sandbox does not allow this host".to_owned(),
            until: 0,
            default: Answer::Deny { word: None },
        };
        let answered = |host: &str, answer| Event::HostAnswered {
            call,
            host: host.parse().unwrap(),
            answer,
            by: "ann".to_owned(),
        };
        let (a, b, c) = ("a.example:443", "b.example:443", "c.example:443");
        let records = log(vec![
            started("t"),
            replied(1, "", &[("shell", "{\"command\":\"npm install\"}")]),
            Event::tool_started(call, Effect::Opaque),
            asked(a),
            asked(b),
            asked(c),
            answered(a, Answer::Always(a.to_owned())),
            answered(b, Answer::Deny { word: Some("use the mirror".to_owned()) }),
            answered(b, Answer::Once),
        ]);
        let text = transcript(&records, OutputDetail::Folded, Colour::Off, usize::MAX);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let found = lines.iter().position(|line| line.contains("npm install")).unwrap();
        insta::assert_snapshot!(lines[found..found + 7].join("\n"), @r"
        ? [1-0] shell npm install
        approval requested: connect to a.example:443 (the sandbox does not allow this host)
        answered: always allowed with a.example:443 (by ann)
        approval requested: connect to b.example:443 (the sandbox does not allow this host)
        answered: denied: use the mirror (by ann)
        approval requested: connect to c.example:443 (the sandbox does not allow this host)
        pending
        ");
    }

    #[test]
    fn long_outputs_are_folded_unless_full() {
        let long: String = (0..50).map(|line| format!("line {line} {}\n", "x".repeat(500))).collect();
        let call = CallId { turn: 1, index: 0 };
        let records = log(vec![
            started("t"),
            replied(1, "", &[("read_file", "{\"path\":\"a\"}")]),
            Event::tool_ended(call, ToolOutput::ok(long.as_str())),
        ]);
        let folded = transcript(&records, OutputDetail::Folded, Colour::Off, usize::MAX);
        assert!(
            folded.contains("… 42 more lines (--full)") && folded.contains("more characters)"),
            "{folded}"
        );
        let whole = transcript(&records, OutputDetail::Full, Colour::Off, usize::MAX);
        assert!(long.lines().all(|line| whole.contains(line)) && !whole.contains('…'), "{whole}");
    }

    #[test]
    fn remainder_shorter_than_its_note_is_shown() {
        assert_eq!(truncate_with_note(&"x".repeat(12), 10), "x".repeat(12));
        assert_eq!(truncate_with_note(&"x".repeat(32), 10), "x".repeat(32));
        assert_eq!(
            truncate_with_note(&"x".repeat(60), 10),
            format!("{}… (50 more characters)", "x".repeat(10))
        );
    }

    #[test]
    fn escape_sequences_in_content_are_not_sent() {
        let call = CallId { turn: 1, index: 0 };
        let arguments = "{\"path\":\"a\",\"content\":\"\\u001b[31mred\"}";
        let records = log(vec![
            started("\u{1b}[31m"),
            replied(1, "\u{1b}[31m", &[("write_file", arguments), ("\u{1b}[31m", "\u{1b}[31m")]),
            Event::tool_ended(call, ToolOutput::ok("done")),
        ]);
        let plain = transcript(&records, OutputDetail::Folded, Colour::Off, usize::MAX);
        assert!(!plain.contains('\u{1b}') && plain.contains("+\\u{1b}[31mred"), "{plain}");
        let painted = transcript(&records, OutputDetail::Folded, Colour::On, usize::MAX);
        assert!(painted.contains("\u{1b}[32m+\\u{1b}[31mred\u{1b}[0m"), "{painted}");
    }
}
