//! Tool specs for the model, and the errors for invalid arguments.

use brigade::tool::Toolbox;
use brigade_core::event::Effect;
use brigade_core::permission::{ActionKind, Subject};
use serde_json::{Value, json};

use super::support::ToolHarness;

#[test]
fn every_tool_describes_its_arguments() {
    let expected = [
        ("edit_file", vec!["new", "old", "path", "replace_all"], vec!["path", "old", "new"], Effect::Edit),
        ("glob", vec!["path", "pattern"], vec!["pattern"], Effect::Pure),
        ("grep", vec!["case_insensitive", "glob", "path", "pattern"], vec!["pattern"], Effect::Pure),
        ("list_dir", vec!["path"], vec![], Effect::Pure),
        ("read_file", vec!["limit", "offset", "path"], vec!["path"], Effect::Pure),
        ("shell", vec!["command", "timeout_seconds"], vec!["command"], Effect::Opaque),
        ("write_file", vec!["content", "path"], vec!["path", "content"], Effect::Edit),
    ];
    let toolbox = Toolbox::standard();
    for (name, properties, required, effect) in expected {
        let tool = toolbox.get(name).unwrap();
        let schema = &tool.spec().schema;
        let found = schema["properties"].as_object().unwrap();
        let mut names: Vec<&str> = found.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, properties, "{name}");
        for (property, described) in found {
            assert!(
                described["description"].as_str().is_some_and(|text| !text.is_empty()),
                "{name}.{property}"
            );
        }
        let none = Vec::new();
        let needed: Vec<&str> =
            schema["required"].as_array().unwrap_or(&none).iter().filter_map(Value::as_str).collect();
        assert_eq!(needed, required, "{name}");
        let unneeded = ["$schema", "title", "additionalProperties"];
        assert!(unneeded.iter().all(|key| schema.get(key).is_none()), "{name}");
        for property in found.values() {
            assert!(property["type"].is_string() && property.get("format").is_none(), "{name}: {property}");
            assert_ne!(property.get("default"), Some(&Value::Null), "{name}: {property}");
        }
        let error = tool.check(&json!({ "unknown": 1 }), &mut |_| {}).unwrap_err();
        assert!(error.text.as_str().contains("unknown field `unknown`"), "{name}: {}", error.text);
        assert_eq!(schema["type"], json!("object"), "{name}");
        assert_eq!(tool.effect(), effect, "{name}");
        assert!(tool.spec().description.len() > 40, "{name}");
    }
}

#[test]
fn invalid_arguments_name_the_wrong_field() {
    let harness = ToolHarness::new();
    let error = harness.error("read_file", json!({ "path": "a", "ofset": 1 }));
    assert!(error.contains("read_file") && error.contains("unknown field `ofset`"), "{error}");
    assert!(harness.error("grep", json!({})).contains("missing field `pattern`"));
    assert!(harness.error("read_file", json!({ "path": "a", "offset": -1 })).contains("-1"));
    assert!(harness.plan("write_file", json!({ "path": 7 })).unwrap_err().contains("write_file"));
}

#[test]
fn null_optional_argument_counts_as_absent() {
    let harness = ToolHarness::new();
    harness.put("a.txt", "one\ntwo\n");
    assert!(harness.ok("list_dir", json!({ "path": null })).contains("a.txt"));
    assert!(
        harness.ok("read_file", json!({ "path": "a.txt", "offset": null, "limit": null })).contains("two")
    );
    let search = json!({ "pattern": "two", "path": null, "glob": null, "case_insensitive": null });
    assert!(harness.ok("grep", search).contains("a.txt:2"));
    assert!(harness.ok("glob", json!({ "pattern": "*.txt", "path": null })).contains("a.txt"));
    let edit = json!({ "path": "a.txt", "old": "two", "new": "2", "replace_all": null });
    assert!(harness.plan("edit_file", edit).is_ok());
    // A required argument cannot be null, and an unknown name is still reported.
    assert!(harness.error("grep", json!({ "pattern": null })).contains("null"));
    assert!(
        harness
            .error("read_file", json!({ "path": "a.txt", "ofset": null }))
            .contains("unknown field `ofset`")
    );
}

#[test]
fn check_reports_the_subject_of_a_call() {
    let toolbox = Toolbox::standard();
    let check = |tool: &str, arguments: Value| {
        let mut seen = None;
        let mut judge = |action: &brigade_core::permission::Action<'_>| {
            let subject = match action.subject {
                Subject::Path(text) | Subject::Command(text) | Subject::Host(text) => text.to_owned(),
                Subject::Nothing => "nothing".to_owned(),
            };
            seen = Some((action.kind, subject));
        };
        toolbox.get(tool).unwrap().check(&arguments, &mut judge).unwrap();
        seen.unwrap()
    };
    assert_eq!(check("read_file", json!({ "path": "a" })), (ActionKind::Pure, "a".into()));
    assert_eq!(check("list_dir", json!({})), (ActionKind::Pure, ".".into()));
    assert_eq!(check("list_dir", json!({ "path": null })), (ActionKind::Pure, ".".into()));
    assert_eq!(check("grep", json!({ "pattern": "x", "path": "b" })), (ActionKind::Pure, "b".into()));
    assert_eq!(check("glob", json!({ "pattern": "x" })), (ActionKind::Pure, ".".into()));
    assert_eq!(check("write_file", json!({ "path": "c", "content": "" })), (ActionKind::Edit, "c".into()));
    assert_eq!(
        check("edit_file", json!({ "path": "d", "old": "", "new": "" })),
        (ActionKind::Edit, "d".into())
    );
    assert_eq!(check("shell", json!({ "command": "ls" })), (ActionKind::Other, "ls".into()));
}
