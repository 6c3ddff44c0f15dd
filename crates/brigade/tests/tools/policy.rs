//! Rules and folders bind the file itself, under whatever name.

use brigade::tool::FileError;
use brigade_core::permission::{Mode, Permissions};
use serde_json::json;

use super::world::World;

const CAP: u64 = 1 << 20;

#[test]
fn a_denied_file_is_denied_through_links() {
    let world = World::denying(&["read_file(**/.env*)"]);
    world.put(".env", "KEY=1").put("sub/.env.local", "KEY=2").link("notes", ".env").link("dir", "sub");
    let absolute = world.path(".env").display().to_string();
    for path in [".env", "notes", "dir/.env.local", "sub/../.env", "./.ENV", absolute.as_str()] {
        let error = world.files.read(path, CAP).unwrap_err();
        assert!(matches!(error, FileError::Forbidden { .. }), "{path}: {error:?}");
        assert!(!world.error("read_file", json!({ "path": path })).contains("KEY"));
        assert!(!world.error("grep", json!({ "path": path, "pattern": "KEY" })).contains("KEY="));
        assert!(world.edit("write_file", json!({ "path": path, "content": "x" })).is_err());
        assert!(world.edit("edit_file", json!({ "path": path, "old": "KEY", "new": "x" })).is_err());
    }
    assert_eq!(world.get(".env"), "KEY=1");
}

#[test]
fn a_denied_file_is_not_seen_by_searches() {
    let world = World::denying(&["read_file(**/.env*)"]);
    world.put(".env", "KEY=1").put("sub/.env.local", "KEY=2").put("sub/code", "KEY").link("notes", ".env");
    assert_eq!(world.ok("grep", json!({ "pattern": "KEY" })), "sub/code:1: KEY\n");
    assert_eq!(world.ok("glob", json!({ "pattern": "**/*" })), "notes\nsub/code\n");
    assert_eq!(world.ok("list_dir", json!({})), "notes\nsub/\n");
    assert_eq!(world.ok("list_dir", json!({ "path": "sub" })), "code\n");
}

#[test]
fn a_denied_edit_is_denied_through_links() {
    let world = World::denying(&["write_file(locked/**)"]);
    world.put("locked/a", "a").link("way", "locked").link("b", "locked/a");
    for path in ["locked/a", "way/a", "b", "way/new/file"] {
        let error = world.edit("write_file", json!({ "path": path, "content": "x" })).unwrap_err();
        assert!(error.contains("permissions.deny"), "{path}: {error}");
    }
    assert_eq!(world.get("locked/a"), "a");
    assert_eq!(world.files.read("b", CAP).unwrap(), b"a");
}

/// The gate has asked about the name in the call. Under that name it is read; another name was never asked about.
#[test]
fn a_question_is_about_a_name() {
    let world = World::asking(&["read_file(private/*)"]);
    world.put("private/a", "a").link("b", "private/a");
    assert_eq!(world.files.read("private/a", CAP).unwrap(), b"a");
    let error = world.files.read("b", CAP).unwrap_err();
    assert!(matches!(error, FileError::Renamed { .. }), "{error:?}");
    assert!(error.to_string().contains("`private/a`"), "{error}");
    let absolute = world.path("private/a").display().to_string();
    assert!(matches!(world.files.read(&absolute, CAP), Err(FileError::Renamed { .. })));
    assert_eq!(world.ok("grep", json!({ "pattern": "a" })), "(nothing found)\n");
}

#[test]
fn only_the_folders_of_the_agent_are_touched() {
    let rules = Permissions { mode: Mode::Auto, ..Permissions::default() };
    let world = World::with(rules.clone(), &["src/web", "./docs/"]);
    world.put("src/web/a", "x").put("src/webby", "x").put("src/b", "x").put("docs/c", "x").put("top", "x");
    world.link("src/web/out", "../b").link("in", "src/web/a");
    for path in ["src/b", "top", "src/webby", "src/web/../b", "src/web/out", "in"] {
        let error = world.files.read(path, CAP).unwrap_err();
        assert!(matches!(error, FileError::OtherFolder { .. }), "{path}: {error:?}");
        assert!(world.files.replace(path, b"y", None).is_err());
    }
    assert!(world.files.read("src/web/a", CAP).is_ok() && world.files.read("docs/c", CAP).is_ok());
    assert_eq!(world.ok("glob", json!({ "pattern": "**/*" })), "docs/c\nsrc/web/a\nsrc/web/out\n");
    assert_eq!(world.ok("list_dir", json!({})), "docs/\nsrc/\n");
    assert_eq!(world.ok("list_dir", json!({ "path": "src" })), "web/\n");

    let nothing = World::with(rules, &[]);
    nothing.put("a", "x");
    assert!(nothing.files.read("a", CAP).is_err());
    assert!(nothing.error("list_dir", json!({})).contains("none"));
}

#[test]
fn folders_of_other_programs_are_never_written() {
    let world = World::new();
    world
        .put(".git/config", "c")
        .put("sub/.git/hooks/a", "h")
        .link("g", ".git")
        .put(".brigade/config.toml", "");
    world.link("b", ".brigade");
    let paths = [".git/hooks/pre-commit", ".GIT/config", "sub/.git/hooks/a", "g/config", "x/.Git/y", ".git"];
    for path in paths.into_iter().chain([".brigade/config.toml", "b/agents/x.md", "g/new"]) {
        let error = world.edit("write_file", json!({ "path": path, "content": "x" })).unwrap_err();
        assert!(error.contains("never write there"), "{path}: {error}");
        assert!(world.files.replace(path, b"x", None).is_err());
    }
    assert_eq!(world.get(".git/config"), "c");
    assert!(!world.path("x").exists());
    assert!(world.edit("write_file", json!({ "path": ".gitignore", "content": "x" })).is_ok());
}
