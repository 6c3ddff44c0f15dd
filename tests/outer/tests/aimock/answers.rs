//! Requests, replies and errors in every format.

use brigade_outer_tests::{Aimock, FORMATS};
use serde_json::{Value, json};

use crate::aimock::{fixtures, messages, test_env, text};

const RUN: [&str; 3] = ["run", "--output-format", "json"];

#[test]
fn plain_answer_is_returned_in_every_format() {
    let aimock = Aimock::start(&fixtures("delegation.json"), &["--chunk-size", "5"]);
    for format in FORMATS {
        let env = test_env(format, &aimock.address);
        let output = env.run_with_key(Aimock::KEY, &[&RUN[..], &["a plain question"]].concat());
        assert_eq!(output.code, 0, "{format:?} {output:?}");
        let report = output.report();
        assert_eq!(
            report["result"], "A plain answer, which is long enough for several pieces.",
            "{format:?}"
        );
        let usage = &report["usage"];
        assert_eq!(
            (&usage["input_tokens"], &usage["output_tokens"]),
            (&json!(1100), &json!(5)),
            "{format:?}"
        );
    }
}

#[test]
fn lead_delegates_twice_and_summarises() {
    for format in FORMATS {
        let aimock = Aimock::start(&fixtures("delegation.json"), &[]);
        let env = test_env(format, &aimock.address);
        let output = env.run_with_key(Aimock::KEY, &[&RUN[..], &["do both parts"]].concat());
        assert_eq!(output.code, 0, "{format:?} {output:?}");
        let report = output.report();
        assert_eq!(report["result"], "Left and right are done.", "{format:?}");
        assert_eq!(report["usage"]["input_tokens"], 31_000, "{format:?}");
        let root = report["session_id"].as_str().unwrap();
        let tree = env.brigade(&["sessions", "tree", root, "--output-format", "json"]);
        check_tree(root, &serde_json::from_str(&tree.stdout).unwrap());
        check_journal(format.header, &aimock.journal());
    }
}

fn check_tree(root: &str, tree: &Value) {
    let rows = tree["agents"].as_array().unwrap();
    let shown: Vec<_> = rows.iter().map(|row| (&row["agent"], &row["parent"], &row["status"])).collect();
    let (root, done_status) = (&json!(root), &json!("done"));
    let expected = [
        (&json!("lead"), &Value::Null, done_status),
        (&json!("Left"), root, done_status),
        (&json!("Right"), root, done_status),
    ];
    assert_eq!(shown, expected);
}

/// Checks four requests: two of the lead and one of each child. Each has its system prompt and its key. The
/// second request of the lead pairs every call with the result of the right child.
fn check_journal(key_header: &str, journal: &[Value]) {
    assert_eq!(journal.len(), 4, "{journal:#?}");
    for entry in journal {
        assert!(entry["headers"][key_header].is_string(), "{}", entry["headers"]);
        assert_eq!(entry["response"]["status"], 200);
        let body = &entry["body"];
        assert_eq!(body["model"], "small");
        let messages = messages(body);
        assert!(messages[0]["role"] == "system" && text(messages[0]).len() > 100, "{}", messages[0]);
        assert!(body["tools"].as_array().is_some_and(|tools| !tools.is_empty()));
    }
    let mut tasks: Vec<String> = journal.iter().map(|entry| text(messages(&entry["body"])[1])).collect();
    tasks.sort();
    let expected = ["do both parts", "do both parts", "the left half", "the right half"];
    let fits = tasks.iter().zip(expected).all(|(task, expected)| task.contains(expected));
    assert!(fits, "{tasks:?}");
    let last = messages(&journal[3]["body"]);
    let mut roles: Vec<&str> = last.iter().filter_map(|message| message["role"].as_str()).collect();
    // aimock splits text and calls on the same level, as in Responses, into separate messages.
    roles.dedup();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
    let calls: Vec<&Value> =
        last.iter().filter_map(|message| message["tool_calls"].as_array()).flatten().collect();
    let answers: Vec<&&Value> = last.iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!((calls.len(), answers.len()), (2, 2), "{last:#?}");
    let results = ["the result of the left", "the result of the right"];
    for ((call, answer), result) in calls.iter().zip(answers).zip(results) {
        assert_eq!(call["id"], answer["tool_call_id"]);
        assert!(text(answer).contains(result), "{answer}");
    }
}

#[test]
fn wrong_key_is_reported_without_showing_it() {
    let aimock = Aimock::start(&fixtures("delegation.json"), &[]);
    let wrong = "sk-wrong-ffffffffffffffff";
    for format in FORMATS {
        let env = test_env(format, &aimock.address);
        let output = env.run_with_key(wrong, &[&RUN[..], &["a plain question"]].concat());
        assert_eq!(output.code, 1, "{format:?} {output:?}");
        let error = output.report()["error"].as_str().unwrap().to_owned();
        let named = ["401", "Invalid API key", "Check the provider's API key"]
            .iter()
            .all(|words| error.contains(words));
        assert!(named, "{error}");
        assert!(!format!("{output:?}").contains(wrong));
    }
    assert!(aimock.journal().is_empty(), "every request was rejected");
}

#[test]
fn server_errors_are_retried_and_reported() {
    let aimock = Aimock::start(&fixtures("delegation.json"), &[]);
    for (index, format) in FORMATS.iter().enumerate() {
        let env = test_env(format, &aimock.address);
        let output = env.run_with_key(Aimock::KEY, &[&RUN[..], &["a question that no fixture has"]].concat());
        assert_eq!(output.code, 1, "{format:?} {output:?}");
        let error = output.report()["error"].as_str().unwrap().to_owned();
        assert!(error.contains("503") && error.contains("no fixture matched"), "{error}");
        assert_eq!(aimock.journal().len(), 6 * (index + 1), "{format:?}");
    }
}
