//! Context of agents in addition to the task: memory, skills and project instructions.

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::Home;

fn remember() -> Script {
    Script::new().turns([
        call("memory_put", json!({ "key": "port", "text": "It listens on 8080." })),
        reply("{result:0}"),
    ])
}

fn recall() -> Script {
    Script::new().turns([call("memory_search", json!({ "query": "listens" })), reply("{result:0}")])
}

fn read_skill() -> Script {
    Script::new().turns([call("skill", json!({ "name": "tea" })), reply("{result:0}")])
}

fn hello() -> Script {
    Script::new().reply("hello")
}

fn skill(home: &Home, folder: &str, body: &str) {
    let path = home.home().parent().unwrap().join(folder).join("tea");
    std::fs::create_dir_all(path).unwrap();
    home.write(
        &format!("{folder}/tea/SKILL.md"),
        &format!("---\nname: tea\ndescription: Makes tea.\n---\n{body}"),
    );
}

#[test]
fn memory_of_one_run_is_found_by_the_next() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.run(recall(), &[]).exits_with(0));
    assert!(!home.home().join("memory.db").exists(), "reading makes no file");
    console.add(home.run(remember(), &[]).exits_with(0));
    console.add(home.run(remember(), &["--set", "permissions.allow=[\"memory_put\"]"]).exits_with(0));
    console.add(home.run(recall(), &[]).exits_with(0));
    assert!(home.home().join("memory.db").exists());
    insta::assert_snapshot!(console.text());
}

#[test]
fn memory_can_be_disabled() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.toml", "[memory]\nenabled = false\n[permissions]\ndeny = ['memory_put']\n");
    console.add(home.run(recall(), &[]).exits_with(0));
    let listed = home.brigade(&["tools", "list"]);
    assert!(!listed.exits_with(0).stdout.contains("memory_"), "{}", listed.stdout);
    home.brigade(&["tools", "list", "--set", "memory.enabled=true"])
        .exits_with(0)
        .stdout_contains("memory_search");
    insta::assert_snapshot!(console.text());
}

#[test]
fn damaged_memory_does_not_stop_a_run() {
    let home = Home::new();
    home.write("home/memory.db", &"no database. ".repeat(1_000));
    home.run(recall(), &[]).exits_with(0).stdout_contains("memory.db").stdout_contains("damaged");
}

#[test]
fn skills_are_found_in_the_home_and_in_configured_paths() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.run(read_skill(), &[]).exits_with(0));
    skill(&home, "home/skills", "At home.");
    let done = home.run(read_skill(), &[]);
    console.add(done.exits_with(0));
    assert_eq!(done.stderr.matches("warning").count(), 0, "{}", done.stderr);
    console.add(home.brigade(&["tools", "list"]).exits_with(0));
    skill(&home, "more", "From elsewhere.");
    home.write("home/config.toml", "[skills]\npaths = ['../more', 'missing']\n");
    console.add(home.run(read_skill(), &[]).exits_with(0));
    home.run(hello(), &["--set", "permissions.deny=[\"skill\"]"]).exits_with(0);
    insta::assert_snapshot!(console.text());
}

#[test]
fn skills_of_an_untrusted_project_are_ignored() {
    let home = Home::new();
    let mut console = Console::new(&home);
    skill(&home, "work/.claude/skills", "From the project.");
    skill(&home, "work/.brigade/skills", "From the project.");
    console.add(home.run(read_skill(), &[]).exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn project_instructions_count_towards_the_context() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let tokens = |home: &Home, arguments: &[&str]| {
        home.report(hello(), arguments)["usage"]["input_tokens"].as_u64().unwrap()
    };
    let before = tokens(&home, &[]);
    home.write("work/AGENTS.md", &"Use tabs. ".repeat(400));
    assert!(tokens(&home, &[]) > before + 900);
    assert_eq!(tokens(&home, &["--set", "permissions.deny=[\"read_file(AGENTS.md)\"]"]), before);
    home.write("work/AGENTS.md", &"Use tabs. ".repeat(10_000));
    console.add(home.run(hello(), &[]).exits_with(0));
    home.write("work/AGENTS.md", &"x".repeat(2_000_000));
    console.add(home.run(hello(), &[]).exits_with(0));
    std::fs::remove_file(home.work().join("AGENTS.md")).unwrap();
    home.write("outside.md", &"Secret. ".repeat(400));
    std::os::unix::fs::symlink("../outside.md", home.work().join("AGENTS.md")).unwrap();
    console.add(home.run(hello(), &[]).exits_with(0));
    assert_eq!(tokens(&home, &[]), before);
    insta::assert_snapshot!(console.text());
}
