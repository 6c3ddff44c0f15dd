//! `run --json-schema`: the result matches the schema, or the run fails.

use std::path::PathBuf;

use brigade_testing::{Purpose, Script, call, reply};
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home};

const SCHEMA: &str =
    r#"{ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] }"#;

fn schema(home: &Home) -> PathBuf {
    home.write("schema.json", SCHEMA)
}

fn run(home: &Home, script: Script, arguments: &[&str]) -> CommandResult {
    let file = schema(home);
    home.run(script, &[&["--json-schema", file.to_str().unwrap()], arguments].concat())
}

#[test]
fn valid_result_is_the_only_stdout() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = run(&home, Script::new().reply("```json\n{ \"n\": 1 }\n```"), &[]);
    assert_eq!(done.exits_with(0).stdout, "{\"n\":1}\n");
    let told = run(
        &home,
        Script::new().turns([reply("{task}"), reply(r#"{"n": 1}"#)]),
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
    let script = Script::new().reply(r#"{"n": 1}"#);
    let with = |schema: &str| home.run(&script, &["--json-schema", schema]);
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
    let done = run(&home, Script::new().reply("{\"n\": 1, \"s\": \"a\\u009b31m\\u202eb\"}"), &[]);
    let value: serde_json::Value = serde_json::from_str(&done.exits_with(0).stdout).unwrap();
    assert_eq!(value, json!({ "n": 1, "s": "a\u{9b}31m\u{202e}b" }));
    assert!(!done.stdout.contains('\u{9b}') && !done.stdout.contains('\u{202e}'), "{}", done.stdout);
}

#[test]
fn invalid_result_is_requested_again_and_then_fails() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let late = Script::new().turns([reply("One."), reply(r#"{"n": 2}"#)]);
    assert_eq!(run(&home, late, &[]).exits_with(0).stdout, "{\"n\":2}\n");
    let never = run(&home, Script::new().reply(r#"{"n": "one"}"#), &[]);
    assert_eq!(never.exits_with(1).stdout, "");
    console.add(&never);
    let report = run(&home, Script::new().reply("One."), &["--output-format", "json"]).exits_with(1).json();
    assert_eq!(report["status"], "failed");
    insta::assert_snapshot!(console.text());
}

#[test]
fn incomplete_result_is_valid_json_or_empty() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let limited = |text: &str| {
        let call = call("list_dir", json!({ "path": "." })).purpose(Purpose::Turn);
        run(&home, Script::new().reply(call).reply(reply(text)), &["--max-turns", "1"])
    };
    let words = limited("Half of it.");
    assert_eq!(words.exits_with(3).stdout, "");
    console.add(&words);
    assert_eq!(limited(r#"{"n": 1}"#).exits_with(3).stdout, "{\"n\":1}\n");
    let unfit = limited("{}");
    assert_eq!(unfit.exits_with(3).stdout, "");
    insta::assert_snapshot!(console.text());
}

#[test]
fn schema_applies_on_resume_and_not_to_later_rounds() {
    let home = Home::new();
    let script = Script::new()
        .reply(call("list_dir", json!({ "path": "." })).turn(1))
        .reply(reply("Half of it.").purpose(Purpose::Grace))
        .reply(reply("One.").turn(3))
        .reply(reply(r#"{ "n": 4 }"#).turn(4))
        .reply("In words: {heard}");
    run(&home, script, &["--max-turns", "1"]).exits_with(3);
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
    let script = Script::new().reply(reply(r#"{ "n": 5 }"#).turn(5)).reply("One.");
    assert_eq!(run(&home, script, &[]).exits_with(1).stdout, "");
    let resumed = home.brigade(&["resume", "last"]);
    assert_eq!(resumed.exits_with(0).stdout, "{\"n\":5}\n", "{}", resumed.stderr);
}

#[test]
fn unusable_schema_starts_nothing() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().reply("{}"));
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
