//! Transcripts, trees and documents for users.

use brigade_testing::{Fault, Script, call, delegate, fault, reply};
use serde_json::json;

use crate::cli::redaction::redacted;
use crate::cli::support::Home;

/// Tree with most kinds of events.
pub(crate) fn story() -> Script {
    Script::new()
        .price(3.0, 15.0)
        .agent(
            "lead",
            [
                reply("Two parts, see `notes.txt`.")
                    .delegate("Fixer", "Fix the parser.\nThen report.")
                    .delegate("Checker", "Check it")
                    .call("read_file", json!({ "path": "notes.txt" }))
                    .tokens(1000, 100),
                call("message", json!({ "text": "Half way." }))
                    .call(
                        "write_file",
                        json!({ "path": "report.md", "content": "# Report\n\nIt was wrong.\n" }),
                    )
                    .tokens(2000, 50),
                call(
                    "write_file",
                    json!({ "path": "report.md", "content": "# Report\n\nIt was wrong, and is right.\n" }),
                )
                .call("write_file", json!({ "path": "notes.txt", "content": "gone\n" }))
                .tokens(3000, 50),
                reply("All done:\n```\nthe parser\n```").tokens(4000, 20),
            ],
        )
        .agent(
            "Fixer",
            [
                reply("I look first.").call("read_file", json!({ "path": "parser.rs" })).tokens(400, 20),
                call(
                    "edit_file",
                    json!({
                        "path": "parser.rs",
                        "old": "    let n = 1;",
                        "new": "    let n = 2;\n    check(n);",
                    }),
                )
                .call("edit_file", json!({ "path": "nowhere.rs", "old": "a", "new": "b" }))
                .tokens(500, 30),
                reply("Fixed.").tokens(600, 10),
            ],
        )
        .agent("Checker", [fault(Fault::Refused)])
}

/// Runs the story and returns its id.
pub(crate) fn run(home: &Home) -> String {
    let notes: String = (1..=45).map(|line| format!("note {line}\n")).collect();
    home.write("work/notes.txt", &notes);
    home.write("work/parser.rs", "fn parse() {\n    let a = 0;\n    let n = 1;\n    a + n\n}\n");
    let report = home.report(story(), &["--set", "swarm.max_depth=3"]);
    report["session_id"].as_str().unwrap().to_owned()
}

#[test]
fn transcript_shows_calls_diffs_and_folded_outputs() {
    let home = Home::new();
    let id = run(&home);
    let show = |arguments: &[&str]| home.brigade(&[&["sessions", "show"], arguments].concat());
    insta::assert_snapshot!("lead", redacted(&show(&[&id]).exits_with(0).stdout));
    insta::assert_snapshot!("fixer", redacted(&show(&[&format!("{id}.1-0")]).exits_with(0).stdout));
    let whole = show(&[&id, "--full"]);
    whole.exits_with(0).stdout_contains("note 45");
    assert!(!whole.stdout.contains("(--full)"), "{}", whole.stdout);
    assert_eq!(show(&[&id, "-v"]).stdout, whole.stdout);
}

#[test]
fn tree_shows_cost_and_time_of_each_branch() {
    let home = Home::new();
    let id = run(&home);
    let tree = home.brigade(&["sessions", "tree", &id]);
    insta::assert_snapshot!("tree", redacted(&tree.exits_with(0).stdout));
}

#[test]
fn wide_tree_is_folded_without_full() {
    let home = Home::new();
    let report = home.report(
        Script::new().agent("lead", [delegate("Helper {n}", "help").repeat(70).turn(1)]).reply("helped"),
        &[],
    );
    let id = report["session_id"].as_str().unwrap();
    let folded = home.brigade(&["sessions", "tree", id]);
    assert!(folded.exits_with(0).stdout.lines().count() < 70);
    folded.stdout_contains("12 done (--full)");
    let whole = home.brigade(&["sessions", "tree", id, "--full"]);
    assert_eq!(whole.exits_with(0).stdout.lines().count(), 72);
    whole.stdout_contains("└─ Helper 69");
}

#[test]
fn tree_exports_as_markdown() {
    let home = Home::new();
    let id = run(&home);
    let export = home.brigade(&["sessions", "export", &id, "--format", "md"]);
    insta::assert_snapshot!("markdown", redacted(&export.exits_with(0).stdout));
}
