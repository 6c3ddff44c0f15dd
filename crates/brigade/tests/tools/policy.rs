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
fn files_of_git_are_never_written() {
    let harness = ToolHarness::new();
    harness.put(".git/config", "c").put("sub/.git/hooks/a", "h").link("g", ".git");
    for path in [".git/index", ".GIT/refs/x", "sub/.git/objects/a", "x/.Git/y", ".git", "g/index", "g/new"] {
        let error = harness.edit("write_file", json!({ "path": path, "content": "x" })).unwrap_err();
        assert!(error.contains("never write below `.git`"), "{path}: {error}");
        assert!(harness.files.replace(path, b"x", None).is_err());
    }
    assert_eq!(harness.get(".git/config"), "c");
    assert!(!harness.path("x").exists());
    assert!(harness.edit("write_file", json!({ "path": ".gitignore", "content": "x" })).is_ok());
}

/// The approval of a call covers only the name in it, so a link to a protected file is not followed.
#[test]
fn protected_files_cannot_be_reached_under_another_name() {
    let harness = ToolHarness::new();
    harness
        .put(".git/config", "c")
        .put(".git/hooks/a", "h")
        .put(".brigade/config.toml", "b")
        .put("AGENTS.md", "a")
        .put("sub/.vscode/tasks.json", "t")
        .put(".env", "KEY=1");
    harness.link("g", ".git").link("b", ".brigade").link("notes", "AGENTS.md").link("code", "sub/.vscode");
    harness.link("vars", ".env");
    let edits = ["g/config", "g/hooks/new", "b/agents/x.md", "notes", "code/tasks.json", "vars"];
    for path in edits {
        let error = harness.edit("write_file", json!({ "path": path, "content": "x" })).unwrap_err();
        assert!(error.contains("resolves to") && error.contains("to request approval"), "{path}: {error}");
        assert!(harness.files.replace(path, b"x", None).is_err());
    }
    let error = harness.files.read("vars", CAP).unwrap_err();
    assert!(matches!(error, FileError::ProtectedRealPath { .. }), "{error:?}");
    assert!(!harness.error("read_file", json!({ "path": "vars" })).contains("KEY"));
    assert_eq!(harness.files.read("notes", CAP).unwrap(), b"a");
    // Renamed ancestors: the real path counts.
    std::fs::rename(harness.path("sub"), harness.path("moved")).unwrap();
    harness.link("again", "moved");
    let error = harness.files.replace("again/.vscode/tasks.json", b"x", None).unwrap_err();
    assert!(matches!(error, FileError::ProtectedRealPath { .. }), "{error:?}");
}

#[test]
fn searches_skip_secrets_and_name_them() {
    let harness = ToolHarness::new();
    harness.put(".env", "KEY=1").put("sub/id_rsa", "KEY=2").put("certs/a.pem", "KEY=3").put("code", "KEY=4");
    harness.put(".env.example", "KEY=");
    let found = harness.ok("grep", json!({ "pattern": "KEY=[0-9]" }));
    let note = "(not searched, because they can contain secrets: .env, certs/a.pem, sub/id_rsa)";
    assert_eq!(found, format!("code:1: KEY=4\n{note}\n"));
    assert_eq!(harness.ok("grep", json!({ "pattern": "KEY=4", "glob": "code" })), "code:1: KEY=4\n");
    // Their names are no secret.
    assert!(harness.ok("list_dir", json!({})).contains(".env\n"));
    assert!(harness.ok("glob", json!({ "pattern": "**/*" })).contains("sub/id_rsa\n"));
    let allow = vec!["read_file(./.env)".parse().unwrap()];
    let harness = ToolHarness::with(Permissions { mode: Mode::Plan, allow, ..Permissions::default() }, &[""]);
    harness.put(".env", "KEY=1").put("sub/.env", "KEY=2").link("vars", ".env");
    let note = "(not searched, because they can contain secrets: sub/.env)";
    assert_eq!(harness.ok("grep", json!({ "pattern": "KEY" })), format!(".env:1: KEY=1\n{note}\n"));
    assert_eq!(harness.files.read("vars", CAP).unwrap(), b"KEY=1");
}
