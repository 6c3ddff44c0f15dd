//! How long the command takes to start, beside the smallest program there is.
//!
//! `cargo bench --profile dist -p brigade-cli --bench start`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a library")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const RUNS: usize = 41;

fn milliseconds(command: &mut Command) -> f64 {
    let started = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).status().unwrap();
    assert!(status.success());
    started.elapsed().as_secs_f64() * 1e3
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "the benchmark measures processes of its own")]
fn command(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("BRIGADE_HOME", home);
    command
}

fn main() {
    let brigade = env!("CARGO_BIN_EXE_brigade");
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.toml");
    std::fs::write(&script, "[[reply]]\ntext = 'done'\n").unwrap();
    let model = format!("script:{}", script.display());
    let run = || {
        let mut run = command(brigade, folder.path());
        run.args(["run", "hello", "--model", &model, "--cwd"]).arg(folder.path());
        run
    };
    // The store exists before anything is measured.
    milliseconds(&mut run());
    let (mut floor, mut version, mut whole) = (vec![], vec![], vec![]);
    for _ in 0..RUNS {
        floor.push(milliseconds(&mut command("/bin/true", folder.path())));
        version.push(milliseconds(command(brigade, folder.path()).arg("--version")));
        whole.push(milliseconds(&mut run()));
    }
    let (floor, version, whole) = (median(floor), median(version), median(whole));
    println!("{:<58} {:>12}  bound", format!("what (median of {RUNS} interleaved runs)"), "figure");
    println!("{:<58} {:>9.2} ms", "floor: /bin/true", floor);
    println!("{:<58} {:>9.2} ms", "brigade --version", version);
    println!("{:<58} {:>12.2}  at most 3", "  as a ratio to the floor", version / floor);
    println!("{:<58} {:>9.2} ms  at most 25 ms", "a scripted run of one turn on an existing store", whole);
}
