//! `grep` and `glob`.

use std::time::{Duration, Instant};

use serde_json::json;

use super::support::ToolHarness;

#[test]
fn grep_matches_are_sorted_by_path() {
    let harness = ToolHarness::new();
    harness
        .put("b.rs", "x\nfn b() {}\n")
        .put("a/z.rs", "fn z() {}\r\n")
        .put("a.rs", "fn a() {}")
        .put("n.txt", "fn");
    let all = "a.rs:1: fn a() {}\na/z.rs:1: fn z() {}\nb.rs:2: fn b() {}\n";
    assert_eq!(harness.ok("grep", json!({ "pattern": r"^fn \w\(" })), all);
    assert_eq!(harness.ok("grep", json!({ "pattern": "FN", "case_insensitive": true, "glob": "*.rs" })), all);
    assert_eq!(harness.ok("grep", json!({ "pattern": "fn", "path": "a" })), "a/z.rs:1: fn z() {}\n");
    assert_eq!(harness.ok("grep", json!({ "pattern": "fn", "path": "n.txt" })), "n.txt:1: fn\n");
    assert_eq!(harness.ok("grep", json!({ "pattern": "fn", "glob": "a/*" })), "a/z.rs:1: fn z() {}\n");
    assert_eq!(harness.ok("grep", json!({ "pattern": "nowhere" })), "(nothing found)\n");
}

#[test]
fn glob_is_relative_to_its_folder() {
    let harness = ToolHarness::new();
    harness.put("src/a.rs", "").put("src/deep/b.rs", "").put("c.rs", "").put(".github/d.yml", "");
    let glob = |pattern: &str, path: &str| harness.ok("glob", json!({ "pattern": pattern, "path": path }));
    assert_eq!(glob("*.rs", "."), "c.rs\n");
    assert_eq!(glob("*.rs", "src"), "src/a.rs\n");
    assert_eq!(glob("**/*.rs", "."), "c.rs\nsrc/a.rs\nsrc/deep/b.rs\n");
    assert_eq!(glob("./src/**/{a,b}.rs", "."), "src/a.rs\nsrc/deep/b.rs\n");
    assert_eq!(glob("**/*.yml", "."), ".github/d.yml\n");
    assert!(harness.error("glob", json!({ "pattern": "a[" })).contains("Invalid glob"));
    assert!(harness.error("glob", json!({ "pattern": "" })).contains("empty"));
    assert!(harness.error("glob", json!({ "pattern": "*", "path": ".." })).contains("outside the workspace"));
}

#[test]
fn gitignored_files_are_left_out() {
    let harness = ToolHarness::new();
    harness.put(".gitignore", "/target/\n*.log\n!keep.log\n").put("target/x", "hit").put("a.log", "hit");
    harness
        .put("keep.log", "hit")
        .put("sub/.gitignore", "own\n")
        .put("sub/own", "hit")
        .put("sub/target/y", "hit");
    harness.put(".git/objects/x", "hit");
    assert_eq!(harness.ok("grep", json!({ "pattern": "hit" })), "keep.log:1: hit\nsub/target/y:1: hit\n");
    assert_eq!(harness.ok("grep", json!({ "pattern": "hit", "path": "sub" })), "sub/target/y:1: hit\n");
    // A call that names an ignored folder explicitly searches it.
    assert_eq!(harness.ok("grep", json!({ "pattern": "hit", "path": "target" })), "target/x:1: hit\n");
}

/// The reader of the `ignore` crate would follow the link and read zeros until memory is full.
#[test]
fn gitignore_symlink_or_pipe_is_not_read() {
    let harness = ToolHarness::new();
    harness.put("a", "hit").link(".gitignore", "/dev/zero");
    std::fs::create_dir(harness.path("sub")).unwrap();
    let pipe = harness.path("sub/.gitignore");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, mode, 0).unwrap();
    harness.put("sub/b", "hit");
    let start = Instant::now();
    assert_eq!(harness.ok("grep", json!({ "pattern": "hit" })), "a:1: hit\nsub/b:1: hit\n");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn search_does_not_follow_symlinks() {
    let harness = ToolHarness::new();
    harness
        .put("sub/a", "outside or hit")
        .link("again", "sub")
        .link("sub/loop", "..")
        .link("out", harness.outside());
    assert_eq!(harness.ok("grep", json!({ "pattern": "outside" })), "sub/a:1: outside or hit\n");
    assert_eq!(harness.ok("glob", json!({ "pattern": "**" })), "again\nout\nsub/a\nsub/loop\n");
}

#[test]
fn grep_results_are_bounded() {
    let harness = ToolHarness::new();
    harness.put("many", "hit\n".repeat(500)).put("wide", format!("{}hit\n", "é".repeat(100_000)));
    let text = harness.ok("grep", json!({ "pattern": "hit" }));
    assert_eq!(text.lines().count(), 201);
    assert!(text.ends_with("many:200: hit\n(only the first 200 matches; narrow the search)\n"), "{text}");
    let text = harness.ok("grep", json!({ "pattern": "hit", "path": "wide" }));
    assert_eq!(text, format!("wide:1: {}…\n", "é".repeat(300)));
    harness.put("binary", b"hit\0hit\n");
    assert_eq!(harness.ok("grep", json!({ "pattern": "hit", "path": "binary" })), "(nothing found)\n");
}

#[test]
fn invalid_pattern_names_the_position() {
    let harness = ToolHarness::new();
    let error = harness.error("grep", json!({ "pattern": "a(b" }));
    assert!(error.contains("a(b") && error.contains("unclosed group"), "{error}");
    assert!(harness.error("grep", json!({ "pattern": "(a{500}){500}" })).contains("size limit"));
    assert!(harness.error("grep", json!({ "pattern": "x".repeat(10_000) })).contains("Shorten"));
    assert!(harness.error("grep", json!({ "pattern": "a\nb" })).contains("matched separately"));
}

#[test]
fn deep_folders_are_bounded() {
    let harness = ToolHarness::new();
    harness.put(&format!("{}end", "d/".repeat(300)), "hit");
    harness.put("a", "hit");
    let text = harness.ok("grep", json!({ "pattern": "hit" }));
    assert!(text.starts_with("a:1: hit\n(incomplete: too many or too deeply nested directories"), "{text}");
}
