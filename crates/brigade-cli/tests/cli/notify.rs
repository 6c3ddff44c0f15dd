//! The program in `notify`.

use std::time::{Duration, Instant};

use brigade_testing::{Fault, Script, call, fault};
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{BackgroundRun, CommandResult, Home, text};

fn says() -> Script {
    Script::new().reply("All is well.\nMore.")
}

/// Home whose `notify` program appends events to a file, and that file.
fn recording_notify(home: &Home, what: &str) -> std::path::PathBuf {
    let file = home.work().join("events");
    let command = format!("printf '%s\\n' \"{what}\" >> {}", file.display());
    home.write("home/config.toml", &format!("notify = '''{command}'''\n"));
    file
}

#[test]
fn notify_runs_at_an_approval_and_at_the_end() {
    let home = Home::new();
    let events = recording_notify(
        &home,
        "$NOTIFY_EVENT|$NOTIFY_TITLE|$NOTIFY_AGENT|$NOTIFY_STATUS|$NOTIFY_COUNT|$NOTIFY_MESSAGE",
    );
    home.run(says(), &[]).exits_with(0).stdout_contains("All is well.");
    assert_eq!(text(&events), "run_ended|brigade: run done|lead|done||All is well.\n");
    std::fs::remove_file(&events).unwrap();
    let script = Script::new().turns([call("shell", json!({ "command": "touch x" })), fault(Fault::Refused)]);
    let mut running =
        BackgroundRun::start(&home, script, &["--set", "permissions.questions=wait", "--mode", "ask"]);
    running.wait_for("asked");
    let since = Instant::now();
    while !events.exists() {
        assert!(since.elapsed() < Duration::from_secs(20), "the program was not started");
        std::thread::sleep(Duration::from_millis(20));
    }
    home.brigade(&["answer", &running.session, "yes"]).exits_with(0);
    running.end();
    let events = text(&events);
    let asked = "question|brigade: approval required|lead||1|lead wants to run `touch x`\n";
    assert!(events.starts_with(asked), "{events}");
    assert!(events[asked.len()..].starts_with("run_ended|brigade: run failed|lead|failed||"), "{events}");
}

#[test]
fn notify_gets_no_secrets_and_runs_no_model_text() {
    let home = Home::new();
    let events = home.work().join("events");
    let command = format!("env > {}; : \"$NOTIFY_MESSAGE\"", events.display());
    home.write("home/config.toml", &format!("notify = '''{command}'''\n"));
    let model = home.script(Script::new().reply("$(touch harm)`touch harm`\u{1b}[2J"));
    let mut command = home.command(&["run", "--model", &model, "the task"]);
    command.env("OPENAI_API_KEY", "sk-secret").env("BRIGADE_SWARM__MAX_DEPTH", "2");
    CommandResult::run(&mut command).exits_with(0);
    let seen = text(&events);
    assert!(seen.contains("NOTIFY_MESSAGE=$(touch harm)`touch harm`\\u{1b}[2J\n"), "{seen}");
    assert!(seen.contains("PATH="), "{seen}");
    assert!(!seen.contains("sk-secret") && !seen.contains("BRIGADE_"), "{seen}");
    assert!(!home.work().join("harm").exists());
}

#[test]
fn failing_notify_program_only_prints_a_warning() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.toml", "notify = 'echo no display >&2; exit 3'\n");
    let done = home.run(says(), &[]);
    console.add(done.exits_with(0));
    home.write("home/config.toml", "notify = 'sleep 600'\n");
    let since = Instant::now();
    let done = home.run(says(), &[]);
    console.add(done.exits_with(0));
    assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
    insta::assert_snapshot!(console.text());
}

#[test]
fn notify_unset_starts_nothing() {
    let home = Home::new();
    home.write("home/config.toml", "notify = '  '\n");
    let done = home.run(says(), &[]);
    done.exits_with(0);
    assert!(!done.stderr.contains("notify"), "{}", done.stderr);
}
