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
        story.fact(Event::Started {
            delegation: delegation.into(),
            agent: hash(),
            grant: grant(),
            parent: None,
            depth: 0,
        });
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
        self.fact(Event::Called { turn: 1, attempt: 1, purpose, reserved, input: 0, request: hash() });
    }

    fn replied(&mut self, text: &str) {
        let reply = Reply { text: text.into(), calls: Vec::new(), opaque: Vec::new(), stop: Stop::End };
        self.fact(Event::Replied { turn: 1, reply, spent: Spent::default(), waited_ms: 0 });
    }

    fn ended(&mut self, status: Status, text: &str) {
        let outcome = Outcome { status, text: text.into(), warnings: Vec::new() };
        self.said.extend(self.voice.end(&outcome));
    }

    fn delegated(&mut self, role: &str, waiting: Waiting) -> SessionId {
        let child = self.root.child(CallId { index: self.seq as u32, ..CALL });
        let delegation = Delegation { role: Some(role.to_owned()), waiting, ..Delegation::default() };
        let (agent, grant) = (hash(), grant());
        self.fact(Event::Delegated {
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
        self.fact(Event::Returned { child, outcome, spent: Spent::default(), waited_ms: 0 });
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
    story.delta("three, which was late\n\n");
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
        story.fact(Event::call_failed(1, 1, cause, Spent::default()));
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
