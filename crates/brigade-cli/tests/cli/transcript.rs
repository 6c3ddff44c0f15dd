//! Transcripts, trees and documents for users.

use crate::cli::redaction::redacted;
use crate::cli::support::Home;

/// Tree with most kinds of events.
pub(crate) const STORY: &str = r##"
[price]
input = 3.0
output = 15.0
[[reply]]
agent = "lead"
turn = 1
text = "Two parts, see `notes.txt`."
usage = { input = 1000, output = 100 }
[[reply.call]]
tool = "delegate"
arguments = { role = "Fixer", task = "Fix the parser.\nThen report." }
[[reply.call]]
tool = "delegate"
arguments = { role = "Checker", task = "Check it" }
[[reply.call]]
tool = "read_file"
arguments = { path = "notes.txt" }
[[reply]]
agent = "lead"
turn = 2
usage = { input = 2000, output = 50 }
[[reply.call]]
tool = "message"
arguments = { text = "Half way." }
[[reply.call]]
tool = "write_file"
arguments = { path = "report.md", content = "# Report\n\nIt was wrong.\n" }
[[reply]]
agent = "lead"
turn = 3
usage = { input = 3000, output = 50 }
[[reply.call]]
tool = "write_file"
arguments = { path = "report.md", content = "# Report\n\nIt was wrong, and is right.\n" }
[[reply.call]]
tool = "write_file"
arguments = { path = "notes.txt", content = "gone\n" }
[[reply]]
agent = "lead"
text = "All done:\n```\nthe parser\n```"
usage = { input = 4000, output = 20 }
[[reply]]
agent = "Fixer"
turn = 1
text = "I look first."
usage = { input = 400, output = 20 }
[[reply.call]]
tool = "read_file"
arguments = { path = "parser.rs" }
[[reply]]
agent = "Fixer"
turn = 2
usage = { input = 500, output = 30 }
[[reply.call]]
tool = "edit_file"
arguments = { path = "parser.rs", old = "    let n = 1;", new = "    let n = 2;\n    check(n);" }
[[reply.call]]
tool = "edit_file"
arguments = { path = "nowhere.rs", old = "a", new = "b" }
[[reply]]
agent = "Fixer"
text = "Fixed."
usage = { input = 600, output = 10 }
[[reply]]
agent = "Checker"
fault = "refused"
"##;

/// Runs the story and returns its id.
pub(crate) fn run(home: &Home) -> String {
    let notes: String = (1..=45).map(|line| format!("note {line}\n")).collect();
    home.write("work/notes.txt", &notes);
    home.write("work/parser.rs", "fn parse() {\n    let a = 0;\n    let n = 1;\n    a + n\n}\n");
    let report = home.report(STORY, &["--set", "swarm.max_depth=3"]);
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
        "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'delegate'\nrepeat = 70\n\
         arguments = { role = 'Helper {n}', task = 'help' }\n[[reply]]\ntext = 'helped'",
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
