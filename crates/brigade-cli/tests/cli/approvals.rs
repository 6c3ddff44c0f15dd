//! Approval requests, listed and answered without a terminal.

use brigade_testing::{Fault, Script, call, fault, reply};
use serde_json::{Value, json};

use crate::cli::console::Console;
use crate::cli::support::{BackgroundRun, Home};

const WAIT: [&str; 4] = ["--set", "permissions.questions=wait", "--mode", "ask"];

/// Script of one agent that makes one call.
fn calling_script(tool: &str, arguments: Value) -> Script {
    Script::new().turns([call(tool, arguments), reply("done: {results}")])
}

#[test]
fn answer_offers_always_only_if_a_rule_covers_the_call() {
    let home = Home::new();
    let mut console = Console::new(&home);
    for (command, has_rule) in [("touch x", true), ("touch x && touch y", false)] {
        let script = calling_script("shell", json!({ "command": command }));
        let mut running = BackgroundRun::start(&home, &script, &WAIT);
        running.wait_for("asked");
        let open = home.brigade(&["answer", &running.session]);
        console.add(open.exits_with(0));
        if !has_rule {
            let refused = home.brigade(&["answer", &running.session, "always"]);
            console.add(refused.exits_with(2));
        }
        console.add(home.brigade(&["answer", "last", "maybe"]).exits_with(2));
        home.brigade(&["answer", &running.session, "no"]).exits_with(0);
        assert_eq!(running.end().0, 0);
    }
    insta::assert_snapshot!(console.text());
}

#[test]
fn without_an_id_the_questions_of_all_sessions_are_listed() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.brigade(&["answer"]).exits_with(0));
    let ended = home.report(Script::new().reply("done"), &[]);
    let ended = ended["session_id"].as_str().unwrap();
    console.add(home.brigade(&["answer", "last"]).exits_with(0).stderr_contains(ended));
    console.add(home.brigade(&["answer", "last", "yes"]).exits_with(1).stderr_contains(ended));
    let running = ["touch x", "touch y"].map(|command| {
        let script = calling_script("shell", json!({ "command": command }));
        let mut running = BackgroundRun::start(&home, &script, &WAIT);
        running.wait_for("asked");
        running
    });
    let listed = home.brigade(&["answer"]);
    console.add(listed.exits_with(0));
    for (running, command) in running.iter().zip(["touch x", "touch y"]) {
        listed.stdout_contains(command).stdout_contains(&format!("brigade answer {}:", running.session));
    }
    let json = home.brigade(&["answer", "--output-format", "json"]).json();
    assert_eq!(json["questions"].as_array().unwrap().len(), 2, "{json}");
    for running in running {
        home.brigade(&["answer", &running.session, "no"]).exits_with(0);
        assert_eq!(running.end().0, 0);
    }
    console.add(home.brigade(&["answer"]).exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn answer_prints_a_confirmation() {
    let home = Home::new();
    let mut console = Console::new(&home);
    for words in [&["yes"][..], &["always"], &["no"], &["no", "use", "make"]] {
        let mut running =
            BackgroundRun::start(&home, calling_script("shell", json!({ "command": "touch x" })), &WAIT);
        running.wait_for("asked");
        let done = home.brigade(&[&["answer", running.session.as_str()], words].concat());
        console.add(done.exits_with(0));
        assert!(!done.stderr.contains(&running.session), "{}", done.stderr);
        assert_eq!(running.end().0, 0);
    }
    insta::assert_snapshot!(console.text());
}

#[test]
fn answer_json_contains_the_diff_of_an_edit() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("work/a.txt", "one\ntwo\n");
    let script = calling_script(
        "edit_file",
        json!({ "path": "a.txt", "old": "two", "new": "three", "replace_all": false }),
    );
    let mut running = BackgroundRun::start(&home, &script, &WAIT);
    running.wait_for("asked");
    let listed = home.brigade(&["--output-format", "json", "answer", &running.session]).json();
    assert_eq!(listed["questions"][0]["diff"], "@@ -1,2 +1,2 @@\n one\n-two\n+three\n");
    console.add(home.brigade(&["answer", &running.session]).exits_with(0));
    console.add(home.brigade(&["answer", &running.session, "no"]).exits_with(0));
    assert_eq!(running.end().0, 0);
    insta::assert_snapshot!(console.text());
}

#[test]
fn messages_name_sessions_by_agent_and_task() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let mut running = BackgroundRun::start(&home, Script::new().reply(fault(Fault::Hang)), &[]);
    running.wait_for("called");
    let told = home.brigade(&["tell", &running.session, "hurry"]);
    console.add(told.exits_with(0));
    let stopped = home.brigade(&["cancel", &running.session]);
    console.add(stopped.exits_with(0));
    for done in [told, stopped] {
        assert!(!done.stderr.contains(&running.session), "{}", done.stderr);
    }
    assert_eq!(running.end().0, 130);
    insta::assert_snapshot!(console.text());
}
