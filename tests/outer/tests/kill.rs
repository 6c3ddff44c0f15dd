//! `kill -9` at many points of a run with parallel children at several depths, then `brigade resume`.
//!
//! The evidence is external: a file to which each shell call appends its name, and the script's journal with
//! a line for every request that reached the model.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use brigade_outer_tests::{command, processes_with};
use brigade_testing::{Script, call, delegate, reply};
use serde_json::{Value, json};

/// Minimum number of runs that have to be killed.
const MIN_KILLS: u32 = 110;
/// Maximum number of runs. Some end before the signal arrives.
const MAX_RUNS: u32 = 300;

/// Agents whose commands append a name to a file of the workspace.
fn script(file: &Path) -> Script {
    let append =
        |name: &str, then: &str| json!({ "command": format!("echo {name} >> {}{then}", file.display()) });
    Script::new()
        .agent(
            "lead",
            [
                delegate("Left", "left")
                    .delegate("Right", "right")
                    .call("shell", append("lead", "; sleep 0.03"))
                    .delay_ms(10),
                call("write_file", json!({ "path": "lead.txt", "content": "written once" })).delay_ms(10),
                reply("all done").delay_ms(10),
            ],
        )
        .agent(
            "Left",
            [delegate("LeafA", "a").delegate("LeafB", "b").delay_ms(10), reply("left").delay_ms(10)],
        )
        .agent(
            "Right",
            [
                call("shell", append("right", "; (setsid sleep 300 &) ; sleep 0.05")).delay_ms(10),
                reply("right").delay_ms(10),
            ],
        )
        .agent(
            "LeafA",
            [
                call("shell", append("leafA", "; sleep 0.02")).delay_ms(10),
                delegate("Deepest", "d").turn(2).delay_ms(10),
            ],
        )
        .agent("Deepest", [call("shell", append("deepest", "")).turn(1)])
        .reply(reply("{role} is done").delay_ms(10))
}

struct TestEnv {
    folder: tempfile::TempDir,
}

impl TestEnv {
    fn new() -> TestEnv {
        let folder = tempfile::tempdir().unwrap();
        let env = TestEnv { folder };
        std::fs::create_dir(env.path("work")).unwrap();
        let script = script(&env.path("work/count")).journal(&env.path("journal"));
        std::fs::write(env.path("script.toml"), script.to_string()).unwrap();
        env
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> Child {
        let model = format!("script:{}", self.path("script.toml").display());
        command(&self.path("home"))
            .args(["run", "the task", "--mode", "auto", "--set", "swarm.max_depth=3", "--model", &model])
            .args(["--output-format", "json", "--cwd"])
            .arg(self.path("work"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn brigade(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = command(&self.path("home"))
            .args(arguments)
            .args(["--set", "swarm.max_depth=3", "--output-format", "json", "--cwd"])
            .arg(self.path("work"))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn sessions(&self) -> Vec<String> {
        let output = command(&self.path("home"))
            .args(["sessions", "list", "--output-format", "json"])
            .output()
            .unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let rows = list.as_array().cloned().unwrap_or_default();
        rows.iter()
            .filter_map(|row| Some(row.get("session_id").or(row.get("id"))?.as_str()?.to_owned()))
            .collect()
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The events of a whole tree, from its export.
    fn events(&self, root: &str) -> Vec<Value> {
        let output = command(&self.path("home")).args(["sessions", "export", root]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn event(line: &Value) -> Option<&Value> {
    line.pointer("/event").or_else(|| line.pointer("/record/event"))
}

fn session(line: &Value) -> &str {
    line.pointer("/session")
        .or_else(|| line.pointer("/record/session"))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[test]
fn kill_at_many_points_and_resume_repeats_no_completed_work() {
    let mut whole = whole_run();
    let mut killed = 0;
    for run in 0..MAX_RUNS {
        // The golden ratio spreads the kill times evenly, whatever their number.
        let moment = (f64::from(run) * 0.618_033_988_75).fract();
        if one_kill(whole.mul_f64(moment)) {
            killed += 1;
        } else {
            // The run had already ended, because runs are faster than the first one.
            whole = whole.mul_f64(moment.max(0.5));
        }
        if killed == MIN_KILLS {
            return;
        }
    }
    assert!(killed >= MIN_KILLS, "only {killed} runs were hit");
}

fn whole_run() -> Duration {
    let env = TestEnv::new();
    let started = Instant::now();
    let output = env.start().wait_with_output().unwrap();
    let took = started.elapsed();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut count = env.lines("work/count");
    count.sort();
    assert_eq!(count, ["deepest", "lead", "leafA", "right"]);
    took
}

/// Kills a run after this time and resumes it. Returns false if it had already ended.
fn one_kill(after: Duration) -> bool {
    let env = TestEnv::new();
    let mut run = env.start();
    std::thread::sleep(after);
    if run.try_wait().unwrap().is_some() {
        return false;
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&run), rustix::process::Signal::KILL)
        .unwrap();
    run.wait().unwrap();
    let Some(root) = env.sessions().first().cloned() else { return true };
    let replied_before = replied(&env.events(&root));
    let requests_before = requests_per_turn(&env);
    let (code, stdout, stderr) = env.brigade(&["resume", &root]);
    assert_eq!(code, Some(0), "{stderr}");
    let result: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}\n{stderr}"));
    assert_eq!(result["status"], "done", "{result}");
    assert_eq!(result["result"], "all done");
    assert_eq!(std::fs::read_to_string(env.path("work").join("lead.txt")).unwrap(), "written once");
    check_witnesses(&env, &root, &replied_before, &requests_before);
    check_nothing_is_left(&root);
    true
}

/// The turns with a recorded reply.
fn replied(events: &[Value]) -> Vec<(String, u64)> {
    let turns = events.iter().filter_map(|line| {
        let event = event(line)?;
        (event["type"] == "replied").then(|| (session(line).to_owned(), event["turn"].as_u64().unwrap()))
    });
    turns.collect()
}

/// Number of requests to the model for each turn.
fn requests_per_turn(env: &TestEnv) -> BTreeMap<(String, u64), u32> {
    let mut counts = BTreeMap::new();
    for line in env.lines("journal") {
        let words: Vec<&str> = line.split(' ').collect();
        *counts.entry((words[0].to_owned(), words[1].parse().unwrap())).or_default() += 1;
    }
    counts
}

fn check_witnesses(
    env: &TestEnv,
    root: &str,
    replied_before: &[(String, u64)],
    requests_before: &BTreeMap<(String, u64), u32>,
) {
    let mut count = env.lines("work/count");
    count.sort();
    let runs = count.len();
    count.dedup();
    assert_eq!(runs, count.len(), "a command ran twice: {count:?}");
    let requests_after = requests_per_turn(env);
    for turn in replied_before {
        assert_eq!(
            requests_before.get(turn),
            requests_after.get(turn),
            "a recorded reply was bought again: {turn:?}"
        );
    }
    for (turn, times) in &requests_after {
        assert!(*times <= 2, "{turn:?} was bought {times} times");
    }
    let events = env.events(root);
    let interrupted = events.iter().filter(|line| {
        event(line)
            .is_some_and(|event| event["type"] == "call_failed" && event["cause"]["kind"] == "interrupted")
    });
    let again = requests_after.values().filter(|times| **times == 2).count();
    assert!(again <= interrupted.count(), "a second request without an interrupted first one");
    assert_eq!(replied(&events).len(), requests_after.len(), "every turn has one recorded reply");
}

fn check_nothing_is_left(root: &str) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !processes_with(root).is_empty() {
        assert!(Instant::now() < deadline, "a guard of {root} is left");
        std::thread::sleep(Duration::from_millis(20));
    }
    let sleeper = |pid: &u32| parent_is_init(*pid);
    let left: Vec<u32> = processes_with("sleep\u{0}300").into_iter().filter(sleeper).collect();
    assert!(left.is_empty(), "a command outlived its guard: {left:?}");
}

fn parent_is_init(pid: u32) -> bool {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1).map(str::to_owned));
    parent.as_deref() == Some("1")
}

#[test]
fn ctrl_c_ends_commands_and_their_daemons_within_two_seconds() {
    let env = TestEnv::new();
    let script = Script::new().turns([
        reply("on it").call("shell", json!({ "command": "setsid sleep 301 & sleep 302" })),
        reply("never"),
    ]);
    std::fs::write(env.path("script.toml"), script.to_string()).unwrap();
    let run = env.start();
    let deadline = Instant::now() + Duration::from_secs(10);
    while processes_with("sleep\u{0}302").is_empty() {
        assert!(Instant::now() < deadline, "the command never started");
        std::thread::sleep(Duration::from_millis(10));
    }
    let asked = Instant::now();
    rustix::process::kill_process(rustix::process::Pid::from_child(&run), rustix::process::Signal::INT)
        .unwrap();
    let output = run.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    assert_eq!(output.status.code(), Some(130));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["status"], &result["result"]), (&"cancelled".into(), &"on it".into()));
    assert!(processes_with("sleep\u{0}302").is_empty() && processes_with("sleep\u{0}301").is_empty());
}
