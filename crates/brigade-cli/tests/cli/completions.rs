//! Shell completion scripts and manual pages.

use std::process::{Command, Stdio};

use brigade_testing::Script;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home, text};

const COMMANDS: [&str; 6] = ["run", "resume", "sessions", "models", "completions", "man"];

/// Checks the syntax of a script with a shell; none if the shell is not installed.
fn reads(shell: &str, flag: &str, script: &std::path::Path) -> Option<CommandResult> {
    let read = Command::new(shell).arg(flag).arg(script).stdin(Stdio::null()).output();
    read.ok().map(CommandResult::of)
}

#[test]
fn completions_for_every_shell_contain_the_commands() {
    let home = Home::new();
    let mut console = Console::new(&home);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.brigade(&["completions", shell]).exits_with(0).stdout.clone();
        for command in COMMANDS {
            assert!(script.contains(command), "no {command} for {shell}");
        }
        assert!(script.contains("output-format"), "no flags for {shell}");
        let file = home.write(&format!("script.{shell}"), &script);
        if let Some(read) = reads(shell, "-n", &file).filter(|_| shell != "powershell" && shell != "elvish") {
            read.exits_with(0);
        }
    }
    console.add(home.brigade(&["completions", "csh"]).exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn bash_completes_a_command() {
    let home = Home::new();
    let script = home.write("brigade.bash", &home.brigade(&["completions", "bash"]).exits_with(0).stdout);
    let typed = format!(
        "source '{}'; COMP_WORDS=(brigade sess); COMP_CWORD=1; _brigade brigade sess brigade; echo \"${{COMPREPLY[*]}}\"",
        script.display()
    );
    let Ok(completed) = Command::new("bash").args(["--norc", "-c", &typed]).output() else { return };
    assert_eq!(CommandResult::of(completed).exits_with(0).stdout.trim(), "sessions");
}

/// Words that bash offers for a command line whose last word is incomplete.
fn offered_by_bash(home: &Home, words: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let script = home.write("brigade.bash", &home.brigade(&["completions", "bash"]).exits_with(0).stdout);
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_brigade")).parent().unwrap().to_owned();
    let typed = format!(
        "PATH='{}':$PATH; source '{}'; COMP_WORDS=({}); COMP_CWORD={}; \
         _brigade brigade '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        folder.display(),
        script.display(),
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &typed]).env("BRIGADE_HOME", home.home()).current_dir(home.work());
    let done = CommandResult::of(bash.envs(variables.iter().copied()).output().unwrap());
    done.exits_with(0).stdout.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_session_ids_agents_and_models() {
    let home = Home::new();
    let id = home.report(Script::new().reply("x"), &[])["session_id"].as_str().unwrap().to_owned();
    let other = home.report(Script::new().reply("y"), &[])["session_id"].as_str().unwrap().to_owned();
    let beginning = &id[..5];
    for words in [
        &["resume"][..],
        &["tell"],
        &["cancel"],
        &["answer"],
        &["chat", "-r"],
        &["chat", "--resume"],
        &["sessions", "show"],
        &["sessions", "tree"],
        &["sessions", "export"],
        &["sessions", "rm"],
        &["resume", "--mode", "plan"],
    ] {
        let offered = offered_by_bash(&home, &[&["brigade"], words, &[beginning]].concat(), &[]);
        assert_eq!(offered, std::slice::from_ref(&id), "{words:?}");
    }
    let all = offered_by_bash(&home, &["brigade", "resume", ""], &[]);
    assert!(all.contains(&id) && all.contains(&other), "{all:?}");

    let file = home.home().join("agents/reviewer/AGENT.md");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "---\nname: Reviewer\ndescription: Reviews: all of it\n---\nReview.").unwrap();
    for words in [
        &["run", "-a"][..],
        &["run", "--agent"],
        &["chat", "-a"],
        &["agents", "show"],
        &["sessions", "list", "--agent"],
    ] {
        assert_eq!(
            offered_by_bash(&home, &[&["brigade"], words, &["rev"]].concat(), &[]),
            ["reviewer"],
            "{words:?}"
        );
    }
    let key = [("ANTHROPIC_API_KEY", "sesame")];
    let models = offered_by_bash(&home, &["brigade", "run", "--model", "anthropic/claude-"], &key);
    assert!(models.contains(&"anthropic/claude-sonnet-5".to_owned()), "{models:?}");
    let none = offered_by_bash(&home, &["brigade", "run", "--model", "script"], &key);
    assert_eq!(none, Vec::<String>::new());
}

#[test]
fn complete_lists_values_with_descriptions_and_without_errors() {
    let home = Home::new();
    let report = home.report(Script::new().reply("x"), &[]);
    let id = report["session_id"].as_str().unwrap();
    let listed = home.brigade(&["__complete", "sessions"]);
    let line = listed.exits_with(0).stdout.trim_end().to_owned();
    assert!(line.starts_with(&format!("{id}\t")) && line.ends_with(" ago: the task"), "{line}");
    home.write("home/config.toml", "[broken");
    for kind in ["sessions", "agents", "models", "nonsense", ""] {
        let done = home.brigade(&["__complete", kind]);
        assert_eq!((done.exits_with(0).stdout.as_str(), done.stderr.as_str()), ("", ""), "{kind}");
    }
}

#[test]
fn man_writes_a_page_for_every_command() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let page = home.brigade(&["man"]).exits_with(0).stdout.clone();
    assert!(page.contains(".TH brigade 1") && page.contains("Exit codes:"), "{page}");
    let folder = home.work().join("man/man1");
    console.add(home.brigade(&["man", "--dir", "man/man1"]).exits_with(0));
    let mut pages: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    for command in COMMANDS {
        assert!(pages.contains(&format!("brigade-{command}.1")), "{pages:?}");
    }
    assert!(pages.contains(&"brigade-sessions-list.1".to_owned()), "{pages:?}");
    assert_eq!(text(folder.join("brigade.1")), page, "the main page is the same both ways");
    assert!(text(folder.join("brigade-run.1")).contains("max\\-turns"));
    home.write("work/file", "");
    console.add(home.brigade(&["man", "--dir", "file/man1"]).exits_with(1));
    insta::assert_snapshot!(console.text());
}
