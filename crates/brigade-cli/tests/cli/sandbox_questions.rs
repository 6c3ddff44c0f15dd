//! Connections of commands in a sandbox that wait for the user's answer.
//!
//! No name below `.invalid` exists. A connection that the user allowed fails when the name is resolved, and one that was
//! denied fails before.

use std::time::Duration;

use brigade_testing::{Reply, Script, call, reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli::sandbox_network::{probe, probes};
use crate::cli::support::{BackgroundRun, Home, text};

const ON: [&str; 6] =
    ["--set", "sandbox.mode=workspace", "--set", "permissions.questions=wait", "--mode", "auto"];

const HOST: &str = "registry.invalid:443";
const DENIED: &str =
    "cannot connect to `registry.invalid:443`: the connection was not approved. Continue without this host.";
const ALLOWED: &str = "cannot connect to `registry.invalid:443`: the name";

fn shell(command: &str) -> Reply {
    call("shell", json!({ "command": command }))
}

fn one(command: &str) -> Script {
    Script::new().turns([shell(command), reply("{results}")])
}

/// Starts a run and waits for its question.
fn asking(home: &Home, script: Script) -> BackgroundRun {
    let mut running = BackgroundRun::start(home, script, &ON);
    let asked = running.wait_for("host_asked");
    assert_eq!(asked["host"], HOST, "{asked}");
    running
}

/// Result of the last round.
fn result(lines: &[Value]) -> String {
    let end = lines.iter().rev().find(|line| line["type"] == "ended").unwrap();
    end["outcome"]["text"].as_str().unwrap().to_owned()
}

fn count(lines: &[Value], kind: &str) -> usize {
    lines.iter().filter(|line| line["type"] == kind).count()
}

#[test]
fn held_connection_is_answered_by_another_process() {
    let connect = format!("connect {HOST}");
    let twice = probes(&[&connect, &connect]);
    for (words, allowed) in
        [(&["yes"][..], true), (&["always"], true), (&["no"], false), (&["no", "use the mirror"], false)]
    {
        let home = Home::outside_tmp().with_test_program();
        let script = Script::new().turns([shell(&twice), shell(&probe(&connect)), reply("{results}")]);
        let mut running = asking(&home, script);
        let session = running.session.clone();
        let name = format!("{session}:1-0:{HOST}");
        let listed = home.brigade(&["answer", &session]);
        listed
            .exits_with(0)
            .stdout_contains(&format!("lead wants to connect to {HOST} (running: a command)"));
        listed.stdout_contains(&format!("brigade answer {name} yes|always|no [REASON]"));
        listed.stdout_contains(&format!("\"always\" allows {HOST}"));
        listed
            .stdout_contains("the sandbox does not allow this host")
            .stdout_contains("cli::sandbox_network::entry");
        let listed = home.brigade(&["--output-format", "json", "answer", &name]).json();
        let question = &listed["questions"][0];
        assert_eq!(question["question"], name, "{listed}");
        assert_eq!((&question["host"], &question["always"]), (&json!(HOST), &json!(HOST)), "{listed}");
        assert_eq!(question["tool"], "shell");
        let other = home.brigade(&["answer", &name, "always", "shell"]);
        other.exits_with(2).stderr_contains(&format!("the approval request is for `{HOST}`"));
        let given = home.brigade(&[&["answer", name.as_str()], words].concat());
        let confirmed = match words {
            ["yes"] => format!("lead may connect to {HOST} during this call."),
            ["always"] => format!("lead may connect to {HOST}. Always allowed from now on: {HOST}."),
            ["no"] => format!("lead may not connect to {HOST}."),
            _ => format!("lead may not connect to {HOST}: use the mirror"),
        };
        given.exits_with(0).stderr_contains(&confirmed);
        // The second call asks again, unless the host is always allowed.
        if words != ["always"] {
            running.wait_for("host_asked");
            home.brigade(&["answer", "last", "no"]).exits_with(0);
        }
        let (code, lines, _) = running.end();
        assert_eq!(code, 0, "{lines:?}");
        let shown = home.brigade(&["sessions", "show", &session, "--full"]);
        shown.exits_with(0).stdout_contains(&format!("approval requested: connect to {HOST}"));
        let text = shown.stdout.clone();
        let expected = if allowed { ALLOWED } else { DENIED };
        let found: Vec<&str> =
            text.lines().filter_map(|line| Some(line.split_once("│ probe: ")?.1)).collect();
        assert!(found[..2].iter().all(|line| line.starts_with(expected)), "{words:?}: {text}");
        let last = if words == ["always"] { ALLOWED } else { DENIED };
        assert!(found[2].starts_with(last), "{words:?}: {text}");
        let reason = format!("(the user denied the connection to {HOST}: use the mirror)");
        assert_eq!(text.contains(&reason), words.len() == 2, "{text}");
        let late = home.brigade(&["answer", &name, "yes"]);
        late.exits_with(1).stderr_contains("no pending approval requests");
    }
}

#[test]
fn hosts_are_denied_at_once_without_a_user() {
    let home = Home::outside_tmp().with_test_program();
    let mut arguments = ON.to_vec();
    arguments[3] = "permissions.questions=refuse";
    let running = BackgroundRun::start(&home, one(&probe(&format!("connect {HOST}"))), &arguments);
    let (code, lines, _) = running.end();
    assert_eq!((code, count(&lines, "host_asked")), (0, 0), "{lines:?}");
    assert!(!result(&lines).contains(ALLOWED), "{lines:?}");
}

#[test]
fn expired_question_denies_the_host() {
    let home = Home::outside_tmp().with_test_program();
    let arguments = [&ON[..], &["--set", "limits.question_timeout=1s"]].concat();
    let running = BackgroundRun::start(&home, one(&probe(&format!("connect {HOST}"))), &arguments);
    let (code, lines, _) = running.end();
    assert_eq!((code, count(&lines, "host_asked"), count(&lines, "host_answered")), (0, 1, 1), "{lines:?}");
    let text = result(&lines);
    assert!(text.contains(DENIED), "{text}");
    assert!(text.contains(&format!("(the request to connect to {HOST} timed out)")), "{text}");
}

#[test]
fn killed_run_leaves_no_question_and_does_not_repeat_the_command() {
    let home = Home::outside_tmp().with_test_program();
    let command =
        format!("echo ran >> ran; {}; sleep 600; echo end >> ran", probe(&format!("connect {HOST}")));
    let running = asking(&home, one(&command));
    let session = running.session.clone();
    running.signal(Signal::KILL);
    running.end();
    let resumed = home.brigade(&["resume", &session]);
    resumed.exits_with(0).stdout_contains("interrupted, outcome unknown");
    assert_eq!(text(home.work().join("ran")), "ran\n");
    home.brigade(&["answer", &session]).exits_with(0).stderr_contains("No pending approval requests");
    let shown = home.brigade(&["sessions", "show", &session, "--full"]);
    shown.exits_with(0).stdout_contains("denied (by the end of the call)");
}

#[test]
fn cancelled_run_closes_its_question() {
    let home = Home::outside_tmp().with_test_program();
    let running = asking(&home, one(&probe(&format!("connect {HOST}"))));
    home.brigade(&["cancel", &running.session]).exits_with(0);
    let (code, lines, _) = running.end();
    assert_eq!((code, count(&lines, "host_answered")), (130, 1), "{lines:?}");
}

#[test]
fn time_limit_of_a_command_waits_for_the_answer() {
    let home = Home::outside_tmp().with_test_program();
    let limited = |command: &str, seconds: u64| {
        let arguments = json!({ "command": command, "timeout_seconds": seconds });
        Script::new().turns([call("shell", arguments), reply("{results}")])
    };
    let running = asking(&home, limited(&format!("{}; echo over", probe(&format!("connect {HOST}"))), 5));
    std::thread::sleep(Duration::from_secs(6));
    home.brigade(&["answer", &running.session, "yes"]).exits_with(0);
    let text = result(&running.end().1);
    assert!(text.contains(ALLOWED) && text.contains("over"), "{text}");
    // Without a question, the limit holds.
    let (_, lines, _) = BackgroundRun::start(&home, limited("echo begin; sleep 600", 1), &ON).end();
    let text = result(&lines);
    assert!(text.starts_with("begin\n") && text.contains("(timed out after 1 seconds)"), "{text}");
}

#[test]
fn notify_names_the_host() {
    let home = Home::outside_tmp().with_test_program();
    let file = home.work().join("events");
    let command =
        format!("printf '%s\\n' \"$NOTIFY_EVENT|$NOTIFY_MESSAGE|$NOTIFY_QUESTION\" >> {}", file.display());
    home.write("home/config.toml", &format!("notify = '''{command}'''\n"));
    let running = asking(&home, one(&probe(&format!("connect {HOST}"))));
    home.brigade(&["answer", "last", "no"]).exits_with(0);
    let session = running.session.clone();
    running.end();
    let events = text(&file);
    let asked =
        format!("question|lead wants to connect to {HOST} (running: a command)|{session}:1-0:{HOST}\n");
    assert!(events.starts_with(&asked), "{events}");
}
