//! `write_file`, `edit_file` and the driver's handling of their plans.

use std::os::unix::fs::PermissionsExt;

use brigade::tool::FileError;
use brigade_core::Hash;
use serde_json::json;

use super::support::ToolHarness;

#[test]
fn write_file_creates_missing_folders() {
    let harness = ToolHarness::new();
    let report = harness.edit("write_file", json!({ "path": "a/b/c.txt", "content": "hé" })).unwrap();
    assert_eq!(report, "Created a/b/c.txt with 3 bytes");
    assert_eq!(harness.get("a/b/c.txt"), "hé");
    let report = harness.edit("write_file", json!({ "path": "./a/b/../b/c.txt", "content": "" })).unwrap();
    assert_eq!(report, "Wrote 0 bytes to a/b/c.txt");
    assert_eq!(harness.get("a/b/c.txt"), "");
    for path in [".", "a", "a/", "new/", "a/b/c.txt/d", "none/../x", "a/b/c.txt/"] {
        assert!(harness.edit("write_file", json!({ "path": path, "content": "x" })).is_err(), "{path}");
    }
    assert!(!harness.path("new").exists() && !harness.path("none").exists());
}

#[test]
fn plan_writes_nothing_and_records_the_old_hash() {
    let harness = ToolHarness::new();
    let plan = harness.plan("write_file", json!({ "path": "x/a", "content": "new" })).unwrap();
    assert_eq!((plan.path.as_str(), plan.before, plan.content.as_slice()), ("x/a", None, &b"new"[..]));
    assert!(!harness.path("x").exists());
    harness.put("a", "old").link("l", "a");
    let plan = harness.plan("write_file", json!({ "path": "l", "content": "new" })).unwrap();
    assert_eq!((plan.path.as_str(), plan.before), ("a", Some(Hash::of(b"old"))));
}

#[test]
fn plan_counts_added_and_removed_lines() {
    let harness = ToolHarness::new();
    let lines = |tool: &str, arguments: serde_json::Value| {
        let lines = harness.plan(tool, arguments).unwrap().lines.unwrap();
        (lines.added, lines.removed)
    };
    assert_eq!(lines("write_file", json!({ "path": "new", "content": "a\nb\nno end" })), (3, 0));
    assert_eq!(lines("write_file", json!({ "path": "empty", "content": "" })), (0, 0));
    harness.put("a", "one\ntwo\nthree\n").put("binary", b"\xff\xfe\nx\n");
    assert_eq!(lines("write_file", json!({ "path": "a", "content": "one\n2\nthree\nfour\n" })), (2, 1));
    assert_eq!(lines("edit_file", json!({ "path": "a", "old": "two\n", "new": "" })), (0, 1));
    assert_eq!(lines("edit_file", json!({ "path": "binary", "old": "x", "new": "y" })), (1, 1));
}

#[test]
fn replace_keeps_the_mode_and_leaves_no_temp_file() {
    let harness = ToolHarness::new();
    harness.put("run.sh", "old").link("link", "run.sh");
    std::fs::set_permissions(harness.path("run.sh"), std::fs::Permissions::from_mode(0o750)).unwrap();
    harness.files.replace("link", b"new", Some(Hash::of(b"old"))).unwrap();
    assert_eq!(harness.get("run.sh"), "new");
    assert!(harness.path("link").is_symlink());
    let mode = std::fs::metadata(harness.path("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert_eq!(harness.ok("list_dir", json!({})), "link\nrun.sh\n");
    assert_eq!(harness.files.hash("run.sh").unwrap(), Some(Hash::of(b"new")));
    assert_eq!(harness.files.hash("none").unwrap(), None);
}

#[test]
fn replace_refuses_a_file_changed_meanwhile() {
    let harness = ToolHarness::new();
    harness.put("a", "theirs");
    let cases = [
        ("a", Some(Hash::of(b"mine"))),
        ("a", None),
        ("none", Some(Hash::of(b""))),
        ("x/y", Some(Hash::of(b""))),
    ];
    for (path, expected) in cases {
        let error = harness.files.replace(path, b"new", expected).unwrap_err();
        assert!(matches!(error, FileError::Changed { .. }), "{path}: {error:?}");
    }
    assert_eq!(harness.get("a"), "theirs");
    assert_eq!(harness.ok("list_dir", json!({})), "a\n");
}

#[test]
fn replace_refuses_a_dangling_symlink() {
    let harness = ToolHarness::new();
    harness.link("nothing", "missing").link("folder", "missing-folder").link("away", "../new");
    for path in ["nothing", "folder/a", "away"] {
        assert!(harness.files.replace(path, b"x", None).is_err(), "{path}");
    }
    assert!(!harness.path("missing").exists() && !harness.outside().join("new").exists());
    assert!(harness.path("nothing").is_symlink());
}

#[test]
fn edit_file_needs_exactly_one_match() {
    let harness = ToolHarness::new();
    harness.put("a", "one\ntwo\none\n");
    let edit = |old: &str, new: &str, all: bool| {
        harness.edit("edit_file", json!({ "path": "a", "old": old, "new": new, "replace_all": all }))
    };
    assert!(edit("one", "1", false).unwrap_err().contains("occurs 2 times in `a`"));
    assert!(edit("", "1", false).unwrap_err().contains("`old` is empty"));
    assert!(edit("two", "two", false).unwrap_err().contains("identical"));
    assert!(edit("gone", "1", false).unwrap_err().contains("does not occur in `a`"));
    assert_eq!(harness.get("a"), "one\ntwo\none\n");
    let report = edit("two", "2", false).unwrap();
    assert_eq!(report, "Changed a\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n one\n");
    assert!(edit("one", "1", true).unwrap().starts_with("Changed a in 2 places\n"));
    assert_eq!(harness.get("a"), "1\n2\n1\n");
    let error = harness.edit("edit_file", json!({ "path": "b", "old": "x", "new": "y" })).unwrap_err();
    assert!(error.contains("Use `write_file`"), "{error}");
}

#[test]
fn edit_without_match_suggests_the_closest_line() {
    let harness = ToolHarness::new();
    harness.put("a.rs", "fn main() {\n    let answer = 42;\n}\n").put("dos", "one\r\ntwo\r\n");
    let miss = |path: &str, old: &str| {
        harness.edit("edit_file", json!({ "path": path, "old": old, "new": "" })).unwrap_err()
    };
    assert!(miss("a.rs", "\tlet answer = 42;").contains("line is 2: `    let answer = 42;`"));
    assert!(miss("a.rs", "let answr = 43;").contains("line is 2: `    let answer = 42;`"));
    assert!(miss("a.rs", "zzzzzzzzzz").contains("copy the text exactly"));
    assert!(miss("a.rs", "\n\n\n").contains("copy the text exactly"));
    assert!(miss("dos", "one\ntwo").contains("CRLF"));
}

#[test]
fn edit_keeps_invalid_utf8() {
    let harness = ToolHarness::new();
    harness.put("a", b"\xff\xe2\x82 caf\xc3\xa9 \xe2\x82\xac\xff\xe2\x82\xac!");
    harness.edit("edit_file", json!({ "path": "a", "old": "é €", "new": "e E" })).unwrap();
    harness.edit("edit_file", json!({ "path": "a", "old": "€!", "new": "." })).unwrap();
    assert_eq!(std::fs::read(harness.path("a")).unwrap(), b"\xff\xe2\x82 cafe E\xff.");
}

#[test]
fn edit_is_bounded_in_size_and_time() {
    let harness = ToolHarness::new();
    harness.put("a", "x".repeat(100_000)).put("b", "line\n".repeat(3_000));
    let error = harness
        .edit("edit_file", json!({ "path": "a", "old": "x", "new": "y".repeat(1_000), "replace_all": true }));
    assert!(error.unwrap_err().contains("100000000 bytes"));
    let content = "x".repeat((16 << 20) + 1);
    assert!(harness.edit("write_file", json!({ "path": "c", "content": content })).is_err());
    let report =
        harness.edit("edit_file", json!({ "path": "b", "old": "line", "new": "Zeile", "replace_all": true }));
    let report = report.unwrap();
    assert!(report.len() < 5_000 && report.ends_with("(the rest of the diff is omitted)\n"), "{report}");
    // A search that backtracks after each near match would take hours here.
    harness.put("slow", "a".repeat(4_000_000));
    let old = format!("{}b", "a".repeat(1_000_000));
    assert!(harness.edit("edit_file", json!({ "path": "slow", "old": old, "new": "" })).is_err());
}
