//! What the commands of a tree share, and what remains of it.

use std::fs;
use std::time::{Duration, Instant};

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::{BackgroundRun, CommandResult, Home};

const ON: [&str; 4] = ["--set", "sandbox.mode=workspace", "--mode", "auto"];

/// A home directory of its own with a cache.
fn home() -> Home {
    let home = Home::outside_tmp();
    fs::create_dir_all(home.work().join("../user/.cache/tool")).unwrap();
    home.write("user/.cache/tool/old", "old");
    home
}

fn shell(command: &str) -> Script {
    Script::new().turns([call("shell", json!({ "command": command })), reply("{results}")])
}

/// Runs a script with the home directory of its own.
fn run(home: &Home, script: &Script, settings: &[&str]) -> String {
    let model = home.script(script);
    let arguments = [&["run", "the task", "--model", &model], &ON[..], settings].concat();
    let mut command = home.command(&arguments);
    command.env("HOME", home.work().join("../user").canonicalize().unwrap());
    CommandResult::run(&mut command).exits_with(0).stdout.clone()
}

fn temporary_directories(home: &Home) -> usize {
    fs::read_dir(home.home().join("tmp")).map_or(0, Iterator::count)
}

#[test]
fn commands_of_a_tree_share_what_they_change_in_caches_and_the_host_keeps_its_own() {
    let home = home();
    let change =
        "cd ~/.cache/tool && cat old && echo new > new && rm old && mkdir -m 0 closed && echo changed";
    let look = "ls ~/.cache/tool";
    let settings =
        ["--set", "swarm.roles.reader.sandbox=read-only", "--set", "swarm.roles.worker.tokens=100000"];
    let seen_by = |role: &str| {
        let agent = [call("shell", json!({ "command": look })), reply("{results}")];
        let script = Script::new().agent(role, agent).turns([
            call("shell", json!({ "command": change })),
            call("delegate", json!({ "role": role, "task": "look" })),
            reply("{results}"),
        ]);
        run(&home, &script, &settings)
    };
    let (worker, reader) = (seen_by("worker"), seen_by("reader"));
    assert!(worker.contains("closed\nnew"), "an agent with the same rights shares the cache: {worker}");
    assert!(reader.contains("old") && !reader.contains("new"), "one with fewer rights has its own: {reader}");
    assert_eq!(fs::read_to_string(home.work().join("../user/.cache/tool/old")).unwrap(), "old");
    assert_eq!(fs::read_dir(home.work().join("../user/.cache/tool")).unwrap().count(), 1);
    assert_eq!(temporary_directories(&home), 0);
    assert!(run(&home, &shell(look), &[]).contains("old"), "another tree starts with the cache of the host");
}

#[test]
fn next_run_removes_what_a_killed_one_left_behind() {
    let home = home();
    let script = shell("cd /tmp && mkdir -m 0 closed && echo x > file && sleep 600");
    let running = BackgroundRun::start(&home, script, &ON);
    let started = Instant::now();
    let left = || {
        let trees = fs::read_dir(home.home().join("tmp")).into_iter().flatten().flatten();
        trees.filter(|tree| tree.path().join("tmp/file").exists()).count()
    };
    while left() == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "the command does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Another run leaves the directory of a running one alone.
    home.run(shell("ls -A /tmp"), &ON).exits_with(0);
    assert_eq!(left(), 1);
    running.signal(rustix::process::Signal::KILL);
    drop(running);
    assert_eq!(left(), 1);
    home.run(shell("ls -A /tmp"), &ON).exits_with(0);
    assert_eq!(temporary_directories(&home), 0);
}

#[test]
fn read_file_reads_what_a_command_wrote_to_the_private_tmp() {
    let home = home();
    let mark = format!("brigade-{}", std::process::id());
    let path = format!("/tmp/{mark}");
    let read = |settings: &[&str]| {
        let script = Script::new().turns([
            call("shell", json!({ "command": format!("echo written > {path}") })),
            call("read_file", json!({ "path": path })),
            reply("{results}"),
        ]);
        run(&home, &script, settings)
    };
    assert!(read(&[]).contains("written"));
    assert!(read(&["--set", "permissions.deny=[\"read_file(/tmp/**)\"]"]).contains("is not allowed"));
    let without = read(&["--set", "sandbox.mode=off"]);
    fs::remove_file(&path).unwrap();
    assert!(without.contains("outside the workspace"), "{without}");
}
