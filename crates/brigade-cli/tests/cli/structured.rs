//! `run --json-schema`: the result matches the schema, or the run fails.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home};

const SCHEMA: &str =
    r#"{ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] }"#;

fn schema(home: &Home) -> PathBuf {
    home.write("schema.json", SCHEMA)
}

fn run(home: &Home, script: &str, arguments: &[&str]) -> CommandResult {
    let file = schema(home);
    home.run(script, &[&["--json-schema", file.to_str().unwrap()], arguments].concat())
}

#[test]
fn valid_result_is_the_only_stdout() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = run(&home, "[[reply]]\ntext = '''```json\n{ \"n\": 1 }\n```'''", &[]);
    assert_eq!(done.exits_with(0).stdout, "{\"n\":1}\n");
    let told = run(
        &home,
        "[[reply]]\nturn = 1\ntext = '{task}'\n[[reply]]\ntext = '{\"n\": 1}'",
        &["--output-format", "json"],
    );
    let report = told.exits_with(0).json();
    assert_eq!((&report["status"], &report["result"]), (&"done".into(), &r#"{"n":1}"#.into()));
    let log = home.brigade(&["sessions", "show", "last", "--full"]);
    console.add(log.exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn schema_is_also_given_as_json() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let script = "[[reply]]\ntext = '{\"n\": 1}'";
    let with = |schema: &str| home.run(script, &["--json-schema", schema]);
    assert_eq!(with(SCHEMA).exits_with(0).stdout, "{\"n\":1}\n");
    console.add(with(" {\"type\": \"nonsense\"}").exits_with(2));
    console.add(with("{\"type\"").exits_with(2));
    console.add(with("nowhere.json").exits_with(2));
    console.add(home.brigade(&["run", "--help"]).exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn control_characters_stay_escaped_in_json() {
    let home = Home::new();
    let done = run(&home, "[[reply]]\ntext = '{\"n\": 1, \"s\": \"a\\u009b31m\\u202eb\"}'", &[]);
    let value: serde_json::Value = serde_json::from_str(&done.exits_with(0).stdout).unwrap();
    assert_eq!(value, json!({ "n": 1, "s": "a\u{9b}31m\u{202e}b" }));
    assert!(!done.stdout.contains('\u{9b}') && !done.stdout.contains('\u{202e}'), "{}", done.stdout);
}

#[test]
fn invalid_result_is_requested_again_and_then_fails() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let late = "[[reply]]\nturn = 1\ntext = 'One.'\n[[reply]]\ntext = '{\"n\": 2}'";
    assert_eq!(run(&home, late, &[]).exits_with(0).stdout, "{\"n\":2}\n");
    let never = run(&home, "[[reply]]\ntext = '{\"n\": \"one\"}'", &[]);
    assert_eq!(never.exits_with(1).stdout, "");
    console.add(&never);
    let report = run(&home, "[[reply]]\ntext = 'One.'", &["--output-format", "json"]).exits_with(1).json();
    assert_eq!(report["status"], "failed");
    insta::assert_snapshot!(console.text());
}

#[test]
fn incomplete_result_is_valid_json_or_empty() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let call = "[[reply]]\npurpose = 'turn'\n[[reply.call]]\ntool = 'list_dir'\narguments = { path = '.' }\n";
    let words = run(&home, &format!("{call}[[reply]]\ntext = 'Half of it.'"), &["--max-turns", "1"]);
    assert_eq!(words.exits_with(3).stdout, "");
    console.add(&words);
    let json = run(&home, &format!("{call}[[reply]]\ntext = '{{\"n\": 1}}'"), &["--max-turns", "1"]);
    assert_eq!(json.exits_with(3).stdout, "{\"n\":1}\n");
    let unfit = run(&home, &format!("{call}[[reply]]\ntext = '{{}}'"), &["--max-turns", "1"]);
    assert_eq!(unfit.exits_with(3).stdout, "");
    insta::assert_snapshot!(console.text());
}

#[test]
fn schema_applies_on_resume_and_not_to_later_rounds() {
    let home = Home::new();
    let call = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'list_dir'\narguments = { path = '.' }\n";
    let more = "[[reply]]\npurpose = 'grace'\ntext = 'Half of it.'\n[[reply]]\nturn = 3\ntext = 'One.'\n\
        [[reply]]\nturn = 4\ntext = '{ \"n\": 4 }'\n[[reply]]\ntext = 'In words: {heard}'";
    run(&home, &format!("{call}{more}"), &["--max-turns", "1"]).exits_with(3);
    let resumed = home.brigade(&["resume", "last", "--max-turns", "9"]);
    assert_eq!(resumed.exits_with(0).stdout, "{\"n\":4}\n", "{}", resumed.stderr);
    // It is the same when it is printed again.
    assert_eq!(home.brigade(&["resume", "last"]).exits_with(0).stdout, "{\"n\":4}\n");
    let told = home.brigade(&["tell", "last", "Why four?"]);
    assert_eq!(told.exits_with(0).stdout, "In words: Why four?\n");
    let continued = home.brigade(&["run", "-c", "And now?"]);
    assert_eq!(continued.exits_with(0).stdout, "In words: And now?\n");
}

#[test]
fn failed_result_can_be_retried_with_the_same_schema() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 5\ntext = '{ \"n\": 5 }'\n[[reply]]\ntext = 'One.'";
    assert_eq!(run(&home, script, &[]).exits_with(1).stdout, "");
    let resumed = home.brigade(&["resume", "last"]);
    assert_eq!(resumed.exits_with(0).stdout, "{\"n\":5}\n", "{}", resumed.stderr);
}

#[test]
fn unusable_schema_starts_nothing() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script("[[reply]]\ntext = '{}'");
    for schema in [
        "{",
        "[]",
        r#"{ "type": "nonsense" }"#,
        r#"{ "$ref": "https://example.com/report.json" }"#,
        r#"{ "$ref": "file:///etc/hostname" }"#,
    ] {
        let file = home.write("wrong.json", schema);
        let done = home.brigade(&["run", "-m", &model, "--json-schema", file.to_str().unwrap(), "x"]);
        console.add(done.exits_with(2));
        assert_eq!(done.stdout, "");
    }
    console.add(home.brigade(&["run", "-m", &model, "--json-schema", "nope.json", "x"]).exits_with(2));
    console.add(home.brigade(&["run", "-c", "--json-schema", "wrong.json", "x"]).exits_with(2));
    let sessions = home.brigade(&["sessions", "list", "--output-format", "json"]).exits_with(0).json();
    assert_eq!(sessions, json!([]));
    insta::assert_snapshot!(console.text());
}
