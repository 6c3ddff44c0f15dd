//! `brigade agents`: list, show, lint, new.

use brigade_testing::Script;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home, text};

/// Writes a file below the folder of the test.
fn put(home: &Home, name: &str, content: &str) {
    let file = home.home().parent().unwrap().join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, content).unwrap();
}

fn agent(home: &Home, id: &str, lines: &str) {
    let text = format!("---\nname: {id}\ndescription: about {id}\n{lines}\n---\nYou are {id}.\n");
    put(home, &format!("home/agents/{id}/AGENT.md"), &text);
}

#[test]
fn c50_list_shows_valid_agents_and_warns_about_others() {
    let home = Home::new();
    home.brigade(&["agents", "list"]).exits_with(0).stderr_contains("brigade agents new");
    agent(&home, "writer", "");
    agent(&home, "coder", "tools: [read_file, Bash]");
    put(&home, "home/agents/broken/AGENT.md", "---\nname: broken\n---\nNo description.\n");
    let done = home.brigade(&["agents", "list"]);
    done.exits_with(0)
        .stdout_contains("coder")
        .stdout_contains("about writer")
        .stderr_contains("broken/AGENT.md")
        .stderr_contains("`description` is missing");
    assert!(!done.stdout.contains("broken"));
    assert!(done.stdout.find("coder") < done.stdout.find("writer"));
    let list = home.brigade(&["agents", "list", "--output-format", "json"]).exits_with(0).json();
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!((&list[0]["id"], &list[0]["format"]), (&"coder".into(), &"brigade".into()));
    assert_eq!(list[0]["tools"], serde_json::json!(["read_file", "shell"]));
    assert!(list[0]["file"].as_str().unwrap().ends_with("agents/coder/AGENT.md"));
    let model = home.script(Script::new().reply("hello"));
    home.brigade(&["run", "--model", &model, "x"])
        .exits_with(0)
        .stderr_contains("warning: ")
        .stderr_contains("broken/AGENT.md");
}

#[test]
fn agents_are_discovered_in_every_user_folder() {
    let home = Home::new();
    let mut console = Console::new(&home);
    agent(&home, "same", "");
    put(&home, "person/.claude/agents/x.md", "---\nname: same\ndescription: of claude\n---\nbody");
    put(&home, "person/.gemini/agents/g.md", "---\nname: g\ndescription: of gemini\n---\nbody");
    put(&home, "person/.codex/agents/c.toml", "name='c'\ndescription='d'\ndeveloper_instructions='i'");
    put(&home, "more/m.md", "---\nname: m\ndescription: more\n---\nbody");
    put(&home, "work/.claude/agents/p.md", "---\nname: p\ndescription: of the project\n---\nbody");
    let person = home.home().parent().unwrap().join("person");
    let list = |arguments: &[&str]| {
        let mut command = home.command(&[&["agents", "list"], arguments].concat());
        CommandResult::run(command.env("HOME", &person))
    };
    let done = list(&["--set", "agents.paths=[\"../more\"]"]);
    let ids: Vec<&str> = done.stdout.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(ids, ["c", "g", "m", "same"], "a project that nobody trusts has no agents");
    console.add(done.exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn show_prints_the_effective_definition() {
    let home = Home::new();
    let mut console = Console::new(&home);
    agent(
        &home,
        "coder",
        "api_key: sk-secret-key\ntools: Read, Teleport\nmodel: local/big\nmax_turns: 4\nnovel: key",
    );
    let done = home.brigade(&["agents", "show", "coder"]);
    console.add(done.exits_with(0));
    let shown = home.brigade(&["agents", "show", "coder", "--output-format", "json"]);
    let json = shown.exits_with(0).json();
    assert_eq!((&json["agent"]["max_turns"], &json["has_api_key"]), (&4.into(), &true.into()));
    assert!(!done.stdout.contains("sk-secret") && !shown.stdout.contains("sk-secret"));
    console.add(home.brigade(&["agents", "show", "nobody"]).exits_with(2));
    home.brigade(&["agents", "show", "../coder"]).exits_with(2);
    agent(&home, "bad", "tools: []");
    console.add(home.brigade(&["agents", "show", "bad"]).exits_with(1));
    insta::assert_snapshot!(console.text());
}

#[test]
fn lint_classifies_every_key() {
    let home = Home::new();
    let mut console = Console::new(&home);
    put(
        &home,
        "work/a.md",
        "---\nname: a\ndescription: d\ntools: Read, Odd\ncolor: red\nmodel: sonnet\n---\nbody\n",
    );
    put(&home, "work/bad.md", "---\nname: bad\ndescription: d\ntools: []\nmaxTurns: 3\n---\nbody\n");
    put(&home, "work/none.md", "# Title\n");
    let done = home.brigade(&["agents", "lint", "a.md"]);
    console.add(done.exits_with(0));
    let done = home.brigade(&["agents", "lint", "."]);
    console.add(done.exits_with(1));
    let json = home.brigade(&["agents", "lint", ".", "--output-format", "json"]).exits_with(1).json();
    assert_eq!((json["refused"].as_u64(), json["files"].as_array().unwrap().len()), (Some(2), 3));
    assert_eq!((&json["files"][0]["status"], &json["files"][0]["id"]), (&"used".into(), &"a".into()));
    assert_eq!((&json["files"][1]["status"], &json["files"][1]["line"]), (&"refused".into(), &4.into()));
    console.add(home.brigade(&["agents", "lint", "nowhere.md"]).exits_with(2));
    home.brigade(&["agents", "lint", "--nonsense"]).exits_with(2);
    console.add(home.brigade(&["agents", "lint"]).exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn lint_escapes_hostile_text() {
    let home = Home::new();
    put(
        &home,
        "work/h.md",
        "---\nname: h\n\"\\u001b[2J\\u202e\": 1\ndescription: \"\\u001b]0;x\\u0007\"\ntools: Read, \u{202e}x\n---\n\u{1b}[2J\n",
    );
    agent(&home, "h", "novel\u{202e}: 1");
    for arguments in [["lint", "h.md"], ["show", "h"], ["lint", "../home/agents"]] {
        for format in ["text", "json"] {
            let done =
                home.brigade(&[&["agents"], arguments.as_slice(), &["--output-format", format]].concat());
            let hostile = ['\u{1b}', '\u{202e}', '\u{7}'];
            assert!(
                !done.stdout.contains(hostile) && !done.stderr.contains(hostile),
                "{arguments:?} {:?}",
                done.stdout
            );
        }
    }
}

#[test]
fn new_writes_a_file_that_loads_and_never_overwrites() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = home.brigade(&["agents", "new", "scribe"]);
    let file = home.home().join("agents/scribe/AGENT.md");
    assert_eq!(done.exits_with(0).stdout.trim(), file.to_str().unwrap());
    home.brigade(&["agents", "list"]).exits_with(0).stdout_contains("scribe");
    console.add(home.brigade(&["agents", "lint"]).exits_with(0));
    let uncommented = text(&file).replace("# model: provider/model", "model: p/m").replace("\n# ", "\n");
    let without_prose = uncommented
        .replace("Allowed tools; without this key, those that its parent passes on. List the names: brigade tools list\n", "");
    std::fs::write(&file, without_prose).unwrap();
    console.add(home.brigade(&["agents", "lint"]).exits_with(0));
    let before = text(&file);
    console.add(home.brigade(&["agents", "new", "scribe"]).exits_with(2));
    assert_eq!(text(&file), before);
    let json = home
        .brigade(&["agents", "new", "scribe", "--project", "--output-format", "json"])
        .exits_with(0)
        .json();
    assert!(json["file"].as_str().unwrap().ends_with("work/.brigade/agents/scribe/AGENT.md"));
    assert!(home.work().join(".brigade/agents/scribe/AGENT.md").exists());
    for id in ["lead", "..", "A b", "../up", "", "-x"] {
        console.add(home.brigade(&["agents", "new", "--", id]).exits_with(2));
    }
    std::os::unix::fs::symlink("/etc/passwd", home.home().join("agents/link")).unwrap();
    home.brigade(&["agents", "new", "link"]).exits_with(1);
    insta::assert_snapshot!(console.text());
}

#[test]
fn demo_ignores_user_agents() {
    let home = Home::new();
    agent(&home, "bad", "tools: []");
    let done = home.brigade(&["demo"]);
    assert!(!done.stderr.contains("bad/AGENT.md"), "{}", done.stderr);
}
