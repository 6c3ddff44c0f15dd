//! Hostile files: none hangs, panics or hides another file.

use std::fmt::Write;
use std::time::{Duration, Instant};

use brigade::agents::{discover, lint};
use proptest::prelude::*;

use crate::agents::agent_dir::AgentDir;

const HEAD: &str = "name: x\ndescription: d\n";

#[test]
fn yaml_bombs_are_refused_quickly() {
    let dir = AgentDir::new();
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
            dir.put("bomb.md", &text);
            let (reports, _) = lint(&dir.path("bomb.md"));
            assert!(reports[0].outcome.is_err(), "{}", &text[..80]);
        }
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    }
}

#[test]
fn depth_and_length_are_bounded_in_every_format() {
    let dir = AgentDir::new();
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let many: String = (0..60_000).map(|number| format!("mcp__s__t{number},")).collect();
    let objects = "{\"a\":".repeat(50_000);
    let since = Instant::now();
    dir.load_err("deep.toml", format!("a = {open}{close}"));
    dir.load_err("tables.toml", format!("[{}a]", "a.".repeat(200_000)));
    dir.load_err("deep.json", format!("{{\"a\": {open}{close}}}"));
    dir.load_err("objects.json", objects);
    dir.load_err("deep.yaml", format!("a: {open}{close}"));
    dir.load_err("many.md", format!("---\n{HEAD}tools: {many}\n---\nbody"));
    dir.load_err("many.json", format!("{{\"prompt\": \"p\", \"tools\": \"{many}\"}}"));
    dir.load_err("parens.md", format!("---\n{HEAD}tools: {}\n---\nbody", "(".repeat(500_000)));
    dir.load_ok("dashes.md", format!("---\n{HEAD}apikey{}: x\n---\nbody", "_".repeat(500_000)));
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

#[test]
fn large_files_are_refused() {
    let dir = AgentDir::new();
    let refusal = dir.load_err("big.md", format!("---\n{HEAD}---\n{}", "x".repeat(2 << 20)));
    assert!(refusal.problem.cause.contains("larger than"));
    let almost = dir.load_ok("ok.md", format!("---\n{HEAD}---\n{}", "x".repeat(1_000_000)));
    assert_eq!(almost.agent.prompt.len(), 1_000_000);
}

#[test]
fn pipes_devices_and_loops_are_refused_at_once() {
    let dir = AgentDir::new();
    dir.agent("good", "");
    let (flags, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, dir.path("pipe.md"), flags, mode, 0).unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, dir.path(name)).unwrap();
    link("/dev/zero", "zero.md");
    link("itself.md", "itself.md");
    link("nowhere.md", "dangling.md");
    link(".", "around");
    link("..", "good/up");
    std::fs::create_dir(dir.path("folder.md")).unwrap();
    let found = dir.discover();
    assert_eq!(found.definitions.len(), 1);
    let names: Vec<String> = found
        .problems
        .iter()
        .map(|problem| problem.file.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["dangling.md", "itself.md", "pipe.md", "zero.md"]);
}

#[test]
fn deep_folders_are_not_searched() {
    let dir = AgentDir::new();
    dir.put(&format!("{}x.md", "d/".repeat(30)), format!("---\n{HEAD}---\nbody"));
    let found = dir.discover();
    assert!(found.definitions.is_empty());
    assert!(found.problems[0].cause.contains("deep"));
}

#[test]
fn invalid_text_is_refused_with_its_line() {
    let dir = AgentDir::new();
    let refusal = dir.load_err("x.md", b"---\nname: x\ndescription: \xff\n---\n");
    assert_eq!(refusal.problem.line, Some(3));
    assert!(refusal.problem.cause.contains("UTF-8"));
    let wide: Vec<u8> = "---\nname: x".encode_utf16().flat_map(u16::to_le_bytes).collect();
    dir.load_err("x.md", [b"\xff\xfe".as_slice(), &wide].concat());
    for empty in
        ["", "\n\n", "# Title\n\ntext", "---\n", "---\nname: x\n", "---\njust words\n---\n", "----\n"]
    {
        let refusal = dir.load_err("x.md", empty);
        assert!(!refusal.problem.cause.is_empty());
    }
    dir.load_err("x/AGENT.md", "---\n---\nbody");
    dir.load_err("x/AGENT.md", "---\nname: [unclosed\ndescription: d\n---\nbody");
    dir.load_err("x/AGENT.md", "---\nname: {a: b}\ndescription: d\n---\nbody");
    dir.load_err("x.json", "{");
    dir.load_err("x.yaml", "a: [");
}

#[test]
fn folder_name_that_gives_no_id_is_refused() {
    let dir = AgentDir::new();
    for folder in ["ümlaut", "a:b", "- -", &"long".repeat(20)] {
        dir.put(&format!("{folder}/AGENT.md"), format!("---\n{HEAD}---\nbody"));
    }
    let found = dir.discover();
    assert_eq!((found.definitions.len(), found.problems.len()), (0, 4));
}

#[test]
fn broken_file_does_not_hide_the_others() {
    let dir = AgentDir::new();
    dir.agent("a", "").agent("z", "").put("m.md", b"\xff").put("n/AGENT.md", "---\ntools: []\n---\n");
    let found = dir.discover();
    assert_eq!((found.definitions.len(), found.problems.len()), (2, 2));
}

/// Fragments of real files, so that random combinations get past the parser.
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
        let dir = AgentDir::new();
        for name in ["a.md", "b/AGENT.md", "c.toml", "d.yaml", "e.json", ".opencode/agent/f.md"] {
            dir.put(name, &bytes);
            let _ = lint(&dir.path(name));
        }
        let _ = discover(dir.root());
    }

    #[test]
    fn arbitrary_pieces_never_panic_or_grant_all_tools(
        pieces in prop::collection::vec(piece(), 0..16),
        tools in "[ -~]{0,16}",
    ) {
        let dir = AgentDir::new();
        let text = format!("---\n{}", pieces.concat());
        for name in ["a.md", "c.toml", "d.yaml", "e.json"] {
            dir.put(name, &text);
            let _ = lint(&dir.path(name));
        }
        dir.put("t.md", format!("---\nname: x\ntools: {tools}\ndescription: d\n---\nbody"));
        let (reports, _) = lint(&dir.path("t.md"));
        if let Ok(definition) = &reports[0].outcome {
            let all = tools.contains('*') || tools.contains("all") || tools.contains("false");
            prop_assert!(definition.agent.tools.is_some() || all, "{tools:?}: {definition:?}");
        }
    }
}
