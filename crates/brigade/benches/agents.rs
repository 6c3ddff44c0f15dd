//! Cost of reading agent files.
//!
//! `cargo bench --profile dist -p brigade --bench agents` prints a table. Every figure is the median of five
//! runs.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a library")]

use std::path::Path;
use std::time::Instant;

use brigade::agents::{AgentCatalog, lint};

const RUNS: usize = 5;
const FILES: usize = 2_000;

fn main() {
    println!("{:<58} {:>12}  bound", "what (median of 5)", "figure");
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let linted = median(|| {
        let (reports, _) = lint(folder.path());
        assert_eq!(reports.iter().filter(|report| report.outcome.is_ok()).count(), FILES);
    });
    row("2,000 files linted", linted, "300 ms");
    let found = median(|| {
        let (catalogue, _) = AgentCatalog::from_folders(&[folder.path()]);
        assert_eq!(catalogue.list().len(), FILES);
    });
    row("2,000 files as a catalogue", found, "300 ms");
}

/// Realistic files: a quarter each in our own format, TOML, valid YAML and almost valid YAML.
fn fill(folder: &Path) {
    let body = "Work through the task step by step and say what you found.\n".repeat(60);
    for number in 0..FILES {
        let name = format!("agent-{number}");
        let (file, text) = match number % 4 {
            0 => (
                format!("{name}/AGENT.md"),
                format!(
                    "---\nname: {name}\ndescription: Does {number}\ntools: [read_file, grep]\n---\n{body}"
                ),
            ),
            1 => (
                format!("{name}.toml"),
                format!(
                    "name = '{name}'\ndescription = 'd'\nsandbox_mode = 'read-only'\ndeveloper_instructions = '''\n{body}'''\n"
                ),
            ),
            2 => (
                format!("{name}.md"),
                format!(
                    "---\nname: {name}\ndescription: Use it often\ntools: Read, Grep, Bash\nmodel: sonnet\ncolor: red\n---\n{body}"
                ),
            ),
            _ => (
                format!("{name}.md"),
                format!(
                    "---\nname: {name}\ndescription: Use it when: needed\nuser: \"Go: on\"\ntools: Read, Bash\n---\n{body}"
                ),
            ),
        };
        let file = folder.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
}

fn median(mut run: impl FnMut()) -> f64 {
    let mut figures: Vec<f64> = (0..RUNS)
        .map(|_| {
            let since = Instant::now();
            run();
            since.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    figures[RUNS / 2]
}

fn row(what: &str, millis: f64, bound: &str) {
    println!("{what:<58} {:>12}  {bound}", format!("{millis:.0} ms"));
}
