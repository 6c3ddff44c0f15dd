//! Stores and exports written by version 0.1.0. Every later version must list, show, export, import and resume them,
//! and send messages to them. `tests/golden/record` documents the recording; they are never recorded again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use brigade_core::Event;
use serde_json::Value;

use crate::cli::support::{CommandResult, Home, text};
use kept::lost;

#[path = "../../../brigade-core/tests/laws/golden/kept.rs"]
mod kept;

/// Name of each export, the script that its sessions were recorded with, and the state of its root.
const RECORDED: [(&str, &str, &str); 19] = [
    ("after-edit", "edit", "interrupted"),
    ("answered", "question", "done"),
    ("before-edit", "edit", "interrupted"),
    ("cancelled", "hanging", "cancelled"),
    ("detached", "detached", "done"),
    ("external", "external", "done"),
    ("far", "far", "done"),
    ("faults", "faults", "done"),
    ("in-command", "shell", "interrupted"),
    ("in-external-call", "outside", "interrupted"),
    ("in-model-call", "hanging", "interrupted"),
    ("money", "money", "incomplete"),
    ("open", "question", "interrupted"),
    ("overrun", "overrun", "incomplete"),
    ("refused", "refused", "failed"),
    ("resumed", "hanging", "done"),
    ("time", "time", "incomplete"),
    ("turns", "turns", "incomplete"),
    ("whole", "whole", "done"),
];

/// Every kind of event in version 0.1.0.
const KINDS: [&str; 17] = [
    "answered",
    "asked",
    "call_failed",
    "called",
    "cancel_asked",
    "compacted",
    "delegated",
    "ended",
    "heard",
    "limit_reached",
    "replied",
    "resumed",
    "returned",
    "said",
    "started",
    "tool_ended",
    "tool_started",
];

const BEFORE: &str = "one\ntwo\nthree\n";
const AFTER: &str = "one\nTWO\nthree\n";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn exported(name: &str) -> String {
    std::fs::read_to_string(folder().join(format!("exports/{name}.jsonl"))).unwrap()
}

fn lines(export: &str) -> Vec<Value> {
    export.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn root(name: &str) -> String {
    lines(&exported(name))[0]["root"].as_str().unwrap().to_owned()
}

/// Home with the recorded configuration, and a workspace like the recorded one, which no longer exists.
struct Golden {
    home: Home,
}

impl Golden {
    /// Creates a home without sessions.
    fn empty() -> Golden {
        let home = Home::new();
        home.write("home/config.toml", &text(folder().join("home/config.toml")));
        std::fs::create_dir(home.home().join("agents")).unwrap();
        home.write("home/agents/reviewer.md", &text(folder().join("home/agents/reviewer.md")));
        home.write("work/notes.txt", BEFORE);
        Golden { home }
    }

    /// Creates a home with the recorded store.
    fn store() -> Golden {
        let golden = Golden::empty();
        std::fs::copy(folder().join("sessions.db"), golden.home.home().join("sessions.db")).unwrap();
        golden
    }

    /// Command that finds the scripts, and uses this executable as the external agent.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(arguments);
        let programs = PathBuf::from(env!("CARGO_BIN_EXE_brigade"));
        let mut path = vec![programs.parent().unwrap().to_owned()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        command.env("PATH", std::env::join_paths(path).unwrap()).env("GOLDEN", folder());
        command
    }

    fn brigade(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::of(self.command(arguments).output().unwrap())
    }

    /// Runs a command about a session with the current workspace and script.
    fn run(&self, name: &str, arguments: &[&str]) -> CommandResult {
        let (_, script, _) = RECORDED.iter().find(|(known, ..)| *known == name).unwrap();
        let model = format!("script:{}", folder().join(format!("scripts/{script}.toml")).display());
        let work = self.home.work();
        self.brigade(&[arguments, &["--model", &model, "--cwd", work.to_str().unwrap()]].concat())
    }

    fn resume(&self, name: &str) -> CommandResult {
        self.run(name, &["resume", &root(name)])
    }

    fn tell(&self, name: &str) -> CommandResult {
        self.run(name, &["tell", &root(name), "And now?"])
    }

    fn export(&self, id: &str) -> String {
        self.brigade(&["sessions", "export", id]).exits_with(0).stdout.clone()
    }
}

/// Compares a new export with the recorded one. Checksums follow from the other fields.
#[track_caller]
fn assert_same_export(name: &str, now: &str) {
    let (then, now) = (lines(&exported(name)), lines(now));
    assert_eq!(then.len(), now.len(), "{name}");
    for (mut then, now) in then.into_iter().zip(now) {
        then.as_object_mut().unwrap().remove("sum");
        if let Some(what) = lost(&then, &now, "") {
            panic!("{name}: {what} in {now}");
        }
    }
}

#[test]
fn golden_events_round_trip_keep_every_key() {
    let mut kinds = BTreeSet::new();
    for (name, ..) in RECORDED {
        for line in lines(&exported(name)).into_iter().filter(|line| line.get("event").is_some()) {
            let event: Event = serde_json::from_value(line["event"].clone()).unwrap();
            let now = serde_json::to_value(&event).unwrap();
            assert_eq!(lost(&line["event"], &now, ""), None, "{name}: {line}");
            kinds.insert(event.kind());
        }
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), KINDS);
}

#[test]
fn golden_store_lists_every_session_with_its_state() {
    let golden = Golden::store();
    let list = golden.brigade(&["sessions", "list", "--all", "--output-format", "json"]).exits_with(0).json();
    let states: BTreeMap<&str, &str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["session_id"].as_str().unwrap(), entry["state"].as_str().unwrap()))
        .collect();
    for (name, _, state) in RECORDED {
        assert_eq!(states.get(root(name).as_str()), Some(&state), "{name}");
    }
    assert_eq!(states.get(format!("{}.1-0", root("detached")).as_str()), Some(&"interrupted"));
    golden.brigade(&["sessions", "list"]).exits_with(0).stdout_contains("Die in a model call");
    golden
        .brigade(&["sessions", "list", "too long for one event"])
        .exits_with(0)
        .stdout_contains("Do the whole of it");
}

#[test]
fn golden_store_shows_and_draws_every_session() {
    let golden = Golden::store();
    for (name, ..) in RECORDED {
        let lines = lines(&exported(name));
        for started in lines.iter().filter(|line| line["event"]["type"] == "started") {
            let id = started["session"].as_str().unwrap();
            let task = started["event"]["delegation"]["task"].as_str().unwrap();
            golden.brigade(&["sessions", "show", id]).exits_with(0).stdout_contains(task);
        }
        golden.brigade(&["sessions", "tree", &root(name)]).exits_with(0).stdout_contains("lead");
        for format in ["md", "html"] {
            golden.brigade(&["sessions", "export", &root(name), "--format", format]).exits_with(0);
        }
    }
}

#[test]
fn golden_store_exports_are_unchanged() {
    let golden = Golden::store();
    for (name, ..) in RECORDED {
        assert_same_export(name, &golden.export(&root(name)));
    }
}

#[test]
fn golden_exports_imported_are_the_same_sessions() {
    let (there, here) = (Golden::store(), Golden::empty());
    for (name, ..) in RECORDED {
        let (id, file) = (root(name), folder().join(format!("exports/{name}.jsonl")));
        here.brigade(&["sessions", "import", file.to_str().unwrap()]).exits_with(0).stdout_contains(&id);
        assert_same_export(name, &here.export(&id));
        let show = |golden: &Golden| {
            golden.brigade(&["sessions", "show", &id, "--full"]).exits_with(0).stdout.clone()
        };
        assert_eq!(show(&here), show(&there), "{name}");
    }
}

#[test]
fn golden_exports_imported_can_be_resumed_and_told() {
    let golden = Golden::empty();
    for (name, ..) in RECORDED {
        let file = folder().join(format!("exports/{name}.jsonl"));
        golden.brigade(&["sessions", "import", file.to_str().unwrap()]).exits_with(0);
    }
    golden.resume("turns").exits_with(0).stdout_contains("Finished after the limit.");
    golden.resume("refused").exits_with(0).stdout_contains("Finished after a failure.");
    golden.tell("whole").exits_with(0).stdout_contains("In round two: And now?");
    golden.tell("external").exits_with(0).stdout_contains("told: And now?");
}

#[test]
fn golden_sessions_ended_by_limit_or_failure_resume_to_the_end() {
    let golden = Golden::store();
    golden.resume("turns").exits_with(0).stdout_contains("Finished after the limit.");
    golden.resume("overrun").exits_with(0).stdout_contains("Finished after the overrun.");
    golden.resume("time").exits_with(0).stdout_contains("Finished in time.");
    golden.resume("money").exits_with(0).stdout_contains("Finished with more money.");
    golden.resume("refused").exits_with(0).stdout_contains("Finished after a failure.");
}

#[test]
fn golden_sessions_of_a_killed_runner_resume_to_the_end() {
    let golden = Golden::store();
    golden.resume("in-model-call").exits_with(0).stdout_contains("The sleeper said: [Sleeper]: awake");
    golden.resume("in-command").exits_with(0).stdout_contains("interrupted, outcome unknown");
    assert!(!golden.home.work().join("log.txt").exists(), "the command ran again");
    golden.resume("in-external-call").exits_with(0).stdout_contains("interrupted, outcome unknown");
    let child = format!("{}.1-0", root("detached"));
    golden.run("detached", &["resume", &child]).exits_with(0).stdout_contains("Ended by myself.");
    let list = golden.brigade(&["sessions", "list", "--all", "--output-format", "json"]).json();
    let is_listed = |id: &String| list.as_array().unwrap().iter().any(|entry| entry["session_id"] == **id);
    assert!(is_listed(&child), "{list}");
}

#[test]
fn golden_interrupted_edits_are_decided_by_content() {
    let golden = Golden::store();
    golden.resume("before-edit").exits_with(0).stdout_contains("Changed notes.txt");
    assert_eq!(text(golden.home.work().join("notes.txt")), AFTER);
    golden.resume("after-edit").exits_with(0).stdout_contains("The edit: notes.txt");
    assert_eq!(text(golden.home.work().join("notes.txt")), AFTER);
}

#[test]
fn golden_pending_approval_answered_now_lets_the_call_run() {
    let golden = Golden::store();
    let id = root("open");
    golden.brigade(&["answer", &id]).exits_with(0).stdout_contains("echo asked");
    golden.brigade(&["answer", &id, "always", "shell(echo *)"]).exits_with(0);
    let done = golden.resume("open");
    done.exits_with(0).stdout_contains("Answered: asked again");
    let show = golden.brigade(&["sessions", "show", &id]);
    show.exits_with(0).stdout_contains("asked again").stdout_contains("rm -r everything");
}

#[test]
fn golden_ended_sessions_accept_new_messages() {
    let golden = Golden::store();
    golden.tell("whole").exits_with(0).stdout_contains("In round two: And now?");
    golden.tell("faults").exits_with(0).stdout_contains("told: And now?");
    golden.tell("answered").exits_with(0).stdout_contains("Answered: ");
    golden
        .tell("cancelled")
        .exits_with(0)
        .stdout_contains("The sleeper said: ")
        .stdout_contains("half of it");
    golden.tell("resumed").exits_with(0).stdout_contains("The sleeper said: ");
    golden.tell("far").exits_with(0).stdout_contains("The far side heard: And now?");
}

#[test]
fn golden_external_agent_is_prompted_again_by_tell() {
    let golden = Golden::store();
    golden.tell("external").exits_with(0).stdout_contains("told: And now?");
    let child = format!("{}.1-0", root("external"));
    golden.run("external", &["tell", &child, "And now?"]).exits_with(0).stdout_contains("And now?");
}
