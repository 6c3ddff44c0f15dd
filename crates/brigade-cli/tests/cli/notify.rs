//! The program in `notify`.

use std::time::{Duration, Instant};

use crate::support::{Done, Home, Running, text};

const SAYS: &str = "[[reply]]\ntext = \"All is well.\\nMore.\"";

/// A home whose `notify` appends what happened to a file, and that file.
fn noting(home: &Home, what: &str) -> std::path::PathBuf {
    let file = home.work().join("events");
    let command = format!("printf '%s\\n' \"{what}\" >> {}", file.display());
    home.write("home/config.toml", &format!("notify = '''{command}'''\n"));
    file
}

#[test]
fn the_end_of_a_run_and_a_question_start_the_program() {
    let home = Home::new();
    let events = noting(
        &home,
        "$NOTIFY_EVENT|$NOTIFY_TITLE|$NOTIFY_AGENT|$NOTIFY_STATUS|$NOTIFY_COUNT|$NOTIFY_MESSAGE",
    );
    home.run(SAYS, &[]).exits(0).prints("All is well.");
    assert_eq!(text(&events), "run_ended|brigade: run done|lead|done||All is well.\n");
    std::fs::remove_file(&events).unwrap();
    let script = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'shell'\narguments = { command = 'touch x' }\n\
                  [[reply]]\nfault = 'refused'";
    let mut running =
        Running::start(&home, script, &["--set", "permissions.questions=wait", "--mode", "ask"]);
    running.wait_for("asked");
    let since = Instant::now();
    while !events.exists() {
        assert!(since.elapsed() < Duration::from_secs(20), "the program was not started");
        std::thread::sleep(Duration::from_millis(20));
    }
    home.brigade(&["answer", &running.session, "yes"]).exits(0);
    running.end();
    let events = text(&events);
    let asked = "question|brigade: a question waits|lead||1|lead wants to run `touch x`\n";
    assert!(events.starts_with(asked), "{events}");
    assert!(events[asked.len()..].starts_with("run_ended|brigade: run failed|lead|failed||"), "{events}");
}

#[test]
fn the_program_gets_no_secret_and_no_word_of_a_model_is_run() {
    let home = Home::new();
    let events = home.work().join("events");
    let command = format!("env > {}; : \"$NOTIFY_MESSAGE\"", events.display());
    home.write("home/config.toml", &format!("notify = '''{command}'''\n"));
    let model = home.script("[[reply]]\ntext = \"$(touch harm)`touch harm`\\u001b[2J\"");
    let mut command = home.command(&["run", "--model", &model, "the task"]);
    command.env("OPENAI_API_KEY", "sk-secret").env("BRIGADE_SWARM__MAX_DEPTH", "2");
    Done::of(command.output().unwrap()).exits(0);
    let seen = text(&events);
    assert!(seen.contains("NOTIFY_MESSAGE=$(touch harm)`touch harm`\\u{1b}[2J\n"), "{seen}");
    assert!(seen.contains("PATH="), "{seen}");
    assert!(!seen.contains("sk-secret") && !seen.contains("BRIGADE_"), "{seen}");
    assert!(!home.work().join("harm").exists());
}

#[test]
fn a_program_that_fails_or_hangs_changes_nothing_but_a_warning() {
    let home = Home::new();
    home.write("home/config.toml", "notify = 'echo no display >&2; exit 3'\n");
    let done = home.run(SAYS, &[]);
    done.exits(0).prints("All is well.");
    done.says("warning: the program in `notify` failed: it exited with code 3: no display");
    home.write("home/config.toml", "notify = 'sleep 600'\n");
    let since = Instant::now();
    let done = home.run(SAYS, &[]);
    done.exits(0).prints("All is well.").says("it took longer than 10 seconds and was ended");
    assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
}

#[test]
fn without_the_setting_nothing_is_started() {
    let home = Home::new();
    home.write("home/config.toml", "notify = '  '\n");
    let done = home.run(SAYS, &[]);
    done.exits(0);
    assert!(!done.stderr.contains("notify"), "{}", done.stderr);
}
