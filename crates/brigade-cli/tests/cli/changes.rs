//! Files that agents changed, in the table at the end of a run and in the report.

use serde_json::json;

use crate::cli::support::Home;

/// The lead writes a file and fails to edit it; a child edits another file twice.
const EDITS: &str = r##"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "notes.txt", content = "one\ntwo\nthree\n" }
[[reply]]
agent = "lead"
turn = 2
[[reply.call]]
tool = "edit_file"
arguments = { path = "notes.txt", old = "four", new = "five" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Coder", task = "repair it" }
[[reply]]
agent = "lead"
text = "repaired"
[[reply]]
agent = "Coder"
turn = 1
[[reply.call]]
tool = "read_file"
arguments = { path = "calc.py" }
[[reply]]
agent = "Coder"
turn = 2
[[reply.call]]
tool = "edit_file"
arguments = { path = "calc.py", old = "a - b", new = "a + b" }
[[reply.call]]
tool = "edit_file"
arguments = { path = "calc.py", old = "def add(a, b):\n", new = "# Adds.\ndef add(a, b):\n" }
[[reply]]
agent = "Coder"
text = "done"
"##;
const CALC: &str = "def add(a, b):\n    return a - b\n";

#[test]
fn run_summary_lists_the_files_each_agent_changed() {
    let home = Home::new();
    home.write("work/calc.py", CALC);
    let done = home.run(EDITS, &[]);
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
    let quiet = home.run("[[reply]]\ntext = 'nothing'", &[]);
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
    let report = home.report(EDITS, &[]);
    assert_eq!(report["agents"][0]["changes"], json!([{ "path": "notes.txt", "added": 3, "removed": 0 }]));
    assert_eq!(report["agents"][1]["changes"], json!([{ "path": "calc.py", "added": 2, "removed": 1 }]));
    let id = report["session_id"].as_str().unwrap();
    let tree = home.brigade(&["sessions", "tree", id, "--output-format", "json"]).exits_with(0).json();
    assert_eq!(tree["agents"][1]["changes"], report["agents"][1]["changes"], "the log has them");
}
