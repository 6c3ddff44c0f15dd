//! Time to find the secrets and protected files of a workspace of 50,000 files, for the first command of an agent and for the
//! next ones. Run with `cargo bench --profile dist -p brigade-base --bench scan`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints and may fail loudly")]

use std::path::Path;
use std::time::{Duration, Instant};

use brigade_base::sandbox::{ExtraAccess, SandboxMode, SandboxSettings, TreeSandbox};
use brigade_core::grant::Authority;
use brigade_core::permission::{Mode, Permissions};

const DIRECTORIES: usize = 5_000;
const FILES_IN_EACH: usize = 9;
const RUNS: usize = 15;

fn milliseconds(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1000.0
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn create_workspace(root: &Path) {
    for number in 0..DIRECTORIES {
        let directory = root.join(format!("package-{}/module-{number}", number / 50));
        std::fs::create_dir_all(&directory).unwrap();
        for file in 0..FILES_IN_EACH {
            std::fs::File::create(directory.join(format!("file-{file}.rs"))).unwrap();
        }
    }
    std::fs::write(root.join("package-7/.env"), "A=b").unwrap();
}

fn main() {
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = workspace.path().canonicalize().unwrap();
    create_workspace(&root);
    // The times of new directories are not relied on.
    std::thread::sleep(Duration::from_secs(4));
    let settings = SandboxSettings { mode: SandboxMode::Workspace, ..SandboxSettings::default() };
    let permissions = Permissions {
        mode: Mode::Edit,
        deny: vec!["read_file(secrets/**)".parse().unwrap(), "edit_file(src/generated/**)".parse().unwrap()],
        ..Permissions::default()
    };
    let authority = Authority {
        workspace: root.to_string_lossy().into_owned(),
        paths: [String::new()].into(),
        permissions,
        ..Authority::default()
    };
    let find =
        |tree: &TreeSandbox| drop(settings.confinement(&authority, &ExtraAccess::default(), tree).unwrap());
    let tree = TreeSandbox::default();
    find(&tree);
    let (mut first, mut next, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        first.push(milliseconds(|| find(&TreeSandbox::default())));
        next.push(milliseconds(|| find(&tree)));
        std::fs::write(root.join(format!("package-3/module-150/new-{run}")), "").unwrap();
        changed.push(milliseconds(|| find(&tree)));
    }
    println!("{:<58} {:>12}", format!("what (median of {RUNS} interleaved runs)"), "figure");
    println!("{:<58} {:>9.2} ms", "first command of an agent", median(first));
    println!("{:<58} {:>9.2} ms", "next command, nothing changed", median(next));
    println!("{:<58} {:>9.2} ms", "next command, one directory changed", median(changed));
}
