//! `brigade resume`: after Ctrl-C, and without an id.

use rustix::process::Signal;

use crate::support::{Done, Home, Running};

/// Hangs in its first model call, and answers every other one.
const HANGS_ONCE: &str =
    "[[reply]]\nturn = 1\nattempt = 1\nfault = 'hang'\n[[reply]]\ntext = 'finished: {heard}'";
const CONTINUES: &str =
    "finished: Note from the runtime: Your last round was stopped before it was finished. Continue";

#[test]
fn resume_continues_a_run_that_an_interrupt_stopped() {
    let home = Home::new();
    let mut running = Running::start(&home, HANGS_ONCE, &[]);
    running.wait_for("called");
    let id = running.session.clone();
    running.signal(Signal::INT);
    assert_eq!(running.end().0, 130);
    home.brigade(&["resume", &id]).exits(0).prints(CONTINUES);
    // Now it is done: the result is printed again, and nothing is asked.
    home.brigade(&["resume", &id]).exits(0).prints(CONTINUES);
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]).exits(0).json();
    assert_eq!((&list[0]["state"], &list[0]["turns"]), (&"done".into(), &1.into()));
}

#[test]
fn resume_continues_a_run_that_a_second_interrupt_left() {
    let home = Home::new();
    let mut running = Running::start(&home, HANGS_ONCE, &[]);
    running.wait_for("called");
    let id = running.session.clone();
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, 130);
    home.brigade(&["resume", &id]).exits(0).prints(CONTINUES);
}

#[test]
fn resume_without_an_id_takes_the_last_session_of_the_folder() {
    let home = Home::new();
    let other = home.work().join("other");
    std::fs::create_dir(&other).unwrap();
    home.brigade(&["resume"]).exits(2).says("there is no session in ").says("brigade run \"TASK\"");
    let here = home.report("[[reply]]\ntext = 'from here'", &[]);
    let there = home.report("[[reply]]\ntext = 'from there'", &["--cwd", "other"]);
    let id = |report: &serde_json::Value| report["session_id"].as_str().unwrap().to_owned();
    home.brigade(&["resume"]).exits(0).prints("from here").says(&format!("Resuming {}: the task", id(&here)));
    let elsewhere = Done::of(home.command(&["resume"]).current_dir(&other).output().unwrap());
    elsewhere.exits(0).prints("from there").says(&id(&there));
    home.brigade(&["resume", "--cwd", "other"]).exits(0).prints("from there");
}

#[test]
fn commands_for_later_repeat_no_flag_that_the_session_remembers() {
    let home = Home::new();
    std::fs::create_dir(home.work().join("other")).unwrap();
    let done = home.run(
        "[[reply]]\nfault = 'refused'",
        &["--cwd", "other", "--mode", "plan", "--set", "swarm.max_depth=2"],
    );
    let command = done.exits(1).stderr.lines().find(|line| line.contains("brigade resume ")).unwrap();
    assert!(command.ends_with(" --set swarm.max_depth=2"), "{command}");
    assert!(!command.contains("--cwd") && !command.contains("--mode"), "{command}");
    let id = done.stderr.split_whitespace().find(|word| word.len() == 26).unwrap();
    let shown = home.brigade(&["sessions", "show", id, "--output-format", "json"]).exits(0).json();
    let first = shown["records"][0].clone();
    // The mode and the folder are really remembered: the next round has the authority of the first.
    home.brigade(&["resume", id, "--set", "swarm.max_depth=2"]).exits(1);
    let shown = home.brigade(&["sessions", "show", id, "--output-format", "json"]).exits(0).json();
    let records = shown["records"].as_array().unwrap();
    let again = records.iter().rfind(|record| record["type"] == "started").unwrap();
    assert_ne!(again["seq"], first["seq"]);
    assert_eq!(again["grant"]["authority"], first["grant"]["authority"]);
}

#[test]
fn an_agent_does_not_continue_what_the_user_stopped() {
    let home = Home::new();
    let mut running = Running::start(&home, HANGS_ONCE, &[]);
    running.wait_for("called");
    let id = running.session.clone();
    running.signal(Signal::INT);
    assert_eq!(running.end().0, 130);
    let (folder, brigade) = (home.home(), env!("CARGO_BIN_EXE_brigade"));
    let command =
        format!("BRIGADE_HOME='{}' '{brigade}' resume {id} 2>&1; echo \"exit $?\"", folder.display());
    let script = format!(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'shell'\narguments = {{ command = '''{command}''' }}\n\
         [[reply]]\ntext = '{{result:0}}'"
    );
    home.run(&script, &["--mode", "auto"]).exits(0).prints("cancelled by the person").prints("exit 130");
}
