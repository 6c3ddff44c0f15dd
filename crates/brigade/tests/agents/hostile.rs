//! Files that are meant to do harm: none hangs, none panics, none hides another.

use std::fmt::Write;
use std::time::{Duration, Instant};

use brigade::agents::{discover, lint};
use proptest::prelude::*;

use crate::agents::shelf::Shelf;

const HEAD: &str = "name: x\ndescription: d\n";

#[test]
fn yaml_bombs_do_not_go_off() {
    let shelf = Shelf::new();
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        writeln!(laughs, "a{level}: &a{level} [{}]", vec![before; 9].join(", ")).unwrap();
    }
    let aliases = format!("a: &a x\nb: [{}]\n", vec!["*a"; 5_000].join(", "));
    let deep = format!("a: {}{}\n", "[".repeat(5_000), "]".repeat(5_000));
    let nested: String = (0..2_000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    let wide: String = (0..30_000).map(|number| format!("k{number}: 1\n")).collect();
    let merges: String = (0..500).map(|number| format!("m{number}: {{<<: *a}}\n")).collect();
    for bomb in [laughs, aliases, deep, nested, wide, format!("a: &a {{b: 1}}\n{merges}")] {
        let since = Instant::now();
        for text in
            [format!("---\n{HEAD}{bomb}---\nbody"), format!("---\n{bomb}{HEAD}tools: Read\n---\nbody")]
        {
            shelf.put("bomb.md", &text);
            let (reports, _) = lint(&shelf.path("bomb.md"));
            assert!(reports[0].outcome.is_err(), "{}", &text[..80]);
        }
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    }
}

#[test]
fn depth_and_length_are_bounded_in_every_format() {
    let shelf = Shelf::new();
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let many: String = (0..60_000).map(|number| format!("mcp__s__t{number},")).collect();
    let objects = "{\"a\":".repeat(50_000);
    let since = Instant::now();
    shelf.refused("deep.toml", format!("a = {open}{close}"));
    shelf.refused("tables.toml", format!("[{}a]", "a.".repeat(200_000)));
    shelf.refused("deep.json", format!("{{\"a\": {open}{close}}}"));
    shelf.refused("objects.json", objects);
    shelf.refused("deep.yaml", format!("a: {open}{close}"));
    shelf.refused("many.md", format!("---\n{HEAD}tools: {many}\n---\nbody"));
    shelf.refused("many.json", format!("{{\"prompt\": \"p\", \"tools\": \"{many}\"}}"));
    shelf.refused("parens.md", format!("---\n{HEAD}tools: {}\n---\nbody", "(".repeat(500_000)));
    shelf.loaded("dashes.md", format!("---\n{HEAD}apikey{}: x\n---\nbody", "_".repeat(500_000)));
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

#[test]
fn large_files_are_refused() {
    let shelf = Shelf::new();
    let refusal = shelf.refused("big.md", format!("---\n{HEAD}---\n{}", "x".repeat(2 << 20)));
    assert!(refusal.problem.cause.contains("larger than"));
    let almost = shelf.loaded("ok.md", format!("---\n{HEAD}---\n{}", "x".repeat(1_000_000)));
    assert_eq!(almost.agent.prompt.len(), 1_000_000);
}

#[test]
fn pipes_devices_and_loops_are_refused_at_once() {
    let shelf = Shelf::new();
    shelf.agent("good", "");
    let (flags, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, shelf.path("pipe.md"), flags, mode, 0).unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, shelf.path(name)).unwrap();
    link("/dev/zero", "zero.md");
    link("itself.md", "itself.md");
    link("nowhere.md", "dangling.md");
    link(".", "around");
    link("..", "good/up");
    std::fs::create_dir(shelf.path("folder.md")).unwrap();
    let found = shelf.discover();
    assert_eq!(found.definitions.len(), 1);
    let names: Vec<String> = found
        .problems
        .iter()
        .map(|problem| problem.file.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["dangling.md", "itself.md", "pipe.md", "zero.md"]);
}

#[test]
fn deep_folders_end() {
    let shelf = Shelf::new();
    shelf.put(&format!("{}x.md", "d/".repeat(30)), format!("---\n{HEAD}---\nbody"));
    let found = shelf.discover();
    assert!(found.definitions.is_empty());
    assert!(found.problems[0].cause.contains("deep"));
}

#[test]
fn text_that_is_none_is_refused_with_its_line() {
    let shelf = Shelf::new();
    let refusal = shelf.refused("x.md", b"---\nname: x\ndescription: \xff\n---\n");
    assert_eq!(refusal.problem.line, Some(3));
    assert!(refusal.problem.cause.contains("UTF-8"));
    let wide: Vec<u8> = "---\nname: x".encode_utf16().flat_map(u16::to_le_bytes).collect();
    shelf.refused("x.md", [b"\xff\xfe".as_slice(), &wide].concat());
    for empty in
        ["", "\n\n", "# Title\n\ntext", "---\n", "---\nname: x\n", "---\njust words\n---\n", "----\n"]
    {
        let refusal = shelf.refused("x.md", empty);
        assert!(!refusal.problem.cause.is_empty());
    }
    shelf.refused("x/AGENT.md", "---\n---\nbody");
    shelf.refused("x/AGENT.md", "---\nname: [unclosed\ndescription: d\n---\nbody");
    shelf.refused("x/AGENT.md", "---\nname: {a: b}\ndescription: d\n---\nbody");
    shelf.refused("x.json", "{");
    shelf.refused("x.yaml", "a: [");
}

#[test]
fn a_folder_that_is_no_id_is_refused() {
    let shelf = Shelf::new();
    for folder in ["ümlaut", "a:b", "- -", &"long".repeat(20)] {
        shelf.put(&format!("{folder}/AGENT.md"), format!("---\n{HEAD}---\nbody"));
    }
    let found = shelf.discover();
    assert_eq!((found.definitions.len(), found.problems.len()), (0, 4));
}

#[test]
fn one_broken_file_does_not_hide_the_others() {
    let shelf = Shelf::new();
    shelf.agent("a", "").agent("z", "").put("m.md", b"\xff").put("n/AGENT.md", "---\ntools: []\n---\n");
    let found = shelf.discover();
    assert_eq!((found.definitions.len(), found.problems.len()), (2, 2));
}

/// Pieces that files are made of, so that chance finds more than noise.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("---\n".to_owned()),
        Just("name: x\n".to_owned()),
        Just("tools: ".to_owned()),
        Just("permission:\n  bash: {\"*\": ".to_owned()),
        Just("description: |\n".to_owned()),
        Just("api_key: ".to_owned()),
        Just("&a [*a]\n".to_owned()),
        Just("\u{feff}\r\n".to_owned()),
        "[ -~\n]{0,12}",
        "\\PC{0,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let shelf = Shelf::new();
        for name in ["a.md", "b/AGENT.md", "c.toml", "d.yaml", "e.json", ".opencode/agent/f.md"] {
            shelf.put(name, &bytes);
            let _ = lint(&shelf.path(name));
        }
        let _ = discover(shelf.root());
    }

    #[test]
    fn arbitrary_pieces_never_panic_and_never_grant_by_accident(
        pieces in prop::collection::vec(piece(), 0..16),
        tools in "[ -~]{0,16}",
    ) {
        let shelf = Shelf::new();
        let text = format!("---\n{}", pieces.concat());
        for name in ["a.md", "c.toml", "d.yaml", "e.json"] {
            shelf.put(name, &text);
            let _ = lint(&shelf.path(name));
        }
        shelf.put("t.md", format!("---\nname: x\ntools: {tools}\ndescription: d\n---\nbody"));
        let (reports, _) = lint(&shelf.path("t.md"));
        if let Ok(definition) = &reports[0].outcome {
            let all = tools.contains('*') || tools.contains("all") || tools.contains("false");
            prop_assert!(definition.agent.tools.is_some() || all, "{tools:?}: {definition:?}");
        }
    }
}
