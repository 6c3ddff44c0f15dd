//! Files that agents changed, in the table at the end of a run and in the report.

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::Home;

/// The lead writes a file and fails to edit it; a child edits another file twice.
fn edits() -> Script {
    Script::new()
        .agent(
            "lead",
            [
                call("write_file", json!({ "path": "notes.txt", "content": "one\ntwo\nthree\n" })),
                call("edit_file", json!({ "path": "notes.txt", "old": "four", "new": "five" }))
                    .delegate("Coder", "repair it"),
                reply("repaired"),
            ],
        )
        .agent(
            "Coder",
            [
                call("read_file", json!({ "path": "calc.py" })),
                call("edit_file", json!({ "path": "calc.py", "old": "a - b", "new": "a + b" })).call(
                    "edit_file",
                    json!({
                        "path": "calc.py",
                        "old": "def add(a, b):\n",
                        "new": "# Adds.\ndef add(a, b):\n",
                    }),
                ),
                reply("done"),
            ],
        )
}

const CALC: &str = "def add(a, b):\n    return a - b\n";

#[test]
fn run_summary_lists_the_files_each_agent_changed() {
    let home = Home::new();
    home.write("work/calc.py", CALC);
    let done = home.run(edits(), &[]);
    done.exits_with(0);
    let rows: Vec<Vec<&str>> = done.stderr.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        &["changed", "by", "file", "lines"][..],
        &["lead", "notes.txt", "+3", "-0"],
        &["Coder", "calc.py", "+2", "-1"],
    ] {
        assert!(rows.iter().any(|found| found == row), "no {row:?} in {}", done.stderr);
    }
    let total = done.stderr.lines().find(|line| line.starts_with("total ")).unwrap();
    assert!(total.contains("+5 -1"), "{total}");
    let quiet = home.run(Script::new().reply("nothing"), &[]);
    assert!(
        !quiet.exits_with(0).stderr.contains("changed by") && !quiet.stderr.contains("lines"),
        "{}",
        quiet.stderr
    );
}

#[test]
fn json_report_lists_the_changes_of_each_agent() {
    let home = Home::new();
    home.write("work/calc.py", CALC);
    let report = home.report(edits(), &[]);
    assert_eq!(report["agents"][0]["changes"], json!([{ "path": "notes.txt", "added": 3, "removed": 0 }]));
    assert_eq!(report["agents"][1]["changes"], json!([{ "path": "calc.py", "added": 2, "removed": 1 }]));
    let id = report["session_id"].as_str().unwrap();
    let tree = home.brigade(&["sessions", "tree", id, "--output-format", "json"]).exits_with(0).json();
    assert_eq!(tree["agents"][1]["changes"], report["agents"][1]["changes"], "the log has them");
}
