//! Scripts for shells, and manual pages.

use std::process::{Command, Stdio};

use crate::support::{Done, Home, text};

const COMMANDS: [&str; 6] = ["run", "resume", "sessions", "models", "completions", "man"];

/// Has a shell read a script without running it; nothing where the machine has no such shell.
fn reads(shell: &str, flag: &str, script: &std::path::Path) -> Option<Done> {
    let read = Command::new(shell).arg(flag).arg(script).stdin(Stdio::null()).output();
    read.ok().map(Done::of)
}

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.brigade(&["completions", shell]).exits(0).stdout.clone();
        for command in COMMANDS {
            assert!(script.contains(command), "no {command} for {shell}");
        }
        assert!(script.contains("output-format"), "no flags for {shell}");
        let file = home.write(&format!("script.{shell}"), &script);
        if let Some(read) = reads(shell, "-n", &file).filter(|_| shell != "powershell" && shell != "elvish") {
            read.exits(0);
        }
    }
    home.brigade(&["completions", "csh"]).exits(2).says("bash");
}

#[test]
fn bash_completes_a_command() {
    let home = Home::new();
    let script = home.write("brigade.bash", &home.brigade(&["completions", "bash"]).exits(0).stdout);
    let typed = format!(
        "source '{}'; COMP_WORDS=(brigade sess); COMP_CWORD=1; _brigade brigade sess brigade; echo \"${{COMPREPLY[*]}}\"",
        script.display()
    );
    let Ok(completed) = Command::new("bash").args(["--norc", "-c", &typed]).output() else { return };
    assert_eq!(Done::of(completed).exits(0).stdout.trim(), "sessions");
}

#[test]
fn there_is_a_page_for_every_command() {
    let home = Home::new();
    let page = home.brigade(&["man"]).exits(0).stdout.clone();
    assert!(page.contains(".TH brigade 1") && page.contains("Exit codes:"), "{page}");
    let folder = home.work().join("man/man1");
    home.brigade(&["man", "--dir", "man/man1"]).exits(0).says("brigade.1");
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
    home.brigade(&["man", "--dir", "file/man1"]).exits(1).says("file/man1").says("name another folder");
}
