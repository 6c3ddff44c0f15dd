//! `brigade resume`: after Ctrl-C, and without an id.

use brigade_testing::{Fault, Script, call, fault, reply};
use rustix::process::Signal;
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{BackgroundRun, CommandResult, Home};

/// Script that hangs in its first model call, and replies to every other one.
fn hangs_once() -> Script {
    Script::new().turns([fault(Fault::Hang).attempt(1), reply("finished: {heard}")])
}

const CONTINUES: &str =
    "finished: Note from the runtime: Your last run was cancelled before it finished. Continue";

#[test]
fn resume_continues_an_interrupted_run() {
    let home = Home::new();
    let mut running = BackgroundRun::start(&home, hangs_once(), &[]);
    running.wait_for("called");
    let id = running.session.clone();
    running.signal(Signal::INT);
    assert_eq!(running.end().0, 130);
    home.brigade(&["resume", &id]).exits_with(0).stdout_contains(CONTINUES);
    // It is done now: the result is printed again, without a model call.
    home.brigade(&["resume", &id]).exits_with(0).stdout_contains(CONTINUES);
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]).exits_with(0).json();
    assert_eq!((&list[0]["state"], &list[0]["turns"]), (&"done".into(), &1.into()));
}

#[test]
fn resume_continues_a_run_left_by_a_second_interrupt() {
    let home = Home::new();
    let mut running = BackgroundRun::start(&home, hangs_once(), &[]);
    running.wait_for("called");
    let id = running.session.clone();
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, 130);
    home.brigade(&["resume", &id]).exits_with(0).stdout_contains(CONTINUES);
}

#[test]
fn resume_without_an_id_takes_the_last_session_of_the_folder() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let other = home.work().join("other");
    std::fs::create_dir(&other).unwrap();
    console.add(home.brigade(&["resume"]).exits_with(2));
    let here = home.report(Script::new().reply("from here"), &[]);
    let there = home.report(Script::new().reply("from there"), &["--cwd", "other"]);
    let id = |report: &serde_json::Value| report["session_id"].as_str().unwrap().to_owned();
    console.add(
        home.brigade(&["resume"])
            .exits_with(0)
            .stderr_contains(&format!("{} is already done: the task", id(&here))),
    );
    let elsewhere = CommandResult::run(home.command(&["resume"]).current_dir(&other));
    console.add(elsewhere.exits_with(0).stderr_contains(&id(&there)));
    console.add(home.brigade(&["resume", "--cwd", "other"]).exits_with(0));
    // The last is the one that was used last, not the one that began last.
    let newer = home.report(Script::new().reply("more"), &[]);
    home.brigade(&["resume"]).exits_with(0).stderr_contains(&format!("{} is already done", id(&newer)));
    home.brigade(&["tell", &id(&here), "more"]).exits_with(0);
    home.brigade(&["resume"]).exits_with(0).stderr_contains(&format!("{} is already done", id(&here)));
    insta::assert_snapshot!(console.text());
}

#[test]
fn resume_without_an_id_announces_a_session_that_is_not_done() {
    let home = Home::new();
    let script = Script::new().turns([call("echo", json!({ "text": "x" })), reply("more")]);
    let report = home.run(script, &["--max-turns", "1", "--output-format", "json"]).exits_with(3).json();
    let id = report["session_id"].as_str().unwrap();
    let resumed = home.brigade(&["resume", "--max-turns", "5"]);
    resumed.exits_with(0).stderr_contains(&format!("Resuming {id}: the task"));
    let done = home.brigade(&["resume"]);
    done.exits_with(0).stderr_contains(&format!("{id} is already done: the task"));
    assert!(!done.stderr.contains("Resuming"), "{}", done.stderr);
}

#[test]
fn suggested_commands_omit_flags_that_the_session_stores() {
    let home = Home::new();
    std::fs::create_dir(home.work().join("other")).unwrap();
    let done = home.run(
        Script::new().reply(fault(Fault::Refused)),
        &["--cwd", "other", "--mode", "plan", "--set", "swarm.max_depth=2"],
    );
    let command = done.exits_with(1).stderr.lines().find(|line| line.contains("brigade resume ")).unwrap();
    assert!(command.ends_with(" --set swarm.max_depth=2"), "{command}");
    assert!(!command.contains("--cwd") && !command.contains("--mode"), "{command}");
    let id = done.stderr.split_whitespace().find(|word| word.len() == 26).unwrap();
    let shown = home.brigade(&["sessions", "show", id, "--output-format", "json"]).exits_with(0).json();
    let first = shown["records"][0].clone();
    // Mode and folder are stored: the next round has the authority of the first.
    home.brigade(&["resume", id, "--set", "swarm.max_depth=2"]).exits_with(1);
    let shown = home.brigade(&["sessions", "show", id, "--output-format", "json"]).exits_with(0).json();
    let records = shown["records"].as_array().unwrap();
    let again = records.iter().rfind(|record| record["type"] == "started").unwrap();
    assert_ne!(again["seq"], first["seq"]);
    assert_eq!(again["grant"]["authority"], first["grant"]["authority"]);
}

#[test]
fn agent_cannot_resume_a_run_that_the_user_cancelled() {
    let home = Home::new().with_test_program();
    let mut console = Console::new(&home);
    let mut running = BackgroundRun::start(&home, hangs_once(), &[]);
    running.wait_for("called");
    let id = running.session.clone();
    running.signal(Signal::INT);
    assert_eq!(running.end().0, 130);
    let (folder, brigade) = (home.home(), env!("CARGO_BIN_EXE_brigade"));
    let command =
        format!("BRIGADE_HOME='{}' '{brigade}' resume {id} 2>&1; echo \"exit $?\"", folder.display());
    let script = Script::new().turns([call("shell", json!({ "command": command })), reply("{result:0}")]);
    console.add(home.run(script, &["--mode", "auto"]).exits_with(0));
    insta::assert_snapshot!(console.text());
}
