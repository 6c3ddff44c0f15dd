//! Two processes that write to one store continuously, and a cancel from a third.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use brigade_outer_tests::command;
use brigade_testing::{Script, call, delegate, reply};
use serde_json::{Value, json};

/// Sixteen children that call a tool on every turn without a pause. Each turn is several events.
fn script() -> Script {
    Script::new()
        .agent("lead", [delegate("Busy", "go {n}").repeat(16), reply("all done")])
        .agent("Busy", [call("echo", json!({ "text": "again {turn}" }))])
}

/// Much more than a cancel takes, and much less than the runs would take.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

fn start(folder: &Path, task: &str) -> Child {
    let model = format!("script:{}", folder.join("script.toml").display());
    command(&folder.join("home"))
        .args(["run", task, "--model", &model, "--output-format", "json", "--cwd"])
        .arg(folder)
        .args(["--set", "swarm.max_concurrent=16", "--set", "limits.concurrency=16"])
        .args(["--set", "limits.child_turns=1000000", "--budget-tokens", "1000000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn running(folder: &Path) -> Vec<String> {
    let output =
        command(&folder.join("home")).args(["sessions", "list", "--output-format", "json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let rows = list.as_array().cloned().unwrap_or_default();
    rows.iter()
        .filter(|row| row["state"] == "running" || row["status"] == "running")
        .filter_map(|row| Some(row.get("session_id").or(row.get("id"))?.as_str()?.to_owned()))
        .collect()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < WAIT_TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn cancel_reaches_a_run_while_two_processes_saturate_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("script.toml"), script().to_string()).unwrap();
    let mut runs = [start(folder, "one"), start(folder, "two")];
    wait_for("both run", || running(folder).len() == 2);
    // Both are in the middle of their work.
    std::thread::sleep(Duration::from_millis(500));
    assert!(runs.iter_mut().all(|run| run.try_wait().unwrap().is_none()));

    for left in [1, 0] {
        let target = running(folder).first().cloned().unwrap();
        let asked = command(&folder.join("home")).args(["cancel", &target]).output().unwrap();
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        let still = |runs: &mut [Child; 2]| {
            runs.iter_mut().filter_map(|run| run.try_wait().unwrap().is_none().then_some(())).count()
        };
        wait_for("the cancelled run ends, the other continues", || still(&mut runs) == left);
    }
    for run in runs {
        let output = run.wait_with_output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["status"], "cancelled", "{result}");
        assert_eq!(output.status.code(), Some(130));
        // The store was busy: every child made many turns, and recorded the actor that cancelled it.
        let children = result["agents"].as_array().unwrap().iter().filter(|agent| agent["depth"] == 1);
        for child in children {
            assert!(child["turns"].as_u64().unwrap() > 5, "{child}");
            assert_eq!(child["error"], "cancelled by the user");
        }
    }
}
