//! Files that programs act upon, secrets and Brigade's own files, in every mode.

use std::fs;
use std::os::unix::fs::symlink;

use brigade_testing::{Script, call, reply};
use serde_json::{Value, json};

use crate::cli::support::{BackgroundRun, CommandResult, Home};

const MODES: [&str; 4] = ["plan", "ask", "edit", "auto"];
const OFF: [&str; 2] = ["--set", "sandbox.mode=off"];
const ON: [&str; 4] = ["--set", "sandbox.mode=workspace", "--mode", "auto"];

/// Script of one agent that makes these calls in one turn, and repeats all results.
fn calls(calls: &[(&str, Value)]) -> Script {
    let turn = calls.iter().fold(reply(""), |turn, (tool, arguments)| turn.call(tool, arguments.clone()));
    Script::new().turns([turn, reply("{results}")])
}

/// Makes one call and returns what the model sees.
fn one(home: &Home, tool: &str, arguments: Value, settings: &[&str]) -> String {
    let done = home.run(calls(&[(tool, arguments)]), &[&OFF, settings].concat());
    done.exits_with(0).stdout.clone()
}

fn write(home: &Home, path: &str, settings: &[&str]) -> String {
    one(home, "write_file", json!({ "path": path, "content": "written" }), settings)
}

fn read(home: &Home, path: &str, settings: &[&str]) -> String {
    one(home, "read_file", json!({ "path": path }), settings)
}

fn put(home: &Home, name: &str, text: &str) {
    let file = home.work().join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// Call that is denied in every mode, and the reason that the model reads.
#[test]
fn protected_files_are_written_in_no_mode_without_a_rule_that_names_them() {
    let home = Home::new();
    for (path, reason) in [
        ("AGENTS.md", "AGENTS.md is an instruction file for agents"),
        ("sub/claude.md", "claude.md is an instruction file for agents"),
        (".git/config", ".git/config can name programs that git runs"),
        (".GIT/hooks/pre-commit", ".GIT/hooks can name programs that git runs"),
        ("sub/.git/config", ".git/config can name programs that git runs"),
        (".brigade/config.toml", ".brigade can name programs to run"),
        (".Mcp.json", ".Mcp.json can name programs to run"),
        (".github/agents/a.md", ".github/agents can name programs to run"),
        ("web/.vscode/tasks.json", ".vscode can name programs to run"),
        (".bashrc", ".bashrc can name programs that run when you log in"),
        (".env", ".env can contain secrets"),
    ] {
        for mode in MODES {
            let rules = "permissions.allow=[\"write_file\", \"write_file(**)\", \"write_file(*.md)\"]";
            let output = write(&home, path, &["--mode", mode, "--set", rules]);
            let expected = if mode == "plan" { "plan mode is read-only" } else { reason };
            assert!(output.contains(expected), "{mode} {path}: {output}");
            if mode != "plan" {
                let rule =
                    format!("the rule `write_file({}{path})`", if path.contains('/') { "" } else { "./" });
                assert!(output.contains(&rule) && !output.contains("--mode auto"), "{mode} {path}: {output}");
            }
            assert!(!home.work().join(path).exists(), "{mode} {path}");
        }
    }
    for mode in MODES {
        let output = write(
            &home,
            ".git/index",
            &["--mode", mode, "--set", "permissions.allow=[\"write_file(.git/**)\"]"],
        );
        let expected = if mode == "plan" { "plan mode" } else { "never write below `.git`" };
        assert!(output.contains(expected), "{output}");
    }
    assert_eq!(fs::read_dir(home.work()).unwrap().count(), 0);
}

#[test]
fn rule_that_names_a_protected_file_allows_it_in_every_mode_but_plan() {
    for path in ["AGENTS.md", ".git/config", "sub/.vscode/tasks.json", ".env"] {
        for mode in MODES {
            let home = Home::new();
            let rule = format!("permissions.allow=[\"write_file({path})\"]");
            let output = write(&home, path, &["--mode", mode, "--set", &rule]);
            let is_written = home.work().join(path).exists();
            assert_eq!(is_written, mode != "plan", "{mode} {path}: {output}");
        }
    }
}

#[test]
fn secrets_are_read_in_no_mode_without_a_rule_that_names_them() {
    let home = Home::new();
    put(&home, ".env", "KEY=CANARY1\n");
    put(&home, "certs/server.key", "CANARY2\n");
    put(&home, "code.py", "CANARY3\n");
    let searches = [
        ("read_file", json!({ "path": ".env" })),
        ("read_file", json!({ "path": "certs/server.key" })),
        ("grep", json!({ "pattern": "CANARY" })),
        ("grep", json!({ "pattern": "CANARY", "path": ".env" })),
        ("edit_file", json!({ "path": ".env", "old": "KEY=CANARY", "new": "x" })),
    ];
    for mode in MODES {
        let wide = "permissions.allow=[\"read_file\", \"read_file(**)\", \"grep\"]";
        let done = home.run(calls(&searches), &[&OFF[..], &["--mode", mode, "--set", wide]].concat());
        let output = &done.exits_with(0).stdout;
        assert!(!output.contains("CANARY1") && !output.contains("CANARY2"), "{mode}: {output}");
        assert!(output.contains("code.py:1: CANARY3"), "{mode}: {output}");
        assert!(output.contains("can contain secrets: .env, certs/server.key"), "{mode}: {output}");
        assert!(output.contains("the rule `read_file(./.env)` in `permissions.allow`"), "{mode}: {output}");
        let granted = "permissions.allow=[\"read_file(./.env)\"]";
        let done = home.run(calls(&searches), &[&OFF[..], &["--mode", mode, "--set", granted]].concat());
        let output = &done.exits_with(0).stdout;
        assert!(output.contains("KEY=CANARY1") && output.contains(".env:1: KEY=CANARY1"), "{mode}: {output}");
        assert!(!output.contains("CANARY2"), "{mode}: {output}");
    }
}

/// The rule that grants a secret to the file tools grants it to commands.
#[test]
fn rule_that_names_a_secret_binds_commands_too() {
    let home = Home::outside_tmp();
    put(&home, ".env", "CANARY");
    let run = |rule: &str| {
        let script = calls(&[("shell", json!({ "command": "cat .env; echo end" }))]);
        home.run(script, &[&ON[..], &["--set", rule]].concat()).exits_with(0).stdout.clone()
    };
    assert!(!run("permissions.allow=[\"read_file(**)\", \"shell\"]").contains("CANARY"));
    assert!(run("permissions.allow=[\"read_file(.env)\"]").contains("CANARY"));
}

#[test]
fn user_approves_a_protected_file_once_or_by_a_rule_that_names_it() {
    let home = Home::new();
    let edits = [
        ("write_file", json!({ "path": "AGENTS.md", "content": "one" })),
        ("write_file", json!({ "path": "AGENTS.md", "content": "two" })),
    ];
    let wait = ["--set", "permissions.questions=wait", "--mode", "auto", "--set", "sandbox.mode=off"];
    let sequence = || {
        let turns = edits.iter().map(|(tool, arguments)| call(tool, arguments.clone()));
        Script::new().turns(turns.chain([reply("{results}")]))
    };
    for (answer, questions) in [("yes", 2), ("always", 1)] {
        let mut running = BackgroundRun::start(&home, sequence(), &wait);
        for _ in 0..questions {
            let asked = running.wait_for("asked");
            assert!(asked.to_string().contains("AGENTS.md is an instruction file for agents"), "{asked}");
            home.brigade(&["answer", &running.session, answer]).exits_with(0);
        }
        assert_eq!(running.end().0, 0);
        assert_eq!(fs::read_to_string(home.work().join("AGENTS.md")).unwrap(), "two");
        fs::remove_file(home.work().join("AGENTS.md")).unwrap();
    }
    // A rule that does not name the file answers no further question.
    let mut running = BackgroundRun::start(&home, sequence(), &wait);
    running.wait_for("asked");
    let wide = home.brigade(&["answer", &running.session, "always", "write_file"]);
    if wide.code == 0 {
        running.wait_for("asked");
    }
    home.brigade(&["answer", &running.session, "no"]).exits_with(0);
    running.end();
}

#[test]
fn links_and_renamed_directories_do_not_lift_a_protection() {
    let home = Home::new();
    put(&home, "AGENTS.md", "kept");
    put(&home, ".git/hooks/post-commit", "kept");
    put(&home, ".claude/settings.json", "kept");
    put(&home, ".env", "CANARY");
    symlink("AGENTS.md", home.work().join("notes")).unwrap();
    symlink(".git", home.work().join("g")).unwrap();
    symlink(".claude", home.work().join("c")).unwrap();
    symlink(".env", home.work().join("vars")).unwrap();
    let links = [
        ("write_file", json!({ "path": "notes", "content": "written" })),
        ("write_file", json!({ "path": "g/hooks/post-commit", "content": "written" })),
        ("write_file", json!({ "path": "g/hooks/new", "content": "written" })),
        ("write_file", json!({ "path": "c/settings.json", "content": "written" })),
        ("read_file", json!({ "path": "vars" })),
    ];
    let auto = [&OFF[..], &["--mode", "auto"]].concat();
    let output = home.run(calls(&links), &auto).exits_with(0).stdout.clone();
    assert_eq!(output.matches("resolves to").count(), 5, "{output}");
    fs::create_dir(home.work().join("x")).unwrap();
    fs::rename(home.work().join(".claude"), home.work().join("x/.claude")).unwrap();
    symlink("x", home.work().join("y")).unwrap();
    let renamed = [
        ("write_file", json!({ "path": "x/.claude/settings.json", "content": "written" })),
        ("write_file", json!({ "path": "x/../x/.claude/new.json", "content": "written" })),
        ("write_file", json!({ "path": "y/.claude/new.json", "content": "written" })),
    ];
    let more = home.run(calls(&renamed), &auto).exits_with(0).stdout.clone();
    assert_eq!(more.matches(".claude can name programs to run").count(), 3, "{more}");
    assert!(!output.contains("CANARY"), "{output}");
    assert!(output.contains("`notes` resolves to `AGENTS.md`: AGENTS.md is an instruction file"), "{output}");
    for kept in ["AGENTS.md", ".git/hooks/post-commit", "x/.claude/settings.json"] {
        assert_eq!(fs::read_to_string(home.work().join(kept)).unwrap(), "kept", "{output}");
    }
    assert!(!home.work().join(".git/hooks/new").exists() && !home.work().join("x/.claude/new.json").exists());
}

#[test]
fn every_edit_asks_in_a_workspace_that_is_the_home_directory() {
    let home = Home::new();
    put(&home, ".config/brigade/config.toml", "");
    put(&home, ".aws/credentials", "CANARY");
    let parent = home.work().parent().unwrap().to_path_buf();
    for (user_home, path) in [(home.work(), "a.txt"), (home.work().join("sub"), "sub/a.txt")] {
        fs::create_dir_all(&user_home).unwrap();
        let run = |tool: &str, arguments: Value, settings: &[&str]| {
            let model = home.script(calls(&[(tool, arguments)]));
            let all = [&["run", "--model", &model, "x", "--mode", "auto"][..], &OFF, settings].concat();
            let mut command = home.command(&all);
            CommandResult::run(command.env("HOME", &user_home)).exits_with(0).stdout.clone()
        };
        let edit = json!({ "path": path, "content": "written" });
        let output = run("write_file", edit.clone(), &["--set", "permissions.allow=[\"write_file\"]"]);
        assert!(output.contains("the workspace contains your home directory"), "{output}");
        assert!(!home.work().join(path).exists());
        let rule = format!("permissions.allow=[\"write_file({path})\"]");
        run("write_file", edit, &["--set", &rule]);
        assert_eq!(fs::read_to_string(home.work().join(path)).unwrap(), "written");
    }
    // Nothing asks in a project below it.
    let model = home.script(calls(&[("write_file", json!({ "path": "b.txt", "content": "written" }))]));
    let mut command = home.command(&["run", "--model", &model, "x", "--mode", "auto"]);
    CommandResult::run(command.env("HOME", parent.join("home"))).exits_with(0);
    assert!(home.work().join("b.txt").exists());
}

#[test]
fn credentials_of_the_home_directory_ask_if_it_is_the_workspace() {
    let home = Home::new();
    put(&home, ".aws/credentials", "CANARY");
    let model = home.script(calls(&[
        ("read_file", json!({ "path": ".aws/credentials" })),
        ("grep", json!({ "pattern": "CANARY" })),
    ]));
    let mut command =
        home.command(&["run", "--model", &model, "x", "--mode", "auto", "--set", "sandbox.mode=off"]);
    let done = CommandResult::run(command.env("HOME", home.work()));
    let output = &done.exits_with(0).stdout;
    assert!(!output.contains("CANARY") && output.contains(".aws can contain secrets"), "{output}");
}

/// Configuration, logins, trust and sessions are refused under every name, for file tools and commands.
#[test]
fn own_files_are_refused_by_place() {
    let home = Home::outside_tmp();
    home.write("home/config.toml", "# CANARY of the configuration\n");
    fs::create_dir_all(home.home().join("logins")).unwrap();
    home.write("home/logins/server.json", "CANARY of a login\n");
    home.write("home/trusted.json", "{}\n");
    // The store exists after a first run.
    home.run(Script::new().reply("hello"), &[]).exits_with(0);
    fs::create_dir_all(home.work().join("node_modules/x")).unwrap();
    let links = [
        ("config.toml", "a.txt"),
        ("logins/server.json", "node_modules/x/b.txt"),
        ("trusted.json", "c.txt"),
        ("sessions.db", "d.txt"),
    ];
    for (file, link) in links {
        fs::hard_link(home.home().join(file), home.work().join(link)).unwrap();
        for mode in ["edit", "auto"] {
            let rules = format!("permissions.allow=[\"read_file({link})\", \"write_file({link})\"]");
            let settings = ["--mode", mode, "--set", &rules];
            assert!(read(&home, link, &settings).contains("Brigade's own files"), "{link}");
            assert!(write(&home, link, &settings).contains("Brigade's own files"), "{link}");
        }
        let path = home.work().join(link);
        assert_eq!(fs::read(&path).unwrap(), fs::read(home.home().join(file)).unwrap(), "{link}");
    }
    let done = home.run(
        calls(&[("shell", json!({ "command": "cat a.txt node_modules/x/b.txt c.txt d.txt; echo end" }))]),
        &ON,
    );
    let output = &done.exits_with(0).stdout;
    assert!(!output.contains("CANARY") && !output.contains("SQLite") && output.contains("end"), "{output}");
    assert_eq!(output.matches("Permission denied").count(), 4, "{output}");
}

#[test]
fn own_files_in_the_workspace_are_refused_after_they_were_moved() {
    let home = Home::new();
    let data = home.work().join("data");
    let run = |script: Script, settings: &[&str]| {
        let model = home.script(script);
        let all = [&["run", "--model", &model, "x", "--mode", "auto"][..], &OFF, settings].concat();
        let mut command = home.command(&all);
        CommandResult::run(command.env("BRIGADE_HOME", &data)).exits_with(0).stdout.clone()
    };
    fs::create_dir_all(data.join("logins")).unwrap();
    fs::write(data.join("logins/token"), "CANARY").unwrap();
    let output = run(
        calls(&[
            ("read_file", json!({ "path": "data/logins/token" })),
            ("grep", json!({ "pattern": "CANARY" })),
            ("write_file", json!({ "path": "data/config.toml", "content": "x" })),
        ]),
        &[],
    );
    assert!(!output.contains("CANARY"), "{output}");
    assert_eq!(output.matches("Brigade's own files").count(), 2, "{output}");
    fs::rename(&data, home.work().join("moved")).unwrap();
    symlink("moved", &data).unwrap();
    let output = run(
        calls(&[
            ("read_file", json!({ "path": "moved/logins/token" })),
            ("read_file", json!({ "path": "data/logins/token" })),
            ("grep", json!({ "pattern": "CANARY" })),
            ("write_file", json!({ "path": "moved/logins/new", "content": "x" })),
            ("list_dir", json!({ "path": "moved" })),
        ]),
        &[],
    );
    assert!(!output.contains("CANARY"), "{output}");
    assert_eq!(output.matches("Brigade's own files").count(), 4, "{output}");
    assert!(!home.work().join("moved/logins/new").exists(), "{output}");
}

#[test]
fn agents_that_the_configuration_names_are_protected() {
    let home = Home::new();
    put(&home, "team/a.md", "---\nname: a\ndescription: d\n---\nbody");
    let paths = ["--mode", "auto", "--set", "agents.paths=[\"team\"]"];
    let output = write(&home, "team/b.md", &paths);
    assert!(output.contains("team is named in the configuration of Brigade"), "{output}");
    assert!(!home.work().join("team/b.md").exists());
    write(&home, "team/b.md", &["--mode", "auto"]);
    assert!(home.work().join("team/b.md").exists());
}

/// Nested files that programs act upon are protected if they exist. Commands may create new ones, as `git clone` does.
#[test]
fn commands_create_nested_projects_and_do_not_change_existing_ones() {
    let home = Home::outside_tmp();
    for file in ["sub/AGENTS.md", "sub/.brigade/config.toml", "sub/.github/agents/a.md", "sub/.mcp.json"] {
        put(&home, file, "kept");
    }
    let command = "for f in sub/AGENTS.md sub/.brigade/config.toml sub/.github/agents/a.md sub/.mcp.json; do \
                   echo changed > $f; rm -f $f; done; mkdir -p new/.brigade && echo created > new/AGENTS.md && \
                   echo created > new/.mcp.json && git init -q new/repo && cat new/AGENTS.md";
    let done = home.run(calls(&[("shell", json!({ "command": command }))]), &ON);
    let output = &done.exits_with(0).stdout;
    assert!(output.contains("\ncreated\n"), "{output}");
    for file in ["sub/AGENTS.md", "sub/.brigade/config.toml", "sub/.github/agents/a.md", "sub/.mcp.json"] {
        assert_eq!(fs::read_to_string(home.work().join(file)).unwrap(), "kept", "{output}");
    }
    assert!(home.work().join("new/repo/.git/config").exists(), "{output}");
}

const AGENT: &str = "---\nname: helper\ndescription: helps\n---\n";

/// Agents and skills of a project are used as the user trusted them, even if they change during the run.
#[test]
fn files_of_a_trusted_project_are_used_only_unchanged() {
    let home = Home::new();
    let skill = "---\nname: tea\ndescription: Makes tea.\n---\n";
    put(&home, ".brigade/agents/helper.md", &format!("{AGENT}Trusted."));
    put(&home, ".brigade/skills/tea/SKILL.md", &format!("{skill}Trusted."));
    put(&home, ".brigade/skills/tea/more.md", "Trusted.");
    home.brigade(&["trust", "--yes"]).exits_with(0);
    let task = json!({ "agent_id": "helper", "task": "help" });
    let file = json!({ "name": "tea", "file": "more.md" });
    let run = |change: &str| {
        let script = Script::new()
            .agent(
                "lead",
                [
                    call("shell", json!({ "command": change })),
                    call("skill", file.clone()).call("subagent_dispatch", task.clone()),
                    reply("{results}"),
                ],
            )
            .reply("I helped");
        home.run(script, &[&OFF[..], &["--mode", "auto"]].concat()).exits_with(0).stdout.clone()
    };
    let output = run("true");
    assert!(output.contains("I helped") && output.contains("Trusted."), "{output}");
    let output =
        run("echo Changed. >> .brigade/agents/helper.md; echo Changed. >> .brigade/skills/tea/more.md");
    assert!(!output.contains("I helped") && !output.contains("Changed."), "{output}");
    assert!(output.contains("it has changed since its project was trusted"), "{output}");
}

/// A link is part of the hash of a project, and what it leads to is not.
#[test]
fn agent_behind_a_link_in_a_project_is_not_used() {
    let home = Home::new();
    put(&home, "docs/helper.md", &format!("{AGENT}Body."));
    put(&home, ".brigade/agents/other.md", "---\nname: other\ndescription: d\n---\nbody");
    symlink("../../docs/helper.md", home.work().join(".brigade/agents/helper.md")).unwrap();
    home.brigade(&["trust", "--yes"]).exits_with(0);
    let done = home.run(Script::new().reply("hello"), &[]);
    done.exits_with(0).stderr_contains("helper.md").stderr_contains("it is a symbolic link");
}
