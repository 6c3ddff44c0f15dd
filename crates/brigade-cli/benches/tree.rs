//! What the live tree costs while 1,000 children work, beside the same run without one.
//!
//! `cargo bench --profile dist -p brigade-cli --bench tree`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a library")]

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pty_process::Size;
use pty_process::blocking::{Command, open};

const CHILDREN: usize = 1000;
const MEASURE_TIME: Duration = Duration::from_secs(10);
const RUNS: usize = 3;

/// Whether the terminal is one on which a tree can be drawn.
#[derive(Clone, Copy)]
enum Terminal {
    Capable,
    Dumb,
}

/// The share of one core that the command takes once all children wait for their model, in per cent.
fn cpu_share(folder: &Path, terminal: Terminal) -> f64 {
    let (pty, pts) = open().unwrap();
    pty.resize(Size::new(50, 200)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_brigade"))
        .args([
            "run",
            "work",
            "--max-agents",
            "2000",
            "--budget-tokens",
            "100000000",
            "--set",
            "swarm.max_concurrent=2000",
        ])
        .args(["--set", "limits.concurrency=2000", "--cwd"])
        .arg(folder)
        .arg("--model")
        .arg(format!("script:{}", folder.join("script.toml").display()))
        .env("BRIGADE_HOME", folder)
        .env("TERM", if matches!(terminal, Terminal::Capable) { "xterm-256color" } else { "dumb" })
        .spawn(pts)
        .unwrap();
    let pty = Arc::new(pty);
    let reader = std::thread::spawn({
        let pty = pty.clone();
        move || {
            let mut bytes = vec![0; 1 << 16];
            let mut total = 0;
            while let Ok(count @ 1..) = (&*pty).read(&mut bytes) {
                total += count;
            }
            total
        }
    });
    std::thread::sleep(Duration::from_secs(5));
    let (before, since) = (cpu(child.id()), Instant::now());
    std::thread::sleep(MEASURE_TIME);
    let share = (cpu(child.id()) - before) / since.elapsed().as_secs_f64() * 100.0;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(reader.join().unwrap() > 10_000, "the children were not started");
    share
}

/// Seconds of CPU that a process has used.
fn cpu(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "[[reply]]\nagent = 'lead'\n[[reply.call]]\ntool = 'delegate'\nrepeat = {CHILDREN}\n\
         arguments = {{ role = 'Worker {{n}}', task = 'work' }}\n[[reply]]\nfault = 'hang'\n"
    );
    std::fs::write(folder.path().join("script.toml"), script).unwrap();
    println!("{:<58} {:>12}  bound", "what (share of one core)", "figure");
    for _ in 0..RUNS {
        let (tree, lines) =
            (cpu_share(folder.path(), Terminal::Capable), cpu_share(folder.path(), Terminal::Dumb));
        println!("{:<58} {tree:>10.2} %  at most 3 %", "live tree of 1,000 children, 200 columns, 50 rows");
        println!("{:<58} {lines:>10.2} %", "  the same run with plain lines");
    }
}
