//! `brigade demo`: the refusal, the budget, the kill and the resume are real, and nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cli::support::{CommandResult, Home, text};

/// Runs the demo with the folder of the test for its temporary files.
fn demo(home: &Home, arguments: &[&str]) -> CommandResult {
    let all = [&["demo"], arguments].concat();
    CommandResult::of(home.command(&all).env("TMPDIR", home.work()).output().unwrap())
}

/// The folder that the demo has left.
fn kept(home: &Home) -> PathBuf {
    let mut left = entries(&home.work());
    assert_eq!(left.len(), 1, "{left:?}");
    left.remove(0)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// All events of the session in a kept folder.
fn events(home: &Home, folder: &Path) -> Vec<Value> {
    let store = folder.join("sessions.db");
    let store = store.to_str().unwrap();
    let export = ["sessions", "export", "last", "--format", "jsonl", "--store", store];
    home.brigade(&export).exits_with(0).lines()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"]["type"] == kind).collect()
}

/// Number of leases that the session has had: one for each process that ran it.
fn leases(folder: &Path) -> u64 {
    let store = rusqlite::Connection::open(folder.join("sessions.db")).unwrap();
    store.query_row("SELECT max(epoch) FROM leases", [], |row| row.get(0)).unwrap()
}

/// The number after some words.
#[track_caller]
fn number_after(text: &str, words: &str) -> u32 {
    let (_, after) = text.split_once(words).unwrap_or_else(|| panic!("no `{words}` in {text}"));
    after.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn demo_shows_each_promise_and_leaves_nothing_behind() {
    let home = Home::new();
    let since = Instant::now();
    let done = demo(&home, &[]);
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    done.exits_with(0).stdout_contains("The project is fixed").stdout_contains("\n0 failed");
    for shown in [
        "its prices are invented",
        "[Writer]: ",
        "Scout was granted grep, list_dir, read_file. Its call to shell was refused: \"Unknown tool `shell`.",
        " (SIGKILL) while Fixer was running ./test.sh 8.",
        "resumes the run from the session log.",
        "  parallel Sub-agents work at the same time: 3 of them did ",
        "  tools    No agent can use a tool that it was not granted: Scout was granted",
        "  budget   All calls are charged to one budget: $0.0",
        "(invented prices)",
        "  crash    A killed run can be resumed: its process was killed while Fixer was running ./test.sh 8,",
        "another process finished the run (done).",
        "recorded replies, none was requested again; of 4 edits and commands, none was run again.",
        "The project and its session were removed. Use --keep to keep them.",
    ] {
        done.stderr_contains(shown);
    }
    assert_eq!(entries(&home.work()), [] as [PathBuf; 0]);
    assert_eq!(home.files(), [] as [PathBuf; 0], "the demo writes nothing to the user's folders");
}

#[test]
fn demo_budgets_add_up_and_nothing_stays_reserved() {
    let done = demo(&Home::new(), &[]);
    let lines: Vec<&str> = done.stderr.lines().filter(|line| line.contains(" reserved + ")).collect();
    let [at_kill, at_end] = lines[..] else { panic!("{lines:?}") };
    for line in [at_kill, at_end] {
        let amounts = line.split(|c: char| !c.is_ascii_digit() && c != '.');
        let amounts: Vec<f64> = amounts.filter_map(|word| word.trim_end_matches('.').parse().ok()).collect();
        let [spent, reserved, left, whole, tokens @ ..] = &amounts[..] else { panic!("{line}") };
        assert!((spent + reserved + left - whole).abs() < 1e-9 && *spent > 0.0, "{line}");
        assert!(tokens[0] + tokens[1] + tokens[2] == tokens[3] && tokens[0] > 0.0, "{line}");
        assert_eq!(line == at_kill, *reserved > 0.0, "{line}");
        assert_eq!(line == at_kill, tokens[1] > 0.0, "{line}");
    }
}

#[test]
fn demo_process_is_killed_and_another_resumes_without_repeating_anything() {
    let home = Home::new();
    let done = demo(&home, &["--keep"]);
    let folder = kept(&home);
    done.exits_with(0).stderr_contains(&format!("The project and its session are in {}", folder.display()));
    let killed = number_after(&done.stderr, "Killed process ");
    let resumed = number_after(&done.stderr, "\nProcess ");
    assert_ne!(killed, resumed);
    assert_eq!(leases(&folder), 2);

    let events = events(&home, &folder);
    assert!(!of_kind(&events, "resumed").is_empty());
    let output = |event: &&&Value| event["event"]["output"]["text"].to_string().contains("\"interrupted, ");
    let interrupted: Vec<&Value> = of_kind(&events, "tool_ended").iter().filter(output).copied().collect();
    assert_eq!(interrupted.len(), 1, "{interrupted:?}");
    assert!(interrupted[0]["session"].as_str().unwrap().ends_with(".2-1"), "{interrupted:?}");
    // The script of the model is the witness: each request reached it once.
    let requests = text(folder.join("requests.log"));
    let unique: BTreeSet<&str> = requests.lines().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!((requests.lines().count(), unique.len()), (15, 15), "{requests}");
    let mut starts: BTreeMap<String, u32> = BTreeMap::new();
    for event in of_kind(&events, "tool_started") {
        if event["event"]["effect"] != "pure" {
            *starts.entry(format!("{} {}", event["session"], event["event"]["call"])).or_default() += 1;
        }
    }
    assert_eq!(starts.values().copied().collect::<Vec<_>>(), [1; 5], "{starts:?}");
}

#[test]
fn demo_without_a_crash_runs_in_one_process() {
    let home = Home::new();
    let done = demo(&home, &["--no-crash", "--keep"]);
    done.exits_with(0).stderr_contains("  tools ").stderr_contains("  budget ");
    for absent in ["Killed", "  crash ", "  resume ", "resumes the run"] {
        assert!(!done.stderr.contains(absent), "{absent} in {}", done.stderr);
    }
    let folder = kept(&home);
    assert_eq!(leases(&folder), 1);
    assert_eq!(of_kind(&events(&home, &folder), "resumed"), [] as [&Value; 0]);
}

#[test]
fn kept_session_can_be_read_and_continued() {
    let home = Home::new();
    let done = demo(&home, &["--no-crash", "--keep"]);
    let folder = kept(&home);
    let store = folder.join("sessions.db");
    let store = store.to_str().unwrap();
    let (_, command) = done.stderr.split_once("To inspect the run: brigade ").unwrap();
    let words: Vec<&str> = command.lines().next().unwrap().split(' ').collect();
    home.brigade(&words).exits_with(0).stdout_contains("└─ Writer");
    let id = words[2];
    home.brigade(&["sessions", "show", &format!("{id}.2-1"), "--store", store])
        .exits_with(0)
        .stdout_contains("`old` does not occur");
    home.brigade(&["tell", id, "thanks", "--store", store]).exits_with(0).stdout_contains("thanks");
}

#[test]
fn demo_output_formats_keep_notes_out_of_standard_output() {
    let home = Home::new();
    let report = demo(&home, &["--output-format", "json"]);
    assert_eq!(report.exits_with(0).json()["status"], "done");
    report.stderr_contains("Killed process ").stderr_contains("  resume ");
    let stream = demo(&home, &["--output-format", "stream-json"]);
    let lines = stream.exits_with(0).lines();
    assert_eq!(lines.last().unwrap()["type"], "result");
    assert_eq!(lines.iter().filter(|line| line["type"] == "result").count(), 1);
    assert!(lines.iter().any(|line| line["type"] == "resumed"));
    stream.stderr_contains("Killed process ");
    assert_eq!(entries(&home.work()), [] as [PathBuf; 0]);
}

#[test]
fn demo_refuses_a_store_of_the_user() {
    let done = demo(&Home::new(), &["--store", "here.db"]);
    done.exits_with(2).stderr_contains("cannot use --store with the demo").stderr_contains("--keep");
}

/// Starts the demo and waits for words on standard error.
fn start_until(home: &Home, words: &str) -> Child {
    let mut child = home.command(&["demo"]).env("TMPDIR", home.work()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "the demo ended before `{words}`");
    }
    // The rest is read, so that writing it does not fail.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    child
}

/// Processes that were started with a folder in their command line, or that work in it.
fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let found = |entry: PathBuf| {
        let command = std::fs::read(entry.join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let works_there = std::fs::read_link(entry.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        (command.contains(folder) || works_there).then(|| format!("{} {command}", entry.display()))
    };
    let is_process = |entry: &PathBuf| {
        let name = entry.file_name().unwrap().to_string_lossy();
        name.bytes().all(|byte| byte.is_ascii_digit()) && *name != *std::process::id().to_string()
    };
    entries(Path::new("/proc")).into_iter().filter(is_process).filter_map(found).collect()
}

#[track_caller]
fn wait_until_no_process_is_in(folder: &Path) {
    let since = Instant::now();
    loop {
        let left = processes_in(folder);
        if left.is_empty() {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(10), "{left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

#[test]
fn signals_end_the_demo_without_a_trace() {
    for (words, sent) in [
        ("Task: ", Signal::INT),
        ("lead -> Fixer", Signal::INT),
        ("Killed process", Signal::TERM),
        ("resumes the run", Signal::INT),
        ("lead -> Fixer", Signal::HUP),
    ] {
        let home = Home::new();
        let mut child = start_until(&home, words);
        if words.starts_with("lead") {
            let folder = kept(&home);
            assert!(!processes_in(&folder).is_empty(), "the worker has the folder in its command line");
        }
        signal(&child, sent);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{words}");
        assert_eq!(entries(&home.work()), [] as [PathBuf; 0], "{words}");
        wait_until_no_process_is_in(&home.work());
    }
}

#[test]
fn killed_demo_takes_its_worker_with_it() {
    let home = Home::new();
    let mut child = start_until(&home, "lead -> Fixer");
    let folder = kept(&home);
    assert!(!processes_in(&folder).is_empty());
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    wait_until_no_process_is_in(&folder);
    // The worker did not just finish its work.
    assert_eq!(of_kind(&events(&home, &folder), "returned"), [] as [&Value; 0]);
}
