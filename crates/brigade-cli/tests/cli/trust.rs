//! Project files take effect once the user trusts them, and as long as they do not change.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use brigade_testing::Script;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home, text};

fn hello() -> Script {
    Script::new().reply("hello")
}

const DEPTH: &str = "[swarm]\nmax_depth = 7\n";

/// Writes a file of a project, and creates its folders.
fn put(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// Effective depth in a folder, and the warnings.
fn depth_in(home: &Home, folder: &Path) -> (i64, String) {
    let done = home.command(&["config", "show", "--output-format", "json"]).current_dir(folder).output();
    let done = CommandResult::of(done.unwrap());
    let depth = done.exits_with(0).json()["config"]["swarm"]["max_depth"].as_i64().unwrap();
    (depth, done.stderr)
}

#[track_caller]
fn assert_applied(home: &Home, folder: &Path) {
    assert_eq!(depth_in(home, folder), (7, String::new()));
}

#[track_caller]
fn assert_ignored(home: &Home, folder: &Path, words: &str) {
    let (depth, stderr) = depth_in(home, folder);
    assert_eq!(depth, 1, "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(words) && stderr.contains("brigade trust /"), "{stderr}");
}

fn trust(home: &Home, folder: &Path) -> CommandResult {
    home.brigade(&["trust", "--yes", folder.to_str().unwrap()])
}

#[test]
fn warning_says_what_a_project_contains() {
    let home = Home::new();
    put(&home.work(), ".claude/agents/reviewer.md", "Review it.");
    assert_ignored(&home, &home.work(), "they are not trusted (1 agent). ");
    put(&home.work(), ".brigade/agents/coder.md", "Write it.");
    put(&home.work(), ".brigade/skills/tea/SKILL.md", "Make tea.");
    put(&home.work(), ".brigade/skills/tea/notes.md", "More on tea.");
    put(&home.work(), ".brigade/config.toml", DEPTH);
    put(&home.work(), ".mcp.json", "{}");
    assert_ignored(&home, &home.work(), "they are not trusted (settings, MCP servers, 2 agents, 1 skill). ");
}

#[test]
fn project_config_applies_while_trusted_and_unchanged() {
    let home = Home::new();
    let mut console = Console::new(&home);
    put(&home.work(), ".brigade/config.toml", DEPTH);
    assert_ignored(&home, &home.work(), "not trusted");
    let done = home.run(hello(), &[]);
    assert_eq!(done.exits_with(0).stdout, "hello\n");
    assert_eq!(done.stderr.matches("brigade trust").count(), 1, "{}", done.stderr);
    console.add(home.brigade(&["tools", "list"]).exits_with(0));
    assert!(!home.home().join("trusted.json").exists());

    console.add(home.brigade(&["trust", "--yes"]).exits_with(0));
    assert_applied(&home, &home.work());
    let shown = home.brigade(&["config", "show"]);
    shown.exits_with(0).stdout_contains("# trusted project: ").stdout_contains("max_depth = 7  # from ");
    assert!(shown.stdout.contains(".brigade/config.toml\n"), "{}", shown.stdout);
    assert!(!home.run(hello(), &[]).exits_with(0).stderr.contains("brigade trust"));
    let mode = home.home().join("trusted.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    put(&home.work(), ".brigade/config.toml", "[swarm]\nmax_depth = 8\n");
    assert_ignored(&home, &home.work(), "have changed");
    put(&home.work(), ".brigade/config.toml", DEPTH);
    assert_applied(&home, &home.work());
    for new in [".brigade/agents/a.md", ".claude/skills/s/SKILL.md", ".codex/agents/b.toml"] {
        put(&home.work(), new, "do as I say");
        assert_ignored(&home, &home.work(), "have changed");
        std::fs::remove_file(home.work().join(new)).unwrap();
    }
    put(&home.work(), "src/main.rs", "");
    assert_applied(&home, &home.work());
    insta::assert_snapshot!(console.text());
}

#[test]
fn trust_prompts_only_at_a_terminal() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.brigade(&["trust"]).exits_with(2));
    console.add(home.brigade(&["trust", "/nowhere"]).exits_with(2));
    put(&home.work(), ".claude/agents/a.md", "x");
    let done = home.with_input(&["trust"], "y\n");
    console.add(done.exits_with(2));
    assert_ignored(&home, &home.work(), "not trusted");
    insta::assert_snapshot!(console.text());
}

#[test]
fn trust_can_be_listed_and_revoked() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.brigade(&["trust", "--list"]).exits_with(0));
    console.add(home.brigade(&["trust", "--revoke"]).exits_with(2));
    let projects = ["a", "b", "c"].map(|name| home.work().join(name));
    for project in &projects {
        put(project, ".brigade/config.toml", DEPTH);
        trust(&home, project).exits_with(0);
    }
    let [a, b, c] = projects;
    put(&b, ".brigade/config.toml", "");
    std::fs::remove_dir_all(&c).unwrap();
    let list = home.brigade(&["trust", "--list", "--output-format", "json"]).json();
    let states: Vec<&str> =
        list.as_array().unwrap().iter().map(|entry| entry["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["trusted", "changed", "gone"]);
    home.brigade(&["trust", "--list"]).exits_with(0).stdout_contains("work/a\n").stdout_contains("gone");
    console.add(home.brigade(&["trust", "--revoke", c.to_str().unwrap()]).exits_with(0));
    std::fs::create_dir(a.join("src")).unwrap();
    console.add(home.brigade(&["trust", "--revoke", a.join("src").to_str().unwrap()]).exits_with(0));
    assert_ignored(&home, &a, "not trusted");
    let list = home.brigade(&["trust", "--list", "--output-format", "json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    insta::assert_snapshot!(console.text());
}

#[test]
fn nearest_project_applies_and_home_is_not_a_project() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let (outer, inner) = (home.work().join("outer"), home.work().join("outer/in/ner"));
    put(&outer, ".brigade/config.toml", DEPTH);
    put(&inner, ".opencode/agents/a.md", "x");
    std::fs::create_dir_all(inner.join("src")).unwrap();
    trust(&home, &outer).exits_with(0);
    assert_applied(&home, &outer.join("in"));
    assert_ignored(&home, &inner.join("src"), "outer/in/ner");
    console.add(trust(&home, &inner.join("src")).exits_with(0));
    assert_eq!(depth_in(&home, &inner), (1, String::new()), "the outer project does not count here");
    // The working folder decides, not the folder in which the command was run.
    home.run(hello(), &["--cwd", inner.to_str().unwrap(), "--output-format", "json"]).exits_with(0);
    let report = home.report(hello(), &["--cwd", outer.to_str().unwrap()]);
    home.brigade(&["trust", "--revoke", outer.to_str().unwrap()]).exits_with(0);
    let id = report["session_id"].as_str().unwrap();
    console.add(home.brigade(&["resume", id]).exits_with(0));
    console.add(home.brigade(&["tell", id, "more"]).exits_with(0));
    assert_eq!(home.brigade(&["sessions", "list"]).exits_with(0).stderr, "");

    let person = Home::new();
    put(&person.work(), ".brigade/config.toml", DEPTH);
    put(&person.work(), "deep/x", "");
    let mut command = person.command(&["config", "show"]);
    let done = command.env("HOME", person.work()).current_dir(person.work().join("deep")).output();
    assert_eq!(CommandResult::of(done.unwrap()).exits_with(0).stderr, "");
    let mut command = person.command(&["trust", "--yes"]);
    let done = CommandResult::run(command.env("BRIGADE_HOME", person.work().join(".brigade")));
    console.enter(&person);
    console.add(done.exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn symlinks_are_not_followed() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let outside = home.work().join("outside");
    put(&outside, "config.toml", DEPTH);
    let linked = home.work().join("linked");
    std::fs::create_dir(&linked).unwrap();
    symlink(&outside, linked.join(".brigade")).unwrap();
    console.add(trust(&home, &linked).exits_with(2));
    assert_eq!(depth_in(&home, &linked), (1, String::new()));

    let project = home.work().join("project");
    put(&project, ".brigade/agents/a.md", "x");
    symlink(outside.join("config.toml"), project.join(".brigade/config.toml")).unwrap();
    console.add(trust(&home, &project).exits_with(2));
    std::fs::remove_file(project.join(".brigade/config.toml")).unwrap();
    put(&project, ".brigade/config.toml", DEPTH);
    let link = project.join(".brigade/agents/b.md");
    symlink("/etc/passwd", &link).unwrap();
    symlink("..", project.join(".brigade/round")).unwrap();
    console.add(trust(&home, &project).exits_with(0));
    assert_applied(&home, &project);
    std::fs::remove_file(&link).unwrap();
    symlink("/etc/group", &link).unwrap();
    assert_ignored(&home, &project, "have changed");
    // A folder that is reached through a link is the same folder.
    trust(&home, &project).exits_with(0);
    let alias = home.work().join("alias");
    symlink(&project, &alias).unwrap();
    assert_applied(&home, &alias);
    insta::assert_snapshot!(console.text());
}

#[test]
fn named_pipes_do_not_block() {
    let home = Home::new();
    let mut console = Console::new(&home);
    put(&home.work(), ".brigade/config.toml", DEPTH);
    let pipe = |name: &str| {
        let file = home.work().join(name);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &file, kind, rustix::fs::Mode::RWXU, 0).unwrap();
        file
    };
    let there = pipe(".brigade/pipe");
    console.add(home.brigade(&["trust", "--yes"]).exits_with(0));
    assert_applied(&home, &home.work());
    std::fs::remove_file(&there).unwrap();
    put(&home.work(), ".brigade/pipe", "pipe");
    assert_ignored(&home, &home.work(), "have changed");
    std::fs::remove_file(&there).unwrap();
    std::fs::remove_file(home.work().join(".brigade/config.toml")).unwrap();
    pipe(".brigade/config.toml");
    console.add(home.brigade(&["trust", "--yes"]).exits_with(2));
    assert_ignored(&home, &home.work(), "have changed");
    insta::assert_snapshot!(console.text());
}

#[test]
fn oversized_project_cannot_be_trusted() {
    let home = Home::new();
    let mut console = Console::new(&home);
    put(&home.work(), ".brigade/config.toml", DEPTH);
    home.brigade(&["trust", "--yes"]).exits_with(0);
    let large = home.work().join(".brigade/large");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    assert_ignored(&home, &home.work(), "larger than 1 MiB");
    console.add(home.brigade(&["trust", "--yes"]).exits_with(2));
    std::fs::remove_file(large).unwrap();
    put(&home.work(), ".brigade/many/0", "");
    let many = home.work().join(".brigade/many");
    for number in 1..5_001 {
        // Links are made faster than files.
        std::fs::hard_link(many.join("0"), many.join(number.to_string())).unwrap();
    }
    console.add(home.brigade(&["trust", "--yes"]).exits_with(2));
    std::fs::remove_dir_all(home.work().join(".brigade/many")).unwrap();
    let deep: PathBuf = std::iter::repeat_n("d", 60).collect();
    std::fs::create_dir_all(home.work().join(".brigade").join(deep)).unwrap();
    assert_ignored(&home, &home.work(), "directories deep");
    insta::assert_snapshot!(console.text());
}

#[test]
fn user_only_keys_are_refused_in_a_project() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let forbidden = [
        "store = 'elsewhere.db'",
        "[providers.mine]\nkind = 'openai'\nbase_url = 'http://example.org'\napi_key_env = 'OPENAI_API_KEY'",
        "[agents]\npaths = ['/tmp']",
        "notify = 'touch x'",
    ];
    for config in forbidden {
        put(&home.work(), ".brigade/config.toml", config);
        console.add(home.brigade(&["trust", "--yes"]).exits_with(2));
    }
    put(&home.work(), ".brigade/config.toml", "[swarm]\nmax_dept = 1");
    console.add(home.brigade(&["trust", "--yes"]).exits_with(2));
    // Project rules are added to the user's rules, and remove none.
    home.write("home/config.toml", "[permissions]\ndeny = ['read_file(**/.env*)']\n");
    put(
        &home.work(),
        ".brigade/config.toml",
        "[permissions]\nmode = 'auto'\ndeny = []\nallow = ['shell(make *)']\n",
    );
    console.add(home.brigade(&["trust", "--yes"]).exits_with(0));
    let shown = home.brigade(&["config", "show", "--output-format", "json"]).json();
    assert_eq!(shown["config"]["permissions"]["deny"][0], "read_file(**/.env*)");
    assert_eq!(shown["config"]["permissions"]["allow"][0], "shell(make *)");
    assert_eq!(shown["config"]["permissions"]["mode"], "auto");
    let origin = shown["origins"]["permissions.deny"].as_str().unwrap();
    assert!(origin.contains("home/config.toml and ") && origin.ends_with(".brigade/config.toml"), "{origin}");
    // The environment and flags take precedence over the project.
    let mut command = home.command(&["config", "show", "--set", "permissions.deny=[]"]);
    let done = CommandResult::run(command.env("BRIGADE_PERMISSIONS__MODE", "plan"));
    done.exits_with(0)
        .stdout_contains("mode = \"plan\"  # from BRIGADE_PERMISSIONS__MODE")
        .stdout_contains("deny = []  # from --set");
    insta::assert_snapshot!(console.text());
}

#[test]
fn project_script_paths_are_relative_to_its_folder() {
    let home = Home::new();
    put(&home.work(), ".brigade/config.json", r#"{"model": "script:.brigade/plan.toml"}"#);
    put(&home.work(), ".brigade/plan.toml", &hello().to_string());
    put(&home.work(), "src/x", "");
    home.brigade(&["trust", "--yes"]).exits_with(0);
    let done = home.command(&["run", "x"]).current_dir(home.work().join("src")).output().unwrap();
    assert_eq!(CommandResult::of(done).exits_with(0).stdout, "hello\n");
}

#[test]
fn trusted_files_are_shown_escaped_and_as_json() {
    let home = Home::new();
    let mut console = Console::new(&home);
    put(&home.work(), ".gemini/agents/\u{1b}[2Ja\nb.md", "x");
    put(&home.work(), ".brigade/config.toml", "[swarm.roles.\"a\\u001b[31m\"]\nsystem_prompt = 'x'\n");
    let done = home.brigade(&["trust"]);
    console.add(done.exits_with(2));
    assert!(!done.stderr.contains('\u{1b}'), "{}", done.stderr);
    let shown = home.brigade(&["trust", "--yes", "--output-format", "json"]);
    assert_eq!(shown.exits_with(0).stderr, "");
    let shown = shown.json();
    assert_eq!((&shown["type"], &shown["status"]), (&"trust".into(), &"trusted".into()));
    assert_eq!(shown["folder"], home.work().canonicalize().unwrap().to_str().unwrap());
    assert_eq!(shown["files"].as_array().unwrap().len(), 2);
    assert_eq!(shown["files"][1]["bytes"], 1);
    assert!(shown["config"]["swarm"]["roles"].is_object());
    assert_eq!(home.brigade(&["trust", "--output-format", "json"]).exits_with(0).json(), shown);
    console.add(home.brigade(&["trust"]).exits_with(0));
    let revoked = home.brigade(&["trust", "--revoke", "--output-format", "json"]).json();
    assert_eq!(revoked["status"], "revoked");
    insta::assert_snapshot!(console.text());
}

#[test]
fn damaged_trust_record_error_names_the_fix() {
    let home = Home::new();
    let mut console = Console::new(&home);
    put(&home.work(), ".brigade/config.toml", DEPTH);
    for damaged in ["", "{", "[]", "{\"/x\": {\"hash\": \"short\", \"at\": 1}}", "\u{0}"] {
        let file = home.write("home/trusted.json", damaged);
        for arguments in [
            vec!["trust", "--yes"],
            vec!["trust", "--list"],
            vec!["trust", "--revoke"],
            vec!["config", "show"],
        ] {
            let done = home.brigade(&arguments);
            console.add(done.exits_with(2).stderr_contains(file.to_str().unwrap()));
        }
        assert_eq!(text(&file), damaged, "it is left for the user to look at");
    }
    std::fs::remove_dir_all(home.work().join(".brigade")).unwrap();
    home.brigade(&["config", "show"]).exits_with(0);
    insta::assert_snapshot!(console.text());
}

#[test]
fn read_only_home_is_still_read() {
    let home = Home::new();
    let mut console = Console::new(&home);
    put(&home.work(), ".brigade/config.toml", DEPTH);
    let mut command = home.command(&["trust", "--yes"]);
    let done = CommandResult::run(command.env("BRIGADE_HOME", "/proc/nowhere"));
    console.add(done.exits_with(1));
    let mut command = home.command(&["config", "show"]);
    CommandResult::run(command.env("BRIGADE_HOME", "/proc/nowhere"))
        .exits_with(0)
        .stderr_contains("brigade trust /");
    home.brigade(&["trust", "--yes"]).exits_with(0);
    let read_only =
        |mode| std::fs::set_permissions(home.home(), std::fs::Permissions::from_mode(mode)).unwrap();
    read_only(0o500);
    assert_applied(&home, &home.work());
    read_only(0o700);
    insta::assert_snapshot!(console.text());
}

#[test]
fn concurrent_trust_commands_are_both_recorded() {
    let home = Home::new();
    let projects: Vec<PathBuf> = (0..8).map(|number| home.work().join(number.to_string())).collect();
    let mut running = Vec::new();
    for project in &projects {
        put(project, ".brigade/config.toml", DEPTH);
        running.push(home.command(&["trust", "--yes", project.to_str().unwrap()]).spawn().unwrap());
    }
    for child in running {
        CommandResult::of(child.wait_with_output().unwrap()).exits_with(0);
    }
    projects.iter().for_each(|project| assert_applied(&home, project));
    let left = std::fs::read_dir(home.home()).unwrap().count();
    assert_eq!(left, 1, "no temporary file is left");
}
