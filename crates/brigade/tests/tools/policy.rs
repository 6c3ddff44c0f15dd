//! Rules and folders apply to the file itself, under any name.

use brigade::tool::FileError;
use brigade_core::permission::{Mode, Permissions};
use serde_json::json;

use super::support::ToolHarness;

const CAP: u64 = 1 << 20;

#[test]
fn denied_file_is_denied_through_symlinks() {
    let harness = ToolHarness::denying(&["read_file(**/.env*)"]);
    harness.put(".env", "KEY=1").put("sub/.env.local", "KEY=2").link("notes", ".env").link("dir", "sub");
    let absolute = harness.path(".env").display().to_string();
    for path in [".env", "notes", "dir/.env.local", "sub/../.env", "./.ENV", absolute.as_str()] {
        let error = harness.files.read(path, CAP).unwrap_err();
        assert!(matches!(error, FileError::Forbidden { .. }), "{path}: {error:?}");
        assert!(!harness.error("read_file", json!({ "path": path })).contains("KEY"));
        assert!(!harness.error("grep", json!({ "path": path, "pattern": "KEY" })).contains("KEY="));
        assert!(harness.edit("write_file", json!({ "path": path, "content": "x" })).is_err());
        assert!(harness.edit("edit_file", json!({ "path": path, "old": "KEY", "new": "x" })).is_err());
    }
    assert_eq!(harness.get(".env"), "KEY=1");
}

#[test]
fn denied_file_is_hidden_from_searches() {
    let harness = ToolHarness::denying(&["read_file(**/.env*)"]);
    harness.put(".env", "KEY=1").put("sub/.env.local", "KEY=2").put("sub/code", "KEY").link("notes", ".env");
    assert_eq!(harness.ok("grep", json!({ "pattern": "KEY" })), "sub/code:1: KEY\n");
    assert_eq!(harness.ok("glob", json!({ "pattern": "**/*" })), "notes\nsub/code\n");
    assert_eq!(harness.ok("list_dir", json!({})), "notes\nsub/\n");
    assert_eq!(harness.ok("list_dir", json!({ "path": "sub" })), "code\n");
}

#[test]
fn denied_edit_is_denied_through_symlinks() {
    let harness = ToolHarness::denying(&["write_file(locked/**)"]);
    harness.put("locked/a", "a").link("way", "locked").link("b", "locked/a");
    for path in ["locked/a", "way/a", "b", "way/new/file"] {
        let error = harness.edit("write_file", json!({ "path": path, "content": "x" })).unwrap_err();
        assert!(error.contains("permissions.deny"), "{path}: {error}");
    }
    assert_eq!(harness.get("locked/a"), "a");
    assert_eq!(harness.files.read("b", CAP).unwrap(), b"a");
}

/// The approval covers the name in the call. The file is readable under that name and under no other.
#[test]
fn approval_covers_only_the_name_in_the_call() {
    let harness = ToolHarness::asking(&["read_file(private/*)"]);
    harness.put("private/a", "a").link("b", "private/a");
    assert_eq!(harness.files.read("private/a", CAP).unwrap(), b"a");
    let error = harness.files.read("b", CAP).unwrap_err();
    assert!(matches!(error, FileError::RuleAsksForRealPath { .. }), "{error:?}");
    assert!(error.to_string().contains("`private/a`"), "{error}");
    let absolute = harness.path("private/a").display().to_string();
    assert!(matches!(harness.files.read(&absolute, CAP), Err(FileError::RuleAsksForRealPath { .. })));
    assert_eq!(harness.ok("grep", json!({ "pattern": "a" })), "(nothing found)\n");
}

#[test]
fn agent_reaches_only_its_own_folders() {
    let rules = Permissions { mode: Mode::Auto, ..Permissions::default() };
    let harness = ToolHarness::with(rules.clone(), &["src/web", "./docs/"]);
    harness.put("src/web/a", "x").put("src/webby", "x").put("src/b", "x").put("docs/c", "x").put("top", "x");
    harness.link("src/web/out", "../b").link("in", "src/web/a");
    for path in ["src/b", "top", "src/webby", "src/web/../b", "src/web/out", "in"] {
        let error = harness.files.read(path, CAP).unwrap_err();
        assert!(matches!(error, FileError::FolderNotAllowed { .. }), "{path}: {error:?}");
        assert!(harness.files.replace(path, b"y", None).is_err());
    }
    assert!(harness.files.read("src/web/a", CAP).is_ok() && harness.files.read("docs/c", CAP).is_ok());
    assert_eq!(harness.ok("glob", json!({ "pattern": "**/*" })), "docs/c\nsrc/web/a\nsrc/web/out\n");
    assert_eq!(harness.ok("list_dir", json!({})), "docs/\nsrc/\n");
    assert_eq!(harness.ok("list_dir", json!({ "path": "src" })), "web/\n");

    let nothing = ToolHarness::with(rules, &[]);
    nothing.put("a", "x");
    assert!(nothing.files.read("a", CAP).is_err());
    assert!(nothing.error("list_dir", json!({})).contains("none"));
}

#[test]
fn protected_folders_are_never_written() {
    let harness = ToolHarness::new();
    harness
        .put(".git/config", "c")
        .put("sub/.git/hooks/a", "h")
        .link("g", ".git")
        .put(".brigade/config.toml", "");
    harness.link("b", ".brigade");
    let paths = [".git/hooks/pre-commit", ".GIT/config", "sub/.git/hooks/a", "g/config", "x/.Git/y", ".git"];
    for path in paths.into_iter().chain([".brigade/config.toml", "b/agents/x.md", "g/new"]) {
        let error = harness.edit("write_file", json!({ "path": path, "content": "x" })).unwrap_err();
        assert!(error.contains("never write."), "{path}: {error}");
        assert!(harness.files.replace(path, b"x", None).is_err());
    }
    assert_eq!(harness.get(".git/config"), "c");
    assert!(!harness.path("x").exists());
    assert!(harness.edit("write_file", json!({ "path": ".gitignore", "content": "x" })).is_ok());
}
