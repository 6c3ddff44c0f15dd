//! `read_file` and `list_dir`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use brigade_core::{Extent, Hash, SeenFile};
use serde_json::json;

use super::support::ToolHarness;

#[test]
fn read_file_returns_the_content_unchanged() {
    let harness = ToolHarness::new();
    harness.put("a", "one\ntwo\r\nthree").put("empty", "");
    assert_eq!(harness.ok("read_file", json!({ "path": "a" })), "one\ntwo\r\nthree");
    assert_eq!(harness.ok("read_file", json!({ "path": "empty" })), "(the file is empty)");
    assert!(harness.error("read_file", json!({ "path": "b" })).contains("`b` does not exist"));
}

#[test]
fn partial_read_says_the_next_offset() {
    let harness = ToolHarness::new();
    harness.put("a", "1\n2\n3\n4\n5");
    let part =
        |offset, limit| harness.ok("read_file", json!({ "path": "a", "offset": offset, "limit": limit }));
    assert_eq!(part(1, 2), "1\n2\n(3 more lines; continue with offset 3)\n");
    assert_eq!(part(0, 4), "1\n2\n3\n4\n(1 more line; continue with offset 5)\n");
    assert_eq!(part(5, 9), "5");
    assert!(
        harness
            .error("read_file", json!({ "path": "a", "offset": 6 }))
            .contains("ends at line 5, before offset 6")
    );
    assert!(harness.error("read_file", json!({ "path": "a", "limit": 0 })).contains("`limit` is 0"));
}

#[test]
fn long_file_is_read_in_parts_without_loss() {
    let harness = ToolHarness::new();
    let lines: Vec<String> =
        (0..20_000).map(|n| format!("line {n} of a file that is long enough é\n")).collect();
    harness.put("long", lines.concat());
    let (mut text, mut offset) = (String::new(), 1);
    loop {
        let part = harness.ok("read_file", json!({ "path": "long", "offset": offset }));
        assert!(part.len() < 300_000);
        match part.rsplit_once("\n(") {
            Some((content, note)) => {
                text.push_str(content);
                text.push('\n');
                offset = note.trim_end().trim_end_matches(')').rsplit_once(' ').unwrap().1.parse().unwrap();
            }
            None => {
                text.push_str(&part);
                break;
            }
        }
    }
    assert!(text == lines.concat());
}

#[test]
fn overlong_line_is_cut_at_a_char_boundary() {
    let harness = ToolHarness::new();
    harness.put("line", format!("x{}\nnext\n", "€".repeat(200_000)));
    let text = harness.ok("read_file", json!({ "path": "line" }));
    assert!(text.len() < 270_000 && !text.contains('\u{fffd}'));
    assert!(
        text.ends_with("and was truncated)\n(1 more line; continue with offset 2)\n"),
        "{}",
        &text[text.len() - 200..]
    );
    assert_eq!(harness.ok("read_file", json!({ "path": "line", "offset": 2 })), "next\n");
}

#[test]
fn binary_or_non_utf8_file_is_reported() {
    let harness = ToolHarness::new();
    harness.put("binary", b"\x7fELF\0\0").put("latin", b"caf\xe9\n");
    assert!(harness.error("read_file", json!({ "path": "binary" })).contains("is a binary file"));
    let text = harness.ok("read_file", json!({ "path": "latin" }));
    assert!(text.starts_with("caf\u{fffd}\n(some bytes are not UTF-8"), "{text}");
}

#[test]
fn list_dir_is_sorted() {
    let harness = ToolHarness::new();
    harness.put("b", "").put("a/x", "").put("C", "").put(".hidden", "").link("link", "a");
    assert_eq!(harness.ok("list_dir", json!({})), ".hidden\nC\na/\nb\nlink\n");
    assert_eq!(harness.ok("list_dir", json!({ "path": "link" })), "x\n");
    assert!(harness.error("list_dir", json!({ "path": "b" })).contains("not a directory"));
    std::fs::create_dir(harness.path("empty")).unwrap();
    assert_eq!(harness.ok("list_dir", json!({ "path": "empty" })), "(the directory is empty)");
}

#[test]
fn long_listing_is_truncated_with_a_note() {
    let harness = ToolHarness::new();
    for n in 0..1_005 {
        harness.put(&format!("f{n:04}"), "");
    }
    let text = harness.ok("list_dir", json!({}));
    assert_eq!(text.lines().count(), 1_001);
    assert!(text.ends_with("f0999\n(5 more entries; use `glob` to narrow the list)\n"), "{text}");
    let text = harness.ok("glob", json!({ "pattern": "*" }));
    assert!(text.ends_with("f0999\n(only the first 1000 files; narrow the pattern)\n"), "{text}");
}

#[test]
fn file_names_are_escaped_and_may_be_non_utf8() {
    let harness = ToolHarness::new();
    std::fs::write(harness.path("a\nb:1: faked"), "found").unwrap();
    std::fs::write(harness.path("").join(OsStr::from_bytes(b"bad\xff")), "found").unwrap();
    std::os::unix::fs::symlink(OsStr::from_bytes(b"bad\xff"), harness.path("link")).unwrap();
    let names = "a\\nb:1: faked\nbad\u{fffd}\nlink\n";
    assert_eq!(harness.ok("list_dir", json!({})), names);
    assert_eq!(harness.ok("glob", json!({ "pattern": "*" })), names);
    let found = harness.ok("grep", json!({ "pattern": "found" }));
    assert_eq!(found, "a\\nb:1: faked:1: found\nbad\u{fffd}:1: found\n");
    assert_eq!(harness.ok("read_file", json!({ "path": "link" })), "found");
    let error = harness.edit("write_file", json!({ "path": "link", "content": "x" })).unwrap_err();
    assert!(error.contains("not valid UTF-8"), "{error}");
}

#[test]
fn read_file_records_the_real_path_and_hash() {
    let harness = ToolHarness::new();
    let content = "one\ntwo\nthree\n";
    harness.put("d/a", content).link("l", "d/a");
    let whole = harness.path("d/a").display().to_string();
    let seen = |arguments: serde_json::Value| {
        let context = harness.context();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let toolbox = brigade::tool::Toolbox::standard();
        let tool = if arguments.get("pattern").is_some() { "grep" } else { "read_file" };
        runtime.block_on(toolbox.get(tool).unwrap().run(arguments, &context));
        context.seen.take()
    };
    let file = |extent| Some(SeenFile { path: "d/a".to_owned(), hash: Hash::of(content.as_bytes()), extent });
    for path in ["d/a", "./d//a", "d/../d/a", "l", &whole] {
        assert_eq!(seen(json!({ "path": path })), file(Extent::Whole), "{path}");
    }
    for part in [json!({ "path": "d/a", "offset": 2 }), json!({ "path": "d/a", "limit": 2 })] {
        assert_eq!(seen(part.clone()), file(Extent::Part), "{part}");
    }
    assert_eq!(seen(json!({ "path": "d/a", "limit": 3 })), file(Extent::Whole));
    assert_eq!(seen(json!({ "path": "d/a", "offset": 4 })), None);
    assert_eq!(seen(json!({ "path": "none" })), None);
    assert_eq!(seen(json!({ "pattern": "one" })), None);
    // A file that one call cannot show in full counts as partly seen; one that cannot be changed is not recorded.
    harness
        .put("long", "x".repeat(300 << 10))
        .put("many", "line\n".repeat(100_000))
        .put("huge", "line\n".repeat(4 << 20));
    assert_eq!(seen(json!({ "path": "long" })).unwrap().extent, Extent::Part);
    assert_eq!(seen(json!({ "path": "many" })).unwrap().extent, Extent::Part);
    assert_eq!(seen(json!({ "path": "huge" })), None);
    harness.put("empty", "").put("binary", "\0");
    assert_eq!(seen(json!({ "path": "empty" })).unwrap().extent, Extent::Whole);
    assert_eq!(seen(json!({ "path": "binary" })), None);
}
