//! Events and definitions as earlier versions wrote them: each is read, and no key of it is lost or renamed.
//!
//! The files in `golden/` are never rewritten. An event that gains a field needs no new line: a field that is absent
//! reads as its default. A new kind of event, or a new variant, is appended.

use brigade_core::Agent;

use super::*;
use kept::lost;

#[path = "golden/kept.rs"]
mod kept;

/// One event per line, every variant, with every optional field of version 0.1.0.
const EVENTS: &str = include_str!("golden/events.jsonl");
/// One definition per line: agents and authorities, which events refer to by hash.
const AGENTS: &str = include_str!("golden/agents.jsonl");
const AUTHORITIES: &str = include_str!("golden/authorities.jsonl");

#[track_caller]
fn assert_kept<T: serde::Serialize + serde::de::DeserializeOwned>(lines: &str) -> Vec<T> {
    let read = |line: &str| {
        let read: T = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        let now = serde_json::to_value(&read).unwrap();
        if let Some(what) = lost(&serde_json::from_str(line).unwrap(), &now, "") {
            panic!("{what} in {line}");
        }
        read
    };
    lines.lines().map(read).collect()
}

#[test]
fn golden_events_read_and_written_again_keep_every_key() {
    let events: Vec<Event> = assert_kept(EVENTS);
    let kinds: BTreeSet<&str> = events.iter().map(Event::kind).collect();
    assert!(kinds.is_superset(&BTreeSet::from(TYPES)), "no golden line of some kind: {kinds:?}");
}

#[test]
fn golden_definitions_read_and_written_again_keep_every_key() {
    let agents: Vec<Agent> = assert_kept(AGENTS);
    let authorities: Vec<Authority> = assert_kept(AUTHORITIES);
    assert!(!agents.is_empty() && !authorities.is_empty());
}

#[test]
fn dropped_or_renamed_keys_are_detected() {
    let then = serde_json::json!({ "spent": { "in_doubt": { "tokens": 1 } }, "calls": [{ "name": "x" }] });
    assert_eq!(lost(&then, &then, ""), None);
    let mut more = then.clone();
    more["spent"]["waited_ms"] = 5.into();
    assert_eq!(lost(&then, &more, ""), None);
    let renamed = serde_json::json!({ "spent": { "doubt": { "tokens": 1 } }, "calls": [{ "name": "x" }] });
    assert_eq!(lost(&then, &renamed, "").unwrap(), ".spent.in_doubt is missing");
    let changed = serde_json::json!({ "spent": { "in_doubt": { "tokens": 0 } }, "calls": [{ "name": "x" }] });
    assert_eq!(lost(&then, &changed, "").unwrap(), ".spent.in_doubt.tokens was 1 and is 0");
    let shorter = serde_json::json!({ "spent": { "in_doubt": { "tokens": 1 } }, "calls": [] });
    assert!(lost(&then, &shorter, "").is_some());
}
