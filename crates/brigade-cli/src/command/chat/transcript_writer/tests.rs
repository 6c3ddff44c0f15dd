use brigade_core::delegation::Execution;
use brigade_core::message::Stop;
use brigade_core::{Budget, CallId, Cursor, Delegation, Grant, Hash, Limit, Reply, Resources, Spent};

use super::*;

const CALL: CallId = CallId { turn: 1, index: 0 };

struct ChatFixture {
    root: SessionId,
    writer: TranscriptWriter,
    view: RunView,
    seq: u64,
    printed: Vec<String>,
}

impl ChatFixture {
    fn new() -> ChatFixture {
        let root = SessionId::root(1);
        let writer = TranscriptWriter::new(root.clone(), Colour::Off, HashSet::new());
        let mut chat =
            ChatFixture { view: RunView::new(root.clone()), root, writer, seq: 0, printed: Vec::new() };
        let delegation = Delegation::default();
        chat.record(Event::Started {
            delegation: delegation.into(),
            agent: hash(),
            grant: grant(),
            parent: None,
            depth: 0,
        });
        chat
    }

    fn show_event(&mut self, live: &RunEvent) {
        if let RunEvent::Record(record) = live {
            self.view.apply(record);
        }
        self.printed.extend(self.writer.show_event(live, &self.view));
    }

    fn record(&mut self, event: Event) {
        let record =
            Record { session: self.root.clone(), seq: self.seq, pos: Cursor::START, at: 0, v: 1, event };
        self.seq += 1;
        self.show_event(&RunEvent::Record(record.into()));
    }

    fn delta(&mut self, text: &str) {
        self.show_event(&RunEvent::Delta { session: self.root.clone(), turn: 1, text: text.into() });
    }

    fn called(&mut self, purpose: Purpose) {
        let reserved = Resources::default();
        self.record(Event::Called { turn: 1, attempt: 1, purpose, reserved, input: 0, request: hash() });
    }

    fn replied(&mut self, text: &str) {
        let reply = Reply { text: text.into(), calls: Vec::new(), opaque: Vec::new(), stop: Stop::End };
        self.record(Event::Replied { turn: 1, reply, spent: Spent::default(), waited_ms: 0 });
    }

    fn ended(&mut self, status: Status, text: &str) {
        let outcome = Outcome { status, text: text.into(), warnings: Vec::new() };
        self.printed.extend(self.writer.end(&outcome));
    }

    fn delegated(&mut self, role: &str, execution: Execution) -> SessionId {
        let child = self.root.child(CallId { index: self.seq as u32, ..CALL });
        let delegation = Delegation { role: Some(role.to_owned()), execution, ..Delegation::default() };
        let (agent, grant) = (hash(), grant());
        self.record(Event::Delegated {
            call: CALL,
            child: child.clone(),
            delegation: delegation.into(),
            agent,
            grant,
        });
        child
    }

    fn returned(&mut self, child: SessionId, status: Status, text: &str) {
        let outcome = Outcome { status, text: text.into(), warnings: Vec::new() };
        self.record(Event::Returned { child, outcome, spent: Spent::default(), waited_ms: 0 });
    }
}

fn hash() -> Hash {
    Hash::of(b"")
}

fn grant() -> Grant {
    Grant { authority: hash(), budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited }
}

#[test]
fn reply_streamed_or_whole_is_shown_once() {
    for pieces in [&["one ", "two\n\nthr", "ee"][..], &["one two\n\n"], &[]] {
        let mut chat = ChatFixture::new();
        chat.called(Purpose::Turn);
        pieces.iter().for_each(|piece| chat.delta(piece));
        chat.replied("one two\n\nthree");
        chat.ended(Status::Done, "one two\n\nthree");
        assert_eq!(chat.printed, ["one two", "", "three"], "in {pieces:?}");
    }
}

#[test]
fn reply_with_missed_deltas_is_shown_again() {
    let mut chat = ChatFixture::new();
    chat.called(Purpose::Turn);
    chat.delta("one\n\n");
    chat.delta("three");
    chat.replied("one\n\ntwo\n\nthree");
    chat.delta("three, which was late\n\n");
    let expected = [
        "one",
        "",
        "three",
        "",
        "(part of the streamed text was lost; the complete reply follows)",
        "",
        "one",
        "",
        "two",
        "",
        "three",
    ];
    assert_eq!(chat.printed, expected);
}

#[test]
fn reply_cut_off_is_separated_from_the_retry() {
    for is_late in [false, true] {
        let mut chat = ChatFixture::new();
        chat.called(Purpose::Turn);
        chat.delta("ha");
        chat.delta("lf");
        let discarded = RunEvent::Discarded { session: chat.root.clone(), turn: 1 };
        let cause = CallFault::Transient { message: "gone".to_owned() };
        if !is_late {
            chat.show_event(&discarded);
        }
        chat.record(Event::call_failed(1, 1, cause, Spent::default()));
        if is_late {
            chat.show_event(&discarded);
        }
        chat.delta("whole");
        chat.replied("whole");
        let expected = ["half", "", "(the reply was cut off; retrying)", "", "whole"];
        assert_eq!(chat.printed, expected, "late: {is_late}");
    }
}

#[test]
fn compaction_summary_is_not_shown_as_a_reply() {
    let mut chat = ChatFixture::new();
    chat.called(Purpose::Compaction);
    chat.replied("the summary");
    chat.record(Event::Compacted { summary: "the summary".into(), keep_from: 1 });
    assert_eq!(chat.printed, ["(the conversation so far was replaced with a summary)"]);
}

#[test]
fn only_background_children_are_announced() {
    let mut chat = ChatFixture::new();
    let awaited = chat.delegated("Awaited", Execution::Foreground);
    let background = chat.delegated("Scout\u{1b}[2J", Execution::Background);
    let detached = chat.delegated("Apart", Execution::Detachable);
    chat.returned(awaited, Status::Done, "awaited");
    chat.returned(background, Status::Done, "\n quiet\u{7}\nmore");
    chat.returned(detached, Status::Detached, "");
    assert_eq!(chat.printed, ["Scout\\u{1b}[2J is done: quiet\\u{7}"]);
}

#[test]
fn unsuccessful_round_is_explained() {
    let mut chat = ChatFixture::new();
    chat.called(Purpose::Turn);
    chat.delta("half");
    chat.ended(Status::Cancelled { by: "the user".to_owned() }, "half");
    assert_eq!(chat.printed, ["half", "", "stopped by the user"]);
    let failed = Outcome {
        status: Status::Failed { cause: "no\nluck".into() },
        text: "".into(),
        warnings: Vec::new(),
    };
    assert_eq!(end_notice("Scout", &failed), "Scout failed: no");
}

#[test]
fn recent_messages_are_limited_in_number_and_length() {
    let record =
        |event| Record { session: SessionId::root(1), seq: 0, pos: Cursor::START, at: 0, v: 1, event };
    let heard = |text: &str| record(Event::Heard { from: Speaker::Person, text: text.into() });
    let ended = |text: &str| {
        let outcome = Outcome { status: Status::Done, text: text.into(), warnings: Vec::new() };
        record(Event::Ended { outcome, spent: Spent::default() })
    };
    let mut records: Vec<Record> =
        (0..5).flat_map(|n| [heard(&format!("q{n}")), ended(&format!("a{n}"))]).collect();
    assert_eq!(recent_messages(&records, Colour::Off, 80).join("|"), "> q2||a2||> q3||a3||> q4||a4|");
    records.push(ended(&"line\n\n".repeat(20)));
    assert!(recent_messages(&records, Colour::Off, 80).contains(&"(and 27 more lines)".to_owned()));
}
