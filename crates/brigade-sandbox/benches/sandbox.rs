//! How much longer a command takes in a sandbox than without one.
//!
//! `cargo bench --profile dist -p brigade-sandbox --bench sandbox`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a library")]

use std::ffi::OsString;
use std::future::pending;
use std::path::Path;
use std::time::Instant;

use brigade_sandbox::{Confinement, Enforcement, GuardCommand, Job, Sandbox, run};

const RUNS: usize = 201;

/// Names as in a project, most of which are missing.
const PROTECTED: [&str; 16] = [
    ".git/config",
    ".git/hooks",
    ".brigade",
    ".mcp.json",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    ".claude/agents",
    ".claude/skills",
    ".agents/skills",
    ".opencode/agent",
    ".gemini/agents",
    ".codex/agents",
    ".github/agents",
    ".cursor/agents",
    ".factory/droids",
];

fn guard() -> GuardCommand {
    GuardCommand { program: env!("CARGO_BIN_EXE_brigade-guard").into(), arguments: Vec::new() }
}

/// A guard that cannot create namespaces, and therefore uses Landlock.
fn guard_without_namespaces() -> GuardCommand {
    let script = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$0\" \"$@\"";
    let arguments = ["-U", "-r", "sh", "-c", script, env!("CARGO_BIN_EXE_brigade-guard")];
    GuardCommand { program: "/usr/bin/unshare".into(), arguments: arguments.map(OsString::from).into() }
}

async fn milliseconds(
    guard: &GuardCommand,
    workspace: &Path,
    sandbox: Option<&Sandbox>,
    expected: Enforcement,
) -> f64 {
    let confinement =
        sandbox.map_or(Confinement::None, |sandbox| Confinement::Sandbox(Box::new(sandbox.clone())));
    let job = Job::new("true", workspace, "bench", confinement);
    let started = Instant::now();
    let finished = run(guard, job, pending()).await.unwrap();
    let took = started.elapsed().as_secs_f64() * 1e3;
    assert_eq!(finished.enforcement, expected);
    took
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = workspace.path().canonicalize().unwrap();
    std::fs::create_dir_all(path.join(".git/hooks")).unwrap();
    std::fs::write(path.join(".git/config"), "").unwrap();
    std::fs::write(path.join(".env"), "").unwrap();
    let sandbox = Sandbox {
        writable: vec![path.clone().into()],
        protected: PROTECTED.map(|name| path.join(name).into()).into(),
        hidden: vec![path.join(".env").into()],
        allow_landlock_only: true,
        ..Sandbox::default()
    };
    let (own, other) = (guard(), guard_without_namespaces());
    let (mut plain, mut namespaces) = (vec![], vec![]);
    let (mut other_plain, mut landlock) = (vec![], vec![]);
    for _ in 0..RUNS {
        plain.push(milliseconds(&own, &path, None, Enforcement::None).await);
        namespaces.push(milliseconds(&own, &path, Some(&sandbox), Enforcement::Namespaces).await);
        other_plain.push(milliseconds(&other, &path, None, Enforcement::None).await);
        landlock.push(milliseconds(&other, &path, Some(&sandbox), Enforcement::Landlock).await);
    }
    let left = std::fs::read_dir(&path).unwrap().count();
    assert_eq!(left, 2, "placeholders were left behind");
    let (plain, namespaces) = (median(plain), median(namespaces));
    let (other_plain, landlock) = (median(other_plain), median(landlock));
    println!("{:<58} {:>12}  bound", format!("what (median of {RUNS} interleaved runs)"), "figure");
    println!("{:<58} {plain:>9.2} ms", "`true` under a guard");
    println!("{:<58} {namespaces:>9.2} ms", "in a sandbox with namespaces");
    println!("{:<58} {:>9.2} ms  at most 20 ms", "  more than without", namespaces - plain);
    println!("{:<58} {other_plain:>9.2} ms", "`true` under a guard without namespaces");
    println!("{:<58} {landlock:>9.2} ms", "in a sandbox with Landlock");
    println!("{:<58} {:>9.2} ms  at most 5 ms", "  more than without", landlock - other_plain);
}
