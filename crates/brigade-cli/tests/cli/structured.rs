//! `run --json-schema`: the result fits the schema, or the run fails.

use std::path::PathBuf;

use serde_json::json;

use crate::support::{Done, Home};

const SCHEMA: &str =
    r#"{ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] }"#;

fn schema(home: &Home) -> PathBuf {
    home.write("schema.json", SCHEMA)
}

fn run(home: &Home, script: &str, arguments: &[&str]) -> Done {
    let file = schema(home);
    home.run(script, &[&["--json-schema", file.to_str().unwrap()], arguments].concat())
}

#[test]
fn a_result_that_fits_is_all_of_standard_output() {
    let home = Home::new();
    let done = run(&home, "[[reply]]\ntext = '''```json\n{ \"n\": 1 }\n```'''", &[]);
    assert_eq!(done.exits(0).stdout, "{\"n\":1}\n");
    let told = run(
        &home,
        "[[reply]]\nturn = 1\ntext = '{task}'\n[[reply]]\ntext = '{\"n\": 1}'",
        &["--output-format", "json"],
    );
    let report = told.exits(0).json();
    assert_eq!((&report["status"], &report["result"]), (&"done".into(), &r#"{"n":1}"#.into()));
    let log = home.brigade(&["sessions", "show", "last", "--full"]);
    log.exits(0).prints("fits this JSON Schema").prints("\"required\": [\"n\"]");
}

#[test]
fn a_schema_is_also_given_as_json() {
    let home = Home::new();
    let script = "[[reply]]\ntext = '{\"n\": 1}'";
    let with = |schema: &str| home.run(script, &["--json-schema", schema]);
    assert_eq!(with(SCHEMA).exits(0).stdout, "{\"n\":1}\n");
    with(" {\"type\": \"nonsense\"}").exits(2).says("cannot use the schema");
    with("{\"type\"").exits(2).says("cannot use the schema");
    with("nowhere.json").exits(2).says("cannot read the schema nowhere.json");
    home.brigade(&["run", "--help"]).exits(0).prints("a file, or the schema itself");
}

#[test]
fn control_characters_stay_json() {
    let home = Home::new();
    let done = run(&home, "[[reply]]\ntext = '{\"n\": 1, \"s\": \"a\\u009b31m\\u202eb\"}'", &[]);
    let value: serde_json::Value = serde_json::from_str(&done.exits(0).stdout).unwrap();
    assert_eq!(value, json!({ "n": 1, "s": "a\u{9b}31m\u{202e}b" }));
    assert!(!done.stdout.contains('\u{9b}') && !done.stdout.contains('\u{202e}'), "{}", done.stdout);
}

#[test]
fn a_result_that_does_not_fit_is_asked_for_again_and_then_fails() {
    let home = Home::new();
    let late = "[[reply]]\nturn = 1\ntext = 'One.'\n[[reply]]\ntext = '{\"n\": 2}'";
    assert_eq!(run(&home, late, &[]).exits(0).stdout, "{\"n\":2}\n");
    let never = run(&home, "[[reply]]\ntext = '{\"n\": \"one\"}'", &[]);
    assert_eq!(never.exits(1).stdout, "");
    never
        .says("failed: the result does not fit the schema")
        .says("is not of type \"integer\"")
        .says("(at /n)");
    let report = run(&home, "[[reply]]\ntext = 'One.'", &["--output-format", "json"]).exits(1).json();
    assert_eq!(report["status"], "failed");
}

#[test]
fn what_is_incomplete_is_json_or_nothing() {
    let home = Home::new();
    let call = "[[reply]]\npurpose = 'turn'\n[[reply.call]]\ntool = 'list_dir'\narguments = { path = '.' }\n";
    let words = run(&home, &format!("{call}[[reply]]\ntext = 'Half of it.'"), &["--max-turns", "1"]);
    assert_eq!(words.exits(3).stdout, "");
    words.says("Half of it.").says("not JSON that fits the schema");
    let json = run(&home, &format!("{call}[[reply]]\ntext = '{{\"n\": 1}}'"), &["--max-turns", "1"]);
    assert_eq!(json.exits(3).stdout, "{\"n\":1}\n");
    let unfit = run(&home, &format!("{call}[[reply]]\ntext = '{{}}'"), &["--max-turns", "1"]);
    assert_eq!(unfit.exits(3).stdout, "");
}

#[test]
fn the_schema_is_kept_on_resume_and_not_for_what_is_told_later() {
    let home = Home::new();
    let call = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'list_dir'\narguments = { path = '.' }\n";
    let more = "[[reply]]\npurpose = 'grace'\ntext = 'Half of it.'\n[[reply]]\nturn = 3\ntext = 'One.'\n\
        [[reply]]\nturn = 4\ntext = '{ \"n\": 4 }'\n[[reply]]\ntext = 'In words: {heard}'";
    run(&home, &format!("{call}{more}"), &["--max-turns", "1"]).exits(3);
    let resumed = home.brigade(&["resume", "last", "--max-turns", "9"]);
    assert_eq!(resumed.exits(0).stdout, "{\"n\":4}\n", "{}", resumed.stderr);
    // Printed again, it is the same.
    assert_eq!(home.brigade(&["resume", "last"]).exits(0).stdout, "{\"n\":4}\n");
    let told = home.brigade(&["tell", "last", "Why four?"]);
    assert_eq!(told.exits(0).stdout, "In words: Why four?\n");
    let continued = home.brigade(&["run", "-c", "And now?"]);
    assert_eq!(continued.exits(0).stdout, "In words: And now?\n");
}

#[test]
fn a_failed_result_can_be_tried_again_with_the_same_schema() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 5\ntext = '{ \"n\": 5 }'\n[[reply]]\ntext = 'One.'";
    assert_eq!(run(&home, script, &[]).exits(1).stdout, "");
    let resumed = home.brigade(&["resume", "last"]);
    assert_eq!(resumed.exits(0).stdout, "{\"n\":5}\n", "{}", resumed.stderr);
}

#[test]
fn a_schema_that_cannot_be_used_starts_nothing() {
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = '{}'");
    let refused = |content: &str, words: &str| {
        let file = home.write("wrong.json", content);
        let done = home.brigade(&["run", "-m", &model, "--json-schema", file.to_str().unwrap(), "x"]);
        done.exits(2).says("cannot use the schema").says("wrong.json").says(words);
        assert_eq!(done.stdout, "");
    };
    refused("{", "it is not JSON");
    refused("[]", "which is an object");
    refused(r#"{ "type": "nonsense" }"#, "not a valid JSON Schema");
    refused(
        r#"{ "$ref": "https://example.com/report.json" }"#,
        "it refers to https://example.com/report.json",
    );
    refused(r#"{ "$ref": "file:///etc/hostname" }"#, "references to other documents are not followed");
    home.brigade(&["run", "-m", &model, "--json-schema", "nope.json", "x"])
        .exits(2)
        .says("cannot read the schema");
    home.brigade(&["run", "-c", "--json-schema", "wrong.json", "x"]).exits(2).says("--json-schema");
    let sessions = home.brigade(&["sessions", "list", "--output-format", "json"]).exits(0).json();
    assert_eq!(sessions, json!([]));
}
