//! Files of a project count once the person has trusted them, and as long as they stay the same.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::{Done, Home, text};

const HELLO: &str = "[[reply]]\ntext = 'hello'";
const DEPTH: &str = "[swarm]\nmax_depth = 7\n";

/// Writes a file of a project and all folders on the way.
fn put(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// The depth that counts in a folder, and what is said about it.
fn depth_in(home: &Home, folder: &Path) -> (i64, String) {
    let done = home.command(&["config", "show", "--output-format", "json"]).current_dir(folder).output();
    let done = Done::of(done.unwrap());
    let depth = done.exits(0).json()["config"]["swarm"]["max_depth"].as_i64().unwrap();
    (depth, done.stderr)
}

#[track_caller]
fn counts(home: &Home, folder: &Path) {
    assert_eq!(depth_in(home, folder), (7, String::new()));
}

#[track_caller]
fn is_ignored(home: &Home, folder: &Path, words: &str) {
    let (depth, said) = depth_in(home, folder);
    assert_eq!(depth, 1, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(words) && said.contains("brigade trust /"), "{said}");
}

fn trust(home: &Home, folder: &Path) -> Done {
    home.brigade(&["trust", "--yes", folder.to_str().unwrap()])
}

#[test]
fn the_warning_says_what_a_project_contains() {
    let home = Home::new();
    put(&home.work(), ".claude/agents/reviewer.md", "Review it.");
    is_ignored(&home, &home.work(), "they are not trusted (1 agent). ");
    put(&home.work(), ".brigade/agents/coder.md", "Write it.");
    put(&home.work(), ".brigade/skills/tea/SKILL.md", "Make tea.");
    put(&home.work(), ".brigade/skills/tea/notes.md", "More on tea.");
    put(&home.work(), ".brigade/config.toml", DEPTH);
    put(&home.work(), ".mcp.json", "{}");
    is_ignored(&home, &home.work(), "they are not trusted (settings, MCP servers, 2 agents, 1 skill). ");
}

#[test]
fn a_project_counts_once_it_is_trusted_and_until_it_changes() {
    let home = Home::new();
    put(&home.work(), ".brigade/config.toml", DEPTH);
    is_ignored(&home, &home.work(), "not trusted");
    let done = home.run(HELLO, &[]);
    assert_eq!(done.exits(0).stdout, "hello\n");
    assert_eq!(done.stderr.matches("brigade trust").count(), 1, "{}", done.stderr);
    home.brigade(&["tools", "list"]).exits(0).says("brigade trust ");
    assert!(!home.home().join("trusted.json").exists());

    home.brigade(&["trust", "--yes"]).exits(0).says("swarm.max_depth = 7").says("is trusted");
    counts(&home, &home.work());
    let shown = home.brigade(&["config", "show"]);
    shown.exits(0).prints("# trusted project: ").prints("max_depth = 7  # from ");
    assert!(shown.stdout.contains(".brigade/config.toml\n"), "{}", shown.stdout);
    assert!(!home.run(HELLO, &[]).exits(0).stderr.contains("brigade trust"));
    let mode = home.home().join("trusted.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    put(&home.work(), ".brigade/config.toml", "[swarm]\nmax_depth = 8\n");
    is_ignored(&home, &home.work(), "have changed");
    put(&home.work(), ".brigade/config.toml", DEPTH);
    counts(&home, &home.work());
    for new in [".brigade/agents/a.md", ".claude/skills/s/SKILL.md", ".codex/agents/b.toml"] {
        put(&home.work(), new, "do as I say");
        is_ignored(&home, &home.work(), "have changed");
        std::fs::remove_file(home.work().join(new)).unwrap();
    }
    put(&home.work(), "src/main.rs", "");
    counts(&home, &home.work());
}

#[test]
fn trust_is_asked_for_at_a_terminal_only() {
    let home = Home::new();
    home.brigade(&["trust"]).exits(2).says("nothing to trust").says(".brigade");
    home.brigade(&["trust", "/nowhere"]).exits(2).says("/nowhere is not a folder");
    put(&home.work(), ".claude/agents/a.md", "x");
    let done = home.with_input(&["trust"], "y\n");
    done.exits(2).says(".claude/agents/a.md").says("brigade trust --yes /");
    is_ignored(&home, &home.work(), "not trusted");
}

#[test]
fn trust_can_be_listed_and_revoked() {
    let home = Home::new();
    home.brigade(&["trust", "--list"]).exits(0).says("No project is trusted");
    home.brigade(&["trust", "--revoke"]).exits(2).says("is not trusted").says("--list");
    let projects = ["a", "b", "c"].map(|name| home.work().join(name));
    for project in &projects {
        put(project, ".brigade/config.toml", DEPTH);
        trust(&home, project).exits(0);
    }
    let [a, b, c] = projects;
    put(&b, ".brigade/config.toml", "");
    std::fs::remove_dir_all(&c).unwrap();
    let list = home.brigade(&["trust", "--list", "--output-format", "json"]).json();
    let states: Vec<&str> =
        list.as_array().unwrap().iter().map(|entry| entry["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["trusted", "changed", "gone"]);
    home.brigade(&["trust", "--list"]).exits(0).prints("work/a\n").prints("gone");
    home.brigade(&["trust", "--revoke", c.to_str().unwrap()]).exits(0).says("no longer");
    std::fs::create_dir(a.join("src")).unwrap();
    home.brigade(&["trust", "--revoke", a.join("src").to_str().unwrap()]).exits(0).says("no longer");
    is_ignored(&home, &a, "not trusted");
    let list = home.brigade(&["trust", "--list", "--output-format", "json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 1);
}

#[test]
fn the_nearest_project_counts_and_home_is_none() {
    let home = Home::new();
    let (outer, inner) = (home.work().join("outer"), home.work().join("outer/in/ner"));
    put(&outer, ".brigade/config.toml", DEPTH);
    put(&inner, ".opencode/agents/a.md", "x");
    std::fs::create_dir_all(inner.join("src")).unwrap();
    trust(&home, &outer).exits(0);
    counts(&home, &outer.join("in"));
    is_ignored(&home, &inner.join("src"), "outer/in/ner");
    trust(&home, &inner.join("src")).exits(0).says("outer/in/ner is trusted");
    assert_eq!(depth_in(&home, &inner), (1, String::new()), "the outer project does not count here");
    // The folder that is worked in decides, not the one in which the command was typed.
    home.run(HELLO, &["--cwd", inner.to_str().unwrap(), "--output-format", "json"]).exits(0);
    let report = home.report(HELLO, &["--cwd", outer.to_str().unwrap()]);
    home.brigade(&["trust", "--revoke", outer.to_str().unwrap()]).exits(0);
    let id = report["session_id"].as_str().unwrap();
    home.brigade(&["resume", id]).exits(0).says("brigade trust /").says("outer");
    home.brigade(&["tell", id, "more"]).exits(0).says("brigade trust /");
    assert_eq!(home.brigade(&["sessions", "list"]).exits(0).stderr, "");

    let person = Home::new();
    put(&person.work(), ".brigade/config.toml", DEPTH);
    put(&person.work(), "deep/x", "");
    let mut command = person.command(&["config", "show"]);
    let done = command.env("HOME", person.work()).current_dir(person.work().join("deep")).output();
    assert_eq!(Done::of(done.unwrap()).exits(0).stderr, "");
    let mut command = person.command(&["trust", "--yes"]);
    let done = command.env("BRIGADE_HOME", person.work().join(".brigade")).output().unwrap();
    Done::of(done).exits(2).says("nothing to trust");
}

#[test]
fn links_lead_nowhere() {
    let home = Home::new();
    let outside = home.work().join("outside");
    put(&outside, "config.toml", DEPTH);
    let linked = home.work().join("linked");
    std::fs::create_dir(&linked).unwrap();
    symlink(&outside, linked.join(".brigade")).unwrap();
    trust(&home, &linked).exits(2).says("nothing to trust");
    assert_eq!(depth_in(&home, &linked), (1, String::new()));

    let project = home.work().join("project");
    put(&project, ".brigade/agents/a.md", "x");
    symlink(outside.join("config.toml"), project.join(".brigade/config.toml")).unwrap();
    trust(&home, &project).exits(2).says("symbolic link").says(".brigade/config.toml");
    std::fs::remove_file(project.join(".brigade/config.toml")).unwrap();
    put(&project, ".brigade/config.toml", DEPTH);
    let link = project.join(".brigade/agents/b.md");
    symlink("/etc/passwd", &link).unwrap();
    symlink("..", project.join(".brigade/round")).unwrap();
    trust(&home, &project).exits(0).says("a link to /etc/passwd, which is not followed");
    counts(&home, &project);
    std::fs::remove_file(&link).unwrap();
    symlink("/etc/group", &link).unwrap();
    is_ignored(&home, &project, "have changed");
    // A folder that is reached through a link is the same folder.
    trust(&home, &project).exits(0);
    let alias = home.work().join("alias");
    symlink(&project, &alias).unwrap();
    counts(&home, &alias);
}

#[test]
fn nothing_waits_for_a_pipe() {
    let home = Home::new();
    put(&home.work(), ".brigade/config.toml", DEPTH);
    let pipe = |name: &str| {
        let file = home.work().join(name);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &file, kind, rustix::fs::Mode::RWXU, 0).unwrap();
        file
    };
    let there = pipe(".brigade/pipe");
    home.brigade(&["trust", "--yes"]).exits(0).says("a pipe, which is not opened");
    counts(&home, &home.work());
    std::fs::remove_file(&there).unwrap();
    put(&home.work(), ".brigade/pipe", "pipe");
    is_ignored(&home, &home.work(), "have changed");
    std::fs::remove_file(&there).unwrap();
    std::fs::remove_file(home.work().join(".brigade/config.toml")).unwrap();
    pipe(".brigade/config.toml");
    home.brigade(&["trust", "--yes"]).exits(2).says("is not a file");
    is_ignored(&home, &home.work(), "have changed");
}

#[test]
fn what_is_too_large_cannot_be_trusted() {
    let home = Home::new();
    put(&home.work(), ".brigade/config.toml", DEPTH);
    home.brigade(&["trust", "--yes"]).exits(0);
    let large = home.work().join(".brigade/large");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    is_ignored(&home, &home.work(), "larger than 1 MB");
    home.brigade(&["trust", "--yes"]).exits(2).says("cannot be trusted").says(".brigade/large");
    std::fs::remove_file(large).unwrap();
    for number in 0..5_001 {
        put(&home.work(), &format!(".brigade/many/{number}"), "");
    }
    home.brigade(&["trust", "--yes"]).exits(2).says("more than 5000 files");
    std::fs::remove_dir_all(home.work().join(".brigade/many")).unwrap();
    let deep: PathBuf = std::iter::repeat_n("d", 60).collect();
    std::fs::create_dir_all(home.work().join(".brigade").join(deep)).unwrap();
    is_ignored(&home, &home.work(), "folders deep");
}

#[test]
fn some_things_are_for_the_person_alone() {
    let home = Home::new();
    let forbidden = [
        "store = 'elsewhere.db'",
        "[providers.mine]\nkind = 'openai'\nbase_url = 'http://example.org'\napi_key_env = 'OPENAI_API_KEY'",
        "[agents]\npaths = ['/tmp']",
        "notify = 'touch x'",
    ];
    for config in forbidden {
        put(&home.work(), ".brigade/config.toml", config);
        home.brigade(&["trust", "--yes"]).exits(2).says(".brigade/config.toml: a project may not set `");
    }
    put(&home.work(), ".brigade/config.toml", "[swarm]\nmax_dept = 1");
    home.brigade(&["trust", "--yes"]).exits(2).says("swarm.max_depth");
    // Rules of the project join those of the person and take none away.
    home.write("home/config.toml", "[permissions]\ndeny = ['read_file(**/.env*)']\n");
    put(
        &home.work(),
        ".brigade/config.toml",
        "[permissions]\nmode = 'auto'\ndeny = []\nallow = ['shell(make *)']\n",
    );
    home.brigade(&["trust", "--yes"]).exits(0).says("permissions.mode = \"auto\"").says("shell(make *)");
    let shown = home.brigade(&["config", "show", "--output-format", "json"]).json();
    assert_eq!(shown["config"]["permissions"]["deny"][0], "read_file(**/.env*)");
    assert_eq!(shown["config"]["permissions"]["allow"][0], "shell(make *)");
    assert_eq!(shown["config"]["permissions"]["mode"], "auto");
    let origin = shown["origins"]["permissions.deny"].as_str().unwrap();
    assert!(origin.contains("home/config.toml and ") && origin.ends_with(".brigade/config.toml"), "{origin}");
    // The environment and flags come after the project.
    let mut command = home.command(&["config", "show", "--set", "permissions.deny=[]"]);
    let done = Done::of(command.env("BRIGADE_PERMISSIONS__MODE", "plan").output().unwrap());
    done.exits(0)
        .prints("mode = \"plan\"  # from BRIGADE_PERMISSIONS__MODE")
        .prints("deny = []  # from --set");
}

#[test]
fn a_project_names_scripts_from_its_folder() {
    let home = Home::new();
    put(&home.work(), ".brigade/config.json", r#"{"model": "script:.brigade/plan.toml"}"#);
    put(&home.work(), ".brigade/plan.toml", HELLO);
    put(&home.work(), "src/x", "");
    home.brigade(&["trust", "--yes"]).exits(0);
    let done = home.command(&["run", "x"]).current_dir(home.work().join("src")).output().unwrap();
    assert_eq!(Done::of(done).exits(0).stdout, "hello\n");
}

#[test]
fn what_is_trusted_is_shown_safely_and_as_json() {
    let home = Home::new();
    put(&home.work(), ".gemini/agents/\u{1b}[2Ja\nb.md", "x");
    put(&home.work(), ".brigade/config.toml", "[swarm.roles.\"a\\u001b[31m\"]\nsystem_prompt = 'x'\n");
    let done = home.brigade(&["trust"]);
    done.exits(2).says("\\u{1b}[2Ja b.md");
    assert!(!done.stderr.contains('\u{1b}'), "{}", done.stderr);
    let shown = home.brigade(&["trust", "--yes", "--output-format", "json"]);
    assert_eq!(shown.exits(0).stderr, "");
    let shown = shown.json();
    assert_eq!((&shown["type"], &shown["status"]), (&"trust".into(), &"trusted".into()));
    assert_eq!(shown["folder"], home.work().canonicalize().unwrap().to_str().unwrap());
    assert_eq!(shown["files"].as_array().unwrap().len(), 2);
    assert_eq!(shown["files"][1]["bytes"], 1);
    assert!(shown["config"]["swarm"]["roles"].is_object());
    assert_eq!(home.brigade(&["trust", "--output-format", "json"]).exits(0).json(), shown);
    home.brigade(&["trust"]).exits(0).says("trusted already");
    let revoked = home.brigade(&["trust", "--revoke", "--output-format", "json"]).json();
    assert_eq!(revoked["status"], "revoked");
}

#[test]
fn a_damaged_record_is_an_error_that_names_the_cure() {
    let home = Home::new();
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
            done.exits(2).says("is damaged").says(file.to_str().unwrap()).says("Remove it");
        }
        assert_eq!(text(&file), damaged, "it is left for the person to look at");
    }
    std::fs::remove_dir_all(home.work().join(".brigade")).unwrap();
    home.brigade(&["config", "show"]).exits(0);
}

#[test]
fn a_home_that_cannot_be_written_still_reads() {
    let home = Home::new();
    put(&home.work(), ".brigade/config.toml", DEPTH);
    let mut command = home.command(&["trust", "--yes"]);
    let done = Done::of(command.env("BRIGADE_HOME", "/proc/nowhere").output().unwrap());
    done.exits(1).says("/proc/nowhere/trusted.json cannot be written");
    let mut command = home.command(&["config", "show"]);
    Done::of(command.env("BRIGADE_HOME", "/proc/nowhere").output().unwrap()).exits(0).says("brigade trust /");
    home.brigade(&["trust", "--yes"]).exits(0);
    let read_only =
        |mode| std::fs::set_permissions(home.home(), std::fs::Permissions::from_mode(mode)).unwrap();
    read_only(0o500);
    counts(&home, &home.work());
    read_only(0o700);
}

#[test]
fn two_at_once_are_both_kept() {
    let home = Home::new();
    let projects: Vec<PathBuf> = (0..8).map(|number| home.work().join(number.to_string())).collect();
    let mut running = Vec::new();
    for project in &projects {
        put(project, ".brigade/config.toml", DEPTH);
        running.push(home.command(&["trust", "--yes", project.to_str().unwrap()]).spawn().unwrap());
    }
    for child in running {
        Done::of(child.wait_with_output().unwrap()).exits(0);
    }
    projects.iter().for_each(|project| counts(&home, project));
    let left = std::fs::read_dir(home.home()).unwrap().count();
    assert_eq!(left, 1, "no temporary file is left");
}
