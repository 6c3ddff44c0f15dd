//! Files that a session has seen.

use super::*;
use crate::seen::{Extent, MAX_SEEN_FILES, SeenFile};

fn file(path: &str, content: &str, extent: Extent) -> SeenFile {
    SeenFile { path: path.to_owned(), hash: Hash::of(content.as_bytes()), extent }
}

fn showed(turn: u32, index: u32, seen: SeenFile) -> Event {
    let (output, spent) = (ToolOutput::ok("shown"), Spent::default());
    Event::ToolEnded { call: call(turn, index), output, spent, seen: Some(Box::new(seen)) }
}

/// Lets turn `turn` call `calls` tools.
fn calling(scenario: &mut Scenario, turn: u32, calls: usize) {
    scenario.then(called(turn, 1, Purpose::Turn)).then(replied(turn, "", &vec!["read_file"; calls]));
}

#[test]
fn seen_file_is_remembered_as_last_shown() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    calling(&mut scenario, 1, 3);
    assert_eq!(scenario.state.seen("a"), None);
    scenario.then(showed(1, 0, file("a", "one", Extent::Whole)));
    scenario.then(showed(1, 1, file("b", "one", Extent::Part)));
    assert_eq!(scenario.state.seen("a"), Some(&file("a", "one", Extent::Whole)));
    assert_eq!(scenario.state.seen("b"), Some(&file("b", "one", Extent::Part)));
    // A part of the same content takes nothing away; a part of another one does.
    scenario.then(showed(1, 2, file("a", "one", Extent::Part)));
    assert_eq!(scenario.state.seen("a").unwrap().extent, Extent::Whole);
    calling(&mut scenario, 2, 1);
    scenario.then(showed(2, 0, file("a", "two", Extent::Part)));
    assert_eq!(scenario.state.seen("a"), Some(&file("a", "two", Extent::Part)));
    scenario.crash();
    assert_eq!(scenario.state.seen("a"), Some(&file("a", "two", Extent::Part)));
}

#[test]
fn seen_files_beyond_the_bound_forget_the_oldest() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    let count = MAX_SEEN_FILES as u32;
    calling(&mut scenario, 1, MAX_SEEN_FILES + 2);
    for index in 0..count {
        scenario.then(showed(1, index, file(&format!("f{index}"), "x", Extent::Whole)));
    }
    scenario.then(showed(1, count, file("f0", "y", Extent::Whole)));
    scenario.then(showed(1, count + 1, file("last", "x", Extent::Whole)));
    assert!(scenario.state.seen("f0").is_some() && scenario.state.seen("last").is_some());
    assert!(scenario.state.seen("f1").is_none() && scenario.state.seen("f2").is_some());
}

#[test]
fn compaction_forgets_the_files_that_it_drops() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    for turn in 1..=3 {
        calling(&mut scenario, turn, 1);
        scenario.then(showed(turn, 0, file(&format!("f{turn}"), "x", Extent::Whole)));
    }
    scenario.then(Event::Compacted { summary: "short".into(), keep_from: 3 });
    assert!(scenario.state.seen("f1").is_none() && scenario.state.seen("f2").is_none());
    assert!(scenario.state.seen("f3").is_some());
}

#[test]
fn compaction_that_drops_the_read_leaves_a_part_of_an_edited_file() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    let shown = [
        file("a", "one", Extent::Whole),
        file("a", "two", Extent::Inherited),
        file("b", "one", Extent::Inherited),
        file("c", "one", Extent::Whole),
    ];
    for (turn, seen) in (1..).zip(shown) {
        calling(&mut scenario, turn, 1);
        scenario.then(showed(turn, 0, seen));
    }
    assert_eq!(scenario.state.seen("a"), Some(&file("a", "two", Extent::Whole)), "all was seen, then edited");
    assert_eq!(scenario.state.seen("b"), Some(&file("b", "one", Extent::Part)), "only the edit was seen");
    scenario.then(Event::Compacted { summary: "short".into(), keep_from: 2 });
    assert_eq!(scenario.state.seen("a"), Some(&file("a", "two", Extent::Part)), "the read is gone");
    assert_eq!(scenario.state.seen("c"), Some(&file("c", "one", Extent::Whole)));
    scenario.crash();
    assert_eq!(scenario.state.seen("a"), Some(&file("a", "two", Extent::Part)));
}

#[test]
fn seen_file_of_a_stored_event_is_optional() {
    let old = r#"{"type":"tool_ended","call":"1-0","output":{"text":"x","status":"ok"}}"#;
    let event: Event = serde_json::from_str(old).unwrap();
    assert_eq!(event, Event::tool_ended(call(1, 0), ToolOutput::ok("x")));
    assert_eq!(serde_json::to_string(&event).unwrap(), old);
    let new = showed(1, 0, file("a", "x", Extent::Whole));
    let json = serde_json::to_string(&new).unwrap();
    assert!(json.contains(r#""seen":{"path":"a","hash":""#) && json.contains(r#""extent":"whole""#));
    assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), new);
}

#[test]
fn file_shown_in_the_first_kept_turn_stays_known_in_full() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    for turn in 1..=2 {
        calling(&mut scenario, turn, 1);
        scenario.then(showed(turn, 0, file(&format!("f{turn}"), "x", Extent::Whole)));
    }
    scenario.then(Event::Compacted { summary: "short".into(), keep_from: 2 });
    assert_eq!(scenario.state.seen("f1"), None);
    assert_eq!(scenario.state.seen("f2").unwrap().extent, Extent::Whole);
}
