//! Long histories: a list of 2,000 sessions, and the rounds of a conversation late and early.
//!
//! `cargo bench -p brigade-cli --bench sessions`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a library")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use brigade::model::script::Script;
use brigade::store::SqliteStore;
use brigade::{Models, Runtime, Settings, Task, Workspace};

const SESSIONS: usize = 2_000;
const LISTS: usize = 11;
/// Rounds after which ten more are measured.
const ROUNDS: [u32; 3] = [10, 200, 800];

#[expect(clippy::disallowed_methods, reason = "the benchmark measures processes of its own")]
fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brigade"));
    command.env("BRIGADE_HOME", home).current_dir(home).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// Milliseconds that a list of all sessions takes, at the median.
fn list(home: &Path) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(SqliteStore::open(&home.join("sessions.db")).unwrap());
        let script = Script::parse(
            "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'echo'\n\
                                    arguments = { text = 'x' }\n[[reply]]\ntext = 'done'",
        )
        .unwrap();
        let settings = Settings::new("script", Workspace::open(home).unwrap());
        let runtime = Runtime::new(store, settings, Models::default().with("script", script));
        for _ in 0..SESSIONS {
            runtime.start(Task::new("a task")).await.unwrap().result().await.unwrap();
        }
    });
    let mut figures: Vec<f64> = (0..LISTS)
        .map(|_| {
            let started = Instant::now();
            let output = command(home).args(["sessions", "list", "--all"]).output().unwrap();
            assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), SESSIONS + 1);
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    figures[LISTS / 2]
}

/// Milliseconds of CPU and bytes read by a process so far.
fn used(process: u32) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    let counters = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    let read = counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    (ticks * 1e3 / rustix::param::clock_ticks_per_second() as f64, read.parse().unwrap())
}

/// CPU and bytes for each of ten rounds, after so many.
fn rounds(home: &Path, model: &str) -> Vec<(f64, f64)> {
    let mut chat = command(home)
        .args(["chat", "--model", model])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = BufReader::new(chat.stdout.take().unwrap()).lines();
    let mut input = chat.stdin.take().unwrap();
    let mut sent = 0;
    let figures = ROUNDS.map(|after| {
        let mut say = || {
            writeln!(input, "a message").unwrap();
            answers.next().unwrap().unwrap();
            sent += 1;
            sent
        };
        while say() < after {}
        let before = used(chat.id());
        while say() < after + 10 {}
        let now = used(chat.id());
        ((now.0 - before.0) / 10.0, (now.1 - before.1) / 10.0)
    });
    drop(input);
    chat.wait().unwrap();
    figures.to_vec()
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    println!("{:<58} {:>12}  bound", "what", "figure");
    let listed = list(folder.path());
    println!(
        "{:<58} {listed:>9.0} ms  at most 200 ms",
        "sessions list --all with 2,000 sessions (median of 11)"
    );
    let script = folder.path().join("echo.toml");
    std::fs::write(&script, "[[reply]]\ntext = 'turn {turn}: {heard}'").unwrap();
    let figures = rounds(folder.path(), &format!("script:{}", script.display()));
    for (after, (cpu, bytes)) in ROUNDS.iter().zip(&figures) {
        let what = format!("a round of a chat after {after} others: CPU, bytes read");
        println!("{what:<58} {cpu:>9.1} ms  {:.0} KB", bytes / 1024.0);
    }
}
