//! Recording in the README: a run, `kill -9`, `brigade resume`, and the bill.
//!
//! Commands of the agents wait at gates that the test opens. So every recorded screen is quiet but for time.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use brigade_testing::{Script, call, delegate, reply};
use serde_json::json;

use crate::cli::support::{Home, text};
use crate::screen::drawing::{Frame, assert_drawn, recording};
use crate::screen::support::Window;

const SIZE: (u16, u16) = (100, 26);
const SECOND_SIZE: (u16, u16) = (36, 2);
const RUN: &str = "brigade run --mode auto \"The tests fail. Repair the project and write a changelog.\"";

const CTRL_L: &str = "\u{c}";

/// Script of the project. Run N of a command waits for the file `open-COMMAND-N`. The test fails until `price.sh` is
/// repaired.
const DEV: &str = r#"#!/bin/sh
echo "$1" >> runs
gate=open-$1-$(grep -c "$1" runs)
until [ -e "$gate" ]; do sleep 0.02; done
[ "$1" != test ] || sh price.sh 10
"#;

/// The reply before the kill takes more than a second, the precision to which the store knows when a tree last ran. So
/// the resumed run knows all working time before it.
fn script() -> Script {
    let result = "The tests pass. price.sh compared with -gt instead of -ge, and CHANGELOG.md has an entry.";
    Script::new()
        .price(3.0, 15.0)
        .agent(
            "lead",
            [
                delegate("Scout", "Find out what is known.")
                    .delegate("Fixer", "Repair price.sh.")
                    .delegate("Writer", "Write the changelog.")
                    .delay_ms(300)
                    .tokens(1840, 196),
                call("shell", json!({ "command": "./dev test" })).delay_ms(300).tokens(2410, 58),
                reply(result).delay_ms(300).tokens(2630, 44),
            ],
        )
        .agent(
            "Scout",
            [
                call("shell", json!({ "command": "./dev lint" })).delay_ms(300).tokens(1190, 41),
                reply("The linter finds nothing.").delay_ms(300).tokens(1420, 87),
            ],
        )
        .agent(
            "Fixer",
            [
                call("shell", json!({ "command": "./dev test" })).delay_ms(300).tokens(1230, 38),
                call("read_file", json!({ "path": "price.sh" })).delay_ms(300).tokens(1580, 64),
                call("edit_file", json!({ "path": "price.sh", "old": "-gt", "new": "-ge" }))
                    .delay_ms(300)
                    .tokens(1710, 102),
                call("shell", json!({ "command": "./dev test" })).delay_ms(1100).tokens(1890, 29),
                reply("price.sh is repaired. My last run of the tests was interrupted.")
                    .delay_ms(300)
                    .tokens(2040, 71),
            ],
        )
        .agent(
            "Writer",
            [
                call("shell", json!({ "command": "./dev log" })).delay_ms(300).tokens(1205, 33),
                call("write_file", json!({ "path": "CHANGELOG.md", "content": "Fixed\n" }))
                    .delay_ms(300)
                    .tokens(1420, 155),
                call("shell", json!({ "command": "./dev spell" })).delay_ms(300).tokens(1610, 27),
                reply("CHANGELOG.md is written.").delay_ms(300).tokens(1700, 31),
            ],
        )
}

/// Two terminals in the folder of the project, and the frames recorded so far.
struct Recorder {
    home: Home,
    first: Window,
    second: Window,
    frames: Vec<Frame>,
}

/// Terminals of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    First,
    Both,
}

impl Recorder {
    fn start() -> Recorder {
        let home = Home::new();
        let script = script().journal(&home.work().join("requests.log"));
        home.write("home/config.toml", &format!("model = '{}'\n", home.script(script)));
        home.write("work/price.sh", "[ $1 -gt 10 ]\n");
        let dev = home.write("work/dev", DEV);
        std::fs::set_permissions(dev, PermissionsExt::from_mode(0o755)).unwrap();
        let folder = std::path::Path::new(env!("CARGO_BIN_EXE_brigade")).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let environment = [("PS1", "$ "), ("PATH", path.as_str())];
        let first = Window::shell(&home, SIZE, &environment);
        let second = Window::shell(&home, SECOND_SIZE, &environment);
        for window in [&first, &second] {
            wait_for_prompt(window);
        }
        Recorder { home, first, second, frames: Vec::new() }
    }

    fn record(&mut self, shown: Shown, millis: u64) {
        self.frames.push(Frame {
            screen: self.first.cells(),
            second: (shown == Shown::Both).then(|| self.second.cells()),
            shown_for: Duration::from_millis(millis),
        });
    }

    /// Types a command without Enter.
    fn type_command(&self, command: &str) {
        self.first.press(command);
        self.first.wait_until("typed", |screen| screen.ends_with(command));
    }

    /// Runs a command that ends by itself.
    fn run(&self, command: &str) {
        self.type_command(command);
        self.first.press("\r");
        wait_for_prompt(&self.first);
    }

    /// Waits until `./dev COMMAND` waits at its gate for the given time. The tree shows a command a little earlier.
    #[track_caller]
    fn wait_for_gate(&self, command: &str, number: usize) {
        self.first.wait_until(&format!("at gate {number} of {command}"), |_| {
            text(self.home.work().join("runs")).lines().filter(|run| *run == command).count() == number
        });
    }

    /// Lets a run of `./dev COMMAND` continue.
    fn open(&self, gate: &str) {
        self.home.write(&format!("work/open-{gate}"), "");
    }

    /// Waits until the newest tree shows these agents at work, each with its turns and its activity.
    #[track_caller]
    fn wait_for_tree(&self, rows: [(&str, &str, &str); 4]) {
        self.first.wait_until(&format!("{rows:?}"), |screen| {
            let last: Vec<&str> = screen.lines().rev().take(5).collect();
            rows.iter().all(|(agent, turns, activity)| {
                last.iter().any(|row| row.contains(agent) && row.contains(turns) && row.ends_with(activity))
            })
        });
    }
}

/// Waits until the last row is an empty prompt.
fn wait_for_prompt(window: &Window) {
    window.wait_until("at a prompt", |screen| screen.lines().last() == Some("$"));
}

#[test]
fn recording_of_a_killed_and_resumed_run_matches_a_run() {
    let mut recorder = Recorder::start();
    recorder.type_command(RUN);
    recorder.first.press("\r");
    record_run(&mut recorder);
    record_kill(&mut recorder);
    record_resume(&mut recorder);

    // The claims of the recording, from the files that the model and the project's script wrote.
    let requests = text(recorder.home.work().join("requests.log"));
    let distinct: BTreeSet<&str> = requests.lines().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(
        (requests.lines().count(), distinct.len()),
        (14, 14),
        "one request for each turn:\n{requests}"
    );
    let runs = text(recorder.home.work().join("runs"));
    let mut runs: Vec<&str> = runs.lines().collect();
    runs.sort_unstable();
    assert_eq!(runs, ["lint", "log", "spell", "test", "test", "test"], "no command is run again");
    assert_drawn(
        "recording.svg",
        &recording("A run is killed with kill -9 and resumed; nothing is paid twice", &recorder.frames),
    );
}

/// Three sub-agents work; one is done.
fn record_run(recorder: &mut Recorder) {
    let lead = |activity| ("lead", "1 turn ", activity);
    recorder.wait_for_tree([
        lead("waiting for 3 agents"),
        ("Scout", "1 turn ", "shell ./dev lint"),
        ("Fixer", "1 turn ", "shell ./dev test"),
        ("Writer", "1 turn ", "shell ./dev log"),
    ]);
    recorder.record(Shown::First, 1400);
    recorder.open("lint-1");
    recorder.wait_for_tree([
        lead("waiting for 2 agents"),
        ("Scout", "2 turns", "done"),
        ("Fixer", "1 turn ", "shell ./dev test"),
        ("Writer", "1 turn ", "shell ./dev log"),
    ]);
    recorder.record(Shown::First, 700);
    recorder.open("log-1");
    recorder.wait_for_tree([
        lead("waiting for 2 agents"),
        ("Scout", "2 turns", "done"),
        ("Fixer", "1 turn ", "shell ./dev test"),
        ("Writer", "3 turns", "shell ./dev spell"),
    ]);
    recorder.record(Shown::First, 700);
    recorder.open("test-1");
    recorder.wait_for_tree([
        lead("waiting for 2 agents"),
        ("Scout", "2 turns", "done"),
        ("Fixer", "4 turns", "shell ./dev test"),
        ("Writer", "3 turns", "shell ./dev spell"),
    ]);
    recorder.record(Shown::First, 700);
}

/// The process is killed from a second terminal.
fn record_kill(recorder: &mut Recorder) {
    recorder.wait_for_gate("test", 2);
    recorder.wait_for_gate("spell", 1);
    let kill = format!("kill -9 {}", recorder.first.foreground());
    recorder.second.press(&kill);
    recorder.second.wait_for(&kill);
    recorder.record(Shown::Both, 1400);
    recorder.second.press("\r");
    wait_for_prompt(&recorder.second);
    recorder.first.wait_for("Killed");
    // The prompt is in the middle of the tree that the process left behind.
    recorder.first.press(CTRL_L);
    recorder.first.wait_until("cleared", |screen| screen == "$");
    recorder.run("echo $?    # 128 + 9: killed by signal 9");
    recorder.record(Shown::Both, 1200);
}

/// The bill at the kill, the resumed run, its bill, and the requests that reached the model.
fn record_resume(recorder: &mut Recorder) {
    recorder.run("brigade sessions tree last");
    recorder.record(Shown::First, 1600);
    recorder.type_command("brigade resume");
    recorder.record(Shown::First, 600);
    recorder.first.press("\r");
    recorder.wait_for_tree([
        ("lead", "2 turns", "shell ./dev test"),
        ("Scout", "2 turns", "done"),
        ("Fixer", "5 turns", "done"),
        ("Writer", "4 turns", "done"),
    ]);
    recorder.record(Shown::First, 1400);
    recorder.open("test-3");
    wait_for_prompt(&recorder.first);
    recorder.record(Shown::First, 1600);
    recorder.run("wc -l < requests.log    # requests that the model received: one for each turn");
    recorder.record(Shown::First, 3600);
}
