//! How much longer a command takes in a sandbox than without one.
//!
//! `cargo bench --profile dist -p brigade-sandbox --bench sandbox`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a library")]

use std::ffi::OsString;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use brigade_sandbox::{Confinement, Enforcement, GuardCommand, Job, Layers, Sandbox, SandboxLimits, run};

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
    layers: Option<&Arc<Layers>>,
    expected: Enforcement,
) -> f64 {
    let confinement =
        sandbox.map_or(Confinement::None, |sandbox| Confinement::Sandbox(Box::new(sandbox.clone())));
    let job = Job::new("true", workspace, "bench", confinement).layers(layers.cloned());
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
    // As a tree has it: with limits, and with caches whose changes are shared.
    let tree = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let caches: Vec<PathBuf> = (0..6).map(|number| tree.path().join(format!("cache-{number}"))).collect();
    caches.iter().for_each(|cache| std::fs::create_dir(cache).unwrap());
    std::fs::create_dir(tree.path().join("layers")).unwrap();
    let layers = Arc::new(Layers::below(tree.path().join("layers"), caches.clone()));
    let limits = SandboxLimits { processes: Some(4096), ..SandboxLimits::default() };
    let limited =
        Sandbox { discarded: caches.into_iter().map(OsString::from).collect(), limits, ..sandbox.clone() };
    // As in plan mode.
    let plan = Sandbox {
        discarded: [limited.discarded.clone(), vec![path.clone().into()]].concat(),
        writable: Vec::new(),
        ..limited.clone()
    };
    let (own, other) = (guard(), guard_without_namespaces());
    let (mut plain, mut namespaces) = (vec![], vec![]);
    let (mut of_tree, mut of_plan) = (vec![], vec![]);
    let (mut other_plain, mut landlock) = (vec![], vec![]);
    for _ in 0..RUNS {
        plain.push(milliseconds(&own, &path, None, None, Enforcement::None).await);
        namespaces.push(milliseconds(&own, &path, Some(&sandbox), None, Enforcement::Namespaces).await);
        of_tree.push(milliseconds(&own, &path, Some(&limited), Some(&layers), Enforcement::Namespaces).await);
        of_plan.push(milliseconds(&own, &path, Some(&plan), Some(&layers), Enforcement::Namespaces).await);
        other_plain.push(milliseconds(&other, &path, None, None, Enforcement::None).await);
        landlock
            .push(milliseconds(&other, &path, Some(&limited), Some(&layers), Enforcement::Landlock).await);
    }
    let left = std::fs::read_dir(&path).unwrap().count();
    assert_eq!(left, 2, "placeholders were left behind");
    let (plain, namespaces) = (median(plain), median(namespaces));
    let (of_tree, of_plan) = (median(of_tree), median(of_plan));
    let (other_plain, landlock) = (median(other_plain), median(landlock));
    println!("{:<58} {:>12}  bound", format!("what (median of {RUNS} interleaved runs)"), "figure");
    println!("{:<58} {plain:>9.2} ms", "`true` under a guard");
    println!("{:<58} {namespaces:>9.2} ms", "in a sandbox with namespaces");
    println!("{:<58} {:>9.2} ms  at most 20 ms", "  more than without", namespaces - plain);
    println!("{:<58} {of_tree:>9.2} ms", "with limits and six shared caches");
    println!("{:<58} {:>9.2} ms  at most 20 ms", "  more than without", of_tree - plain);
    println!("{:<58} {of_plan:>9.2} ms", "and with a workspace whose changes are discarded");
    println!("{:<58} {:>9.2} ms  at most 20 ms", "  more than without", of_plan - plain);
    println!("{:<58} {other_plain:>9.2} ms", "`true` under a guard without namespaces");
    println!("{:<58} {landlock:>9.2} ms", "in a sandbox with Landlock");
    println!("{:<58} {:>9.2} ms  at most 5 ms", "  more than without", landlock - other_plain);
}
